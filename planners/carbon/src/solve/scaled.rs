//! A problem in integers.

use crate::job::{Problem, Start};
use crate::plan::Plan;

/// The token budget in units. Floats hold it exactly.
const TOKENS: f64 = (1_u64 << 50) as f64;
/// The carbon of the dirtiest sequence in units.
const CARBON: f64 = (1_u64 << 50) as f64;

/// The problem's numbers, configurations that another one beats in both power and throughput left out.
pub(super) struct Scaled {
    /// Windows that plans may use.
    pub windows: usize,
    /// The numbers of the configurations in the problem.
    pub original: Vec<usize>,
    /// By window and configuration.
    carbon: Vec<i64>,
    /// Tokens trained in a window, by configuration; no more than the budget.
    pub tokens: Vec<i64>,
    /// Tokens to be trained.
    pub target: i64,
    /// The last window in which the job may begin.
    pub latest_start: usize,
    /// The configuration that runs now.
    pub running: Option<usize>,
    /// The switches that are affordable, by the number of windows at which the job completes; `None` after
    /// the deadline.
    pub affordable: Vec<Option<usize>>,
    pub grams_per_unit: f64,
    /// The possible error of sums of floats.
    pub hair: f64,
}

impl Scaled {
    pub fn new(problem: &Problem) -> Self {
        let job = problem.job();
        let running = match job.start() {
            Start::Running(now) => Some(now),
            Start::Within(_) => None,
        };
        let original = undominated(problem, running);
        let windows = problem.intensities().len();
        let grams = |window: usize, configuration: usize| {
            let energy = job.points()[configuration].power * job.window();
            (energy * problem.intensities()[window]).0
        };
        let dirtiest = |window| {
            original
                .iter()
                .map(|&it| grams(window, it))
                .fold(0.0, f64::max)
        };
        let most: f64 = (0..windows).map(dirtiest).sum();
        // Where nothing emits anything, any scale will do. What is next to nothing has no scale in floats.
        let has_scale = most > CARBON * f64::MIN_POSITIVE;
        let grams_per_unit = if has_scale { most / CARBON } else { 1.0 };
        let scale = |window| {
            let each = original.iter().map(move |&it| grams(window, it));
            each.map(move |grams| (grams / grams_per_unit).round() as i64)
        };
        let tokens = original.iter().map(|&it| {
            let share = job.points()[it].rate * job.window() / job.tokens();
            (share.min(1.0) * TOKENS).round() as i64
        });
        Self {
            windows,
            carbon: (0..windows).flat_map(scale).collect(),
            tokens: tokens.collect(),
            // Each window may have been rounded down by half a unit.
            target: TOKENS as i64 - windows as i64,
            latest_start: job.latest_start(),
            running: running.and_then(|now| original.iter().position(|it| *it == now)),
            affordable: (0..=windows).map(|end| job.switches_within(end)).collect(),
            grams_per_unit,
            hair: CARBON * 1e-12,
            original,
        }
    }

    pub fn configurations(&self) -> usize {
        self.original.len()
    }

    pub fn carbon(&self, window: usize) -> &[i64] {
        let count = self.configurations();
        &self.carbon[window * count..(window + 1) * count]
    }

    /// The highest throughput.
    pub fn fastest(&self) -> i64 {
        self.tokens.iter().copied().max().unwrap_or(0)
    }

    /// The windows that so many tokens in each need for all.
    pub fn windows_at(&self, tokens: i64) -> usize {
        let windows = (self.target + tokens - 1) / tokens.max(1);
        usize::try_from(windows).unwrap_or(usize::MAX)
    }

    /// The windows that the fastest configuration needs.
    pub fn shortest(&self) -> usize {
        self.windows_at(self.fastest())
    }

    /// The plan of these choices, in the problem's numbers.
    pub fn plan(&self, start: usize, choices: &[u16]) -> Plan {
        let choices = choices.iter().map(|&it| self.original[usize::from(it)]);
        Plan {
            start,
            choices: choices.collect(),
        }
    }
}

/// The configurations that no other one beats: it draws no more and trains no less. In any plan the
/// better one can stand for the other, and no switch is added. The one that runs now is kept: leaving it
/// is a switch.
fn undominated(problem: &Problem, running: Option<usize>) -> Vec<usize> {
    let points = problem.job().points();
    let beaten = |own: usize| {
        points.iter().enumerate().any(|(other, point)| {
            let no_worse = point.power <= points[own].power && point.rate >= points[own].rate;
            let is_equal = point.power == points[own].power && point.rate == points[own].rate;
            other != own && no_worse && (!is_equal || other < own)
        })
    };
    let all = 0..points.len();
    all.filter(|&own| running == Some(own) || !beaten(own))
        .collect()
}
