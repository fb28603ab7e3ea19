//! One law on one node: how near to the optimum, how soon, and at what risk on the way.

use litd_policies::{Config, Law, Plan, Policy, State};
use litd_sim::{Scenario, rng::Rng};
use litd_units::{Millis, Watts};

use crate::StudyError;
use crate::closed_loop::{ClosedLoop, node};
use crate::optimum::{Best, Outcome, Probe, Space};
use crate::tracking::Disturbance;

/// What money says (facts of the paper's authors' country; a site configures its own).
pub const KILOWATT_HOUR: f64 = 0.14;
/// The price of an hour of one GPU, its power aside.
pub const GPU_HOUR: f64 = 2.5;

/// Near the optimum: both time and power within this part of it.
const NEAR: f64 = 0.01;

/// How a study is done.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The loop's knobs; its law is the run's.
    pub config: Config,
    /// Samples of a run, warm-up included.
    pub samples: u32,
    /// Iterations that an outcome is the mean of.
    pub probe: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            config: Config::default(),
            samples: 200,
            probe: 120,
        }
    }
}

/// A node, a policy, and what happens to the node on the way.
#[derive(Debug, Clone)]
pub struct Case {
    /// A name for tables.
    pub name: String,
    /// The node.
    pub scenario: Scenario,
    /// The policy.
    pub policy: Policy,
    /// What happens, after how many samples.
    pub disturbance: Option<(u32, Disturbance)>,
}

/// The best that a case has to offer, and where it starts.
#[derive(Debug, Clone)]
pub struct Reference {
    /// Under the start caps, at the end of the case.
    pub start: Outcome,
    /// The optimum.
    pub best: Best,
    /// How often the optimiser asked the plant.
    pub calls: u32,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Under the last caps.
    pub end: Outcome,
    /// Adjustments until near the optimum for good, if it came to that.
    pub near_after: Option<u32>,
    /// Iterations from the end of warm-up (or from the disturbance) until then.
    pub near_iterations: Option<u32>,
    /// Changes of caps in all.
    pub adjustments: u32,
    /// Changes of caps after the loop had converged for the first time.
    pub after_convergence: u32,
    /// By how much any cap went beyond where it ended, W.
    pub overshoot: Watts,
    /// The slowest caps on the way, against the start.
    pub slowest: f64,
    /// Where the loop is.
    pub state: State,
    /// What it said last.
    pub why: String,
    /// Caps over time: after which sample, and what they led to.
    pub path: Vec<(u32, Vec<Watts>, Outcome)>,
}

impl Finished {
    /// What a node hour is worth more than at the start, in the currency of the prices.
    #[must_use]
    pub fn net_value(&self, start: &Outcome, gpus: usize) -> f64 {
        let saved = (start.power - self.end.power).0 / 1e3 * KILOWATT_HOUR;
        let faster = start.time / self.end.time - 1.0;
        saved + faster * GPU_HOUR * gpus as f64
    }
}

/// A plant to ask about a case, with the noise of no run: the same for both laws and all seeds.
fn probe(case: &Case, plan: &Plan, iterations: u32, disturbed: bool) -> Result<Probe, StudyError> {
    let mut scenario = case.scenario.clone();
    if let (true, Some((_, disturbance))) = (disturbed, &case.disturbance) {
        disturbance.change(&mut scenario);
    }
    Probe::new(&scenario, 0x5eed, plan.cpu_targets(), iterations)
}

fn plan(case: &Case, config: &Config) -> Result<Plan, StudyError> {
    let mut knobs = config.mitigation.clone();
    knobs.initial_cap = case.scenario.caps.initial;
    Ok(Plan::new(case.policy, &node(&case.scenario)?, &knobs)?)
}

/// The optimum of a case: the least power at the start's speed and the configured loss for
/// gpu-red, the least time within the budget otherwise.
///
/// # Errors
/// The case makes no sense.
pub fn reference(case: &Case, settings: &Settings) -> Result<Reference, StudyError> {
    let plan = plan(case, &settings.config)?;
    let mut probe = probe(case, &plan, settings.probe, true)?;
    let gpus = plan.tdp().len();
    let start: Vec<Watts> = plan.start().to_watts().into_iter().take(gpus).collect();
    let before = probe.at(&start)?;
    let caps = &case.scenario.caps;
    let space = Space {
        range: vec![(caps.floor, caps.tdp); gpus],
        budget: plan.gpu_budget(),
    };
    let best = match case.policy {
        Policy::GpuRed => {
            let slowest = before.time * (1.0 + settings.config.model.slowdown);
            space.least_power(&mut probe, &start, slowest)?
        }
        _ => space.least(&mut probe, &start, |outcome| outcome.time.0)?,
    };
    Ok(Reference {
        start: before,
        best,
        calls: probe.calls(),
    })
}

