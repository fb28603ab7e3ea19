//! What a node does without a law, iteration by iteration, and how a law's node compares with it:
//! the same noise in the same iteration, so that differences are the caps'.

use litd_policies::Config;
use litd_traces::Aggregation;
use litd_trial::{Estimate, Prices};

use crate::StudyError;
use crate::observe::{self, Names, Observed};
use crate::steered::{Ran, Steered};

/// How often a node that nobody steers is kept as it is, in samples.
const KEPT: usize = 10;

/// A node that nobody steers, as far as it has run, and what its loop would have seen. A law's node
/// is the same as long as the law has not moved a cap, so that laws begin with this one.
#[derive(Debug, Clone)]
pub struct Course<S> {
    plant: S,
    ran: Vec<Ran>,
    names: Names,
    aggregation: Aggregation,
    period: usize,
    samples: Vec<Observed>,
    /// As it was after every so many samples.
    kept: Vec<S>,
}

impl<S: Steered> Course<S> {
    /// Of a plant as it is now, for a loop with these knobs.
    pub fn of(plant: S, config: &Config) -> Self {
        Self {
            kept: vec![plant.clone()],
            names: Names::of(&plant),
            aggregation: config.detection.aggregation,
            period: config.calibration.sampling_period.max(1) as usize,
            plant,
            ran: Vec::new(),
            samples: Vec::new(),
        }
    }

    fn run_until(&mut self, to: usize) -> Result<(), StudyError> {
        while self.ran.len() < to {
            let ran = self.plant.iterate();
            self.ran.push(ran);
            if self.ran.len().is_multiple_of(self.period) {
                let sample = observe::sample(&mut self.plant, &self.names, self.aggregation)?;
                self.samples.push(sample);
            }
            if self.ran.len().is_multiple_of(self.period * KEPT) {
                self.kept.push(self.plant.clone());
            }
        }
        Ok(())
    }

    /// These iterations, counted from 0; it runs on where they have not been run yet.
    ///
    /// # Errors
    /// An iteration can't be analysed.
    pub fn between(&mut self, from: usize, to: usize) -> Result<&[Ran], StudyError> {
        self.run_until(to)?;
        Ok(self.ran.get(from..to).unwrap_or_default())
    }

    /// What a loop sees of it at the end of this sampling period, counted from 1.
    ///
    /// # Errors
    /// An iteration can't be analysed.
    pub fn sample(&mut self, period: usize) -> Result<Option<Observed>, StudyError> {
        self.run_until(period * self.period)?;
        let at = period.checked_sub(1).and_then(|at| self.samples.get(at));
        Ok(at.cloned())
    }

    /// The node after so many sampling periods: the same noise lies before it.
    ///
    /// # Errors
    /// An iteration can't be analysed.
    pub fn after(&mut self, periods: usize) -> Result<S, StudyError> {
        self.run_until(periods * self.period)?;
        let kept = periods / KEPT;
        let mut plant = self.kept.get(kept).unwrap_or(&self.plant).clone();
        for _ in kept * KEPT..periods {
            for _ in 0..self.period {
                plant.iterate();
            }
            plant.readings();
        }
        Ok(plant)
    }
}

/// Sums over iterations.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    time: f64,
    gpus: f64,
    node: f64,
}

impl Sums {
    fn of(ran: &[Ran]) -> Self {
        ran.iter().fold(Self::default(), |sum, it| Self {
            time: sum.time + it.time.0,
            gpus: sum.gpus + it.time.0 * it.gpus.0,
            node: sum.node + it.time.0 * it.node.0,
        })
    }
}

/// By which part an iteration takes longer with the law than without it.
#[must_use]
pub fn longer(with: &[Ran], without: &[Ran]) -> f64 {
    Sums::of(with).time / Sums::of(without).time - 1.0
}

/// By which part the GPUs' energy for the same iterations is more.
#[must_use]
pub fn energy(with: &[Ran], without: &[Ran]) -> f64 {
    Sums::of(with).gpus / Sums::of(without).gpus - 1.0
}

/// By which part the GPUs' energy times time is more.
#[must_use]
pub fn energy_time(with: &[Ran], without: &[Ran]) -> f64 {
    (1.0 + energy(with, without)) * (1.0 + longer(with, without)) - 1.0
}

/// The slowest run of so many iterations against the same ones without the law.
#[must_use]
pub fn slowest(with: &[Ran], without: &[Ran], window: usize) -> f64 {
    let window = window.min(with.len()).max(1);
    let (mut sum, mut worst) = ([0.0; 2], f64::NEG_INFINITY);
    for at in 0..with.len() {
        sum = [sum[0] + with[at].time.0, sum[1] + without[at].time.0];
        if let Some(out) = at.checked_sub(window) {
            sum = [sum[0] - with[out].time.0, sum[1] - without[out].time.0];
        }
        if at + 1 >= window {
            worst = worst.max(sum[0] / sum[1] - 1.0);
        }
    }
    worst
}

/// Batches that intervals are made of: their means are all but independent.
const BATCHES: usize = 20;

/// An estimate over batches of a quantity of both courses, with Student's interval.
#[must_use]
pub fn batches(
    with: &[Ran],
    without: &[Ran],
    of: impl Fn(&[Ran], &[Ran]) -> f64,
) -> Option<Estimate> {
    let size = with.len() / BATCHES;
    if size == 0 {
        return None;
    }
    let pairs = with.chunks_exact(size).zip(without.chunks_exact(size));
    let values: Vec<f64> = pairs.map(|(with, without)| of(with, without)).collect();
    Estimate::of(&values, litd_trial::CONFIDENCE)
}

/// What a node hour is worth more with the law than without it, in the prices' currency: what is
/// computed more, less what is drawn more.
#[must_use]
pub fn net_value(with: &[Ran], without: &[Ran], gpus: usize, prices: Prices) -> f64 {
    let (with, without) = (Sums::of(with), Sums::of(without));
    let faster = without.time / with.time - 1.0;
    let drawn = with.node / with.time - without.node / without.time;
    faster * prices.gpu_hour * gpus as f64 - drawn / 1e3 * prices.energy_per_kwh
}
