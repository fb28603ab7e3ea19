//! Signals from systemd and from people at a terminal.
//!
//! A daemon blocks them as its very first act ([`hold`]), in every thread that it ever has, and reads them from the
//! kernel once its loop turns ([`Signals::held`]). So none has its default effect at a moment when nobody would look
//! at the caps any more: neither while litd starts nor while it starts itself anew ([`crate::anew`]), across which the
//! kernel keeps the signals that wait.

use std::io;

use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks of a daemon.
pub(crate) enum Asked {
    Reload,
    Stop,
}

/// The signals that litd answers.
fn answered() -> SigSet {
    [Number::SIGHUP, Number::SIGTERM, Number::SIGINT]
        .into_iter()
        .collect()
}

/// Keeps these signals waiting. Threads inherit that; processes that litd starts do not.
pub(crate) fn hold() {
    // The kernel refuses no set of signals.
    let _ = answered().thread_block();
}

/// Lets these signals, also those that wait, have their effect: for whatever is no daemon.
pub(crate) fn let_through() {
    let _ = answered().thread_unblock();
}

/// Where signals come from.
pub(crate) enum Signals {
    /// They were held from the first moment on.
    Held(AsyncFd<SignalFd>),
    /// They are caught from now on.
    Caught(Caught),
}

pub(crate) struct Caught {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// The signals that were [held](hold).
    #[allow(unsafe_code)]
    pub(crate) fn held() -> io::Result<Self> {
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let queue = SignalFd::with_flags(&answered(), flags)?;
        // SAFETY: the descriptor is the queue's own: it stays open, and the same, until the queue is dropped.
        let queue = unsafe { AsyncFd::register(queue) }?;
        Ok(Self::Held(queue))
    }

    /// The signals that come from now on, of a process that does not hold them.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self::Caught(Caught {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        }))
    }

    /// Waits for the next signal. A reload comes before a stop that was asked for right after it: caps are left behind
    /// as the new file says.
    pub(crate) async fn next(&mut self) -> Asked {
        match self.next_number().await {
            Number::SIGHUP => Asked::Reload,
            _ => Asked::Stop,
        }
    }

    /// Waits for a signal that ends a process, and names it. A terminal that hangs up is one, too, for whoever has
    /// no configuration to read anew.
    pub(crate) async fn ends(&mut self) -> &'static str {
        match self.next_number().await {
            Number::SIGHUP => "told to stop (SIGHUP)",
            Number::SIGINT => "told to stop (Ctrl-C)",
            _ => "told to stop (SIGTERM)",
        }
    }

    async fn next_number(&mut self) -> Number {
        match self {
            Self::Held(queue) => loop {
                match queue.readable().await {
                    // Of several the kernel gives the one with the lowest number first: SIGHUP.
                    Ok(mut ready) => match ready.try_io(|queue| read(queue.get_ref())) {
                        Ok(Ok(number)) => return number,
                        Ok(Err(error)) => log::warn!("signals can't be read: {error}"),
                        Err(_nothing) => {}
                    },
                    // The runtime is about to end.
                    Err(_) => std::future::pending().await,
                }
            },
            Self::Caught(caught) => tokio::select! {
                biased;
                _ = caught.hangup.recv() => Number::SIGHUP,
                _ = caught.terminate.recv() => Number::SIGTERM,
                _ = caught.interrupt.recv() => Number::SIGINT,
            },
        }
    }
}

fn read(queue: &SignalFd) -> io::Result<Number> {
    let signal = queue.read_signal()?;
    let signal = signal.ok_or(io::ErrorKind::WouldBlock)?;
    let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
    Ok(Number::try_from(number)?)
}
