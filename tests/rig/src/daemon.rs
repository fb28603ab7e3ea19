//! litd as a process of its own: started, watched, killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use thiserror::Error;
use toml::Table;

use crate::clock::ClockError;
use crate::lock;

/// How long a daemon may take until it is ready: recovery may wait for a device that blocks.
const START: Duration = Duration::from_secs(60);

/// How long a daemon may take to give everything back: as long as a device may block, and more.
const STOP: Duration = Duration::from_secs(90);

/// How often is looked whether something has happened.
const POLL: Duration = Duration::from_millis(2);

/// Where everything of one daemon lies, below one directory.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The directory.
    pub directory: PathBuf,
}

impl Layout {
    /// The names below `directory`, which is not touched.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.directory.join("litd.toml")
    }

    /// The stand-in hardware's socket.
    #[must_use]
    pub fn hardware(&self) -> PathBuf {
        self.directory.join("hardware.sock")
    }

    /// The clock's socket.
    #[must_use]
    pub fn clock(&self) -> PathBuf {
        self.directory.join("clock.sock")
    }

    /// Where hooks connect.
    #[must_use]
    pub fn ingest(&self) -> PathBuf {
        self.directory.join("ingest.sock")
    }

    /// Where litctl connects.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.directory.join("control.sock")
    }

    /// The file with the node's power as its BMC reports it.
    #[must_use]
    pub fn node_power(&self) -> PathBuf {
        self.directory.join("node-power.json")
    }

    /// The state directory: journal and learned distributions.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// The directory of the locks by which one litd owns a device.
    #[must_use]
    pub fn locks(&self) -> PathBuf {
        self.directory.join("devices")
    }

    /// Standard error of all daemons that ran here, one after the other.
    #[must_use]
    pub fn stderr(&self) -> PathBuf {
        self.directory.join("stderr")
    }

    fn notify(&self, number: u64) -> PathBuf {
        self.directory.join(format!("notify{number}.sock"))
    }
}

/// A configuration whose sockets, hardware and state lie below `directory` as [`Layout`] has
/// them, with metrics on any free port and no time for caps to settle. `extra` is TOML; what it has of these keys stays, and
/// where it says anything about hardware, that is all the hardware there is. What is no TOML
/// stands in front as it is: the daemon is to refuse it.
#[must_use]
pub fn default_config(directory: &Path, extra: &str) -> String {
    let (mut table, nonsense) = match extra.parse::<Table>() {
        Ok(table) => (table, ""),
        Err(_) => (Table::new(), extra),
    };
    let layout = Layout::new(directory);
    let path = |path: PathBuf| path.display().to_string();
    let mut values = Vec::new();
    if table.contains_key("hardware") {
        // Not the machine's own.
        values.push(("state", "locks", path(layout.locks()).into()));
    } else {
        let simulated =
            Table::from_iter([("simulated".to_owned(), path(layout.hardware()).into())]);
        table.insert("hardware".to_owned(), simulated.into());
    }
    values.extend([
        ("ingest", "socket", path(layout.ingest()).into()),
        ("control", "socket", path(layout.control()).into()),
        ("metrics", "listen", "127.0.0.1:0".into()),
        ("state", "directory", path(layout.state()).into()),
        ("hardware", "node_power", path(layout.node_power()).into()),
        // Without this a cap would take effect on the simulated node only after a while.
        ("settle", "seconds", toml::Value::Float(0.0)),
        ("settle", "iterations", toml::Value::Integer(0)),
    ]);
    for (section, key, value) in values {
        let section = table.entry(section).or_insert_with(|| Table::new().into());
        // A value that is not a section is left in, for the daemon to refuse.
        if let Some(section) = section.as_table_mut() {
            section.entry(key).or_insert(value);
        }
    }
    format!("{nonsense}\n{table}")
}

