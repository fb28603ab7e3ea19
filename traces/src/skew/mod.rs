//! Clock skew between GPUs. All-reduce, all-gather and reduce-scatter end on all ranks within
//! microseconds of each other, so a rank whose collectives all end late by the same time has a
//! clock that is ahead. (A broadcast ends on each rank at its own time and tells nothing.) A link
//! that is slow makes collectives late too, but long ones later than short ones. A clock that
//! jumps makes those behind the jump late, long and short ones alike.

mod jumps;
mod parts;
#[cfg(feature = "recorded")]
mod stages;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use litd_diagnosis::median;
use litd_units::Nanos;
use serde::Serialize;

use crate::timeline::{Kernel, NonMax, Timeline};
pub use jumps::Jump;
#[cfg(feature = "recorded")]
pub use stages::{Clocks, SetRight, set_right};

/// Fewer collectives than this say nothing.
const FEWEST: usize = 5;
/// Fewer say nothing at all: one alone agrees with itself whatever it says.
const FEWEST_OF_FEW: usize = 2;
/// A skew below this is none, in nanoseconds: collectives end that far apart.
const LEAST: f64 = 1_000.0;
/// A skew must exceed the collectives' disagreement about it by this factor.
const CLEAR: f64 = 3.0;

/// What the ends of collectives say.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Skew {
    /// Whether enough collectives told; else there are no lists.
    pub estimated: bool,
    /// Synchronising collectives that all ranks ran.
    pub collectives: usize,
    /// By how much each rank's clock is ahead of the median rank's, in nanoseconds.
    pub ahead_ns: Vec<Nanos>,
    /// By how much single collectives disagree with that (median absolute deviation).
    pub uncertainty_ns: Vec<Nanos>,
    /// Whether it was taken out of the rank's times.
    pub removed: Vec<bool>,
    /// By how much each rank's collectives take longer than the median rank's after all have
    /// arrived, as a share: a slow link.
    pub link_slowness: Vec<f64>,
    /// From the last arrival to the end, median over collectives, in nanoseconds.
    pub transfer_ns: Nanos,
    /// Whether all ranks were recorded by one profiler on one machine, so that their times are of
    /// one clock whatever collectives tell.
    #[serde(skip)]
    pub one_clock: bool,
    /// Clocks that jump within the recording; what is said of their skew holds before that. They
    /// are reported and left as they are: which kernels ran before a jump is not known.
    pub jumps: Vec<Jump>,
}

/// A collective that ends everywhere at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sync {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

/// Estimates the skew, and takes it out of the timelines where it is clear.
pub(crate) fn remove(timelines: &mut [Timeline]) -> Skew {
    let skew = of_timelines(timelines);
    let each = timelines.iter_mut().zip(&skew.ahead_ns).zip(&skew.removed);
    for ((timeline, &ahead), _) in each.filter(|(_, removed)| **removed) {
        timeline.shift(Nanos::ZERO - ahead);
    }
    skew
}

/// What the collectives of timelines say.
pub(crate) fn of_timelines(timelines: &[Timeline]) -> Skew {
    let lists = lists(timelines);
    let all = rows(&lists);
    let skew = match all.suffice() {
        true => of_rows(&all, &Vec::from_iter(timelines)),
        false => parts::skew(&lists, timelines).unwrap_or_else(|| all.too_few()),
    };
    Skew {
        one_clock: have_one_clock(timelines),
        ..skew
    }
}

/// What collectives say that all of these timelines ran, and which clocks jump.
fn of_rows(all: &Rows, timelines: &[&Timeline]) -> Skew {
    let seen = Seen::of(all);
    let late = (0..all.ranks).map(|rank| seen.late(all, rank));
    let mut late = Vec::from_iter(late);
    let steps = jumps::take_out(&mut late, &seen);
    let mut skew = seen.skew(&late);
    skew.jumps = jumps::told(&steps, timelines, |time| seen.at(all, time));
    skew
}

/// Whether the timelines are of one file that one machine wrote.
fn have_one_clock(timelines: &[Timeline]) -> bool {
    let first = timelines.first().map(|timeline| &timeline.source);
    timelines
        .iter()
        .all(|timeline| timeline.shares_clock && Some(&timeline.source) == first)
}

/// What collectives say that all ranks of a job ran. Whether a clock jumped is not looked for.
pub(crate) fn estimate(all: &Rows) -> Skew {
    if !all.suffice() {
        return all.too_few();
    }
    let seen = Seen::of(all);
    let late = (0..all.ranks).map(|rank| seen.late(all, rank));
    seen.skew(&Vec::from_iter(late))
}

/// When collectives ended and how long they took, by the median clock. Times are in nanoseconds
/// from the first end of the first rank.
struct Seen {
    ends: Vec<f64>,
    transfers: Vec<f64>,
}