/// Where a case starts, in place of its optimum.
///
/// # Errors
/// The case makes no sense.
pub fn start(case: &Case, settings: &Settings) -> Result<Reference, StudyError> {
    let plan = plan(case, &settings.config)?;
    let mut probe = probe(case, &plan, settings.probe, true)?;
    let gpus = plan.tdp().len();
    let caps: Vec<Watts> = plan.start().to_watts().into_iter().take(gpus).collect();
    let start = probe.at(&caps)?;
    Ok(Reference {
        start,
        best: Best {
            caps,
            outcome: start,
        },
        calls: probe.calls(),
    })
}

/// Runs one law on a case.
///
/// # Errors
/// The case makes no sense.
pub fn run(
    case: &Case,
    law: Law,
    seed: u64,
    settings: &Settings,
    reference: &Reference,
) -> Result<Finished, StudyError> {
    let mut config = settings.config.clone();
    config.law = law;
    let plan = plan(case, &config)?;
    let mut closed = ClosedLoop::new(case.policy, &case.scenario, seed, &config)?;
    let mut probes = [
        probe(case, &plan, settings.probe, false)?,
        probe(case, &plan, settings.probe, true)?,
    ];
    let start = closed.caps();
    let mut path = vec![(0, start.clone(), probes[0].at(&start)?)];
    let (mut converged, mut after, mut adjustments) = (false, 0, 0);
    let (mut state, mut why) = (closed.controller().state(), String::new());
    let disturbed_at = case.disturbance.as_ref().map(|(at, _)| *at);
    for sample in 1..=settings.samples {
        if let Some((at, disturbance)) = &case.disturbance
            && sample == *at
        {
            disturbance.happen(&mut closed.plant, &case.scenario)?;
            path.push((sample, closed.caps(), probes[1].at(&closed.caps())?));
            (converged, after, adjustments) = (false, 0, 0);
        }
        let step = closed.period(config.calibration.sampling_period)?;
        let past = disturbed_at.is_some_and(|at| sample >= at);
        state = step.decision.state;
        if step.decision.apply.is_some() {
            adjustments += 1;
            after += u32::from(converged);
            let caps = closed.caps();
            path.push((sample, caps.clone(), probes[usize::from(past)].at(&caps)?));
        }
        converged |= state == State::Converged && step.decision.apply.is_none();
        if !matches!(step.decision.why, litd_policies::Why::Collecting { .. }) {
            why = step.decision.why.to_string();
        }
    }
    let from = disturbed_at.unwrap_or(config.calibration.warm_up);
    let counted: Vec<_> = path
        .iter()
        .filter(|entry| disturbed_at.is_none_or(|at| entry.0 >= at))
        .cloned()
        .collect();
    let near = near(&counted, reference, case.policy);
    let end = counted.last().map_or(reference.start, |entry| entry.2);
    Ok(Finished {
        end,
        near_after: near.map(|at| u32::try_from(at).unwrap_or(u32::MAX)),
        near_iterations: near
            .map(|at| counted[at].0.saturating_sub(from) * config.calibration.sampling_period),
        adjustments,
        after_convergence: after,
        overshoot: overshoot(&counted),
        slowest: slowest(&counted),
        state,
        why,
        path,
    })
}

type Path = [(u32, Vec<Watts>, Outcome)];

/// The first caps from which on all are near the optimum.
fn near(path: &Path, reference: &Reference, policy: Policy) -> Option<usize> {
    let best = &reference.best.outcome;
    let is_near = |outcome: &Outcome| {
        let fast = outcome.time <= best.time * (1.0 + NEAR);
        let frugal = policy != Policy::GpuRed || outcome.power <= best.power * (1.0 + NEAR);
        fast && frugal
    };
    let far = path.iter().rposition(|entry| !is_near(&entry.2));
    let first = far.map_or(0, |at| at + 1);
    (first < path.len()).then_some(first)
}

/// By how much any cap went beyond where it ended, away from where it began.
fn overshoot(path: &Path) -> Watts {
    let (Some(first), Some(last)) = (path.first(), path.last()) else {
        return Watts::ZERO;
    };
    let beyond = |gpu: usize| {
        let (begin, end) = (first.1[gpu], last.1[gpu]);
        let caps = path.iter().map(|entry| entry.1[gpu]);
        let past = caps.map(|cap| if end >= begin { cap - end } else { end - cap });
        past.fold(Watts::ZERO, Watts::max)
    };
    (0..first.1.len()).map(beyond).fold(Watts::ZERO, Watts::max)
}

/// The slowest caps on the way against the first, as a part of the iteration.
fn slowest(path: &Path) -> f64 {
    let first = path.first().map_or(Millis(1.0), |entry| entry.2.time);
    path.iter()
        .map(|entry| entry.2.time / first - 1.0)
        .fold(0.0, f64::max)
}

/// Seeds for runs that have nothing in common.
#[must_use]
pub fn seed(number: u64) -> u64 {
    Rng::stream(number, &[0x57d9]).next_u64() >> 1
}
