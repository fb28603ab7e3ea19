//! Section III of the paper: how much of each kernel, layer and iteration is overlapped, and how
//! that goes with durations (Figures 3 and 4).

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::layers::Layer;
use super::matrix::{Matrix, layer_of};

/// Above this mean, a constant overlap counts as the paper's "maximum" and not "minimum".
const HALF: f64 = 0.5;
/// Fewer values than this have no correlation worth the name.
const FEWEST: usize = 3;

/// How the overlap of a kernel behaves across GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverlapKind {
    /// Little overlap, the same on all GPUs.
    ConstantMinimum,
    /// More on some GPUs than on others.
    Varying,
    /// Much overlap, the same on all GPUs.
    ConstantMaximum,
}

/// All executions of one kernel (its name without the layer's number).
#[derive(Debug, Clone, Serialize)]
pub struct KernelOverlap {
    /// The name without the layer's number.
    pub name: String,
    /// Matched executions per GPU.
    pub executions: usize,
    /// How many of them have which kind of overlap.
    pub constant_minimum: usize,
    /// See [`OverlapKind::Varying`].
    pub varying: usize,
    /// See [`OverlapKind::ConstantMaximum`].
    pub constant_maximum: usize,
    /// Time of all executions on each GPU, in milliseconds.
    pub time_ms: Vec<f64>,
    /// Overlap ratio on each GPU, weighted by duration.
    pub overlap_ratio: Vec<Option<f64>>,
    /// Pearson correlation of overlap ratio and duration over the executions on each GPU; null
    /// where either does not vary.
    pub pearson: Vec<Option<f64>>,
    /// Cosine similarity of the same; null where either is all 0.
    pub cosine: Vec<Option<f64>>,
}

/// A layer, in one pass of one iteration (Figure 3a).
#[derive(Debug, Clone, Serialize)]
pub struct LayerOverlap {
    /// The iteration, where traces mark them.
    pub iteration: Option<u32>,
    /// See [`Layer::pass`].
    pub pass: String,
    /// Its number.
    pub layer: u32,
    /// Overlap ratio on each GPU, weighted by duration.
    pub overlap_ratio: Vec<Option<f64>>,
}

/// An iteration.
#[derive(Debug, Clone, Serialize)]
pub struct IterationOverlap {
    /// Its number; null where traces mark none.
    pub iteration: Option<u32>,
    /// Overlap ratio of the matched kernels on each GPU, weighted by duration.
    pub overlap_ratio: Vec<Option<f64>>,
}

/// The kind of each kernel's overlap.
pub(super) fn kinds(matrix: &Matrix<'_>, threshold: f64) -> Vec<OverlapKind> {
    let kind = |k| match matrix.spread(k) {
        (spread, _) if spread > threshold => OverlapKind::Varying,
        (_, mean) if mean > HALF => OverlapKind::ConstantMaximum,
        _ => OverlapKind::ConstantMinimum,
    };
    (0..matrix.kernels()).map(kind).collect()
}

/// The name of a kernel without its layer.
pub(super) fn plain_name(name: &str) -> String {
    layer_of(name).map_or_else(|| name.to_owned(), |(_, rest)| rest)
}

pub(super) fn per_kernel(matrix: &Matrix<'_>, kinds: &[OverlapKind]) -> Vec<KernelOverlap> {
    let mut groups = BTreeMap::<String, Vec<u32>>::new();
    // Most names come often.
    let mut plain = HashMap::new();
    for (k, number) in (0..matrix.kernels()).zip(0..) {
        let name = matrix.name(k);
        let name: &String = plain.entry(name).or_insert_with(|| plain_name(name));
        match groups.get_mut(name) {
            Some(group) => group.push(number),
            None => _ = groups.insert(name.clone(), vec![number]),
        }
    }
    let group = |(name, kernels): (String, Vec<u32>)| {
        let of_kind = |kind| {
            let of_kind = kernels.iter().filter(|&&k| kinds[k as usize] == kind);
            of_kind.count()
        };
        let per_gpu = |value: fn(&[f64], &[f64]) -> Option<f64>| {
            matrix.column(|gpu| {
                let all = matrix.overlaps(gpu);
                let overlap = kernels.iter().map(|&k| all[k as usize]);
                let times = kernels
                    .iter()
                    .map(|&k| matrix.duration(gpu, k as usize).to_millis().0);
                value(&Vec::from_iter(overlap), &Vec::from_iter(times))
            })
        };
        KernelOverlap {
            executions: kernels.len(),
            constant_minimum: of_kind(OverlapKind::ConstantMinimum),
            varying: of_kind(OverlapKind::Varying),
            constant_maximum: of_kind(OverlapKind::ConstantMaximum),
            time_ms: per_gpu(|_, times| Some(times.iter().sum()))
                .into_iter()
                .flatten()
                .collect(),
            overlap_ratio: weighted(matrix, &kernels),
            pearson: per_gpu(pearson),
            cosine: per_gpu(cosine),
            name,
        }
    };
    let mut all = Vec::from_iter(groups.into_iter().map(group));
    let time = |kernel: &KernelOverlap| kernel.time_ms.iter().sum::<f64>();
    all.sort_by(|a, b| time(b).total_cmp(&time(a)));
    all
}

