//! Overrides: caps that an administrator sets by hand, through litd, within the same limits and read back in the
//! same way. An override becomes the cap found: steering begins from it and restores it, and litd's end does not
//! undo it. The undo journal need not have it: should litd die in the middle, the device holds the override or
//! what was there before. The journal has to be writable all the same, as for every other change of a cap.

use litd_api::{DeviceState, EventKind, Problem};
use litd_policies::Limits;
use litd_power::DeviceKind;
use litd_units::{Nanos, Watts};

use crate::authority::admin::problem;
use crate::core::Core;
use crate::devices::Unit;
use crate::record::Note;
use crate::store::Store;
use crate::undo::LATE;
use crate::writer::only_restores;

/// The state of the cap that an administrator asked for by hand.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum ByHand {
    /// No override was asked for, or the last one has become the cap found.
    #[default]
    Settled,
    /// The override is to be set to this cap.
    Asked(Watts),
    /// The override was reported as failed. The device may hold it all the same: then the cap found is restored.
    Failed(Failed),
    /// The override was reported as failed, and the device has been seen since to hold the cap found.
    Undone(Failed),
}

/// An override that was reported as failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failed {
    cap: Watts,
    why: String,
    /// When that was reported.
    at: Nanos,
}

impl ByHand {
    /// Whether this is the cap of an override that was reported as failed.
    pub fn has_failed_at(&self, cap: Watts) -> bool {
        matches!(self, Self::Failed(failed) if failed.cap.is_same_cap(cap))
    }

    /// The override that was asked for and has not been reported yet.
    pub fn asked(&self) -> Option<Watts> {
        match self {
            Self::Asked(cap) => Some(*cap),
            Self::Settled | Self::Failed(_) | Self::Undone(_) => None,
        }
    }

    /// Gives up the override that is under way. Returns its cap, if there was one.
    pub fn fail(&mut self, at: Nanos, why: String) -> Option<Watts> {
        let cap = self.asked()?;
        *self = Self::Failed(Failed { cap, why, at });
        Some(cap)
    }

    /// A reading at `read_at` shows the cap found: a failed override need not be undone any longer, unless its
    /// write is done late.
    fn seen_back(&mut self, read_at: Nanos) {
        if let Self::Failed(failed) = self
            && read_at > failed.at
        {
            *self = Self::Undone(failed.clone());
        }
    }

    /// The device holds this cap. Returns whether it is the failed override: then the cap found has to be
    /// restored.
    fn landed(&mut self, cap: Watts, now: Nanos) -> bool {
        let (Self::Failed(failed) | Self::Undone(failed)) = self else {
            return false;
        };
        if !failed.cap.is_same_cap(cap) || now >= failed.at + LATE {
            return false;
        }
        *self = Self::Failed(failed.clone());
        true
    }
}

impl<S: Store> Core<S> {
    /// Sets a device's cap by hand.
    pub(crate) fn ask_cap(
        &mut self,
        uid: u32,
        name: &str,
        asked: Watts,
    ) -> Result<String, Problem> {
        let devices = self.devices.named(Some(name))?;
        let [device] = devices[..] else {
            return Err(problem("name one device"));
        };
        let cap = self.check_by_hand(device, asked)?;
        self.check_disk(device)?;
        let held = self.writer.account().held(device);
        let Some(unit) = self.devices.get_mut(device) else {
            return Err(problem("the device is gone"));
        };
        let name = unit.name.clone();
        // An override equal to the held cap is confirmed at once, also where the device holds it only because an
        // abandoned write was done after all.
        unit.by_hand = ByHand::Asked(cap);
        let is_gpu = unit.is_gpu();
        self.writer.asked_by(device, uid);
        if !is_gpu {
            // The GPUs' budget shrinks at once, so that they are lowered first.
            self.bind();
        }
        Ok(if held.is_some_and(|held| held.is_same_cap(cap)) {
            format!("{name} holds {cap} already")
        } else if cap.is_same_cap(asked) {
            format!("{name} is to hold {cap}")
        } else {
            format!("{name} is to hold {cap}: its driver takes no finer steps")
        })
    }

    /// While the journal can't be written no cap is changed except to restore it, and an override is no exception:
    /// whether the disk still takes an entry of this device is tried, and the entry crossed out again.
    fn check_disk(&mut self, device: usize) -> Result<(), Problem> {
        let found = self.writer.unrecorded([device].into_iter(), &self.devices);
        self.writer.try_journal(&found, &mut self.out);
        if self.writer.journal_trouble().is_none() {
            for it in found {
                self.writer.cross_out(&it.address, &mut self.out);
            }
        }
        match self.writer.journal_trouble() {
            Some(why) => Err(problem(only_restores(why))),
            None => Ok(()),
        }
    }

