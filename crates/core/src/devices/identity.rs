//! Devices that may have changed: after a reset, a rebind of the driver or a change of partitions, identity and
//! limits are read anew before anything is written.

use litd_api::EventKind;
use litd_power::{CapRange, Identity, PowerError, Sharing};

use crate::core::Core;
use crate::devices::Unit;
use crate::devices::range::Range;
use crate::journal::{Entry, Undo};
use crate::record::Note;
use crate::store::Store;

/// Why a GPU's cap does not belong to one job; `None` if it does.
pub(crate) fn shared(unit: &Unit) -> Option<&'static str> {
    let by_users = || {
        let is_shared = unit.usage.is_shared();
        is_shared.then_some("processes of several users use it")
    };
    divided(unit).or_else(by_users)
}

/// How a GPU is divided among jobs by its driver, if it is.
pub(crate) fn divided(unit: &Unit) -> Option<&'static str> {
    match unit.device.identity.sharing {
        Sharing::Whole => None,
        Sharing::Mig => Some("MIG is on"),
        Sharing::Partitioned => Some("it is partitioned"),
        Sharing::Mps => Some("MPS is on"),
    }
}

impl<S: Store> Core<S> {
    /// A device has told its identity and range, after a reset or a regular question.
    pub(crate) fn has_identity(&mut self, device: usize, identity: Identity, range: CapRange) {
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let known = &unit.device.identity;
        if *known == identity && unit.device.range == Range::Told(range) {
            return;
        }
        if (&identity.address, identity.kind) != (&known.address, known.kind) {
            let error = PowerError::Driver {
                device: known.address.clone(),
                action: "reading its identity",
                cause: format!("it says that it is {}", identity.address),
            };
            return self.devices.count_error(device, &error, &mut self.out);
        }
        let differs = |old: &Option<String>, new: &Option<String>| matches!((old, new), (Some(old), Some(new)) if old != new);
        let held = unit.readings.cap();
        // A device that holds a cap of litd's is the part that litd has written, whatever its driver says.
        let entry = self.writer.entry(&known.address);
        let is_ours = |entry: &Entry| held.is_some_and(|held| entry.undo(held) != Undo::Foreign);
        let ours = entry.is_some_and(is_ours);
        let other =
            differs(&known.serial, &identity.serial) || differs(&known.uuid, &identity.uuid);
        if other && held.is_none() && entry.is_some() {
            // Only its cap can tell, and that was not read since the device was released: then it is asked again.
            unit.device.range.ask_anew();
            return self.devices.want_read(device);
        }
        let replaced = other && !ours;
        let (was, back) = (divided(unit), unit.back());
        unit.device.identity = identity;
        let told = Range::from(range);
        // A reading before the release says nothing of the device now.
        let read = unit.device.range.unjudged().is_some() || unit.found.is_some();
        let belied = read && held.is_some_and(|held| !told.admits(held));
        let belied = belied
            || unit
                .readings
                .unbelieved
                .impossible()
                .is_some_and(|held| !told.admits(held));
        match told {
            Range::Told(_) if !belied => unit.device.range = told,
            // Cap and range contradict each other, or the range is empty: the driver is asked again.
            _ => self.range_doubted(
                device,
                "the range that it reports is empty or does not contain the device's cap",
            ),
        }
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.clocks.forget_highest();
        let (now, address) = (divided(unit), unit.address().to_owned());
        self.judge_reset(device);
        if replaced {
            self.part_was_replaced(device, &address);
        }
        if self.devices.get(device).and_then(Unit::back) != back {
            // A driver that is asked every second is reported once.
            self.note_shrunk(device);
        }
        if let Some(how) = now.filter(|_| now != was) {
            let text = format!("{how}: the GPU counts as shared now, and litd does not steer it");
            self.note(Note::warning(EventKind::Foreign, text).device(&address));
        }
        let Some(name) = self.devices.job_of(device) else {
            return;
        };
        self.suspend_or_resume(&name);
        let looping = |job: &crate::job::Job| job.control.runs();
        if self.jobs.get(&name).is_some_and(looping) {
            self.plan_anew(&name);
        }
    }

    /// The cap that it holds is the new part's own, and nothing of the old part is to be restored.
    fn part_was_replaced(&mut self, device: usize, address: &str) {
        let held = self.writer.account().held(device);
        if let Some(unit) = self.devices.get_mut(device) {
            unit.found = held;
        }
        self.devices.want_read(device);
        self.writer.close(address, &mut self.out);
        let text = "the part was replaced: its present cap is the cap found from now on";
        self.note(Note::info(EventKind::Foreign, text).device(address));
    }
}
