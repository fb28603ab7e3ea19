//! Takes the [`View`] of the state that targets are computed from.

use litd_units::Watts;

use crate::core::Core;
use crate::devices::Unit;
use crate::devices::range::Range;
use crate::job::Job;
use crate::job::shares::Shares;
use crate::plan::{
    Account, Demand, DeviceView, Doing, FailedView, LeftGoal, LeftView, LetGoView, RangeView, View,
    kept,
};
use crate::store::Store;

impl<S: Store> Core<S> {
    /// The present view.
    pub(crate) fn view(&self) -> View {
        let mut devices = self.device_views();
        let shares = self.shares();
        self.keep_within_shares(&mut devices, &shares);
        View {
            doing: self.doing(),
            set_budget: self.set_budget(),
            managed_budget: self.managed_budget(),
            rises_stopped: self.raises_stopped(),
            undo_waits: !self.waits.is_over(self.now()),
            sockets_lend: self.jobs.values().any(|job| !job.control.cpus().is_empty()),
            demands: self.demands(&devices, &shares),
            devices,
        }
    }

    fn doing(&self) -> Doing {
        match (self.authority.is_leaving(), self.holds()) {
            _ if self.is_looking_round() => Doing::LookingRound,
            (true, true) => Doing::LeavingBehind,
            _ if self.steers() || self.enforces() => Doing::Moving,
            _ => Doing::GivingBack,
        }
    }

    /// The demands of all jobs. None counts once litd leaves.
    fn demands(&self, devices: &[DeviceView], shares: &Shares) -> Vec<Demand> {
        let jobs = self.jobs.values().filter(|_| !self.authority.is_leaving());
        jobs.filter_map(|job| self.demand(job, devices, shares.of(job)))
            .collect()
    }

    fn demand(&self, job: &Job, devices: &[DeviceView], share: Watts) -> Option<Demand> {
        let caps = job.control.ask()?;
        let own = job.devices();
        let Some(instead) = self.instead(job, devices) else {
            let caps = kept(devices, &own, caps, share);
            return Some(Demand::steered(&job.name, own, share, &caps));
        };
        let aim = instead.aim;
        let caps = aim.map(|(devices, caps)| devices.into_iter().zip(caps.to_watts()).collect());
        Some(Demand {
            job: job.name.clone(),
            is_trial: true,
            devices: own,
            share,
            back: instead.back,
            caps: caps.unwrap_or_default(),
        })
    }

    fn device_views(&self) -> Vec<DeviceView> {
        let units = self.devices.iter();
        units
            .map(|(device, unit)| self.device_view(device, unit))
            .collect()
    }

    /// Keeps the power of planned clocks within their job's share of a budget: beyond that it would be taken from
    /// other users' GPUs, and anybody with a GPU may ask for any clock.
    fn keep_within_shares(&self, devices: &mut [DeviceView], shares: &Shares) {
        if self.set_budget().is_none() {
            return;
        }
        for job in self.jobs.values() {
            let (mut floors, mut raised) = (Watts::ZERO, Watts::ZERO);
            for view in job.gpus().filter_map(|device| devices.get(device)) {
                floors += view.limits.floor;
                raised += view.planned_floor - view.limits.floor;
            }
            let left = shares.of(job) - floors;
            if raised <= left || raised <= Watts::ZERO {
                continue;
            }
            let part = (left / raised).clamp(0.0, 1.0);
            for device in job.gpus() {
                if let Some(view) = devices.get_mut(device) {
                    let own = view.limits;
                    let floor = own.floor + (view.planned_floor - own.floor) * part;
                    view.planned_floor = own.floor.max(floor.cut_to(own.resolution));
                }
            }
        }
    }

