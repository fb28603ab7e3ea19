//! The daemon's clock (`litd --rig-clock PATH`): time passes when the rig says so, and the rig
//! hears when the daemon has done everything that was due.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use litd_units::Nanos;
use thiserror::Error;

/// How long a daemon may take to connect, and to answer an advance.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often is looked whether a daemon has connected.
const POLL: Duration = Duration::from_millis(1);

/// Why time could not be advanced.
#[derive(Debug, Error)]
pub enum ClockError {
    /// No daemon connected.
    #[error("no daemon has connected to the clock {} for {} s", socket.display(), PATIENCE.as_secs())]
    NoDaemon {
        /// The clock's socket.
        socket: PathBuf,
    },
    /// The daemon has ended, or closed its end. The next advance waits for a new one.
    #[error("the daemon closed its connection to the clock {} at {now}", socket.display())]
    Closed {
        /// The clock's socket.
        socket: PathBuf,
        /// The last time told to it.
        now: Nanos,
    },
    /// The daemon is not done in time.
    #[error(
        "the daemon is not idle after {} s; it was told that it is {now} and that {frames} frames \
         were sent: did it get them all, does a device block?",
        PATIENCE.as_secs()
    )]
    Busy {
        /// The last time told to it.
        now: Nanos,
        /// How many frames it was to wait for.
        frames: u64,
    },
    /// The daemon answered something else.
    #[error("the daemon answered {answer:?} to \"advance {now} {frames}\"")]
    Answer {
        /// The answer.
        answer: String,
        /// The time told to it, in nanoseconds.
        now: i64,
        /// How many frames it was to wait for.
        frames: u64,
    },
    /// The socket.
    #[error("the clock {}: {cause}", socket.display())]
    Socket {
        /// The clock's socket.
        socket: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

/// How many frames all players have sent to the daemon that runs now. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Frames(Arc<AtomicU64>);

impl Frames {
    /// A frame was sent.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// A new daemon counts from 0.
    pub fn reset(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

/// The clock's end of the socket. Whichever daemon connected last is told the time.
#[derive(Debug)]
pub struct Clock {
    socket: PathBuf,
    listener: UnixListener,
    daemon: Option<BufReader<UnixStream>>,
}

impl Clock {
    /// Makes the socket for daemons to connect to; one that lies there is removed.
    ///
    /// # Errors
    /// The socket can't be made.
    pub fn start(socket: &Path) -> io::Result<Self> {
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            socket: socket.to_owned(),
            listener,
            daemon: None,
        })
    }

    /// Where daemons connect to.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Tells the daemon that it is `now` and that `frames` frames were sent to it so far, and
    /// waits until it has done all that follows from that. Where none is connected, waits for
    /// one.
    ///
    /// # Errors
    /// [`ClockError`]: no daemon, a dead one, or a busy one.
    pub fn advance(&mut self, now: Nanos, frames: u64) -> Result<(), ClockError> {
        self.tell("advance", now, frames)
    }

    /// Like [`Clock::advance`], but to the daemon no time passes in between: it is `now` at
    /// once, as after a suspend.
    ///
    /// # Errors
    /// As [`Clock::advance`].
    pub fn jump(&mut self, now: Nanos, frames: u64) -> Result<(), ClockError> {
        self.tell("jump", now, frames)
    }

    fn tell(&mut self, what: &'static str, now: Nanos, frames: u64) -> Result<(), ClockError> {
        let mut daemon = self.daemon()?;
        let answer = exchange(&mut daemon, what, now, frames);
        let answer = answer.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClockError::Busy { now, frames },
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => ClockError::Closed {
                socket: self.socket.clone(),
                now,
            },
            _ => self.failed(error),
        })?;
        if answer.trim_end() != format!("idle {}", now.0) {
            return Err(ClockError::Answer {
                answer,
                now: now.0,
                frames,
            });
        }
        self.daemon = Some(daemon);
        Ok(())
    }

    /// The connection to talk to: the newest there is.
    fn daemon(&mut self) -> Result<BufReader<UnixStream>, ClockError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.accept()?;
            // Taken, and put back once it has answered: what comes late is no answer to the
            // next advance.
            if let Some(daemon) = self.daemon.take() {
                return Ok(daemon);
            }
            if Instant::now() > deadline {
                let socket = self.socket.clone();
                return Err(ClockError::NoDaemon { socket });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Closes the connection to the present daemon, and whichever wait to be taken: one that is
    /// started now will be the one to talk to.
    pub(crate) fn forget(&mut self) -> Result<(), ClockError> {
        self.accept()?;
        self.daemon = None;
        Ok(())
    }

    /// Whether a daemon has connected (it may have ended since).
    pub(crate) fn is_connected(&mut self) -> Result<bool, ClockError> {
        self.accept()?;
        Ok(self.daemon.is_some())
    }

    /// Takes the newest connection, if any daemon has connected since the last time.
    fn accept(&mut self) -> Result<(), ClockError> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.daemon = Some(prepare(stream).map_err(|error| self.failed(error))?);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    fn failed(&self, cause: io::Error) -> ClockError {
        ClockError::Socket {
            socket: self.socket.clone(),
            cause,
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

fn prepare(stream: UnixStream) -> io::Result<BufReader<UnixStream>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn exchange(
    daemon: &mut BufReader<UnixStream>,
    what: &str,
    now: Nanos,
    frames: u64,
) -> io::Result<String> {
    // A single write, because a line in pieces would wake the daemon more than once.
    let line = format!("{what} {} {frames}\n", now.0);
    daemon.get_mut().write_all(line.as_bytes())?;
    let mut answer = String::new();
    match daemon.read_line(&mut answer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(answer),
    }
}