/// An error of a daemon under test.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// A file, a socket or the process itself.
    #[error("{}: {cause}", path.display())]
    System {
        /// The file to be made or program to be started.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The daemon ended before it was ready.
    #[error("litd ended with {status} before it was ready; it said:\n{stderr}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The daemon's standard error.
        stderr: String,
    },
    /// The clock under which it was to start.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// The daemon was not ready, or did not end, in time. It was killed.
    #[error("litd has not {what} within {} s; it said:\n{stderr}", within.as_secs())]
    Late {
        /// The step that it did not finish.
        what: &'static str,
        /// In which time.
        within: Duration,
        /// The daemon's standard error.
        stderr: String,
    },
}

/// Kills a daemon from another thread, while this one waits for it.
#[derive(Debug, Clone)]
pub struct Killer {
    pid: u32,
    /// Whether its end has been taken note of: its number may be another process's then.
    reaped: Arc<Mutex<bool>>,
}

impl Killer {
    /// Kills it (SIGKILL) and returns at once. Nothing happens if it has ended.
    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        let reaped = lock(&self.reaped);
        if let (false, Ok(pid)) = (*reaped, i32::try_from(self.pid)) {
            // If it has ended already, `Daemon::ended` reports that.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// A running litd. Dropping it kills it.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    killer: Killer,
    layout: Layout,
    notifications: Notifications,
}

impl Daemon {
    /// Writes the configuration `config` (TOML) below `directory` and starts `program` with it;
    /// with a `clock`, under that clock. Returns once it has told that it is ready, as systemd
    /// is told (`NOTIFY_SOCKET`, `READY=1`).
    ///
    /// # Errors
    /// [`DaemonError`]: it does not start, ends at once, or is not ready in time.
    pub fn spawn(
        program: &Path,
        directory: &Path,
        config: &str,
        clock: Option<&Path>,
    ) -> Result<Self, DaemonError> {
        let mut daemon = Self::launch(program, directory, config, clock)?;
        daemon.become_ready()?;
        Ok(daemon)
    }

    /// Waits until it has told that it is ready.
    ///
    /// # Errors
    /// [`DaemonError`]: it ends before, or takes too long and is killed.
    pub fn become_ready(&mut self) -> Result<(), DaemonError> {
        let lines = self.notifications.lines.clone();
        self.wait_for("become ready", || is_ready(&lock(&lines)))
    }

    /// Waits until something about a starting daemon is so.
    pub(crate) fn wait_for(
        &mut self,
        what: &'static str,
        mut happened: impl FnMut() -> bool,
    ) -> Result<(), DaemonError> {
        let deadline = Instant::now() + START;
        while !happened() {
            if let Some(status) = self.ended() {
                let stderr = self.stderr();
                return Err(DaemonError::Ended { status, stderr });
            }
            if Instant::now() > deadline {
                return Err(self.late(what, START));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Like [`Daemon::spawn`], but returns at once: for a daemon that is killed while it starts,
    /// or whose clock must be advanced for it to become ready.
    ///
    /// # Errors
    /// [`DaemonError::System`]
    pub fn launch(
        program: &Path,
        directory: &Path,
        config: &str,
        clock: Option<&Path>,
    ) -> Result<Self, DaemonError> {
        let layout = Layout::new(directory);
        let at = |path: &Path| {
            let path = path.to_owned();
            move |cause| DaemonError::System { path, cause }
        };
        fs::create_dir_all(layout.state()).map_err(at(&layout.state()))?;
        fs::write(layout.config(), config).map_err(at(&layout.config()))?;
        let stderr = layout.stderr();
        let stderr = File::options()
            .append(true)
            .create(true)
            .open(&stderr)
            .map_err(at(&stderr))?;
        // Two daemons may run at once, and what one says is not to be taken for the other's.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let notify = layout.notify(NUMBER.fetch_add(1, Ordering::Relaxed));
        let notifications = Notifications::listen(&notify).map_err(at(&notify))?;
        let mut command = Command::new(program);
        // A program that is several goes by its name.
        // An interrupt at the terminal is for the rig alone: the daemon is stopped in order.
        command
            .process_group(0)
            .arg0("litd")
            .arg("--config")
            .arg(layout.config());
        if let Some(clock) = clock {
            command.arg("--rig-clock").arg(clock);
        }
        command
            .env("NOTIFY_SOCKET", &notify)
            // The daemon must not take the tests' own service manager for its own.
            .env_remove("WATCHDOG_USEC")
            .env_remove("WATCHDOG_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LOGS_DIRECTORY")
            .env_remove("RUNTIME_DIRECTORY")
            .env_remove("STATE_DIRECTORY")
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        let child = command.spawn().map_err(at(program))?;
        let killer = Killer {
            pid: child.id(),
            reaped: Arc::default(),
        };
        Ok(Self {
            child,
            killer,
            layout,
            notifications,
        })
    }

    /// Where its files and sockets are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The daemon's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has told that it is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        is_ready(&lock(&self.notifications.lines))
    }

    /// Messages to its service manager so far, line by line (`STATUS=...`, `WATCHDOG=1`).
    #[must_use]
    pub fn notifications(&self) -> Vec<String> {
        lock(&self.notifications.lines).clone()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let mut reaped = lock(&self.killer.reaped);
        let status = self.child.try_wait().ok().flatten();
        *reaped |= status.is_some();
        status
    }

    /// For another thread, to kill it at any moment.
    #[must_use]
    pub fn killer(&self) -> Killer {
        self.killer.clone()
    }

    /// Kills it (SIGKILL): it can do nothing about that. Returns once it is dead.
    pub fn kill(mut self) {
        self.end();
    }

    /// Asks it to stop (SIGTERM), and waits until it has.
    ///
    /// # Errors
    /// It takes too long; it is killed then.
    pub fn terminate(mut self) -> Result<ExitStatus, DaemonError> {
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + STOP;
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(self.late("stopped", STOP));
            }
            thread::sleep(POLL);
        }
    }

