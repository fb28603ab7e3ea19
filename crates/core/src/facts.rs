//! What follows from the components' state at a moment, read and never changed: the policy and the budget in force, what
//! devices hold, came with and may come to hold, and whether they may be opened. Decisions and status go by the same
//! facts.

use litd_api::Mode;
use litd_policies::Policy;
use litd_power::Reading;
use litd_units::{Nanos, Watts};

use crate::core::{Core, seconds};
use crate::devices::Unit;
use crate::devices::landing::Landing;
use crate::event::DeviceId;
use crate::job::Job;
use crate::plan::{LeftGoal, LeftView, LetGoView};
use crate::rounds::TELEMETRY;
use crate::store::Store;
use crate::undo::release::LetGo;

/// How old a reading may be, beyond the time that drivers may take: one round, and some more.
const STALE: Nanos = Nanos(2_000_000_000);

impl<S: Store> Core<S> {
    /// The policy in force.
    pub(crate) fn policy(&self) -> Policy {
        match self.authority.mode(&self.config) {
            // Until an administrator resumes it.
            Mode::Steer if self.has_yielded() => Policy::Observe,
            Mode::Steer => self.authority.policy(&self.config),
            Mode::Off | Mode::Observe | Mode::Canary => Policy::Observe,
        }
    }

    /// A device's last reading, unless it is too old to say anything about now.
    pub(crate) fn fresh_reading(&self, unit: &Unit) -> Option<Reading> {
        let patience = seconds(self.config.caps.answer_seconds) + STALE;
        unit.readings.fresh(patience, self.now())
    }

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

    /// Whether the node is only observed because others set caps here.
    #[must_use]
    pub fn has_yielded(&self) -> bool {
        self.condition.rivals.why_yielded().is_some()
    }

    /// The caps that loops ask for, job by job. They are an input of the plan: tests compare with them what devices
    /// come to hold.
    #[must_use]
    pub fn asked_by_loops(&self) -> Vec<Vec<(DeviceId, Watts)>> {
        let asked = |job: &Job| {
            let asked = job.control.ask()?.to_watts();
            let devices = job.devices().into_iter().map(DeviceId);
            Some(devices.zip(asked).collect())
        };
        self.jobs.values().filter_map(asked).collect()
    }

    /// The policy in force for a job.
    pub(crate) fn policy_of(&self, job: &Job) -> Policy {
        job.permitted(self.policy())
    }

    /// Whether any job's loop moves a device's cap now.
    pub(crate) fn is_moved(&self, device: usize) -> bool {
        let ours = self.devices.get(device).is_some_and(Unit::is_ours);
        ours && self.jobs.values().any(|job| job.moves(device))
    }

    /// The budget that was set for all GPUs together: the least of the administrator's and the lease's, or else
    /// the safe budget; or the GPUs' part of the node's budget if that is less. Once litd leaves, only the budget
    /// to be left behind counts.
    pub(crate) fn set_budget(&self) -> Option<Watts> {
        if self.authority.is_leaving() {
            return self.config.caps.budget_on_exit();
        }
        let set = self.authority.budget(&self.config);
        let bound = self.node.bound();
        let less = |bound: &Watts| *bound < set.unwrap_or_else(|| self.come_to_hold());
        bound.filter(less).or(set)
    }

    /// The sum of the caps that all GPUs may come to hold where no budget was set. Each GPU counts with the most
    /// of: its cap found; after a reset its default, if it is no longer read; a foreign cap; the watts that it
    /// counts with because its cap is not in force. GPUs that came up after the start count, too.
    pub(crate) fn come_to_hold(&self) -> Watts {
        let each = self.devices.gpus().map(|(device, unit)| {
            let is_reset = unit.standing.let_go().is_some() || self.may_be_reset(unit);
            let default = unit.device.range.last().filter(|_| is_reset);
            let theirs = unit.standing.is_foreign();
            let more = [
                default.map(|range| range.default),
                theirs.then(|| self.counts_with(device, unit)),
                unit.standing.not_in_force(),
            ];
            let found = self.found_on(device, unit);
            more.into_iter().flatten().fold(found, Watts::max)
        });
        each.sum::<Watts>() + self.devices.each_unmanaged().sum()
    }

