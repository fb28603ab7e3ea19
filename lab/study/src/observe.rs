//! From the simulated node to the sample that the loop takes: through the same analysis that the
//! daemon does as ranks arrive.

use litd_policies::{GpuReading, Sample};
use litd_sim::{Limiter, Plant};
use litd_traces::{
    Aggregation, AlignOptions, KernelClass, Limit, Live, LiveKernel, NameId, NameTable, limit_of,
};
use litd_units::Millis;

use crate::StudyError;

/// A sample, and the summed leads that people compare whatever the loop aggregates by.
#[derive(Debug, Clone)]
pub struct Observed {
    /// What the loop takes.
    pub sample: Sample,
    /// The summed lead of each GPU.
    pub lead_sums: Vec<Millis>,
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
    pub fn of(plant: &Plant) -> Self {
        let mut table = NameTable::default();
        let kernels = plant.workload().kernels.iter();
        let ids = kernels.map(|kernel| (table.intern(&kernel.name), limit_of(&kernel.name)));
        let ids = ids.collect();
        let collectives = plant.workload().collectives.iter();
        let collectives = collectives.map(|one| table.intern(&one.name)).collect();
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
    plant: &Plant,
    names: &Names,
    aggregation: Aggregation,
) -> Result<Observed, StudyError> {
    let mut live = Live::new(plant.gpu_count(), AlignOptions::default());
    for rank in 0..plant.gpu_count() {
        live.add(rank, kernels(plant, names, rank))?;
    }
    let report = live.finish(&names.table)?;
    let matched = u32::try_from(report.matched).unwrap_or(u32::MAX);
    let gpus = plant.gpus().enumerate().map(|(at, gpu)| GpuReading {
        cap: gpu.cap,
        temperature: Some(gpu.temperature),
        slowdown: Some(gpu.slowdown),
        throttled: gpu.throttle.thermal || gpu.throttle.hardware,
        power_share: Some(if gpu.limiter == Limiter::Power {
            1.0
        } else {
            0.0
        }),
        power: Some(gpu.power),
        clock: Some(gpu.clock),
        pace: report.pace[at],
        slowness: report.slowness[at],
        marks: report.marks[at],
        busy: Some(report.busy[at]),
    });
    let lead = |aggregation| {
        let leads = report.leads.iter();
        leads.map(move |lead| lead.get(aggregation).to_millis())
    };
    let last_in = report.last_in.iter();
    Ok(Observed {
        lead_sums: lead(Aggregation::Sum).collect(),
        sample: Sample {
            iteration: u64::from(plant.iterations()),
            leads: lead(aggregation).map(Some).collect(),
            summands: match aggregation {
                Aggregation::Sum => matched,
                Aggregation::Max | Aggregation::Last => 1,
            },
            // As a hook sends it: in whole nanoseconds.
            iteration_time: plant.last().length.to_nanos().to_millis(),
            gpus: gpus.collect(),
            last_in: last_in
                .map(|&last| last as f64 / report.matched.max(1) as f64)
                .collect(),
        },
    })
}

/// What one rank ran, as its hook would report it.
fn kernels<'a>(
    plant: &'a Plant,
    names: &'a Names,
    rank: usize,
) -> impl Iterator<Item = LiveKernel> + 'a {
    let last = plant.last();
    let times = last.start[rank].iter().zip(&last.duration[rank]);
    let computation = names.ids.iter().zip(times);
    let computation = computation.map(move |(&(name, limit), (start, duration))| LiveKernel {
        name,
        stream: 0,
        class: KernelClass::Computation,
        limit,
        start: start.to_nanos(),
        duration: duration.to_nanos(),
    });
    let times = last.collective_start[rank].iter();
    let times = times.zip(&last.collective_end[rank]);
    let collectives = names.collectives.iter().zip(times);
    let collectives = collectives.map(|(&name, (&start, &end))| LiveKernel {
        name,
        stream: 1,
        class: KernelClass::Communication,
        limit: None,
        start: start.to_nanos(),
        duration: (end - start).to_nanos(),
    });
    computation.chain(collectives)
}
