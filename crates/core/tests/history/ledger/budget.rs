//! The sum is never above the budget, and comes down in time when the budget does.

use litd_api::{DeviceState, DeviceStatus, Status};
use litd_policies::Policy;
use litd_units::Watts;

use super::{LOWERED, Lowered, ROOM, Said};
use crate::fault::Fault;
use crate::hardware::{Hw, micro, whole};
use crate::world::{ANSWER, Ev, World};

/// A device that takes no write is worked around after so long: what it was doing, its write's
/// patience, what the others were doing, and their writes, are a second and two answers at most.
const WORKED_AROUND: i64 = LOWERED + 2 * ANSWER;

impl World {
    /// The budget that was set, by command or by configuration, or what the node's leaves of it; where
    /// litd leaves, what it is to leave behind.
    pub fn budget_set(&self) -> Option<Watts> {
        if let Some(safe) = self.left_within() {
            return Some(safe);
        }
        self.bounded(self.least_budget(self.ledger.budget.or(self.config.caps.budget)))
    }

    /// The least budget that can be kept. A GPU that was let go of may be litd's again: it counts with its
    /// floor, whatever it could hold while nobody can judge it.
    pub fn least_kept(&self, status: &Status) -> Watts {
        let gpus = self.here.iter().zip(&status.devices);
        let gpus = gpus.filter(|&(&device, _)| self.hw[device].is_gpu());
        let floor = |(&device, said): (&usize, &DeviceStatus)| match self.hw[device].let_go {
            true => said.floor.min(whole(self.bounds(device, None).floor)),
            false => said.floor,
        };
        gpus.map(floor).sum()
    }

    /// The present bound on the sum of all caps.
    pub fn limit(&self) -> i64 {
        match self.all_said() {
            Some(said) => self.limit_of(&said),
            None => self.ledger.last_limit.unwrap_or(i64::MAX / 4),
        }
    }

    /// A dead daemon's last writes were within its own bound.
    pub fn remember_limit(&mut self) {
        self.ledger.last_limit = Some(self.limit());
    }

    pub(super) fn limit_of(&self, said: &[Said]) -> i64 {
        let came_with = |(hw, said): (&Hw, &Said)| {
            let by_hand = hw.hand.open.map(|(cap, _)| cap);
            let known = by_hand.or(said.found);
            known.unwrap_or(micro(hw.range.highest))
        };
        let all = || self.hw.iter().zip(said);
        let all = || all().filter(|(hw, _)| !hw.absent);
        // Without a budget nobody makes room for a device that can't be judged, or has a foreign cap. For one that has
        // failed the others of its job do, if it has one.
        let sure = |at: usize, hw: &Hw, said: &Said| {
            let of_a_job = self.hooks.ranks.iter().any(|rank| rank.device == at);
            let alone = match said.state {
                DeviceState::Foreign => true,
                DeviceState::Faulty => !of_a_job,
                _ => false,
            };
            hw.is_judged() && self.now >= hw.trouble_until && !alone
        };
        let counts = |(at, (hw, said)): (usize, (&Hw, &Said))| match sure(at, hw, said) {
            true => came_with((hw, said)),
            // The device may still draw what it held before it was lowered.
            false => came_with((hw, said)).max(self.weight(at)).max(hw.owes),
        };
        let here = || self.hw.iter().zip(said).enumerate();
        let here = || here().filter(|(_, (hw, _))| !hw.absent);
        let gpus = here().filter(|(_, (hw, _))| hw.is_gpu());
        let gpus: i64 = gpus.map(counts).sum();
        let cpus = here().filter(|(_, (hw, _))| !hw.is_gpu());
        let cpus: i64 = match self.budget_set() {
            Some(_) => cpus.map(|(_, it)| came_with(it)).sum(),
            None => cpus.map(counts).sum(),
        };
        let budget = self.budget_set().map_or(gpus, micro);
        let steering = self.policy() != Policy::Observe && self.stop_sent.is_none();
        if let Some(safe) = self.left_within() {
            // A foreign limit on a CPU socket keeps no other device from being restored.
            let theirs =
                |(hw, said): &(&Hw, &Said)| !hw.is_gpu() && said.state == DeviceState::Foreign;
            let more = |(hw, said): (&Hw, &Said)| (hw.cap - came_with((hw, said))).max(0);
            let more: i64 = all().filter(theirs).map(more).sum();
            return self.room_left(micro(safe), said) + cpus + more;
        }
        let unwaited = self.unwaited(said).unwrap_or_default();
        if steering {
            return (budget + cpus).max(unwaited);
        }
        if self.enforces() {
            return self.accepted().map_or(budget, micro) + cpus;
        }
        // Where litd lets go, others' caps are their own business.
        let known = self.recovered();
        let theirs = |(at, (hw, said)): (usize, (&Hw, &Said))| {
            let known = &known.entries;
            let known = known.iter().any(|it| it.address == hw.identity.address);
            let owed = known || !hw.hand.failed.is_empty();
            let theirs = said.state == DeviceState::Foreign || !owed;
            match theirs {
                true => came_with((hw, said)).max(hw.cap),
                // Nobody's undo waits for a device that can't be asked what it holds, or does not obey.
                false if !hw.is_judged() || !hw.looked_at || said.state == DeviceState::Faulty => {
                    came_with((hw, said)).max(self.weight(at))
                }
                false => came_with((hw, said)),
            }
        };
        (budget + cpus).max(here().map(theirs).sum()).max(unwaited)
    }

