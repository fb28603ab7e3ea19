//! Model-predictive control: the optimum over a rolling forecast, decided anew in every window.

use jiff::Timestamp;
use litd_units::Seconds;
use thiserror::Error;

use crate::error::Infeasible;
use crate::forecast::{FromLater, Known};
use crate::job::{Job, JobError, NO_TOKENS, Problem, Start};
use crate::plan::Plan;
use crate::solve::{Effort, solve};
use crate::time::at;

/// Why there is no decision.
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MpcError {
    #[error(transparent)]
    Infeasible(#[from] Infeasible),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    FromLater(#[from] FromLater),
    #[error("no forecast had been issued at {0}; start later, or give an older forecast")]
    NoForecast(Timestamp),
}

/// The configuration of the window that begins now, for a job that has the tokens left and the time left
/// that it has now. What is known must have been issued by now and begin with this window.
///
/// The decision is the first one of the plan that would emit least if the known values came true. As every
/// such plan meets the deadline whatever the intensities are, so does the sequence of decisions.
///
/// # Errors
/// No plan meets the deadline, or a value was issued later than now: such a value is not looked at.
pub fn decide(job: &Job, now: Timestamp, known: &[Known]) -> Result<usize, MpcError> {
    if let Some(later) = known.iter().find(|known| known.issued > now) {
        return Err(FromLater {
            now,
            issued: later.issued,
            window: later.window,
        }
        .into());
    }
    let intensities: Vec<_> = known.iter().map(|known| known.intensity).collect();
    let problem = Problem::new(job.clone(), &intensities)?;
    let solution = solve(&problem, Effort::QUICK)?;
    let first = solution.plan.choices.first();
    Ok(first.copied().unwrap_or_else(|| job.fastest()))
}

/// Decides window by window from a start on, until the job has its tokens. `look` is asked what is known at a
/// moment of so many windows from then on. The job begins at once.
///
/// # Errors
/// As [`decide`]; or nothing is known at the start.
pub fn mpc(
    job: &Job,
    start: Timestamp,
    mut look: impl FnMut(Timestamp, usize) -> Option<Vec<Known>>,
) -> Result<Plan, MpcError> {
    job.check()?;
    let mut plan = Plan {
        start: 0,
        choices: Vec::new(),
    };
    let mut left = job.tokens();
    while left > job.tokens() * NO_TOKENS {
        let elapsed = job.window() * plan.end() as f64;
        let now = at(start.as_second() + elapsed.0 as i64);
        let switches = job.switch() * plan.switches(job.start()) as f64;
        let from = match (plan.choices.last(), job.start()) {
            (Some(running), _) => Start::Running(*running),
            (None, Start::Within(_)) => Start::Within(0),
            (None, running) => running,
        };
        let rest = Job::new(
            job.points(),
            job.window(),
            // What adds up over many windows is rounded, and must not take a window more than the deadline has.
            left - job.tokens() * NO_TOKENS,
            // Sums of floats must not make a deadline of what is one.
            job.deadline() - elapsed - switches + Seconds(1e-6),
            job.switch(),
            from,
        )?;
        let known = look(now, rest.windows()).ok_or(MpcError::NoForecast(now))?;
        let choice = decide(&rest, now, &known)?;
        left -= job.points()[choice].rate * job.window();
        plan.choices.push(choice);
    }
    Ok(plan)
}
