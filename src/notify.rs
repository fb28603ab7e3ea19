//! What systemd is told: ready, alive, what is going on. Without systemd nothing is.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The line to systemd.
#[derive(Debug)]
pub struct Notifier {
    listening: bool,
    watchdog: Option<Duration>,
    fed: Option<Instant>,
    status: String,
}

impl Notifier {
    /// To systemd, if it has started this process and wants to hear of it.
    #[must_use]
    pub fn from_environment() -> Self {
        let listening = std::env::var_os("NOTIFY_SOCKET").is_some();
        Self {
            listening,
            watchdog: sd_notify::watchdog_enabled().filter(|_| listening),
            fed: None,
            status: String::new(),
        }
    }

    /// To nobody.
    #[must_use]
    pub fn silent() -> Self {
        Self {
            listening: false,
            watchdog: None,
            fed: None,
            status: String::new(),
        }
    }

    /// Whether anybody reads [`Notifier::status`].
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.listening
    }

    /// The daemon works; also the end of a reload.
    pub fn ready(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// The configuration is being read anew; [`Notifier::ready`] follows.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(_) => self.send(&[NotifyState::Reloading]),
        }
    }

    /// The daemon gives everything back and ends.
    pub fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// The loop has done its round. Whatever its pace, the watchdog is fed only a few times in
    /// the period that systemd allows.
    pub fn alive(&mut self) {
        let Some(period) = self.watchdog else { return };
        if self.fed.is_none_or(|fed| fed.elapsed() >= period / 4) {
            self.send(&[NotifyState::Watchdog]);
            self.fed = Some(Instant::now());
        }
    }

    /// One line for `systemctl status`.
    pub fn status(&mut self, line: &str) {
        // A newline would end the value and begin another assignment.
        let line = line.replace(char::is_control, " ");
        if line != self.status {
            self.send(&[NotifyState::Status(&line)]);
            self.status = line;
        }
    }

    fn send(&self, state: &[NotifyState<'_>]) {
        if self.listening
            && let Err(error) = sd_notify::notify(state)
        {
            log::warn!("systemd can't be told how it goes: {error}");
        }
    }
}
