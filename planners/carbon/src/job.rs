//! The job to be scheduled: the inputs of section 4.2.

use litd_units::{Intensity, Seconds, Tokens, TokensPerSecond};
use thiserror::Error;

use crate::error::Infeasible;
use crate::profile::Point;

/// Sums of floats are off by less than this share; counts of windows are rounded by it.
const HAIR: f64 = 1e-9;
/// So small a share of the tokens is none: what adds up over many windows is rounded by less.
pub(crate) const NO_TOKENS: f64 = 1e-12;
/// No plan may use more windows: a year of hours, or a month of five minutes.
const MOST: usize = 10_000;
/// What runs already is planned on for so many windows, whatever was learned of its rates: eleven years of hours.
const MOST_RUNNING: usize = 100_000;

/// When the job begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// In one of the windows from the first to this one, waiting before it: s of equation 3. 0 is the
    /// fixed start.
    Within(usize),
    /// The job runs already, in the configuration with this number; leaving that is a switch.
    Running(usize),
}

/// A training job: what it has to do, by when, and in which configurations.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    points: Vec<Point>,
    window: Seconds,
    tokens: Tokens,
    deadline: Seconds,
    switch: Seconds,
    start: Start,
}

/// Whether windows can be of this length: whole seconds, from one to a day.
#[must_use]
pub fn is_window(length: Seconds) -> bool {
    (1.0..=86_400.0).contains(&length.0) && length.0.fract() == 0.0
}

/// Why there is no such job.
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum JobError {
    #[error("a job needs at least one configuration")]
    NoConfiguration,
    #[error("the window of {0} is not possible: it must be a whole number of seconds, 1 to 86400")]
    Window(Seconds),
    #[error("{0} can't be trained: the number must be more than 0")]
    Tokens(Tokens),
    #[error("the deadline of {:.2} h is not possible: it must be a number above 0 h", .0.hours())]
    Deadline(Seconds),
    #[error(
        "a plan could use {needed} windows, and at most {most} can be planned; choose longer windows, an earlier deadline or a shorter wait"
    )]
    Windows { needed: usize, most: usize },
    #[error("a switch can't cost {0}: that must be 0 or more")]
    Switch(Seconds),
    #[error("the job runs in configuration {0}, and the profile has no such")]
    Running(usize),
    #[error("the signal has {given} windows and the plan may use {needed}")]
    Short { given: usize, needed: usize },
    #[error("an intensity of {0} is not possible: it must be 0 or more")]
    Intensity(Intensity),
}

impl Job {
    /// The job of so many tokens by a deadline that counts from now, in windows of equal length. The switch
    /// is K, which is charged against the deadline.
    ///
    /// # Errors
    /// One of the numbers can't be.
    pub fn new(
        points: &[Point],
        window: Seconds,
        tokens: Tokens,
        deadline: Seconds,
        switch: Seconds,
        start: Start,
    ) -> Result<Self, JobError> {
        let last = points.len().checked_sub(1);
        let last = last.ok_or(JobError::NoConfiguration)?;
        if !is_window(window) {
            return Err(JobError::Window(window));
        }
        if !(tokens.is_finite() && tokens > Tokens::ZERO) {
            return Err(JobError::Tokens(tokens));
        }
        if !(deadline.is_finite() && deadline > Seconds::ZERO) {
            return Err(JobError::Deadline(deadline));
        }
        if !(switch.is_finite() && switch >= Seconds::ZERO) {
            return Err(JobError::Switch(switch));
        }
        match start {
            Start::Running(configuration) if configuration > last => {
                return Err(JobError::Running(configuration));
            }
            _ => (),
        }
        let job = Self {
            points: points.to_vec(),
            window,
            tokens,
            deadline,
            switch,
            start,
        };
        let most = match start {
            Start::Within(_) => MOST,
            Start::Running(_) => MOST_RUNNING,
        };
        match job.windows() {
            needed if needed > most => Err(JobError::Windows { needed, most }),
            _ => Ok(job),
        }
    }

    /// Every configuration; plans have their numbers.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The length of a window.
    #[must_use]
    pub fn window(&self) -> Seconds {
        self.window
    }

    /// N, the tokens that are still to be trained.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// D, from now.
    #[must_use]
    pub fn deadline(&self) -> Seconds {
        self.deadline
    }

    /// K.
    #[must_use]
    pub fn switch(&self) -> Seconds {
        self.switch
    }

    /// When it begins.
    #[must_use]
    pub fn start(&self) -> Start {
        self.start
    }

    /// The last window in which it may begin.
    #[must_use]
    pub fn latest_start(&self) -> usize {
        match self.start {
            Start::Within(latest) => latest.min(self.before_deadline()),
            Start::Running(_) => 0,
        }
    }

