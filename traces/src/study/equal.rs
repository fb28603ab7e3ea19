//! Which kernels have equal work on all ranks, and by how much work that moves from iteration to iteration may set ranks
//! apart by chance. Loads of experts and lengths of sequences change what a kernel takes; a clock does not do that.

use std::collections::{BTreeMap, HashMap};

use litd_diagnosis::{Marks, median};
use litd_units::Nanos;

use super::matrix::{Matrix, layer_of};
use super::names::Kinds;
use crate::limit::Limit;
use crate::pace::{PACE_KERNELS, trimmed};

/// Names whose kernels scatter by more than so many times what the steadiest ones do, and by more than this share, have
/// other work each time.
const TIMES: f64 = 4.0;
const LEAST: f64 = 0.02;
/// The steadiest names are those that take this share of the time.
const STEADY: f64 = 0.25;
/// A kernel that something held up counts as no more than this share longer.
const HELD_UP: f64 = 0.25;
/// Of fewer iterations nothing is said.
const FEW: usize = 3;

/// The kernels of one name.
#[derive(Default)]
struct Name {
    kernels: Vec<usize>,
    time: f64,
    /// By how much one of them differs from the others, relative to the other ranks: a standard deviation.
    scatter: f64,
}

/// Leaves only kernels whose names have equal work on all ranks, as far as their times tell.
pub(super) fn only(matrix: &Matrix<'_>, kinds: &mut Kinds) {
    for limit in [Some(Limit::Compute), Some(Limit::Memory), None] {
        let mut names = HashMap::<String, Name>::new();
        let mut plain = HashMap::<&str, String>::new();
        for k in (0..matrix.kernels()).filter(|&k| kinds.constant[k] && kinds.limits[k] == limit) {
            let name = plain.entry(matrix.name(k)).or_insert_with_key(|name| {
                layer_of(name).map_or_else(|| (*name).into(), |(_, name)| name)
            });
            let name = match names.get_mut(name.as_str()) {
                Some(name) => name,
                None => names.entry(name.clone()).or_default(),
            };
            name.kernels.push(k);
            name.time += kinds.middles[k];
        }
        let mut names = Vec::from_iter(names.into_values());
        // Too few to tell.
        names.retain(|name| name.kernels.len() >= PACE_KERNELS);
        for name in &mut names {
            name.scatter = scatter(matrix, &kinds.middles, &name.kernels);
        }
        names.sort_by(|a, b| a.scatter.total_cmp(&b.scatter));
        let whole: f64 = names.iter().map(|name| name.time).sum();
        let mut before = 0.0;
        let steady = names.iter().find(|name| {
            before += name.time;
            before >= STEADY * whole
        });
        let most = steady.map_or(0.0, |name| (TIMES * name.scatter).max(LEAST));
        for name in names.iter().filter(|name| name.scatter > most) {
            for &k in &name.kernels {
                kinds.constant[k] = false;
            }
        }
    }
}

/// By how much kernels of one name differ from each other on a rank, where each is measured by the other ranks.
fn scatter(matrix: &Matrix<'_>, middles: &[f64], kernels: &[usize]) -> f64 {
    let of = |gpu| {
        let each = kernels.iter().filter_map(|&k| {
            let middle = middles[k];
            (middle > 0.0).then(|| matrix.duration(gpu, k).0 as f64 / middle)
        });
        let mut each = Vec::from_iter(each);
        let count = each.len() as f64;
        let (mean, error) = trimmed(&mut each)?;
        // The deviation that the error was made of.
        Some(error * (0.94 * count).sqrt() / mean)
    };
    let each = matrix.column(of).into_iter().flatten();
    median(each.collect()).unwrap_or(0.0)
}

/// What the ranks take for each kernel: the lower of those in the middle, so that of two ranks a slow one spoils no
/// measure of the other.
pub(super) fn middles(matrix: &Matrix<'_>) -> Vec<f64> {
    let middle = |k| {
        let mut times = matrix.column(|gpu| matrix.duration(gpu, k));
        times.sort_unstable();
        let middle = times.len().saturating_sub(1) / 2;
        times.get(middle).copied().unwrap_or(Nanos::ZERO).0 as f64
    };
    (0..matrix.kernels()).map(middle).collect()
}

