//! A run as the Lit Silicon paper evaluates it, sample by sample: the bare law or litd's own on the same node, and
//! what Figures 9 to 15 read from it.

use litd_policies::{Config, Law, Leads, Plan, Policy, Scale, adj_power_node, inc_power_gpu};
use litd_sim::{Plant, Scenario};
use litd_traces::{aggregate, straggler_wave};
use litd_trial::{CONFIDENCE, Estimate};
use litd_units::{Aggregation, Hertz, Millis, Watts};

use crate::StudyError;
use crate::closed_loop::{ClosedLoop, node};

/// The paper's length of an experiment (Table II).
pub const ITERATIONS: u32 = 1000;

/// So many samples are a mean before or after adjusting (the caption of Figure 13).
const FEW: usize = 5;

/// Near the end: the paper's 99.5 % and 100.5 %.
const NEAR: f64 = 0.005;

/// Whose law sets the caps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hand {
    /// Algorithms 1 to 3 as they stand: nothing stops them, and only floors of drivers bind.
    Bare,
    /// litd as it is shipped: the model law, with its stopping rules.
    Litd,
}

impl Hand {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Bare, Self::Litd];

    /// For tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare law",
            Self::Litd => "litd",
        }
    }
}

/// One sampling period.
#[derive(Debug, Clone)]
pub struct Point {
    /// Mean time of an iteration.
    pub time: Millis,
    /// Mean power of all GPUs together.
    pub power: Watts,
    /// Mean clock of the GPUs in the last iteration.
    pub clock: Hertz,
    /// The summed lead of each GPU in the last iteration.
    pub leads: Vec<Millis>,
    /// The caps from then on.
    pub caps: Vec<Watts>,
}

/// A run.
#[derive(Debug, Clone)]
pub struct Course {
    /// In order.
    pub points: Vec<Point>,
    /// How many of them are warm-up.
    pub warm_up: usize,
    /// Whether power is what is to fall; else time is.
    saves: bool,
}

/// Runs a law for [`ITERATIONS`].
///
/// # Errors
/// The scenario or the knobs make no sense.
pub fn run(
    scenario: &Scenario,
    policy: Policy,
    hand: Hand,
    config: &Config,
    seed: u64,
) -> Result<Course, StudyError> {
    let period = config.calibration.sampling_period.max(1);
    let samples = ITERATIONS / period;
    let points = match hand {
        Hand::Bare => bare(scenario, policy, config, seed, samples)?,
        Hand::Litd => litd(scenario, policy, config, seed, samples)?,
    };
    Ok(Course {
        points,
        warm_up: config.calibration.warm_up as usize,
        saves: policy == Policy::GpuRed,
    })
}

fn clock(plant: &Plant) -> Hertz {
    let sum: f64 = plant.gpus().map(|gpu| gpu.clock.0).sum();
    Hertz(sum / plant.gpu_count().max(1) as f64)
}

fn litd(
    scenario: &Scenario,
    policy: Policy,
    config: &Config,
    seed: u64,
    samples: u32,
) -> Result<Vec<Point>, StudyError> {
    let config = Config {
        law: Law::Model,
        ..config.clone()
    };
    let mut closed = ClosedLoop::new(policy, scenario, seed, &config)?;
    let mut points = Vec::new();
    for _ in 0..samples {
        let step = closed.period(config.calibration.sampling_period)?;
        points.push(Point {
            time: step.iteration_time,
            power: step.power,
            clock: clock(&closed.plant),
            leads: step.observed.lead_sums,
            caps: closed.caps(),
        });
    }
    Ok(points)
}

fn bare(
    scenario: &Scenario,
    policy: Policy,
    config: &Config,
    seed: u64,
    samples: u32,
) -> Result<Vec<Point>, StudyError> {
    let mut knobs = config.mitigation.clone();
    knobs.initial_cap = scenario.caps.initial;
    let plan = Plan::new(policy, &node(scenario)?, &knobs)?;
    let mut plant = Plant::new(scenario, seed)?;
    for (cpu, &limit) in plan.cpu_targets().iter().enumerate() {
        plant.set_cpu_limit(cpu, limit)?;
    }
    let start = plan.start().to_watts();
    let mut caps: Vec<Watts> = start.into_iter().take(plant.gpu_count()).collect();
    for (gpu, &cap) in caps.iter().enumerate() {
        plant.set_gpu_cap(gpu, cap)?;
    }
    plant.settle();
    let mut law = Bare {
        scale: knobs.scale,
        max_adjustment: knobs.max_adjustment,
        tdp: plan.tdp().to_vec(),
        floor: scenario.caps.floor,
        budget: plan.gpu_budget(),
        largest: Millis::ZERO,
    };
    let (mut points, mut window) = (Vec::new(), Vec::new());
    for sample in 1..=samples {
        let period = config.calibration.sampling_period;
        let (mut time, mut power) = (Millis::ZERO, Watts::ZERO);
        for _ in 0..period {
            time += plant.run_iteration().length;
            power += plant.gpu_power();
        }
        let wave = straggler_wave(plant.starts());
        let lead = |how: Aggregation| -> Vec<Millis> {
            let each = wave.iter().map(|row| aggregate(row, how));
            each.map(Option::unwrap_or_default).collect()
        };
        if sample >= config.calibration.warm_up {
            window.push(lead(config.detection.aggregation));
        }
        if window.len() >= config.detection.window as usize {
            caps = law.adjust(&mean(&window), &caps)?;
            window.clear();
            for (gpu, &cap) in caps.iter().enumerate() {
                plant.set_gpu_cap(gpu, cap)?;
            }
        }
        points.push(Point {
            time: time / f64::from(period),
            power: power / f64::from(period),
            clock: clock(&plant),
            leads: lead(Aggregation::Sum),
            caps: caps.clone(),
        });
    }
    Ok(points)
}

