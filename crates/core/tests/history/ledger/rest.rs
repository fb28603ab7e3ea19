//! Rule 24: a node that is left in peace comes to rest. Where for ten seconds nothing was wrong and the targets were
//! the same, each device that litd may move holds its target.
//!
//! The targets are worked out here from what devices were found with, the budget, and what loops ask for, and not by
//! litd's plan. Without a budget a GPU gets what its job's loop asks for, any other device what it was found with.
//! Within a budget a GPU without a loop gets no more than what the jobs' shares leave. A loop's share is what its GPUs
//! would hold if no job ran, and its part of what nobody would hold then.
//!
//! The rule is silent where other devices' targets depend on a device that litd may not move or whose power can't be
//! seen to follow its cap, on planned clocks, on a trial, or on the watts of CPU sockets.

use std::collections::BTreeMap;

use litd_api::{DeviceState, Mode};
use litd_core::Core;
use litd_policies::Policy;
use litd_power::ReadBack;

use super::{Bounds, Said, ramp};
use crate::hardware::{Hw, SECOND, Tells, micro, whole};
use crate::let_go::LATE;
use crate::matrix::Phase;
use crate::world::World;

/// After so long in peace devices hold their targets: litd reads once a second, writes what is lowered, waits for its
/// power to follow (5 s at most), and tries what failed once more.
const REACHED: i64 = 10 * SECOND;

/// What the rule was looked at for, in any history.
pub const LOOKED_AT: [&str; 3] = [
    "a node came to rest",
    "a node came to rest within a budget that takes something from it",
    "a node came to rest with a loop that asks for other caps than those found",
];

/// The model's memory of a node in peace.
#[derive(Debug, Default)]
pub struct Rest {
    /// The targets as worked out last, and since when they are these.
    targets: Option<(Vec<Option<i64>>, i64)>,
    /// Whether the rule was looked at, as [`LOOKED_AT`] names it.
    pub looked_at: [bool; 3],
}

/// The targets of all devices, in µW; none for a device that is left alone.
struct Targets {
    each: Vec<Option<i64>>,
    /// Whether a budget takes something from what was found.
    is_bound: bool,
    /// Whether a loop asks for another cap than the one found.
    is_asked: bool,
}

impl World {
    /// Twice a second: whether the node is at rest, if it has been left in peace.
    pub fn check_rest(&mut self) {
        let now = self.now;
        let Some(targets) = self.targets_in_peace() else {
            self.ledger.rest.targets = None;
            return;
        };
        let since = match self.ledger.rest.targets.take() {
            Some((same, since)) if same == targets.each => since,
            _ => now,
        };
        self.ledger.rest.targets = Some((targets.each.clone(), since));
        if now < since.max(self.disturbed()) + REACHED {
            return;
        }
        let looked_at = [true, targets.is_bound, targets.is_asked];
        for (seen, is) in self.ledger.rest.looked_at.iter_mut().zip(looked_at) {
            *seen |= is;
        }
        // What driver units leave of a budget litd gives to whom it likes.
        let units: i64 = self.known().filter(|hw| hw.is_gpu()).map(unit).sum();
        let slack = if targets.is_bound { units } else { 1 };
        let away = self.here.iter().find_map(|&device| {
            let (hw, target) = (&self.hw[device], targets.each[device]?);
            let is_there = (hw.cap - target).abs() <= slack;
            (!is_there).then_some((device, hw.cap, target))
        });
        if let Some((device, cap, target)) = away {
            let [cap, target] = [cap, target].map(whole);
            let caps: Vec<i64> = self.hw.iter().map(|hw| hw.cap).collect();
            let all = &targets.each;
            let text = format!(
                "device {device} holds {cap}, and its target is {target}: {caps:?} of {all:?} µW"
            );
            self.broke("24 at rest", text);
        }
    }

    /// Until when a stop waits for a node that would come to rest by then.
    pub fn rests_by(&self) -> Option<i64> {
        self.targets_in_peace()?;
        Some(self.disturbed() + REACHED + SECOND)
    }

    /// When something has last disturbed the node that ends by itself.
    fn disturbed(&self) -> i64 {
        let now = self.now;
        let ledger = &self.ledger;
        let short = ledger.braked_until.max(self.ledger.node.short_until());
        let mut last = [
            self.started,
            ledger.jumped,
            ledger.unsure_until,
            ledger.last_hand,
            // By the daemon's clock.
            if short > 0 { short - self.skew } else { 0 },
        ]
        .into_iter()
        .max()
        .unwrap_or_default();
        for hw in self.known() {
            last = last.max(hw.trouble_until).max(hw.excused_until);
        }
        // The others make room for a write that failed, that a foreign hand has replaced, or that was a predecessor's:
        // it may still be done.
        if self.budget_set().is_some() {
            let failed = self
                .known()
                .filter_map(|hw| hw.not_done_at.max(hw.failed_at));
            let before = (self.life == Phase::Recovery).then_some(self.started);
            let hand = (ledger.last_hand > 0).then_some(ledger.last_hand);
            let late = failed.chain(before).chain(hand);
            let late = late.map(|at| at + LATE + ramp::RESTS);
            last = late.fold(last, i64::max);
        }
        match self.is_climbing() {
            true => now,
            false => last,
        }
    }

