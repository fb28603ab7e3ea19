//! What more could be done with caps once a node is level: each choice with what it costs and
//! saves, so that what is built is what helps.

use litd_sim::Scenario;
use litd_units::Watts;

use crate::StudyError;
use crate::optimum::{Outcome, Probe, Space};
use crate::run::{GPU_HOUR, KILOWATT_HOUR};

const PROBE: u32 = 120;
/// By how much all caps are lowered.
const LOWER: [f64; 5] = [0.02, 0.05, 0.1, 0.15, 0.2];
/// How many times as long transfers take where communication is to limit.
const SLOW_LINKS: f64 = 3.0;

/// One choice on one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The node.
    pub node: String,
    /// What is done.
    pub what: String,
    /// By which part an iteration is longer than without it.
    pub longer: f64,
    /// By which part the GPUs draw more.
    pub power: f64,
    /// What a node hour is worth more, at the study's prices.
    pub value: f64,
}

impl Choice {
    fn new(node: &str, what: String, before: &Outcome, after: &Outcome, gpus: usize) -> Self {
        let saved = (before.power - after.power).0 / 1e3 * KILOWATT_HOUR;
        let faster = before.time / after.time - 1.0;
        Self {
            node: node.to_owned(),
            what,
            longer: after.time / before.time - 1.0,
            power: after.power / before.power - 1.0,
            value: saved + faster * GPU_HOUR * gpus as f64,
        }
    }
}

/// All choices on a node that the clock limits and on one that communication limits.
///
/// # Errors
/// A shipped scenario is missing.
pub fn sweep() -> Result<Vec<Choice>, StudyError> {
    let mut clock = Scenario::builtin("default").map_err(litd_sim::PlantError::from)?;
    (clock.kernel_noise, clock.iteration_noise) = crate::cases::NOISE;
    let mut links = clock.clone();
    for collective in &mut links.workload.collectives {
        collective.transfer = collective.transfer * SLOW_LINKS;
    }
    let mut choices = lower("the clock limits", &clock)?;
    choices.extend(lower("communication limits", &links)?);
    Ok(choices)
}

/// All caps of a level node lower by the same part.
fn lower(name: &str, scenario: &Scenario) -> Result<Vec<Choice>, StudyError> {
    let gpus = scenario.gpus.len();
    let mut probe = Probe::new(scenario, 0x5eed, &[], PROBE)?;
    let start = vec![scenario.caps.initial; gpus];
    let space = Space {
        range: vec![(scenario.caps.floor, scenario.caps.tdp); gpus],
        budget: start.iter().copied().sum(),
    };
    let level = space.least(&mut probe, &start, |outcome| outcome.time.0)?;
    let mut choices = Vec::new();
    for part in LOWER {
        let caps = level.caps.iter().map(|&cap| cap * (1.0 - part));
        let caps: Vec<Watts> = caps.map(|cap| cap.max(scenario.caps.floor)).collect();
        let what = format!("all caps {:.0} % lower", part * 100.0);
        let after = probe.at(&caps)?;
        choices.push(Choice::new(name, what, &level.outcome, &after, gpus));
    }
    Ok(choices)
}