/// How long each rank takes for some kernels against what the ranks in the middle take, iteration by iteration.
pub(super) fn by_iteration(
    matrix: &Matrix<'_>,
    kinds: &Kinds,
    kernels: impl Iterator<Item = usize>,
) -> BTreeMap<Option<u32>, Vec<f64>> {
    let mut sums = BTreeMap::<Option<u32>, (f64, Vec<f64>)>::new();
    for k in kernels {
        let middle = kinds.middles[k];
        let sum = sums.entry(matrix.iteration(k));
        let (whole, each) = sum.or_insert_with(|| (0.0, vec![0.0; matrix.gpus()]));
        *whole += middle;
        for (gpu, sum) in each.iter_mut().enumerate() {
            let time = matrix.duration(gpu, k).0 as f64;
            *sum += time.clamp(middle * (1.0 - HELD_UP), middle * (1.0 + HELD_UP));
        }
    }
    let paces = sums.into_iter().filter(|(_, (whole, _))| *whole > 0.0);
    let pace = |(number, (whole, each)): (_, (f64, Vec<f64>))| {
        (number, each.into_iter().map(|sum| sum / whole).collect())
    };
    paces.map(pace).collect()
}

/// Makes marks no surer than iterations allow: where work moves from rank to rank, the other ranks' paces differ from one
/// iteration to the next, and so may this one's.
pub(super) fn add_chance(marks: &mut [Marks], matrix: &Matrix<'_>, kinds: &Kinds) {
    let errors = [
        chance(&by_iteration(matrix, kinds, kinds.following())),
        chance(&by_iteration(matrix, kinds, kinds.limited_by_memory())),
    ];
    let [compute, memory] = errors;
    for (at, mark) in marks.iter_mut().enumerate() {
        let more = |error: Option<f64>, chance: &[f64]| {
            let chance = chance.get(at).copied().unwrap_or(0.0);
            error.map(|error| error.max(chance))
        };
        mark.uncertainty = more(mark.uncertainty, &compute);
        mark.uncertainty_memory = more(mark.uncertainty_memory, &memory);
    }
}

/// Of each rank what its mean pace may be off by, from how the others' paces differ between iterations.
fn chance(paces: &BTreeMap<Option<u32>, Vec<f64>>) -> Vec<f64> {
    let count = paces.len() as f64;
    if paces.len() < FEW {
        return Vec::new();
    }
    let ranks = paces.values().map(Vec::len).min().unwrap_or(0);
    let variance = |rank: usize| {
        let own = || paces.values().filter_map(|each| each.get(rank));
        let mean = own().sum::<f64>() / count;
        own().map(|pace| (pace - mean).powi(2)).sum::<f64>() / (count - 1.0)
    };
    let variances = Vec::from_iter((0..ranks).map(variance));
    let all: f64 = variances.iter().sum();
    let others = ranks.saturating_sub(1).max(1) as f64;
    let error = |own: &f64| ((all - own).max(0.0) / others / count).sqrt();
    variances.iter().map(error).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_between_ranks_makes_no_pace_sure() {
        let paces = |of: [[f64; 4]; 4]| {
            let each = (0..)
                .zip(of)
                .map(|(number, each)| (Some(number), each.into()));
            chance(&each.collect())
        };
        // One rank throttles: the others are steady.
        let one = paces([
            [1.0; 4],
            [1.0; 4],
            [1.1, 1.0, 1.0, 1.0],
            [1.1, 1.0, 1.0, 1.0],
        ]);
        assert!(one[0] < 1e-9 && one[1] > 0.01, "{one:?}");
        // Each in turn has more work.
        let mut turns = [[1.0; 4]; 4];
        for (at, each) in turns.iter_mut().enumerate() {
            each[at] = 1.2;
        }
        let turns = paces(turns);
        assert!(turns.iter().all(|error| *error > 0.04), "{turns:?}");
        assert!(chance(&BTreeMap::new()).is_empty());
    }
}
