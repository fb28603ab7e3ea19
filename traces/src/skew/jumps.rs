//! Clocks that jump: the collectives behind the jump end late, or early, all by the same time.

use litd_units::Nanos;
use serde::Serialize;

use super::{FEWEST, Seen, long_ones, middle_and_deviation};
use crate::timeline::Timeline;

/// A jump below this is none, in nanoseconds: collectives of one kind may end on a rank by so much
/// later than those of another.
const LEAST: f64 = 50_000.0;
/// A jump exceeds what single collectives say of it by this factor.
const FAR: f64 = 8.0;
/// Short and long collectives, and those next to the jump and all, must agree on it to this share.
const AGREE: f64 = 0.3;
/// A link would have to be slower by this factor to be taken for a jump.
const SLOW: f64 = 3.0;
/// The most jumps of one clock that are looked for.
const MOST: usize = 8;

/// A clock that jumps within the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Jump {
    /// The rank; null of two ranks, which don't tell whose clock it is.
    pub rank: Option<u32>,
    /// About when, on the clock of the traces, in nanoseconds.
    pub at_ns: Nanos,
    /// When the collectives ended between which it jumped.
    pub between_ns: [Nanos; 2],
    /// `at_ns` from the first kernel on.
    pub since_start_ns: Nanos,
    /// By how much it goes ahead, in nanoseconds; below zero it goes back. Of two ranks: that of
    /// the second, against the first.
    pub by_ns: Nanos,
    /// By how much single collectives disagree with that (median absolute deviation).
    pub uncertainty_ns: Nanos,
}

/// A jump of a rank's clock between two times, in the terms of [`Seen`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    rank: usize,
    between: [f64; 2],
    by: f64,
    off: f64,
}

/// Finds the jumps of all clocks, and takes them out of how late the collectives of each rank are.
pub(super) fn take_out(late: &mut [Vec<f64>], seen: &Seen) -> Vec<Step> {
    let mut order = Vec::from_iter(0..seen.ends.len());
    order.sort_by(|&a, &b| seen.ends[a].total_cmp(&seen.ends[b]));
    let is_long = long_ones(&seen.transfers);
    let of_kind = |long: bool| {
        order
            .iter()
            .copied()
            .filter(|&k| is_long[k] == long)
            .collect()
    };
    let kinds: [Vec<usize>; 2] = [false, true].map(of_kind);
    let mut steps = Vec::new();
    for (rank, late) in late.iter_mut().enumerate() {
        for _ in 0..MOST {
            let Some(step) = clearest(rank, &kinds, late, seen) else {
                break;
            };
            let middle = (step.between[0] + step.between[1]) / 2.0;
            for (late, end) in late.iter_mut().zip(&seen.ends) {
                if *end > middle {
                    *late -= step.by;
                }
            }
            steps.push(step);
        }
    }
    steps
}

/// The greatest jump that one kind of collectives shows and the other does not deny.
fn clearest(rank: usize, kinds: &[Vec<usize>; 2], late: &[f64], seen: &Seen) -> Option<Step> {
    let found = |at: usize| {
        let step = step(rank, &kinds[at], late, seen)?;
        agrees(&step, &kinds[1 - at], late, seen).then_some(step)
    };
    let steps = [found(0), found(1)].into_iter().flatten();
    steps.max_by(|a, b| a.by.abs().total_cmp(&b.by.abs()))
}

/// The jump that collectives of one kind show, which are given in the order of time.
fn step(rank: usize, kind: &[usize], late: &[f64], seen: &Seen) -> Option<Step> {
    let values = Vec::from_iter(kind.iter().map(|&k| late[k]));
    let at = change(&values)?;
    let (before, behind) = values.split_at(at);
    if before.len().min(behind.len()) < FEWEST {
        return None;
    }
    let ((early, off_before), (later, off_behind)) =
        (middle_and_deviation(before), middle_and_deviation(behind));
    let (by, off) = (later - early, off_before.max(off_behind));
    // A clock that drifts has no place where it jumps.
    let near = |of: &[f64]| of.len().div_ceil(8).max(FEWEST);
    let (last, first) = (
        &before[before.len() - near(before)..],
        &behind[..near(behind)],
    );
    let here = middle_and_deviation(first).0 - middle_and_deviation(last).0;
    let transfer = |of: &[usize]| {
        let transfers = of.iter().map(|&k| seen.transfers[k]);
        middle_and_deviation(&Vec::from_iter(transfers)).0
    };
    let longer = transfer(&kind[at..]) - transfer(&kind[..at]);
    let clear = by.abs() > LEAST.max(FAR * off)
        && (here - by).abs() < AGREE * by.abs()
        && by.abs() > SLOW * longer.abs();
    clear.then(|| Step {
        rank,
        between: [seen.ends[kind[at - 1]], seen.ends[kind[at]]],
        by,
        off,
    })
}

