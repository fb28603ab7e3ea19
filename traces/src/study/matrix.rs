//! Matched computation kernels as a matrix: GPU by kernel, in the terms of the paper's sections
//! III and IV.

use std::borrow::Cow;
use std::collections::BTreeMap;

use litd_units::Nanos;

use crate::align::{AlignError, AlignOptions, Alignment, LeftOut, Selection, align};
use crate::analysis::communication;
use crate::class::exchange;
use crate::spans::ratio;
use crate::timeline::{Kernel, NonMax, Timeline};

/// What each GPU did with each matched computation kernel, kernels in the order in which the last
/// GPU started them. Of millions only what is not in the timelines is kept.
#[derive(Debug, Clone)]
pub(super) struct Matrix<'a> {
    timelines: &'a [Timeline],
    alignment: Cow<'a, Alignment>,
    /// When the last GPU started each kernel.
    latest: Vec<Nanos>,
    /// `[g][k]`: time beside communication on the same GPU / duration; 0 for a kernel without
    /// length.
    overlap: Vec<Vec<f64>>,
}

impl<'a> Matrix<'a> {
    pub(super) fn of(
        timelines: &'a [Timeline],
        align_by: &AlignOptions,
    ) -> Result<Self, AlignError> {
        let align_by = AlignOptions {
            selection: Selection::Computation,
            ..*align_by
        };
        let alignment = align(timelines, &align_by)?;
        Ok(Self::aligned(timelines, Cow::Owned(alignment)))
    }

    /// Of timelines whose computation kernels are aligned.
    pub(super) fn aligned(timelines: &'a [Timeline], alignment: Cow<'a, Alignment>) -> Self {
        let mut matrix = Self {
            timelines,
            alignment,
            latest: Vec::new(),
            overlap: Vec::new(),
        };
        let latest = |k| (0..matrix.gpus()).map(|gpu| matrix.start(gpu, k)).max();
        matrix.latest = (0..matrix.kernels()).filter_map(latest).collect();
        for (gpu, timeline) in timelines.iter().enumerate() {
            let spans = communication(timeline);
            let overlap = |k| {
                let kernel = matrix.kernel(gpu, k)?;
                ratio(spans.cover(kernel.start, kernel.end), kernel.duration())
            };
            let overlaps = (0..matrix.kernels()).map(|k| overlap(k).unwrap_or(0.0));
            let overlaps = Vec::from_iter(overlaps);
            matrix.overlap.push(overlaps);
        }
        matrix
    }

    pub(super) fn gpus(&self) -> usize {
        self.timelines.len()
    }

    /// Whether the ranks exchange anything.
    pub(super) fn exchanges(&self) -> bool {
        exchange(self.timelines, &self.alignment)
    }

    /// How many kernels match.
    pub(super) fn kernels(&self) -> usize {
        self.alignment.matched().len()
    }

    /// Those / the kernels of the GPU that ran fewest.
    pub(super) fn matched_fraction(&self) -> f64 {
        self.alignment.matched_fraction()
    }

    /// The kernels of each GPU that don't match.
    pub(super) fn left_out(&self) -> Vec<Vec<LeftOut>> {
        self.alignment.left_out(self.timelines)
    }

    /// What a GPU ran as the k-th matched kernel.
    fn kernel(&self, gpu: usize, k: usize) -> Option<&'a Kernel> {
        let index = *self.alignment.row(k)?.get(gpu)?;
        self.timelines.get(gpu)?.kernels.get(index as usize)
    }

    /// A kernel's name, on all GPUs.
    pub(super) fn name(&self, k: usize) -> &'a str {
        let first = self.timelines.first().zip(self.kernel(0, k));
        first.map_or("", |(timeline, kernel)| timeline.name_of(kernel))
    }

    /// A kernel's iteration, where traces mark them.
    pub(super) fn iteration(&self, k: usize) -> Option<u32> {
        self.kernel(0, k)?.iteration.map(NonMax::get)
    }

    pub(super) fn start(&self, gpu: usize, k: usize) -> Nanos {
        self.kernel(gpu, k)
            .map_or(Nanos::ZERO, |kernel| kernel.start)
    }

    pub(super) fn duration(&self, gpu: usize, k: usize) -> Nanos {
        self.kernel(gpu, k).map_or(Nanos::ZERO, Kernel::duration)
    }

    /// The overlap ratios of a GPU's kernels.
    pub(super) fn overlaps(&self, gpu: usize) -> &[f64] {
        self.overlap.get(gpu).map_or(&[], Vec::as_slice)
    }

    /// By how much a GPU started a kernel before the last one did.
    pub(super) fn lead(&self, gpu: usize, k: usize) -> Nanos {
        let latest = self.latest.get(k).copied().unwrap_or_default();
        latest - self.start(gpu, k)
    }

    /// Something of a kernel, of each GPU.
    pub(super) fn column<T>(&self, of: impl Fn(usize) -> T) -> Vec<T> {
        (0..self.gpus()).map(of).collect()
    }

    /// The kernels of each iteration, in order; all of them where the traces mark none.
    pub(super) fn iterations(&self) -> BTreeMap<Option<u32>, Vec<u32>> {
        let mut iterations = BTreeMap::<_, Vec<_>>::new();
        for (k, number) in (0..self.kernels()).zip(0..) {
            iterations
                .entry(self.iteration(k))
                .or_default()
                .push(number);
        }
        iterations
    }

    /// From the first start to the last end of some kernels.
    pub(super) fn length(&self, kernels: &[u32]) -> Nanos {
        let cells =
            || (0..self.gpus()).flat_map(|gpu| kernels.iter().map(move |&k| (gpu, k as usize)));
        let starts = cells().map(|(gpu, k)| self.start(gpu, k));
        let ends = cells().map(|(gpu, k)| self.start(gpu, k) + self.duration(gpu, k));
        ends.max().unwrap_or_default() - starts.min().unwrap_or_default()
    }

    /// By how much the overlap ratio of a kernel differs across GPUs, and its mean.
    pub(super) fn spread(&self, k: usize) -> (f64, f64) {
        let column = || self.overlap.iter().filter_map(|row| row.get(k).copied());
        let most = column().fold(f64::NEG_INFINITY, f64::max);
        let least = column().fold(f64::INFINITY, f64::min);
        (
            most - least,
            column().sum::<f64>() / self.gpus().max(1) as f64,
        )
    }
}

/// A kernel's layer and its name without the layer: `f.3.qkv_proj` is `f.qkv_proj` of layer 3,
/// and so is `layers.3.` in any longer name.
pub(super) fn layer_of(name: &str) -> Option<(u32, String)> {
    let mut parts = name.split('.');
    let at = parts.clone().position(|part| part.parse::<u32>().is_ok())?;
    if at == 0 {
        return None;
    }
    let number = parts.nth(at)?.parse().ok()?;
    let rest = name.split('.').enumerate().filter(|&(i, _)| i != at);
    let rest = Vec::from_iter(rest.map(|(_, part)| part));
    // A number with a point in it, as in `eps1.5`, is no layer.
    (rest.len() > 1).then(|| (number, rest.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_between_points_is_the_layer() {
        assert_eq!(layer_of("f.3.qkv_proj"), Some((3, "f.qkv_proj".into())));
        assert_eq!(
            layer_of("model.layers.12.mlp.gemm"),
            Some((12, "model.layers.mlp.gemm".into()))
        );
        assert_eq!(layer_of("void gemm<float>"), None);
        assert_eq!(layer_of("7.x.y"), None);
    }
}