    /// The targets of all devices, if nothing is wrong that does not end by itself.
    fn targets_in_peace(&self) -> Option<Targets> {
        let core = self.core.as_ref()?;
        let status = self.status()?;
        let leaves = self.stop_sent.is_some() || self.mode() == Mode::Off;
        let life = self.life == Phase::Restore;
        let is_tried = status.jobs.iter().any(|job| job.trial.is_some());
        let planned = self
            .hooks
            .ranks
            .iter()
            .any(|rank| rank.planned && rank.session.is_some());
        let locked = self.hw.iter().any(|hw| hw.clocks.is_some());
        let lends = self.policy() == Policy::CpuSlosh && !status.jobs.is_empty();
        let unsure = self.ledger.rotten || self.disk.with(|disk| disk.is_failing());
        if leaves || life || is_tried || planned || locked || lends || unsure {
            return None;
        }
        let said = self.all_said()?;
        let free = |&device: &usize| self.is_free(device, &said[device]);
        if !self.here.iter().all(free) {
            return None;
        }
        self.targets(core, &said)
    }

    /// Whether a device is litd's to move, and can be told what to hold.
    fn is_free(&self, device: usize, said: &Said) -> bool {
        let hw = &self.hw[device];
        let by_hand = hw.hand.open.is_some() || !hw.hand.failed.is_empty();
        let theirs = hw.let_go || hw.foreign || said.state != DeviceState::Ours;
        // The watts of a GPU that shows its cap by nothing are given to nobody.
        let silent = hw.tells == Tells::Nothing && hw.identity.read_back == ReadBack::MayBeCached;
        let told = hw.range_told == Some(hw.range) && hw.is_judged() && !hw.shrunk && !silent;
        let found = said.found.is_some_and(|found| hw.natural.contains(&found));
        told && found && hw.looked_at && !hw.gone && !by_hand && !theirs
    }

    fn targets(&self, core: &Core<crate::disk::Disk>, said: &[Said]) -> Option<Targets> {
        let found = |device: usize| said[device].found.unwrap_or_default();
        let mut each = vec![None; self.hw.len()];
        let watches = self.policy() == Policy::Observe;
        let budget = self.budget_set().map(micro);
        for &device in &self.here {
            // Where litd only watches it puts back what it has moved, and nothing else.
            let is_owed = !watches || budget.is_some() || self.is_in_journal(device);
            each[device] = is_owed.then(|| found(device));
        }
        let asks: Vec<Vec<(usize, i64)>> = core
            .asked_by_loops()
            .into_iter()
            .map(|job| {
                let known = job.into_iter();
                known
                    .filter_map(|(it, cap)| Some((*self.here.get(it.0)?, micro(cap))))
                    .collect()
            })
            .collect();
        let is_bound = budget.is_some_and(|budget| self.share_out(budget, &asks, said, &mut each));
        let mut is_asked = false;
        for (device, cap) in asks.into_iter().flatten() {
            is_asked |= cap != found(device);
            each[device] = Some(cap);
        }
        Some(Targets {
            each,
            is_bound,
            is_asked,
        })
    }

    /// GPUs without a loop share what the jobs leave of a budget. Returns whether the budget is less than was found.
    fn share_out(
        &self,
        budget: i64,
        asks: &[Vec<(usize, i64)>],
        said: &[Said],
        each: &mut [Option<i64>],
    ) -> bool {
        let found = |device: usize| said[device].found.unwrap_or_default();
        let gpus = self.here.iter().copied().filter(|&it| self.hw[it].is_gpu());
        let gpus: Vec<usize> = gpus.collect();
        // A loop raises a GPU that was found below its floor; without one it stays there.
        let floor = |device: usize| self.bounds(device, said[device].found).floor;
        let alone = self.divided(budget, &gpus, said, floor);
        let over = (budget - alone.values().sum::<i64>()).max(0);
        let share = |job: &Vec<(usize, i64)>| {
            let own = || job.iter().filter_map(|(device, _)| alone.get(device));
            own().sum::<i64>() + over * own().count() as i64 / gpus.len().max(1) as i64
        };
        let taken: i64 = asks.iter().map(share).sum();
        let asked = |device: &usize| asks.iter().flatten().any(|it| it.0 == *device);
        let idle: Vec<usize> = gpus.iter().copied().filter(|it| !asked(it)).collect();
        for (device, cap) in self.divided(budget - taken, &idle, said, found) {
            each[device] = Some(cap);
        }
        gpus.iter().map(|&it| found(it)).sum::<i64>() > budget
    }

    /// What GPUs hold within a budget if they have no loop: what was found or, where that is too much, the nearest caps
    /// that are not. A GPU that was found at its floor or below gives nothing, and counts with `low`.
    fn divided(
        &self,
        budget: i64,
        gpus: &[usize],
        said: &[Said],
        low: impl Fn(usize) -> i64,
    ) -> BTreeMap<usize, i64> {
        let mut each = BTreeMap::new();
        let mut giving = Vec::new();
        for &device in gpus {
            let found = said[device].found.unwrap_or_default();
            let bounds = self.bounds(device, Some(found));
            match found > bounds.floor {
                true => giving.push((device, found, bounds)),
                false => _ = each.insert(device, low(device)),
            }
        }
        let left = budget - each.values().sum::<i64>();
        let is_enough = giving.iter().map(|it| it.1).sum::<i64>() <= left;
        let caps = |by: i64| {
            let less = move |(device, found, bounds): &(usize, i64, Bounds)| {
                let cap = ((*found).min(bounds.ceiling) - by).max(bounds.floor);
                (*device, if is_enough { *found } else { cap })
            };
            giving.iter().map(less)
        };
        // The least by which all come down, but none below its floor.
        let (mut least, mut most) = (0, giving.iter().map(|it| it.1).max().unwrap_or(0));
        while !is_enough && least < most {
            let by = least + (most - least) / 2;
            match caps(by).map(|it| it.1).sum::<i64>() <= left {
                true => most = by,
                false => least = by + 1,
            }
        }
        each.extend(caps(least));
        each
    }
}

fn unit(hw: &Hw) -> i64 {
    micro(hw.range.resolution).max(1)
}
