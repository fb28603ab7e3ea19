//! The performance and power models of the Lit Silicon paper: section IV, equations 1 to 16.

use litd_diagnosis::median;
use litd_units::Watts;
use serde::Serialize;

use super::matrix::Matrix;

/// What the power model assumes of every GPU, and how kernels are split.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ModelOptions {
    /// What a GPU draws before anything is changed, `P_baseline` of equation 16.
    pub baseline_power: Watts,
    /// What it draws when idle, `P_idle`.
    pub idle_power: Watts,
    /// Overlap ratios of a kernel that differ by more across GPUs put it into the set V.
    pub varying_threshold: f64,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            baseline_power: Watts(700.0),
            idle_power: Watts(140.0),
            varying_threshold: 0.1,
        }
    }
}

/// What the models say of some iterations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Models {
    /// Whether clocks are what makes ranks differ, as the models suppose; else what they predict means nothing.
    pub applies: bool,
    /// The assumptions.
    #[serde(flatten)]
    pub options: ModelOptions,
    /// Kernels in the set C: their overlap is the same on all GPUs.
    pub constant: usize,
    /// Kernels in the set V: their overlap varies.
    pub varying: usize,
    /// Equation 3, in milliseconds: the computation time of the straggler.
    pub t_baseline_ms: f64,
    /// All GPUs aligned to the slowest: the policy gpu-red.
    pub max: Aligned,
    /// All GPUs aligned to the median: gpu-realloc.
    pub med: Aligned,
    /// All GPUs aligned to the fastest: cpu-slosh.
    pub min: Aligned,
    /// The part of its computation of constant overlap that each GPU saves if it is as fast as the median
    /// one, by the sums over kernels; 0 for those that are.
    #[serde(skip)]
    pub saves: Vec<f64>,
}

/// The prediction for one alignment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Aligned {
    /// The policy of the paper's Table I that aims at it.
    pub policy: &'static str,
    /// Time before / time after (equation 6); above 1 is faster.
    pub speedup: f64,
    /// Power after / power before (equations 13 and 16); below 1 is less power.
    pub node_power_ratio: f64,
    /// Power before / power after, which is Table III's figure; above 1 is less power.
    pub power_benefit: f64,
    /// The least and the greatest speed-up that single iterations predict; null with fewer than
    /// two.
    pub speedup_interval: Option<[f64; 2]>,
    /// The same of `node_power_ratio`.
    pub node_power_ratio_interval: Option<[f64; 2]>,
    /// The speed-up without what noise adds: the maximum over GPUs is taken of the sums over
    /// kernels, in which noise averages out, and not of each kernel.
    pub speedup_without_noise: f64,
    /// How much of `speedup - 1` is noise, from 0 to 1; null where nothing is predicted.
    pub noise_share: Option<f64>,
}

/// How durations of one kernel become one (equation 2).
type Aggregate = fn(&[f64]) -> f64;

/// The policies, by what they align to.
const ALIGNMENTS: [(&str, Aggregate); 3] = [
    ("gpu-red", |t| {
        t.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }),
    ("gpu-realloc", |t| median(t.to_vec()).unwrap_or(0.0)),
    ("cpu-slosh", |t| {
        t.iter().copied().fold(f64::INFINITY, f64::min)
    }),
];

/// The models on durations (any unit of time) and overlap ratios, both `[gpu][kernel]`.
///
/// Returns for each of max, med and min the speed-up, the node's power ratio (after / before) and
/// the speed-up without noise; then the sizes of C and V and the baseline time. Rows of unequal
/// length count as far as the shortest.
#[must_use]
pub fn predict(
    durations: &[Vec<f64>],
    overlaps: &[Vec<f64>],
    options: &ModelOptions,
) -> Prediction {
    let rows = durations.iter().chain(overlaps);
    let kernels = rows.map(Vec::len).min().unwrap_or(0);
    let column = |of: &[Vec<f64>], k: usize| Vec::from_iter(of.iter().map(|row| row[k]));
    let each = (0..kernels).map(|k| (column(durations, k), column(overlaps, k)));
    predict_each(durations.len(), each, options)
}

