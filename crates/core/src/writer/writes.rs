//! What litd has written to devices, as the account and the journal have it, and what is about to be written.

use litd_units::Watts;

use crate::devices::{Devices, Unit};
use crate::journal::{Entry, Found, Undo};
use crate::outbox::Outbox;
use crate::store::Store;
use crate::undo::by_hand::ByHand;
use crate::writer::Writer;

impl<S: Store> Writer<S> {
    /// The journal's entry of a device, by its place in the inventory.
    pub fn entry_of(&self, device: usize) -> Option<&Entry> {
        self.entry(self.addresses.get(device)?)
    }

    /// Whether litd may have written a device since its cap was found.
    pub fn is_journaled(&self, device: usize) -> bool {
        self.entry_of(device).is_some()
    }

    /// Records in the journal what is about to be written to devices. Returns whether that failed.
    pub fn journal_writes(
        &mut self,
        writes: &[(usize, Watts)],
        devices: &Devices,
        out: &mut Outbox,
    ) -> bool {
        // If an entry could not be taken out of the journal, it already has the cap found.
        for &(device, _) in writes {
            if self.is_outdated(device, devices)
                && let Some(address) = self.addresses.get(device).cloned()
                && !self.cross_out(&address, out)
            {
                return true;
            }
        }
        let found = self.unrecorded(writes.iter().map(|&(device, _)| device), devices);
        let address = |device: usize| Some(devices.get(device)?.address());
        let intents = writes
            .iter()
            .filter_map(|&(device, cap)| Some((address(device)?, cap)));
        let intents: Vec<(&str, Watts)> = intents.collect();
        self.journal(&found, &intents, out)
    }

    /// Whether a device's entry has another cap than the one to restore.
    fn is_outdated(&self, device: usize, devices: &Devices) -> bool {
        let found = devices.get(device).and_then(|unit| unit.found);
        let both = self.entry_of(device).zip(found);
        both.is_some_and(|(entry, found)| !entry.found.is_same_cap(found))
    }

    /// The caps found of those devices that the journal does not name.
    pub fn unrecorded(&self, which: impl Iterator<Item = usize>, devices: &Devices) -> Vec<Found> {
        let new = which.filter(|&device| !self.is_journaled(device));
        let found = new.filter_map(|device| {
            let unit = devices.get(device)?;
            Some(Found {
                address: unit.address().to_owned(),
                serial: unit.device.identity.serial.clone(),
                cap: unit.found?,
            })
        });
        found.collect()
    }

    /// Adds entries for the GPUs that may be lowered, to see whether the journal can be written. Entries of GPUs
    /// that are not lowered are removed again.
    pub fn try_to_lower(&mut self, devices: &Devices, out: &mut Outbox) {
        // Includes devices that litd has released, if this command takes them back.
        let theirs = |unit: &Unit| unit.standing.is_foreign();
        let gpus = devices.gpus();
        let gpus = gpus.filter(|(_, unit)| unit.is_judged() && !theirs(unit));
        let found = self.unrecorded(gpus.map(|(gpu, _)| gpu), devices);
        self.try_journal(&found, out);
    }

    /// A late cap of litd's, or of an override, is in the journal from then on: also where its device had left the
    /// journal before, or was never in it.
    pub fn journal_late(&mut self, device: usize, cap: Watts, devices: &Devices, out: &mut Outbox) {
        let Some(found) = devices.get(device).map(|unit| unit.found) else {
            return;
        };
        let entry = self.entry_of(device);
        let is_known = entry.is_some_and(|entry| entry.undo(cap) != Undo::Foreign);
        if !is_known && found.is_some_and(|found| !found.is_same_cap(cap)) {
            self.journal_writes(&[(device, cap)], devices, out);
        }
    }

    /// Whether a device may hold a failed override.
    pub fn owes_undo(&self, device: usize, unit: &Unit) -> bool {
        // A cap that is being written is not held yet.
        let held = self.account.held(device);
        let held = held.filter(|_| !self.account.is_writing(device));
        let held = held.zip(unit.back());
        matches!(unit.by_hand, ByHand::Failed(_))
            && !held.is_some_and(|(held, back)| held.is_same_cap(back))
    }

