//! What every device is to hold: the shares of the budget, what is left to devices without a
//! loop, room for those that hold more than they should; and the writes that follow.

use litd_api::{DeviceState, EventKind};
use litd_policies::{Actuator, CapVector, Envelope, EnvelopeError, Limits, Policy};
use litd_power::Operation;
use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::job::Job;
use crate::journal::{Found, Undo};
use crate::range::Range;
use crate::record::Note;
use crate::store::Store;

/// After a failed write to the journal or the audit log the caps wait for so long.
const JOURNAL_RETRY: Nanos = Nanos(1_000_000_000);

/// Less than any driver's unit.
pub(crate) const DUST: Watts = Watts(0.4e-6);

impl<S: Store> Core<S> {
    /// A job's share of the node's budget: in proportion to its GPUs, where a budget is set;
    /// what its GPUs came with, otherwise.
    pub(crate) fn share(&self, job: &Job) -> Watts {
        let found = || {
            let units = job.gpus().filter_map(|device| self.devices.get(device));
            units.filter_map(|unit| unit.base()).sum()
        };
        let all = self.devices.gpus().count().max(1) as f64;
        let share = |budget: Watts| budget * (job.ranks.len() as f64 / all);
        self.set_budget().map_or_else(found, share)
    }

    /// Whether a policy moves caps.
    pub(crate) fn steers(&self) -> bool {
        self.policy() != Policy::Observe && self.stopping.is_none() && !self.only_undoes()
    }

    /// Whether the journal could never be written since the start: what a predecessor left goes
    /// back then, which a job's own caps would be in the way of. Where a budget is set its caps stay,
    /// because what was found may be more.
    fn only_undoes(&self) -> bool {
        let unwritable = self.journal_trouble.is_some() && self.journal.is_only_read();
        unwritable && self.set_budget().is_none()
    }

    /// Whether a budget that was set keeps caps below those found: in every mode but off.
    pub(crate) fn enforces(&self) -> bool {
        !self.is_leaving() && self.set_budget().is_some()
    }

    /// Whether caps may be anything else than what was found.
    fn moves_caps(&self) -> bool {
        self.steers() || self.enforces() || self.holds()
    }

    /// Works out what every device is to hold.
    pub(crate) fn retarget(&mut self) {
        self.note_failed();
        self.judge_devices();
        if self.is_looking_round() {
            // What the others may hold is known in a moment: no cap moves for want of that.
            for device in 0..self.devices.iter().count() {
                self.actuator.leave(device);
            }
            return;
        }
        if self.is_leaving() {
            // What litd leaves behind waits for nobody's sensor.
            for device in 0..self.devices.iter().count() {
                self.believe(device);
            }
        }
        let steering = self.moves_caps();
        self.actuator.set_budget(self.whole_budget(steering));
        if !steering {
            return self.give_all_back();
        }
        let mut steered = vec![false; self.devices.iter().count()];
        let mut shares = Watts::ZERO;
        // What loops ask for counts no more once litd leaves.
        let leaving = self.is_leaving();
        for job in self.jobs.values() {
            let Some(caps) = job.ask.as_ref().filter(|_| !leaving) else {
                continue;
            };
            let devices = job.devices();
            match self.instead(job) {
                None => {
                    let kept = self.kept(job, &devices, caps);
                    self.actuator.steer(&devices, &kept);
                }
                Some(instead) => {
                    for (device, cap) in instead.back {
                        self.actuator.give_back(device, cap);
                    }
                    if let Some((devices, caps)) = instead.aim {
                        self.actuator.steer(&devices, &caps);
                    }
                }
            }
            shares += self.share(job);
            for device in devices {
                if let Some(steered) = steered.get_mut(device) {
                    *steered = true;
                }
            }
        }
        self.aim_idle(&steered, shares);
        self.leave_others();
        self.aim_failed();
        self.leave_without_room();
        self.squeeze();
        self.raise_no_closed();
        self.raise_in_full();
        self.hold_while_short(&steered);
    }

