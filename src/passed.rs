//! Descriptors that peers pass along with their bytes (`SCM_RIGHTS`), for which litd has no use.
//!
//! A passed descriptor is closed by the process that reads past it, or that closes the connection in whose queue
//! it waits, and the last close of a file may take as long as its owner likes: a TCP socket with `SO_LINGER` waits
//! there for its peer. In litd's only thread that would stop everything.
//!
//! Since Linux 6.16 a socket can be told to take none (`SO_PASSRIGHTS`): a peer that passes one gets an error
//! then. On older kernels litd checks the next bytes before it reads them, reads none that have a descriptor with
//! them, and has all connections closed by threads of their own. Those threads are sent a signal again and again
//! meanwhile, so that a close that waits for a peer gives up.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{MsgFlags, Shutdown, recvmsg, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

/// Of `asm-generic/socket.h`; the C library's headers don't have it yet.
const SO_PASSRIGHTS: libc::c_int = 83;

/// How many threads close connections.
const THREADS: usize = 8;

/// With so many connections waiting to be closed no new one is accepted.
const WAITING: usize = 256;

/// How often a thread that closes a connection is sent a signal.
const POKE: Duration = Duration::from_millis(5);

/// Sets a numeric option of a socket.
#[allow(unsafe_code)]
fn set(socket: &impl AsFd, option: libc::c_int, value: libc::c_int) -> nix::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the kernel reads one int there.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            length,
        )
    };
    Errno::result(outcome).map(drop)
}

/// Makes a unix socket, and all connections that will be made to it, refuse descriptors. Returns whether the
/// kernel can do that; call it before anybody can connect.
pub fn refuse(listener: &impl AsFd) -> bool {
    set(listener, SO_PASSRIGHTS, 0).is_ok()
}

/// The threads that close connections in which descriptors may wait; the same for all sockets.
#[derive(Debug, Clone, Default)]
pub struct Closers(Arc<Work>);

#[derive(Debug, Default)]
struct Work {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<OwnedFd>,
    /// Threads that are closing something at this moment.
    busy: Vec<libc::pthread_t>,
    threads: usize,
    pokes: bool,
}

impl Work {
    fn state(&self) -> MutexGuard<'_, State> {
        // No thread panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let woken = self.changed.wait(state);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes one connection after the other, for ever.
    fn close(&self) {
        let own = myself();
        let mut state = self.state();
        loop {
            let Some(end) = state.waiting.pop_front() else {
                state = self.wait(state);
                continue;
            };
            state.busy.push(own);
            drop(state);
            self.changed.notify_all();
            drop(end);
            state = self.state();
            state.busy.retain(|&thread| thread != own);
        }
    }

    /// Sends signals to threads that are closing, for ever.
    fn poke(&self) {
        loop {
            let mut state = self.state();
            while state.busy.is_empty() {
                state = self.wait(state);
            }
            state.busy.iter().for_each(|&thread| poke(thread));
            drop(state);
            thread::sleep(POKE);
        }
    }
}

impl Closers {
    /// Whether so many connections wait to be closed that no new one may be accepted.
    #[must_use]
    pub fn are_late(&self) -> bool {
        self.0.state().waiting.len() >= WAITING
    }