pub(super) fn per_layer(matrix: &Matrix<'_>, layers: &[Option<Layer>]) -> Vec<LayerOverlap> {
    let mut groups = Vec::<(Option<u32>, &Layer, Vec<u32>)>::new();
    let mut places = HashMap::new();
    for (k, layer) in (0..).zip(layers) {
        let Some(layer) = layer else { continue };
        let iteration = matrix.iteration(k as usize);
        let place = *places.entry((iteration, layer)).or_insert_with(|| {
            groups.push((iteration, layer, Vec::new()));
            groups.len() - 1
        });
        groups[place].2.push(k);
    }
    groups.sort_by_key(|group| group.0);
    let layer = |(iteration, layer, kernels): (Option<u32>, &Layer, Vec<u32>)| LayerOverlap {
        iteration,
        pass: layer.pass.as_ref().into(),
        layer: layer.number,
        overlap_ratio: weighted(matrix, &kernels),
    };
    groups.into_iter().map(layer).collect()
}

pub(super) fn per_iteration(matrix: &Matrix<'_>) -> Vec<IterationOverlap> {
    let iteration = |(iteration, kernels): (Option<u32>, Vec<u32>)| IterationOverlap {
        iteration,
        overlap_ratio: weighted(matrix, &kernels),
    };
    matrix.iterations().into_iter().map(iteration).collect()
}

/// The overlap ratio of some kernels on each GPU, weighted by duration.
fn weighted(matrix: &Matrix<'_>, kernels: &[u32]) -> Vec<Option<f64>> {
    matrix.column(|gpu| {
        let overlap = matrix.overlaps(gpu);
        let time = |&k: &u32| matrix.duration(gpu, k as usize).0 as f64;
        let whole: f64 = kernels.iter().map(time).sum();
        let part: f64 = kernels.iter().map(|k| overlap[*k as usize] * time(k)).sum();
        (whole > 0.0).then(|| part / whole)
    })
}

/// Pearson's correlation; `None` of few values, or where either side does not vary.
#[must_use]
pub fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    let count = x.len().min(y.len());
    if count < FEWEST {
        return None;
    }
    let mean = |of: &[f64]| of.iter().take(count).sum::<f64>() / count as f64;
    let (mx, my) = (mean(x), mean(y));
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (a, b) in x.iter().zip(y) {
        xy += (a - mx) * (b - my);
        xx += (a - mx) * (a - mx);
        yy += (b - my) * (b - my);
    }
    // What rounding leaves of values that are all the same is no variation.
    let varies =
        |squares: f64, mean: f64| squares > 1e-18 * count as f64 * (mean * mean).max(1e-18);
    (varies(xx, mx) && varies(yy, my)).then(|| (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0))
}

/// Cosine similarity; `None` where either side is all 0.
#[must_use]
pub fn cosine(x: &[f64], y: &[f64]) -> Option<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let norm = (dot(x, x) * dot(y, y)).sqrt();
    (norm > 0.0).then(|| (dot(x, y) / norm).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlation_and_similarity_of_known_values() {
        let x = [1.0, 2.0, 3.0, 4.0];
        assert!((pearson(&x, &[2.0, 4.0, 6.0, 8.0]).unwrap() - 1.0).abs() < 1e-12);
        assert!((pearson(&x, &[1.0, 3.0, 2.0, 4.0]).unwrap() - 0.8).abs() < 1e-12);
        assert!((pearson(&x, &[4.0, 3.0, 2.0, 1.0]).unwrap() + 1.0).abs() < 1e-12);
        assert_eq!(pearson(&x, &[5.0; 4]), None);
        assert_eq!(pearson(&[1.0, 2.0], &[1.0, 2.0]), None);
        // (1, 0) and (1, 1) are 45 degrees apart.
        let cosine_of = cosine(&[1.0, 0.0], &[1.0, 1.0]).unwrap();
        assert!((cosine_of - 0.5_f64.sqrt()).abs() < 1e-12);
        assert_eq!(cosine(&[0.0; 3], &[1.0; 3]), None);
    }
}
