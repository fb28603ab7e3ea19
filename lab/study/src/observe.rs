//! From the simulated node to the sample that the loop takes: through the same analysis that the
//! daemon does as ranks arrive.

use litd_policies::Sample;
use litd_traces::{
    Aggregation, AlignOptions, KernelClass, Limit, Live, LiveKernel, NameId, NameTable,
};
use litd_units::Millis;

use crate::StudyError;
use crate::steered::{Span, Steered};

/// A sample, and the summed leads that people compare whatever the loop aggregates by.
#[derive(Debug, Clone)]
pub struct Observed {
    /// What the loop takes.
    pub sample: Sample,
    /// The summed lead of each GPU.
    pub lead_sums: Vec<Millis>,
    /// Over how many kernels each is summed.
    pub kernels: u32,
}

/// The names of a plant's kernels.
#[derive(Debug, Clone)]
pub struct Names {
    table: NameTable,
    /// Of each kernel, with what limits it.
    ids: Vec<(NameId, Option<Limit>)>,
    /// Of each collective.
    collectives: Vec<NameId>,
}

impl Names {
    /// Of this plant.
    #[must_use]
    pub fn of(plant: &impl Steered) -> Self {
        let mut table = NameTable::default();
        let kernels = plant.kernels();
        let ids = kernels.computation.iter();
        let ids = ids.map(|(name, limit)| (table.intern(name), *limit));
        let ids = ids.collect();
        let collectives = kernels.collectives.iter();
        let collectives = collectives.map(|name| table.intern(name)).collect();
        Self {
            table,
            ids,
            collectives,
        }
    }
}

/// Samples the iteration that the plant ran last.
///
/// # Errors
/// The iteration's kernels can't be aligned.
pub fn sample(
    plant: &mut impl Steered,
    names: &Names,
    aggregation: Aggregation,
) -> Result<Observed, StudyError> {
    let mut live = Live::new(plant.gpu_count(), AlignOptions::default());
    for rank in 0..plant.gpu_count() {
        let (computation, collectives) = plant.spans(rank);
        live.add(rank, kernels(names, &computation, &collectives))?;
    }
    let report = live.finish(&names.table)?;
    let matched = u32::try_from(report.matched).unwrap_or(u32::MAX);
    let mut gpus = plant.readings();
    for (at, gpu) in gpus.iter_mut().enumerate() {
        gpu.pace = report.pace[at];
        gpu.slowness = report.slowness[at];
        gpu.marks = report.marks[at];
        gpu.busy = Some(report.busy[at]);
    }
    let lead = |aggregation| {
        let leads = report.leads.iter();
        leads.map(move |lead| lead.get(aggregation).to_millis())
    };
    let last_in = report.last_in.iter();
    Ok(Observed {
        lead_sums: lead(Aggregation::Sum).collect(),
        kernels: matched,
        sample: Sample {
            iteration: plant.iterations(),
            leads: lead(aggregation).map(Some).collect(),
            summands: match aggregation {
                Aggregation::Sum => matched,
                Aggregation::Max | Aggregation::Last => 1,
            },
            // As a hook sends it: in whole nanoseconds.
            iteration_time: plant.last().to_nanos().to_millis(),
            gpus,
            last_in: last_in
                .map(|&last| last as f64 / report.matched.max(1) as f64)
                .collect(),
        },
    })
}

/// What one rank ran, as its hook would report it.
fn kernels<'a>(
    names: &'a Names,
    computation: &'a [Span],
    collectives: &'a [Span],
) -> impl Iterator<Item = LiveKernel> + 'a {
    let computation = names.ids.iter().zip(computation);
    let computation = computation.map(move |(&(name, limit), (start, duration))| LiveKernel {
        name,
        stream: 0,
        class: KernelClass::Computation,
        limit,
        start: start.to_nanos(),
        duration: duration.to_nanos(),
    });
    let collectives = names.collectives.iter().zip(collectives);
    let collectives = collectives.map(|(&name, (start, duration))| LiveKernel {
        name,
        stream: 1,
        class: KernelClass::Communication,
        limit: None,
        start: start.to_nanos(),
        duration: duration.to_nanos(),
    });
    computation.chain(collectives)
}
