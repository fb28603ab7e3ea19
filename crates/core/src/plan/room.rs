//! Where some devices hold, or may hold, more than was planned for, the others make room.

use litd_policies::{CapVector, to_the_microwatt};
use litd_units::Watts;

use super::share::project;
use super::view::DeviceView;
use super::{Aim, DUST, Draft, Why};

impl Draft<'_> {
    /// GPUs make room for GPUs, and CPU sockets only where their watts are lent anyway. Returns the watts that are left
    /// over.
    pub(super) fn make_room(&mut self) -> Watts {
        if self.view.set_budget.is_none() {
            return self.make_room_within_jobs();
        }
        let lands = self.view.devices.iter().any(|unit| unit.late.is_some());
        if self.view.leaves() {
            // Caps that litd leaves behind lend no watts, and CPU sockets get theirs back, whatever GPUs hold.
            self.squeeze_gpus(|_| true);
            if lands {
                self.squeeze_gpus(|unit| unit.late.is_none());
            }
            self.budget = self.left_behind();
            return Watts::ZERO;
        }
        let mut over = self.squeeze_all(|_| true);
        let is_distrusted = |unit: &DeviceView| unit.failed().is_some_and(|it| it.was_unread);
        if self.view.gpus().any(|(_, unit)| is_distrusted(unit)) {
            // A distrusted GPU is lowered as far as needed, and the others besides to what it leaves them if it
            // falls silent again.
            over = over.min(self.squeeze_all(|unit| !is_distrusted(unit)));
        }
        if lands {
            // A GPU with a late write is lowered as any other, and the others besides to what it leaves them
            // should that write raise it.
            let is_sure = |unit: &DeviceView| unit.late.is_none() && !is_distrusted(unit);
            over = over.min(self.squeeze_all(is_sure));
        }
        over
    }

    /// Without a budget nobody has asked for room: what a device holds beyond the cap found, by somebody else's hand or
    /// because it was reset, is taken from no other. But what litd itself has moved is its own affair: the devices of a
    /// job keep together within what the job has, while one of them fails to be lowered or doesn't obey any more. No
    /// other GPU pays for that.
    fn make_room_within_jobs(&mut self) -> Watts {
        let view = self.view;
        for demand in &view.demands {
            let own = |device: usize| demand.devices.contains(&device);
            let caps = demand.back.iter().chain(&demand.caps);
            let asked: Watts = caps.map(|&(_, cap)| cap).sum();
            let sockets = self
                .devices()
                .filter(|&(device, unit)| own(device) && !unit.is_gpu);
            let lent: Watts = sockets.map(|(_, unit)| unit.part()).sum();
            let all = asked.max(demand.share + lent);
            self.squeeze(all, |device, _| own(device), |_| true);
        }
        for job in &view.jobs {
            let own = |device: usize| job.gpus.contains(&device);
            let is_stuck = |(device, unit): (usize, &DeviceView)| own(device) && unit.is_stuck();
            if self.devices().any(is_stuck) {
                self.squeeze(job.most, |device, _| own(device), |_| true);
            }
        }
        self.budget = self.budget.max(self.unbound());
        // Watts of a job's share that its devices don't hold are the job's.
        Watts(f64::INFINITY)
    }

    /// The watts that all devices may hold without a budget: each its own part, and what it holds beyond that where
    /// litd can't change it and no other of its job makes room for it. Caps that are restored wait for no such device.
    fn unbound(&self) -> Watts {
        let mut left: Vec<Watts> = self
            .devices()
            .map(|(_, unit)| unit.without_budget())
            .collect();
        for job in &self.view.jobs {
            let own = |device: &usize| job.gpus.contains(device);
            let units = self.devices().filter(|(device, _)| own(device));
            let units: Vec<(usize, &DeviceView)> = units.collect();
            if !units.iter().any(|(_, unit)| unit.is_stuck()) {
                continue;
            }
            let holds = units.iter().map(|&(device, unit)| {
                let target = self.target(device);
                let fixed = || unit.fixed_at(target).max(unit.account.counts);
                unit.movable(self.view, target).unwrap_or_else(fixed)
            });
            let mut all = holds.sum::<Watts>().max(job.most);
            for (device, _) in units {
                if let Some(left) = left.get_mut(device) {
                    *left = std::mem::take(&mut all);
                }
            }
        }
        left.into_iter().sum()
    }

    /// A user's GPUs make room for each other before anybody else's do, where one of them has failed or has a foreign
    /// cap: he may have brought it to that (by hanging it again and again, for example).
    fn owners_make_room(&mut self, moves: impl Fn(&DeviceView) -> bool) {
        let view = self.view;
        let mut owners: Vec<usize> = view.jobs.iter().map(|job| job.owner).collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            let jobs = || view.jobs.iter().filter(|job| job.owner == owner);
            let own = |device: usize| jobs().any(|job| job.gpus.contains(&device));
            let is_out_of_hand = |(device, unit): (usize, &DeviceView)| {
                own(device) && (unit.is_theirs() || unit.failed().is_some())
            };
            if self.devices().any(is_out_of_hand) {
                let all = jobs().map(|job| job.most).sum();
                self.squeeze(all, |device, _| own(device), &moves);
            }
        }
    }

    fn squeeze_all(&mut self, moves: impl Fn(&DeviceView) -> bool) -> Watts {
        self.owners_make_room(&moves);
        let gpus = (!self.view.sockets_lend).then(|| self.squeeze_gpus(&moves));
        let whole = to_the_microwatt(self.budget).unwrap_or(Watts::ZERO);
        // The budget is the GPUs': CPU sockets that lend nothing are not lowered for one that GPUs can't keep.
        let lends = self.view.sockets_lend;
        let all = self.squeeze(
            whole,
            |_, _| true,
            |unit| (unit.is_gpu || lends) && moves(unit),
        );
        gpus.map_or(all, |gpus| gpus.min(all))
    }

    fn squeeze_gpus(&mut self, moves: impl Fn(&DeviceView) -> bool) -> Watts {
        self.squeeze(self.view.managed_budget, |_, unit| unit.is_gpu, moves)
    }

    /// The budget of all devices together once litd has left. CPU sockets get their watts back even where GPUs
    /// that can't be moved, with the floors of the others, exceed the GPUs' budget.
    fn left_behind(&self) -> Watts {
        let each = self.view.gpus().map(|(device, unit)| {
            let target = self.target(device);
            // No cap is raised for it.
            let stays = unit.movable(self.view, target);
            let stays = stays.map(|target| target.min(unit.account.most));
            stays.unwrap_or_else(|| unit.fixed_at(target))
        });
        let gpus = self.view.managed_budget.max(each.sum());
        let cpus = self.view.cpus().map(DeviceView::without_us);
        gpus + cpus.sum()
    }

    /// The movable ones of these devices share what the others leave of a budget. Returns what is left over.
    fn squeeze(
        &mut self,
        budget: Watts,
        counts: impl Fn(usize, &DeviceView) -> bool,
        moves: impl Fn(&DeviceView) -> bool,
    ) -> Watts {
        let mut fixed = Watts::ZERO;
        let mut devices = Vec::new();
        let mut limits = Vec::new();
        let mut wanted = Vec::new();
        for (device, unit) in self
            .devices()
            .filter(|&(device, unit)| counts(device, unit))
        {
            let target = self.target(device);
            match unit.movable(self.view, target) {
                None => fixed += unit.fixed_at(target),
                Some(target) if !moves(unit) => fixed += unit.moved_to(target),
                Some(target) if target <= unit.limits.floor => fixed += target,
                Some(target) => {
                    devices.push(device);
                    wanted.push(target);
                    // A cap found above the ceiling may be restored; no other cap goes above it.
                    limits.push(unit.limits);
                }
            }
        }
        let sum: Watts = wanted.iter().copied().sum();
        let left = budget - fixed;
        // Sums of the same caps in another order may differ by less than any driver's unit.
        if sum <= left + DUST {
            return (left - sum).max(Watts::ZERO);
        }
        self.failed_give_first(&devices, &mut wanted, sum - left);
        let floors: Watts = limits.iter().map(|own| own.floor).sum();
        let caps = if floors > left + DUST {
            self.squeeze_below_floors(&mut devices, &mut wanted, left)
        } else {
            project(&limits, left, &wanted)
        };
        let caps = caps.iter().flat_map(CapVector::to_watts);
        for (device, cap) in devices.into_iter().zip(caps) {
            if let Some(aim) = self.aims.get_mut(device) {
                let before = std::mem::replace(&mut aim.target, to_the_microwatt(cap));
                if aim.target < before || before.is_none() {
                    aim.why = aim.why.in_less_room();
                }
            }
        }
        Watts::ZERO
    }

    /// Where not even the floors leave room, devices with caps found below their floors are restored to those. The
    /// others, left in the lists, share the rest.
    fn squeeze_below_floors(
        &mut self,
        devices: &mut Vec<usize>,
        wanted: &mut Vec<Watts>,
        mut left: Watts,
    ) -> Option<CapVector> {
        let all = std::mem::take(devices).into_iter();
        let mut limits = Vec::new();
        for (device, cap) in all.zip(std::mem::take(wanted)) {
            let unit = self.view.devices.get(device)?;
            match unit.undo.back.filter(|&back| back < unit.limits.floor) {
                Some(back) => {
                    self.aim(device, Aim::back(back, Why::Found));
                    left -= back;
                }
                None => {
                    devices.push(device);
                    wanted.push(cap);
                    limits.push(unit.limits);
                }
            }
        }
        project(&limits, left, wanted)
    }

    /// Failed GPUs give up watts first, down to an equal share of the budget: until they are steered again they
    /// get no more than the others.
    fn failed_give_first(&self, devices: &[usize], wanted: &mut [Watts], mut too_much: Watts) {
        let share = self.view.managed_budget / self.view.gpus().count().max(1) as f64;
        for (&device, wanted) in devices.iter().zip(wanted) {
            let unit = self.view.devices.get(device);
            let Some(unit) = unit.filter(|unit| unit.failed().is_some()) else {
                continue;
            };
            let least = share.max(unit.limits.floor);
            let gives = (*wanted - least).max(Watts::ZERO).min(too_much);
            *wanted -= gives;
            too_much -= gives;
        }
    }
}
