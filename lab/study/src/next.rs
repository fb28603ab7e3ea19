//! What more could be done with caps once a node is level: each choice with what it costs and
//! saves, so that what is built is what helps.

use litd_sim::{Plant, Scenario};
use litd_units::{Hertz, Watts};

use crate::StudyError;
use crate::optimum::{Best, Outcome, Probe, Space};
use crate::run::{GPU_HOUR, KILOWATT_HOUR};

const PROBE: u32 = 120;
/// By how much all caps are lowered.
const LOWER: [f64; 5] = [0.02, 0.05, 0.1, 0.15, 0.2];
/// How many times as long transfers take where communication is to limit.
const SLOW_LINKS: f64 = 3.0;
/// What the straggler gets on top of the budget, as far as its TDP and its heat allow.
const HEADROOM: Watts = Watts(50.0);
/// The loss that gpu-red may cost.
const LOSS: f64 = 5e-4;
/// How far above the straggler's clock the others' ceilings are.
const CEILINGS: [f64; 3] = [0.0, 0.005, 0.01];

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

/// A node that the clock limits and one that communication limits.
fn nodes() -> Result<[(&'static str, Scenario); 2], StudyError> {
    let mut clock = Scenario::builtin("default").map_err(litd_sim::PlantError::from)?;
    (clock.kernel_noise, clock.iteration_noise) = crate::cases::NOISE;
    let mut links = clock.clone();
    for collective in &mut links.workload.collectives {
        collective.transfer = collective.transfer * SLOW_LINKS;
    }
    Ok([("the clock limits", clock), ("communication limits", links)])
}

/// All choices on both nodes.
///
/// # Errors
/// A shipped scenario is missing.
pub fn sweep() -> Result<Vec<Choice>, StudyError> {
    let mut choices = Vec::new();
    for (name, scenario) in &nodes()? {
        let mut level = Level::of(name, scenario)?;
        choices.extend(level.lower()?);
        choices.push(level.headroom()?);
        choices.extend(ceilings(name, scenario)?);
    }
    Ok(choices)
}

/// The first of them: all caps lower by the same part.
///
/// # Errors
/// A shipped scenario is missing.
pub fn lower() -> Result<Vec<Choice>, StudyError> {
    let mut choices = Vec::new();
    for (name, scenario) in &nodes()? {
        choices.extend(Level::of(name, scenario)?.lower()?);
    }
    Ok(choices)
}

/// A node at its best within the budget that it starts with.
struct Level<'a> {
    name: &'a str,
    scenario: &'a Scenario,
    probe: Probe,
    space: Space,
    best: Best,
}

impl<'a> Level<'a> {
    fn of(name: &'a str, scenario: &'a Scenario) -> Result<Self, StudyError> {
        let gpus = scenario.gpus.len();
        let mut probe = Probe::new(scenario, 0x5eed, &[], PROBE)?;
        let start = vec![scenario.caps.initial; gpus];
        let space = Space {
            range: vec![(scenario.caps.floor, scenario.caps.tdp); gpus],
            budget: start.iter().copied().sum(),
        };
        let best = space.least(&mut probe, &start, |outcome| outcome.time.0)?;
        Ok(Self {
            name,
            scenario,
            probe,
            space,
            best,
        })
    }

    fn choice(&self, what: String, after: &Outcome) -> Choice {
        let gpus = self.scenario.gpus.len();
        Choice::new(self.name, what, &self.best.outcome, after, gpus)
    }

    /// All caps lower by the same part.
    fn lower(&mut self) -> Result<Vec<Choice>, StudyError> {
        let mut choices = Vec::new();
        for part in LOWER {
            let caps = self.best.caps.iter().map(|&cap| cap * (1.0 - part));
            let caps: Vec<Watts> = caps.map(|cap| cap.max(self.scenario.caps.floor)).collect();
            let after = self.probe.at(&caps)?;
            choices.push(self.choice(format!("all caps {:.0} % lower", part * 100.0), &after));
        }
        Ok(choices)
    }

    /// The straggler gets more than the budget, and the node is levelled with that.
    fn headroom(&mut self) -> Result<Choice, StudyError> {
        let space = Space {
            budget: self.space.budget + HEADROOM,
            ..self.space.clone()
        };
        let caps = self.best.caps.clone();
        let found = space.least(&mut self.probe, &caps, |outcome| outcome.time.0)?;
        let what = format!("{:.0} W beyond the budget", HEADROOM.0);
        Ok(self.choice(what, &found.outcome))
    }
}

/// gpu-red by ceilings on clocks beside gpu-red by caps, both against all GPUs at their TDP.
fn ceilings(name: &str, scenario: &Scenario) -> Result<Vec<Choice>, StudyError> {
    let gpus = scenario.gpus.len();
    let tdp = vec![scenario.caps.tdp; gpus];
    let mut probe = Probe::new(scenario, 0x5eed, &[], PROBE)?;
    let before = probe.at(&tdp)?;
    let space = Space {
        range: vec![(scenario.caps.floor, scenario.caps.tdp); gpus],
        budget: tdp.iter().copied().sum(),
    };
    let by_caps = space.least_power(&mut probe, &tdp, before.time * (1.0 + LOSS))?;
    let what = "gpu-red by caps, at its best".to_owned();
    let mut choices = vec![Choice::new(name, what, &before, &by_caps.outcome, gpus)];
    let mut plant = Plant::new(scenario, 0x5eed)?;
    for gpu in 0..gpus {
        plant.set_gpu_cap(gpu, scenario.caps.tdp)?;
    }
    plant.settle();
    let fresh = plant.clone();
    plant.run_iteration();
    let clocks = plant.gpus().map(|gpu| gpu.clock.0);
    let slowest = clocks.fold(f64::INFINITY, f64::min);
    for above in CEILINGS {
        let mut limited = fresh.clone();
        for gpu in 0..gpus {
            limited.lock_gpu_clock(gpu, Some(Hertz(slowest * (1.0 + above))))?;
        }
        let after = Probe::of(&limited, PROBE).at(&tdp)?;
        let part = above * 100.0;
        let what = format!("gpu-red by clocks at most {part:.1} % above the straggler's");
        choices.push(Choice::new(name, what, &before, &after, gpus));
    }
    Ok(choices)
}
