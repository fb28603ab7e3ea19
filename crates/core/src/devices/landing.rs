//! Late writes: those that failed, got no answer, or were a dead predecessor's, and may be done all the same.

use litd_units::{Nanos, Watts};

use crate::journal::Entry;

/// A failed write that may be done all the same, late.
#[derive(Debug, Clone)]
pub(crate) struct Landing {
    /// The end of that time.
    until: Nanos,
    /// The different caps that the device may come to hold; the last of them if there were many.
    caps: Vec<Watts>,
    /// Whether one of them is another cap than the one found.
    is_away: bool,
    /// How litd knows of the write.
    source: Source,
    /// The predecessor's last write: a device that holds this cap at the first reading has done it. A device that
    /// holds an earlier cap may have been set to it again by somebody since.
    last: Option<Watts>,
    /// The largest of those caps for which others make room: writes that failed or got no answer. A write that was
    /// confirmed and then replaced by somebody else's cap hardly comes back.
    most: Option<Watts>,
}

/// How litd knows of a write that may still be done. When litd is to end, it stays for its own only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// The predecessor's journal has it as the last write, and its outcome is unknown. At a stop the device's
    /// entry may leave the journal; otherwise entries would stay after every crash.
    Wish,
    /// The predecessor's journal says that it failed, or its log does not confirm it: the device's entry stays.
    Log,
    /// A write of this litd failed.
    Own,
}

/// How many different late caps are remembered.
const LATE_CAPS: usize = 32;

impl Landing {
    /// Adds one more failed write, which may be done until then.
    pub fn and(earlier: Option<Self>, wanted: Watts, is_away: bool, until: Nanos) -> Self {
        let most = earlier.as_ref().and_then(|it| it.most);
        let is_away = is_away || earlier.as_ref().is_some_and(|it| it.is_away);
        let mut caps = earlier.map_or_else(Vec::new, |it| it.caps);
        caps.retain(|cap| !cap.is_same_cap(wanted));
        caps.push(wanted);
        let old = caps.len().saturating_sub(LATE_CAPS);
        caps.drain(..old);
        Self {
            until,
            caps,
            is_away,
            source: Source::Own,
            last: None,
            most,
        }
    }

    /// Combines the late writes of both. The entry of a released device is read once more, after it was released.
    pub fn merged(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (&one, &other) else {
            return one.or(other);
        };
        let new = |cap: &&Watts| !one.caps.iter().any(|it| it.is_same_cap(**cap));
        let mut caps = one.caps.clone();
        caps.extend(other.caps.iter().filter(new));
        Some(Self {
            until: one.until.max(other.until),
            caps,
            is_away: one.is_away || other.is_away,
            source: one.source.max(other.source),
            last: one.last.or(other.last),
            most: larger(one.most, other.most),
        })
    }

    /// Makes the others leave room for this write, which failed or got no answer.
    pub fn counting(mut self, wanted: Watts) -> Self {
        self.most = larger(self.most, Some(wanted));
        self
    }

    /// The late writes that matter on top of somebody else's cap. Of what a predecessor's journal merely names the cap
    /// that it had found is left out: it was most likely done, and somebody who sets it means it.
    pub fn over(mut self, found: Option<Watts>) -> Option<Self> {
        self.is_away = true;
        let found = found.filter(|_| self.source == Source::Wish);
        self.without(|cap| found.is_some_and(|found| found.is_same_cap(cap)))
    }

    /// The late writes that are left after the device's first reading; `holds` says whether it holds a given cap
    /// as its driver rounds it.
    pub fn seen(self, holds: impl Fn(Watts) -> bool) -> Option<Self> {
        let done = self.last.filter(|&last| holds(last));
        self.without(|cap| done.is_some_and(|done| done.is_same_cap(cap)))
    }

    fn without(mut self, done: impl Fn(Watts) -> bool) -> Option<Self> {
        self.caps.retain(|&cap| !done(cap));
        self.most = self.most.filter(|&most| !done(most));
        (!self.caps.is_empty()).then_some(self)
    }

