//! The collectives of all processes of a user on this node, by their communicators.

use std::collections::{BTreeMap, VecDeque};

use litd_units::Nanos;

use super::{Record, Tick};

/// A collective of one rank, by the clock of its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// NCCL's name of the function.
    pub function: &'static str,
    /// How many of this function the communicator ran before.
    pub sequence: u64,
    /// The collective's size; 0 if unknown.
    pub bytes: u64,
    /// When the rank came to it.
    pub start: Nanos,
    /// When it ended there.
    pub end: Nanos,
}

/// The newest collectives of each rank, by communicator. Communicators of different users must not come together: a
/// hash is what a process says it is.
#[derive(Debug, Clone, Default)]
pub struct Communicators {
    of: BTreeMap<u64, BTreeMap<u32, VecDeque<Record>>>,
    /// Collectives in it.
    kept: usize,
}

impl Communicators {
    /// Ranks of all communicators that are kept.
    pub const MOST_RANKS: usize = 4096;
    /// Collectives of one rank that are kept: those of some seconds.
    pub const MOST_OF_RANK: usize = 1 << 13;
    /// Collectives that are kept in all: 14 MiB.
    pub const MOST: usize = 1 << 17;

    /// Takes what was read. What is of no use is left out: collectives whose end was not seen, and those for which
    /// there is no room until others [are forgotten](Self::forget_before).
    pub fn add(&mut self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            let known = self.of.get(&record.communicator);
            let is_known = known.is_some_and(|ranks| ranks.contains_key(&record.rank));
            let has_room = self.kept < Self::MOST && (is_known || self.ranks() < Self::MOST_RANKS);
            if !record.is_whole() || record.rank >= record.ranks || !has_room {
                continue;
            }
            let ranks = self.of.entry(record.communicator).or_default();
            let kept = ranks.entry(record.rank).or_default();
            kept.push_back(record);
            match kept.len() > Self::MOST_OF_RANK {
                true => drop(kept.pop_front()),
                false => self.kept += 1,
            }
        }
    }

    fn ranks(&self) -> usize {
        self.of.values().map(BTreeMap::len).sum()
    }

    /// Forgets what was handed over before this moment of `CLOCK_MONOTONIC`, and communicators that have nothing newer.
    pub fn forget_before(&mut self, moment: u64) {
        for ranks in self.of.values_mut() {
            for kept in ranks.values_mut() {
                kept.retain(|it| it.enqueued >= moment);
            }
            ranks.retain(|_, kept| !kept.is_empty());
        }
        self.of.retain(|_, ranks| !ranks.is_empty());
        let each = self.of.values().flat_map(BTreeMap::values);
        self.kept = each.map(VecDeque::len).sum();
    }

    /// When the newest of all was handed over, by `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        let each = self.of.values().flat_map(BTreeMap::values);
        each.filter_map(|kept| Some(kept.back()?.enqueued)).max()
    }

    /// The communicators with two ranks or more on this node, and the newest collective of each.
    pub fn shared(&self) -> impl Iterator<Item = (u64, &Record)> {
        let shared = self.of.iter().filter(|(_, ranks)| ranks.len() > 1);
        shared.filter_map(|(&communicator, ranks)| {
            let newest = ranks.values().filter_map(|kept| kept.back());
            Some((communicator, newest.max_by_key(|it| it.enqueued)?))
        })
    }

    /// The collectives of a communicator that were handed over from one moment of `CLOCK_MONOTONIC` until before
    /// another, by rank. A rank is left out if the unit of its GPU's clock is not known yet.
    #[must_use]
    pub fn within(&self, communicator: u64, from: u64, until: u64) -> BTreeMap<u32, Vec<Timed>> {
        let ranks = self.of.get(&communicator).into_iter().flatten();
        let timed = ranks.filter_map(|(&rank, kept)| {
            let tick = Tick::of(kept.iter())?;
            let window = kept
                .iter()
                .filter(|it| (from..until).contains(&it.enqueued));
            let timed = window.filter_map(|record| {
                Some(Timed {
                    function: record.function.name(),
                    sequence: record.sequence,
                    bytes: record.bytes,
                    start: tick.times(record.start?)?,
                    end: tick.times(record.stop?)?,
                })
            });
            Some((rank, timed.collect()))
        });
        timed.collect()
    }
}
