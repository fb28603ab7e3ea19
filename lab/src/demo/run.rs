//! One policy on one simulated node, from warm-up to convergence, whoever the loop is: this
//! process, or the daemon behind its sockets.

use std::error::Error;

use litd_policies::{Config, Policy, State};
use litd_sim::GpuTelemetry;
use litd_units::{Celsius, Hertz, Millis, Watts};

/// Iterations after convergence before the "after" figures are taken: caps have moved heat.
const SETTLE: u32 = 100;

/// Iterations over which the "after" figures are means.
const MEASURE: u32 = 300;

/// Length of an experiment, in iterations (Table II).
const EXPERIMENT: u32 = 1000;

/// Without convergence the demo ends after so many experiments.
const PATIENCE: u32 = 3;

/// What the live view and the pictures show of one sampling period.
#[derive(Debug, Clone)]
pub struct Frame {
    pub iteration: u32,
    pub state: State,
    /// Why the loop is where it is, in words; only where something happened.
    pub event: Option<String>,
    /// Whether no GPU waits for another.
    pub is_level: bool,
    pub caps: Vec<Watts>,
    /// Summed over the kernels of an iteration.
    pub leads: Vec<Millis>,
    /// The same per kernel.
    pub mean_leads: Vec<Millis>,
    pub clocks: Vec<Hertz>,
    pub temperatures: Vec<Celsius>,
    /// Mean power of all GPUs over the period.
    pub power: Watts,
    /// Mean wall time of an iteration over the period.
    pub iteration_time: Millis,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Summary {
    pub policy: Policy,
    /// Iterations per second, after / before.
    pub throughput_ratio: f64,
    /// Power of all GPUs, after / before.
    pub node_power_ratio: f64,
    pub adjustments: u32,
    pub samples: u32,
    pub converged: bool,
    /// What the loop said last when it stopped or found nothing to do.
    pub verdict: String,
    pub caps: Vec<Watts>,
    pub leads_before: Vec<Millis>,
    pub leads_after: Vec<Millis>,
    /// The largest lead per kernel, before and after.
    pub largest_lead: [Millis; 2],
}

/// What a sampling period showed and brought.
pub struct Period {
    pub state: State,
    /// Whether caps were changed at its end.
    pub applied: bool,
    /// Whether no GPU waits for another.
    pub is_level: bool,
    /// The last that the loop said, but for how many samples it has.
    pub why: String,
    /// Summed over so many kernels of an iteration.
    pub leads: Vec<Millis>,
    pub kernels: f64,
    /// Iterations since the node was switched on.
    pub iteration: u32,
    /// Of each GPU, after the change.
    pub gpus: Vec<GpuTelemetry>,
    /// Mean power of all GPUs over the period.
    pub power: Watts,
    /// Mean wall time of an iteration over the period.
    pub iteration_time: Millis,
}

/// A simulated node and the loop that watches it.
pub trait Watched {
    /// Runs one sampling period and lets the loop decide.
    fn period(&mut self, iterations: u32) -> Result<Period, Box<dyn Error>>;

    /// Why there is nothing to do, where that is known from the start.
    fn nothing(&self) -> Option<&str>;

    /// How often the loop has changed caps.
    fn adjustments(&self) -> u32;

