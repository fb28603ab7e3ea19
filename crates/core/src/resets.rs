//! A device's resets, as far as they show in its cap.

use litd_units::{Nanos, Watts};

/// So many resets within [`WITHIN`] that no energy counter shows are no resets: somebody sets the default cap.
const BELIEVED: usize = 2;

const WITHIN: Nanos = Nanos(600_000_000_000);

/// What a reset has made of a device's cap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reset {
    /// What it held before.
    pub held: Watts,
    /// What it came up with.
    pub cap: Watts,
}

/// When a device was reset.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    /// It was reset to a cap that is not the default known of it, and its driver has yet to tell what that is now.
    unjudged: Option<Reset>,
    /// Resets of late that only its cap has shown.
    guessed: Vec<Nanos>,
}

impl Resets {
    /// It was reset: its driver is to tell what its default is now.
    pub fn waits_for_driver(&mut self, reset: Reset) {
        self.unjudged = Some(reset);
    }

    /// Whether its driver has yet to tell what its default is since a reset.
    pub fn is_waiting(&self) -> bool {
        self.unjudged.is_some()
    }

    /// The reset that waits for its driver, if one does; it waits no longer.
    pub fn judged(&mut self) -> Option<Reset> {
        self.unjudged.take()
    }

    /// Nobody asks what its default is since a reset: litd has written, or let go of it, since.
    pub fn stop_waiting(&mut self) {
        self.unjudged = None;
    }

    /// Whether its default cap may be there because it was reset. An energy counter that begins anew (`is_shown`)
    /// says so; without one so many within ten minutes are believed and counted.
    pub fn may_be_reset(&mut self, is_shown: bool, now: Nanos) -> bool {
        self.guessed.retain(|&at| now < at + WITHIN);
        let is_believed = is_shown || self.guessed.len() < BELIEVED;
        if is_believed && !is_shown {
            self.guessed.push(now);
        }
        is_believed
    }

    /// An administrator takes the device back: earlier ones do not count.
    pub fn forget(&mut self) {
        self.guessed.clear();
    }
}
