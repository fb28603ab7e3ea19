//! A litd that ended before this one was started, and may have died with caps or clocks changed: which caps and locks
//! it may have asked for last, and until when drivers may still carry those out.

use litd_units::{Nanos, Watts};

use crate::journal::Entry;
use crate::undo::LATE;

/// A write that a predecessor had under way when it died is done within this time. Only if the device holds
/// another cap than the predecessor's last one may that write be as late as any other ([`LATE`]), which only a
/// litd that goes on waits for.
const LANDING: Nanos = Nanos(2_000_000_000);

/// A device whose cap neither the journal nor the log has, where the log has nothing of the time in which litd moved
/// the cap. Somebody else has set it; or litd has, and both files have lost their ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Unclaimed {
    /// The device's address.
    pub address: String,
    /// The cap that it holds, and keeps.
    pub held: Watts,
    /// The cap that the journal has as the one found.
    pub found: Watts,
}

impl Unclaimed {
    /// What is unknown, in words.
    #[must_use]
    pub fn why(&self) -> String {
        let Self { held, found, .. } = self;
        format!(
            "holds {held}, which the undo journal does not name, and the audit log, which would tell whether litd set \
             it, has nothing of that time; {found} was found before. If nobody else has set {held}, set {found} yourself"
        )
    }
}

/// A litd that ended before this one was started.
#[derive(Debug)]
pub(crate) struct Predecessor {
    /// When this litd was started: calls to drivers that the predecessor had under way were made before.
    started: Nanos,
    /// Whether its journal names devices: it may have died with their caps or clocks changed.
    died: bool,
    /// When a process of it that waits for a driver was seen last.
    hung: Option<Nanos>,
    /// The caps that it may have asked for last, other than the one found, for each device in its journal.
    caps: Vec<(String, Vec<Watts>)>,
    /// The devices whose clocks it may have asked to lock.
    clocks: Vec<String>,
    /// The devices whose caps may be its own, and are left alone.
    unclaimed: Vec<Unclaimed>,
}

impl Predecessor {
    /// A predecessor that has left nothing, as far as is known; this litd was started at `now`.
    pub fn ended(now: Nanos) -> Self {
        Self {
            started: now,
            died: false,
            hung: None,
            caps: Vec::new(),
            clocks: Vec::new(),
            unclaimed: Vec::new(),
        }
    }

    /// Its journal has these entries for caps, and may name devices whose clocks it has locked.
    pub fn leaves_behind(&mut self, entries: &[Entry], locks_clocks: bool) {
        self.died = !entries.is_empty() || locks_clocks;
        self.caps = entries.iter().filter_map(caps_of).collect();
    }

    /// It may have asked to lock this device's clocks, and nobody knows whether that was done.
    pub fn may_have_locked(&mut self, address: &str) {
        self.clocks.push(address.to_owned());
    }

    /// Nobody knows whether the cap of a device is its own.
    pub fn leaves_unclaimed(&mut self, unclaimed: Unclaimed) {
        self.unclaimed.push(unclaimed);
    }

    /// The devices whose caps may be its own, and are left alone.
    pub fn unclaimed(&self) -> &[Unclaimed] {
        &self.unclaimed
    }

    /// One of its processes was seen to wait for a driver.
    pub fn hangs(&mut self, now: Nanos) {
        self.hung = Some(now);
    }

    /// Whether one of its processes was seen to wait for a driver.
    pub fn has_hung(&self) -> bool {
        self.hung.is_some()
    }

    /// The caps other than the one found that it may have asked for last, by device.
    pub fn caps(&self) -> impl Iterator<Item = (&str, &[Watts])> {
        let each = self.caps.iter();
        each.map(|(address, caps)| (address.as_str(), caps.as_slice()))
    }

    /// The devices whose clocks it may have asked to lock.
    pub fn clocks(&self) -> impl Iterator<Item = &str> {
        self.clocks.iter().map(String::as_str)
    }

    /// Until then its late writes may be done, counted from the last moment at which it may have made a call.
    pub fn late_until(&self) -> Nanos {
        self.hung.unwrap_or(self.started) + LATE
    }

    /// Whether the writes that it had under way were done before `asked`, except for late ones.
    pub fn has_landed(&self, asked: Nanos) -> bool {
        !self.died || asked >= self.started + LANDING
    }
}

/// The caps other than the one found that an entry has, if any.
fn caps_of(entry: &Entry) -> Option<(String, Vec<Watts>)> {
    let is_away = |cap: &Watts| !cap.is_same_cap(entry.found);
    let caps: Vec<Watts> = entry.ours.iter().copied().filter(is_away).collect();
    (!caps.is_empty()).then(|| (entry.address.clone(), caps))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn entry(address: &str, ours: &[f64]) -> Entry {
        Entry {
            address: address.to_owned(),
            serial: None,
            boot_id: "boot".to_owned(),
            found: Watts(700.0),
            ours: ours.iter().copied().map(Watts).collect(),
        }
    }

    #[test]
    fn writes_of_one_that_died_land_within_two_seconds_of_this_start() {
        let mut predecessor = Predecessor::ended(Nanos(5 * SECOND));
        assert!(predecessor.has_landed(Nanos(5 * SECOND)));
        predecessor.leaves_behind(&[], false);
        assert!(predecessor.has_landed(Nanos(5 * SECOND)));
        predecessor.leaves_behind(&[], true);
        assert!(!predecessor.has_landed(Nanos(7 * SECOND - 1)));
        assert!(predecessor.has_landed(Nanos(7 * SECOND)));
        predecessor.leaves_behind(&[entry("a", &[])], false);
        assert!(!predecessor.has_landed(Nanos(5 * SECOND)));
    }

    #[test]
    fn late_writes_are_counted_from_the_last_look_at_a_process_that_hangs() {
        let mut predecessor = Predecessor::ended(Nanos(5 * SECOND));
        assert_eq!(predecessor.late_until(), Nanos(35 * SECOND));
        assert!(!predecessor.has_hung());
        predecessor.hangs(Nanos(20 * SECOND));
        predecessor.hangs(Nanos(40 * SECOND));
        assert_eq!(predecessor.late_until(), Nanos(70 * SECOND));
        assert!(predecessor.has_hung());
    }

    #[test]
    fn caps_that_may_turn_up_are_those_other_than_the_one_found() {
        let mut predecessor = Predecessor::ended(Nanos(0));
        let entries = [
            entry("a", &[700.0, 600.0, 500.0]),
            entry("b", &[700.0]),
            entry("c", &[]),
        ];
        predecessor.leaves_behind(&entries, false);
        let caps: Vec<_> = predecessor.caps().collect();
        assert_eq!(caps, [("a", [Watts(600.0), Watts(500.0)].as_slice())]);
        predecessor.may_have_locked("b");
        assert_eq!(predecessor.clocks().collect::<Vec<_>>(), ["b"]);
    }
}
