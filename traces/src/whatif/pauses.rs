//! Hosts that pause now and then, one rank's in one iteration and another's in the next, as for garbage collection: none of
//! them is late for long, and together they cost much.

use std::collections::BTreeMap;

use litd_units::Nanos;
use serde::Serialize;

use super::{Saves, WhatIf};
use crate::timeline::NonMax;

/// A host pauses in an iteration in which it is later than its peers by so many times what it mostly is, and what hosts
/// mostly are: less may be chance.
const TIMES: f64 = 8.0;
/// So many of all hosts in all iterations are late by what is usual, or less. Of two that are late in turn half are more.
const USUAL: f64 = 0.6;
/// And by this share of what an iteration takes.
const MUCH: f64 = 0.02;
/// Pauses that cost less than this share of the time are not told.
const COSTS: f64 = 0.01;
/// Of fewer iterations nothing is said.
const FEW: usize = 3;

/// Hosts that pause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pauses {
    /// In which iterations that of each rank does, those that pause longest first.
    pub ranks: Vec<Paused>,
    /// By how much less the job would take without, as a share.
    pub saved: f64,
    /// Whether launches tell that it is hosts for which GPUs wait there.
    #[serde(skip)]
    pub launches: bool,
}

/// The host of one rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Paused {
    /// The rank.
    pub rank: u32,
    /// Where its host pauses.
    pub iterations: Vec<u32>,
    /// How long it is late there, in nanoseconds; the longest.
    pub longest_ns: Nanos,
}

/// Looks for iterations in which the host of a rank is late and mostly is not.
pub(super) fn find(job: &WhatIf<'_>) -> Option<Pauses> {
    let mut hosts = Vec::new();
    for (at, timeline) in job.timelines.iter().enumerate() {
        let mut late = BTreeMap::<NonMax, f64>::new();
        for (place, kernel) in timeline.kernels.iter().enumerate() {
            if let Some(number) = kernel.iteration {
                *late.entry(number).or_default() += job.peers.host(at, place);
            }
        }
        hosts.push((timeline.rank, late));
    }
    let all = hosts.iter().flat_map(|(_, late)| late.values().copied());
    let usual = quantile(all, USUAL);
    let ranks = Vec::from_iter(hosts.iter().map(|(rank, late)| {
        let (longest, iterations) = paused(late, usual, job.wall);
        (*rank, longest, iterations)
    }));
    let pauses = |rank: usize, at: usize| {
        let number = job.timelines.get(rank)?.kernels.get(at)?.iteration?;
        ranks.get(rank)?.2.contains(&number).then_some(())
    };
    let host = |rank: usize, at: usize| {
        let own = pauses(rank, at).map(|()| job.peers.host(rank, at));
        own.unwrap_or(0.0)
    };
    if ranks.iter().all(|rank| rank.2.is_empty()) {
        return None;
    }
    let saved = job.replayed(&Saves {
        kernel: &|_, _| 0.0,
        host: &host,
        row: &|_| 0.0,
    });
    let saved = saved.0 as f64 / job.wall.0.max(1) as f64;
    let mut ranks = Vec::from_iter(ranks.into_iter().filter(|rank| !rank.2.is_empty()).map(
        |(rank, longest, numbers)| Paused {
            rank,
            iterations: numbers.iter().map(|number| number.get()).collect(),
            longest_ns: Nanos(longest as i64),
        },
    ));
    ranks.sort_by_key(|paused| (std::cmp::Reverse(paused.longest_ns), paused.rank));
    (saved >= COSTS).then_some(Pauses {
        ranks,
        saved,
        launches: job.ranks.iter().all(|rank| !rank.launches.is_empty()),
    })
}

/// The iterations in which a host pauses, by how late it is in each, and the longest of its pauses. None where it does so in
/// most of them: then it is late throughout.
fn paused(late: &BTreeMap<NonMax, f64>, usual: f64, wall: Nanos) -> (f64, Vec<NonMax>) {
    let count = late.len();
    // A host may pause half of the time.
    let usual = quantile(late.values().copied(), 0.25).max(usual);
    let least = MUCH * wall.0 as f64 / count.max(1) as f64;
    let pauses = late
        .iter()
        .filter(|(_, own)| **own >= least.max(TIMES * usual));
    let pauses = Vec::from_iter(pauses);
    if count < FEW || 2 * pauses.len() > count {
        return (0.0, Vec::new());
    }
    let longest = pauses.iter().map(|(_, own)| **own).fold(0.0, f64::max);
    (
        longest,
        pauses.into_iter().map(|(number, _)| *number).collect(),
    )
}

/// The value that this part of all is below.
fn quantile(values: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut values = Vec::from_iter(values);
    values.sort_by(f64::total_cmp);
    let at = (part * values.len() as f64) as usize;
    values.get(at).copied().unwrap_or(0.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_late_throughout_does_not_pause() {
        let of = |late: &[f64]| {
            let each = (0..).zip(late.iter().copied());
            let each = each.map(|(number, late): (u32, f64)| (NonMax::new(number).unwrap(), late));
            let (longest, pauses) = paused(&each.collect(), 5.0, Nanos(6_000));
            (
                longest,
                Vec::from_iter(pauses.iter().map(|number| number.get())),
            )
        };
        assert_eq!(of(&[0.0, 0.0, 500.0, 1.0, 0.0, 0.0]), (500.0, vec![2]));
        assert_eq!(
            of(&[9.0, 400.0, 8.0, 10.0, 600.0, 9.0]),
            (600.0, vec![1, 4])
        );
        assert!(of(&[500.0, 510.0, 490.0, 520.0, 500.0, 500.0]).1.is_empty());
        // In most of all.
        assert!(of(&[0.0, 500.0, 0.0, 500.0, 500.0, 500.0]).1.is_empty());
        // Hardly late.
        assert!(of(&[0.0, 0.0, 15.0, 0.0, 0.0, 0.0]).1.is_empty());
        assert!(of(&[0.0, 500.0]).1.is_empty());
    }
}