/// The same on one kernel after the other: its durations and its overlap ratios on all GPUs.
fn predict_each(
    gpus: usize,
    kernels: impl Iterator<Item = (Vec<f64>, Vec<f64>)>,
    options: &ModelOptions,
) -> Prediction {
    let [max, _, min] = ALIGNMENTS.map(|(_, aggregate)| aggregate);
    let mut of_constant = [0.0; 3];
    let mut by_order = vec![0.0; gpus];
    let mut by_gpu = vec![0.0; gpus];
    let (mut constant, mut varying, mut least_varying) = (0, 0, 0.0);
    for (mut times, overlap) in kernels {
        if max(&overlap) - min(&overlap) > options.varying_threshold {
            varying += 1;
            least_varying += min(&times);
            continue;
        }
        constant += 1;
        for (total, (_, aggregate)) in of_constant.iter_mut().zip(ALIGNMENTS) {
            *total += aggregate(&times);
        }
        for (total, time) in by_gpu.iter_mut().zip(&times) {
            *total += time;
        }
        // Equation 12: ranks of durations, not GPUs.
        times.sort_by(f64::total_cmp);
        for (total, time) in by_order.iter_mut().zip(&times) {
            *total += time;
        }
    }
    let (base, idle) = (options.baseline_power.0, options.idle_power.0);
    let aligned = |at: usize| {
        let aggregated = of_constant[at];
        let power = |time: &f64| (base - idle) / (aggregated / time) + idle;
        let power: f64 = by_order.iter().map(power).sum();
        let quiet = max(&by_gpu) / (ALIGNMENTS[at].1)(&by_gpu);
        (
            or_one(of_constant[0] / aggregated),
            or_one(power / (gpus as f64 * base)),
            or_one(quiet),
        )
    };
    // Of two the middle is as slow as half of the slow one.
    let middle = match by_gpu[..] {
        [one, other] => one.min(other),
        _ => median(by_gpu.clone()).unwrap_or(0.0),
    };
    let saved = by_gpu.iter().map(|time| (1.0 - middle / time).max(0.0));
    Prediction {
        aligned: [0, 1, 2].map(aligned),
        saves: saved
            .map(|part| if part.is_finite() { part } else { 0.0 })
            .collect(),
        constant,
        varying,
        t_baseline: of_constant[0] + least_varying,
    }
}

/// Nothing to align predicts no change.
fn or_one(ratio: f64) -> f64 {
    match ratio.is_finite() {
        true => ratio,
        false => 1.0,
    }
}

/// What [`predict`] returns.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// For max, med and min: speed-up, power ratio, speed-up without noise.
    pub aligned: [(f64, f64, f64); 3],
    /// See [`Models::saves`].
    pub saves: Vec<f64>,
    /// Kernels of constant overlap.
    pub constant: usize,
    /// Kernels of varying overlap.
    pub varying: usize,
    /// Equation 3, in the unit of the durations.
    pub t_baseline: f64,
}

impl Models {
    pub(super) fn of(matrix: &Matrix<'_>, options: &ModelOptions, applies: bool) -> Self {
        let every = Vec::from_iter((0..).take(matrix.kernels()));
        let all = predict_some(matrix, &every, options);
        let iterations = matrix.iterations();
        let single = Vec::from_iter(
            iterations
                .values()
                .map(|kernels| predict_some(matrix, kernels, options)),
        );
        let aligned = |at: usize| {
            let (speedup, node_power_ratio, speedup_without_noise) = all.aligned[at];
            let interval = |value: fn(&(f64, f64, f64)) -> f64| {
                let values = || single.iter().map(|one| value(&one.aligned[at]));
                (single.len() > 1).then(|| {
                    [
                        values().fold(f64::INFINITY, f64::min),
                        values().fold(f64::NEG_INFINITY, f64::max),
                    ]
                })
            };
            let gain = speedup - 1.0;
            let noise = (speedup - speedup_without_noise) / gain;
            Aligned {
                policy: ALIGNMENTS[at].0,
                speedup,
                node_power_ratio,
                power_benefit: 1.0 / node_power_ratio,
                speedup_interval: interval(|one| one.0),
                node_power_ratio_interval: interval(|one| one.1),
                speedup_without_noise,
                noise_share: (gain > 1e-12).then(|| noise.clamp(0.0, 1.0)),
            }
        };
        Self {
            applies,
            options: *options,
            constant: all.constant,
            varying: all.varying,
            t_baseline_ms: all.t_baseline,
            max: aligned(0),
            med: aligned(1),
            min: aligned(2),
            saves: all.saves,
        }
    }
}

fn predict_some(matrix: &Matrix<'_>, kernels: &[u32], options: &ModelOptions) -> Prediction {
    let each = kernels.iter().map(|&k| {
        let k = k as usize;
        let times = matrix.column(|gpu| matrix.duration(gpu, k).to_millis().0);
        (times, matrix.column(|gpu| matrix.overlaps(gpu)[k]))
    });
    predict_each(matrix.gpus(), each, options)
}
