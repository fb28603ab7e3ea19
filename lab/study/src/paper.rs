//! How near a scenario is to the node that the Lit Silicon paper measured: Table III, the overlap
//! of Figure 3, the spreads of Figure 5.

use litd_policies::{LeadError, Leads, Policy, Scale, adj_power_node, inc_power_gpu};
use litd_sim::{IterationResult, Plant, Scenario};
use litd_traces::study::{ModelOptions, predict};
use litd_units::{Millis, Watts};

use crate::StudyError;

/// Table II: what the paper measured with.
const WINDOW: u32 = 3;
const MAX_ADJUSTMENT: Watts = Watts(15.0);
const POWER_BUDGET: Watts = Watts(20.0);
/// 50 samples of warm-up leave 50 of a thousand iterations' samples, three to an adjustment.
const ADJUSTMENTS: u32 = 17;
/// Iterations that a mean is taken over.
const MEASURE: u32 = 100;
/// Iterations that a prediction is made from.
const PREDICT: u32 = 3;
/// Computation kernels of one layer in one pass of the FSDP workload.
pub const KERNELS_PER_LAYER: usize = 10;

/// One figure of the paper, and what the scenario gives for it. Power is a benefit, before /
/// after, as in Table III.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it is.
    pub what: &'static str,
    /// Where the paper says it.
    pub source: &'static str,
    /// What the paper says.
    pub paper: f64,
    /// What the scenario gives. SIMULATED.
    pub simulated: f64,
    /// How far apart they may be before a fit minds, about what the paper's rounding hides.
    pub tolerance: f64,
}

impl Row {
    /// Simulated minus paper.
    #[must_use]
    pub fn residual(&self) -> f64 {
        self.simulated - self.paper
    }
}

/// The sum of squared residuals, each in its tolerance.
#[must_use]
pub fn misfit(rows: &[Row]) -> f64 {
    let square = |row: &Row| (row.residual() / row.tolerance).powi(2);
    rows.iter().map(square).sum()
}

/// The paper's figures beside the scenario's, which are means over the seeds.
///
/// # Errors
/// The scenario makes no sense.
pub fn rows(scenario: &Scenario, seeds: &[u64]) -> Result<Vec<Row>, StudyError> {
    let mut mean = [0.0; 10];
    for &seed in seeds {
        let run = |policy| Run::of(scenario, policy, seed);
        let red = run(Policy::GpuRed)?;
        let realloc = run(Policy::GpuRealloc)?;
        let slosh = run(Policy::CpuSlosh)?;
        let [max, ..] = red.predicted;
        let [_, med, min] = realloc.predicted;
        let now = [
            1.0 / max.1,
            med.0,
            1.0 / med.1,
            min.0,
            1.0 / min.1,
            red.power_benefit,
            red.throughput,
            realloc.throughput,
            slosh.throughput,
            slosh.power_benefit,
        ];
        for (mean, now) in mean.iter_mut().zip(now) {
            *mean += now / seeds.len() as f64;
        }
    }
    let table = "Table III";
    let paper = [
        ("gpu-red, power, predicted", table, 1.05, 0.004),
        ("gpu-realloc, throughput, predicted", table, 1.06, 0.004),
        ("gpu-realloc, power, predicted", table, 1.00, 0.004),
        ("cpu-slosh, throughput, predicted", table, 1.10, 0.004),
        ("cpu-slosh, power, predicted", table, 0.97, 0.004),
        ("gpu-red, power, measured", table, 1.04, 0.003),
        ("gpu-red, throughput, measured", table, 1.00, 0.002),
        ("gpu-realloc, throughput, measured", table, 1.03, 0.003),
        ("cpu-slosh, throughput, measured", table, 1.04, 0.003),
        ("cpu-slosh, power, measured", table, 0.97, 0.003),
    ];
    let row = |((what, source, paper, tolerance), simulated)| Row {
        what,
        source,
        paper,
        simulated,
        tolerance,
    };
    let mut rows = Vec::from_iter(paper.into_iter().zip(mean).map(row));
    let (straggler, leaders) = overlaps(scenario, seeds.first().copied().unwrap_or(1))?;
    let (hottest, fastest) = spreads(scenario);
    let more = [
        ("overlap ratio of the straggler", "Figure 3a", 0.296, 0.010),
        ("highest overlap of a leader", "Figure 3a", 0.527, 0.015),
        ("hottest / coolest GPU (in C)", "Figure 5", 1.155, 0.010),
        ("highest / lowest clock", "Figure 5", 1.062, 0.002),
    ];
    let found = [straggler, leaders, hottest, fastest];
    rows.extend(more.into_iter().zip(found).map(row));
    Ok(rows)
}