    /// A predecessor's write that its log does not confirm. `is_away`: it would leave another cap than the one
    /// found.
    pub fn of_log(cap: Watts, is_away: bool, is_last: bool, until: Nanos) -> Self {
        Self {
            until,
            caps: vec![cap],
            is_away,
            source: Source::Log,
            last: is_last.then_some(cap),
            most: None,
        }
    }

    /// The caps, other than the one found, that a predecessor may be about to set for as long as it hangs.
    pub fn of_one_that_hangs(caps: Vec<Watts>, until: Nanos) -> Self {
        Self {
            until,
            caps,
            is_away: true,
            source: Source::Log,
            last: None,
            most: None,
        }
    }

    /// The predecessor's last write to a device that holds another cap. Either it was done and undone by others,
    /// or it is still to come; nobody can tell, so the others make room for it unless the device holds that cap as
    /// its driver `rounds` it. An earlier failed write may still be done as well.
    pub fn of_predecessor(
        entry: &Entry,
        held: Watts,
        rounds: impl Fn(Watts) -> bool,
        until: Nanos,
    ) -> Option<Self> {
        let others = entry.ours.iter().filter(|it| !it.is_same_cap(held));
        let caps: Vec<Watts> = others.copied().collect();
        let last = entry.ours.last().filter(|it| !it.is_same_cap(held));
        (!caps.is_empty()).then_some(Self {
            until,
            caps,
            is_away: last.is_some_and(|it| !it.is_same_cap(entry.found)),
            source: Source::Wish,
            last: None,
            most: last.copied().filter(|&last| !rounds(last)),
        })
    }

    /// The different caps that the device may come to hold.
    pub fn caps(&self) -> &[Watts] {
        &self.caps
    }

    /// Whether the device may come to hold this cap.
    pub fn may_come(&self, cap: Watts) -> bool {
        self.caps.iter().any(|late| late.is_same_cap(cap))
    }

    /// Whether nothing can come any more after that time.
    pub fn is_over(&self, at: Nanos) -> bool {
        at >= self.until
    }

    /// The largest cap for which others make room now.
    pub fn most(&self, now: Nanos) -> Option<Watts> {
        self.most.filter(|_| !self.is_over(now))
    }

    /// Whether a cap that has to be undone may still follow a reading asked for at that time. While litd goes on that
    /// is one other than the cap found. Once it stops, which it does since `stopping`, the cap found is one as well: it
    /// would replace what an administrator sets then. Nobody waits for what a predecessor's journal merely has as its
    /// last write.
    pub fn may_follow(&self, asked: Nanos, stopping: Option<Nanos>) -> bool {
        let is_stopping = stopping.is_some_and(|since| asked >= since);
        let matters = match self.source {
            Source::Wish => self.is_away && !is_stopping,
            Source::Log | Source::Own => self.is_away || stopping.is_some(),
        };
        matters && !self.is_over(asked)
    }

    /// Whether a litd that stops leaves the device although a late write may follow: a predecessor's, or its own once
    /// a stop may take no longer. One of the cap found is left at once: nothing would be undone meanwhile. The device's
    /// entry stays in the journal then.
    pub fn is_left_behind(&self, is_stop_over: bool) -> bool {
        match self.source {
            Source::Wish => false,
            Source::Log => true,
            Source::Own => is_stop_over || !self.is_away,
        }
    }

    /// Whether a write of this litd's has failed, and may still be done.
    pub fn is_own(&self, now: Nanos) -> bool {
        self.source == Source::Own && !self.is_over(now)
    }
}