    /// What all devices together may hold: the GPUs' budget and what the CPU sockets came with.
    /// Giving back what was found is always allowed once litd no longer steers, whatever others
    /// have set elsewhere.
    fn whole_budget(&self, steering: bool) -> Watts {
        let found = |(device, unit)| self.came_with(device, unit);
        let cpus: Watts = self.devices.cpus().map(found).sum();
        let units = self.devices.iter();
        let found: Watts = units
            .map(|(device, unit)| self.without_us(device, unit))
            .sum();
        let budget = self.managed_budget() + cpus;
        if steering { budget } else { budget.max(found) }
    }

    /// What a device may hold where litd gives back what was found.
    pub(crate) fn without_us(&self, device: usize, unit: &Unit) -> Watts {
        let found = self.came_with(device, unit);
        // Not litd's to move, and nothing of litd's to undo: what it holds is others' doing.
        // An entry of a foreign cap is one that could not be taken out of the journal yet.
        let owed = self.is_journaled(device) || self.owes_undo(device, unit);
        let faulty = unit.standing == DeviceState::Faulty;
        let stuck = faulty || self.is_beyond_judging(unit);
        let falls = owed && self.is_falling(device, unit, found);
        let holds = match unit.standing {
            DeviceState::Foreign => self.actuator.counts(device),
            // Nobody else's undo waits for one that can't be judged or does not obey, unless it is
            // about to go down.
            _ if stuck && !falls => self.actuator.counts(device),
            _ if owed => found,
            // It was reset, unless litd is just writing it.
            DeviceState::Ours => {
                let held = self.actuator.held(device);
                held.filter(|_| !self.actuator.is_writing(device))
                    .unwrap_or(found)
            }
            _ => self.actuator.counts(device),
        };
        found.max(holds)
    }

    /// Whether a device holds more than is to go back, and takes writes.
    fn is_falling(&self, device: usize, unit: &Unit, back: Watts) -> bool {
        let held = self.actuator.held(device);
        let writable = !unit.overdue && !matches!(unit.device.range, Range::Asked(_));
        writable && held.is_some_and(|held| held > back) && !self.actuator.has_failed(device)
    }

    /// Devices without a loop hold what they were found with, as far as a budget that was set
    /// leaves it to them.
    fn aim_idle(&mut self, steered: &[bool], shares: Watts) {
        // What is undone waits for nobody, and without a budget that was set nothing is exceeded by it.
        let rest = match self.is_leaving() || self.set_budget().is_none() {
            true => Actuator::give_back,
            false => Actuator::rest,
        };
        let mut gpus = Vec::new();
        let mut limits = Vec::new();
        let mut found = Vec::new();
        let mut lowest = Watts::ZERO;
        for (device, unit) in self.devices.iter() {
            let (false, Some(cap)) = (steered[device], unit.base()) else {
                continue;
            };
            if !unit.is_gpu() {
                rest(&mut self.actuator, device, cap);
                continue;
            }
            let own = unit.limits(&self.config.caps);
            if cap <= own.floor {
                // Found as low as litd would ever go, or lower: there is nothing to take.
                rest(&mut self.actuator, device, cap);
                lowest += unit.device.range.unjudged().unwrap_or(cap);
                continue;
            }
            gpus.push(device);
            found.push(cap);
            // Planned clocks are no reason to hold more than what goes back.
            limits.push(Limits {
                ceiling: own.ceiling.min(cap),
                ..own
            });
        }
        let whole: Watts = found.iter().copied().sum();
        let left = self
            .set_budget()
            .map_or(whole, |budget| budget - shares - lowest);
        if whole > left + DUST {
            let Some(caps) = self.project_kept(&gpus, &limits, left, &found) else {
                return;
            };
            found = caps.to_watts();
        }
        for (&device, &cap) in gpus.iter().zip(&found) {
            rest(&mut self.actuator, device, cap);
        }
    }

