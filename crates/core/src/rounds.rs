//! Rounds: once a second litd reads all devices and does what waits for time to pass.

use litd_units::Nanos;

/// All devices are read so often.
pub(crate) const TELEMETRY: Nanos = Nanos(1_000_000_000);

/// The rounds so far, and when the next one is due.
#[derive(Debug)]
pub(crate) struct Rounds {
    started: Nanos,
    next: Nanos,
    begun: u64,
}

impl Rounds {
    /// Litd is started at `now`, and its first round is due at once.
    pub fn new(now: Nanos) -> Self {
        Self {
            started: now,
            next: now,
            begun: 0,
        }
    }

    /// Begins a round if one is due. Returns whether it was. Rounds that were missed are not made up for.
    pub fn begins(&mut self, now: Nanos) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + TELEMETRY;
            self.begun = self.begun.wrapping_add(1);
        }
        is_due
    }

    /// When litd was started.
    pub fn started(&self) -> Nanos {
        self.started
    }

    /// When the next round is due.
    pub fn next(&self) -> Nanos {
        self.next
    }

    /// Whether this round is one of every so many.
    pub fn is_every(&self, count: u64) -> bool {
        self.begun.is_multiple_of(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_round_begins_once_a_second_and_none_is_made_up_for() {
        let mut rounds = Rounds::new(at(5));
        assert!(rounds.begins(at(5)));
        assert!(!rounds.begins(at(5)));
        assert_eq!(rounds.next(), at(6));
        assert!(rounds.begins(at(60)));
        assert!(!rounds.begins(at(60)));
        assert_eq!((rounds.started(), rounds.next()), (at(5), at(61)));
    }

    #[test]
    fn what_is_done_every_so_many_rounds_takes_turns() {
        let mut rounds = Rounds::new(at(0));
        let turns = (0..10).filter(|&second| rounds.begins(at(second)) && rounds.is_every(5));
        assert_eq!(turns.collect::<Vec<_>>(), [4, 9]);
    }
}
