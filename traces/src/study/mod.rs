//! The Lit Silicon paper's analysis of a node: clock skew out of the way, then overlap (section
//! III), lead curves (Figure 7), models (section IV) and a diagnosis.

mod artefact;
mod cause;
mod equal;
mod gain;
mod layers;
mod longer;
mod matrix;
mod measure;
mod models;
mod names;
mod overlap;
mod turns;
mod waves;

use std::borrow::Cow;

use litd_units::Nanos;
use serde::Serialize;

pub use crate::skew::{Clocks, Jump, SetRight, Skew, set_right};
pub use cause::{Diagnosis, Grids, RankMarks, named};
pub use gain::{Gain, gain};
pub use layers::Layer;
pub use litd_diagnosis::{Cause, Marks};
pub use longer::Longer;
pub use models::{Aligned, ModelOptions, Models, Prediction, predict};
pub use overlap::{IterationOverlap, KernelOverlap, LayerOverlap, OverlapKind, cosine, pearson};
pub use waves::{Plateau, Stretch, Wave};

use crate::align::{AlignError, AlignOptions, Alignment, Selection};
use crate::collectives::{GroupWaits, matched, waits};
use crate::groups::{Group, Groups};
use crate::timeline::Timeline;
use matrix::Matrix;

/// What the paper's analysis says of the ranks of a node. Lists over GPUs are in the order of
/// the timelines.
#[derive(Debug, Clone, Serialize)]
pub struct Study<'a> {
    /// The clocks, from the ends of collectives.
    pub skew: Skew,
    /// What holds the node back, and why.
    pub diagnosis: Diagnosis,
    /// Whether another rank is last in another part of an iteration.
    pub straggler_changes: bool,
    /// Predicted speed-up and power.
    pub models: Models,
    /// Overlap and its correlation with duration, by kernel; most time first.
    pub kernels: Vec<KernelOverlap>,
    /// Overlap by layer, where kernels' names tell layers or their sequence repeats.
    pub layers: Vec<LayerOverlap>,
    /// Overlap by iteration.
    pub iterations: Vec<IterationOverlap>,
    /// Lead curves by iteration.
    pub waves: Vec<Wave>,
    /// What all of this comes from, kernel by kernel.
    #[serde(skip)]
    pub matched: Matched<'a>,
}

/// One computation kernel that was matched on all GPUs; lists have one entry per GPU.
#[derive(Debug, Clone)]
pub struct MatchedKernel {
    /// Its name.
    pub name: String,
    /// Its name without the number of its layer.
    pub plain_name: String,
    /// Its layer, where one can be told.
    pub layer: Option<Layer>,
    /// Its iteration; none where traces mark none.
    pub iteration: Option<u32>,
    /// When it started.
    pub start: Vec<Nanos>,
    /// How long it took.
    pub duration: Vec<Nanos>,
    /// How much of that a collective ran beside it, from 0 to 1.
    pub overlap: Vec<f64>,
    /// By how much it started before the last GPU started it.
    pub lead: Vec<Nanos>,
}

/// Takes clear clock skew out of the timelines of two or more ranks.
pub fn remove_skew(timelines: &mut [Timeline]) -> Skew {
    crate::skew::remove(timelines)
}

/// Studies the timelines of two or more ranks that do equal work, whose skew was removed.
///
/// # Errors
/// When too few kernels match; see [`AlignError`].
pub fn study<'a>(
    timelines: &'a [Timeline],
    skew: Skew,
    align: &AlignOptions,
    options: &ModelOptions,
) -> Result<Study<'a>, AlignError> {
    let groups = Groups::one(timelines, None).named(timelines, align);
    let waits = waits(timelines, &groups, &matched(timelines, &groups));
    let waits = GroupWaits::of(&waits, 0, 0..timelines.len());
    let compared = Compared {
        alignment: None,
        waits: waits.as_ref(),
    };
    study_with(timelines, compared, skew, align, options)
}