    /// The sum of all GPUs' caps found.
    pub(crate) fn found_on_gpus(&self) -> Watts {
        let gpus = self.devices.gpus();
        gpus.map(|(device, unit)| self.found_on(device, unit)).sum()
    }

    /// A GPU's cap found, as far as it counts in that sum. A GPU that can't be judged and that litd has not moved
    /// takes nothing from the others, whatever it holds. A GPU that litd has moved does, until its cap is restored
    /// and its power has followed.
    pub(crate) fn found_on(&self, device: usize, unit: &Unit) -> Watts {
        let came = self.came_with(device, unit);
        let unjudged = unit.device.range.unjudged();
        let moved = self.writer.is_journaled(device) || self.writer.account().is_doubted(device);
        match unjudged.filter(|_| !moved) {
            Some(most) => came.max(most),
            None => came,
        }
    }

    /// The cap found on a device; where that could not be read, the most that it may hold: it is not touched, and
    /// the others need not make room for it.
    pub(crate) fn came_with(&self, device: usize, unit: &Unit) -> Watts {
        unit.base()
            .unwrap_or_else(|| self.writer.account().most_of(device))
    }

    /// The most that all GPU caps may add up to: the budget set, or else the sum of the caps found.
    pub(crate) fn gpu_budget(&self) -> Watts {
        self.set_budget().unwrap_or_else(|| self.found_on_gpus())
    }

    /// The watts that unmanaged GPUs may hold of a budget.
    pub(crate) fn unmanaged_hold(&self) -> Watts {
        match self.set_budget() {
            Some(_) => self.devices.most_of_any_gpu() * self.devices.unmanaged().len() as f64,
            None => Watts::ZERO,
        }
    }

    /// The part of the GPUs' budget that is left to managed GPUs.
    pub(crate) fn managed_budget(&self) -> Watts {
        (self.gpu_budget() - self.unmanaged_hold()).max(Watts::ZERO)
    }

    /// The watts that CPU sockets lend: how far they are below their limits found, where a job counts on that.
    pub(crate) fn lent(&self) -> Watts {
        if self.jobs.values().all(|job| job.control.cpus().is_empty()) {
            return Watts::ZERO;
        }
        let lent = |(device, unit)| {
            let held = self.writer.account().held(device)?;
            Some(self.came_with(device, unit) - held)
        };
        let lent: Watts = self.devices.cpus().filter_map(lent).sum();
        lent.max(Watts::ZERO)
    }

    /// The watts with which a device counts that is not to be moved: the most that it may hold; for a foreign cap,
    /// the limit in force where its driver tells it.
    pub(crate) fn counts_with(&self, device: usize, unit: &Unit) -> Watts {
        let theirs = unit.standing.is_foreign();
        let reading = self.fresh_reading(unit).filter(|_| theirs);
        let enforced = reading.and_then(|reading| reading.enforced);
        let enforced = enforced.filter(|enforced| *enforced > Watts::ZERO);
        enforced.unwrap_or_else(|| self.writer.account().most_of(device))
    }

    /// Whether a failed GPU may have been reset since its last reading, or may fall silent and be reset later.
    /// When litd leaves, only readings since it began to stop count.
    pub(crate) fn may_be_reset(&self, unit: &Unit) -> bool {
        let failed = unit.is_gpu() && unit.standing.is_faulty();
        failed && (self.fresh_reading(unit).is_none() || self.is_distrusted(unit))
    }

    /// Whether a failed GPU was not read for long, and has not answered well for long enough since.
    pub(crate) fn is_distrusted(&self, unit: &Unit) -> bool {
        !self.authority.is_leaving()
            && unit
                .standing
                .failed()
                .is_some_and(|failed| failed.was_unread)
    }

