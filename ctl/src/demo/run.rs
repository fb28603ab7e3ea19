//! One policy on one simulated node, from warm-up to convergence: the plant, the loop, and the
//! wire between them.

use std::error::Error;

use litd_policies::{
    Config, Controller, Cpu, Limits, Node, Plan, PlanError, Policy, State, Why, actuate,
};
use litd_sim::{Plant, Scenario};
use litd_units::{Celsius, Hertz, Millis, Watts};

use super::observe;

/// Iterations after convergence before the "after" figures are taken: caps have moved heat.
const SETTLE: u32 = 100;

/// Iterations over which the "after" figures are means.
const MEASURE: u32 = 300;

/// Without convergence the demo ends after so many times the configured iterations.
const PATIENCE: u32 = 3;

/// What the live view and the pictures show of one sampling period.
#[derive(Debug, Clone)]
pub struct Frame {
    pub iteration: u32,
    pub state: State,
    /// Why the loop is where it is, in words; only where something happened.
    pub event: Option<String>,
    pub caps: Vec<Watts>,
    pub leads: Vec<Millis>,
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
}

/// A run in progress.
pub struct Run {
    policy: Policy,
    plant: Plant,
    controller: Controller,
    config: Config,
    /// What the devices hold, as read back: GPUs, then the CPUs that the plan touches.
    held: Vec<Watts>,
    /// Why there is nothing to do, where that is known from the start.
    nothing: Option<PlanError>,
    samples: u32,
    converged_at: Option<u32>,
    verdict: String,
}

/// The node as the loop sees it.
fn node(scenario: &Scenario) -> Node {
    let caps = &scenario.caps;
    let gpu = Limits {
        floor: caps.floor,
        ceiling: caps.tdp,
        resolution: caps.resolution,
    };
    let cpu = |cpu: &litd_sim::CpuSpec| Cpu {
        limits: Limits {
            floor: cpu.floor,
            ceiling: cpu.limit,
            resolution: caps.resolution,
        },
        draw: cpu.draw,
    };
    Node {
        gpus: vec![gpu; scenario.gpus.len()],
        cpus: scenario.cpus.iter().map(cpu).collect(),
    }
}