    /// The cap that the driver can hold, if this override is allowed.
    fn check_by_hand(&self, device: usize, asked: Watts) -> Result<Watts, Problem> {
        let Some(unit) = self.devices.get(device) else {
            return Err(problem("the device is gone"));
        };
        let name = &unit.name;
        let Some(limits) = unit.limits_by_hand(&self.config.caps) else {
            return Err(problem(format!(
                "the driver of {name} reports no usable range of caps: try again once it does"
            )));
        };
        if unit.standing.is_ours() && !unit.is_judged() {
            return Err(problem(format!(
                "the cap of {name} has not been read twice yet, so litd does not know the cap to restore: try again in \
                 some seconds"
            )));
        }
        if !unit.is_ours() || unit.device.range.is_open() {
            return Err(problem(self.not_to_be_set(unit)));
        }
        let asked_for = unit.by_hand.asked().is_some();
        if self.is_moved(device) {
            return Err(problem(format!(
                "litd moves the cap of {name} for a job: `litctl policy observe` first, which restores all caps, as \
                 far as a budget allows"
            )));
        }
        if self.writer.is_journaled(device) || asked_for {
            return Err(problem(match self.set_budget() {
                Some(budget) => format!(
                    "litd moves the cap of {name} to keep the budget of {budget}: raise the budget first \
                     (`litctl budget`)"
                ),
                None if unit.landing.is_some() => format!(
                    "a write to {name} that failed may still take effect: try again in half a minute"
                ),
                None => format!("the cap of {name} is being set: try again in some seconds"),
            }));
        }
        let cap = asked.cut_to(limits.resolution);
        // Written so that a NaN is refused, and also a cap that rounding takes below the floor.
        if !(cap >= limits.floor && asked <= limits.ceiling) {
            return Err(problem(format!(
                "{name}: {asked} is outside this device's {} to {}",
                limits.floor, limits.ceiling
            )));
        }
        self.check_room(device, unit, cap)?;
        Ok(cap)
    }

    /// Why litd may not set a device's cap, and what to do.
    fn not_to_be_set(&self, unit: &Unit) -> String {
        let (name, state) = (&unit.name, unit.standing.told());
        match (state, self.authority.check_mode(&self.config)) {
            (DeviceState::Closed, Err(why)) => format!("{name} is closed, because {why}"),
            (DeviceState::Ours, _) => format!(
                "the driver of {name} is asked for its range of caps: try again in some seconds"
            ),
            _ => format!(
                "{name} is {}, so litd does not set its cap: `litctl resume {name}` first",
                state.name()
            ),
        }
    }

    /// A budget also bounds overrides, as does what the node's budget leaves to the GPUs, even where the sum of
    /// the caps found is less. A CPU socket may get what the GPUs can do without.
    fn check_room(&self, device: usize, unit: &Unit, cap: Watts) -> Result<(), Problem> {
        // Lowering a cap is always allowed, whatever the others hold.
        if self
            .writer
            .account()
            .held(device)
            .is_some_and(|held| cap <= held)
        {
            return Ok(());
        }
        if !unit.is_gpu() {
            self.check_floors(device, unit, cap)?;
            return self.check_gpus_keep_theirs(unit, cap);
        }
        let budgets = [self.set_budget(), self.node.bound()];
        let Some(budget) = budgets.into_iter().flatten().reduce(Watts::min) else {
            return Ok(());
        };
        let budget = budget - self.unmanaged_hold();
        let others = self.devices.gpus().filter(|&(other, _)| other != device);
        let most = |(other, unit): (usize, &Unit)| {
            let asked = unit.by_hand.asked().unwrap_or(Watts::ZERO);
            self.writer.account().most_of(other).max(asked)
        };
        let others: Watts = others.map(most).sum();
        if others + cap > budget {
            return Err(problem(format!(
                "{}: {cap} would be above the budget: the other GPUs hold {others} of {budget}",
                unit.name
            )));
        }
        Ok(())
    }

    /// Whether the GPUs' floors fit into what this limit of a CPU socket leaves of the node's budget.
    fn check_floors(&self, device: usize, unit: &Unit, cap: Watts) -> Result<(), Problem> {
        let Some(left) = self.left_to_gpus() else {
            return Ok(());
        };
        let left = left + self.came_with(device, unit) - cap;
        let floors = self.bounds().floors();
        match left >= floors {
            true => Ok(()),
            false => Err(problem(format!(
                "{}: {cap} would leave {left} of the node's budget to the GPUs, which can't go below {floors}",
                unit.name
            ))),
        }
    }

