//! The plan: the target of every device, computed from a plain [`View`] by [`plan`]. The function is pure and
//! total, so that it can be tried on any possible view.
//!
//! - [`view`]: the input;
//! - [`share`]: caps nearest to the wanted ones, within limits and a budget;
//! - [`room`]: where devices hold, or may hold, more than was planned for, the others make room;
//! - [`clocks`]: what a job's planned clocks need, out of what the job has by then;
//! - [`targets`]: the last plan, and how far devices that rise to it may have come.

mod clocks;
mod room;
mod share;
mod targets;
mod view;
mod waits;
mod why;

use litd_policies::{Actuator, Limits, Rises, to_the_microwatt};
use litd_units::Watts;

pub(crate) use share::project;
pub(crate) use targets::Targets;
pub(crate) use view::{
    Account, Demand, DeviceView, Doing, FailedView, JobView, KnownView, LeftGoal, LeftView,
    LetGoView, Owner, RangeView, UndoView, View, socket_part,
};
pub(crate) use why::Why;

/// Less than any driver's unit.
pub(crate) const DUST: Watts = Watts(0.4e-6);

/// The targets of all devices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// The budget of all devices together, CPU sockets included.
    pub budget: Watts,
    /// A target for each device, in the node's order.
    pub aims: Vec<Aim>,
}

/// A device's target and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Aim {
    /// The target; `None`: the device is left alone.
    pub target: Option<Watts>,
    /// When it may rise to that.
    pub rises: Rises,
    pub why: Why,
}

impl Aim {
    fn left(why: Why) -> Self {
        Self {
            why,
            ..Self::default()
        }
    }

    /// A cap found that is restored, or an override: neither waits for writes that may never be done.
    fn back(cap: Watts, why: Why) -> Self {
        Self {
            target: to_the_microwatt(cap),
            rises: Rises::InBudget,
            why,
        }
    }

    /// A cap of a loop, or what a budget leaves.
    fn moved(cap: Watts, why: Why) -> Self {
        Self {
            target: to_the_microwatt(cap),
            rises: Rises::Surely,
            why,
        }
    }
}

/// Works out the target of every device.
pub(crate) fn plan(view: &View) -> Plan {
    let mut draft = Draft {
        view,
        budget: view.whole_budget(),
        aims: vec![Aim::default(); view.devices.len()],
    };
    match view.doing {
        // The others' caps are read in a moment: no cap moves because they are unknown.
        Doing::LookingRound => {}
        Doing::GivingBack => draft.give_all_back(),
        Doing::Moving | Doing::LeavingBehind => draft.move_caps(),
    }
    Plan {
        budget: draft.budget,
        aims: draft.aims,
    }
}

impl Plan {
    /// Hands the targets to the account of writes.
    pub fn aim(&self, ledger: &mut Actuator) {
        ledger.set_budget(self.budget);
        for (device, aim) in self.aims.iter().enumerate() {
            match aim.target {
                Some(cap) => ledger.aim(device, cap, aim.rises),
                None => ledger.leave(device),
            }
        }
    }
}

impl View {
    fn gpus(&self) -> impl Iterator<Item = (usize, &DeviceView)> {
        let all = self.devices.iter().enumerate();
        all.filter(|(_, unit)| unit.is_gpu)
    }

    fn cpus(&self) -> impl Iterator<Item = &DeviceView> {
        self.devices.iter().filter(|unit| !unit.is_gpu)
    }

    fn leaves(&self) -> bool {
        self.doing == Doing::LeavingBehind
    }

    /// The budget of all devices together: the GPUs' budget and the CPU sockets' limits found. Once litd no longer
    /// steers, restoring caps is always allowed, whatever foreign caps there are.
    fn whole_budget(&self) -> Watts {
        let cpus: Watts = self.cpus().map(DeviceView::part).sum();
        let budget = self.managed_budget + cpus;
        match self.doing {
            Doing::Moving | Doing::LeavingBehind => budget,
            Doing::LookingRound | Doing::GivingBack => {
                let found = self.devices.iter().map(DeviceView::without_us);
                budget.max(found.sum())
            }
        }
    }
}

