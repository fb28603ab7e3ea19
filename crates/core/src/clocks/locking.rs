//! Whether a device's clocks are locked, and until when a lock may still be done late.

use litd_units::{Hertz, Nanos};

/// The journal says at most once in so long that a lock was done, however often a rank asks for another.
const CONFIRMS: Nanos = Nanos(2_000_000_000);

/// The state of a device's clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum State {
    /// The driver or somebody else chooses: litd has not locked them.
    #[default]
    Free,
    /// Litd has locked them to this.
    At(Hertz),
    /// Litd, or its predecessor, may have locked them.
    Unknown,
}

/// Whether a device's clocks are locked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Locking {
    state: State,
    /// The state before the operation under way, which stays if the driver refuses that.
    before: State,
    /// Until then a lock that failed or got no answer may be done late.
    late: Option<Nanos>,
    /// When the journal was last told that a lock was done.
    confirmed_at: Option<Nanos>,
}

impl Locking {
    /// The clock that litd has locked, if that is known.
    pub fn at(&self) -> Option<Hertz> {
        match self.state {
            State::At(clock) => Some(clock),
            State::Free | State::Unknown => None,
        }
    }

    /// Whether the driver chooses the clocks, as far as known.
    pub fn is_free(&self) -> bool {
        self.state == State::Free
    }

    /// Whether the driver chooses the clocks, and no late lock can change that.
    pub fn is_free_for_good(&self) -> bool {
        self.is_free() && self.late.is_none()
    }

    /// Whether the driver chooses the clocks, at least until a failed lock may be done late.
    pub fn is_free_for_now(&self) -> bool {
        self.is_free() && self.late.is_some()
    }

    /// Until when a lock may be done late.
    pub fn late(&self) -> Option<Nanos> {
        self.late
    }

    /// Whether a lock is done, no late lock can replace it, and it is time to tell the journal.
    pub fn is_to_be_confirmed(&self, now: Nanos) -> bool {
        let is_done = self.at().is_some() && self.late.is_none();
        is_done && self.confirmed_at.is_none_or(|at| now >= at + CONFIRMS)
    }

    /// The journal is told that a lock was done.
    pub fn confirms(&mut self, now: Nanos) {
        self.confirmed_at = Some(now);
    }

    /// The device begins to lock or unlock its clocks: their state is unknown until it has answered.
    pub fn begins(&mut self) {
        (self.before, self.state) = (self.state, State::Unknown);
    }

    /// The device has locked its clocks to this, or unlocked them.
    pub fn becomes(&mut self, clock: Option<Hertz>) {
        self.state = clock.map_or(State::Free, State::At);
    }

    /// The driver has said that it changed nothing.
    pub fn refused(&mut self) {
        self.state = self.before;
    }

    /// A lock has failed or got no answer, and may be done until then.
    pub fn fails(&mut self, until: Nanos) {
        self.late = Some(until);
    }

    /// A predecessor may have locked the clocks, and a lock of its may be done late until then.
    pub fn recovers(&mut self, late: Option<Nanos>) {
        (self.state, self.late) = (State::Unknown, late);
    }

    /// A lock that a predecessor has asked for may be done until then, and not before is it over.
    pub fn late_until(&mut self, until: Nanos) {
        self.late = Some(self.late.map_or(until, |late| late.max(until)));
    }

    /// The clocks are unlocked once more, whatever is known of them.
    pub fn free_anew(&mut self) {
        self.state = State::Unknown;
    }

    /// Unlocks once more what a failed lock may have done by now. The lock may still be done later.
    pub fn free_once_more(&mut self) {
        if self.is_free_for_now() {
            self.free_anew();
        }
    }

    /// Once no lock can be done late any more, the state is unknown until the clocks are set again.
    pub fn look_again(&mut self, now: Nanos) {
        if self.late.take_if(|until| *until <= now).is_some() {
            self.free_anew();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Hertz = Hertz(1.2e9);
    const LATE: Nanos = Nanos(30);

    fn locked() -> Locking {
        let mut locking = Locking::default();
        locking.begins();
        locking.becomes(Some(CLOCK));
        locking
    }

    #[test]
    fn a_lock_is_known_once_the_device_has_answered() {
        let mut locking = Locking::default();
        assert!(locking.is_free_for_good() && locking.at().is_none());
        locking.begins();
        assert!(!locking.is_free() && locking.at().is_none());
        locking.becomes(Some(CLOCK));
        assert_eq!((locking.at(), locking.is_free()), (Some(CLOCK), false));
        locking.begins();
        locking.becomes(None);
        assert!(locking.is_free_for_good());
    }

    #[test]
    fn a_driver_that_changed_nothing_leaves_the_state_before() {
        for mut locking in [Locking::default(), locked()] {
            let before = locking.at();
            locking.begins();
            locking.refused();
            assert_eq!(
                (locking.at(), locking.is_free()),
                (before, before.is_none())
            );
        }
    }

    #[test]
    fn clocks_are_set_once_more_when_no_lock_can_come_late_any_more() {
        let mut locking = Locking::default();
        locking.fails(LATE);
        assert!(locking.is_free_for_now() && !locking.is_free_for_good());
        locking.look_again(Nanos(29));
        assert!(locking.is_free_for_now());
        locking.look_again(LATE);
        assert!(!locking.is_free() && locking.late().is_none());
        // Nothing is late: what is known stays.
        let mut locking = locked();
        locking.look_again(Nanos(99));
        assert_eq!(locking.at(), Some(CLOCK));
    }

    #[test]
    fn only_what_a_late_lock_may_have_changed_is_freed_once_more() {
        let mut locking = Locking::default();
        locking.free_once_more();
        assert!(locking.is_free_for_good());
        locking.fails(LATE);
        locking.free_once_more();
        assert!(!locking.is_free());
        assert_eq!(locking.late(), Some(LATE));
        let mut locking = locked();
        locking.fails(LATE);
        locking.free_once_more();
        assert_eq!(locking.at(), Some(CLOCK));
    }

    #[test]
    fn a_lock_of_a_predecessor_that_hangs_is_late_for_longer_and_never_for_less() {
        let mut locking = Locking::default();
        locking.recovers(Some(Nanos(10)));
        assert!(!locking.is_free() && locking.at().is_none());
        locking.late_until(LATE);
        locking.late_until(Nanos(20));
        assert_eq!(locking.late(), Some(LATE));
        locking.recovers(None);
        assert_eq!(locking.late(), None);
    }

    #[test]
    fn the_journal_is_told_of_locks_that_are_done_and_not_of_each() {
        assert!(!Locking::default().is_to_be_confirmed(Nanos(0)));
        let mut locking = locked();
        assert!(locking.is_to_be_confirmed(Nanos(0)));
        locking.confirms(Nanos(0));
        assert!(!locking.is_to_be_confirmed(Nanos(CONFIRMS.0 - 1)));
        assert!(locking.is_to_be_confirmed(CONFIRMS));
        locking.fails(Nanos(i64::MAX));
        assert!(!locking.is_to_be_confirmed(CONFIRMS));
    }
}