impl Run {
    pub fn new(
        policy: Policy,
        scenario: &Scenario,
        seed: u64,
        config: &Config,
    ) -> Result<Self, Box<dyn Error>> {
        let mut config = config.clone();
        config.mitigation.initial_cap = scenario.caps.initial;
        let node = node(scenario);
        // No headroom is an answer: the node is watched as it is, and nothing is written.
        let (plan, nothing) = match Plan::new(policy, &node, &config.mitigation) {
            Ok(plan) => (plan, None),
            Err(no @ (PlanError::NoHeadroom { .. } | PlanError::NoCpuHeadroom { .. })) => (
                Plan::new(Policy::Observe, &node, &config.mitigation)?,
                Some(no),
            ),
            Err(error) => return Err(error.into()),
        };
        let mut plant = Plant::new(scenario, seed)?;
        let mut held = found(&plant, &plan)?;
        write(&mut plant, &mut held, plan.start())?;
        plant.settle();
        Ok(Self {
            policy,
            plant,
            verdict: nothing
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            controller: Controller::new(plan, config.clone()),
            config,
            held,
            nothing,
            samples: 0,
            converged_at: None,
        })
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How far it is, from 0 to 1: a guess while the loop is adjusting.
    pub fn progress(&self) -> f64 {
        let done = f64::from(self.plant.iterations());
        let end = match self.converged_at {
            Some(at) => at + SETTLE + MEASURE,
            None => self.config.calibration.iterations + SETTLE + MEASURE,
        };
        (done / f64::from(end.max(1))).min(1.0)
    }

    /// Runs one sampling period; `None` once the run is over.
    pub fn advance(&mut self) -> Result<Option<Frame>, Box<dyn Error>> {
        let iterations = self.plant.iterations();
        let over = match self.converged_at {
            Some(at) => iterations >= at + SETTLE + MEASURE,
            None => iterations >= self.config.calibration.iterations.saturating_mul(PATIENCE),
        };
        if over {
            return Ok(None);
        }
        let period = self.config.calibration.sampling_period.max(1);
        let (mut time, mut power) = (Millis::ZERO, Watts::ZERO);
        for _ in 0..period {
            time += self.plant.run_iteration().length;
            power += self.plant.gpu_power();
        }
        let sample = observe::sample(&self.plant, self.config.detection.aggregation)?;
        self.samples += 1;
        let event = self.decide(&sample)?;
        let gpus: Vec<_> = self.plant.gpus().collect();
        Ok(Some(Frame {
            iteration: self.plant.iterations(),
            state: self.controller.state(),
            event,
            caps: gpus.iter().map(|gpu| gpu.cap).collect(),
            leads: sample.lead_sums,
            clocks: gpus.iter().map(|gpu| gpu.clock).collect(),
            temperatures: gpus.iter().map(|gpu| gpu.temperature).collect(),
            power: power / f64::from(period),
            iteration_time: time / f64::from(period),
        }))
    }

    fn decide(&mut self, sample: &observe::Observed) -> Result<Option<String>, Box<dyn Error>> {
        let was = self.controller.state();
        let decision = self.controller.step(&sample.sample);
        if let Some(caps) = &decision.apply {
            write(&mut self.plant, &mut self.held, caps)?;
        }
        let watched =
            self.converged_at.is_none() && self.samples >= self.config.calibration.warm_up;
        match (decision.state, &decision.why) {
            (State::Converged | State::Rollback, why)
                if was != decision.state || decision.apply.is_some() =>
            {
                self.converged_at = Some(self.plant.iterations());
                self.verdict = why.to_string();
            }
            (State::Adjusting, _) => self.converged_at = None,
            (State::Observe, Why::Seen(diagnosis)) if watched => {
                self.converged_at = Some(self.plant.iterations());
                if self.nothing.is_none() {
                    self.verdict = diagnosis.to_string();
                }
                return Ok(Some(self.verdict.clone()));
            }
            _ => {}
        }
        let happened = decision.apply.is_some() || was != decision.state;
        Ok(happened.then(|| decision.why.to_string()))
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
            adjustments: self.controller.adjustments(),
            samples: self.samples,
            converged: matches!(self.controller.state(), State::Converged | State::Observe),
            verdict: self.verdict.clone(),
            caps: self.plant.gpus().map(|gpu| gpu.cap).collect(),
            leads_before: before.leads,
            leads_after: after.leads,
        }
    }
}

/// The mean of some frames.
struct Mean {
    iteration_time: Millis,
    power: Watts,
    leads: Vec<Millis>,
}

impl Mean {
    fn of(frames: &[Frame]) -> Self {
        let n = frames.len() as f64;
        let gpus = frames.first().map_or(0, |frame| frame.leads.len());
        let lead = |gpu: usize| frames.iter().map(|frame| frame.leads[gpu]).sum::<Millis>() / n;
        Self {
            iteration_time: frames
                .iter()
                .map(|frame| frame.iteration_time)
                .sum::<Millis>()
                / n,
            power: frames.iter().map(|frame| frame.power).sum::<Watts>() / n,
            leads: (0..gpus).map(lead).collect(),
        }
    }
}

/// The caps that the plan's devices hold.
fn found(plant: &Plant, plan: &Plan) -> Result<Vec<Watts>, Box<dyn Error>> {
    let gpus = plan.tdp().len();
    (0..plan.start().len())
        .map(|device| {
            Ok(match device.checked_sub(gpus) {
                None => plant.gpu_cap(device)?,
                Some(cpu) => plant.cpu_limit(cpu)?,
            })
        })
        .collect()
}

/// Writes caps in the safe order. The simulated devices have no faults, so a failure is one of
/// the demo itself.
fn write(
    plant: &mut Plant,
    held: &mut [Watts],
    caps: &litd_policies::CapVector,
) -> Result<(), Box<dyn Error>> {
    let gpus = plant.gpu_count();
    let failures = actuate(caps, held, |device, wanted| {
        match device.checked_sub(gpus) {
            None => plant.set_gpu_cap(device, wanted),
            Some(cpu) => plant.set_cpu_limit(cpu, wanted),
        }
        .map_err(|error| error.to_string())
    });
    match failures.into_iter().next() {
        Some(failure) => Err(failure.to_string().into()),
        None => Ok(()),
    }
}
