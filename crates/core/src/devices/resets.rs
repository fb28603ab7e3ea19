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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_resets_that_only_the_cap_shows_two_in_ten_minutes_are_believed() {
        let mut resets = Resets::default();
        let at = |minutes: i64| Nanos(minutes * 60_000_000_000);
        assert!(resets.may_be_reset(false, at(0)) && resets.may_be_reset(false, at(5)));
        assert!(!resets.may_be_reset(false, at(9)));
        // An energy counter that begins anew proves one, and uses up none.
        assert!(resets.may_be_reset(true, at(9)));
        assert!(resets.may_be_reset(false, at(10)));
        assert!(!resets.may_be_reset(false, at(14)));
        resets.forget();
        assert!(resets.may_be_reset(false, at(14)));
    }

    #[test]
    fn a_reset_waits_for_its_driver_until_that_or_until_it_no_longer_matters() {
        let mut resets = Resets::default();
        let (held, cap) = (Watts(500.0), Watts(650.0));
        assert!(!resets.is_waiting() && resets.judged().is_none());
        resets.waits_for_driver(Reset { held, cap });
        assert!(resets.is_waiting());
        let judged = resets.judged().unwrap();
        assert_eq!((judged.held, judged.cap), (held, cap));
        assert!(!resets.is_waiting());
        resets.waits_for_driver(Reset { held, cap });
        resets.stop_waiting();
        assert!(resets.judged().is_none());
    }
}
