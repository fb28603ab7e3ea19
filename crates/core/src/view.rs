//! Takes the [`View`] of the state that targets are computed from.

use litd_units::Watts;

use crate::core::Core;
use crate::devices::Unit;
use crate::devices::range::Range;
use crate::devices::standing::{Standing, Theirs};
use crate::hooks::party::Party;
use crate::job::Job;
use crate::job::shares::Shares;
use crate::plan::{
    Account, Demand, DeviceView, Doing, FailedView, JobView, KnownView, Owner, RangeView, UndoView,
    View,
};
use crate::store::Store;

impl<S: Store> Core<S> {
    /// The present view.
    pub(crate) fn view(&self) -> View {
        let shares = self.shares();
        View {
            doing: self.doing(),
            set_budget: self.set_budget(),
            managed_budget: self.managed_budget(),
            rises_stopped: self.raises_stopped(),
            undo_waits: !self.targets.wait_is_over(self.now()),
            sockets_lend: self.jobs.values().any(|job| !job.control.cpus().is_empty()),
            devices: self.device_views(),
            demands: self.demands(&shares),
            jobs: self.job_views(&shares),
        }
    }

    fn doing(&self) -> Doing {
        match (
            self.authority.is_leaving(),
            self.authority.holds(&self.config),
        ) {
            _ if self.is_looking_round() => Doing::LookingRound,
            (true, true) => Doing::LeavingBehind,
            _ if self.steers() || self.enforces() => Doing::Moving,
            _ => Doing::GivingBack,
        }
    }

    /// The demands of all jobs. None counts once litd leaves.
    fn demands(&self, shares: &Shares) -> Vec<Demand> {
        let jobs = self.jobs.values().filter(|_| !self.authority.is_leaving());
        jobs.filter_map(|job| self.demand(job, shares.of(job)))
            .collect()
    }

    fn demand(&self, job: &Job, share: Watts) -> Option<Demand> {
        let caps = job.control.ask()?;
        let own = job.devices();
        let Some(instead) = self.instead(job) else {
            return Some(Demand::steered(&job.name, own, share, caps));
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

    /// All jobs. None has clocks once litd leaves.
    fn job_views(&self, shares: &Shares) -> Vec<JobView> {
        let jobs = self.jobs.values().filter(|_| !self.authority.is_leaving());
        let mut owners: Vec<Party> = Vec::new();
        let mut number = |job: &Job| {
            let owner = self.hooks.tenant_of(job).party();
            let known = owners.iter().position(|it| *it == owner);
            known.unwrap_or_else(|| {
                owners.push(owner);
                owners.len() - 1
            })
        };
        let view = |job: &Job| JobView {
            name: job.name.clone(),
            owner: number(job),
            gpus: job.gpus().collect(),
            most: job.control.for_gpus().max(shares.of(job)),
        };
        jobs.map(view).collect()
    }

    fn device_views(&self) -> Vec<DeviceView> {
        let units = self.devices.iter();
        units
            .map(|(device, unit)| self.device_view(device, unit))
            .collect()
    }

    pub(crate) fn device_view(&self, device: usize, unit: &Unit) -> DeviceView {
        DeviceView {
            is_gpu: unit.is_gpu(),
            owner: self.owner(device, unit),
            known: KnownView {
                is_judged: unit.is_judged(),
                is_beyond_judging: unit.is_beyond_judging(),
                range: match unit.device.range {
                    Range::Told(_) => RangeView::Told,
                    Range::Asked(_) => RangeView::Asked,
                    Range::Untold { most, .. } => RangeView::Untold(most),
                },
                is_read: unit.was_read() && self.authority.is_fresh(unit),
                is_reset: unit.resets.is_waiting(),
                is_overdue: unit.answering.is_overdue(),
            },
            limits: unit.limits(&self.config.caps),
            planned_floor: self.keeps(device, unit),
            undo: UndoView {
                back: unit.back(),
                by_hand: unit.by_hand.asked(),
                is_journaled: self.writer.is_journaled(device),
                owes_undo: self.writer.owes_undo(device, unit),
            },
            account: Account {
                held: self.writer.account().held(device),
                most: self.writer.account().most_of(device),
                counts: self.writer.account().counts(device),
                has_failed: self.writer.account().has_failed(device),
                is_writing: self.writer.account().is_writing(device),
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

    /// What a GPU comes to hold once litd has closed it, where its driver forgets the cap and litd is to leave the safe
    /// budget behind: whatever litd leaves it with. The others make room for that.
    fn once_closed(&self, unit: &Unit) -> Option<Watts> {
        let range = unit.device.range.last();
        let range = range.filter(|_| self.authority.holds(&self.config) && unit.is_forgetful())?;
        Some(range.default)
    }

    fn owner(&self, device: usize, unit: &Unit) -> Owner {
        match unit.standing {
            Standing::Ours => Owner::Ours,
            Standing::Foreign(Theirs::Kept) => Owner::Foreign,
            Standing::Foreign(Theirs::Overwritten) => Owner::Overwritten,
            Standing::Faulty(failed) => Owner::Faulty(FailedView {
                held: failed.held,
                was_unread: failed.was_unread,
                obeys_again: self.obeys_again(unit),
            }),
            Standing::Released(let_go) => Owner::Released(self.let_go_view(device, unit, let_go)),
        }
    }
}
