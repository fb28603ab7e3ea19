//! CPU sockets that lend watts to GPUs (cpu-slosh), and get them back as soon as they need them.

use litd_api::EventKind;
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::record::Note;
use crate::store::Store;

/// A socket within this share of its lowered limit is slowed by it.
const NEAR_LIMIT: f64 = 0.05;

/// A socket that needed its watts keeps them for so long: a data loader that works in waves must not be starved at
/// each.
const KEEPS: Nanos = Nanos(600_000_000_000);

impl<S: Store> Core<S> {
    /// Whether a socket that lent watts needs them now. GPUs are lowered first then: the account of writes sees to
    /// that.
    pub(crate) fn check_socket(&mut self, device: usize) {
        let now = self.now();
        let held = self.writer.account().held(device);
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let lent = self.jobs.values().any(|job| job.counts_on(device));
        if unit.is_gpu() || unit.following.is_awaited() || !lent {
            return;
        }
        let (Some(held), Some(found)) = (held, unit.found) else {
            return;
        };
        let power = unit.readings.last().and_then(|reading| reading.power);
        let near = |power: &Watts| *power >= held * (1.0 - NEAR_LIMIT);
        let Some(power) = power.filter(near).filter(|_| held < found) else {
            return;
        };
        unit.usage.keeps_its_watts(now + KEEPS);
        let address = unit.address().to_owned();
        let text = format!(
            "draws {power:.1} of its lowered limit, {held}: its limit of {found} is restored for at least {:.0} s",
            KEEPS.as_secs_f64()
        );
        self.note(Note::info(EventKind::State, text).device(&address));
        self.plan_around(device);
    }

    /// Sockets that kept their watts for long enough may lend them again.
    pub(crate) fn check_sockets(&mut self) {
        let now = self.now();
        let mut free = false;
        for (_, unit) in self.devices.iter_mut() {
            free |= unit.usage.lends_again(now);
        }
        if free {
            self.replan_all();
        }
    }

    /// The jobs that count on a socket go on without it.
    pub(crate) fn plan_around(&mut self, device: usize) {
        for name in self.jobs.that(|job| job.counts_on(device)) {
            self.plan_anew(&name);
        }
    }
}