    /// The configuration with the highest throughput; of several, the one that draws least.
    #[must_use]
    pub fn fastest(&self) -> usize {
        let numbers = 0..self.points.len();
        let fastest = numbers.min_by(|&a, &b| {
            let (a, b) = (&self.points[a], &self.points[b]);
            let rate = b.rate.0.total_cmp(&a.rate.0);
            rate.then(a.power.0.total_cmp(&b.power.0))
        });
        fastest.unwrap_or_default()
    }

    /// The windows that a configuration needs for so many tokens.
    #[must_use]
    pub fn windows_for(&self, tokens: Tokens, configuration: usize) -> usize {
        windows_for(tokens, self.points[configuration].rate, self.window) as usize
    }

    /// The whole windows before the deadline.
    #[must_use]
    pub fn before_deadline(&self) -> usize {
        (self.deadline / self.window + HAIR).floor() as usize
    }

    /// The windows that a plan may use: those before the deadline, as far as the slowest configuration
    /// after the latest start reaches. Intensities of negative value do not exist, so that no plan is better
    /// for running on once it has its tokens.
    #[must_use]
    pub fn windows(&self) -> usize {
        let all = 0..self.points.len();
        let slowest = all.map(|it| self.windows_for(self.tokens, it)).max();
        let useful = self.latest_start().saturating_add(slowest.unwrap_or(0));
        self.before_deadline().min(useful)
    }

    /// The switches that a plan can afford which ends with so many windows, the wait included; `None`
    /// where that is after the deadline.
    #[must_use]
    pub fn switches_within(&self, windows: usize) -> Option<usize> {
        let left = self.deadline - self.window * windows as f64;
        let hair = self.deadline * HAIR;
        if left < -hair {
            return None;
        }
        if self.switch <= Seconds::ZERO {
            return Some(usize::MAX);
        }
        Some(((left + hair) / self.switch).floor().max(0.0) as usize)
    }

    /// Whether any plan meets the deadline: the fastest configuration without a switch does then, or, where
    /// another one runs now, with one.
    ///
    /// # Errors
    /// None does.
    pub fn check(&self) -> Result<(), Infeasible> {
        let fastest = self.fastest();
        let windows = self.windows_for(self.tokens, fastest);
        let fits = |windows, switches| {
            let afforded = self.switches_within(windows);
            afforded.is_some_and(|it| it >= switches)
        };
        let is_feasible = match self.start {
            Start::Within(_) => fits(windows, 0),
            Start::Running(now) if now == fastest => fits(windows, 0),
            Start::Running(now) => fits(windows, 1) || fits(self.windows_for(self.tokens, now), 0),
        };
        match is_feasible {
            true => Ok(()),
            false => Err(Infeasible {
                fastest: self.points[fastest].configuration,
                needed: self.window * windows as f64,
                deadline: self.deadline,
            }),
        }
    }
}

/// The 25 % rule of section 5.1: so much more than what the fastest configuration needs, rounded up to
/// the next whole hour. The paper has a slack of 0.25.
#[must_use]
pub fn slack_deadline(points: &[Point], tokens: Tokens, slack: f64) -> Seconds {
    let hours = (tokens / highest_rate(points)).hours() * (1.0 + slack);
    Seconds::from_hours((hours * (1.0 - NO_TOKENS)).ceil())
}

/// What the fastest configuration takes in whole windows.
#[must_use]
pub fn in_whole_windows(points: &[Point], tokens: Tokens, window: Seconds) -> Seconds {
    window * windows_for(tokens, highest_rate(points), window)
}

fn highest_rate(points: &[Point]) -> TokensPerSecond {
    let rates = points.iter().map(|it| it.rate);
    rates.fold(TokensPerSecond::ZERO, TokensPerSecond::max)
}

/// The whole windows in which a rate trains so many tokens.
fn windows_for(tokens: Tokens, rate: TokensPerSecond, window: Seconds) -> f64 {
    let windows = tokens / (rate * window);
    (windows * (1.0 - NO_TOKENS)).ceil().max(0.0)
}

/// A job and the intensity of each window that it may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    job: Job,
    intensities: Vec<Intensity>,
}

impl Problem {
    /// The problem; intensities beyond [`Job::windows`] are not looked at.
    ///
    /// # Errors
    /// There are too few, or one is negative or no number.
    pub fn new(job: Job, intensities: &[Intensity]) -> Result<Self, JobError> {
        let needed = job.windows();
        let given = intensities.len();
        let Some(intensities) = intensities.get(..needed) else {
            return Err(JobError::Short { given, needed });
        };
        let wrong = |it: &&Intensity| !(it.is_finite() && **it >= Intensity::ZERO);
        if let Some(wrong) = intensities.iter().find(wrong) {
            return Err(JobError::Intensity(*wrong));
        }
        Ok(Self {
            job,
            intensities: intensities.to_vec(),
        })
    }

    /// The job to be scheduled.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// By window.
    #[must_use]
    pub fn intensities(&self) -> &[Intensity] {
        &self.intensities
    }
}
