//! When targets are computed anew (by [`plan`]), and the writes that follow.

use litd_api::audit::Intent;
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::journal::Undo;
use crate::plan::Doing;
use crate::reason::Reason;
use crate::store::Store;

/// After a failed write to the journal or the audit log no cap is written for so long.
const JOURNAL_RETRY: Nanos = Nanos(1_000_000_000);

impl<S: Store> Core<S> {
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
        self.targets.follow(view, self.writer.account_mut());
        self.aim_in_steps();
    }

    fn believe_all(&mut self, which: impl Fn(&Unit) -> bool) {
        let units = self.devices.iter().filter(|(_, unit)| which(unit));
        let devices: Vec<usize> = units.map(|(device, _)| device).collect();
        for device in devices {
            self.writer.believe(device, &mut self.devices);
        }
    }

    /// Sends out what may be written now, after the journal and the audit log know of it.
    pub(crate) fn write_caps(&mut self) {
        let writes = self.writer.due(&self.devices);
        if writes.is_empty() {
            return;
        }
        let ours: Vec<(usize, Watts)> = writes
            .iter()
            .filter(|&&(device, cap)| !self.devices.is_by_hand(device, cap))
            .copied()
            .collect();
        let trouble = !ours.is_empty()
            && self
                .writer
                .journal_writes(&ours, &self.devices, &mut self.out);
        let allowed = |&(device, cap): &(usize, Watts)| {
            !trouble || self.undoes(device, cap) || self.devices.is_by_hand(device, cap)
        };
        let (allowed, waiting): (Vec<_>, Vec<_>) = writes.into_iter().partition(allowed);
        let unrecorded = !allowed.is_empty() && self.audit_writes(&allowed);
        for (device, cap) in allowed {
            if !unrecorded || self.gives_back(device, cap) {
                if let Some(job) = self.reason(device).job {
                    self.moves_for(&job);
                }
                self.writer
                    .send(device, cap, &mut self.devices, &mut self.out);
                continue;
            }
            self.write_later(device);
            if self.devices.is_by_hand(device, cap) {
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
        let entry = unit.and_then(|unit| self.writer.entry(unit.address()));
        goes_back && entry.is_some_and(|entry| entry.undo(cap) != Undo::Foreign)
    }

    /// The same, or a write that undoes a failed override.
    fn gives_back(&self, device: usize, cap: Watts) -> bool {
        let unit = self.devices.get(device);
        let owed = unit.filter(|unit| self.writer.owes_undo(device, unit));
        let owed = owed.and_then(Unit::back);
        self.undoes(device, cap) || owed.is_some_and(|back| back.is_same_cap(cap))
    }

    /// A write that can't be put on record is not made.
    fn write_later(&mut self, device: usize) {
        self.writer.withhold(device);
        if let Some(unit) = self.devices.get_mut(device) {
            unit.answering.retries_at(self.out.now() + JOURNAL_RETRY);
        }
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
            actor: self
                .writer
                .actor(device, self.devices.is_by_hand(device, cap)),
            reason: text,
            sample: sample.map(|job| job.samples.used()),
            job,
            old_watts: self.writer.account().held(device),
            new_watts: cap,
            found_watts: unit.found,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand::Stand;
    use crate::{Config, Effect, Event};

    #[test]
    fn a_write_is_in_the_journal_and_in_the_audit_log_before_it_goes_out() {
        let mut node = Stand::new(Config::default(), &[600.0]);
        node.pass(3);
        node.core.authority.set_budget(Some(Watts(451.0)));
        node.core.handle(Nanos(4_000_000_000), Event::Time);
        let is_write = |effect: &Effect| {
            let Effect::Device { operation, .. } = effect else {
                return false;
            };
            matches!(operation, crate::Operation::Set(cap) if *cap == Watts(451.0))
        };
        // Nothing is on its way to the device yet: effects are done once they are taken.
        let store = node.core.store().clone();
        assert!(node.core.effects().iter().any(is_write));
        let journal = String::from_utf8(store.journal).unwrap();
        let audit = String::from_utf8(store.audit).unwrap();
        assert!(
            journal.contains("451") && journal.contains("600"),
            "{journal}"
        );
        assert!(
            audit.contains("451") && audit.contains("its share of the budget"),
            "{audit}"
        );
    }

    #[test]
    fn only_a_device_with_an_entry_is_undone_and_only_to_its_cap_found() {
        let mut node = Stand::new(Config::default(), &[600.0]);
        node.pass(3);
        assert!(!node.core.undoes(0, Watts(600.0)));
        node.has_budget(450.0);
        assert!(node.core.undoes(0, Watts(600.0)));
        assert!(!node.core.undoes(0, Watts(450.0)) && !node.core.undoes(1, Watts(600.0)));
    }
}
