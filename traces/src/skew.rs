//! Clock skew between GPUs. All-reduce, all-gather and reduce-scatter end on all ranks within
//! microseconds of each other, so a rank whose collectives all end late by the same time has a
//! clock that is ahead. (A broadcast ends on each rank at its own time and tells nothing.) A link
//! that is slow makes collectives late too, but long ones later than short ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use litd_diagnosis::median;
use litd_units::Nanos;
use serde::Serialize;

use crate::timeline::{KernelClass, Timeline};

/// Fewer collectives than this say nothing.
const FEWEST: usize = 5;
/// A skew below this is none, in nanoseconds: collectives end that far apart.
const LEAST: f64 = 1_000.0;
/// A skew must exceed the collectives' disagreement about it by this factor.
const CLEAR: f64 = 3.0;

/// What the ends of collectives say.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Skew {
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
        shift(timeline, ahead);
    }
    skew
}

/// What the collectives of timelines say.
pub(crate) fn of_timelines(timelines: &[Timeline]) -> Skew {
    estimate(
        &rows(&Vec::from_iter(timelines.iter().map(lists))),
        timelines.len(),
    )
}

/// What collectives say that all of so many ranks ran; one row each, one entry per rank.
pub(crate) fn estimate(all: &[Vec<Sync>], ranks: usize) -> Skew {
    if all.len() < FEWEST || ranks < 2 {
        return Skew {
            collectives: all.len(),
            ..Skew::default()
        };
    }
    let middle_end = |row: &Vec<Sync>| {
        let ends = row.iter().map(|sync| (sync.end - row[0].end).0 as f64);
        median(ends.collect()).unwrap_or(0.0) + (row[0].end - all[0][0].end).0 as f64
    };
    let middles = Vec::from_iter(all.iter().map(middle_end));
    let late = |rank: usize| {
        let pairs = all.iter().zip(&middles);
        let lateness = pairs.map(|(row, middle)| (row[rank].end - all[0][0].end).0 as f64 - middle);
        Vec::from_iter(lateness)
    };
    // How long a collective takes once all have arrived, by the median clock.
    let transfers = all.iter().zip(&middles).map(|(row, middle)| {
        let arrival = row.iter().map(|sync| sync.start).max().unwrap_or_default();
        (middle - (arrival - all[0][0].end).0 as f64).max(0.0)
    });
    let transfers = Vec::from_iter(transfers);
    let mut skew = Skew {
        collectives: all.len(),
        transfer_ns: Nanos(median(transfers.clone()).unwrap_or(0.0) as i64),
        ..Skew::default()
    };
    for rank in 0..ranks {
        let late = late(rank);
        let slope = slope(&transfers, &late);
        let rest = late.iter().zip(&transfers);
        let rest = Vec::from_iter(rest.map(|(late, t)| late - slope * t));
        let ahead = median(rest.clone()).unwrap_or(0.0);
        let off = median(rest.iter().map(|one| (one - ahead).abs()).collect()).unwrap_or(0.0);
        skew.ahead_ns.push(Nanos(ahead as i64));
        skew.uncertainty_ns.push(Nanos(off as i64));
        skew.removed
            .push(ahead.abs() > LEAST && ahead.abs() > CLEAR * off);
        skew.link_slowness.push(slope);
    }
    skew
}

/// By how much lateness grows with the length of a transfer: the median slope between short and
/// long ones; 0 where all are as long as each other.
fn slope(transfers: &[f64], late: &[f64]) -> f64 {
    let Some(middle) = median(transfers.to_vec()) else {
        return 0.0;
    };
    let part = |long: bool| {
        let chosen = || {
            transfers
                .iter()
                .zip(late)
                .filter(|(t, _)| (**t > middle * 1.1) == long)
        };
        let length = median(chosen().map(|(t, _)| *t).collect());
        length.zip(median(chosen().map(|(_, late)| *late).collect()))
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

fn shift(timeline: &mut Timeline, by: Nanos) {
    for kernel in &mut timeline.kernels {
        kernel.start = kernel.start - by;
        kernel.end = kernel.end - by;
    }
    for iteration in &mut timeline.iterations {
        iteration.start = iteration.start - by;
        iteration.end = iteration.end - by;
    }
}

/// A rank's synchronising collectives in order, by kind and process group.
pub(crate) type Lists = BTreeMap<(&'static str, Option<Arc<str>>), Vec<Sync>>;

fn lists(timeline: &Timeline) -> Lists {
    let mut lists = Lists::new();
    for kernel in &timeline.kernels {
        let told = kernel.collective;
        let told = told.and_then(|id| timeline.collectives.get(id.0.get() as usize));
        let name = told.and_then(|collective| collective.name.as_deref());
        let kind = kind_of(name.unwrap_or_else(|| timeline.name_of(kernel)));
        if let (Some(kind), KernelClass::Communication) = (kind, kernel.class) {
            let group = told.and_then(|collective| collective.process_group.clone());
            let (start, end) = (kernel.start, kernel.end);
            lists
                .entry((kind, group))
                .or_default()
                .push(Sync { start, end });
        }
    }
    lists
}

/// The collectives that all ranks ran equally often, one row each.
pub(crate) fn rows(per_rank: &[Lists]) -> Vec<Vec<Sync>> {
    let mut rows = Vec::new();
    for key in per_rank.first().into_iter().flat_map(BTreeMap::keys) {
        let lists = Vec::from_iter(per_rank.iter().filter_map(|lists| lists.get(key)));
        let count = lists.first().map_or(0, |list| list.len());
        if lists.len() == per_rank.len() && lists.iter().all(|list| list.len() == count) {
            rows.extend((0..count).map(|i| lists.iter().map(|list| list[i]).collect()));
        }
    }
    rows
}

/// The kind of a collective that synchronises all ranks at its end.
pub(crate) fn kind_of(name: &str) -> Option<&'static str> {
    let plain = name.to_ascii_lowercase().replace('_', "");
    ["allreduce", "allgather", "reducescatter"]
        .into_iter()
        .find(|kind| plain.contains(kind))
}
