//! When targets are computed anew (by [`plan`]), and the writes that follow.

use litd_api::audit::Intent;
use litd_policies::Policy;
use litd_power::Operation;
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::journal::{Found, Undo};
use crate::plan::Doing;
use crate::reason::Reason;
use crate::store::Store;

/// After a failed write to the journal or the audit log no cap is written for so long.
const JOURNAL_RETRY: Nanos = Nanos(1_000_000_000);

impl<S: Store> Core<S> {
    /// Whether a policy moves caps.
    pub(crate) fn steers(&self) -> bool {
        self.policy() != Policy::Observe && !self.authority.is_stopping() && !self.only_undoes()
    }

    /// Whether the journal could never be written since the start. Then a predecessor's caps are undone, and jobs'
    /// demands, which would be in the way, are ignored. Where a budget is set its caps stay, because the caps
    /// found may add up to more.
    fn only_undoes(&self) -> bool {
        let unwritable = self.writer.journal_trouble().is_some() && self.writer.is_only_read();
        unwritable && self.set_budget().is_none()
    }

    /// Whether a budget that was set keeps caps below those found: in every mode but off.
    pub(crate) fn enforces(&self) -> bool {
        !self.authority.is_leaving() && self.set_budget().is_some()
    }

    /// Works out the target of every device where the state is seen differently than at the last time.
    pub(crate) fn replan(&mut self) {
        self.note_failed();
        self.judge_devices();
        let is_leaving = self.authority.is_leaving() && !self.is_looking_round();
        if is_leaving {
            // Caps that litd leaves behind don't wait for power to follow.
            self.believe_all(|_| true);
        }
        let view = self.view();
        if view.doing == Doing::GivingBack {
            // Nor do caps that are restored.
            self.believe_all(Unit::is_gpu);
        }
        self.targets.follow(view, &mut self.actuator);
        self.aim_in_steps();
    }

    fn believe_all(&mut self, which: impl Fn(&Unit) -> bool) {
        let units = self.devices.iter().filter(|(_, unit)| which(unit));
        let devices: Vec<usize> = units.map(|(device, _)| device).collect();
        for device in devices {
            self.believe(device);
        }
    }

    /// Sends out what may be written now, after the journal and the audit log know of it.
    pub(crate) fn write_caps(&mut self) {
        let devices = &self.devices;
        let writes = self.actuator.due(|device| devices.is_free(device));
        if writes.is_empty() {
            return;
        }
        let ours: Vec<(usize, Watts)> = writes
            .iter()
            .filter(|&&(device, cap)| !self.is_by_hand(device, cap))
            .copied()
            .collect();
        let trouble = !ours.is_empty() && self.journal_writes(&ours);
        let allowed = |&(device, cap): &(usize, Watts)| {
            !trouble || self.undoes(device, cap) || self.is_by_hand(device, cap)
        };
        let (allowed, waiting): (Vec<_>, Vec<_>) = writes.into_iter().partition(allowed);
        let unrecorded = !allowed.is_empty() && self.audit_writes(&allowed);
        for (device, cap) in allowed {
            if !unrecorded || self.gives_back(device, cap) {
                let operation = Operation::Set(cap);
                self.devices
                    .begin(device, operation, self.now(), &mut self.out);
                continue;
            }
            self.write_later(device);
            if self.is_by_hand(device, cap) {
                let why = "the audit log can't be written".to_owned();
                self.wrote_by_hand(device, Err(why));
            }
        }
        for (device, _) in waiting {
            self.write_later(device);
        }
    }

    /// Whether a write undoes what litd may have done, as far as the journal knows. A device without a journal
    /// entry holds its cap found, so nothing is to be undone there. A cap that is missing in the journal, because
    /// the driver no longer takes a higher one, would look like somebody else's at the next start.
    fn undoes(&self, device: usize, cap: Watts) -> bool {
        let unit = self.devices.get(device);
        let goes_back = unit
            .and_then(Unit::back)
            .is_some_and(|back| back.is_same_cap(cap));
        let entry = unit.and_then(|unit| self.entry(unit.address()));
        goes_back && entry.is_some_and(|entry| entry.undo(cap) != Undo::Foreign)
    }

    /// The same, or a write that undoes a failed override.
    fn gives_back(&self, device: usize, cap: Watts) -> bool {
        let unit = self.devices.get(device);
        let owed = unit.filter(|unit| self.owes_undo(device, unit));
        let owed = owed.and_then(Unit::back);
        self.undoes(device, cap) || owed.is_some_and(|back| back.is_same_cap(cap))
    }

    /// A write that can't be put on record is not made.
    fn write_later(&mut self, device: usize) {
        self.actuator.not_written(device);
        if let Some(unit) = self.devices.get_mut(device) {
            unit.answering.retries_at(self.out.now() + JOURNAL_RETRY);
        }
    }

    /// Writes down what is about to be written to devices. Returns whether that failed.
    pub(crate) fn journal_writes(&mut self, writes: &[(usize, Watts)]) -> bool {
        // If an entry could not be taken out of the journal, it already has the cap found.
        for &(device, _) in writes {
            if let Some(address) = self.outdated_entry(device)
                && !self.forget_entry(&address)
            {
                return true;
            }
        }
        let found = self.unrecorded(writes.iter().map(|&(device, _)| device));
        let unit = |device: usize| self.devices.get(device);
        let intents = writes
            .iter()
            .filter_map(|&(device, cap)| Some((unit(device)?.address(), cap)));
        let intents: Vec<(&str, Watts)> = intents.collect();
        self.writer.journal(&found, &intents, &mut self.out)
    }

    /// Writes down in the audit log what is about to be written to devices, and why. Returns whether that failed.
    fn audit_writes(&mut self, writes: &[(usize, Watts)]) -> bool {
        let intents = writes.iter();
        let intents =
            intents.filter_map(|&(device, cap)| Some((device, self.intent(device, cap)?)));
        let intents = intents.collect();
        self.writer.log(intents, &mut self.out)
    }

    fn intent(&self, device: usize, cap: Watts) -> Option<Intent> {
        let unit = self.devices.get(device)?;
        let Reason { job, text } = self.reason(device);
        let sample = job.as_ref().and_then(|name| self.jobs.get(name));
        Some(Intent {
            device: unit.address().to_owned(),
            name: unit.name.clone(),
            actor: self.writer.actor(device, self.is_by_hand(device, cap)),
            reason: text,
            sample: sample.map(|job| job.samples.used()),
            job,
            old_watts: self.actuator.held(device),
            new_watts: cap,
            found_watts: unit.found,
        })
    }

    /// The caps found of those devices that the journal does not name.
    pub(crate) fn unrecorded(&self, devices: impl Iterator<Item = usize>) -> Vec<Found> {
        let new = devices.filter(|&device| !self.is_journaled(device));
        let found = new.filter_map(|device| {
            let unit = self.devices.get(device)?;
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
    pub(crate) fn try_journal(&mut self) {
        // Includes devices that litd has released, if this command takes them back.
        let theirs = |unit: &Unit| unit.standing.is_foreign();
        let gpus = self.devices.gpus();
        let gpus = gpus.filter(|(_, unit)| unit.is_judged() && !theirs(unit));
        let gpus: Vec<usize> = gpus.map(|(gpu, _)| gpu).collect();
        let found = self.unrecorded(gpus.into_iter());
        self.writer.try_journal(&found, &mut self.out);
    }
}
