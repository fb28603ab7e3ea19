//! Devices that litd leaves alone until it is told to take them again: released ones, and those with a foreign
//! cap. The list outlives litd: after a crash or an upgrade it must not open a device in the middle of its reset,
//! or move a foreign cap.

use std::collections::BTreeMap;

use litd_api::EventKind;
use litd_units::Watts;
use serde::{Deserialize, Serialize};

use crate::core::Core;
use crate::devices::Unit;
use crate::devices::standing::Standing;
use crate::record::Note;
use crate::store::Store;

/// Why a device is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LeftAlone {
    /// The device was released by its users.
    Released,
    /// The device has this foreign cap.
    Foreign(Watts),
}

impl LeftAlone {
    /// The new entry of a device that holds `held`; `before` is its entry so far.
    fn of(unit: &Unit, held: Option<Watts>, before: Option<Self>) -> Option<Self> {
        match unit.standing {
            Standing::Released(let_go) if !let_go.by_mode => Some(Self::Released),
            Standing::Foreign(_) if unit.standing.is_kept() => held.map(Self::Foreign).or(before),
            // Somebody has set its cap while litd was going off.
            Standing::Released(let_go) if !let_go.held => held.map(Self::Foreign).or(before),
            // Keeps the entry while the device fails, holds a late write, or litd is off: nobody has said to take
            // it.
            Standing::Foreign(_) | Standing::Faulty(_) | Standing::Released(_) => before,
            Standing::Ours if unit.was_read() => None,
            Standing::Ours => before,
        }
    }
}

/// The key of a device's entry. All GPUs of one board may tell the same serial number, and another part may come
/// to its address.
fn name(unit: &Unit) -> String {
    match &unit.device.identity.serial {
        Some(serial) => format!("{} {serial}", unit.address()),
        None => unit.address().to_owned(),
    }
}

/// The devices that are left alone, by address and serial number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct AllLeftAlone(BTreeMap<String, LeftAlone>);

impl AllLeftAlone {
    /// Takes in what another litd has left alone, whose devices this one has by now.
    pub fn adopt(&mut self, theirs: Self) {
        self.0.extend(theirs.0);
    }

    /// Forgets the devices for whose addresses this does not count.
    pub fn keep(&mut self, counts: impl Fn(&str) -> bool) {
        let address = |name: &str| name.split(' ').next().is_none_or(&counts);
        self.0.retain(|name, _| address(name));
    }

    /// Why a device is left alone; `None` if it is not.
    pub fn of(&self, unit: &Unit) -> Option<LeftAlone> {
        self.0.get(&self.key(unit)).copied()
    }

    /// litd takes a device again. Returns whether it was left alone.
    pub fn take(&mut self, unit: &Unit) -> bool {
        self.0.remove(&self.key(unit)).is_some()
    }

    /// A device is left alone or not, as its standing is, and holds `held`. Returns whether its entry has changed.
    pub fn follow(&mut self, unit: &Unit, held: Option<Watts>) -> bool {
        if unit.standing.is_ours() && self.0.is_empty() {
            // The usual case: the device has no entry, and needs none.
            return false;
        }
        let key = self.key(unit);
        let before = self.0.get(&key).copied();
        let kept = LeftAlone::of(unit, held, before);
        match kept {
            Some(kept) => self.0.insert(key, kept),
            None => self.0.remove(&key),
        };
        kept != before
    }

    /// The key under which a device already has an entry, or else its own. A driver in trouble tells no serial number
    /// at first, and may have told one before: until it does, the entry of its address counts.
    fn key(&self, unit: &Unit) -> String {
        let (name, address) = (name(unit), unit.address());
        let of_address = |it: &&String| match it.strip_prefix(address) {
            Some("") => true,
            Some(serial) => unit.device.identity.serial.is_none() && serial.starts_with(' '),
            None => false,
        };
        let other = || self.0.keys().find(of_address).cloned();
        match self.0.contains_key(&name) {
            true => name,
            false => other().unwrap_or(name),
        }
    }
}

impl<S: Store> Core<S> {
    /// At a start: a device that an earlier litd had released, and that does not answer, is released at once.
    /// Others are read first, because their caps count in the budget.
    pub(crate) fn recall_silent(&mut self) {
        let devices = self.devices.iter();
        let silent = devices.filter(|(_, unit)| !unit.readings.unbelieved.is_suspect());
        let silent: Vec<usize> = silent.map(|(device, _)| device).collect();
        for device in silent {
            self.recall_let_go(device);
        }
    }

    /// `litd restore` opens no released device, unless a cap is to be restored there.
    pub(crate) fn recall_all_let_go(&mut self) {
        for device in 0..self.devices.iter().count() {
            if !self.writer.is_journaled(device) {
                self.recall_let_go(device);
            }
        }
    }