impl Seen {
    fn of(all: &Rows) -> Self {
        let middle = |row: &[Sync]| {
            let ends = row.iter().map(|sync| all.since(sync.end));
            median(ends.collect()).unwrap_or(0.0)
        };
        let ends = Vec::from_iter(all.iter().map(middle));
        // How long a collective takes once all have arrived: as long as for the last to arrive, by
        // its own clock, whatever that says.
        let transfers = all.iter().map(|row| {
            let lengths = row.iter().map(|sync| sync.end - sync.start);
            lengths.min().map_or(0.0, |length| length.0 as f64)
        });
        Self {
            transfers: transfers.collect(),
            ends,
        }
    }

    /// The time on the clock of the traces.
    fn at(&self, all: &Rows, time: f64) -> Nanos {
        all.first() + Nanos(time as i64)
    }

    /// By how much each collective ended later on a rank than on the median one.
    fn late(&self, all: &Rows, rank: usize) -> Vec<f64> {
        let ends = all.iter().filter_map(|row| Some(row.get(rank)?.end));
        let late = ends
            .zip(&self.ends)
            .map(|(end, middle)| all.since(end) - middle);
        late.collect()
    }

    fn skew(&self, late: &[Vec<f64>]) -> Skew {
        let mut skew = Skew {
            estimated: true,
            collectives: self.ends.len(),
            transfer_ns: Nanos(median(self.transfers.clone()).unwrap_or(0.0) as i64),
            ..Skew::default()
        };
        for late in late {
            let slope = slope(&self.transfers, late);
            let rest = late.iter().zip(&self.transfers);
            let rest = Vec::from_iter(rest.map(|(late, t)| late - slope * t));
            let (ahead, off) = middle_and_deviation(&rest);
            skew.ahead_ns.push(Nanos(ahead as i64));
            skew.uncertainty_ns.push(Nanos(off as i64));
            skew.removed
                .push(ahead.abs() > LEAST && ahead.abs() > CLEAR * off);
            skew.link_slowness.push(slope);
        }
        skew
    }
}

/// The median of some values, and their median absolute deviation from it.
fn middle_and_deviation(values: &[f64]) -> (f64, f64) {
    let middle = median(values.to_vec()).unwrap_or(0.0);
    let off = values.iter().map(|one| (one - middle).abs());
    (middle, median(off.collect()).unwrap_or(0.0))
}

