//! Failed GPUs that answer again. A GPU that only fell silent, or whose reads failed, is steered again once it has
//! answered well for a while. A GPU that refused writes, or whose cap was not in force, is not: only a reset or an
//! administrator ends that.

use litd_api::EventKind;
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;

/// How long a failed GPU has to answer well before it is trusted again, the first time.
const PROBATION: Nanos = Nanos(60_000_000_000);

/// The longest such time: it doubles with each repeated failure.
const LONGEST_PROBATION: Nanos = Nanos(3_600_000_000_000);

/// A GPU that has been trusted for so long has the shortest time again.
const FORGIVEN: Nanos = Nanos(86_400_000_000_000);

/// The record of a failed device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed {
    /// The highest cap that it has held since it failed, or since a budget was set after that: until it is litd's
    /// again its cap is raised no higher. `None` while there is no budget.
    pub held: Option<Watts>,
    /// Whether it only fell silent or failed to be read, and has refused no write.
    pub answers_only: bool,
    /// Since when it has answered all that it was asked.
    pub well_since: Option<Nanos>,
    /// Whether it was not read for so long that it may have been reset. A GPU that answers again may fall silent
    /// again: until it has answered well for long enough it counts with what a reset would leave it, so that the
    /// others' caps do not follow its answers up and down. That ends also for a GPU that has refused writes, which
    /// stays faulty.
    pub was_unread: bool,
    /// The watts that it counts with, because the cap that it reads was seen not to be in force.
    pub not_in_force: Option<Watts>,
}

/// How often a device that had failed was trusted again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trust {
    times: u32,
    /// When it was last trusted again.
    at: Option<Nanos>,
}

impl Trust {
    /// For how long it has to answer well before it is trusted again.
    fn probation(self) -> Nanos {
        let doubled = PROBATION.0.saturating_mul(1 << self.times.min(16));
        Nanos(doubled).min(LONGEST_PROBATION)
    }

    /// The device fails now. A failure of long ago no longer counts.
    fn fails(&mut self, now: Nanos) {
        if self.at.is_some_and(|at| now >= at + FORGIVEN) {
            *self = Self::default();
        }
    }

    fn is_trusted_again(&mut self, now: Nanos) {
        self.times = self.times.saturating_add(1);
        self.at = Some(now);
    }
}

impl Unit {
    /// The device counts as failed from now on, if litd steered it; `not_in_force`: with these watts, because its
    /// cap is not in force.
    pub fn fails(&mut self, now: Nanos, not_in_force: Option<Watts>) {
        let failed = Failed {
            held: None,
            answers_only: self.answering.refusals() == 0,
            well_since: None,
            was_unread: false,
            not_in_force,
        };
        if self.standing.fails(failed) {
            self.answering.trust.fails(now);
        } else if let Some(failed) = self.standing.failed_mut() {
            failed.not_in_force = not_in_force.or(failed.not_in_force);
        }
    }

    /// The device has just failed, for the first time or again.
    pub fn has_failed_again(&mut self) {
        if let Some(failed) = self.standing.failed_mut() {
            failed.well_since = None;
            failed.answers_only &= self.answering.refusals() == 0;
        }
    }
}

impl<S: Store> Core<S> {
    pub(crate) fn is_any_distrusted(&self) -> bool {
        self.devices
            .gpus()
            .any(|(_, unit)| self.is_distrusted(unit))
    }

    /// Records for each failed GPU the highest cap that it has held since, or since a budget was set after that,
    /// and whether it was not read for long.
    pub(crate) fn note_failed(&mut self) {
        let is_bound = self.set_budget().is_some();
        for device in 0..self.devices.iter().count() {
            let held = self.writer.account().held(device);
            let unit = self.devices.get(device);
            let is_kept_down =
                is_bound && unit.is_some_and(|it| it.standing.is_faulty() && it.is_gpu());
            let is_unread = unit.is_some_and(|unit| self.fresh_reading(unit).is_none());
            let Some(unit) = self.devices.get_mut(device) else {
                continue;
            };
            // The outcome of a failed write is unknown.
            let held = held.or(unit.readings.cap());
            if let Some(failed) = unit.standing.failed_mut() {
                let most = [failed.held, held].into_iter().flatten().reduce(Watts::max);
                failed.held = most.filter(|_| is_kept_down);
                failed.was_unread |= is_unread;
            }
        }
    }

