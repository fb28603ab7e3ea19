//! Checks that power follows a cap that was lowered. Freed watts are spent only after measured power has fallen:
//! until then the device counts with what it could hold before, and raises that are to be paid for by it wait, for
//! a while.

use litd_power::ReadBack;
use litd_units::{Nanos, Watts};

use crate::core::{Core, seconds};
use crate::devices::Unit;
use crate::devices::following::Verdict;
use crate::journal::Entry;
use crate::store::Store;

/// The accuracy of a GPU's power sensor. Firmware regulates the mean.
const SENSOR: f64 = 0.02;

/// Where only power can tell, it must be gone except for this share: every step is smaller than a sensor's error,
/// and of many readings some are below the mean.
const CERTAIN: f64 = 0.001;

impl Unit {
    /// Its last reading's power, if that is valid. A CPU that draws 0 W has a counter that stands still.
    pub(super) fn told_power(&self) -> Option<Watts> {
        let power = self.readings.last()?.power?;
        let some = power > Watts::ZERO || self.is_gpu() && power >= Watts::ZERO;
        (power.is_finite() && some).then_some(power)
    }

    /// Whether this power of a GPU proves that the cap is in force.
    fn is_within(&self, power: Watts, cap: Watts) -> bool {
        let margin = match self.may_be_cached() {
            true => CERTAIN,
            false => SENSOR,
        };
        power <= cap * (1.0 + margin)
    }

    fn may_be_cached(&self) -> bool {
        self.device.identity.read_back == ReadBack::MayBeCached
    }

    /// Whether the cap that was read back is not enough proof: the device tells its power, or its driver may
    /// answer from memory.
    fn is_measured(&self) -> bool {
        !self.is_gpu() || self.may_be_cached() || self.following.tells_power()
    }
}

impl<S: Store> Core<S> {
    /// A device was lowered from `most`, whatever the outcome of the write. It counts with `most` until its power
    /// is within its present cap.
    pub(crate) fn doubt(&mut self, device: usize, most: Watts) {
        let held = self.writer.account().held(device);
        let held = held.unwrap_or_else(|| self.writer.account().most_of(device));
        let until = self.now() + seconds(self.config.caps.follow_seconds);
        // Releasing a device restores its cap at once, without waiting for the others' sensors.
        let undoing = self
            .devices
            .iter()
            .any(|(device, unit)| unit.standing.let_go().is_some() && self.may_open(device));
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        if unit.is_gpu() && undoing {
            return;
        }
        // Watts that an override frees are given to nobody.
        if unit.by_hand.asked().is_some() || held >= most || !unit.is_measured() {
            return;
        }
        let socket = (!unit.is_gpu()).then_some(held);
        unit.following.doubts(socket, until);
        self.writer.account_mut().doubt(device, most);
        self.devices.want_read(device);
    }

    /// An earlier litd has lowered this GPU, and may have died before its power followed: unless its reading shows
    /// that, it counts with what it could hold before, and its power has to follow as after any lowering.
    pub(crate) fn await_recovered(&mut self, device: usize) {
        let until = self.now() + seconds(self.config.caps.follow_seconds);
        let Some(unit) = self.devices.get_mut(device).filter(|it| it.is_gpu()) else {
            return;
        };
        let most = self.writer.entry(unit.address()).map(Entry::most);
        let (Some(most), Some(cap)) = (most, unit.readings.cap()) else {
            return;
        };
        let power = unit.told_power();
        unit.following.hears(power);
        let is_within = power.is_some_and(|power| unit.is_within(power, cap));
        if cap >= most || is_within || !unit.is_measured() {
            return;
        }
        unit.following.gpu_holds(cap, Some(until));
        unit.following.doubts(None, until);
        self.writer.account_mut().doubt(device, most);
    }

    /// A reading may show that power is within the cap.
    pub(crate) fn check_doubt(&mut self, device: usize) {
        let Some(held) = self.writer.account().held(device) else {
            return;
        };
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let power = unit.told_power();
        unit.following.hears(power);
        // For a CPU socket see `check_settling`: its power must be gone to the last watt.
        let within = power.is_some_and(|power| unit.is_within(power, held));
        if unit.is_gpu() && within {
            unit.following.believes();
            self.writer.account_mut().believe(device);
        }
    }