    /// Asks it to stop, and returns at once; see [`Daemon::ended`]. For daemons under a clock,
    /// which must be advanced meanwhile.
    pub fn ask_to_stop(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Replaces its configuration file and asks it to read that (SIGHUP).
    ///
    /// # Errors
    /// The file can't be written.
    pub fn reload(&self, config: &str) -> Result<(), DaemonError> {
        let path = self.layout.config();
        fs::write(&path, config).map_err(|cause| DaemonError::System { path, cause })?;
        self.signal(Signal::SIGHUP);
        Ok(())
    }

    /// The standard error of all daemons of this directory so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        let bytes = fs::read(self.layout.stderr()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn signal(&self, signal: Signal) {
        self.killer.signal(signal);
    }

    fn late(&mut self, what: &'static str, within: Duration) -> DaemonError {
        self.end();
        DaemonError::Late {
            what,
            within,
            stderr: self.stderr(),
        }
    }

    fn end(&mut self) {
        let mut reaped = lock(&self.killer.reaped);
        let _ = self.child.kill();
        let _ = self.child.wait();
        *reaped = true;
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// Messages of a daemon to its service manager, collected by a thread: a daemon whose messages are not read would
/// block.
#[derive(Debug)]
struct Notifications {
    socket: PathBuf,
    lines: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Notifications {
    fn listen(socket: &Path) -> io::Result<Self> {
        let receiver = UnixDatagram::bind(socket)?;
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (lines, stop) = (lines.clone(), stop.clone());
            thread::Builder::new()
                .name("notify".to_owned())
                .spawn(move || collect(&receiver, &lines, &stop))?
        };
        Ok(Self {
            socket: socket.to_owned(),
            lines,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread looks at the flag once something arrives.
        if let Ok(sender) = UnixDatagram::unbound() {
            let _ = sender.send_to(b"STOP", &self.socket);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.socket);
    }
}

fn is_ready(lines: &[String]) -> bool {
    lines.iter().any(|line| line == "READY=1")
}

fn collect(receiver: &UnixDatagram, lines: &Mutex<Vec<String>>, stop: &AtomicBool) {
    let mut buffer = [0; 4096];
    while let Ok(length) = receiver.recv(&mut buffer) {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let text = String::from_utf8_lossy(&buffer[..length]);
        let mut lines = lock(lines);
        // The watchdog's lines are many and the same.
        for line in text.lines() {
            if lines.last().is_none_or(|last| last != line) {
                lines.push(line.to_owned());
            }
        }
    }
}
