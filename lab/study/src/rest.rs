//! How often caps change on a node that is level: noise is no reason to touch it.

use litd_policies::{Config, Law, Policy};
use litd_sim::Scenario;

use crate::StudyError;
use crate::cases;
use crate::closed_loop::ClosedLoop;

/// Iterations over which changes are counted.
pub const ITERATIONS: u32 = 2000;
/// What it takes to level a node, and cpu-slosh to give the CPUs' watts to a level one, takes no
/// longer than this.
const LEVELLING: u32 = 1000;

/// Which node is level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// One of GPUs that are all alike.
    Alike,
    /// `default`, once the law has levelled it.
    Levelled,
}

impl Node {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Alike, Self::Levelled];
}

/// How often one law changed caps on a level node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rest {
    /// The node.
    pub node: Node,
    /// The policy.
    pub policy: Policy,
    /// The law.
    pub law: Law,
    /// Changes over [`ITERATIONS`].
    pub changes: u32,
}

impl Rest {
    /// Changes per 1,000 iterations.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from(self.changes) * 1e3 / f64::from(ITERATIONS)
    }
}

fn scenario(node: Node) -> Result<Scenario, StudyError> {
    let mut scenario = Scenario::builtin("default").map_err(litd_sim::PlantError::from)?;
    (scenario.kernel_noise, scenario.iteration_noise) = cases::NOISE;
    if let (Node::Alike, Some(&first)) = (node, scenario.gpus.first()) {
        scenario.gpus.fill(first);
    }
    Ok(scenario)
}

/// Counts the changes of caps once the node is level.
///
/// # Errors
/// The node makes no sense.
pub fn count(node: Node, policy: Policy, law: Law, seed: u64) -> Result<Rest, StudyError> {
    let config = Config {
        law,
        ..Config::default()
    };
    let scenario = scenario(node)?;
    let mut closed = ClosedLoop::new(policy, &scenario, seed, &config)?;
    let period = config.calibration.sampling_period.max(1);
    let mut skipped = config.calibration.warm_up;
    if node == Node::Levelled || policy == Policy::CpuSlosh {
        skipped += LEVELLING / period;
    }
    for _ in 0..skipped {
        closed.period(period)?;
    }
    let mut changes = 0;
    for _ in 0..ITERATIONS / period {
        changes += u32::from(closed.period(period)?.decision.apply.is_some());
    }
    Ok(Rest {
        node,
        policy,
        law,
        changes,
    })
}
