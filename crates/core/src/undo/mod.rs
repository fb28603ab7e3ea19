//! Undoing: caps that a predecessor left, caps that a job no longer needs, and all caps at the end.

pub(crate) mod by_hand;
pub(crate) mod left_alone;
mod overlaid;
pub(crate) mod predecessor;
pub(crate) mod progress;
pub(crate) mod release;

use litd_api::EventKind;
use litd_units::{Nanos, Watts};

use crate::core::{Core, seconds};
use crate::devices::Unit;
use crate::devices::landing::Landing;
use crate::journal::{Entry, Recovered, Undo};
use crate::record::Note;
use crate::store::Store;
use crate::undo::predecessor::Unclaimed;
use crate::writer::Undone;

/// A write that its driver called failed, or that it did not do, is done within this time, if ever: a GPU's
/// firmware may carry it out long after its driver has stopped waiting.
pub(crate) const LATE: Nanos = Nanos(30_000_000_000);

impl<S: Store> Core<S> {
    /// A predecessor died with caps changed.
    pub(crate) fn recover(&mut self, recovered: Recovered) {
        let locks_clocks = !self.writer.clocks().is_empty();
        self.predecessor
            .leaves_behind(&recovered.entries, locks_clocks);
        if let Some(damage) = &recovered.damaged {
            let text = format!("the undo journal was damaged: {damage}");
            self.note(Note::warning(EventKind::Fault, text));
        }
        for entry in recovered.entries {
            match self.devices.called(&entry.address) {
                Some(device) => {
                    self.writer.account_mut().expect(device, entry.most());
                    self.recover_device(device, &entry);
                }
                None => {
                    let text = format!(
                        "an earlier litd left its cap changed, and it was not found now: once it is there again, \
                         `systemctl restart litd` restores {}",
                        entry.found
                    );
                    let note = Note::warning(EventKind::Restore, text).device(&entry.address);
                    self.note(note);
                }
            }
        }
    }

    /// The log does not tell whether the last write that the journal names was done: the log was lost, or another one
    /// is read now. That write counts as failed, once.
    fn expect_unlogged(&mut self, device: usize, entry: &Entry) {
        let reading = self.devices.get(device).and_then(|it| it.readings.last());
        let Some((&last, reading)) = entry.ours.last().zip(reading) else {
            return;
        };
        let is_last = |cap: Watts| cap.is_same_cap(last);
        let is_told = {
            let mut late = self.writer.late(&entry.address);
            late.any(|it| is_last(it.cap))
        };
        let until = self.predecessor.late_until();
        let is_late = self.now() >= until || !self.writer.is_of_this_boot(entry);
        let is_over = is_last(entry.found) || is_last(reading.cap) || is_told || is_late;
        if !is_over && !self.writer.has_logged(entry) {
            self.writer
                .suspect(&entry.address, last, until, &mut self.out);
        }
    }

    /// Waits for the caps that a device may still take by the journal, whatever the log says.
    fn expect_journaled(&mut self, device: usize, entry: &Entry) {
        let last = entry.ours.last();
        let (now, latest) = (self.now(), self.now() + LATE);
        let late = self.writer.late(&entry.address);
        let late = late.filter(|it| it.until > now).map(|it| {
            let is_away = !entry.found.is_same_cap(it.cap);
            let is_last = last.is_some_and(|last| last.is_same_cap(it.cap));
            Landing::of_log(it.cap, is_away, is_last, it.until.min(latest)).counting(it.cap)
        });
        let late = late.fold(None, |one, other| Landing::merged(one, Some(other)));
        if let Some(unit) = self.devices.get_mut(device) {
            unit.landing = Landing::merged(unit.landing.take(), late);
        }
    }