    /// A device was read for the first time, and holds `cap`.
    pub(crate) fn recall_left_alone(&mut self, device: usize, cap: Watts) {
        // A litd that stops restores every cap that it owes, whoever owns the device.
        let is_left = self.authority.is_stopping() && self.writer.is_journaled(device);
        if is_left || !self.recall_let_go(device) {
            self.recall_foreign(device, cap);
        }
    }

    fn kept_of(&self, device: usize) -> Option<LeftAlone> {
        let unit = self.devices.get(device)?;
        self.condition.left_alone.of(unit)
    }

    /// Whether a device's users had it released by command, for whatever other reasons it was released, too.
    pub(crate) fn is_released_by_name(&self, device: usize) -> bool {
        self.kept_of(device) == Some(LeftAlone::Released)
    }

    /// Releases a device again that an earlier litd had released. Returns whether it was one.
    fn recall_let_go(&mut self, device: usize) -> bool {
        let is_let_go = self.is_released_by_name(device);
        if let Some(unit) = self.devices.get(device).filter(|_| is_let_go) {
            let text = "was released before litd was restarted, and stays so until `litctl resume`";
            let note = Note::info(EventKind::State, text).device(unit.address());
            self.note(note);
            self.let_go_of(device, false);
        }
        is_let_go
    }

    /// A cap that was set by others while an earlier litd ran is left alone.
    fn recall_foreign(&mut self, device: usize, cap: Watts) {
        let kept = self.kept_of(device);
        let is_theirs = matches!(kept, Some(LeftAlone::Foreign(theirs)) if theirs.is_same_cap(cap));
        let address = self.devices.get(device).map(Unit::address);
        let entry = address.and_then(|address| self.writer.entry(address));
        // An entry that has the foreign cap as the one found is there for late writes.
        let is_owed = entry.is_some_and(|entry| !entry.found.is_same_cap(cap));
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        // Also where its driver does not tell its range yet.
        if !is_theirs || is_owed || !unit.standing.is_ours() {
            return;
        }
        unit.standing.take();
        let address = unit.address();
        let text = format!(
            "holds {cap}, which somebody else set before litd was started anew: left alone until \
             `litctl resume {address}`"
        );
        let note = Note::warning(EventKind::Foreign, text).device(address);
        self.note(note);
        self.standing_changed(device);
    }
}

#[cfg(test)]
mod tests {
    use litd_power::{DeviceKind, Reading};
    use litd_units::Nanos;

    use super::*;
    use crate::devices::all::tests::device;

    /// A GPU that was read, with this serial number.
    fn gpu(serial: Option<&str>) -> Unit {
        let mut unit = Unit::new("gpu0".to_owned(), device(DeviceKind::Gpu, "0000:05:00.0"));
        unit.device.identity.serial = serial.map(str::to_owned);
        unit.readings.comes(Reading::default(), Nanos(0), Nanos(0));
        unit
    }

    /// The same with a foreign cap.
    fn foreign(serial: Option<&str>) -> Unit {
        let mut unit = gpu(serial);
        unit.standing.take();
        unit
    }

    #[test]
    fn a_foreign_cap_is_kept_until_litd_takes_the_device_again() {
        let mut all = AllLeftAlone::default();
        assert!(!all.follow(&gpu(None), Some(Watts(700.0))));
        assert!(all.follow(&foreign(None), Some(Watts(500.0))));
        assert!(!all.follow(&foreign(None), Some(Watts(500.0))));
        // While nobody knows what it holds the entry stays.
        assert!(!all.follow(&foreign(None), None));
        assert_eq!(all.of(&gpu(None)), Some(LeftAlone::Foreign(Watts(500.0))));
        assert!(all.follow(&gpu(None), Some(Watts(500.0))));
        assert_eq!(all.of(&gpu(None)), None);
        all.follow(&foreign(None), Some(Watts(500.0)));
        assert!(all.take(&gpu(None)) && !all.take(&gpu(None)));
    }

    #[test]
    fn a_device_that_was_not_read_keeps_its_entry() {
        let mut all = AllLeftAlone::default();
        all.follow(&foreign(None), Some(Watts(500.0)));
        let mut unread = gpu(None);
        unread.readings.forget_last();
        assert!(!all.follow(&unread, None));
        assert!(all.of(&unread).is_some());
    }

    #[test]
    fn an_entry_is_the_parts_and_counts_for_its_address_while_no_serial_number_is_told() {
        let mut all = AllLeftAlone::default();
        all.follow(&foreign(Some("1")), Some(Watts(500.0)));
        assert!(all.of(&gpu(Some("1"))).is_some());
        assert!(all.of(&gpu(None)).is_some());
        assert_eq!(all.of(&gpu(Some("2"))), None);
        // One that was made without a serial number is that of its address, whichever is told later.
        let mut all = AllLeftAlone::default();
        all.follow(&foreign(None), Some(Watts(500.0)));
        assert!(all.of(&gpu(Some("2"))).is_some());
    }
}