    /// What a loop asks for, but no less than planned clocks need.
    pub(crate) fn kept(&self, job: &Job, devices: &[usize], caps: &CapVector) -> CapVector {
        let wanted = caps.to_watts();
        let limits = |&device: &usize| self.devices.get(device).map(|it| (device, it));
        let units: Vec<(usize, &Unit)> = devices.iter().filter_map(limits).collect();
        let less = |(&(device, unit), &cap): (&(usize, &Unit), &Watts)| {
            unit.is_gpu() && cap < self.keeps(device, unit).floor
        };
        if units.len() != wanted.len() || !units.iter().zip(&wanted).any(less) {
            return caps.clone();
        }
        let own = |(unit, &cap): (&(usize, &Unit), &Watts)| {
            let own = unit.1.limits(&self.config.caps);
            // What a CPU socket lends is the loop's business.
            match unit.1.is_gpu() {
                true => own,
                false => Limits {
                    floor: cap,
                    ceiling: cap,
                    ..own
                },
            }
        };
        let own: Vec<Limits> = units.iter().zip(&wanted).map(own).collect();
        let budget = self.may_keep(job, caps);
        let kept = self.project_kept(devices, &own, budget, &wanted);
        kept.unwrap_or_else(|| caps.clone())
    }

    /// What a job's devices may hold, should planned clocks need more than its loop asks for: a
    /// loop may leave watts of the job's share unused.
    fn may_keep(&self, job: &Job, caps: &CapVector) -> Watts {
        let gpus = job.gpus().count();
        let lent: Watts = caps.to_watts().into_iter().skip(gpus).sum();
        caps.budget().max(self.share(job) + lent)
    }

    /// The caps nearest to `wanted` within limits and budget, and no less than planned clocks
    /// need; where the budget is too small for that, all keep the same share of it.
    fn project_kept(
        &self,
        devices: &[usize],
        limits: &[Limits],
        budget: Watts,
        wanted: &[Watts],
    ) -> Option<CapVector> {
        let raised = devices.iter().zip(limits).map(|(&device, own)| {
            let unit = self.devices.get(device).filter(|unit| unit.is_gpu());
            let kept = unit.map_or(own.floor, |unit| self.keeps(device, unit).floor);
            (kept.min(own.ceiling.cut_to(own.resolution)) - own.floor).max(Watts::ZERO)
        });
        let raised: Vec<Watts> = raised.collect();
        let with = |share: f64| -> Vec<Limits> {
            let limits = limits.iter().zip(&raised).map(|(own, &more)| Limits {
                floor: own.floor + more * share,
                ..*own
            });
            limits.collect()
        };
        if let Ok(envelope) = Envelope::new(&with(1.0), budget) {
            return Some(envelope.project(wanted, wanted));
        }
        // Rounded up to driver units floors may be a little more than they are.
        let floors: Watts = limits.iter().map(|own| own.floor + own.resolution).sum();
        let most: Watts = raised.iter().copied().sum();
        let share = match most > Watts::ZERO {
            true => ((budget - floors) / most).clamp(0.0, 1.0),
            false => 0.0,
        };
        project(&with(share), budget, wanted)
    }

    /// Devices whose caps are others' are left alone; those that went wrong, or that an
    /// administrator took back, get what they were found with.
    fn leave_others(&mut self) {
        for (device, unit) in self.devices.iter() {
            let asked = matches!(unit.device.range, Range::Asked(_)) || unit.reset.is_some();
            match (unit.standing, unit.back()) {
                // Somebody else may have been there since litd began to stop.
                _ if asked || !unit.was_read() || !self.is_fresh(unit) => {
                    self.actuator.leave(device);
                }
                // Within the safe budget.
                (DeviceState::Released, Some(_)) if self.is_held_off(unit) => {}
                (DeviceState::Ours, Some(_)) if unit.is_ours() => {}
                (DeviceState::Ours | DeviceState::Released | DeviceState::Faulty, Some(back))
                    if self.may_open(device)
                        && (self.is_journaled(device) || self.owes_undo(device, unit)) =>
                {
                    self.actuator.give_back(device, back);
                }
                _ => self.actuator.leave(device),
            }
        }
    }