    /// Whether a failed GPU answers again and takes writes, as far as known. A GPU that does not answer now, or
    /// was not read of late, may hold any cap.
    pub(crate) fn obeys_again(&self, unit: &Unit) -> bool {
        let is_read = self.fresh_reading(unit).is_some() && self.authority.is_fresh(unit);
        let answers = unit.answering.failures() == 0
            && !unit.answering.is_overdue()
            && unit.is_judged()
            && is_read;
        let failed = unit.standing.failed();
        answers && failed.is_some_and(|failed| failed.not_in_force.is_none())
    }

    /// Whether litd has just started, or has just begun to stop and has to share out the safe budget, and devices
    /// that answer are still being read.
    pub(crate) fn is_looking_round(&self) -> bool {
        let holds = self
            .authority
            .stopping()
            .since()
            .filter(|_| self.authority.holds(&self.config));
        let since = holds.unwrap_or(self.rounds.started());
        let unread = |(device, unit): (usize, &Unit)| {
            let told = unit.device.range.known().is_some();
            let read = unit.was_read() && (holds.is_none() || self.authority.is_fresh(unit));
            told && !read && unit.answering.failures() == 0 && self.may_open(device)
        };
        self.now() < since + TELEMETRY && self.devices.iter().any(unread)
    }

    /// Whether a device may be opened: a released one only to restore its cap.
    pub(crate) fn may_open(&self, device: usize) -> bool {
        let Some(unit) = self.devices.get(device) else {
            return false;
        };
        let target = self.writer.account().target(device);
        let let_go = unit.standing.let_go();
        let_go.is_none_or(|it| self.let_go_view(device, unit, it).may_open(target))
    }

    /// A released device, as the plan sees it.
    pub(crate) fn let_go_view(&self, device: usize, unit: &Unit, let_go: LetGo) -> LetGoView {
        let held = self.writer.account().held(device);
        let found = unit.found.zip(held);
        let holds_found = found.is_some_and(|(found, held)| found.is_same_cap(held));
        let is_idle = unit.answering.is_free() && !self.writer.account().is_writing(device);
        let is_read = unit.readings.asked() >= let_go.since && self.authority.is_fresh(unit);
        LetGoView {
            given_up: let_go.given_up,
            is_closed: let_go.closed.is_some(),
            is_held: self.authority.is_held_off(unit, &self.config),
            is_journaled: self.writer.is_journaled(device),
            owes_undo: self.writer.owes_undo(device, unit),
            may_be_locked: self.writer.may_be_locked(unit),
            is_back: holds_found
                && is_idle
                && is_read
                && self.predecessor.has_landed(unit.readings.asked()),
            held,
            left: self.left_view(device, unit),
        }
    }

    pub(crate) fn left_view(&self, device: usize, unit: &Unit) -> LeftView {
        // A released device that is opened once more is read before its cap is written.
        let let_go = unit.standing.let_go();
        let is_read = let_go.is_none_or(|it| unit.readings.asked() >= it.looked);
        let is_known =
            is_read && self.authority.is_fresh(unit) && !self.writer.account().is_writing(device);
        LeftView {
            held: self.writer.account().held(device).filter(|_| is_known),
            goal: match unit.back().zip(unit.found) {
                _ if self.authority.holds(&self.config) => LeftGoal::Target,
                Some((back, found)) if !back.is_same_cap(found) => LeftGoal::Nearest(back),
                _ => LeftGoal::Nothing,
            },
        }
    }

    /// Whether the cap of a reading asked for at that time is final: no write of a predecessor's, and no failed
    /// write, can still be done.
    pub(crate) fn has_landed(&self, unit: &Unit, asked: Nanos) -> bool {
        let predecessors = self.predecessor.has_landed(asked);
        let stopping = self.authority.stopping().since();
        let late = unit.landing.as_ref();
        predecessors && !late.is_some_and(|it| it.may_follow(asked, stopping))
    }

