//! Whether all kernels of a rank are slower, as a slow clock makes them, or those of a few names alone: then these
//! have more to do there, and the clock is as fast as elsewhere.

use std::collections::{BTreeMap, HashMap};

use litd_diagnosis::{Cause, Verdict, median};
use litd_units::Nanos;

use super::equal;
use super::longer::more_blocks;
use super::matrix::{Matrix, layer_of};
use super::overlap::OverlapKind;
use crate::limit::{Limit, limit_of};
use crate::pace::{PACE_KERNELS, trimmed};
use crate::timeline::Timeline;

/// A name whose kernels are slower by less than this share of what all are on average is spared.
const SPARED: f64 = 0.25;
/// So many standard errors of a name's own figure are no proof that it is not spared.
const ERRORS: f64 = 2.0;
/// Where names that take this share of the time are spared it is no clock.
const MOST: f64 = 0.5;
/// Nor is it where names of this share are spared and the others are slower by so much: memory alone
/// does not spare kernels that much.
const SOME: f64 = 0.1;
const MUCH: f64 = 0.1;
/// Of fewer ranks than this the middle one is chance: then the slowest is the measure.
const FEW: usize = 4;

/// What is known of each matched kernel: what limits it, and whether its work and the communication beside it are equal on
/// all ranks, so that its length tells of the clock.
pub(super) struct Kinds {
    pub(super) limits: Vec<Option<Limit>>,
    pub(super) constant: Vec<bool>,
    /// What the ranks in the middle take for it.
    pub(super) middles: Vec<f64>,
}

/// By how much the last rank is slower in each iteration than those far ahead of it: those in which it clearly is,
/// where it is not in the others.
pub(super) fn slow_iterations(matrix: &Matrix<'_>, kinds: &Kinds, verdict: &Verdict) -> Vec<u32> {
    /// Less than this share is not slow.
    const SLOW: f64 = 0.01;
    /// Iterations that are slower by less than this part of the slowest are not, and by more than that are.
    const PARTS: [f64; 2] = [0.25, 0.5];
    let Some(last) = verdict.last else {
        return Vec::new();
    };
    let mut each = BTreeMap::<u32, Vec<f64>>::new();
    for k in kinds.following() {
        if let (Some(number), Some(theirs)) = (matrix.iteration(k), theirs(matrix, verdict, k)) {
            let own = matrix.duration(last, k).0 as f64;
            each.entry(number).or_default().push(own / theirs);
        }
    }
    let slower = each.into_iter().filter_map(|(number, mut each)| {
        let (mean, _) = trimmed(&mut each)?;
        Some((number, mean - 1.0))
    });
    let slower = Vec::from_iter(slower);
    let most = slower.iter().map(|one| one.1).fold(0.0, f64::max);
    let [less, more] = PARTS.map(|part| part * most);
    let told = most >= SLOW && slower.iter().all(|one| one.1 < less || one.1 >= more);
    let slow = slower.iter().filter(|one| one.1 >= more);
    let slow = Vec::from_iter(slow.map(|one| one.0));
    if !told || slow.len() == slower.len() {
        return Vec::new();
    }
    // Where a third of the other ranks are as slow in other iterations it is work that moves from rank to rank.
    let paces = equal::by_iteration(matrix, kinds, kinds.following());
    let elsewhere = |gpu: usize| {
        let others = paces
            .iter()
            .filter(|(number, _)| number.is_some_and(|number| !slow.contains(&number)));
        let mut paces = others.filter_map(|(_, each)| each.get(gpu));
        gpu != last && paces.any(|&pace| pace - 1.0 >= more)
    };
    let others = (0..matrix.gpus()).filter(|&gpu| elsewhere(gpu)).count();
    let moves = others > 0 && 3 * others + 1 >= matrix.gpus();
    if moves { Vec::new() } else { slow }
}

/// How long the ranks far ahead of the last one take for a kernel.
fn theirs(matrix: &Matrix<'_>, verdict: &Verdict, k: usize) -> Option<f64> {
    let ahead = verdict.ahead.iter();
    let ahead = Vec::from_iter(ahead.map(|&gpu| matrix.duration(gpu, k).0 as f64));
    let theirs = match ahead.len() < FEW {
        true => ahead.into_iter().reduce(f64::max),
        false => median(ahead),
    };
    theirs.filter(|&theirs| theirs > 0.0)
}