/// Whether collectives of the other kind jump as far, if there are enough to tell: a link that
/// becomes slow makes long ones later than short ones.
fn agrees(step: &Step, kind: &[usize], late: &[f64], seen: &Seen) -> bool {
    let side = |behind: bool| {
        let chosen = kind.iter().filter(|&&k| match behind {
            true => seen.ends[k] >= step.between[1],
            false => seen.ends[k] <= step.between[0],
        });
        let values = Vec::from_iter(chosen.map(|&k| late[k]));
        (values.len() >= FEWEST).then(|| middle_and_deviation(&values))
    };
    let (Some((early, off_before)), Some((later, off_behind))) = (side(false), side(true)) else {
        return true;
    };
    let off = (later - early - step.by).abs();
    off < (AGREE * step.by.abs()).max(3.0 * off_before.max(off_behind))
}

/// Where values change most: the position that parts them best by rank (Pettitt's statistic, 1979),
/// which single values that are far off do not move.
fn change(values: &[f64]) -> Option<usize> {
    let mut order = Vec::from_iter(0..values.len());
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut next = 0.0;
    for alike in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let count = alike.len() as f64;
        for &at in alike {
            ranks[at] = next + (count + 1.0) / 2.0;
        }
        next += count;
    }
    let mean = (values.len() as f64 + 1.0) / 2.0;
    let mut sum = 0.0;
    let sums = ranks.iter().map(|rank| {
        sum += rank - mean;
        f64::abs(sum)
    });
    let last = values.len().checked_sub(1)?;
    let sums = sums.take(last).enumerate();
    let (at, _) = sums.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(at + 1)
}

/// The jumps in the terms of the traces; `at` makes a time of theirs of one of [`Seen`].
pub(super) fn told(
    steps: &[Step],
    timelines: &[&Timeline],
    at: impl Fn(f64) -> Nanos,
) -> Vec<Jump> {
    let starts = timelines
        .iter()
        .filter_map(|timeline| timeline.kernels.first());
    let start = starts.map(|kernel| kernel.start).min().unwrap_or_default();
    let several = timelines.len() > 2;
    // Of two ranks each is half as far from the middle as from the other.
    let factor = if several { 1.0 } else { 2.0 };
    let steps = steps.iter().filter(|step| several || step.rank == 1);
    let jump = |step: &Step| {
        let between = step.between.map(&at);
        let time = at((step.between[0] + step.between[1]) / 2.0);
        let rank = timelines.get(step.rank).map(|timeline| timeline.rank);
        Jump {
            rank: rank.filter(|_| several),
            at_ns: time,
            between_ns: between,
            since_start_ns: time - start,
            by_ns: Nanos((step.by * factor) as i64),
            uncertainty_ns: Nanos((step.off * factor) as i64),
        }
    };
    let mut jumps = Vec::from_iter(steps.map(jump));
    jumps.sort_by_key(|jump| jump.at_ns);
    jumps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_change() {
        assert_eq!(change(&[0.0, 1.0, 0.0, 9.0, 8.0, 9.0, 8.0]), Some(3));
        // One that is far off moves nothing.
        let mut values = [0.0, 1.0].repeat(6);
        values[4] = 900.0;
        values.extend([9.0, 8.0].repeat(3));
        assert_eq!(change(&values), Some(12));
        assert_eq!(change(&[]), None);
        assert_eq!(change(&[1.0]), None);
    }
}
