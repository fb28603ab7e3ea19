//! A workload as the paper emulates one: profiles of layers, its frontier, and the baselines'.

use std::error::Error;

use litd_cli::plan::saving;
use litd_planner::baselines::Baselines;
use litd_planner::{Job, Pipeline, Plan, Scale, Schedule};
use litd_profiles::{Pricing, Profile};
use litd_units::{Millis, Watts};

use super::workloads::Workload;

/// A mean stage's forward and backward in ms; activations are computed again, so that a backward is three
/// forwards. The unit of time is 1 ms, as the paper's.
const TIMES: [f64; 2] = [60.0, 180.0];

/// A workload with its frontier.
pub struct Emulated {
    pub job: Job,
    profile: Profile,
    full: Plan,
}

/// What is saved, and what it costs in time.
#[derive(Debug, Clone, Copy)]
pub struct Saved {
    pub percent: f64,
    pub slowdown: f64,
}

impl Emulated {
    pub fn new(workload: &Workload) -> Result<Self, Box<dyn Error>> {
        let Workload {
            model,
            gpu,
            microbatches,
        } = workload;
        let profile = gpu.profile(&model.weights(), TIMES);
        let pricing = Pricing {
            blocking: Watts(gpu.blocking),
            ..Pricing::default()
        };
        let (spec, _) = profile.price(&pricing)?;
        let stages = u32::try_from(model.stages())?;
        let graph = Schedule::OneForwardOneBackward.graph(stages, *microbatches)?;
        let scale = Scale {
            unit: pricing.unit,
            blocking: pricing.blocking,
            gpus: stages,
        };
        let job = Pipeline::new(graph, &spec, scale)?.characterise(|_, _| {});
        let full = job.full_speed(None);
        Ok(Self { job, profile, full })
    }

    pub fn baselines(&self) -> Result<Baselines<'_>, Box<dyn Error>> {
        let all = Baselines::new(&self.job, &self.profile);
        Ok(all.ok_or("the profile lacks an operation")?)
    }

    pub fn full(&self) -> &Plan {
        &self.full
    }

    /// A straggler's time by its degree.
    pub fn late(&self, degree: f64) -> Option<Millis> {
        (degree > 1.0).then(|| self.full.realised * degree)
    }

    /// Perseus beside a straggler of this degree; 1 for none.
    pub fn perseus(&self, degree: f64) -> Plan {
        self.job.lookup(self.late(degree))
    }

    /// What a plan saves beside a straggler.
    pub fn saved(&self, plan: &Plan, degree: f64) -> Saved {
        let until = self.late(degree);
        let again = |plan: &Plan| self.job.settle(plan.time, until, plan.operations.clone());
        let (own, full) = (again(plan), again(&self.full));
        Saved {
            percent: saving(&own, &full),
            slowdown: 100.0 * (plan.realised / self.full.realised - 1.0),
        }
    }

    /// The time of T*, where waiting for somebody late saves nothing more, relative to that at full clock.
    pub fn longest(&self) -> f64 {
        self.job.millis(self.job.frontier().longest()) / self.full.realised
    }
}