    fn recover_device(&mut self, device: usize, entry: &Entry) {
        let holds = self.authority.holds(&self.config);
        let is_bound = self.set_budget().is_some();
        self.expect_unlogged(device, entry);
        self.expect_journaled(device, entry);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let address = entry.address.clone();
        let Some(reading) = unit.readings.last() else {
            // The cap found is undone to later, once the device can be read.
            unit.found = Some(entry.found);
            return;
        };
        let until = self.predecessor.late_until();
        if self.out.now() < until {
            let rounds = |cap: Watts| unit.rounds(cap, reading.cap);
            let late = Landing::of_predecessor(entry, reading.cap, rounds, until);
            unit.landing = Landing::merged(unit.landing.take(), late);
        }
        let same = entry.is_part(unit.device.identity.serial.as_deref());
        // The writes before this cap was found are outdated: the cap was changed by others since.
        let asked = self.writer.asked_last(entry);
        let known = asked
            .filter(|it| it.is_own)
            .is_some_and(|asked| match asked.read_back {
                Some(read_back) => read_back.is_same_cap(reading.cap),
                None => unit.rounds(asked.cap, reading.cap),
            });
        // An entry of an earlier boot counts as one of this boot: a boot id does not tell whether the devices were
        // reset (kexec), and a container may have its own.
        let undo = match entry.undo(reading.cap) {
            // The driver has rounded, and litd died before it read that; or a backup has brought back an older
            // copy of the journal.
            Undo::Foreign if same && known => {
                unit.found = Some(entry.found);
                self.writer
                    .journal_writes(&[(device, reading.cap)], &self.devices, &mut self.out);
                Undo::Write(entry.found)
            }
            undo => undo,
        };
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        match undo {
            // The entry leaves the journal once the cap has stayed so: a write of the predecessor's may still be
            // under way.
            Undo::Nothing => unit.found = Some(entry.found),
            Undo::Write(found) => {
                unit.found = Some(found);
                let becomes = match (holds, is_bound) {
                    (true, _) => "stays in the undo journal, because caps.on_exit is \"hold\"",
                    (false, true) => {
                        "is restored as far as the budget has room, and entirely when litd stops"
                    }
                    (false, false) => "is restored",
                };
                let text = format!(
                    "holds {}, set before a crash: the cap found, {found}, {becomes}",
                    reading.cap
                );
                self.note(Note::warning(EventKind::Restore, text).device(&address));
                self.note_shrunk(device);
            }
            Undo::Foreign => {
                unit.found = Some(reading.cap);
                let (held, found) = (reading.cap, entry.found);
                let is_unlogged = asked.is_none() && !entry.ours.is_empty();
                let note = match same {
                    true if is_unlogged && self.writer.is_of_this_boot(entry) => {
                        let unclaimed = Unclaimed {
                            address: address.clone(),
                            held,
                            found,
                        };
                        let text = format!("{}: it is the cap found from now on", unclaimed.why());
                        self.predecessor.leaves_unclaimed(unclaimed);
                        Note::warning(EventKind::Foreign, text)
                    }
                    true => Note::warning(
                        EventKind::Foreign,
                        format!(
                            "holds {held}, which litd never set: that is the cap found from now on, and not \
                             {found}, found before"
                        ),
                    ),
                    false => Note::info(
                        EventKind::Restore,
                        "the part was replaced since: its present cap is the cap found from now on",
                    ),
                };
                self.note(note.device(&address));
                // A failed write of the predecessor's may still be done, and replace it.
                let now = self.now();
                let fails = self.writer.late(&address).any(|late| late.until > now);
                match same && (fails || self.predecessor.has_hung()) {
                    true => self.journal_over(device, Some(entry.found), held),
                    false => {
                        self.writer.close(&address, &mut self.out);
                    }
                }
            }
        }
    }

    /// A process of a predecessor's waits for a driver, for however long: until half a minute after it has ended any
    /// cap in the journal that it left may turn up, and any lock of clocks that it had asked for.
    pub(crate) fn predecessor_hangs(&mut self) {
        self.predecessor.hangs(self.now());
        let until = self.predecessor.late_until();
        for (address, caps) in self.predecessor.caps() {
            let device = self.devices.called(address);
            if let Some(unit) = device.and_then(|device| self.devices.get_mut(device)) {
                let late = Landing::of_one_that_hangs(caps.to_vec(), until);
                unit.landing = Landing::merged(unit.landing.take(), Some(late));
            }
        }
        for address in self.predecessor.clocks() {
            let device = self.devices.called(address);
            if let Some(unit) = device.and_then(|device| self.devices.get_mut(device)) {
                unit.clocks.lock.late_until(until);
            }
        }
    }