fn mean(window: &[Vec<Millis>]) -> Vec<Millis> {
    let gpus = window.first().map_or(0, Vec::len);
    let of = |gpu: usize| window.iter().map(|row| row[gpu]).sum::<Millis>();
    (0..gpus).map(|gpu| of(gpu) / window.len() as f64).collect()
}

/// Algorithms 2 and 3 with what they keep between adjustments.
struct Bare {
    scale: Scale,
    max_adjustment: Watts,
    tdp: Vec<Watts>,
    floor: Watts,
    budget: Watts,
    largest: Millis,
}

impl Bare {
    fn adjust(&mut self, leads: &[Millis], caps: &[Watts]) -> Result<Vec<Watts>, StudyError> {
        let leads = Leads::new(leads.iter().copied().map(Some))?;
        let (increase, largest) =
            inc_power_gpu(&leads, self.max_adjustment, self.scale, self.largest);
        self.largest = largest;
        let caps = adj_power_node(&increase, caps, &self.tdp, self.budget);
        Ok(caps.into_iter().map(|cap| cap.max(self.floor)).collect())
    }
}

/// What Figures 13 to 15 show of a run.
#[derive(Debug, Clone, Copy)]
pub struct Measures {
    /// Throughput after by before, less 1.
    pub faster: f64,
    /// Power before by after, less 1: above 0 where power is saved, as in Table III.
    pub saved: f64,
    /// Clock after by before, less 1.
    pub clock: f64,
    /// The largest summed lead after by before.
    pub lead: f64,
    /// Samples until power (gpu-red) or throughput is within 0.5 % of its end.
    pub convergence: usize,
    /// Deviation by mean of the same from then on.
    pub variation: f64,
}

/// The mean of independent runs with its 95 % interval; none of fewer than two.
#[must_use]
pub fn interval(values: &[f64]) -> Option<Estimate> {
    Estimate::of(values, CONFIDENCE)
}

fn average(points: &[Point], of: impl Fn(&Point) -> f64) -> f64 {
    points.iter().map(of).sum::<f64>() / points.len().max(1) as f64
}

impl Course {
    /// The last samples of the warm-up: what the end is compared with.
    #[must_use]
    pub fn before(&self) -> &[Point] {
        let end = self.warm_up.min(self.points.len());
        &self.points[end.saturating_sub(FEW)..end]
    }

    /// The last samples.
    #[must_use]
    pub fn after(&self) -> &[Point] {
        &self.points[self.points.len().saturating_sub(FEW)..]
    }

    /// Measured against the samples `before` (its own, or those of a longer warm-up).
    #[must_use]
    pub fn measures(&self, before: &[Point]) -> Measures {
        let ratio = |of: fn(&Point) -> f64| average(self.after(), of) / average(before, of);
        let steered = &self.points[self.warm_up.min(self.points.len())..];
        let converged = match self.saves {
            true => fallen(steered),
            false => risen(steered),
        };
        let value = |it: &Point| match self.saves {
            true => it.power.0,
            false => 1.0 / it.time.0,
        };
        let rest = &steered[converged.min(steered.len())..];
        let mean = average(rest, value);
        let square = average(rest, |it| (value(it) - mean).powi(2));
        Measures {
            faster: 1.0 / ratio(|it| it.time.0) - 1.0,
            saved: 1.0 / ratio(|it| it.power.0) - 1.0,
            clock: ratio(|it| it.clock.0) - 1.0,
            lead: ratio(largest),
            convergence: converged,
            variation: square.sqrt() / mean,
        }
    }
}

fn largest(point: &Point) -> f64 {
    point.leads.iter().map(|lead| lead.0).fold(0.0, f64::max)
}

/// Samples between the last at 99.5 % of the most power and the first at 100.5 % of the least.
fn fallen(points: &[Point]) -> usize {
    let powers = || points.iter().map(|it| it.power.0);
    let (most, least) = (
        powers().fold(0.0, f64::max),
        powers().fold(f64::MAX, f64::min),
    );
    powers()
        .position(|it| it <= least * (1.0 + NEAR))
        .map_or(points.len(), |end| {
            let high = powers().take(end);
            end - high
                .filter(|it| *it >= most * (1.0 - NEAR))
                .count()
                .min(end)
        })
}

/// Samples until 99.5 % of the highest throughput.
fn risen(points: &[Point]) -> usize {
    let least = points.iter().map(|it| it.time.0).fold(f64::MAX, f64::min);
    let reached = points
        .iter()
        .position(|it| it.time.0 <= least / (1.0 - NEAR));
    reached.unwrap_or(points.len())
}