    pub(super) fn excess(&self) -> i64 {
        let now = self.now;
        // A device that is let go of is not read. That it may be reset is what a GPU was let go of for, and
        // what a budget that was set has to leave room for, until the daemon stops: undo waits for nobody.
        let gives_back = self.stop_sent.is_some() && self.left_within().is_none();
        let bound = !gives_back && self.budget_set().is_some();
        let unseen = |hw: &Hw| {
            let default = hw.range_told.map(|range| micro(range.default));
            // A device that litd has closed because it is off is not read either, and not expected to be reset.
            let changed = hw.cap != hw.known;
            let by_mode = changed && !hw.hold.open && !hw.let_go && self.is_leaving();
            let more = !bound || !hw.is_gpu() || default.is_none_or(|default| hw.cap > default);
            by_mode || hw.let_go && more
        };
        let counts = |&&(device, until, _): &&(usize, i64, i64)| {
            let hw = &self.hw[device];
            now < until || now < hw.trouble_until || unseen(hw)
        };
        self.ledger
            .excess
            .iter()
            .filter(counts)
            .map(|(.., more)| more)
            .sum()
    }

    /// Whether there may be less than all planned clocks need: what was found is enough for all
    /// that can be known of them.
    pub(super) fn is_tight(&self, said: &[Said]) -> bool {
        // A device found below its floor has to rise to it, at others' expense.
        let rises = |at: usize| {
            let found = said[at].found;
            self.hw[at].is_gpu() && found.is_some_and(|it| it < self.bounds(at, found).floor)
        };
        if (0..self.hw.len()).any(rises) {
            return true;
        }
        // Caps that a budget had let rise above what was found come down with it, and what a planned clock needs
        // nobody has to have measured by then.
        let keeps = |at: usize| match self.hw[at].clocks_epoch == self.epoch {
            true => self.hw[at].cap,
            false => self.bounds(at, said[at].found).floor,
        };
        let gpus = (0..self.hw.len()).filter(|&at| self.hw[at].is_gpu());
        if gpus.map(keeps).sum::<i64>() > self.limit_of(said) {
            return true;
        }
        let room = self.budget_set().is_none() && self.policy() != Policy::CpuSlosh;
        !room || !self.is_calm()
    }

    pub(super) fn check_sum(&mut self, when: &str) {
        let now = self.now;
        self.ledger.old.retain(|&(until, _)| now < until);
        let sum: i64 = (0..self.hw.len())
            .map(|device| self.answered_for(device))
            .sum();
        let old = self
            .ledger
            .old
            .iter()
            .map(|&(_, limit)| limit)
            .max()
            .unwrap_or(0);
        let limit = self.limit().max(old);
        self.ledger.last_limit = Some(self.limit());
        if sum <= limit + self.excess() || self.all_low() {
            return;
        }
        let caps: Vec<f64> = self.hw.iter().map(|hw| hw.cap as f64 / 1e6).collect();
        let text = format!("{when}: {caps:?} W are more than {} W", limit as f64 / 1e6);
        self.broke("2 sum", text);
    }

    /// Whether litd could do no more: all that it may move is at its floor.
    pub(super) fn all_low(&self) -> bool {
        let Some(said) = self.all_said() else {
            return true;
        };
        // litd gives what driver units leave of the sum to whom it likes.
        let units: i64 = self
            .hw
            .iter()
            .map(|hw| micro(hw.range.resolution).max(1))
            .sum();
        let low = |(device, said): (usize, &Said)| {
            let hw = &self.hw[device];
            let movable = said.state == DeviceState::Ours && self.now >= hw.trouble_until;
            // An excused one is answered for at its floor.
            let movable = movable && !self.is_excused(device);
            if !movable || said.found.is_none() || !hw.is_gpu() && !self.lends(device, said) {
                return true;
            }
            hw.cap <= self.floor_known(device, said.found) + units
        };
        said.iter().enumerate().all(low)
    }

