//! The loop in this process, as the demo watches it.

use std::error::Error;

use litd_policies::{Config, Policy, Why};
use litd_sim::Scenario;
use litd_study::ClosedLoop;
use litd_units::Watts;

use super::run::{Period, Watched};

/// A node and its loop.
pub struct InProcess {
    closed: ClosedLoop,
    why: String,
}

impl InProcess {
    pub fn new(
        policy: Policy,
        scenario: &Scenario,
        seed: u64,
        config: &Config,
    ) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            closed: ClosedLoop::new(policy, scenario, seed, config)?,
            why: String::new(),
        })
    }
}

impl Watched for InProcess {
    fn period(&mut self, iterations: u32) -> Result<Period, Box<dyn Error>> {
        let step = self.closed.period(iterations)?;
        let decision = step.decision;
        if !matches!(decision.why, Why::Collecting { .. }) {
            self.why = decision.why.to_string();
        }
        Ok(Period {
            state: decision.state,
            is_level: self.closed.controller().is_level(),
            applied: decision.apply.is_some(),
            why: self.why.clone(),
            kernels: f64::from(step.observed.kernels),
            leads: step.observed.lead_sums,
            iteration: self.closed.plant.iterations(),
            gpus: self.closed.plant.gpus().collect(),
            power: step.power,
            iteration_time: step.iteration_time,
        })
    }

    fn nothing(&self) -> Option<&str> {
        self.closed.nothing()
    }

    fn adjustments(&self) -> u32 {
        self.closed.controller().adjustments()
    }

    fn caps(&self) -> Vec<Watts> {
        self.closed.caps()
    }
}