    /// The cap found may exceed the driver's highest cap by now. The device goes as near to it as possible, and
    /// the cap found stays in the undo journal until it can be restored.
    pub(crate) fn note_shrunk(&mut self, device: usize) {
        let Some(unit) = self.devices.get(device) else {
            return;
        };
        let (Some(found), Some(back)) = (unit.found, unit.back()) else {
            return;
        };
        if back.is_same_cap(found) {
            return;
        }
        let text = format!(
            "the cap found is {found}, and its driver accepts at most {back} now: {back} is restored, and the undo journal keeps {found}"
        );
        let note = Note::warning(EventKind::Restore, text).device(unit.address());
        self.note(note);
    }

    /// A write was called failed, or was not done: the device may do it late all the same. Until that is over its
    /// entry stays, so that the late cap is known as litd's and undone. `fails`: the write failed or was not done,
    /// and was not just replaced by a foreign cap.
    pub(crate) fn expect_late(&mut self, device: usize, wanted: Watts, fails: bool) {
        self.writer.account_mut().straggles(device, wanted);
        if let Some(unit) = self.devices.get_mut(device) {
            let is_back = unit.found.is_some_and(|found| found.is_same_cap(wanted));
            let until = self.out.now() + LATE;
            let late = Landing::and(unit.landing.take(), wanted, !is_back, until);
            unit.landing = Some(match fails {
                true => late.counting(wanted),
                false => late,
            });
        }
        self.writer
            .journal_late(device, wanted, &self.devices, &mut self.out);
        if fails {
            self.journal_failed(device, wanted);
        }
    }

    /// Litd begins to stop. A device may have left the journal because it was back at its cap found, and a failed write
    /// of that cap may still be done: from now on nobody else knows that it would not be an administrator's.
    pub(crate) fn journal_what_may_come_back(&mut self) {
        let now = self.now();
        let may_come = |unit: &Unit| unit.landing.as_ref().is_some_and(|it| it.is_own(now));
        let units = self.devices.iter();
        // One that is released is not opened for that.
        let units = units.filter(|(_, unit)| unit.is_ours() && may_come(unit));
        let devices: Vec<usize> = units.map(|(device, _)| device).collect();
        let found = self.writer.unrecorded(devices.into_iter(), &self.devices);
        if !found.is_empty() {
            self.writer.journal(&found, &[], &mut self.out);
        }
    }

    /// Tells the next litd of a failed write, whatever happens to the log and to the wall clock: also of a write
    /// that raises a cap to the one found, for which the others make room.
    fn journal_failed(&mut self, device: usize, wanted: Watts) {
        let until = self.now() + LATE;
        if let Some(unit) = self.devices.get(device) {
            self.writer
                .expect(unit.address(), wanted, until, &mut self.out);
        }
    }

    /// A write that a predecessor's log does not confirm may still be done, also where `litd restore` has emptied
    /// its journal since. A record from later than now, by the time since the node booted, is of an earlier boot, and
    /// no write outlives that. Without that time the wall clock's counts, and a time in the future as now.
    pub(crate) fn expect_undone(&mut self, writes: Vec<Undone>) {
        let wall = self.out.unix_seconds();
        for Undone {
            address,
            cap,
            is_last,
            read_back,
            unix_seconds,
            boot_seconds,
        } in writes
        {
            let age = match boot_seconds.map(|at| self.now() - seconds(at)) {
                Some(age) if age < Nanos::ZERO => continue,
                Some(age) => age,
                None => seconds((wall - unix_seconds).max(0.0)),
            };
            let Some(device) = self.devices.called(&address).filter(|_| age < LATE) else {
                continue;
            };
            let until = self.now() + LATE - age;
            let Some(unit) = self.devices.get_mut(device) else {
                continue;
            };
            if read_back.is_some_and(|held| unit.rounds(cap, held)) {
                continue;
            }
            let is_away = unit.found.is_none_or(|found| !found.is_same_cap(cap));
            let late = Landing::of_log(cap, is_away, is_last, until);
            let late = match read_back {
                Some(_) => late,
                None => late.counting(cap),
            };
            unit.landing = Landing::merged(unit.landing.take(), Some(late));
        }
    }

