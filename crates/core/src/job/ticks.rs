//! Iteration times as ticks tell them: a histogram, the pace of late, and whether it has drifted.

use litd_proto::Tick;
use litd_units::{Millis, Nanos};

use crate::job::overhead::Overhead;

/// Upper bounds of the histogram's buckets, in seconds: an iteration takes from milliseconds to
/// minutes, and each bound is about twice the one before.
pub(crate) const BOUNDS: [f64; 16] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0,
];

/// How many iterations make a block; drift is judged by means of blocks.
const BLOCK: u32 = 32;

/// Iteration times of one job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ticks {
    buckets: [u64; BOUNDS.len() + 1],
    sum: f64,
    last: Option<u64>,
    block: (f64, u32),
    /// Mean of the last full block, in milliseconds.
    recent: Option<f64>,
    /// Whether that block has not been judged yet.
    fresh: bool,
    /// The block that later ones are compared with.
    reference: Option<f64>,
    drifting: bool,
    overhead: Overhead,
}

impl Ticks {
    /// A rank reports an iteration. Only the first rank's time counts (except for the cost of measuring), and only
    /// for a new iteration. Returns whether it counted.
    pub fn add(&mut self, tick: &Tick) -> bool {
        let (iteration, duration) = (tick.iteration, tick.duration);
        if tick.profiled {
            self.overhead.measured(iteration, duration, tick.overhead);
        }
        if self.last.is_some_and(|last| iteration <= last) || duration <= Nanos::ZERO {
            return false;
        }
        self.last = Some(iteration);
        if !tick.profiled {
            self.overhead.plain(duration);
        }
        let seconds = duration.as_secs_f64();
        let bucket = BOUNDS.iter().position(|&bound| seconds <= bound);
        self.buckets[bucket.unwrap_or(BOUNDS.len())] += 1;
        self.sum += seconds;
        self.block.0 += duration.to_millis().0;
        self.block.1 += 1;
        if self.block.1 == BLOCK {
            self.recent = Some(self.block.0 / f64::from(BLOCK));
            self.fresh = true;
            self.block = (0.0, 0);
        }
        true
    }

    /// Forgets where iterations were counted: the job has started over.
    pub fn start_over(&mut self) {
        self.last = None;
        self.overhead = Overhead::default();
        self.forget_reference();
    }

    /// The next block becomes the reference for later ones.
    pub fn forget_reference(&mut self) {
        self.block = (0.0, 0);
        self.fresh = false;
        self.reference = None;
        self.drifting = false;
    }

    /// By which share the last block differs from the reference, once two blocks in a row differ
    /// by more than `share`. The first block after [`Ticks::forget_reference`] is the reference.
    pub fn drift(&mut self, share: f64) -> Option<f64> {
        let recent = self.recent.filter(|_| std::mem::take(&mut self.fresh))?;
        let Some(reference) = self.reference else {
            self.reference = Some(recent);
            return None;
        };
        let differs = recent / reference - 1.0;
        let was = std::mem::replace(&mut self.drifting, differs.abs() > share);
        (was && self.drifting).then_some(differs)
    }

    /// Mean iteration time of the last full block, or of what there is of the first.
    pub fn mean(&self) -> Option<Millis> {
        let (sum, count) = self.block;
        let begun = (count > 0).then(|| sum / f64::from(count));
        self.recent.or(begun).map(Millis)
    }

    /// The cost of measuring iterations.
    pub fn overhead(&self) -> &Overhead {
        &self.overhead
    }

    /// Cumulative buckets; the last has no bound.
    pub fn histogram(&self) -> Vec<(Option<f64>, u64)> {
        let bounds = BOUNDS.iter().copied().map(Some).chain([None]);
        let mut total = 0;
        let cumulative = self.buckets.iter().map(|&count| {
            total += count;
            total
        });
        bounds.zip(cumulative).collect()
    }

    /// Seconds of all iterations.
    pub fn seconds(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(iteration: u64, nanos: i64) -> Tick {
        Tick {
            iteration,
            duration: Nanos(nanos),
            ..Tick::default()
        }
    }

    fn run(ticks: &mut Ticks, from: u64, count: u64, millis: i64) {
        for iteration in from..from + count {
            assert!(ticks.add(&tick(iteration, millis * 1_000_000)));
        }
    }

    #[test]
    fn an_iteration_counts_once_and_none_counts_backwards() {
        let mut ticks = Ticks::default();
        assert!(ticks.add(&tick(5, 1_000_000)));
        assert!(!ticks.add(&tick(5, 1_000_000)));
        assert!(!ticks.add(&tick(4, 1_000_000)));
        assert!(!ticks.add(&tick(6, 0)));
        assert_eq!(ticks.histogram().last(), Some(&(None, 1)));
    }

    #[test]
    fn two_slow_blocks_are_a_drift_and_one_is_none() {
        let mut ticks = Ticks::default();
        let mut block = |at: u64, millis| {
            run(&mut ticks, at * 32, 32, millis);
            ticks.drift(0.02)
        };
        assert_eq!(block(0, 100), None);
        assert_eq!(block(1, 101), None);
        assert_eq!(block(2, 110), None);
        assert_eq!(block(3, 100), None);
        assert_eq!(block(4, 110), None);
        assert!(block(5, 110).is_some_and(|drift| (drift - 0.1).abs() < 1e-9));
    }
}
