//! The limiter of each GPU. More power helps a GPU only if power limits it: limiters of all readings are kept
//! until the job's next sample, and raises that have become useless or dangerous meanwhile are cancelled.

use litd_api::{EventKind, Limiter};
use litd_policies::Drawn;
use litd_power::{Reading, Throttle};
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::job::Job;
use crate::node::supply::BRAKE;
use crate::record::Note;
use crate::store::Store;

/// A GPU within this share of its cap is limited by it, where its driver does not tell a limiter.
const NEAR_CAP: f64 = 0.05;

/// A limit in force that is lower than the cap by more than this share is the GPU's limiter.
const LOWER: f64 = 0.005;

/// A device's limiter, as one reading tells it.
pub(crate) fn limiter(reading: &Reading) -> Limiter {
    match reading.throttle {
        Some(Throttle::Heat) => return Limiter::Heat,
        Some(Throttle::Memory) => return Limiter::Memory,
        Some(Throttle::Regulator) => return Limiter::Regulator,
        Some(Throttle::PowerBrake) => return Limiter::PowerBrake,
        Some(Throttle::Hardware) => return Limiter::Hardware,
        None => {}
    }
    let cap = reading.enforced.unwrap_or(reading.cap);
    let power = reading.power.filter(|power| *power >= Watts::ZERO);
    let limited = match (reading.power_share, reading.power_limited, power) {
        (Some(share), ..) => share > 0.5,
        (None, Some(limited), _) => limited,
        (None, None, Some(power)) => power >= cap * (1.0 - NEAR_CAP),
        (None, None, None) => return Limiter::Unknown,
    };
    match limited {
        true if cap < reading.cap * (1.0 - LOWER) => Limiter::Enforced,
        true => Limiter::Power,
        false => Limiter::None,
    }
}

/// Limiters of a GPU since its job's last sample, or since caps moved.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Window {
    readings: u32,
    power: f64,
    throttled: bool,
    drawn: Drawn,
}

impl Window {
    /// Adds a reading that was asked for at that time.
    pub fn add(&mut self, asked: Nanos, reading: &Reading) {
        self.drawn.add(asked, reading.power, reading.energy);
        let limiter = limiter(reading);
        self.throttled |= reading.throttle.is_some();
        let share = reading.power_share.filter(|share| share.is_finite());
        let power = match limiter {
            Limiter::Unknown => return,
            Limiter::Power => share.unwrap_or(1.0),
            Limiter::None => share.unwrap_or(0.0),
            _ => 0.0,
        };
        self.readings = self.readings.saturating_add(1);
        self.power += power;
    }

    /// The window that follows, empty except for the energy counter.
    pub fn next(&self) -> Self {
        Self {
            drawn: self.drawn.next(),
            ..Self::default()
        }
    }

    /// The mean power that it drew.
    pub fn power(&self) -> Option<Watts> {
        self.drawn.mean()
    }

    /// The share of the time in which power was the limiter; `None` where it is unknown.
    pub fn power_share(&self) -> Option<f64> {
        (self.readings > 0).then(|| self.power / f64::from(self.readings))
    }

    /// Whether the GPU was slowed by anything but power.
    pub fn throttled(&self) -> bool {
        self.throttled
    }
}

impl<S: Store> Core<S> {
    /// Takes in a reading's limiter.
    pub(crate) fn note_limits(&mut self, device: usize) {
        if let Some(unit) = self.devices.get_mut(device).filter(|unit| unit.is_gpu()) {
            unit.readings.count();
        }
    }

    /// Takes in the power brake of a reading. The brake is about the node's supply: it counts also if the cap in
    /// the same reading can't be believed.
    pub(crate) fn note_brake(&mut self, device: usize, reading: &Reading) {
        let pulled = reading.throttle == Some(Throttle::PowerBrake);
        let unit = self.devices.get(device).filter(|unit| unit.is_gpu());
        let Some(unit) = unit.filter(|_| pulled) else {
            return;
        };
        let address = unit.address().to_owned();
        if self.node.supply.brakes(device, self.now()) {
            let text = format!(
                "the power brake was pulled: no cap of the node rises before {:.0} s after it",
                BRAKE.as_secs_f64()
            );
            self.note(Note::warning(EventKind::Fault, text).device(&address));
        }
    }

    /// Why no cap of the node may be raised now, if so. Caps found are still restored.
    pub(crate) fn raises_stopped(&self) -> Option<String> {
        let held = |device: usize| self.writer.account().held(device);
        if let Some(unit) = self.devices.foreign(held) {
            return Some(format!(
                "somebody else set the cap of {0}; once `litctl resume {0}` has taken it back, caps may rise",
                unit.name
            ));
        }
        self.devices.unjudged().or_else(|| self.short_of_power())
    }

    /// Why the node has no more power to give now, if so: its supplies are short, or were a minute ago.
    pub(crate) fn short_of_power(&self) -> Option<String> {
        if let Some(why) = self.node.supply.alarm(self.now()) {
            return Some(format!("the node is short of power: {why}"));
        }
        let device = self.node.supply.braked(self.now())?;
        let name = self.devices.get(device).map(|unit| unit.name.as_str());
        let name = name.unwrap_or_default();
        Some(format!("the power brake was pulled on {name}"))
    }