/// A plan that is being made.
struct Draft<'v> {
    view: &'v View,
    budget: Watts,
    aims: Vec<Aim>,
}

impl<'v> Draft<'v> {
    fn target(&self, device: usize) -> Option<Watts> {
        self.aims.get(device)?.target
    }

    fn aim(&mut self, device: usize, aim: Aim) {
        if let Some(slot) = self.aims.get_mut(device) {
            *slot = aim;
        }
    }

    fn leave(&mut self, device: usize, why: Why) {
        self.aim(device, Aim::left(why));
    }

    fn devices(&self) -> impl Iterator<Item = (usize, &'v DeviceView)> + use<'v> {
        self.view.devices.iter().enumerate()
    }

    /// Restores every device that litd may have changed, and touches no other. At the end of the daemon only
    /// devices that were read since are restored: the cap of another may be foreign by now.
    fn give_all_back(&mut self) {
        for (device, unit) in self.devices() {
            let is_theirs = unit.is_theirs();
            let is_owed = unit.undo.is_journaled && unit.may_open(None)
                || unit.undo.by_hand.is_some()
                || unit.undo.owes_undo;
            let aim = match unit.undo.base() {
                _ if is_theirs => Aim::left(Why::Theirs),
                _ if !unit.known.is_read => Aim::left(Why::Unread),
                Some(base) if is_owed => self.undone(unit, base, Rises::Regardless),
                _ => Aim::left(Why::NothingOwed),
            };
            self.aim(device, aim);
        }
    }

    /// A cap that is restored. It rises in its turn at first; once others have not been lowered in time for that, as
    /// `rises` says. An override waits for room.
    fn undone(&self, unit: &DeviceView, back: Watts, rises: Rises) -> Aim {
        let in_turn = self.view.undo_waits || unit.undo.by_hand.is_some();
        let aim = Aim::back(back, unit.undo.why_base());
        Aim {
            rises: if in_turn { aim.rises } else { rises },
            ..aim
        }
    }

    fn move_caps(&mut self) {
        let steered = self.follow_demands();
        self.aim_idle(&steered);
        self.leave_others();
        self.aim_failed();
        self.leave_without_room();
        let over = self.make_room();
        self.keep_clocks(over);
        self.raise_no_closed();
        self.raise_in_full();
        self.hold_while_stopped(&steered);
        self.free_sockets();
    }

    /// Sets targets by the jobs' demands. Returns which devices belong to some job.
    fn follow_demands(&mut self) -> Vec<bool> {
        let mut steered = vec![false; self.view.devices.len()];
        for (job, demand) in self.view.demands.iter().enumerate() {
            let why = match demand.is_trial {
                true => Why::Trial(job),
                false => Why::Loop(job),
            };
            for &(device, cap) in &demand.back {
                self.aim(device, Aim::back(cap, why));
            }
            for &(device, cap) in &demand.caps {
                self.aim(device, Aim::moved(cap, why));
            }
            for &device in &demand.devices {
                if let Some(steered) = steered.get_mut(device) {
                    *steered = true;
                }
            }
        }
        steered
    }

    /// Devices without a loop hold their caps found, as far as a budget leaves room for that.
    fn aim_idle(&mut self, steered: &[bool]) {
        // Restoring waits for nobody, and without a budget it exceeds nothing.
        let rest = match self.view.leaves() || self.view.set_budget.is_none() {
            true => Aim::back,
            false => Aim::moved,
        };
        let mut gpus = Vec::new();
        let mut limits = Vec::new();
        let mut found = Vec::new();
        let mut lowest = Watts::ZERO;
        for (device, unit) in self.devices() {
            let (false, Some(cap)) = (steered[device], unit.undo.base()) else {
                continue;
            };
            if !unit.is_gpu {
                self.aim(device, rest(cap, unit.undo.why_base()));
                continue;
            }
            if cap <= unit.limits.floor {
                // The cap found is at the floor or below: there is nothing to take.
                self.aim(device, rest(cap, unit.undo.why_base()));
                lowest += unit.at_floor(cap);
                continue;
            }
            gpus.push(device);
            found.push(cap);
            // No GPU holds more than the cap to restore.
            limits.push(Limits {
                ceiling: unit.limits.ceiling.min(cap),
                ..unit.limits
            });
        }
        let whole: Watts = found.iter().copied().sum();
        let shares: Watts = self.view.demands.iter().map(|it| it.share).sum();
        let left = match self.view.set_budget {
            Some(_) => self.view.managed_budget - shares - lowest,
            None => whole,
        };
        if whole > left + DUST {
            let caps = project(&limits, left, &found);
            let Some(caps) = caps else { return };
            found = caps.to_watts();
        }
        for (&device, &cap) in gpus.iter().zip(&found) {
            let unit = self.view.devices.get(device);
            let base =
                unit.filter(|unit| unit.undo.base().is_some_and(|base| base.is_same_cap(cap)));
            let why = base.map_or(Why::Share, |unit| unit.undo.why_base());
            self.aim(device, rest(cap, why));
        }
    }

    /// Leaves devices with foreign caps alone. Failed devices, and those that an administrator took back, get
    /// their caps found.
    fn leave_others(&mut self) {
        for (device, unit) in self.devices() {
            let is_asked = unit.known.range == RangeView::Asked || unit.known.is_reset;
            match unit.undo.back {
                // The cap may have become foreign since litd began to stop.
                _ if is_asked || !unit.known.is_read => self.leave(device, Why::Unread),
                // Within the safe budget.
                Some(_) if unit.is_held_off() => {}
                Some(_) if unit.is_ours() => {}
                _ if unit.is_theirs() => self.leave(device, Why::Theirs),
                // What a budget would leave to it is no target of a device that may not be moved.
                Some(back) if unit.may_open(Some(back)) && unit.undo.is_owed() => {
                    let is_free = self.view.set_budget.is_none() && unit.let_go().is_some();
                    let rises = if is_free {
                        Rises::Freely
                    } else {
                        Rises::InBudget
                    };
                    self.aim(device, self.undone(unit, back, rises));
                }
                _ => self.leave(device, Why::NothingOwed),
            }
        }
    }

    /// The target of a failed GPU that obeys again: the cap to restore, or the highest cap that it has held since
    /// it failed if that is less. Within that it is lowered to what the others leave it, and never raised: see
    /// `raise_in_full`. A target that followed its cap down would lower it over and over, by less each time.
    fn aim_failed(&mut self) {
        for (device, unit) in self.devices() {
            let held = unit.failed().and_then(|failed| failed.held);
            let held = held.filter(|_| unit.is_enforced_on(self.view));
            if let Some((held, target)) = held.zip(self.target(device)) {
                self.aim(device, Aim::back(target.min(held), Why::HasFailed));
            }
        }
    }

    /// Three kinds of GPU get their caps found only where a budget leaves room for that, with all other GPUs at
    /// their floors or at their caps found if lower: released GPUs; those on which a late write has replaced a
    /// foreign cap; and those that can't be judged, when litd is to leave the safe budget behind.
    fn leave_without_room(&mut self) {
        if self.view.set_budget.is_none() {
            return;
        }
        let rises = |&(device, unit): &(usize, &DeviceView)| {
            let back = unit.is_given_back() && !unit.is_held_off();
            let unjudged = self.view.leaves() && matches!(unit.known.range, RangeView::Untold(_));
            (back || unjudged) && unit.would_rise(self.target(device))
        };
        let rising: Vec<(usize, &DeviceView)> = self.view.gpus().filter(rises).collect();
        for (device, unit) in rising {
            let least = self.view.gpus().map(|(other, unit)| {
                let target = unit.movable(self.view, self.target(other));
                let target = target.filter(|_| other != device);
                let floor = unit.limits.floor;
                let floor = unit.undo.back.map_or(floor, |back| back.min(floor));
                let fixed = || unit.fixed_at(self.target(other));
                target.map_or_else(fixed, |target| target.min(floor))
            });
            if least.sum::<Watts>() > self.view.managed_budget + DUST {
                self.stay(device, unit);
            }
        }
    }

    /// A device that is closed because litd is off is not read: it may have a foreign cap by now, and is not
    /// raised any more. Decided last: were it counted with less before, the others would take the rest, and it
    /// would be lowered again in turn.
    fn raise_no_closed(&mut self) {
        for (device, unit) in self.devices() {
            let is_closed = unit.let_go().is_some_and(|it| it.is_closed && it.is_held);
            if let Some(held) = unit.account.held.filter(|_| is_closed)
                && self.target(device) > Some(held)
            {
                self.aim(device, Aim::back(held, Why::LeftBehind));
            }
        }
    }

    /// An override for which the others leave no room is not set in part: nobody asked for that. It is reported as
    /// failed, unless there is room in time. A failed GPU gets nothing while a budget is kept with it.
    fn raise_in_full(&mut self) {
        for (device, unit) in self.devices() {
            let target = self.target(device);
            let asked = target.zip(unit.undo.by_hand);
            let is_less = asked.is_some_and(|(target, asked)| target < asked);
            if unit.would_rise(target) && (is_less || unit.is_kept_down(self.view)) {
                self.stay(device, unit);
            }
        }
    }

    /// A device stays at its present cap. When litd is to leave the safe budget behind, that becomes its target.
    fn stay(&mut self, device: usize, unit: &DeviceView) {
        match unit.account.held.filter(|_| self.view.leaves()) {
            Some(held) => self.aim(device, Aim::back(held, Why::LeftBehind)),
            None => self.leave(device, Why::NoRoom),
        }
    }

    /// CPU sockets that lend nothing get what they were found with where all GPUs are at their floors but for those
    /// with foreign caps: what these hold beyond the GPUs' budget is no affair of the sockets'. A GPU of litd's above
    /// its floor may hold watts that were lent, or still draw them.
    fn free_sockets(&mut self) {
        let is_at_floor = |unit: &DeviceView| {
            let known = unit.is_ours() && unit.known.is_read;
            known && unit.account.counts <= unit.limits.floor + DUST
        };
        let may_hold_lent = |unit: &DeviceView| !unit.is_theirs() && !is_at_floor(unit);
        if self.view.sockets_lend || self.view.gpus().any(|(_, unit)| may_hold_lent(unit)) {
            return;
        }
        for (device, unit) in self.devices().filter(|(_, unit)| !unit.is_gpu) {
            let own = unit.undo.back.unwrap_or_default();
            if let Some(aim) = self.aims.get_mut(device)
                && aim.target.is_some_and(|target| target <= own)
            {
                aim.rises = Rises::Freely;
            }
        }
    }

    /// While the node is short of power, a device can't be judged, or foreign changes occur, caps stay or go down.
    /// A cap is still restored where no job is steered: without litd it would be there, too. Nor do caps that litd
    /// leaves behind wait: without litd they would be higher.
    fn hold_while_stopped(&mut self, steered: &[bool]) {
        if self.view.leaves() || self.view.rises_stopped.is_none() {
            return;
        }
        for (device, unit) in self.devices() {
            let target = self.target(device);
            let Some(cap) = target.filter(|_| unit.would_rise(target)) else {
                continue;
            };
            let is_back = unit.undo.base().is_some_and(|base| base.is_same_cap(cap));
            let is_theirs = !unit.is_ours() || unit.undo.is_by_hand(cap);
            if !is_theirs && (steered[device] || !is_back) {
                self.leave(device, Why::RisesStopped);
            }
        }
    }
}

#[cfg(test)]
mod tests;
