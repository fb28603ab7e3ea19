//! The configuration that runs in each window.

use std::ops::Range;

use litd_units::{Grams, Joules, Seconds, Tokens};
use thiserror::Error;

use crate::job::{NO_TOKENS, Problem, Start};

/// A sequence of configurations, one for each window without a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The windows that the job waits before it begins.
    pub start: usize,
    /// The number of the configuration in each window from then on.
    pub choices: Vec<usize>,
}

/// Windows one after the other in which the same configuration runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The windows.
    pub windows: Range<usize>,
    /// The configuration's number.
    pub configuration: usize,
}

/// The rule that a plan breaks.
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Broken {
    #[error("the plan trains {trained}, and {needed} are needed (equation 2)")]
    Tokens { trained: Tokens, needed: Tokens },
    #[error("the plan completes after {:.4} h, and the deadline is {:.4} h (equation 3)", .completion.hours(), .deadline.hours())]
    Deadline {
        completion: Seconds,
        deadline: Seconds,
    },
    #[error("the plan begins in window {0}, after the latest start")]
    Start(usize),
    #[error("the plan has a window or a configuration that the problem lacks")]
    Unknown,
}

impl Plan {
    /// The window after the last one.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start + self.choices.len()
    }

    /// m: the windows in which another configuration runs than before. The first start is no switch.
    #[must_use]
    pub fn switches(&self, start: Start) -> usize {
        let before = match start {
            Start::Running(now) => Some(now),
            Start::Within(_) => None,
        };
        let previous = before.into_iter().chain(self.choices.iter().copied());
        let own = self.choices.iter().skip(usize::from(before.is_none()));
        previous.zip(own).filter(|(a, b)| a != *b).count()
    }

    /// s + (last active window + 1) * dt + m * K: the left side of equation 3.
    #[must_use]
    pub fn completion(&self, problem: &Problem) -> Seconds {
        let job = problem.job();
        let switches = self.switches(job.start());
        job.window() * self.end() as f64 + job.switch() * switches as f64
    }

    /// Equation 1: whole windows at the power of their configurations.
    #[must_use]
    pub fn carbon(&self, problem: &Problem) -> Grams {
        let job = problem.job();
        let each = self.choices.iter().enumerate().map(|(at, &choice)| {
            let energy = job.points()[choice].power * job.window();
            energy * problem.intensities()[self.start + at]
        });
        each.sum()
    }

    /// The energy of those windows.
    #[must_use]
    pub fn energy(&self, problem: &Problem) -> Joules {
        let job = problem.job();
        let power = self.choices.iter().map(|&it| job.points()[it].power);
        power.map(|power| power * job.window()).sum()
    }

    /// Equation 2: what whole windows train.
    #[must_use]
    pub fn tokens(&self, problem: &Problem) -> Tokens {
        let job = problem.job();
        let rates = self.choices.iter().map(|&it| job.points()[it].rate);
        rates.map(|rate| rate * job.window()).sum()
    }

    /// The runs of one configuration, in order.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (at, &configuration) in self.choices.iter().enumerate() {
            let window = self.start + at;
            match runs.last_mut() {
                Some(run) if run.configuration == configuration => run.windows.end = window + 1,
                _ => runs.push(Run {
                    windows: window..window + 1,
                    configuration,
                }),
            }
        }
        runs
    }

    /// Whether the plan obeys equations 2 to 4.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check(&self, problem: &Problem) -> Result<(), Broken> {
        let job = problem.job();
        let known = |choice: &usize| *choice < job.points().len();
        if self.end() > problem.intensities().len() || !self.choices.iter().all(known) {
            return Err(Broken::Unknown);
        }
        if self.start > job.latest_start() {
            return Err(Broken::Start(self.start));
        }
        let (trained, needed) = (self.tokens(problem), job.tokens());
        // Policies that plan anew in each window leave out twice what rounding takes.
        if trained < needed * (1.0 - 3.0 * NO_TOKENS) {
            return Err(Broken::Tokens { trained, needed });
        }
        let (completion, deadline) = (self.completion(problem), job.deadline());
        if completion > deadline * (1.0 + 1e-9) {
            return Err(Broken::Deadline {
                completion,
                deadline,
            });
        }
        Ok(())
    }
}