    pub(crate) fn device_view(&self, device: usize, unit: &Unit) -> DeviceView {
        DeviceView {
            is_gpu: unit.is_gpu(),
            standing: unit.standing.state(),
            is_overwritten: unit.standing.is_overwritten(),
            is_judged: unit.is_judged(),
            is_beyond_judging: self.is_beyond_judging(unit),
            range: match unit.device.range {
                Range::Told(_) => RangeView::Told,
                Range::Asked(_) => RangeView::Asked,
                Range::Untold { most, .. } => RangeView::Untold(most),
            },
            limits: unit.limits(&self.config.caps),
            planned_floor: self.keeps(device, unit).floor,
            back: unit.back(),
            by_hand: unit.by_hand.asked(),
            is_read: unit.was_read() && self.is_fresh(unit),
            is_reset: unit.resets.is_waiting(),
            is_overdue: unit.answering.is_overdue(),
            is_journaled: self.is_journaled(device),
            owes_undo: self.owes_undo(device, unit),
            let_go: self.let_go_view(device, unit),
            failed: self.failed_view(unit),
            account: Account {
                held: self.actuator.held(device),
                most: self.actuator.most_of(device),
                counts: self.actuator.counts(device),
                has_failed: self.actuator.has_failed(device),
                is_writing: self.actuator.is_writing(device),
            },
            counts_with: self.counts_with(device, unit),
            // Without a budget, restoring caps waits for nobody.
            late: self.set_budget().and_then(|_| self.comes_to_hold(unit)),
        }
    }

    /// The most that a device may come to hold by a failed write, or by a predecessor's that its log does not
    /// confirm. A predecessor's last intended write is not counted: after each crash that would be every cap that
    /// it ever wrote.
    pub(crate) fn may_land(&self, unit: &Unit) -> Option<Watts> {
        unit.landing.as_ref()?.most(self.now())
    }

    /// The most that a device may still come to hold without being told to: by a late write, or once litd has closed it.
    pub(crate) fn comes_to_hold(&self, unit: &Unit) -> Option<Watts> {
        let each = [self.may_land(unit), self.once_closed(unit)];
        each.into_iter().flatten().reduce(Watts::max)
    }

    fn failed_view(&self, unit: &Unit) -> Option<FailedView> {
        unit.standing.failed().map(|failed| FailedView {
            held: failed.held,
            was_unread: failed.was_unread,
            obeys_again: self.obeys_again(unit),
        })
    }

    pub(crate) fn let_go_view(&self, device: usize, unit: &Unit) -> Option<LetGoView> {
        let let_go = unit.standing.let_go()?;
        let held = self.actuator.held(device);
        let found = unit.found.zip(held);
        let holds_found = found.is_some_and(|(found, held)| found.is_same_cap(held));
        let is_idle = unit.answering.is_free() && !self.actuator.is_writing(device);
        let is_read = unit.readings.asked() >= let_go.since && self.is_fresh(unit);
        Some(LetGoView {
            given_up: let_go.given_up,
            is_closed: let_go.closed.is_some(),
            is_held: self.is_held_off(unit),
            is_journaled: self.is_journaled(device),
            owes_undo: self.owes_undo(device, unit),
            may_be_locked: self.may_be_locked(unit),
            is_back: holds_found
                && is_idle
                && is_read
                && self.predecessor.has_landed(unit.readings.asked()),
            held,
            left: self.left_view(device, unit),
        })
    }

    pub(crate) fn left_view(&self, device: usize, unit: &Unit) -> LeftView {
        // A released device that is opened once more is read before its cap is written.
        let let_go = unit.standing.let_go();
        let is_read = let_go.is_none_or(|it| unit.readings.asked() >= it.looked);
        let is_known = is_read && self.is_fresh(unit) && !self.actuator.is_writing(device);
        LeftView {
            held: self.actuator.held(device).filter(|_| is_known),
            goal: match unit.back().zip(unit.found) {
                _ if self.holds() => LeftGoal::Target,
                Some((back, found)) if !back.is_same_cap(found) => LeftGoal::Nearest(back),
                _ => LeftGoal::Nothing,
            },
        }
    }

    /// The watts with which a device counts that is not to be moved: the most that it may hold; for a foreign cap,
    /// the limit in force where its driver tells it.
    pub(crate) fn counts_with(&self, device: usize, unit: &Unit) -> Watts {
        let theirs = unit.standing.is_foreign();
        let reading = self.fresh_reading(unit).filter(|_| theirs);
        let enforced = reading.and_then(|reading| reading.enforced);
        let enforced = enforced.filter(|enforced| *enforced > Watts::ZERO);
        enforced.unwrap_or_else(|| self.actuator.most_of(device))
    }
}
