//! From the simulated node to the sample that the loop takes: through the same timelines,
//! alignment and analysis as recorded traces.

use std::error::Error;

use litd_policies::{GpuReading, Sample};
use litd_sim::{Limiter, Plant};
use litd_traces::{Aggregation, AnalysisOptions, analyse};
use litd_units::Millis;

/// A sample, and the summed leads that people compare whatever the loop aggregates by.
pub struct Observed {
    pub sample: Sample,
    pub lead_sums: Vec<Millis>,
}

/// Samples the iteration that the plant ran last.
pub fn sample(plant: &Plant, aggregation: Aggregation) -> Result<Observed, Box<dyn Error>> {
    let options = AnalysisOptions {
        aggregation,
        ..AnalysisOptions::default()
    };
    let report = analyse(&plant.timelines(), &options)?;
    let matched = u32::try_from(report.matched_kernels.unwrap_or(0))?;
    let lead =
        |rank: &litd_traces::RankReport| rank.lead.map(|lead| lead.get(aggregation).to_millis());
    let gpus = plant
        .gpus()
        .zip(&report.ranks)
        .map(|(gpu, rank)| GpuReading {
            cap: gpu.cap,
            temperature: Some(gpu.temperature),
            slowdown: Some(gpu.slowdown),
            throttled: gpu.throttle.thermal || gpu.throttle.hardware,
            power_limited: Some(gpu.limiter == Limiter::Power),
            power: Some(gpu.power),
            clock: Some(gpu.clock),
            pace: rank.pace,
            busy: Some(rank.busy_fraction),
        });
    let last_in = report.ranks.iter().map(|rank| {
        let last = u32::try_from(rank.last_in?).ok()?;
        Some(f64::from(last) / f64::from(matched))
    });
    let last_in: Option<Vec<f64>> = last_in.collect();
    Ok(Observed {
        lead_sums: report
            .ranks
            .iter()
            .map(|rank| {
                rank.lead
                    .map_or(Millis::ZERO, |lead| lead.sum_ns.to_millis())
            })
            .collect(),
        sample: Sample {
            iteration: u64::from(plant.iterations()),
            leads: report.ranks.iter().map(lead).collect(),
            summands: match aggregation {
                Aggregation::Sum => matched,
                Aggregation::Max | Aggregation::Last => 1,
            },
            // As a hook sends it: in whole nanoseconds.
            iteration_time: plant.last().length.to_nanos().to_millis(),
            gpus: gpus.collect(),
            last_in: last_in.unwrap_or_default(),
        },
    })
}