    /// What is closed because litd is off is not read: somebody else may have it by now, and it rises no
    /// more. That is decided last: counted with less before, the others would take what it leaves, and it
    /// would be lowered again in turn.
    fn raise_no_closed(&mut self) {
        for (device, unit) in self.devices.iter() {
            let closed = unit.let_go.is_some_and(|it| it.closed) && self.is_held_off(unit);
            let held = self.actuator.held(device).filter(|_| closed);
            if let Some(held) = held
                && self.actuator.target(device) > Some(held)
            {
                self.actuator.give_back(device, held);
            }
        }
    }

    /// A cap that was asked for by hand, and for which the others leave no room, is not raised half way:
    /// nobody asked for that. It is answered as not set, unless there is room in time. A GPU that has failed gets
    /// nothing while a budget is kept with it.
    fn raise_in_full(&mut self) {
        let half = |&(device, unit): &(usize, &Unit)| {
            let target = self.actuator.target(device);
            let whole = unit.by_hand.asked();
            let less = target.zip(whole).is_some_and(|(it, whole)| it < whole);
            self.would_rise(device) && (less || self.is_kept_down(unit))
        };
        let rising = self.devices.iter().filter(half);
        let rising: Vec<usize> = rising.map(|(device, _)| device).collect();
        for device in rising {
            self.stays(device);
        }
    }

    /// A device stays at what it holds. When litd is to leave the safe budget behind, that is what it is to be left
    /// with.
    fn stays(&mut self, device: usize) {
        match self.actuator.held(device).filter(|_| self.holds()) {
            Some(held) => self.actuator.give_back(device, held),
            None => self.actuator.leave(device),
        }
    }

    /// Whether a device's target is more than it was read to hold last, however much it counts with; where that is
    /// not known, more than it may hold.
    fn would_rise(&self, device: usize) -> bool {
        let held = self.actuator.held(device);
        let held = held.unwrap_or_else(|| self.actuator.most_of(device));
        self.actuator.target(device) > Some(held)
    }

    /// While the node is short of power, a device can't be judged, or somebody else sets caps, caps
    /// stay where they are or go down. A cap that goes back to the one found does so where no job is steered: without litd it
    /// would be there too.
    fn hold_while_short(&mut self, steered: &[bool]) {
        // Nor does what litd leaves behind wait: without litd it would be more.
        if self.is_leaving() {
            return;
        }
        if self.raises_stopped().is_none() {
            return;
        }
        let rises = |&(device, unit): &(usize, &Unit)| {
            let target = self.actuator.target(device);
            let target = target.filter(|_| self.would_rise(device));
            let held = |target: Watts| {
                let back = unit.base().is_some_and(|base| base.is_same_cap(target));
                let theirs = !unit.is_ours() || self.is_by_hand(device, target);
                !theirs && (steered[device] || !back)
            };
            target.is_some_and(held)
        };
        let rising = self.devices.iter().filter(rises);
        let rising: Vec<usize> = rising.map(|(device, _)| device).collect();
        for device in rising {
            self.actuator.leave(device);
        }
    }

    /// A GPU that was let go of, or that nobody can judge when litd is to leave the safe budget behind, goes back to
    /// what was found only where a budget that was set leaves room for that, with all other GPUs at their floors, or
    /// at what was found where that is less.
    fn leave_without_room(&mut self) {
        if self.set_budget().is_none() {
            return;
        }
        let rises = |&(device, unit): &(usize, &Unit)| {
            let back = unit.let_go.is_some() && !self.is_held_off(unit);
            let unjudged = self.holds() && unit.device.range.known().is_none();
            (back || unjudged) && self.would_rise(device)
        };
        let rising: Vec<usize> = self
            .devices
            .gpus()
            .filter(rises)
            .map(|(it, _)| it)
            .collect();
        for device in rising {
            let least = self.devices.gpus().map(|(other, unit)| {
                let target = self.movable_target(other, unit);
                let target = target.filter(|_| other != device);
                let floor = unit.limits(&self.config.caps).floor;
                let floor = unit.back().map_or(floor, |back| back.min(floor));
                target.map_or_else(|| self.fixed_at(other, unit), |target| target.min(floor))
            });
            if least.sum::<Watts>() > self.managed_budget() + DUST {
                self.stays(device);
            }
        }
    }

