//! No entry leaves the journal but for a reason: its device is back, or somebody else's, or another
//! part. What a driver says of its range is none.

use litd_core::Operation;
use litd_core::journal::Entry;

use crate::hardware::{Hw, SECOND, micro};
use crate::world::World;

/// A device that can be asked again has been asked within so long.
const ASKED_AGAIN: i64 = 8 * SECOND;

/// A device that answers all that it is asked is one that litd knows, after so long.
const JUDGED: i64 = 15 * SECOND;

impl World {
    /// Entries that have gone since this was called last.
    pub fn check_kept(&mut self) {
        let removed = self.disk.with(|disk| std::mem::take(&mut disk.removed));
        for entry in removed {
            self.told_twice(&entry);
            if let Some(text) = self.wrongly_removed(&entry) {
                self.broke("17 kept", text);
            }
        }
    }

    /// A device whose driver has told of the same cap twice, and it was another's both times: nobody can
    /// tell any longer that the one it holds is litd's.
    pub fn told_twice(&mut self, entry: &Entry) {
        let mut all = self.hw.iter_mut();
        let Some(hw) = all.find(|hw| hw.identity.address == entry.address) else {
            return;
        };
        let ours = entry.ours.iter().chain([&entry.found]).map(|&it| micro(it));
        let others = hw
            .worker_saw
            .filter(|&saw| !ours.into_iter().any(|it| it == saw));
        if hw.looked_at && others.is_some_and(|saw| saw != hw.cap) {
            hw.natural.push(hw.cap);
        }
    }

    fn wrongly_removed(&self, entry: &Entry) -> Option<String> {
        let hw = self
            .hw
            .iter()
            .find(|hw| hw.identity.address == entry.address)?;
        let ours = |cap: i64| {
            let all = entry.ours.iter().chain([&entry.found]);
            all.map(|&it| micro(it)).any(|it| it == cap)
        };
        let back = [hw.cap, hw.known].contains(&micro(entry.found));
        let theirs = hw.natural.contains(&hw.cap) || !ours(hw.cap);
        let told = hw.known != i64::MIN && !ours(hw.known);
        let replaced = matches!((&entry.serial, &hw.identity.serial), (Some(a), Some(b)) if a != b);
        // The foreign cap that a late write has replaced is restored, and not the cap found before that.
        let found = micro(entry.found);
        let outdated = !hw.overwritten.is_empty() && !hw.overwritten.contains(&found);
        if back || theirs || told || replaced || outdated || self.ledger.rotten {
            return None;
        }
        Some(format!(
            "{} holds {} W, {} was found and is forgotten",
            entry.address,
            hw.cap as f64 / 1e6,
            entry.found
        ))
    }

    /// A device begins something.
    pub fn asks(&mut self, device: usize, operation: Operation) {
        let now = self.now;
        let hw = &mut self.hw[device];
        if matches!(operation, Operation::Identify | Operation::Range) {
            hw.asked_again = Some(now);
        }
    }

    /// A device that could not tell what its cap may be is asked again, and known once it tells.
    pub fn check_judged(&mut self) {
        let now = self.now;
        if self.mode() == litd_api::Mode::Off {
            // No one asks it anything until litd has it again.
            for hw in &mut self.hw {
                hw.range_unknown_since = hw.range_unknown_since.map(|_| now);
            }
            return;
        }
        if self.stop_sent.is_some() {
            return;
        }
        let Some(said) = self.all_said() else { return };
        for (device, said) in said.iter().enumerate() {
            let hw = &self.hw[device];
            let Some(since) = hw.range_unknown_since else {
                continue;
            };
            if hw.absent || hw.let_go || !hw.is_well(now) {
                continue;
            }
            let well = now - since.max(hw.trouble_until).max(self.ledger.jumped);
            let asked = hw.asked_again.is_some_and(|at| at >= since);
            if well >= ASKED_AGAIN && !asked {
                let text = format!("device {device} could tell what its cap may be");
                return self.broke("18 asked again", text);
            }
            if well >= JUDGED && said.found.is_none() {
                let text = format!("device {device} answers, and is {:?}", said.state);
                return self.broke("18 judged", text);
            }
        }
    }

    /// The most that a device which litd can't judge could hold, for all that litd can know: the
    /// largest of its entry in the journal, the last range that was told of it and the ceiling, else
    /// the highest of its peers.
    pub fn could_hold(&self, device: usize) -> i64 {
        let hw = &self.hw[device];
        let entry = self.entry(device);
        let entry = entry
            .iter()
            .flat_map(|it| it.ours.iter().chain([&it.found]));
        let entry = entry.map(|&cap| micro(cap)).max();
        let range = hw.range_told.map(|range| micro(range.highest));
        let ceiling = self.config.caps.gpu_ceiling.filter(|_| hw.is_gpu());
        let known = [entry, range, ceiling.map(micro)]
            .into_iter()
            .flatten()
            .max();
        let peers = self.known().filter(|it| it.is_gpu() == hw.is_gpu());
        let peers = peers.filter_map(|it| it.range_told);
        let peers = peers.map(|range| micro(range.highest)).max();
        known.or(peers).unwrap_or(0)
    }

    /// The watts with which a device counts in the sum: its cap, or no more than litd can know of.
    pub fn weight(&self, device: usize) -> i64 {
        let hw = &self.hw[device];
        match hw.is_judged() {
            true => hw.counts(),
            false => hw.counts().min(self.could_hold(device)),
        }
    }

    pub fn weights(&self) -> i64 {
        (0..self.hw.len()).map(|device| self.weight(device)).sum()
    }

    /// The devices that the daemon knows, in its order.
    pub fn known(&self) -> impl Iterator<Item = &Hw> {
        self.here.iter().map(|&device| &self.hw[device])
    }
}

impl Hw {
    /// Whether the daemon knows what it holds and what it may hold.
    pub fn is_judged(&self) -> bool {
        let fits = |range: litd_power::CapRange| micro(range.highest) >= self.cap;
        let told = self
            .range_told
            .filter(|_| self.range_unknown_since.is_none());
        self.known != i64::MIN && told.is_some_and(fits)
    }

    /// The daemon was told what its cap may be. A range without room for any cap tells that of none.
    pub fn has_told_range(&mut self, range: litd_power::CapRange, now: i64) {
        self.sharing_told = self.identity.sharing;
        if crate::discovery::is_unknown(&range) {
            self.range_unknown_since = self.range_unknown_since.or(Some(now));
            return;
        }
        self.highest_told = self.highest_told.max(micro(range.highest));
        self.range_told = Some(range);
        self.range_unknown_since = None;
    }
}