    /// While GPUs hold more than their budget, with caps that litd does not set, no socket rises above what it was found
    /// with.
    fn check_gpus_keep_theirs(&self, unit: &Unit, cap: Watts) -> Result<(), Problem> {
        let least = |(device, unit): (usize, &Unit)| {
            let counts = self.writer.account().counts(device);
            match unit.is_ours() {
                true => counts.min(unit.floor(&self.config.caps)),
                false => counts,
            }
        };
        let gpus: Watts = self.devices.gpus().map(least).sum();
        let budget = self.gpu_budget();
        match gpus <= budget {
            true => Ok(()),
            false => Err(problem(format!(
                "{} can't be set to {cap}: caps of GPUs that litd may not lower, and the floors of the others, add up \
                 to {gpus:.0}, above the GPUs' budget of {budget:.0}. Lower those caps (`litctl caps`) or raise the \
                 budget first",
                unit.name
            ))),
        }
    }

    /// The state of an override: `None` while it is under way, then the cap held or why it failed.
    #[must_use]
    pub fn outcome_by_hand(&self, name: &str) -> Option<Result<Watts, String>> {
        let devices = self.devices.named(Some(name)).ok()?;
        let unit = self.devices.get(*devices.first()?)?;
        Some(match (&unit.by_hand, unit.found) {
            (ByHand::Asked(_), _) => return None,
            (ByHand::Failed(failed) | ByHand::Undone(failed), _) => Err(failed.why.clone()),
            (ByHand::Settled, Some(found)) => Ok(found),
            (ByHand::Settled, None) => Err("its cap is not known".to_owned()),
        })
    }

    /// The write of an override has ended. If the device does not hold the override, that is reported, and the cap
    /// found is restored.
    pub(crate) fn wrote_by_hand(&mut self, device: usize, held: Result<Watts, String>) {
        let now = self.now();
        let Some(unit) = self.devices.get_mut(device) else {
            return;
        };
        let Some(cap) = unit.by_hand.asked() else {
            return;
        };
        let why = match held {
            Ok(held) if held.is_same_cap(cap) => return,
            Ok(held) => format!("it was set to {cap} and holds {held}"),
            Err(why) => why,
        };
        let text = format!("could not be set by hand, and the cap found is restored: {why}");
        unit.by_hand.fail(now, why);
        let address = unit.address().to_owned();
        self.note(Note::warning(EventKind::Command, text).device(&address));
        // The watts that were meant for a socket return to the GPUs.
        self.bind_anew();
    }

    /// A device that holds the override has it as its cap found from now on; a device that holds the cap found
    /// after a failed override owes nothing any longer.
    pub(crate) fn settle_by_hand(&mut self) {
        let mut settled = Vec::new();
        for (device, unit) in self.devices.iter_mut() {
            let held = self.writer.account().held(device);
            let held = held.filter(|_| !self.writer.account().is_writing(device));
            let holds = |cap: Watts| held.is_some_and(|held| held.is_same_cap(cap));
            if unit.back().is_some_and(holds) {
                unit.by_hand.seen_back(unit.readings.asked());
            }
            let Some(cap) = unit.by_hand.asked().filter(|&cap| holds(cap)) else {
                continue;
            };
            unit.by_hand = ByHand::Settled;
            if !unit
                .found
                .replace(cap)
                .is_some_and(|it| it.is_same_cap(cap))
            {
                settled.push((device, unit.address().to_owned(), cap));
            }
        }
        for (device, address, cap) in settled {
            let text = format!("holds {cap}, set by hand: it stays when litd ends");
            self.note(Note::info(EventKind::Command, text).device(&address));
            self.found_under_late(device, cap);
        }
    }

    /// Whether a cap that has turned up is a failed override which its driver has done late: then the cap found is
    /// restored.
    pub(crate) fn landed_by_hand(&mut self, device: usize, cap: Watts) -> bool {
        let now = self.now();
        let Some(unit) = self.devices.get_mut(device) else {
            return false;
        };
        if !unit.by_hand.landed(cap, now) {
            return false;
        }
        let text = format!(
            "the override {cap}, which litd had reported as failed, took effect late: the cap found is restored"
        );
        let note = Note::warning(EventKind::Command, text).device(unit.address());
        self.note(note);
        true
    }

    /// Overrides under way are reported as failed, because litd ends first.
    pub(crate) fn forget_by_hand(&mut self) {
        for device in 0..self.devices.iter().count() {
            self.fail_by_hand(device, "litd is stopping".to_owned());
        }
    }