    /// Whether a late write may still replace a foreign cap, so that the device's entry stays in the journal. Once litd
    /// stops, nobody waits for what a predecessor's journal merely has as its last write: the entry would stay for ever,
    /// and the next foreign cap might be taken for that write.
    pub(crate) fn may_be_overwritten(&self, unit: &Unit) -> bool {
        let stopping = self.authority.stopping().since();
        let follows = |late: &Landing| late.may_follow(self.now(), stopping);
        unit.landing
            .as_ref()
            .is_some_and(|late| stopping.is_none() || follows(late))
    }

    /// Whether a device is known to hold its cap found, with no write under way.
    pub(crate) fn is_back(&self, device: usize, unit: &Unit) -> bool {
        self.reads_back(device, unit) && self.has_landed(unit, unit.readings.asked())
    }

    /// Whether a device holds its cap found, by a reading since litd began to stop, and its entry stays in the
    /// journal only because a late write may follow: a predecessor's, or one of this litd's, which is waited for
    /// as long as a stop may take.
    fn is_back_but_for_late(&self, device: usize, unit: &Unit) -> bool {
        let stopping = self.authority.stopping();
        let times = stopping.since().zip(stopping.until());
        let Some(((since, until), landing)) = times.zip(unit.landing.as_ref()) else {
            return false;
        };
        let is_left = landing.is_left_behind(self.now() >= until);
        let landed = self.predecessor.has_landed(unit.readings.asked());
        is_left && unit.readings.asked() >= since && landed && self.reads_back(device, unit)
    }

    /// Whether a released device holds its cap found, by a reading since the release, and by another since litd
    /// began to stop; or a device that litd leaves although a late write may follow. Nobody waits for that: its
    /// entry stays in the journal, so that a late cap is undone at a stop, when litd takes the device again, or at
    /// the next start.
    pub(crate) fn is_back_for_now(&self, device: usize, unit: &Unit) -> bool {
        let target = self.writer.account().target(device);
        match unit.standing.let_go() {
            Some(it) => self.let_go_view(device, unit, it).is_back_for_now(target),
            None => self.is_back_but_for_late(device, unit),
        }
    }

    fn reads_back(&self, device: usize, unit: &Unit) -> bool {
        let settled = self.writer.account().is_settled(device) && unit.answering.is_free();
        let held = unit.found.zip(self.writer.account().held(device));
        settled && held.is_some_and(|(found, held)| found.is_same_cap(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand::Stand;
    use crate::{Config, Event};

    #[test]
    fn gpus_that_litd_does_not_manage_take_what_they_may_hold_of_a_budget_and_of_nothing_else() {
        let mut node = Stand::new(Config::default(), &[600.0, 600.0]);
        node.tell(Event::Unmanaged(["0000:f1:00.0".to_owned()].into()));
        node.pass(3);
        assert_eq!(node.core.managed_budget(), Watts(1200.0));
        node.core.authority.set_budget(Some(Watts(1300.0)));
        node.pass(2);
        assert_eq!(node.core.gpu_budget(), Watts(1300.0));
        assert_eq!(node.core.managed_budget(), Watts(600.0));
        assert_eq!(node.caps(), [300.0, 300.0]);
    }

    #[test]
    fn a_budget_is_enforced_in_every_mode_but_off() {
        let mut config = Config::default();
        config.caps.budget = Some(Watts(800.0));
        let enforces = |mode: Mode| {
            let config = Config {
                mode,
                ..config.clone()
            };
            let mut node = Stand::new(config, &[600.0, 600.0]);
            node.pass(3);
            (node.core.enforces(), node.caps()[0])
        };
        assert_eq!(enforces(Mode::Observe), (true, 400.0));
        assert_eq!(enforces(Mode::Steer), (true, 400.0));
        assert_eq!(enforces(Mode::Off), (false, 600.0));
    }
}