/// One use case of Table I under the paper's bare law.
struct Run {
    /// Equations 1 to 16 for max, med and min: speed-up, power after / before, and the speed-up
    /// without noise.
    predicted: [(f64, f64, f64); 3],
    /// Before / after.
    power_benefit: f64,
    /// After / before.
    throughput: f64,
}

impl Run {
    fn of(scenario: &Scenario, policy: Policy, seed: u64) -> Result<Self, StudyError> {
        let mut scenario = scenario.clone();
        let caps = scenario.caps;
        let (start, budget) = match policy {
            Policy::GpuRed => (caps.tdp, caps.tdp),
            Policy::CpuSlosh => (caps.initial, caps.initial + POWER_BUDGET),
            Policy::GpuRealloc | Policy::Observe => (caps.initial, caps.initial),
        };
        scenario.caps.initial = start;
        let mut plant = Plant::new(&scenario, seed)?;
        plant.settle();
        let before = Means::of(&mut plant);
        let predicted = prediction(&mut plant, before.power, &scenario);
        level(&mut plant, start, budget)?;
        plant.settle();
        let after = Means::of(&mut plant);
        Ok(Self {
            predicted,
            power_benefit: before.power / after.power,
            throughput: before.time / after.time,
        })
    }
}

/// Means over some iterations.
struct Means {
    time: Millis,
    power: Watts,
}

impl Means {
    fn of(plant: &mut Plant) -> Self {
        let (mut time, mut power) = (Millis::ZERO, Watts::ZERO);
        for _ in 0..MEASURE {
            time += plant.run_iteration().length;
            power += plant.gpu_power();
        }
        let n = f64::from(MEASURE);
        Self {
            time: time / n,
            power: power / n,
        }
    }
}

/// Section IV on the kernels of the next iterations.
fn prediction(plant: &mut Plant, node: Watts, scenario: &Scenario) -> [(f64, f64, f64); 3] {
    let gpus = plant.gpu_count();
    let idle: Watts = scenario.gpus.iter().map(|gpu| gpu.idle).sum();
    let options = ModelOptions {
        baseline_power: node / gpus as f64,
        idle_power: idle / gpus as f64,
        ..ModelOptions::default()
    };
    let mut durations = vec![Vec::new(); gpus];
    let mut overlaps = vec![Vec::new(); gpus];
    for _ in 0..PREDICT {
        let last = plant.run_iteration();
        for g in 0..gpus {
            let kernels = last.duration[g].iter().zip(&last.overlapped[g]);
            overlaps[g].extend(kernels.map(|(&all, &over)| (over / all).min(1.0)));
            durations[g].extend(last.duration[g].iter().map(|time| time.0));
        }
    }
    predict(&durations, &overlaps, &options).aligned
}