/// Studies one group of a job's ranks: its timelines, and how long each waits as
/// [`GroupReport::waits`](crate::GroupReport::waits) has it.
///
/// # Errors
/// When too few kernels match; see [`AlignError`].
pub fn study_group<'a>(
    timelines: &'a [Timeline],
    (group, waits): (&'a Group, Option<&GroupWaits>),
    skew: Skew,
    align: &AlignOptions,
    options: &ModelOptions,
) -> Result<Study<'a>, AlignError> {
    let alignment = group.alignment.as_ref();
    let alignment = alignment.filter(|_| align.selection == Selection::Computation);
    let compared = Compared { alignment, waits };
    study_with(timelines, compared, skew, align, options)
}

/// What is known of ranks before they are studied.
struct Compared<'a, 'b> {
    /// Which of their computation kernels match, if that was looked for.
    alignment: Option<&'a Alignment>,
    /// How long each waits for the others; none without collectives.
    waits: Option<&'b GroupWaits>,
}

fn study_with<'a>(
    timelines: &'a [Timeline],
    compared: Compared<'a, '_>,
    skew: Skew,
    align: &AlignOptions,
    options: &ModelOptions,
) -> Result<Study<'a>, AlignError> {
    let matrix = match compared.alignment {
        Some(alignment) => Matrix::aligned(timelines, Cow::Borrowed(alignment)),
        None => Matrix::of(timelines, align)?,
    };
    let kinds = overlap::kinds(&matrix, options.varying_threshold);
    let ranks = Vec::from_iter(timelines.iter().map(|timeline| timeline.rank));
    let waves = waves::waves(&matrix, &ranks);
    let layers = layers::of(&matrix);
    let changes = |wave: &Wave| {
        let mut last = wave.last.iter().map(|stretch| stretch.gpu);
        let first = last.next();
        last.any(|gpu| Some(gpu) != first)
    };
    let equal = names::Kinds::of(&matrix, &kinds);
    let diagnosis = cause::diagnose(timelines, &matrix, &equal, &skew, compared.waits);
    let applies = diagnosis.cause == Cause::SlowClock;
    let mut models = Models::of(&matrix, options, applies);
    if !equal.is_empty() {
        models.saves = equal.saves(&matrix);
    }
    Ok(Study {
        diagnosis,
        skew,
        straggler_changes: waves.iter().any(changes),
        models,
        kernels: overlap::per_kernel(&matrix, &kinds),
        layers: overlap::per_layer(&matrix, &layers),
        iterations: overlap::per_iteration(&matrix),
        waves,
        matched: Matched { matrix, layers },
    })
}

/// The computation kernels that were matched on all GPUs, in the order in which the last GPU
/// started them. Of millions each is made when it is asked for.
#[derive(Debug, Clone)]
pub struct Matched<'a> {
    matrix: Matrix<'a>,
    layers: Vec<Option<Layer>>,
}

impl Matched<'_> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.matrix.kernels()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, k: usize) -> Option<MatchedKernel> {
        let matrix = &self.matrix;
        (k < self.len()).then(|| MatchedKernel {
            name: matrix.name(k).into(),
            plain_name: overlap::plain_name(matrix.name(k)),
            layer: self.layers.get(k).cloned().flatten(),
            iteration: matrix.iteration(k),
            start: matrix.column(|gpu| matrix.start(gpu, k)),
            duration: matrix.column(|gpu| matrix.duration(gpu, k)),
            overlap: matrix.column(|gpu| matrix.overlaps(gpu)[k]),
            lead: matrix.column(|gpu| matrix.lead(gpu, k)),
        })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = MatchedKernel> {
        (0..self.len()).filter_map(|k| self.get(k))
    }

    /// The place of the one with the greatest lead; the last of several.
    #[must_use]
    pub fn worst(&self) -> Option<usize> {
        let most = |k| {
            (0..self.matrix.gpus())
                .map(|gpu| self.matrix.lead(gpu, k))
                .max()
        };
        (0..self.len()).max_by_key(|&k| most(k))
    }
}
