//! The measurements of one block, and the iterations that it leaves out.

use litd_units::{Millis, Nanos, Watts};
use serde::{Deserialize, Serialize};

use crate::design::Arm;

/// The rule by which iterations are left out, in words: it is part of every report.
pub const RULE: &str = "profiled iterations are left out, and of the others those that take longer \
     than 1.1 times their block's median and longer than the median by 6 deviations (of the median \
     absolute deviation): checkpoints, evaluations. The rule is the same in both arms and knows \
     nothing of the other arm";

/// An iteration is left out only if it takes longer than so many medians ...
const LONG: f64 = 1.1;

/// ... and longer than the median by so many deviations.
const DEVIATIONS: f64 = 6.0;

/// The median absolute deviation of normal noise, times this, is its standard deviation.
const NORMAL: f64 = 1.4826;

/// So many iterations of a block are kept at most; then every second one is dropped.
const KEPT: usize = 4096;

/// The iterations of a block that is being measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Iterations {
    /// Wall times in milliseconds.
    times: Vec<f64>,
    /// Of so many iterations (to the power of two) one is kept.
    halvings: u32,
    seen: u64,
    profiled: u32,
    /// Number of the last, and whether it was kept.
    last: Option<(u64, bool)>,
}

impl Iterations {
    /// Adds a rank's iteration time. The first rank's counts, unless another says that the iteration was profiled.
    pub fn add(&mut self, iteration: u64, duration: Nanos, profiled: bool) {
        match self.last {
            Some((last, _)) if iteration < last => return,
            Some((last, kept)) if iteration == last => {
                if profiled && kept {
                    self.times.pop();
                    self.profiled = self.profiled.saturating_add(1);
                    self.last = Some((last, false));
                }
                return;
            }
            _ => {}
        }
        if duration <= Nanos::ZERO {
            return;
        }
        self.last = Some((iteration, false));
        if profiled {
            self.profiled = self.profiled.saturating_add(1);
            return;
        }
        self.seen += 1;
        if !(self.seen - 1).is_multiple_of(1 << self.halvings) {
            return;
        }
        if self.times.len() == KEPT {
            self.halve();
        }
        self.times.push(duration.to_millis().0);
        self.last = Some((iteration, true));
    }

    fn halve(&mut self) {
        let mut odd = false;
        self.times.retain(|_| {
            odd = !odd;
            odd
        });
        self.halvings = (self.halvings + 1).min(32);
    }

    /// The job counts its iterations anew.
    pub fn count_anew(&mut self) {
        self.last = None;
    }

    /// Unprofiled iterations so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.times.len()).unwrap_or(u32::MAX)
    }

    /// The statistics; `None` while there are no iterations.
    #[must_use]
    pub fn times(&self) -> Option<Times> {
        let median = median(self.times.clone())?;
        let deviation = self.times.iter().map(|time| (time - median).abs());
        let deviation = NORMAL * self::median(deviation.collect())?;
        let most = (LONG * median).max(median + DEVIATIONS * deviation);
        let counted = self.times.iter().filter(|&&time| time <= most);
        let (mut sum, mut count) = (0.0, 0_u32);
        for time in counted {
            sum += time;
            count += 1;
        }
        // The median is never left out, so there is at least one.
        Some(Times {
            mean: Millis(sum / f64::from(count.max(1))),
            counted: count,
            excluded: self.count() - count,
            profiled: self.profiled,
        })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let (_, &mut median, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    Some(median)
}

/// The iteration times of a block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Mean wall time of the iterations that count.
    pub mean: Millis,
    /// How many count.
    pub counted: u32,
    /// How many were left out as too long.
    pub excluded: u32,
    /// How many were left out because they were profiled.
    pub profiled: u32,
}

/// A block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The arm that was held.
    pub arm: Arm,
    /// Iteration times.
    pub times: Times,
    /// Mean power of the job's GPUs, by their energy counters where they have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Watts>,
    /// Mean power of the whole node, where something measures it (a BMC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_power: Option<Watts>,
}

impl Block {
    /// The natural logarithm of iterations per second.
    #[must_use]
    pub fn log_throughput(&self) -> Option<f64> {
        let log = -(self.times.mean.0 / 1e3).ln();
        log.is_finite().then_some(log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn block(times: impl IntoIterator<Item = i64>) -> Times {
        let mut iterations = Iterations::default();
        for (at, time) in times.into_iter().enumerate() {
            iterations.add(at as u64, Nanos(time * MS), false);
        }
        iterations.times().unwrap()
    }

    #[test]
    fn checkpoints_are_left_out_and_noise_is_not() {
        let noisy = |at: i64| 1000 + (at * 7919) % 41 - 20;
        let clean = block((0..100).map(noisy));
        assert_eq!((clean.counted, clean.excluded), (100, 0));
        let with = block((0..100).map(|at| if at % 20 == 7 { 4000 } else { noisy(at) }));
        assert_eq!((with.counted, with.excluded), (95, 5));
        assert!((with.mean.0 - clean.mean.0).abs() < 2.0, "{with:?}");
    }

    #[test]
    fn a_wave_that_is_always_there_is_no_checkpoint() {
        // Half of the iterations take half as long again: nothing is unusual about them.
        let times = block((0..100).map(|at| if at % 2 == 0 { 100 } else { 150 }));
        assert_eq!(times.excluded, 0);
        assert_eq!(times.mean, Millis(125.0));
    }

    #[test]
    fn profiled_iterations_do_not_count_whichever_rank_says_so() {
        let mut iterations = Iterations::default();
        iterations.add(1, Nanos(100 * MS), false);
        iterations.add(1, Nanos(101 * MS), false);
        iterations.add(2, Nanos(200 * MS), true);
        iterations.add(3, Nanos(300 * MS), false);
        iterations.add(3, Nanos(300 * MS), true);
        iterations.add(3, Nanos(300 * MS), true);
        iterations.add(2, Nanos(1), false);
        iterations.add(4, Nanos(0), false);
        let times = iterations.times().unwrap();
        assert_eq!((times.counted, times.profiled), (1, 2));
        assert_eq!(times.mean, Millis(100.0));
    }

    #[test]
    fn a_block_of_any_length_takes_little_memory() {
        let mut iterations = Iterations::default();
        for at in 0..1_000_000_u64 {
            iterations.add(at, Nanos(MS + (at % 3) as i64), false);
        }
        assert!(iterations.times.capacity() <= 2 * KEPT);
        let times = iterations.times().unwrap();
        assert!(times.counted > KEPT as u32 / 2);
        assert!((times.mean.0 - 1.000_001).abs() < 1e-6);
    }
}