impl Kinds {
    pub(super) fn of(matrix: &Matrix<'_>, kinds: &[OverlapKind]) -> Self {
        // One name is looked into once; it may be long.
        let mut known = HashMap::new();
        let limit = |k| {
            let name = matrix.name(k);
            *known.entry(name).or_insert_with(|| limit_of(name))
        };
        let limits = (0..matrix.kernels()).map(limit).collect();
        let constant = |k: usize| {
            let has_length = (0..matrix.gpus()).all(|gpu| matrix.duration(gpu, k) > Nanos::ZERO);
            has_length && kinds.get(k) != Some(&OverlapKind::Varying)
        };
        let mut kinds = Self {
            limits,
            constant: (0..matrix.kernels()).map(constant).collect(),
            middles: equal::middles(matrix),
        };
        equal::only(matrix, &mut kinds);
        kinds
    }

    /// The part of its computation that each rank saves if it becomes as fast as the median one (of two ranks as the
    /// faster one), by the sums over these kernels; 0 for those that are.
    pub(super) fn saves(&self, matrix: &Matrix<'_>) -> Vec<f64> {
        let time = |gpu| {
            let kernels = (0..matrix.kernels()).filter(|&k| self.constant[k]);
            kernels.map(|k| matrix.duration(gpu, k).0 as f64).sum()
        };
        let times = matrix.column(time);
        let middle = match times[..] {
            [one, other] => f64::min(one, other),
            _ => median(times.clone()).unwrap_or(0.0),
        };
        let saved = times.into_iter().map(|time: f64| match time > middle {
            true => 1.0 - middle / time,
            false => 0.0,
        });
        saved.collect()
    }

    /// Whether any of these kernels is left.
    pub(super) fn is_empty(&self) -> bool {
        !self.constant.contains(&true)
    }

    /// The same of some iterations alone.
    pub(super) fn within(&self, matrix: &Matrix<'_>, iterations: &[u32]) -> Self {
        let within = |k| {
            matrix
                .iteration(k)
                .is_some_and(|number| iterations.contains(&number))
        };
        let constant = self.constant.iter().enumerate();
        Self {
            limits: self.limits.clone(),
            constant: constant
                .map(|(k, &constant)| constant && within(k))
                .collect(),
            middles: self.middles.clone(),
        }
    }

    pub(super) fn limited_by_memory(&self) -> impl Iterator<Item = usize> {
        let all = self.constant.iter().zip(&self.limits).enumerate();
        all.filter(|(_, (constant, limit))| **constant && **limit == Some(Limit::Memory))
            .map(|(k, _)| k)
    }

    /// The kernels that follow the clock, as far as names tell: see [`crate::pace`].
    pub(super) fn following(&self) -> impl Iterator<Item = usize> {
        let constant = || {
            let all = self.constant.iter().zip(&self.limits).enumerate();
            all.filter(|(_, (constant, _))| **constant)
                .map(|(k, (_, limit))| (k, *limit))
        };
        let named = constant().filter(|(_, limit)| *limit == Some(Limit::Compute));
        let named = named.count() >= PACE_KERNELS;
        constant()
            .filter(move |(_, limit)| match named {
                true => *limit == Some(Limit::Compute),
                false => *limit != Some(Limit::Memory),
            })
            .map(|(k, _)| k)
    }
}

/// By how many more blocks of threads the last rank's kernels are launched with than those of the ranks far ahead of it,
/// each weighed by its time: of those that follow the clock or, where `all`, of those that memory limits as well. None
/// where traces tell it of less than half of that time.
pub(super) fn more_blocks_of(
    timelines: &[Timeline],
    matrix: &Matrix<'_>,
    (kinds, all): (&Kinds, bool),
    verdict: &Verdict,
) -> Option<f64> {
    let last = verdict.last?;
    let mut names = HashMap::<&str, f64>::new();
    let also = kinds.limited_by_memory().filter(|_| all);
    for k in kinds.following().chain(also) {
        let time = matrix.duration(last, k).0 as f64;
        *names.entry(matrix.name(k)).or_default() += time;
    }
    let (mut whole, mut told, mut more) = (0.0, 0.0, 0.0);
    for (name, time) in names {
        whole += time;
        if let Some(blocks) = more_blocks(timelines, (last, &verdict.ahead), name) {
            told += time;
            more += time * blocks;
        }
    }
    (told > 0.0 && 2.0 * told >= whole).then(|| more / told)
}