    /// Where some devices hold, or may hold, more than was planned for, the others make room:
    /// GPUs for GPUs, and CPU sockets only where their watts are lent anyway.
    fn squeeze(&mut self) {
        if self.is_leaving() {
            // What litd leaves behind lends none, and what CPU sockets lent goes back, whatever GPUs hold.
            self.squeeze_within(self.managed_budget(), Unit::is_gpu, |_| true);
            return self.actuator.set_budget(self.budget_left_behind());
        }
        self.squeeze_all(|_| true);
        if self.is_any_distrusted() {
            // It is lowered as far as it has to be, and the others besides to what it leaves them if it falls
            // silent again.
            let distrusted = |it: &Unit| it.failed().is_some_and(|failed| failed.was_unread);
            self.squeeze_all(|unit| !distrusted(unit));
        }
    }

    fn squeeze_all(&mut self, moves: impl Fn(&Unit) -> bool) {
        if self.jobs.values().all(|job| job.cpus.is_empty()) {
            self.squeeze_within(self.managed_budget(), Unit::is_gpu, &moves);
        }
        self.squeeze_within(self.actuator.budget(), |_| true, &moves);
    }

    /// What a device is to hold, if its cap may be moved and it takes writes.
    pub(crate) fn movable_target(&self, device: usize, unit: &Unit) -> Option<Watts> {
        let takes = !unit.device.range.is_open() && !self.actuator.has_failed(device);
        let target = self.actuator.target(device);
        match self.is_enforced_on(unit) {
            // It is aimed at no more than it is to get: `aim_failed`.
            true => self
                .actuator
                .held(device)
                .map(|held| target.unwrap_or(held)),
            false => target.filter(|_| self.may_move(unit)),
        }
        .filter(|_| takes)
    }

    /// Whether a GPU that has failed, and that litd leaves alone otherwise, is lowered for a budget that was
    /// set: it may take writes again, and nobody else keeps the budget.
    pub(crate) fn is_enforced_on(&self, unit: &Unit) -> bool {
        self.is_kept_down(unit) && self.obeys_again(unit)
    }

    /// Whether a GPU has failed while there is a budget: until it is litd's again its cap does not rise.
    pub(crate) fn is_kept_down(&self, unit: &Unit) -> bool {
        let is_bound = self.set_budget().is_some() || self.holds();
        is_bound && unit.is_faulty() && unit.is_gpu()
    }

    /// What the others have to leave to a device that is not to be moved: also for the cap that goes back
    /// to one that is let go of.
    pub(crate) fn fixed_at(&self, device: usize, unit: &Unit) -> Watts {
        let back = self.actuator.target(device);
        let back = back.filter(|_| unit.let_go.is_some());
        self.counts_with(device, unit)
            .max(back.unwrap_or(Watts::ZERO))
    }

    /// What a device that is not to be moved counts with: the most that it may hold; one whose cap
    /// is somebody else's, the limit in force where its driver tells that.
    pub(crate) fn counts_with(&self, device: usize, unit: &Unit) -> Watts {
        let theirs = unit.standing == DeviceState::Foreign;
        let reading = self.fresh_reading(unit).filter(|_| theirs);
        let enforced = reading.and_then(|reading| reading.enforced);
        let enforced = enforced.filter(|enforced| *enforced > Watts::ZERO);
        enforced.unwrap_or_else(|| self.actuator.most_of(device))
    }