    /// An override is reported as failed before it has settled; returns its cap. If its driver may still set it, the
    /// journal has it: whoever comes after a crash restores the cap found.
    pub(crate) fn fail_by_hand(&mut self, device: usize, why: String) -> Option<Watts> {
        let now = self.now();
        let unit = self.devices.get_mut(device)?;
        let cap = unit.by_hand.fail(now, why)?;
        if self.writer.account().is_writing(device) {
            self.writer
                .journal_late(device, cap, &self.devices, &mut self.out);
        }
        Some(cap)
    }

    /// Gives an override up whose client has gone. Returns whether it was under way.
    pub(crate) fn gives_up_by_hand(&mut self, name: &str) -> bool {
        let devices = self.devices.named(Some(name)).unwrap_or_default();
        let Some(&device) = devices.first() else {
            return false;
        };
        let late = "it was not done in time, and is given up".to_owned();
        let Some(cap) = self.fail_by_hand(device, late) else {
            return false;
        };
        let mut text = format!("setting {cap} by hand is given up: its client has gone");
        if self.writer.account().is_writing(device) {
            text.push_str("; if its driver still sets it, the cap found is restored");
        }
        let unit = self.devices.get(device);
        let address = unit.map_or("", Unit::address).to_owned();
        self.note(Note::warning(EventKind::Command, text).device(&address));
        true
    }
}

impl Unit {
    /// The cap of the device while no loop moves it.
    pub(crate) fn base(&self) -> Option<Watts> {
        self.by_hand.asked().or(self.back())
    }

    /// The cap to restore when litd ends: the cap found, or the nearest that the driver still takes.
    pub(crate) fn back(&self) -> Option<Watts> {
        let held = self.readings.cap();
        let nearest = |found| self.device.range.nearest(found, held);
        self.found.map(nearest)
    }

    /// The range of overrides: all that the driver accepts and the configuration allows.
    fn limits_by_hand(&self, caps: &crate::config::Caps) -> Option<Limits> {
        let range = self.device.range.known()?;
        let (floor, ceiling) = match self.device.identity.kind {
            DeviceKind::Gpu => (caps.gpu_floor, caps.gpu_ceiling.unwrap_or(range.highest)),
            DeviceKind::Cpu => (caps.cpu_floor, range.highest),
        };
        let ceiling = ceiling.min(range.highest);
        Some(Limits {
            floor: range.lowest.max(floor).min(ceiling),
            ceiling,
            resolution: range.resolution,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Watts = Watts(500.0);

    fn failed(at: i64) -> ByHand {
        let mut by_hand = ByHand::Asked(CAP);
        assert_eq!(by_hand.fail(Nanos(at), "it hangs".to_owned()), Some(CAP));
        by_hand
    }

    #[test]
    fn only_an_override_that_was_asked_for_can_fail() {
        for mut by_hand in [ByHand::Settled, failed(0), {
            let mut undone = failed(0);
            undone.seen_back(Nanos(1));
            undone
        }] {
            let before = by_hand.clone();
            assert_eq!(by_hand.asked(), None);
            assert_eq!(by_hand.fail(Nanos(9), String::new()), None);
            assert_eq!(by_hand, before);
        }
        assert_eq!(ByHand::Asked(CAP).asked(), Some(CAP));
    }

    #[test]
    fn a_failed_override_need_not_be_undone_once_a_younger_reading_shows_the_cap_found() {
        let mut by_hand = failed(5);
        by_hand.seen_back(Nanos(5));
        assert!(by_hand.has_failed_at(CAP) && !by_hand.has_failed_at(Watts(400.0)));
        by_hand.seen_back(Nanos(6));
        assert!(!by_hand.has_failed_at(CAP));
        for mut other in [ByHand::Settled, ByHand::Asked(CAP)] {
            let before = other.clone();
            other.seen_back(Nanos(9));
            assert_eq!(other, before);
        }
    }

    #[test]
    fn a_failed_override_that_lands_within_half_a_minute_is_to_be_undone() {
        let late = Nanos(LATE.0 - 1);
        for is_seen_back in [false, true] {
            let mut by_hand = failed(0);
            if is_seen_back {
                by_hand.seen_back(Nanos(1));
            }
            assert!(!by_hand.landed(Watts(400.0), late));
            assert!(!by_hand.landed(CAP, LATE));
            assert!(by_hand.landed(CAP, late));
            assert!(by_hand.has_failed_at(CAP));
        }
        for mut other in [ByHand::Settled, ByHand::Asked(CAP)] {
            assert!(!other.landed(CAP, Nanos(0)));
        }
    }
}