    /// Without a budget a GPU on which no job's rank ever was is lowered for nobody, whatever others hold.
    pub(super) fn check_unpaid(&mut self, device: usize, cap: i64, found: i64) {
        let hw = &self.hw[device];
        let is_lowered = hw.is_gpu() && cap < hw.cap.min(hw.known).min(found);
        let is_used = self.hooks.ranks.iter().any(|rank| rank.device == device);
        if is_lowered && !is_used && self.budget_set().is_none() {
            let text = format!("device {device} goes from {} to {cap} µW", hw.cap);
            self.broke("2 unpaid", text);
        }
    }

    /// A CPU socket is lowered for nobody where no policy has it lend its watts.
    pub(super) fn check_socket(&mut self, device: usize, cap: i64, found: i64) {
        let hw = &self.hw[device];
        let is_lowered = !hw.is_gpu() && cap < hw.cap.min(found);
        if is_lowered && self.policy() != Policy::CpuSlosh {
            let text = format!("device {device} goes from {} to {cap} µW", hw.cap);
            self.broke("2 socket", text);
        }
    }

    /// Whether a CPU socket has lent watts that a job counts on: a budget of GPUs is taken from no other socket.
    fn lends(&self, device: usize, said: &Said) -> bool {
        let lent = said.found.is_some_and(|found| self.hw[device].cap < found);
        let counts = self.status().is_some_and(|it| it.gpus.lent > Watts::ZERO);
        self.policy() == Policy::CpuSlosh && lent && counts
    }

    /// New rules hold from now on; a budget that came down has a second.
    pub fn was_reconfigured(&mut self, before: i64) {
        self.ledger.reason |= self.budget_set().is_some();
        self.ledger.old.push((self.now + LOWERED, before));
        self.ledger.nothing_lowered();
    }

    /// The budget was set: if it came down while one device is not well, the others are looked at
    /// once they have had the time to make room for it.
    pub(super) fn budget_was_set(&mut self, before: i64) {
        let at = self.now;
        let unwell = |&device: &usize| !self.hw[device].is_well(at) && !self.hw[device].absent;
        let mut unwell = (0..self.hw.len()).filter(unwell);
        let (Some(device), None) = (unwell.next(), unwell.next()) else {
            return;
        };
        // A predecessor's writes may turn up for a while.
        let young = at < self.started + ROOM;
        if self.limit() < before && !young && self.excess() == 0 {
            let failures = self.disk.with(|disk| disk.all_failures());
            self.ledger.lowered = Some(Lowered {
                at,
                device,
                failures,
            });
            self.after(WORKED_AROUND, Ev::Room { lowered: at });
        }
    }

    /// However many seconds a device hangs or refuses, the others do not wait for it: what it may
    /// still hold is theirs to make room for, down to their floors.
    pub fn check_room(&mut self, lowered: i64) {
        let it = self.ledger.lowered.filter(|it| it.at == lowered);
        let Some(Lowered {
            at,
            device,
            failures,
        }) = it
        else {
            return;
        };
        let steering = self.policy() != Policy::Observe && self.stop_sent.is_none();
        let sound = self
            .disk
            .with(|disk| disk.all_failures() == failures && !disk.is_failing());
        let stuck = self.hw[device].takes_no_write(self.now, at + ANSWER);
        if !steering || !sound || !stuck || self.hw[device].let_go {
            return;
        }
        let Some(said) = self.all_said() else { return };
        // CPU sockets that lend nothing make no room for GPUs.
        let makes_room = |other: usize| self.hw[other].is_gpu() || self.lends(other, &said[other]);
        let others = || (0..self.hw.len()).filter(|&it| it != device && makes_room(it));
        let movable = |other: usize| {
            let ours = said[other].state == DeviceState::Ours && said[other].found.is_some();
            ours && self.hw[other].is_well(self.now)
        };
        if !others().all(movable) {
            return;
        }
        let floor = |other: usize| {
            let bounds = self.bounds(other, said[other].found);
            bounds.floor + bounds.unit
        };
        let sum: i64 = others().map(|other| self.hw[other].cap).sum();
        let floors: i64 = others().map(floor).sum();
        // Of one that can't be judged nobody can know more than its journal, ranges and peers say.
        let most = match self.hw[device].is_judged() {
            true => self.hw[device].most(),
            false => self.hw[device].most().min(self.could_hold(device)),
        };
        let kept = (0..self.hw.len()).filter(|&it| it != device && !makes_room(it));
        let kept: i64 = kept.map(|it| self.hw[it].cap).sum();
        let limit = self.limit_of(&said) - kept;
        self.seen.mark(Fault::LoweredStuck);
        if sum > floors.max(limit - most) {
            let [sum, limit, most] = [sum, limit, most].map(|micro| micro as f64 / 1e6);
            let text = format!(
                "device {device} may hold {most} W of {limit} W, and the others hold {sum} W"
            );
            self.broke("2 room", text);
        }
    }
}