    /// The cap of each GPU.
    fn caps(&self) -> Vec<Watts>;
}

/// A run in progress.
pub struct Run {
    policy: Policy,
    watched: Box<dyn Watched>,
    config: Config,
    state: Option<State>,
    iterations: u32,
    samples: u32,
    converged_at: Option<u32>,
    verdict: String,
}

impl Run {
    pub fn new(policy: Policy, config: Config, watched: Box<dyn Watched>) -> Self {
        Self {
            policy,
            verdict: watched.nothing().unwrap_or_default().to_owned(),
            watched,
            config,
            state: None,
            iterations: 0,
            samples: 0,
            converged_at: None,
        }
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How far it is, from 0 to 1: a guess while the loop is adjusting.
    pub fn progress(&self) -> f64 {
        let done = f64::from(self.iterations);
        let end = match self.converged_at {
            Some(at) => at + SETTLE + MEASURE,
            None => EXPERIMENT + SETTLE + MEASURE,
        };
        (done / f64::from(end.max(1))).min(1.0)
    }

    /// Runs one sampling period; `None` once the run is over.
    pub fn advance(&mut self) -> Result<Option<Frame>, Box<dyn Error>> {
        let iterations = self.iterations;
        let over = match self.converged_at {
            Some(at) => iterations >= at + SETTLE + MEASURE,
            None => iterations >= EXPERIMENT.saturating_mul(PATIENCE),
        };
        if over {
            return Ok(None);
        }
        let step = self.config.calibration.sampling_period.max(1);
        let period = self.watched.period(step)?;
        self.iterations = period.iteration;
        self.samples += 1;
        let event = self.judge(&period);
        let gpus = period.gpus;
        Ok(Some(Frame {
            iteration: period.iteration,
            state: period.state,
            event,
            is_level: period.is_level,
            caps: gpus.iter().map(|gpu| gpu.cap).collect(),
            mean_leads: period
                .leads
                .iter()
                .map(|&lead| lead / period.kernels)
                .collect(),
            leads: period.leads,
            clocks: gpus.iter().map(|gpu| gpu.clock).collect(),
            temperatures: gpus.iter().map(|gpu| gpu.temperature).collect(),
            power: period.power,
            iteration_time: period.iteration_time,
        }))
    }

    /// Whether the run has converged, and what is worth saying.
    fn judge(&mut self, period: &Period) -> Option<String> {
        let changed = self.state.replace(period.state) != Some(period.state);
        let happened = period.applied || (changed && self.samples > 1);
        let watched =
            self.converged_at.is_none() && self.samples >= self.config.calibration.warm_up;
        match period.state {
            State::Converged | State::Rollback if changed || period.applied => {
                self.converged_at = Some(self.iterations);
                self.verdict.clone_from(&period.why);
            }
            State::Adjusting => self.converged_at = None,
            State::Observe if watched => {
                self.converged_at = Some(self.iterations);
                if self.watched.nothing().is_none() {
                    self.verdict.clone_from(&period.why);
                }
                return Some(self.verdict.clone());
            }
            _ => {}
        }
        happened.then(|| period.why.clone())
    }

    /// How the run ended, from all its frames: warm-up is "before", the last stretch "after".
    pub fn summary(&self, frames: &[Frame]) -> Summary {
        let period = self.config.calibration.sampling_period.max(1);
        let warm_up = self.config.calibration.warm_up as usize;
        let before = Mean::of(&frames[..warm_up.min(frames.len())]);
        let last = (MEASURE / period) as usize;
        let after = Mean::of(&frames[frames.len().saturating_sub(last)..]);
        Summary {
            policy: self.policy,
            throughput_ratio: before.iteration_time / after.iteration_time,
            node_power_ratio: after.power / before.power,
            adjustments: self.watched.adjustments(),
            samples: self.samples,
            converged: matches!(self.state, Some(State::Converged | State::Observe)),
            verdict: self.verdict.clone(),
            caps: self.watched.caps(),
            largest_lead: [&before, &after].map(|it| largest(&it.mean_leads)),
            leads_before: before.leads,
            leads_after: after.leads,
        }
    }
}

/// The largest of the GPUs' leads.
pub fn largest(leads: &[Millis]) -> Millis {
    leads.iter().copied().fold(Millis::ZERO, Millis::max)
}

/// The mean of some frames.
struct Mean {
    iteration_time: Millis,
    power: Watts,
    leads: Vec<Millis>,
    mean_leads: Vec<Millis>,
}

impl Mean {
    fn of(frames: &[Frame]) -> Self {
        let n = frames.len() as f64;
        let gpus = frames.first().map_or(0, |frame| frame.leads.len());
        let mean = |of: fn(&Frame) -> &[Millis]| {
            let lead = |gpu: usize| frames.iter().map(|frame| of(frame)[gpu]).sum::<Millis>() / n;
            (0..gpus).map(lead).collect()
        };
        Self {
            iteration_time: frames
                .iter()
                .map(|frame| frame.iteration_time)
                .sum::<Millis>()
                / n,
            power: frames.iter().map(|frame| frame.power).sum::<Watts>() / n,
            leads: mean(|frame| &frame.leads),
            mean_leads: mean(|frame| &frame.mean_leads),
        }
    }
}
