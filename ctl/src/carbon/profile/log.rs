//! Megatron-LM's log, and when a run is warm.

use std::time::Duration;

use litd_units::Seconds;

/// Megatron-LM's text before an iteration's time.
const MARK: &str = "elapsed time per iteration (ms):";

/// The time of the iteration that a line tells of.
pub fn iteration(line: &str) -> Option<Seconds> {
    let (_, rest) = line.split_once(MARK)?;
    let number = rest.trim_start().split([' ', '|']).next()?;
    let milliseconds: f64 = number.parse().ok()?;
    (milliseconds.is_finite() && milliseconds > 0.0).then_some(Seconds(milliseconds / 1e3))
}

/// So many iterations are compared with as many before.
const COMPARED: usize = 10;
/// The largest difference of their means, as a share (section 4.1).
const STEADY: f64 = 0.02;
const LONGEST: Duration = Duration::from_secs(60);

/// The times of a run's first iterations.
pub struct WarmUp {
    times: Vec<Seconds>,
    shortest: Duration,
}

impl WarmUp {
    /// A warm-up that lasts at least so long; the paper has 10 s.
    pub fn new(shortest: Duration) -> Self {
        Self {
            times: Vec::new(),
            shortest,
        }
    }

    pub fn push(&mut self, time: Seconds) {
        self.times.push(time);
    }

    /// Whether the run is warm, so long after its first iteration.
    pub fn is_over(&self, elapsed: Duration) -> bool {
        elapsed >= LONGEST || elapsed >= self.shortest && self.is_steady()
    }

    fn is_steady(&self) -> bool {
        let Some(first) = self.times.len().checked_sub(2 * COMPARED) else {
            return false;
        };
        let (before, last) = self.times[first..].split_at(COMPARED);
        let sum = |times: &[Seconds]| times.iter().copied().sum::<Seconds>();
        (sum(last) - sum(before)).abs() <= sum(before) * STEADY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn megatrons_lines_are_read() {
        let line = " [2026-11-20 12:00:00] iteration      100/  500000 | consumed samples:         1600 | \
            elapsed time per iteration (ms): 281.5 | throughput per GPU (TFLOP/s/GPU): 98.1 | learning rate: 1.0E-04 |";
        assert_eq!(iteration(line), Some(Seconds(0.2815)));
        for other in [
            "",
            "iteration 3",
            "elapsed time per iteration (ms): | x",
            "elapsed time per iteration (ms): 0",
        ] {
            assert_eq!(iteration(other), None, "{other}");
        }
    }

    #[test]
    fn a_warm_up_ends_when_ten_iterations_are_as_the_ten_before() {
        let over = |times: &[f64], seconds| {
            let mut warm_up = WarmUp::new(Duration::from_secs(10));
            times.iter().for_each(|it| warm_up.push(Seconds(*it)));
            warm_up.is_over(Duration::from_secs(seconds))
        };
        let steady = [0.5; 20];
        assert!(!over(&steady, 9) && over(&steady, 10));
        assert!(!over(&steady[1..], 10), "nineteen are too few");
        let mut falling = [1.0; 20];
        falling[10..].fill(0.97);
        assert!(!over(&falling, 30) && over(&falling, 60));
        falling[10..].fill(0.985);
        assert!(over(&falling, 30));
    }
}
