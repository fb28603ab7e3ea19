//! The policies of section 5.1 beside the optimum, and model-predictive control, which the paper names as
//! future work (section 6).
//!
//! What each of them knows: best static and the optima know the whole signal, greedy the steps that have begun,
//! model-predictive control what has been issued until now.

mod greedy;
mod mpc;

pub use greedy::greedy;
pub use mpc::{MpcError, decide, mpc};

use crate::error::Infeasible;
use crate::job::Problem;
use crate::plan::Plan;
use crate::solve::Solution;

/// The lowest-carbon single configuration that meets the deadline; where the job may wait, with the best
/// start (job shifting without reconfiguring).
///
/// # Errors
/// None meets it.
pub fn best_static(problem: &Problem) -> Result<Solution, Infeasible> {
    let job = problem.job();
    job.check()?;
    let mut best: Option<Solution> = None;
    for start in 0..=job.latest_start() {
        for configuration in 0..job.points().len() {
            let windows = job.windows_for(job.tokens(), configuration);
            // A plan is not even written down that ends after the deadline: some configuration may take ages.
            if windows > job.before_deadline() {
                continue;
            }
            let plan = Plan {
                start,
                choices: vec![configuration; windows],
            };
            if plan.check(problem).is_err() {
                continue;
            }
            let carbon = plan.carbon(problem);
            if best.as_ref().is_none_or(|best| carbon < best.carbon) {
                best = Some(Solution {
                    plan,
                    carbon,
                    bound: carbon,
                    optimal: true,
                });
            }
        }
    }
    best.ok_or_else(|| Infeasible {
        fastest: job.points()[job.fastest()].configuration,
        needed: job.window() * job.windows_for(job.tokens(), job.fastest()) as f64,
        deadline: job.deadline(),
    })
}
