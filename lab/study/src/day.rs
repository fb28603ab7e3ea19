//! A budget that changes by the hour, as a site's that follows the sun or a tariff: the loop gets
//! another plan each time and levels the node anew.

use litd_policies::{Config, Law, Plan, Policy};
use litd_sim::Scenario;
use litd_units::{Millis, Watts};

use crate::StudyError;
use crate::closed_loop::{ClosedLoop, node};
use crate::optimum::{Probe, Space};

/// The budgets of a day, W per GPU.
pub const BUDGETS: [f64; 5] = [700.0, 660.0, 620.0, 660.0, 700.0];
/// Samples under each, warm-up included.
const SAMPLES: u32 = 120;
const PROBE: u32 = 120;

/// How one law fared under one budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hour {
    /// Which of [`BUDGETS`].
    pub at: usize,
    /// The law.
    pub law: Law,
    /// By which part an iteration is longer at its end than at that budget's optimum.
    pub behind: f64,
    /// Changes of caps, those that the budget itself asks for included.
    pub adjustments: u32,
    /// By how much the caps were ever beyond the budget.
    pub over: Watts,
}

fn scenario() -> Result<Scenario, StudyError> {
    let mut scenario = Scenario::builtin("default").map_err(litd_sim::PlantError::from)?;
    (scenario.kernel_noise, scenario.iteration_noise) = crate::cases::NOISE;
    Ok(scenario)
}

/// The shortest iteration under each budget.
///
/// # Errors
/// The node makes no sense.
pub fn optima() -> Result<Vec<Millis>, StudyError> {
    let scenario = scenario()?;
    let gpus = scenario.gpus.len();
    let mut probe = Probe::new(&scenario, 0x5eed, &[], PROBE)?;
    let best = |&budget: &f64| {
        let space = Space {
            range: vec![(scenario.caps.floor, scenario.caps.tdp); gpus],
            budget: Watts(budget) * gpus as f64,
        };
        let start = vec![Watts(budget); gpus];
        let best = space.least(&mut probe, &start, |outcome| outcome.time.0)?;
        Ok(best.outcome.time)
    };
    BUDGETS.iter().map(best).collect()
}

/// One day under one law, against the optima.
///
/// # Errors
/// The node makes no sense.
pub fn run(law: Law, seed: u64, optima: &[Millis]) -> Result<Vec<Hour>, StudyError> {
    let scenario = scenario()?;
    let gpus = scenario.gpus.len();
    let mut config = Config {
        law,
        ..Config::default()
    };
    config.mitigation.initial_cap = scenario.caps.initial;
    let mut closed = ClosedLoop::new(Policy::GpuRealloc, &scenario, seed, &config)?;
    let mut probe = Probe::new(&scenario, 0x5eed, &[], PROBE)?;
    let mut hours = Vec::new();
    for (at, (&budget, &best)) in BUDGETS.iter().zip(optima).enumerate() {
        let budget = Watts(budget) * gpus as f64;
        let mut adjustments = 0;
        if at > 0 {
            let (node, knobs) = (node(&scenario)?, &config.mitigation);
            let plan = Plan::within(Policy::GpuRealloc, &node, knobs, Some(budget))?;
            if let Some(caps) = closed.controller_mut().replan(plan).apply {
                closed.write(&caps)?;
                adjustments += 1;
            }
        }
        let mut over = Watts::ZERO;
        for _ in 0..SAMPLES {
            over = over.max(closed.caps().into_iter().sum::<Watts>() - budget);
            let step = closed.period(config.calibration.sampling_period)?;
            adjustments += u32::from(step.decision.apply.is_some());
        }
        hours.push(Hour {
            at,
            law,
            behind: probe.at(&closed.caps())?.time / best - 1.0,
            adjustments,
            over,
        });
    }
    Ok(hours)
}
