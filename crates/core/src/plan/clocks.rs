//! Planned clocks. A job's GPUs hold what its planned clocks need, as far as the job's own watts go: those that its
//! GPUs have in a plan in which no clocks count, and those that this plan leaves over of the job's share. So the
//! clocks of one job can't take a watt from a GPU of another, whatever that makes room for.

use litd_policies::{Limits, to_the_microwatt};
use litd_units::Watts;

use super::share::project_raised;
use super::view::{DeviceView, JobView};
use super::{DUST, Draft, Why};

impl Draft<'_> {
    /// `over`: the watts that the plan leaves over up to here.
    pub(super) fn keep_clocks(&mut self, over: Watts) {
        let jobs = &self.view.jobs;
        let unused: Vec<Watts> = jobs.iter().map(|job| self.unused(job)).collect();
        let all: Watts = unused.iter().copied().sum();
        // A job's part does not depend on who has planned clocks.
        let part = match all > over {
            true => over / all,
            false => 1.0,
        };
        for (number, (job, unused)) in jobs.iter().zip(unused).enumerate() {
            self.keep_clocks_of(number, job, unused * part);
        }
    }

    /// The watts of a job's share that its GPUs do not hold.
    fn unused(&self, job: &JobView) -> Watts {
        let units = job.gpus.iter().filter_map(|&device| {
            let unit = self.view.devices.get(device)?;
            let target = self.target(device);
            let moves = unit.movable(self.view, target);
            Some(moves.unwrap_or_else(|| unit.fixed_at(target)))
        });
        (job.most - units.sum()).max(Watts::ZERO)
    }

    fn keep_clocks_of(&mut self, number: usize, job: &JobView, unused: Watts) {
        let mut gpus = Vec::new();
        let mut limits = Vec::new();
        let mut raised = Vec::new();
        let mut before = Vec::new();
        let mut is_short = false;
        for &device in &job.gpus {
            let Some((unit, target)) = self.gives_or_takes(device) else {
                continue;
            };
            let own = unit.limits;
            gpus.push(device);
            before.push(target);
            limits.push(Limits {
                ceiling: target.max(unit.planned_floor),
                ..own
            });
            raised.push(unit.planned_floor - own.floor);
            is_short |= target < unit.planned_floor - DUST;
        }
        if !is_short {
            return;
        }
        let budget = before.iter().copied().sum::<Watts>() + unused;
        let Some(caps) = project_raised(&limits, &raised, budget, &before) else {
            return;
        };
        for ((device, before), cap) in gpus.into_iter().zip(before).zip(caps.to_watts()) {
            let Some(aim) = self.aims.get_mut(device).filter(|_| cap != before) else {
                continue;
            };
            aim.target = to_the_microwatt(cap);
            aim.why = match cap > before {
                true => Why::Clocks(number),
                false => aim.why.in_less_room(),
            };
        }
    }

    /// A GPU and its target, where its job's planned clocks may change that. One that may hold more than its target
    /// all the same, or has a cap by hand, keeps it.
    fn gives_or_takes(&self, device: usize) -> Option<(&DeviceView, Watts)> {
        let unit = self.view.devices.get(device)?;
        let target = unit.movable(self.view, self.target(device))?;
        let is_sure = unit.may_move() && unit.late.is_none() && unit.undo.by_hand.is_none();
        (is_sure && target >= unit.limits.floor).then_some((unit, target))
    }
}