/// The kernels of one name on the rank that is last, against those on the ranks far ahead of it.
#[derive(Default)]
struct Name {
    /// How long they take there.
    theirs: f64,
    /// What each of them takes, as a multiple of that.
    each: Vec<f64>,
}

/// Whether a few names alone are why the computation of the last rank takes longer: of those that follow the clock or,
/// where only what memory limits is slower, of those.
pub(super) fn few(matrix: &Matrix<'_>, kinds: &Kinds, verdict: &Verdict) -> bool {
    let compute = verdict.apart.slower_compute.unwrap_or_default();
    let by_memory = verdict.cause == Cause::DataDependent
        && verdict.apart.slower_memory > Some(2.0 * compute.max(0.0));
    few_of(matrix, kinds.following(), verdict)
        || by_memory && few_of(matrix, kinds.limited_by_memory(), verdict)
}

fn few_of(matrix: &Matrix<'_>, kernels: impl Iterator<Item = usize>, verdict: &Verdict) -> bool {
    let Some(last) = verdict.last else {
        return false;
    };
    let mut names = HashMap::<String, Name>::new();
    let mut plain = HashMap::<&str, String>::new();
    for k in kernels {
        let Some(theirs) = theirs(matrix, verdict, k) else {
            continue;
        };
        let name = plain.entry(matrix.name(k)).or_insert_with_key(|name| {
            layer_of(name).map_or_else(|| (*name).into(), |(_, name)| name)
        });
        let name = match names.get_mut(name.as_str()) {
            Some(name) => name,
            None => names.entry(name.clone()).or_default(),
        };
        name.theirs += theirs;
        name.each.push(matrix.duration(last, k).0 as f64 / theirs);
    }
    let names = names.into_values().filter_map(|mut name| {
        let (mean, error) = trimmed(&mut name.each)?;
        Some((name.theirs, mean - 1.0, error))
    });
    alone(&Vec::from_iter(names))
}

/// The same of names, each with its time, by how much it is slower and the error of that.
fn alone(names: &[(f64, f64, f64)]) -> bool {
    let whole: f64 = names.iter().map(|name| name.0).sum();
    let later: f64 = names.iter().map(|name| name.0 * name.1).sum();
    if whole <= 0.0 || later <= 0.0 {
        return false;
    }
    let is_spared = |name: &&(f64, f64, f64)| name.1 + ERRORS * name.2 < SPARED * later / whole;
    let spared = Vec::from_iter(names.iter().filter(is_spared));
    let time: f64 = spared.iter().map(|name| name.0).sum();
    let less: f64 = spared.iter().map(|name| name.0 * name.1).sum();
    let rest = (later - less) / (whole - time).max(f64::MIN_POSITIVE);
    let share = time / whole;
    share >= MOST || share >= SOME && rest >= MUCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_spared_tell_more_work_from_a_slow_clock() {
        let name = |time: f64, slower: f64| (time, slower, 0.0005);
        // A clock slows all of them, and some of them less.
        assert!(!alone(&[
            name(6.0, 0.05),
            name(3.0, 0.049),
            name(1.0, 0.02)
        ]));
        // One that memory limits, whatever its name says, does not clear the clock.
        assert!(!alone(&[name(6.0, 0.05), name(1.0, 0.0)]));
        // Longer sequences: attention takes longer, all else is equal.
        assert!(alone(&[name(9.0, 0.0), name(1.0, 0.8)]));
        // More tokens for experts.
        assert!(alone(&[name(3.0, 0.001), name(7.0, 0.6)]));
        // Too noisy to tell.
        assert!(!alone(&[(9.0, 0.0, 0.02), name(1.0, 0.15)]));
        assert!(!alone(&[name(9.0, 0.0)]));
        assert!(!alone(&[]));
    }
}