    /// Of the devices that count, those that may be moved share what the others leave of a budget.
    fn squeeze_within(
        &mut self,
        budget: Watts,
        counts: impl Fn(&Unit) -> bool,
        moves: impl Fn(&Unit) -> bool,
    ) {
        let caps = &self.config.caps;
        let mut fixed = Watts::ZERO;
        let mut devices = Vec::new();
        let mut limits = Vec::new();
        let mut wanted = Vec::new();
        for (device, unit) in self.devices.iter().filter(|(_, unit)| counts(unit)) {
            let own = unit.limits(caps);
            let target = self.movable_target(device, unit);
            match target.filter(|_| moves(unit)) {
                None => fixed += self.fixed_at(device, unit),
                Some(target) if target <= own.floor => fixed += target,
                Some(target) => {
                    devices.push(device);
                    wanted.push(target);
                    // A cap found above the ceiling may go back, and nothing else up there.
                    limits.push(own);
                }
            }
        }
        let sum: Watts = wanted.iter().copied().sum();
        let left = budget - fixed;
        // Sums of the same caps in another order may differ by less than any driver's unit.
        if sum <= left + DUST {
            return;
        }
        self.failed_give_first(&devices, &mut wanted, sum - left);
        let floors: Watts = limits.iter().map(|own| own.floor).sum();
        let caps = if floors > left + DUST {
            self.squeeze_below_floors(&mut devices, &mut wanted, left)
        } else {
            self.project_kept(&devices, &limits, left, &wanted)
        };
        if let Some(caps) = caps {
            self.actuator.squeeze(&devices, &caps);
        }
    }

    /// Where not even the floors leave room, those that were found below theirs go back to what
    /// was found. The others, left in the lists, share the rest.
    fn squeeze_below_floors(
        &mut self,
        devices: &mut Vec<usize>,
        wanted: &mut Vec<Watts>,
        mut left: Watts,
    ) -> Option<CapVector> {
        let all = std::mem::take(devices).into_iter();
        let mut limits = Vec::new();
        for (device, cap) in all.zip(std::mem::take(wanted)) {
            let unit = self.devices.get(device)?;
            let own = unit.limits(&self.config.caps);
            match unit.back().filter(|&back| back < own.floor) {
                Some(back) => {
                    self.actuator.give_back(device, back);
                    left -= back;
                }
                None => {
                    devices.push(device);
                    wanted.push(cap);
                    limits.push(own);
                }
            }
        }
        self.project_kept(devices, &limits, left, wanted)
    }

    /// Sends out what may be written now, after the journal and the audit log know of it.
    pub(crate) fn write_caps(&mut self) {
        let devices = &self.devices;
        let writes = self.actuator.due(|device| devices.is_free(device));
        if writes.is_empty() {
            return;
        }
        let ours: Vec<(usize, Watts)> = writes
            .iter()
            .filter(|&&(device, cap)| !self.is_by_hand(device, cap))
            .copied()
            .collect();
        let trouble = !ours.is_empty() && self.journal_writes(&ours);
        let allowed = |&(device, cap): &(usize, Watts)| {
            !trouble || self.undoes(device, cap) || self.is_by_hand(device, cap)
        };
        let (allowed, waiting): (Vec<_>, Vec<_>) = writes.into_iter().partition(allowed);
        let unrecorded = !allowed.is_empty() && self.audit_writes(&allowed);
        for (device, cap) in allowed {
            if !unrecorded || self.gives_back(device, cap) {
                let operation = Operation::Set(cap);
                self.devices
                    .begin(device, operation, self.now, &mut self.effects);
                continue;
            }
            self.write_later(device);
            if self.is_by_hand(device, cap) {
                let why = "the audit log can't be written".to_owned();
                self.wrote_by_hand(device, Err(why));
            }
        }
        for (device, _) in waiting {
            self.write_later(device);
        }
    }

    /// Whether a write takes back what litd may have done, as far as the journal knows. What is not
    /// in the journal holds nothing of litd's that could be undone; and a cap that is not in it, because
    /// a driver takes no more by now, would be somebody else's to the next start.
    fn undoes(&self, device: usize, cap: Watts) -> bool {
        let unit = self.devices.get(device);
        let goes_back = unit
            .and_then(Unit::back)
            .is_some_and(|back| back.is_same_cap(cap));
        let entry = unit.and_then(|unit| self.entry(unit.address()));
        goes_back && entry.is_some_and(|entry| entry.undo(cap) != Undo::Foreign)
    }

    /// The same, or one that takes back a cap which could not be set by hand.
    fn gives_back(&self, device: usize, cap: Watts) -> bool {
        let unit = self.devices.get(device);
        let owed = unit.filter(|unit| self.owes_undo(device, unit));
        let owed = owed.and_then(Unit::back);
        self.undoes(device, cap) || owed.is_some_and(|back| back.is_same_cap(cap))
    }