    /// Foreign caps that a late write has replaced are in the journal, also where that could not be written at
    /// first.
    pub(crate) fn journal_overwritten(&mut self) {
        for device in 0..self.devices.iter().count() {
            let unit = self.devices.get(device);
            let is_owed = unit.is_some_and(|unit| unit.standing.is_overwritten());
            if let Some(held) = self.writer.account().held(device).filter(|_| is_owed) {
                self.writer
                    .journal_late(device, held, &self.devices, &mut self.out);
            }
        }
    }

    /// A write of so long ago that it can't be done late any more is forgotten once the device was read since.
    pub(crate) fn forget_late(&mut self, device: usize, asked: Nanos) {
        if self.predecessor.has_landed(asked) {
            self.writer.account_mut().expect_no_more(device);
        }
        if let Some(unit) = self.devices.get_mut(device) {
            unit.landing = unit.landing.take().filter(|late| !late.is_over(asked));
            if unit.landing.is_none() {
                self.writer.account_mut().straggles_no_more(device);
            }
        }
    }

    /// A predecessor's writes to closed devices, which are not read, are over once none can be late any more: from
    /// then on those devices count as all closed ones do.
    pub(crate) fn forget_late_of_closed(&mut self) {
        if self.now() < self.predecessor.late_until() {
            return;
        }
        let closed = |unit: &Unit| {
            unit.standing
                .let_go()
                .is_some_and(|let_go| let_go.closed.is_some())
        };
        for (device, unit) in self.devices.iter() {
            if closed(unit) {
                self.writer.account_mut().expect_no_more(device);
            }
        }
    }

    /// Whether a cap is one that litd wrote before: a late write, also one that restored a cap.
    pub(crate) fn is_leftover(&self, device: usize, cap: Watts) -> bool {
        let Some(unit) = self.devices.get(device) else {
            return false;
        };
        // Includes a device that was released and taken back since: its entry is another one.
        let late = unit.landing.as_ref();
        let lands = late.is_some_and(|it| it.may_come(cap));
        if unit.standing.is_kept() {
            // The entry may be outdated, and still there because the disk failed: only late writes are litd's.
            return lands;
        }
        match self
            .writer
            .entry(unit.address())
            .map(|entry| entry.undo(cap))
        {
            Some(Undo::Write(_)) => true,
            Some(Undo::Nothing) => late.is_some(),
            Some(Undo::Foreign) | None => lands,
        }
    }

    /// A device that could not be judged before can be now; `is_first`: it was not read before.
    pub(crate) fn found_late(&mut self, device: usize, cap: Watts, is_first: bool) {
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let (address, before) = (unit.address().to_owned(), unit.found);
        // A device without a known range is never touched, so nothing is to be undone.
        let never_found = unit.found.is_none() && unit.device.range.known().is_some();
        if never_found {
            unit.found = Some(cap);
        }
        if is_first && let Some(late) = unit.landing.take() {
            unit.landing = late.seen(|asked| unit.rounds(asked, cap));
        }
        let entry = self.writer.entry(&address).filter(|_| is_first).cloned();
        if let Some(entry) = entry {
            self.recover_device(device, &entry);
        }
        if is_first {
            self.recall_left_alone(device, cap);
            self.recall_not_in_force(device);
        }
        // Runs once the cap to restore is known: the job is planned with it.
        if never_found || is_first {
            self.standing_changed(device);
        }
        let Some(unit) = self.devices.get(device).filter(|it| it.found != before) else {
            return;
        };
        let job = unit.usage.job().and_then(|name| self.jobs.get(name));
        if let Some(job) = job.filter(|job| job.control.runs()) {
            let name = job.name.clone();
            self.plan_anew(&name);
        }
    }

    /// Removes from the journal each device that holds its cap found and that no loop needs, and each device with
    /// a foreign cap, once no late write of litd's can follow. Entries that could not be removed are tried again
    /// once a second.
    pub(crate) fn tidy_journal(&mut self) {
        // Until a predecessor's writes have landed every cap in the journal may turn up.
        if !self.predecessor.has_landed(self.now()) || self.writer.entries().is_empty() {
            return;
        }
        let journaled = self.devices.iter();
        let journaled = journaled.filter(|&(device, _)| self.writer.is_journaled(device));
        let (foreign, others): (Vec<_>, Vec<_>) = journaled
            .partition(|(_, unit)| unit.standing.is_kept() && !self.may_be_overwritten(unit));
        let is_done = |&(device, unit): &(usize, &Unit)| {
            let in_use = !self.authority.is_stopping() && self.is_moved(device);
            !in_use && self.is_back(device, unit)
        };
        let done = foreign
            .into_iter()
            .chain(others.into_iter().filter(is_done));
        let done: Vec<usize> = done.map(|(device, _)| device).collect();
        if self.writer.begins_to_cross_out(&done) {
            for device in done {
                self.cross_out(device);
            }
        }
    }

