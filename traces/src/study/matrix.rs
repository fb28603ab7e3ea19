//! Matched computation kernels as a matrix: GPU by kernel, in the terms of the paper's sections
//! III and IV.

use std::collections::BTreeMap;
use std::sync::Arc;

use litd_units::Nanos;

use crate::align::{AlignError, AlignOptions, Selection};
use crate::analysis::{communication, ratio};
use crate::leads::leads;
use crate::timeline::Timeline;

/// One matched kernel.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// The name, on all GPUs.
    pub(super) name: Arc<str>,
    /// The iteration, where traces mark them.
    pub(super) iteration: Option<u32>,
}

/// What each GPU did with each matched computation kernel; `[g][k]`, kernels in the order in
/// which the last GPU started them.
#[derive(Debug, Clone)]
pub(super) struct Matrix {
    pub(super) columns: Vec<Column>,
    pub(super) start: Vec<Vec<Nanos>>,
    pub(super) duration: Vec<Vec<Nanos>>,
    /// Time beside communication on the same GPU / duration; 0 for a kernel without length.
    pub(super) overlap: Vec<Vec<f64>>,
    /// By how much each GPU started before the last.
    pub(super) lead: Vec<Vec<Nanos>>,
}

impl Matrix {
    pub(super) fn of(timelines: &[Timeline], align: &AlignOptions) -> Result<Self, AlignError> {
        let align = AlignOptions {
            selection: Selection::Computation,
            ..*align
        };
        let leads = leads(timelines, &align)?;
        let rows = || leads.alignment.matched();
        let mut matrix = Self {
            columns: Vec::new(),
            start: Vec::new(),
            duration: Vec::new(),
            overlap: Vec::new(),
            lead: leads.wave,
        };
        for (rank, timeline) in timelines.iter().enumerate() {
            let spans = communication(timeline);
            let kernels = rows().filter_map(|row| timeline.kernels.get(*row.get(rank)? as usize));
            let cover = |start, end| spans.cover(start, end);
            matrix
                .start
                .push(kernels.clone().map(|k| k.start).collect());
            matrix
                .duration
                .push(kernels.clone().map(|k| k.duration()).collect());
            let overlaps = kernels
                .clone()
                .map(|k| ratio(cover(k.start, k.end), k.duration()).unwrap_or(0.0));
            matrix.overlap.push(overlaps.collect());
            if rank == 0 {
                let columns = kernels.map(|kernel| Column {
                    name: timeline.names.shared(kernel.name),
                    iteration: kernel.iteration,
                });
                matrix.columns = columns.collect();
            }
        }
        Ok(matrix)
    }

    pub(super) fn gpus(&self) -> usize {
        self.start.len()
    }

    /// The kernels of each iteration, in order; all of them where the traces mark none.
    pub(super) fn iterations(&self) -> BTreeMap<Option<u32>, Vec<usize>> {
        let mut iterations = BTreeMap::<_, Vec<_>>::new();
        for (k, column) in self.columns.iter().enumerate() {
            iterations.entry(column.iteration).or_default().push(k);
        }
        iterations
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
