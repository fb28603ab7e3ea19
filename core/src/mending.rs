//! GPUs that have failed and answer again. One that only fell silent, or whose reads failed, is litd's again once
//! it has answered well for a while. One that refused writes, or whose cap was not in force, is not: a reset
//! or an administrator makes it litd's again.

use litd_api::{DeviceState, EventKind};
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;

/// A GPU that has failed is litd's again once it has answered well for so long.
const PROBATION: Nanos = Nanos(60_000_000_000);

/// What is known of a device since it has failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed {
    /// The most that it has held since it failed, or since a budget was set after that: before it is litd's
    /// again it gets no more of the budget than this. `None` while there is no budget.
    pub held: Option<Watts>,
    /// Whether it only fell silent or failed to be read, and has refused no write.
    pub answers_only: bool,
    /// Since when it has answered all that it was asked.
    pub well_since: Option<Nanos>,
}

impl Unit {
    /// What is known of it since it has failed, while it counts as failed.
    pub fn failed(&self) -> Option<Failed> {
        let is_faulty = self.standing == DeviceState::Faulty && self.let_go.is_none();
        self.failed.filter(|_| is_faulty)
    }

    /// It has failed just now, once or once more.
    pub fn has_failed_again(&mut self) {
        if let Some(failed) = &mut self.failed {
            failed.well_since = None;
            failed.answers_only &= self.refusals == 0;
        }
    }
}

impl<S: Store> Core<S> {
    /// Whether a GPU that has failed answers again and takes writes, as far as anybody knows. One that does not
    /// answer now, or was not read of late, may hold anything.
    pub(crate) fn obeys_again(&self, unit: &Unit) -> bool {
        let failed = unit.standing == DeviceState::Faulty && unit.let_go.is_none();
        let is_read = self.fresh_reading(unit).is_some() && self.is_fresh(unit);
        let answers = unit.failures == 0 && !unit.overdue && unit.is_judged() && is_read;
        failed && answers && unit.not_in_force.is_none()
    }

    /// Remembers the most that each GPU that has failed has held since, or since a budget was set after that.
    pub(crate) fn note_share_of_failed(&mut self) {
        for device in 0..self.devices.iter().count() {
            let held = self.actuator.held(device);
            let unit = self.devices.get(device);
            let is_kept_down = unit.is_some_and(|unit| self.is_kept_down(unit));
            let Some(unit) = self.devices.get_mut(device) else {
                continue;
            };
            // Of a write that failed nobody knows yet what has become of it.
            let held = held.or(unit.device.reading.map(|reading| reading.cap));
            if let Some(failed) = &mut unit.failed {
                let most = [failed.held, held].into_iter().flatten().reduce(Watts::max);
                failed.held = most.filter(|_| is_kept_down);
            }
        }
    }

    /// Aims a GPU that has failed and obeys again at what goes back, or at the most that it has held since it
    /// failed if that is less. It is lowered to what the others leave it of that, and never raised:
    /// `raise_in_full`. A goal that followed its cap down would have it lowered over and over, by less each time.
    pub(crate) fn aim_failed(&mut self) {
        for (device, unit) in self.devices.iter() {
            let held = unit.failed().and_then(|failed| failed.held);
            let held = held.filter(|_| self.is_enforced_on(unit));
            if let Some((held, target)) = held.zip(self.actuator.target(device)) {
                self.actuator.give_back(device, target.min(held));
            }
        }
    }

    /// Once a second: GPUs that have answered well for long enough are litd's again.
    pub(crate) fn check_failed(&mut self) {
        if self.is_leaving() {
            return;
        }
        for device in 0..self.devices.iter().count() {
            let now = self.now;
            let is_well = |unit: &Unit| {
                let is_sure = !self.actuator.has_failed(device) && !unit.contradicts_itself();
                is_sure && unit.is_gpu() && self.obeys_again(unit)
            };
            let is_well = self.devices.get(device).is_some_and(is_well);
            let Some(failed) = self
                .devices
                .get_mut(device)
                .and_then(|it| it.failed.as_mut())
            else {
                continue;
            };
            let since = failed.well_since.filter(|_| is_well);
            failed.well_since = since.or(is_well.then_some(now));
            let is_over = since.is_some_and(|since| now >= since + PROBATION);
            if is_over && failed.answers_only {
                self.is_mended(device);
            }
        }
    }

    fn is_mended(&mut self, device: usize) {
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.begins_anew();
        let text = format!(
            "has answered well for {:.0} s since it failed: it is litd's again",
            PROBATION.as_secs_f64()
        );
        let note = Note::info(EventKind::Fault, text).device(unit.address());
        self.note(note);
        self.standing_changed(device);
    }
}
