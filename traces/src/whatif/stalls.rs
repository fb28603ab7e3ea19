//! Iterations in which the hosts of all ranks are late together, as when they all wait for a file system.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Saves, WhatIf};
use crate::timeline::NonMax;

/// Hosts stall that take so many times as long as mostly.
const TIMES: f64 = 2.0;
/// Stalls that cost less than this share of the time are not told.
const COSTS: f64 = 0.01;
/// Of fewer iterations nothing is said.
const FEW: usize = 3;

/// Iterations in which all hosts are late.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stall {
    /// Their numbers.
    pub iterations: Vec<u32>,
    /// How many times as long as in the others hosts take there.
    pub times: f64,
    /// By how much less the job would take without, as a share.
    pub saved: f64,
}

/// Looks for iterations in which what all hosts do alike takes longer than it mostly does.
pub(super) fn find(job: &WhatIf<'_>) -> Option<Stall> {
    let mut pauses = BTreeMap::<NonMax, Vec<f64>>::new();
    for (rank, timeline) in job.timelines.iter().enumerate() {
        for (at, kernel) in timeline.kernels.iter().enumerate() {
            let pause = job.peers.common(rank, at);
            if let Some(number) = kernel.iteration.filter(|_| pause > 0.0) {
                pauses.entry(number).or_default().push(pause);
            }
        }
    }
    if pauses.len() < FEW {
        return None;
    }
    let sum = |pauses: &Vec<f64>| pauses.iter().sum::<f64>();
    let usual = litd_diagnosis::median(pauses.values().map(sum).collect())?;
    let times = pauses
        .iter()
        .map(|(number, own)| (*number, sum(own) / usual.max(1.0)));
    let stalls = Vec::from_iter(times.filter(|one| one.1 >= TIMES));
    if stalls.is_empty() || 2 * stalls.len() >= pauses.len() {
        return None;
    }
    // The longest pauses are what is not usual.
    let limit = |number: NonMax| Some((number, limit(pauses.get(&number)?, usual)));
    let limits = stalls.iter().filter_map(|stall| limit(stall.0));
    let limits = BTreeMap::<NonMax, f64>::from_iter(limits);
    let host = |rank: usize, at: usize| {
        let kernel = job.timelines.get(rank).and_then(|one| one.kernels.get(at));
        let limit = kernel.and_then(|kernel| limits.get(&kernel.iteration?));
        limit.map_or(0.0, |limit| (job.peers.common(rank, at) - limit).max(0.0))
    };
    let saved = job.replayed(&Saves {
        kernel: &|_, _| 0.0,
        host: &host,
        row: &|_| 0.0,
    });
    let saved = saved.0 as f64 / job.wall.0.max(1) as f64;
    (saved >= COSTS).then(|| Stall {
        iterations: stalls.iter().map(|stall| stall.0.get()).collect(),
        times: stalls.iter().map(|stall| stall.1).fold(1.0, f64::max),
        saved,
    })
}

/// How long no pause may be for all of them to take so long together.
fn limit(pauses: &[f64], together: f64) -> f64 {
    let mut pauses = pauses.to_vec();
    pauses.sort_by(f64::total_cmp);
    let mut shorter = 0.0;
    for (at, pause) in pauses.iter().enumerate() {
        let rest = (pauses.len() - at) as f64;
        if shorter + pause * rest > together {
            return (together - shorter).max(0.0) / rest;
        }
        shorter += pause;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::limit;

    #[test]
    fn the_longest_pauses_are_cut_first() {
        let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
        close(limit(&[100.0, 1.0, 2.0, 1.0], 6.0), 2.0);
        close(limit(&[8.0, 8.0], 4.0), 2.0);
        assert!(limit(&[1.0, 1.0], 4.0).is_infinite());
    }
}