    /// A device whose power has not followed its cap in time: no raise waits for it any longer.
    pub(crate) fn unfollowed(&self) -> Option<String> {
        let late = |&(device, unit): &(usize, &Unit)| {
            // A device that was raised again pays for no raise; nor does a failed one, which counts with what it
            // could hold.
            let pays = self.writer.account().is_doubted(device) && unit.standing.is_ours();
            pays && unit.following.is_late(self.now())
        };
        let (device, unit) = self.devices.iter().find(late)?;
        let held = self.writer.account().held(device).unwrap_or_default();
        let power = unit
            .told_power()
            .map_or("does not report its power".to_owned(), |power| {
                format!("draws {power:.0}")
            });
        Some(format!(
            "{} {power} and its cap was lowered to {held:.0} {:.0} s ago",
            unit.name, self.config.caps.follow_seconds
        ))
    }

    /// Cancels raises that may no longer be made: of a GPU that throttles by now, and all of them where raises
    /// have stopped. Jobs that are not steered keep caps too, and may have been waiting for watts to reach them.
    /// Returns whether there were any.
    pub(crate) fn cancel_rises(&mut self) -> bool {
        if !self.steers() {
            return false;
        }
        let stopped = self.raises_stopped();
        let mut cancelled = Vec::new();
        for job in self.jobs.values() {
            if job.control.ask().is_none() {
                continue;
            }
            let rises = |device: usize| self.rises(device);
            let throttles = |device: usize| {
                let reading = self
                    .devices
                    .get(device)
                    .and_then(|unit| unit.readings.last());
                reading.is_some_and(|reading| reading.throttle.is_some())
            };
            let reason = match &stopped {
                Some(why) if job.gpus().any(rises) => Some(why.clone()),
                _ => {
                    let hot = job.gpus().find(|&gpu| rises(gpu) && throttles(gpu));
                    let unit = hot.and_then(|device| self.devices.get(device));
                    unit.map(|unit| format!("{} throttles", unit.name))
                }
            };
            cancelled.extend(reason.map(|why| (job.name.clone(), why)));
        }
        let any = !cancelled.is_empty();
        for (name, why) in cancelled {
            self.cancel_rises_of(&name, &why);
        }
        any
    }

    /// Cancels raises that were to be paid for by a device whose power has not come down in time. Returns whether
    /// there were any.
    pub(crate) fn cancel_unpaid_rises(&mut self) -> bool {
        if !self.steers() {
            return false;
        }
        let Some(why) = self.unfollowed() else {
            return false;
        };
        let waits =
            |job: &Job| job.control.ask().is_some() && job.gpus().any(|gpu| self.rises(gpu));
        let names = self.jobs.that(waits);
        for name in &names {
            self.cancel_rises_of(name, &why);
        }
        !names.is_empty()
    }

    /// Whether a GPU's target is above what it may hold now. A GPU below its floor is raised to it in any case.
    fn rises(&self, device: usize) -> bool {
        let Some(unit) = self.devices.get(device) else {
            return false;
        };
        let floor = unit.limits(&self.config.caps).floor;
        let most = self.writer.account().most_of(device).max(floor);
        let idle = !self.writer.account().is_writing(device);
        let target = self.writer.account().target(device).filter(|_| idle);
        target.is_some_and(|target| target > most)
    }

    fn cancel_rises_of(&mut self, name: &str, why: &str) {
        let Some(job) = self.jobs.get(name) else {
            return;
        };
        let most: Vec<Watts> = job
            .gpus()
            .map(|device| self.writer.account().most_of(device))
            .collect();
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        job.control.cancel_rises(&most);
        let text = format!("rises are cancelled: {why}");
        // For a suspended job status keeps showing why it is suspended.
        if job.control.suspended().is_none() {
            job.control.says(&text);
        }
        self.note(Note::info(EventKind::State, text).job(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(power: f64, limited: Option<bool>) -> Reading {
        Reading {
            cap: Watts(600.0),
            power: Some(Watts(power)),
            power_limited: limited,
            ..Reading::default()
        }
    }

    #[test]
    fn what_the_driver_does_not_tell_is_told_by_power_or_not_at_all() {
        assert_eq!(limiter(&told(100.0, Some(true))), Limiter::Power);
        assert_eq!(limiter(&told(599.0, Some(false))), Limiter::None);
        assert_eq!(limiter(&told(590.0, None)), Limiter::Power);
        assert_eq!(limiter(&told(500.0, None)), Limiter::None);
        assert_eq!(limiter(&told(f64::NAN, None)), Limiter::Unknown);
        assert_eq!(limiter(&Reading::default()), Limiter::Unknown);
        let mut enforced = told(400.0, None);
        enforced.enforced = Some(Watts(400.0));
        assert_eq!(limiter(&enforced), Limiter::Enforced);
        enforced.throttle = Some(Throttle::Memory);
        assert_eq!(limiter(&enforced), Limiter::Memory);
    }

    #[test]
    fn a_window_has_the_mean_share_of_those_readings_that_know() {
        let mut window = Window::default();
        assert_eq!(window.power_share(), None);
        window.add(Nanos(0), &Reading::default());
        assert_eq!(window.power_share(), None);
        for limited in [true, true, false, true] {
            window.add(Nanos(0), &told(300.0, Some(limited)));
        }
        assert_eq!(window.power_share(), Some(0.75));
        let counted = Reading {
            power_share: Some(0.25),
            ..told(300.0, Some(true))
        };
        window.add(Nanos(0), &counted);
        assert_eq!(window.power_share(), Some(0.65));
        assert!(!window.throttled());
        let hot = Reading {
            throttle: Some(Throttle::Heat),
            ..told(300.0, Some(true))
        };
        window.add(Nanos(0), &hot);
        assert!(window.throttled());
        assert!((window.power_share().unwrap() - 3.25 / 6.0).abs() < 1e-9);
    }
}