    fn close(&self, end: OwnedFd) {
        let mut state = self.0.state();
        state.waiting.push_back(end);
        if state.threads < THREADS && state.busy.len() + state.waiting.len() > state.threads {
            self.start(&mut state);
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// Starts another thread. If that fails, the existing threads do the work.
    fn start(&self, state: &mut State) {
        let begin = |name: &str, run: fn(&Work)| {
            let work = self.0.clone();
            let thread = thread::Builder::new().name(name.into());
            thread.stack_size(64 * 1024).spawn(move || run(&work))
        };
        if !state.pokes {
            // Without a handler the signal is ignored, and wakes no thread.
            let caught = signal(SignalKind::from_raw(libc::SIGURG)).map(drop);
            match caught.and_then(|()| begin("poke", Work::poke)) {
                Ok(_) => state.pokes = true,
                Err(error) => log::warn!("connections that linger can't be cut short: {error}"),
            }
        }
        match begin("close", Work::close) {
            Ok(_) => state.threads += 1,
            Err(error) => {
                log::warn!("no further thread for closing connections can be started: {error}")
            }
        }
    }
}

#[allow(unsafe_code)]
fn myself() -> libc::pthread_t {
    // SAFETY: it takes nothing and can't fail.
    unsafe { libc::pthread_self() }
}

#[allow(unsafe_code)]
fn poke(thread: libc::pthread_t) {
    // SAFETY: threads that close connections never end, so that their names stay theirs.
    unsafe { libc::pthread_kill(thread, libc::SIGURG) };
}

/// litd's end of a connection that is served no longer. When it is dropped it is closed by a thread that may wait.
#[derive(Debug)]
pub struct OurEnd {
    /// Present until it is dropped.
    end: Option<OwnedFd>,
    /// `None` where no descriptor can wait in it.
    closers: Option<Closers>,
}

impl OurEnd {
    /// An end in which no descriptor can wait.
    #[must_use]
    pub fn plain(end: OwnedFd) -> Self {
        let end = Some(end);
        Self { end, closers: None }
    }

    /// The descriptor.
    ///
    /// # Errors
    /// There is none any more.
    pub fn end(&self) -> io::Result<BorrowedFd<'_>> {
        let end = self.end.as_ref().map(AsFd::as_fd);
        end.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Ends the connection; what was sent before can still be read by the peer.
    pub fn shut_down(&self) {
        if let Some(end) = &self.end {
            // The peer may have gone.
            let _ = shutdown(end.as_raw_fd(), Shutdown::Both);
        }
    }
}

impl Drop for OurEnd {
    fn drop(&mut self) {
        if let (Some(end), Some(closers)) = (self.end.take(), &self.closers) {
            closers.close(end);
        }
    }
}

/// A connection that was made to litd.
#[derive(Debug)]
pub struct Connection {
    /// Present until it is dropped.
    stream: Option<UnixStream>,
    /// `None` where no descriptor can come with its bytes.
    closers: Option<Closers>,
}

/// The error of a connection whose peer passes descriptors.
fn passes() -> io::Error {
    io::Error::other("a descriptor comes with it")
}

impl Connection {
    /// A connection that was accepted. `closers` close it, unless its listener was told to [`refuse`] descriptors.
    #[must_use]
    pub fn new(stream: UnixStream, closers: Option<Closers>) -> Self {
        if closers.is_some() {
            // Otherwise a read would silently close a descriptor that was passed out of band.
            let _ = set(&stream, libc::SO_OOBINLINE, 1);
        }
        let stream = Some(stream);
        Self { stream, closers }
    }

    /// The stream as tokio has it.
    ///
    /// # Errors
    /// There is none any more.
    pub fn stream(&self) -> io::Result<&UnixStream> {
        let stream = self.stream.as_ref();
        stream.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Reads the bytes that are there, unless a descriptor comes with them.
    ///
    /// # Errors
    /// The system's, [`io::ErrorKind::WouldBlock`] among them; or a descriptor comes with the next bytes.
    pub fn read_now(&self, chunk: &mut [u8]) -> io::Result<usize> {
        let stream = self.stream()?;
        let mut length = chunk.len();
        if self.closers.is_some() {
            let mut parts = [IoSliceMut::new(chunk)];
            let fd = stream.as_fd().as_raw_fd();
            let peeked = recvmsg::<()>(fd, &mut parts, None, MsgFlags::MSG_PEEK)?;
            if peeked.flags.contains(MsgFlags::MSG_CTRUNC) {
                return Err(passes());
            }
            length = peeked.bytes;
        }
        // Bytes that have come since don't fit into this length.
        let seen = chunk.get_mut(..length).unwrap_or_default();
        Ok(nix::unistd::read(stream, seen)?)
    }

    /// Another handle of litd's end, which keeps it open.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn second(&self) -> io::Result<OurEnd> {
        Ok(OurEnd {
            end: Some(self.stream()?.as_fd().try_clone_to_owned()?),
            closers: self.closers.clone(),
        })
    }

    /// litd's end, still open, after serving has ended.
    #[must_use]
    pub fn into_end(mut self) -> OurEnd {
        self.take_end()
    }

    fn take_end(&mut self) -> OurEnd {
        let stream = self.stream.take().map(UnixStream::into_std);
        OurEnd {
            end: stream.and_then(Result::ok).map(Into::into),
            closers: self.closers.take(),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.take_end());
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Bytes that have come already are read before waiting: readiness is not known at first.
        match self.read_now(buffer.initialize_unfilled()) {
            Ok(length) => {
                buffer.advance(length);
                return Poll::Ready(Ok(()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        loop {
            let stream = self.stream()?;
            ready!(stream.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            match stream.try_io(Interest::READABLE, || self.read_now(room)) {
                Ok(length) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let stream = self.stream()?;
            ready!(stream.poll_write_ready(context))?;
            match stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let end = self.stream()?.as_fd().as_raw_fd();
        Poll::Ready(Ok(shutdown(end, Shutdown::Write)?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use nix::sys::socket::{setsockopt, sockopt};

    use super::*;

    /// A socket that waits for its peer for a minute when it is closed, and the peer.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[b'x'; 65_536]).is_ok() {}
        let long = libc::linger {
            l_onoff: 1,
            l_linger: 60,
        };
        setsockopt(&ours, sockopt::Linger, &long).unwrap();
        (ours.into(), theirs)
    }

    #[test]
    fn whatever_lingers_is_closed_soon_and_nobody_waits_for_it() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let closers = Closers::default();
            let (ends, peers): (Vec<_>, Vec<_>) = (0..4 * THREADS).map(|_| lingering()).unzip();
            let began = Instant::now();
            for end in ends {
                closers.close(end);
            }
            assert!(began.elapsed() < Duration::from_secs(1));
            let is_done = || {
                let state = closers.0.state();
                state.waiting.is_empty() && state.busy.is_empty()
            };
            while !is_done() {
                assert!(
                    began.elapsed() < Duration::from_secs(20),
                    "it still lingers"
                );
                tokio::time::sleep(POKE).await;
            }
            drop(peers);
        });
    }
}
