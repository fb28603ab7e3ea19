//! A plan played back window by window: what it emits, takes and costs.

use jiff::Timestamp;
use litd_units::{Grams, Joules, Prices, Seconds, Tokens, Watts};
use serde::Serialize;

use crate::error::Uncovered;
use crate::job::Problem;
use crate::plan::Plan;
use crate::series::Series;
use crate::time::at;

/// The way in which time and energy are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Accounting {
    /// As the plan counts: whole windows, a switch takes no energy and moves no window.
    #[default]
    Plan,
    /// As it would run: a switch draws this power for K and moves all later windows, and the job stops in the
    /// middle of its last window, when it has its tokens.
    Physical {
        /// The power of the job's GPUs during a switch.
        switch_power: Watts,
    },
}

/// The surroundings of a plan: signals by time, and prices.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// When the first window begins.
    pub start: Timestamp,
    /// The intensity that counts.
    pub intensity: &'a Series,
    /// The marginal one beside it, where the signal has both.
    pub marginal: Option<&'a Series>,
    /// The price of a kilowatt-hour over time; without it [`Prices::energy_per_kwh`] holds throughout.
    pub energy_prices: Option<&'a Series>,
    /// Prices of energy and GPUs.
    pub prices: Prices,
    /// The number of GPUs.
    pub gpus: u32,
    /// The way in which time and energy are counted.
    pub accounting: Accounting,
}

/// The result of a plan (section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Replay {
    /// Emissions.
    #[serde(rename = "carbon_g")]
    pub carbon: Grams,
    /// Emissions by the marginal intensity, where there is one.
    #[serde(rename = "marginal_carbon_g")]
    pub marginal: Option<Grams>,
    /// Energy.
    #[serde(rename = "energy_j")]
    pub energy: Joules,
    /// From the start of training to its end.
    #[serde(rename = "wall_s")]
    pub wall: Seconds,
    /// From arrival to the start of training.
    #[serde(rename = "wait_s")]
    pub wait: Seconds,
    /// From arrival to the end of training: the completion delay.
    #[serde(rename = "delay_s")]
    pub delay: Seconds,
    /// Switches of the configuration.
    pub reshards: usize,
    /// Tokens trained.
    pub tokens: Tokens,
    /// Whether that is enough.
    pub is_complete: bool,
    /// Whether it was in time.
    pub meets_deadline: bool,
    /// The cost of energy and the GPUs from the start of training to its end.
    pub money: f64,
}

/// Plays a plan.
///
/// # Errors
/// A signal does not cover the time in which the job runs.
pub fn replay(problem: &Problem, plan: &Plan, setting: &Setting) -> Result<Replay, Uncovered> {
    let job = problem.job();
    let mut played = Played::new(plan, problem, setting);
    let mut running = match job.start() {
        crate::Start::Running(now) => Some(now),
        crate::Start::Within(_) => None,
    };
    for &choice in &plan.choices {
        let point = &job.points()[choice];
        if running.is_some_and(|before| before != choice) {
            played.reshards += 1;
            if let Accounting::Physical { switch_power } = setting.accounting {
                played.draw(switch_power, job.switch())?;
            }
        }
        running = Some(choice);
        let missing = job.tokens() - played.tokens;
        let time = match setting.accounting {
            Accounting::Plan => job.window(),
            Accounting::Physical { .. } => job.window().min(missing / point.rate),
        };
        if time <= Seconds::ZERO {
            break;
        }
        played.draw(point.power, time)?;
        played.tokens += point.rate * time;
    }
    Ok(played.outcome())
}

struct Played<'a> {
    problem: &'a Problem,
    setting: &'a Setting<'a>,
    wait: Seconds,
    clock: Seconds,
    carbon: Grams,
    marginal: Option<Grams>,
    energy: Joules,
    energy_cost: f64,
    tokens: Tokens,
    reshards: usize,
}

impl<'a> Played<'a> {
    fn new(plan: &Plan, problem: &'a Problem, setting: &'a Setting) -> Self {
        let wait = problem.job().window() * plan.start as f64;
        Self {
            problem,
            setting,
            wait,
            clock: wait,
            carbon: Grams::ZERO,
            marginal: setting.marginal.map(|_| Grams::ZERO),
            energy: Joules::ZERO,
            energy_cost: 0.0,
            tokens: Tokens::ZERO,
            reshards: 0,
        }
    }

    /// Draws power for a time from now on.
    fn draw(&mut self, power: Watts, time: Seconds) -> Result<(), Uncovered> {
        if time <= Seconds::ZERO {
            return Ok(());
        }
        let energy = power * time;
        let mean = |series: &Series| self.mean(series, time);
        self.carbon += energy * litd_units::Intensity(mean(self.setting.intensity)?);
        if let (Some(sum), Some(series)) = (self.marginal, self.setting.marginal) {
            let intensity = litd_units::Intensity(self.mean(series, time)?);
            self.marginal = Some(sum + energy * intensity);
        }
        let price = match self.setting.energy_prices {
            Some(series) => self.mean(series, time)?,
            None => self.setting.prices.energy_per_kwh,
        };
        self.energy_cost += energy.kilowatt_hours() * price;
        self.energy += energy;
        self.clock += time;
        Ok(())
    }

    /// The mean of a signal from now on, in whole seconds and at least one.
    fn mean(&self, series: &Series, time: Seconds) -> Result<f64, Uncovered> {
        let start = self.setting.start.as_second();
        let from = start + self.clock.0.round() as i64;
        let to = (start + (self.clock + time).0.round() as i64).max(from + 1);
        series.mean(from, to).ok_or_else(|| Uncovered {
            missing: at(series.missing(from, to)),
            first: series.first(),
            end: series.end(),
            start: self.setting.start,
            until: at(to),
        })
    }

    fn outcome(self) -> Replay {
        let job = self.problem.job();
        let charged = match self.setting.accounting {
            Accounting::Plan => job.switch() * self.reshards as f64,
            Accounting::Physical { .. } => Seconds::ZERO,
        };
        let (delay, deadline) = (self.clock + charged, job.deadline());
        let wall = delay - self.wait;
        let gpu_hours = wall.hours() * f64::from(self.setting.gpus);
        Replay {
            carbon: self.carbon,
            marginal: self.marginal,
            energy: self.energy,
            wall,
            wait: self.wait,
            delay,
            reshards: self.reshards,
            tokens: self.tokens,
            is_complete: self.tokens >= job.tokens() * (1.0 - 1e-9),
            meets_deadline: delay <= deadline * (1.0 + 1e-9),
            money: self.energy_cost + gpu_hours * self.setting.prices.gpu_hour,
        }
    }
}

/// The cost of a tonne of avoided emissions against a reference; `None` if emissions are not lower.
#[must_use]
pub fn per_tonne(own: &Replay, reference: &Replay) -> Option<f64> {
    let avoided = reference.carbon - own.carbon;
    (avoided > reference.carbon * 1e-9).then(|| (own.money - reference.money) / avoided.0 * 1e6)
}