    /// A write that can't be written down is not made.
    fn write_later(&mut self, device: usize) {
        self.actuator.not_written(device);
        if let Some(unit) = self.devices.get_mut(device) {
            unit.retry_at = Some(self.now + JOURNAL_RETRY);
        }
    }

    /// Writes down what is about to be written to devices. Returns whether that failed.
    pub(crate) fn journal_writes(&mut self, writes: &[(usize, Watts)]) -> bool {
        // An entry that could not be taken out of the journal says what was found before.
        for &(device, _) in writes {
            if let Some(address) = self.outdated_entry(device)
                && !self.forget_entry(&address)
            {
                return true;
            }
        }
        let found = self.unrecorded(writes.iter().map(|&(device, _)| device));
        let unit = |device: usize| self.devices.get(device);
        let intents = writes
            .iter()
            .filter_map(|&(device, cap)| Some((unit(device)?.address(), cap)));
        let intents: Vec<(&str, Watts)> = intents.collect();
        let begun = match found.is_empty() {
            true => Ok(()),
            false => self.journal.begin_all(&mut self.store, &found),
        };
        let written = begun.and_then(|()| self.journal.intend(&mut self.store, &intents));
        self.journal_said(written.err().map(|error| error.to_string()))
    }

    /// Of these devices, those that the journal does not name, as they were found.
    fn unrecorded(&self, devices: impl Iterator<Item = usize>) -> Vec<Found> {
        let new = devices.filter(|&device| !self.is_journaled(device));
        let found = new.filter_map(|device| {
            let unit = self.devices.get(device)?;
            Some(Found {
                address: unit.address().to_owned(),
                serial: unit.device.identity.serial.clone(),
                cap: unit.found?,
            })
        });
        found.collect()
    }

    /// Writes down which GPUs may be lowered, to see whether the journal can be written. What is not lowered
    /// then is taken out again.
    pub(crate) fn try_journal(&mut self) {
        // Also those that litd has let go of, and takes back for what is asked now.
        let theirs = |unit: &Unit| unit.standing == DeviceState::Foreign;
        let gpus = self.devices.gpus();
        let gpus = gpus.filter(|(_, unit)| unit.is_judged() && !theirs(unit));
        let gpus: Vec<usize> = gpus.map(|(gpu, _)| gpu).collect();
        let found = self.unrecorded(gpus.into_iter());
        let outcome = self.journal.try_out(&mut self.store, &found);
        self.untidy = true;
        self.journal_said(outcome.err().map(|error| error.to_string()));
    }

    /// Takes note of whether the journal can be written. Returns whether it can't.
    pub(crate) fn journal_said(&mut self, trouble: Option<String>) -> bool {
        if let Some(why) = self.journal.takes_growth() {
            self.record.error("journal", "");
            let text = format!("the undo journal grows, because it can't be rewritten: {why}");
            self.note(Note::warning(EventKind::Fault, text));
        }
        let failed = trouble.is_some();
        if failed {
            self.record.error("journal", "");
        }
        match (&self.journal_trouble, &trouble) {
            (None, Some(why)) => {
                let text = format!("no cap is changed, but to undo: {why}");
                self.note(Note::warning(EventKind::Fault, text));
            }
            (Some(_), None) => {
                self.note(Note::info(
                    EventKind::Fault,
                    "the undo journal can be written again",
                ));
            }
            _ => {}
        }
        self.dirty |= self.journal_trouble.is_some() != failed;
        self.journal_trouble = trouble;
        failed
    }
}

/// The caps nearest to `wanted` within limits and budget; all floors, if those exceed it.
pub(crate) fn project(limits: &[Limits], budget: Watts, wanted: &[Watts]) -> Option<CapVector> {
    if limits.is_empty() {
        return None;
    }
    let envelope = match Envelope::new(limits, budget) {
        Err(EnvelopeError::BudgetTooSmall { floors, .. }) => Envelope::new(limits, floors),
        envelope => envelope,
    };
    Some(envelope.ok()?.project(wanted, wanted))
}