    /// Whether a device's clocks may be locked by litd. Nobody waits for a lock that may be done late: this litd
    /// or the next removes it in time.
    pub fn may_be_locked(&self, unit: &Unit) -> bool {
        let lock = &unit.clocks.lock;
        let in_journal = || self.lock(unit.address()).is_some();
        !lock.is_free_for_now() && (!lock.is_free() || in_journal())
    }

    /// A device's power is no longer waited for: caps found are being restored.
    pub fn believe(&mut self, device: usize, devices: &mut Devices) {
        if let Some(unit) = devices.get_mut(device) {
            unit.following.believes();
        }
        self.account.believe(device);
    }
}

#[cfg(test)]
mod tests {
    use litd_power::DeviceKind;
    use litd_units::Nanos;

    use super::*;
    use crate::devices::all::tests::device;
    use crate::store::MemoryStore;

    /// Two GPUs that came with 700 W, and a writer that has written nothing.
    fn stand() -> (Writer<MemoryStore>, Devices, Outbox) {
        let inventory = ["a", "b"].map(|address| device(DeviceKind::Gpu, address));
        let addresses = inventory.iter().map(|it| it.identity.address.clone());
        let store = MemoryStore::default();
        let (writer, _) = Writer::open(store, "boot", addresses.collect()).unwrap();
        let mut devices = Devices::new(inventory.to_vec());
        for (_, unit) in devices.iter_mut() {
            unit.found = Some(Watts(700.0));
        }
        (writer, devices, Outbox::new(Nanos(0), 0.0))
    }

    #[test]
    fn a_write_is_in_the_journal_with_the_cap_found_before_it() {
        let (mut writer, devices, mut out) = stand();
        assert!(!writer.journal_writes(&[(0, Watts(500.0))], &devices, &mut out));
        let entry = writer.entry_of(0).unwrap();
        assert_eq!(
            (entry.found, &entry.ours[..]),
            (Watts(700.0), &[Watts(500.0)][..])
        );
        assert!(writer.is_journaled(0) && !writer.is_journaled(1) && !writer.is_journaled(2));
        let unrecorded = writer.unrecorded(0..2, &devices);
        assert_eq!(unrecorded.len(), 1);
        assert_eq!(unrecorded[0].address, "b");
    }

    #[test]
    fn a_device_that_came_to_have_another_cap_found_has_its_entry_begun_anew() {
        let (mut writer, mut devices, mut out) = stand();
        writer.journal_writes(&[(0, Watts(500.0))], &devices, &mut out);
        devices.get_mut(0).unwrap().found = Some(Watts(600.0));
        writer.journal_writes(&[(0, Watts(550.0))], &devices, &mut out);
        let entry = writer.entry_of(0).unwrap();
        assert_eq!(
            (entry.found, &entry.ours[..]),
            (Watts(600.0), &[Watts(550.0)][..])
        );
    }

    #[test]
    fn a_late_cap_is_in_the_journal_once_unless_it_is_the_one_found() {
        let (mut writer, devices, mut out) = stand();
        writer.journal_late(0, Watts(700.0), &devices, &mut out);
        assert!(!writer.is_journaled(0));
        for _ in 0..2 {
            writer.journal_late(0, Watts(500.0), &devices, &mut out);
            assert_eq!(writer.entry_of(0).unwrap().ours, [Watts(500.0)]);
        }
    }

    #[test]
    fn a_failed_override_is_owed_until_the_cap_found_is_held() {
        let (mut writer, mut devices, _) = stand();
        let unit = devices.get_mut(0).unwrap();
        unit.by_hand = ByHand::Asked(Watts(600.0));
        writer.account.observe(0, Watts(600.0));
        assert!(!writer.owes_undo(0, unit));
        unit.by_hand.fail(Nanos(0), "no answer".to_owned());
        assert!(writer.owes_undo(0, unit));
        writer.account.observe(0, Watts(700.0));
        assert!(!writer.owes_undo(0, unit));
    }

    #[test]
    fn clocks_may_be_locked_while_the_journal_says_so() {
        let (mut writer, devices, mut out) = stand();
        let unit = devices.get(0).unwrap();
        assert!(!writer.may_be_locked(unit));
        assert!(!writer.lock_clocks("a", &mut out));
        assert!(writer.may_be_locked(unit) && !writer.may_be_locked(devices.get(1).unwrap()));
        assert!(!writer.freed_clocks("a", &mut out));
        assert!(!writer.may_be_locked(unit));
    }
}