fn larger(one: Option<Watts>, other: Option<Watts>) -> Option<Watts> {
    one.into_iter().chain(other).reduce(Watts::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: Nanos = Nanos(30_000_000_000);

    fn own(cap: f64, is_away: bool) -> Landing {
        Landing::and(None, Watts(cap), is_away, UNTIL)
    }

    fn wish() -> Landing {
        let entry = Entry {
            address: "a".to_owned(),
            serial: None,
            boot_id: "boot".to_owned(),
            found: Watts(700.0),
            ours: vec![Watts(500.0), Watts(600.0)],
        };
        Landing::of_predecessor(&entry, Watts(500.0), |_| false, UNTIL).unwrap()
    }

    #[test]
    fn the_latest_caps_are_remembered_and_each_once() {
        let mut landing = own(500.0, true);
        for _ in 0..3 {
            landing = Landing::and(Some(landing), Watts(600.0), false, UNTIL);
        }
        assert_eq!(landing.caps(), [Watts(500.0), Watts(600.0)]);
        // It is away as long as one of them is.
        assert!(landing.may_follow(Nanos(0), None));
        for cap in 0..100 {
            landing = Landing::and(Some(landing), Watts(f64::from(cap)), false, UNTIL);
        }
        assert_eq!(landing.caps().len(), LATE_CAPS);
        assert!(landing.may_come(Watts(99.0)) && !landing.may_come(Watts(600.0)));
    }

    #[test]
    fn others_make_room_for_what_failed_and_not_for_what_was_replaced() {
        let replaced = own(600.0, true);
        assert_eq!(replaced.most(Nanos(0)), None);
        let failed = replaced.counting(Watts(500.0)).counting(Watts(400.0));
        assert_eq!(failed.most(Nanos(0)), Some(Watts(500.0)));
        assert_eq!(failed.most(UNTIL), None);
    }

    #[test]
    fn a_write_that_restores_a_cap_is_waited_for_by_nobody_and_keeps_its_entry_when_litd_stops() {
        let back = own(700.0, false);
        assert!(!back.may_follow(Nanos(0), None));
        assert!(back.may_follow(Nanos(0), Some(Nanos(0))) && back.is_left_behind(false));
        assert!(!back.may_follow(UNTIL, Some(Nanos(0))));
        let away = own(500.0, true);
        assert!(away.may_follow(Nanos(0), None) && !away.may_follow(UNTIL, None));
    }

    #[test]
    fn a_stop_waits_for_own_writes_only_and_for_these_as_long_as_it_may_take() {
        let log = Landing::of_log(Watts(500.0), true, false, UNTIL);
        let cases = [
            (wish(), [false, false]),
            (log, [true, true]),
            (own(500.0, true), [false, true]),
        ];
        for (landing, expected) in cases {
            assert_eq!(
                [false, true].map(|over| landing.is_left_behind(over)),
                expected
            );
        }
        // What was merely the last write in the journal keeps no entry there once the device was read since the stop.
        let stopping = Some(Nanos(9));
        assert!(wish().may_follow(Nanos(8), stopping) && !wish().may_follow(Nanos(9), stopping));
        assert!(own(500.0, true).may_follow(Nanos(9), stopping));
    }

    #[test]
    fn a_predecessors_write_is_seen_done_only_if_it_was_the_last() {
        let holds = |cap: Watts| cap.is_same_cap(Watts(500.0));
        let last = Landing::of_log(Watts(500.0), true, true, UNTIL);
        assert!(last.seen(holds).is_none());
        let earlier = Landing::of_log(Watts(500.0), true, false, UNTIL);
        assert!(
            earlier
                .seen(holds)
                .is_some_and(|it| it.may_come(Watts(500.0)))
        );
        // A device that holds an earlier cap may still do the last write; others make room for it.
        assert_eq!(wish().caps(), [Watts(600.0)]);
        assert_eq!(wish().most(Nanos(0)), Some(Watts(600.0)));
    }

    #[test]
    fn late_writes_of_both_are_those_of_each_and_last_as_long() {
        let later = Nanos(UNTIL.0 + 5);
        let other = Landing::of_one_that_hangs(vec![Watts(600.0), Watts(500.0)], later);
        let both = Landing::merged(Some(own(500.0, false)), Some(other)).unwrap();
        assert_eq!(both.caps(), [Watts(500.0), Watts(600.0)]);
        assert!(both.may_follow(UNTIL, None) && both.is_over(later));
        assert!(!both.is_left_behind(false));
        assert!(Landing::merged(None, None).is_none());
    }

    #[test]
    fn on_top_of_a_foreign_cap_failed_writes_matter_also_of_the_cap_found() {
        for cap in [500.0, 700.0] {
            let landing = own(cap, false).over(Some(Watts(700.0))).unwrap();
            assert!(landing.may_follow(Nanos(0), None) && landing.may_come(Watts(cap)));
        }
        let last = wish().over(Some(Watts(600.0)));
        assert!(last.is_none(), "{last:?}");
    }
}