/// By how much values differ: the greatest from the least.
fn range(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most - values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Whether each transfer is longer than usual. Skew makes short and long ones late alike, a slow
/// link does not.
fn long_ones(transfers: &[f64]) -> Vec<bool> {
    let middle = median(transfers.to_vec()).unwrap_or(0.0);
    transfers.iter().map(|t| *t > middle * 1.1).collect()
}

/// By how much lateness grows with the length of a transfer: the median slope between short and
/// long ones; 0 where all are as long as each other.
fn slope(transfers: &[f64], late: &[f64]) -> f64 {
    let is_long = long_ones(transfers);
    let part = |wanted: bool| {
        let chosen = || {
            let each = transfers.iter().zip(late).zip(&is_long);
            each.filter(|(_, is_long)| **is_long == wanted)
        };
        let length = median(chosen().map(|((t, _), _)| *t).collect());
        length.zip(median(chosen().map(|((_, late), _)| *late).collect()))
    };
    match (part(false), part(true)) {
        (Some((short, early)), Some((long, late))) if long > 1.3 * short && short > 0.0 => {
            let slope = (late - early) / (long - short);
            // Less than this is what collectives differ by anyway.
            if slope.abs() > 0.01 { slope } else { 0.0 }
        }
        _ => 0.0,
    }
}

/// A rank's synchronising collectives in order, by kind and process group.
pub(crate) type Lists = BTreeMap<Key, Vec<Sync>>;
type Key = (&'static str, Option<ProcessGroup>);

/// Its name and its ranks: groups of one name and different ranks don't end together.
type ProcessGroup = (Arc<str>, Arc<[u32]>);

/// The same, with what tells them apart.
type Told = BTreeMap<Key, Vec<(Place, Sync)>>;

/// What tells a collective from others of its kind and process group.
#[derive(Debug, Clone, Copy)]
struct Place {
    sequence: Option<u64>,
    iteration: Option<NonMax>,
}

/// The synchronising collectives of each timeline. Recordings begin and end on each rank at other moments and may
/// lose kernels, so the n-th of one need not be the n-th of another: what only some ranks have is left out
/// where sequence numbers or iterations tell.
fn lists(timelines: &[Timeline]) -> Vec<Lists> {
    let mut all = Vec::from_iter(timelines.iter().map(told));
    let keys = all.iter().flat_map(|told| told.keys().cloned());
    for key in BTreeSet::from_iter(keys) {
        // A process group may be of some ranks only; without one, nothing tells which ranks those are.
        let lists = all.iter_mut().filter_map(|told| told.get_mut(&key));
        let mut lists = Vec::from_iter(lists);
        if lists.len() == timelines.len() || key.1.is_some() {
            keep_common(&mut lists);
        }
    }
    let plain = |list: Vec<(Place, Sync)>| list.into_iter().map(|(_, sync)| sync).collect();
    let plain = |told: Told| {
        told.into_iter()
            .map(|(key, list)| (key, plain(list)))
            .collect()
    };
    all.into_iter().map(plain).collect()
}

fn told(timeline: &Timeline) -> Told {
    let mut lists = Told::new();
    // There are millions of kernels, and few names.
    let mut kinds = HashMap::<&str, Option<&'static str>>::new();
    let communicates = |kernel: &&Kernel| kernel.class.communicates();
    for kernel in timeline.kernels.iter().filter(communicates) {
        let told = kernel.collective;
        let told = told.and_then(|id| timeline.collectives.get(id.0.get() as usize));
        let name = told.and_then(|collective| collective.name.as_deref());
        let name = name.unwrap_or_else(|| timeline.name_of(kernel));
        let kind = *kinds.entry(name).or_insert_with(|| ends_together(name));
        if let Some(kind) = kind {
            let group = told.and_then(|collective| {
                let name = collective.process_group.clone()?;
                Some((name, Arc::clone(&collective.ranks)))
            });
            let place = Place {
                sequence: told.and_then(|collective| collective.sequence),
                iteration: kernel.iteration,
            };
            let (start, end) = (kernel.start, kernel.end);
            let list = lists.entry((kind, group)).or_default();
            list.push((place, Sync { start, end }));
        }
    }
    lists
}

/// Leaves the collectives of one kind and process group that all ranks have, as far as their places tell.
fn keep_common(lists: &mut [&mut Vec<(Place, Sync)>]) {
    let common = lists.iter().map(|list| sequences(list));
    let common = common.reduce(|all, one| Some(&all? & &one?)).flatten();
    if let Some(common) = common.filter(|common| !common.is_empty()) {
        for list in lists {
            list.retain(|(place, _)| place.sequence.is_some_and(|it| common.contains(&it)));
            list.sort_by_key(|(place, _)| place.sequence);
        }
        return;
    }
    if lists.windows(2).all(|pair| pair[0].len() == pair[1].len()) {
        return;
    }
    let counts = Vec::from_iter(lists.iter().map(|list| {
        let mut counts = HashMap::<NonMax, usize>::new();
        for iteration in list.iter().filter_map(|(place, _)| place.iteration) {
            *counts.entry(iteration).or_default() += 1;
        }
        counts
    }));
    let alike = |iteration: &NonMax| {
        let mut counts = counts.iter().map(|counts| counts.get(iteration));
        let first = counts.next();
        counts.all(|count| Some(count) == first)
    };
    // Where a rank marks no iterations, nothing tells which of them are missing.
    if counts.iter().all(|counts| !counts.is_empty()) {
        for list in lists {
            list.retain(|(place, _)| place.iteration.as_ref().is_some_and(alike));
        }
    }
}

/// The sequence numbers of a list, if each has one of its own.
fn sequences(list: &[(Place, Sync)]) -> Option<HashSet<u64>> {
    let all = list.iter().map(|(place, _)| place.sequence);
    let all = all.collect::<Option<HashSet<u64>>>()?;
    (all.len() == list.len()).then_some(all)
}

/// The collectives that all ranks ran, one row each with an entry per rank.
pub(crate) struct Rows {
    ranks: usize,
    all: Vec<Sync>,
}

impl Rows {
    fn len(&self) -> usize {
        self.all.len() / self.ranks.max(1)
    }

    fn iter(&self) -> impl Iterator<Item = &[Sync]> {
        self.all.chunks_exact(self.ranks.max(1))
    }

    fn suffice(&self) -> bool {
        self.len() >= FEWEST && self.ranks > 1
    }

    fn too_few(&self) -> Skew {
        Skew {
            collectives: self.len(),
            ..Skew::default()
        }
    }

    /// The end that times are counted from.
    fn first(&self) -> Nanos {
        self.all.first().map_or(Nanos::ZERO, |sync| sync.end)
    }

    fn since(&self, time: Nanos) -> f64 {
        (time - self.first()).0 as f64
    }
}

/// The collectives that all ranks ran equally often.
pub(crate) fn rows(per_rank: &[Lists]) -> Rows {
    let mut all = Vec::new();
    for key in per_rank.first().into_iter().flat_map(BTreeMap::keys) {
        let lists = Vec::from_iter(per_rank.iter().filter_map(|lists| lists.get(key)));
        let count = lists.first().map_or(0, |list| list.len());
        if lists.len() == per_rank.len() && lists.iter().all(|list| list.len() == count) {
            all.extend((0..count).flat_map(|i| lists.iter().map(move |list| list[i])));
        }
    }
    Rows {
        ranks: per_rank.len(),
        all,
    }
}

/// The kind of a collective of this name whose end tells how far clocks are apart, because it is known to end on all ranks
/// within microseconds; none of others, whatever [they do](crate::collectives::kind_of): of vLLM's own all-reduce that is
/// not known.
pub(crate) fn ends_together(name: &str) -> Option<&'static str> {
    let plain = name.to_ascii_lowercase().replace('_', "");
    ["allreduce", "allgather", "reducescatter"]
        .into_iter()
        .find(|kind| plain.contains(kind))
}