    /// Once a second: GPUs that have answered well for long enough are trusted again, and steered again if they
    /// only fell silent.
    pub(crate) fn check_failed(&mut self) {
        if self.authority.is_leaving() {
            return;
        }
        for device in 0..self.devices.iter().count() {
            let now = self.now();
            let is_well = |unit: &Unit| {
                let is_sure = !self.writer.account().has_failed(device)
                    && !unit.readings.unbelieved.contradicts_itself();
                is_sure && unit.is_gpu() && self.obeys_again(unit)
            };
            let is_well = self.devices.get(device).is_some_and(is_well);
            let Some(unit) = self.devices.get_mut(device) else {
                continue;
            };
            let probation = unit.answering.trust.probation();
            let Some(failed) = unit.standing.failed_mut() else {
                continue;
            };
            let since = failed.well_since.filter(|_| is_well);
            failed.well_since = since.or(is_well.then_some(now));
            let is_over = since.is_some_and(|since| now >= since + probation);
            let is_mended = is_over && failed.answers_only;
            let was_unread = failed.was_unread;
            if is_over {
                failed.was_unread = false;
            }
            if is_mended || is_over && was_unread {
                unit.answering.trust.is_trusted_again(now);
            }
            if is_mended {
                self.is_mended(device, probation);
            }
        }
    }

    fn is_mended(&mut self, device: usize, probation: Nanos) {
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        unit.begins_anew();
        let text = format!(
            "has answered well for {:.0} s since it failed: it is litd's again",
            probation.as_secs_f64()
        );
        let note = Note::info(EventKind::Fault, text).device(unit.address());
        self.note(note);
        self.standing_changed(device);
    }
}

#[cfg(test)]
mod tests {
    use litd_power::DeviceKind;

    use super::*;
    use crate::devices::all::tests::device;

    const MINUTE: i64 = 60_000_000_000;

    #[test]
    fn a_gpu_that_fails_again_and_again_is_trusted_later_each_time_and_after_a_day_as_at_first() {
        let mut trust = Trust::default();
        let mut minutes = Vec::new();
        for _ in 0..8 {
            minutes.push(trust.probation().0 / MINUTE);
            trust.is_trusted_again(Nanos(0));
            trust.fails(Nanos(FORGIVEN.0 - 1));
        }
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 60, 60]);
        trust.fails(FORGIVEN);
        assert_eq!(trust.probation(), PROBATION);
        trust.times = u32::MAX;
        trust.is_trusted_again(Nanos(0));
        assert_eq!(trust.probation(), LONGEST_PROBATION);
    }

    #[test]
    fn a_unit_that_fails_remembers_whether_it_has_refused_a_write_and_what_it_counts_with() {
        let mut unit = Unit::new("gpu0".to_owned(), device(DeviceKind::Gpu, "0000:05:00.0"));
        unit.fails(Nanos(0), None);
        assert!(unit.standing.failed().unwrap().answers_only);
        unit.fails(Nanos(1), Some(Watts(600.0)));
        unit.fails(Nanos(2), None);
        assert_eq!(unit.standing.not_in_force(), Some(Watts(600.0)));
        unit.answering.has_refused();
        unit.has_failed_again();
        assert!(!unit.standing.failed().unwrap().answers_only);
        // That it has refused one stays, also where a later failure is another one.
        unit.answering.begins_anew();
        unit.has_failed_again();
        assert!(!unit.standing.failed().unwrap().answers_only);
    }
}
