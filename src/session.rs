//! A connection of a hook: frames in, frames out, with a bound on both.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use litd_core::{Doubt, Home, Peer, SessionId};
use litd_proto::frame::{self, Reader};
use tokio::io::Interest;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::hub::Shared;
use crate::passed::{Connection, OurEnd};
use crate::process::Process;

/// How much is read from a hook before others have their turn.
const CHUNK: usize = 16 * 1024;

/// The longest frame of a hook that is not a rank yet.
const STRANGER: usize = 16 * 1024;

/// How many bytes may wait for a hook that does not read; further frames are dropped. Directives are some tens of
/// bytes, and each says all that the last one did.
const MOST_UNSENT: usize = 16 * 1024;

/// A hook that has read nothing for so long, although there is something, is disconnected.
const STALL: Duration = Duration::from_secs(5);

/// How long the last frames to a hook whose connection is closed may take.
const PARTING: Duration = Duration::from_secs(1);

/// The process that connected.
#[derive(Debug)]
pub struct Caller {
    /// Ids of the process, as the kernel tells.
    pub peer: Peer,
    /// A handle of it.
    pub process: Process,
    /// The job that a scheduler has put it into.
    pub home: Option<Home>,
    /// Whether it gets a reason if it is refused before it is a rank.
    pub is_refused_in_words: bool,
}

/// A connection of a hook.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    process: Process,
    is_refused_in_words: bool,
    unsent: RefCell<Vec<u8>>,
    /// Since when none of the waiting bytes could be written.
    stalled: Cell<Option<Instant>>,
    closing: Cell<bool>,
    /// The task that waits for the socket has something new to wait for.
    changed: Notify,
}

impl Session {
    /// A session on a process's connection; for `is_refused_in_words` see [`Caller`].
    #[must_use]
    pub fn new(connection: Connection, process: Process, is_refused_in_words: bool) -> Self {
        Self {
            connection,
            process,
            is_refused_in_words,
            unsent: RefCell::default(),
            stalled: Cell::new(None),
            closing: Cell::new(false),
            changed: Notify::new(),
        }
    }

    /// Sends a frame: at once if the socket takes it, later if it is full, or never if it has
    /// been full for too much already.
    pub fn send(&self, message: &[u8]) {
        let mut unsent = self.unsent.borrow_mut();
        let room = unsent.is_empty() || unsent.len() + message.len() <= MOST_UNSENT;
        if self.closing.get() || !room {
            return;
        }
        if let Err(error) = frame::write(&mut unsent, message) {
            log::error!("a message to a hook can't be framed: {error}");
            return;
        }
        drop(unsent);
        // An error of the connection shows when it is read.
        let _ = self.flush();
        if !self.is_flushed() {
            self.changed.notify_one();
        }
    }

    /// Whether it gets a reason if it is refused before it is a rank.
    #[must_use]
    pub fn is_refused_in_words(&self) -> bool {
        self.is_refused_in_words
    }

