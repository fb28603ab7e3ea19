//! Rule 25: a fault excuses its own device, and no other. For a while litd answers for no more of it than its floor,
//! which is the least that litd can have counted with; the sum of all other caps is checked as ever. A disk that fails
//! lowers no cap, so the limits that were in force then go on to count, as do foreign raises.
//!
//! How much of all time is excused is printed, and bounded: a rule that is excused more and more checks less and less.

use super::ROOM;
use crate::world::World;

/// How many looks found a device, or a node, excused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Excused {
    /// Looks at a device, and those that found its own watts excused.
    pub devices: u64,
    pub of_devices: u64,
    /// Looks at a node, and those that found an earlier limit in force still.
    pub nodes: u64,
    pub of_nodes: u64,
}

impl Excused {
    /// The most of all devices' time that may be excused: 10.5 % of it is (`LITD_HISTORIES=10000`).
    const MOST: f64 = 0.13;
    /// The most of all nodes' time for which an earlier, higher limit may count: it does for 4.3 %.
    const MOST_OF_NODES: f64 = 0.06;

    pub fn add(&mut self, other: &Self) {
        self.devices += other.devices;
        self.of_devices += other.of_devices;
        self.nodes += other.nodes;
        self.of_nodes += other.of_nodes;
    }

    /// The shares of the time that are excused, of devices and of nodes.
    pub fn shares(&self) -> [f64; 2] {
        [(self.of_devices, self.devices), (self.of_nodes, self.nodes)]
            .map(|(part, whole)| part as f64 / whole.max(1) as f64)
    }

    /// What is excused too much, if anything.
    pub fn too_much(&self) -> Option<String> {
        let [devices, nodes] = self.shares();
        let is_too_much = devices > Self::MOST || nodes > Self::MOST_OF_NODES;
        is_too_much.then(|| {
            format!(
                "{:.1} % of the devices' time, and {:.1} % of the nodes', is excused, of {:.1} and {:.1} % at most",
                devices * 100.0,
                nodes * 100.0,
                Self::MOST * 100.0,
                Self::MOST_OF_NODES * 100.0
            )
        })
    }
}

impl World {
    /// From now on a device's own watts are excused for so long.
    pub fn excuses(&mut self, device: usize, lasts: i64) {
        let until = self.now + lasts;
        let hw = &mut self.hw[device];
        hw.excused_until = hw.excused_until.max(until);
    }

    /// Whether a device's own watts are excused.
    pub fn is_excused(&self, device: usize) -> bool {
        self.now < self.hw[device].excused_until
    }

    /// Whether any device's are, or the disk's failing is.
    pub(super) fn is_any_excused(&self) -> bool {
        let devices = 0..self.hw.len();
        self.now < self.ledger.unsure_until || devices.into_iter().any(|it| self.is_excused(it))
    }

    /// The watts of a device that litd answers for.
    pub(super) fn answered_for(&self, device: usize) -> i64 {
        let weight = self.weight(device);
        match self.is_excused(device) {
            true => weight.min(self.bounds(device, None).floor),
            false => weight,
        }
    }

    /// The disk fails: what was allowed then is allowed until a while after it has ended.
    pub(super) fn disk_excuses(&mut self) {
        let (now, until) = (self.now, self.now + ROOM);
        let limit = self.ledger.last_limit.unwrap_or(0).max(self.weights());
        let begins = now >= self.ledger.unsure_until;
        let ledger = &mut self.ledger;
        ledger.unsure_until = until;
        if begins {
            ledger.old.push((until, limit));
        }
        for (old, _) in &mut ledger.old {
            *old = until.max(*old);
        }
        for (_, old, _) in &mut ledger.excess {
            if *old > now {
                *old = until.max(*old);
            }
        }
        let held = self.hw.iter_mut().filter(|hw| hw.excused_until > now);
        held.for_each(|hw| hw.excused_until = hw.excused_until.max(until));
    }

    /// A look at what is excused.
    pub(super) fn count_excused(&mut self) {
        let excused = self.here.iter().filter(|&&it| self.is_excused(it)).count();
        let limit = self.limit();
        let is_earlier = |&(until, old): &(i64, i64)| self.now < until && old > limit;
        let is_earlier = self.ledger.old.iter().any(is_earlier);
        let devices = self.here.len();
        let counts = &mut self.ledger.excused;
        counts.devices += devices as u64;
        counts.of_devices += excused as u64;
        counts.nodes += 1;
        counts.of_nodes += u64::from(is_earlier);
    }
}
