//! A device's resets, as far as they show in its cap.

use litd_units::{Nanos, Watts};

/// More resets than this within [`WITHIN`] that no energy counter shows are no resets: another program sets the
/// default cap.
const BELIEVED: usize = 2;

const WITHIN: Nanos = Nanos(600_000_000_000);

/// The effect of a reset on a device's cap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reset {
    /// The cap before the reset.
    pub held: Watts,
    /// The cap after the reset.
    pub cap: Watts,
}

/// When a device was reset.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    /// A reset to a cap that is not the known default, while the driver has yet to tell the present default.
    unjudged: Option<Reset>,
    /// Recent resets that only the cap has shown.
    guessed: Vec<Nanos>,
}

impl Resets {
    /// The device was reset: its driver has to tell the present default.
    pub fn waits_for_driver(&mut self, reset: Reset) {
        self.unjudged = Some(reset);
    }

    /// Whether its driver has yet to tell what its default is since a reset.
    pub fn is_waiting(&self) -> bool {
        self.unjudged.is_some()
    }

    /// The reset that waits for its driver, if one does; afterwards none waits.
    pub fn judged(&mut self) -> Option<Reset> {
        self.unjudged.take()
    }

    /// The reset no longer matters: litd has written the device, or released it, since.
    pub fn stop_waiting(&mut self) {
        self.unjudged = None;
    }

    /// Whether the default cap may be there because of a reset. An energy counter that begins anew (`is_shown`)
    /// proves it; without one only so many within ten minutes are believed and counted.
    pub fn may_be_reset(&mut self, is_shown: bool, now: Nanos) -> bool {
        self.guessed.retain(|&at| now < at + WITHIN);
        let is_believed = is_shown || self.guessed.len() < BELIEVED;
        if is_believed && !is_shown {
            self.guessed.push(now);
        }
        is_believed
    }

    /// An administrator takes the device back: earlier resets no longer count.
    pub fn forget(&mut self) {
        self.guessed.clear();
    }
}