    /// Why the process that connected may not be the one that has its id now.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        self.process.doubt()
    }

    /// Ends the connection once what was sent before is out.
    pub fn close(&self) {
        self.closing.set(true);
        self.changed.notify_one();
    }

    /// Whether the kernel has everything that was sent.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.unsent.borrow().is_empty()
    }

    /// Writes as much as the socket takes now.
    fn flush(&self) -> io::Result<()> {
        let stream = self.connection.stream()?;
        let mut unsent = self.unsent.borrow_mut();
        while !unsent.is_empty() {
            match stream.try_write(&unsent) {
                Ok(written) => {
                    unsent.drain(..written);
                    self.stalled.set(None);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.stalled.get().is_none() {
                        self.stalled.set(Some(Instant::now()));
                    }
                    return Ok(());
                }
                Err(error) => {
                    // The hook reads nothing any more; its last frames are still to come.
                    unsent.clear();
                    self.stalled.set(None);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Waits until the connection has something to read or room to write waiting bytes; breaks once it has to end.
    async fn wait(&self) -> ControlFlow<()> {
        let Ok(stream) = self.connection.stream() else {
            return ControlFlow::Break(());
        };
        let interest = match self.is_flushed() {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        let stalled = self.stalled.get();
        let cut = stalled.map_or_else(Instant::now, |since| since + STALL);
        tokio::select! {
            ready = stream.ready(interest) => match ready {
                Ok(ready) if ready.is_writable() => {
                    let _ = self.flush();
                    ControlFlow::Continue(())
                }
                Ok(_) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            },
            () = self.changed.notified() => ControlFlow::Continue(()),
            () = sleep_until(cut), if stalled.is_some() => ControlFlow::Break(()),
        }
    }

    /// Reads the bytes that are there. A short read has emptied the socket (epoll(7)): no second read is tried,
    /// and the task sleeps at once. The thread that was just told to set a clock may be waiting for this one's
    /// core.
    fn read(&self, chunk: &mut [u8]) -> io::Result<usize> {
        let mut read = Err(io::ErrorKind::WouldBlock.into());
        let emptied = || Err(io::ErrorKind::WouldBlock.into());
        let outcome = self.connection.stream()?.try_io(Interest::READABLE, || {
            let length = self.connection.read_now(chunk)?;
            read = Ok(length);
            match length {
                1.. if length < chunk.len() => emptied(),
                _ => Ok(()),
            }
        });
        read.or_else(|_: io::Error| outcome.map(|()| 0))
    }

    /// Reads once, and hands complete frames to the hub. Returns the number of bytes.
    fn receive(
        &self,
        id: SessionId,
        reader: &mut Reader,
        longest: usize,
        hub: &Shared,
    ) -> ControlFlow<(), usize> {
        self.receive_by(|chunk| self.read(chunk), id, reader, longest, hub)
    }

    /// The same for bytes that came before any waiting: readiness is not known yet.
    fn begin(
        &self,
        id: SessionId,
        reader: &mut Reader,
        longest: usize,
        hub: &Shared,
    ) -> ControlFlow<(), usize> {
        let read = |chunk: &mut [u8]| self.connection.read_now(chunk);
        self.receive_by(read, id, reader, longest, hub)
    }

    fn receive_by(
        &self,
        read: impl Fn(&mut [u8]) -> io::Result<usize>,
        id: SessionId,
        reader: &mut Reader,
        longest: usize,
        hub: &Shared,
    ) -> ControlFlow<(), usize> {
        reader.set_max(match hub.borrow().is_attached(id) {
            true => longest,
            false => longest.min(STRANGER),
        });
        let mut chunk = [0; CHUNK];
        let length = match read(&mut chunk) {
            Ok(0) => return ControlFlow::Break(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return ControlFlow::Continue(0);
            }
            Err(_) => return ControlFlow::Break(()),
        };
        let mut input = &chunk[..length];
        while !self.closing.get() {
            match reader.take(&mut input) {
                Ok(Some(message)) => hub.borrow_mut().frame(id, message),
                Ok(None) => return ControlFlow::Continue(length),
                Err(error) => {
                    hub.borrow_mut().no_frame(id, &error.to_string());
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Break(())
    }

    async fn part(&self) {
        let flushed = async {
            while !self.is_flushed() {
                let Ok(stream) = self.connection.stream() else {
                    return;
                };
                if stream.writable().await.is_err() || self.flush().is_err() {
                    return;
                }
            }
        };
        // A hook that does not read its last frames in time misses them.
        let _ = timeout(PARTING, flushed).await;
        // The session stays in the hub until then, but nothing waits for it any more.
        self.unsent.borrow_mut().clear();
    }
}

/// Serves a hook until either side ends the connection. `longest` is in bytes. Returns litd's end of it, which is
/// still open.
pub async fn serve(
    connection: Connection,
    caller: Caller,
    longest: usize,
    hub: Shared,
) -> Option<OurEnd> {
    let Caller {
        peer,
        process,
        home,
        is_refused_in_words,
    } = caller;
    let session = Rc::new(Session::new(connection, process, is_refused_in_words));
    let mut reader = Reader::new(longest);
    let id = hub.borrow_mut().join(session.clone(), peer, home);
    // A hook says hello at once: litd knows who it is before the next one that connects takes its place.
    if session.begin(id, &mut reader, longest, &hub).is_break() {
        session.close();
    }
    while !session.closing.get() {
        if session.wait().await.is_break() {
            break;
        }
        match session.receive(id, &mut reader, longest, &hub) {
            ControlFlow::Break(()) => break,
            // The others' turn: a socket that is always full of frames would keep this task busy.
            ControlFlow::Continue(CHUNK) => tokio::task::yield_now().await,
            ControlFlow::Continue(_) => {}
        }
    }
    // The reader may hold most of a long frame, and the last frames take a while.
    drop(reader);
    session.part().await;
    hub.borrow_mut().leave(id);
    Some(Rc::into_inner(session)?.connection.into_end())
}