    fn cross_out(&mut self, device: usize) {
        let Some(unit) = self.devices.get(device) else {
            return;
        };
        let (address, theirs) = (unit.address().to_owned(), unit.standing.is_kept());
        let back = unit.found.filter(|_| !theirs);
        let was_tried_out = self
            .writer
            .entry(&address)
            .is_some_and(|it| it.ours.is_empty());
        let is_out = self.writer.close(&address, &mut self.out);
        if let Some(unit) = self.devices.get_mut(device).filter(|_| is_out) {
            unit.standing.give_back();
        }
        if let Some(found) = back.filter(|_| is_out && !was_tried_out) {
            let text = format!("cap is back at {found}");
            self.note(Note::info(EventKind::Restore, text).device(&address));
        }
    }

    /// The devices whose caps may be a predecessor's, and are left alone.
    #[must_use]
    pub fn unclaimed(&self) -> &[Unclaimed] {
        self.predecessor.unclaimed()
    }

    /// The devices, by address, whose clocks are unlocked, and which stay in the undo journal because a lock that
    /// failed or got no answer may still be done late.
    #[must_use]
    pub fn may_lock_on_exit(&self) -> Vec<String> {
        let units = self.devices.iter();
        let left = units.filter(|(_, unit)| unit.clocks.lock.is_free_for_now());
        left.map(|(_, unit)| unit.address().to_owned()).collect()
    }

    /// The devices, by address, that hold their caps found, or foreign caps, and whose entries stay in the undo
    /// journal because a failed write may still be done late.
    #[must_use]
    pub fn may_land_on_exit(&self) -> Vec<String> {
        let units = self.devices.iter();
        let left = units.filter(|&(device, unit)| {
            let may_land = self.writer.is_journaled(device) && unit.landing.is_some();
            may_land && (unit.standing.is_kept() || self.is_back_for_now(device, unit))
        });
        left.map(|(_, unit)| unit.address().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::stand::Stand;

    /// A litd that had lowered two GPUs from 600 W dies; the next one is started a second later.
    fn after_a_crash(caps: &[f64]) -> Stand {
        let mut node = Stand::new(Config::default(), &[600.0, 600.0]);
        node.pass(3);
        node.core.authority.set_budget(Some(Watts(800.0)));
        node.pass(2);
        assert_eq!(node.caps(), [400.0, 400.0]);
        let store = node.core.store().clone();
        Stand::after(Config::default(), caps, store, 6)
    }

    #[test]
    fn caps_that_a_dead_litd_has_lowered_are_restored() {
        let mut node = after_a_crash(&[400.0, 400.0]);
        node.pass(3);
        assert_eq!(node.caps(), [600.0, 600.0]);
        assert_eq!(node.unit(0).found, Some(Watts(600.0)));
    }

    #[test]
    fn a_cap_that_somebody_else_has_set_since_is_theirs_and_becomes_the_cap_found() {
        let mut node = after_a_crash(&[400.0, 333.0]);
        node.pass(3);
        assert_eq!(node.caps(), [600.0, 333.0]);
        assert_eq!(node.unit(1).found, Some(Watts(333.0)));
    }

    #[test]
    fn an_entry_stays_until_a_failed_write_cant_be_done_any_more() {
        let mut node = Stand::new(Config::default(), &[600.0]);
        node.pass(3);
        node.refuse = vec![0];
        node.core.authority.set_budget(Some(Watts(400.0)));
        node.pass(1);
        node.core.authority.set_budget(None);
        node.refuse.clear();
        node.pass(20);
        assert_eq!(node.caps(), [600.0]);
        assert!(node.core.is_leftover(0, Watts(400.0)) && node.core.writer.is_journaled(0));
        node.pass(15);
        assert!(!node.core.is_leftover(0, Watts(400.0)) && !node.core.writer.is_journaled(0));
    }
}