    /// A device that is back at its cap found, or above, pays for no raise, so its sensor is not waited for for
    /// ever. A device that a loop or the budget holds below that does pay, and so does one that has failed down
    /// there.
    pub(crate) fn expire_doubts(&mut self) {
        let now = self.now();
        let late = |unit: &Unit| unit.is_gpu() && unit.following.is_late(now);
        let is_low = |device: usize, unit: &Unit| {
            let caps = [
                self.writer.account().target(device),
                self.writer.account().held(device),
            ];
            let lowest = caps.into_iter().flatten().reduce(Watts::min);
            let low = lowest.zip(unit.found).is_some_and(|(it, found)| it < found);
            low && (self.steers() || self.enforces())
        };
        let units = self.devices.iter().filter(|(_, unit)| late(unit));
        let over: Vec<usize> = units
            .filter(|&(device, unit)| !self.is_moved(device) && !is_low(device, unit))
            .map(|(device, _)| device)
            .collect();
        for device in over {
            self.writer.believe(device, &mut self.devices);
        }
    }

    /// Checks that measured power follows a cap that was lowered.
    pub(crate) fn check_settling(&mut self, device: usize) {
        self.check_overdraw(device);
        let now = self.now();
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let caps = &self.config.caps;
        let (is_gpu, power) = (unit.is_gpu(), unit.told_power());
        // A CPU socket's watts are given to GPUs, so its power must be gone to the last watt.
        let margin = if is_gpu { caps.follow_margin } else { 0.0 };
        let seconds = caps.follow_seconds;
        match unit.following.follows(power, margin, is_gpu, now) {
            Some(Verdict::Followed) if !is_gpu => self.writer.believe(device, &mut self.devices),
            Some(Verdict::Late(cap)) => {
                let why = match power {
                    Some(power) => format!(
                        "draws {power:.1} although its cap was lowered to {cap} {seconds:.0} s ago: the cap is not in force"
                    ),
                    None => format!(
                        "reports no power since its cap was lowered to {cap} {seconds:.0} s ago: litd gives the freed \
                         watts to no other device"
                    ),
                };
                self.not_in_force(device, &why);
            }
            Some(Verdict::Followed) | None => {}
        }
    }

    /// The cap that a device reads does not limit it. Until litd steers it again it counts with what it could hold
    /// before, or with its power if that is more, so that the others make room for it.
    fn not_in_force(&mut self, device: usize, why: &str) {
        let counts = self.writer.account().counts(device);
        let Some(unit) = self.devices.get(device) else {
            return;
        };
        let draws = unit.told_power().unwrap_or(Watts::ZERO);
        let backend = unit.backend().to_owned();
        self.out.error("power_not_followed", &backend);
        self.fault_counting(device, Some(counts.max(draws)), why);
    }

    /// A driver that answers from memory does not see a limit that was changed behind its back: only power shows
    /// it, at any time.
    fn check_overdraw(&mut self, device: usize) {
        let now = self.now();
        let patience = seconds(self.config.caps.follow_seconds);
        let margin = self.config.caps.follow_margin;
        let touched = self.writer.is_journaled(device);
        let Some(held) = self.writer.account().held(device) else {
            return;
        };
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let power = unit
            .told_power()
            .filter(|power| *power > held * (1.0 + margin));
        let power = power.filter(|_| unit.may_be_cached() && touched);
        let is_ours = unit.is_ours();
        let is_judged = unit
            .following
            .overdraws(power.is_some(), is_ours, patience, now);
        if let Some(power) = power.filter(|_| is_judged) {
            let text = format!(
                "has drawn {power:.1} for {:.0} s and reads a cap of {held}: another limit is in force than the driver says",
                Nanos(patience.0).as_secs_f64()
            );
            self.not_in_force(device, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::stand::Stand;

    /// Raises wait for a GPU that was lowered. A GPU that is back where it was frees no watts, and no raise is
    /// cancelled when its sensor falls silent then.
    #[test]
    fn nobody_waits_for_a_gpu_that_was_raised_again() {
        let mut node = Stand::new(Config::default(), &[700.0]);
        let has_budget = |node: &mut Stand, watts: f64| {
            node.core.authority.set_budget(Some(Watts(watts)));
            node.pass(2);
            assert_eq!(node.caps(), [watts]);
        };
        node.pass(5);
        node.gpus[0].power = Some(Watts(590.0));
        has_budget(&mut node, 600.0);
        has_budget(&mut node, 500.0);
        node.gpus[0].power = None;
        has_budget(&mut node, 600.0);
        node.pass(node.core.config.caps.follow_seconds as i64 + 5);
        assert_eq!(node.core.unfollowed(), None);
        // A GPU that stays low is waited for for a while only, and that is logged.
        has_budget(&mut node, 500.0);
        node.pass(node.core.config.caps.follow_seconds as i64 + 5);
        assert!(node.core.unfollowed().is_some());
    }
}