/// Algorithms 1 to 3 as they stand, `ADJUSTMENTS` times, each in thermal steady state.
fn level(plant: &mut Plant, start: Watts, budget: Watts) -> Result<(), StudyError> {
    let gpus = plant.gpu_count();
    let limits = *plant.cap_limits();
    let node = budget * gpus as f64;
    let tdp = vec![limits.tdp; gpus];
    let mut caps = vec![start; gpus];
    let mut largest = Millis::ZERO;
    for _ in 0..ADJUSTMENTS {
        plant.settle();
        let leads = leads(plant)?;
        let (increase, most) = inc_power_gpu(&leads, MAX_ADJUSTMENT, Scale::Global, largest);
        largest = most;
        caps = adj_power_node(&increase, &caps, &tdp, node);
        for (gpu, cap) in caps.iter_mut().enumerate() {
            *cap = cap.max(limits.floor);
            plant.set_gpu_cap(gpu, *cap)?;
        }
    }
    Ok(())
}

/// Algorithm 1 with summed leads, averaged over a window.
fn leads(plant: &mut Plant) -> Result<Leads, LeadError> {
    let gpus = plant.gpu_count();
    let mut sums = vec![Millis::ZERO; gpus];
    for _ in 0..WINDOW {
        let starts = &plant.run_iteration().start;
        for k in 0..starts[0].len() {
            let last = starts
                .iter()
                .map(|row| row[k])
                .fold(Millis::ZERO, Millis::max);
            for (sum, row) in sums.iter_mut().zip(starts) {
                *sum += (last - row[k]) / f64::from(WINDOW);
            }
        }
    }
    Leads::new(sums.into_iter().map(Some))
}

/// Figure 3a: by layer, weighted by duration, the straggler's median and the highest plateau of
/// a leader, which is the mean of its highest eighth.
fn overlaps(scenario: &Scenario, seed: u64) -> Result<(f64, f64), StudyError> {
    let mut plant = Plant::new(scenario, seed)?;
    plant.settle();
    let last = plant.run_iteration().clone();
    let straggler = straggler(scenario);
    let by_layer = |gpu: usize| {
        let mut ratios = layer_overlaps(&last, gpu);
        ratios.sort_by(f64::total_cmp);
        ratios
    };
    let plateau = |gpu: usize| {
        let ratios = by_layer(gpu);
        let few = (ratios.len() / 8).max(1);
        ratios.iter().rev().take(few).sum::<f64>() / few as f64
    };
    let own = by_layer(straggler);
    let leaders = (0..plant.gpu_count()).filter(|&gpu| gpu != straggler);
    let highest = leaders.map(plateau).fold(0.0, f64::max);
    Ok((own.get(own.len() / 2).copied().unwrap_or(0.0), highest))
}

/// The overlap ratio of each layer in each pass on a GPU, weighted by duration, in the order in which they run.
#[must_use]
pub fn layer_overlaps(result: &IterationResult, gpu: usize) -> Vec<f64> {
    let (all, over) = (&result.duration[gpu], &result.overlapped[gpu]);
    let layers = all
        .chunks(KERNELS_PER_LAYER)
        .zip(over.chunks(KERNELS_PER_LAYER));
    let sum = |times: &[Millis]| times.iter().copied().sum::<Millis>();
    layers.map(|(all, over)| sum(over) / sum(all)).collect()
}

/// The GPU with the lowest clock.
#[must_use]
pub fn straggler(scenario: &Scenario) -> usize {
    let clocks = scenario.gpus.iter().map(|gpu| gpu.clock_offset).enumerate();
    let slowest = clocks.min_by(|a, b| a.1.total_cmp(&b.1));
    slowest.map_or(0, |(gpu, _)| gpu)
}

/// Highest over lowest temperature and clock, in steady state at the reference cap.
fn spreads(scenario: &Scenario) -> (f64, f64) {
    let ratio = |values: &dyn Fn(&litd_sim::GpuSpec) -> f64| {
        let of = || scenario.gpus.iter().map(values);
        of().fold(0.0, f64::max) / of().fold(f64::INFINITY, f64::min)
    };
    let at = scenario.caps.reference;
    (
        ratio(&|gpu| gpu.steady_temperature(at).0),
        ratio(&|gpu| 1.0 + gpu.clock_offset),
    )
}
