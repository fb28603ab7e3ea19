//! Messages to systemd: ready, alive, present activity. Without systemd none are sent. Sending never waits: a
//! message for which the socket has no room is sent again later.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The line to systemd.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<OsString>,
    watchdog: Option<Duration>,
    fed: Option<Instant>,
    status: String,
    /// Whether systemd has yet to hear that the daemon is ready.
    owes_ready: bool,
}

impl Notifier {
    /// A line to systemd, if it has started this process and wants messages.
    #[must_use]
    pub fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET");
        let watchdog = sd_notify::watchdog_enabled().filter(|_| socket.is_some());
        Self {
            socket,
            watchdog,
            ..Self::silent()
        }
    }

    /// A line to nobody.
    #[must_use]
    pub fn silent() -> Self {
        Self {
            socket: None,
            watchdog: None,
            fed: None,
            status: String::new(),
            owes_ready: false,
        }
    }

    /// Whether [`Notifier::status`] has a reader.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.socket.is_some()
    }

    /// The daemon works; also the end of a reload.
    pub fn ready(&mut self) {
        self.owes_ready = !self.send(&[NotifyState::Ready]);
    }

    /// The configuration is being read anew; [`Notifier::ready`] follows.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(_) => self.send(&[NotifyState::Reloading]),
        };
    }

    /// The daemon restores everything and ends.
    pub fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// The loop has done its round. Whatever its pace, the watchdog is fed only a few times in
    /// the period that systemd allows.
    pub fn alive(&mut self) {
        if self.owes_ready {
            self.ready();
        }
        let Some(period) = self.watchdog else { return };
        let is_due = self.fed.is_none_or(|fed| fed.elapsed() >= period / 4);
        if is_due && self.send(&[NotifyState::Watchdog]) {
            self.fed = Some(Instant::now());
        }
    }

    /// A line for `systemctl status`.
    pub fn status(&mut self, line: &str) {
        // A newline would end the value and begin another assignment.
        let line = line.replace(char::is_control, " ");
        if line != self.status && self.send(&[NotifyState::Status(&line)]) {
            self.status = line;
        }
    }

    /// Sends this. Returns whether it need not be sent again.
    fn send(&self, state: &[NotifyState<'_>]) -> bool {
        let Some(socket) = &self.socket else {
            return true;
        };
        match tell(socket, state) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                log::warn!("litd can't report its state to systemd: {error}");
                true
            }
            Ok(()) => true,
        }
    }
}

/// Never waits: `WouldBlock` where the socket is full.
fn tell(socket: &OsString, state: &[NotifyState<'_>]) -> io::Result<()> {
    let mut text = String::new();
    for assignment in state {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{assignment}");
    }
    let line = UnixDatagram::unbound()?;
    line.set_nonblocking(true)?;
    line.send_to(text.as_bytes(), socket).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(systemd: &UnixDatagram) -> Vec<String> {
        let mut buffer = [0; 256];
        let mut heard = Vec::new();
        while let Ok(length) = systemd.recv(&mut buffer) {
            heard.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        heard
    }

    #[test]
    fn what_systemd_has_no_room_for_is_said_again() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("notify");
        let systemd = UnixDatagram::bind(&socket).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let mut notifier = Notifier {
            socket: Some(socket.into_os_string()),
            watchdog: Some(Duration::from_secs(3600)),
            ..Notifier::silent()
        };
        // Any user may send to the socket.
        let filled = (0..100_000).find(|_| !notifier.send(&[NotifyState::Errno(1)]));
        assert!(filled.is_some());
        notifier.ready();
        notifier.alive();
        notifier.status("well");
        let before = heard(&systemd);
        assert!(before.iter().all(|it| it == "ERRNO=1\n"), "{before:?}");
        notifier.alive();
        notifier.alive();
        notifier.status("well");
        notifier.status("well");
        assert_eq!(
            heard(&systemd),
            ["READY=1\n", "WATCHDOG=1\n", "STATUS=well\n"]
        );
    }
}
