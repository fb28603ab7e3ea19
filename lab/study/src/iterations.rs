//! A few iterations of a settled node, as Figures 3 to 5 and 7 of the Lit Silicon paper draw them, and the node's way
//! from cold to settled.

use litd_sim::{IterationResult, Plant, Scenario, Workload};
use litd_traces::study::{cosine, pearson};
use litd_units::Millis;

use crate::StudyError;
use crate::paper::{KERNELS_PER_LAYER, layer_overlaps};

/// The figures show so many.
pub const SHOWN: usize = 3;

/// So many iterations from a cold start: several time constants of a GPU's temperature.
const WARMING: usize = 150;

/// Iterations of a settled node.
#[derive(Debug, Clone)]
pub struct Iterations {
    workload: Workload,
    results: Vec<IterationResult>,
}

/// What a layer does to a GPU in one pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layer {
    /// The part of its computation beside which a collective is resident, weighted by duration.
    pub overlap: f64,
    /// How long its collectives are resident, waiting and transferring.
    pub communication: Millis,
}

/// A kernel on a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Execution {
    /// The part of it beside which a collective is resident.
    pub overlap: f64,
    /// How long it takes.
    pub duration: Millis,
}

/// How a kernel's overlap goes with its duration on a GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Correlation {
    /// The kernel, without its layer.
    pub kernel: String,
    /// The GPU.
    pub gpu: usize,
    /// Pearson's correlation; none where either does not vary.
    pub pearson: Option<f64>,
    /// Cosine similarity; none where either is all 0.
    pub cosine: Option<f64>,
}

/// A GPU at the end of an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// °C.
    pub temperature: f64,
    /// MHz.
    pub clock: f64,
}

/// A kernel's name without its layer: `b.17.attention` is `b.attention`.
fn plain(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    match parts[..] {
        [pass, _, kernel] => format!("{pass}.{kernel}"),
        _ => name.to_owned(),
    }
}

impl Iterations {
    /// Runs [`SHOWN`] iterations on a settled node.
    ///
    /// # Errors
    /// The scenario makes no sense.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, StudyError> {
        let mut plant = Plant::new(scenario, seed)?;
        plant.settle();
        let results = (0..SHOWN).map(|_| plant.run_iteration().clone()).collect();
        Ok(Self {
            workload: scenario.workload.clone(),
            results,
        })
    }

    /// How many GPUs there are.
    #[must_use]
    pub fn gpus(&self) -> usize {
        self.results.first().map_or(0, |it| it.start.len())
    }

    /// A GPU's layers, in the order in which they run, iteration after iteration.
    #[must_use]
    pub fn layers(&self, gpu: usize) -> Vec<Layer> {
        let mut layers = Vec::new();
        for result in &self.results {
            let overlaps = layer_overlaps(result, gpu);
            let mut communication = vec![Millis::ZERO; overlaps.len()];
            let ends = result.collective_start[gpu]
                .iter()
                .zip(&result.collective_end[gpu]);
            for (spec, (&start, &end)) in self.workload.collectives.iter().zip(ends) {
                let layer = spec.after_start_of.unwrap_or(0) / KERNELS_PER_LAYER;
                if let Some(sum) = communication.get_mut(layer) {
                    *sum += end - start;
                }
            }
            let pairs = overlaps.into_iter().zip(communication);
            layers.extend(pairs.map(|(overlap, communication)| Layer {
                overlap,
                communication,
            }));
        }
        layers
    }

    /// A kernel's executions on a GPU, by its name without the layer.
    #[must_use]
    pub fn executions(&self, kernel: &str, gpu: usize) -> Vec<Execution> {
        let mut executions = Vec::new();
        for result in &self.results {
            let times = result.duration[gpu].iter().zip(&result.overlapped[gpu]);
            let all = self.workload.kernels.iter().zip(times);
            let own = all.filter(|(spec, _)| plain(&spec.name) == kernel);
            executions.extend(own.map(|(_, (&duration, &overlapped))| Execution {
                overlap: (overlapped / duration).min(1.0),
                duration,
            }));
        }
        executions
    }

    /// How overlap and duration of each wanted kernel go together on each GPU.
    #[must_use]
    pub fn correlations(&self, wanted: impl Fn(&str) -> bool) -> Vec<Correlation> {
        let mut kernels = Vec::new();
        for name in self.workload.kernels.iter().map(|it| plain(&it.name)) {
            if wanted(&name) && !kernels.contains(&name) {
                kernels.push(name);
            }
        }
        let mut all = Vec::new();
        for kernel in kernels {
            for gpu in 0..self.gpus() {
                let executions = self.executions(&kernel, gpu);
                let overlap: Vec<f64> = executions.iter().map(|it| it.overlap).collect();
                let duration: Vec<f64> = executions.iter().map(|it| it.duration.0).collect();
                all.push(Correlation {
                    kernel: kernel.clone(),
                    gpu,
                    pearson: pearson(&overlap, &duration),
                    cosine: cosine(&overlap, &duration),
                });
            }
        }
        all
    }

    /// The lead values of each GPU, kernel after kernel: by how much it starts one before the last GPU does.
    #[must_use]
    pub fn leads(&self) -> Vec<Vec<Millis>> {
        let mut leads = vec![Vec::new(); self.gpus()];
        for result in &self.results {
            let wave = litd_traces::straggler_wave(&result.start);
            for (all, row) in leads.iter_mut().zip(wave) {
                all.extend(row);
            }
        }
        leads
    }
}

/// Every GPU's temperature and clock after each iteration from a cold start, `[iteration][gpu]`.
///
/// # Errors
/// The scenario makes no sense.
pub fn warming(scenario: &Scenario, seed: u64) -> Result<Vec<Vec<Reading>>, StudyError> {
    let mut plant = Plant::new(scenario, seed)?;
    let mut readings = Vec::with_capacity(WARMING);
    for _ in 0..WARMING {
        plant.run_iteration();
        let now = plant.gpus().map(|gpu| Reading {
            temperature: gpu.temperature.0,
            clock: gpu.clock.0 / 1e6,
        });
        readings.push(now.collect());
    }
    Ok(readings)
}
