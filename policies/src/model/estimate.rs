//! Each GPU's clock and how it follows its power, estimated from kernel durations: a Kalman filter over the
//! logarithm of the time that kernels of constant overlap take,
//!
//! ```text ln time = slowness - slope * ln(power / home power) + (what all GPUs have in common) ```
//!
//! Slopes are alike on GPUs of one kind: each is a common slope and a small difference from it, so that the step
//! of any GPU teaches the slope of all. The part that all have in common can't be known from ratios, which compare
//! GPUs with each other, and is left open in every window.

/// The slope is about 1 / alpha * power / (power - idle), times the share of the kernels that
/// follows the clock: 0.65 with alpha 1.9 and an idle power of a fifth.
const SLOPE: f64 = 0.65;
/// With alpha from 1.3 to 2.6 it is from 0.48 to 0.95.
const SLOPE_DEVIATION: f64 = 0.18;
/// By how much the slopes of two GPUs of a kind differ.
const DIFFERENCE: f64 = 0.04;
/// How far apart the clocks of GPUs of a kind may be.
const SPREAD: f64 = 0.3;

/// The estimates for a node, and their uncertainty. Powers are relative to those of home and in logarithms: `x =
/// ln(power / home power)`.
#[derive(Debug, Clone)]
pub(crate) struct Estimate {
    gpus: usize,
    /// Slowness of each GPU, difference of its slope, the common slope, what is common now.
    mean: Vec<f64>,
    /// The covariance, row by row.
    covariance: Vec<f64>,
}

impl Estimate {
    pub(crate) fn new(gpus: usize) -> Self {
        let size = 2 * gpus + 2;
        let mut estimate = Self {
            gpus,
            mean: vec![0.0; size],
            covariance: vec![0.0; size * size],
        };
        for gpu in 0..gpus {
            estimate.loosen(gpu, SPREAD);
            estimate.loosen(gpus + gpu, DIFFERENCE);
        }
        estimate.mean[2 * gpus] = SLOPE;
        estimate.loosen(2 * gpus, SLOPE_DEVIATION);
        estimate
    }

    fn size(&self) -> usize {
        self.mean.len()
    }

    /// Adds to the variance of one unknown.
    fn loosen(&mut self, at: usize, deviation: f64) {
        let size = self.size();
        self.covariance[at * size + at] += deviation * deviation;
    }

    /// How the logarithm of a GPU's time depends on the unknowns.
    fn row(&self, gpu: usize, x: f64) -> [(usize, f64); 4] {
        let gpus = self.gpus;
        [
            (gpu, 1.0),
            (gpus + gpu, -x),
            (2 * gpus, -x),
            (2 * gpus + 1, 1.0),
        ]
    }

    /// Time passes, and GPUs become warmer or cooler: their slowness is known less well.
    pub(crate) fn drift(&mut self, deviation: f64) {
        for gpu in 0..self.gpus {
            self.loosen(gpu, deviation);
        }
    }

    /// Takes one window: the logarithm of each GPU's slowness, its power, and the standard
    /// deviation of such a slowness. Answers with how surprising that was: the mean square of the deviations
    /// from what was expected, in units of what was to be expected (about 1).
    pub(crate) fn observe(&mut self, seen: &[Option<f64>], x: &[f64], deviation: f64) -> f64 {
        let (size, common) = (self.size(), 2 * self.gpus + 1);
        for at in 0..size {
            self.covariance[at * size + common] = 0.0;
            self.covariance[common * size + at] = 0.0;
        }
        self.mean[common] = 0.0;
        self.loosen(common, 1.0);
        let (mut surprise, mut count) = (0.0, 0_u32);
        for gpu in 0..self.gpus {
            let (Some(Some(seen)), Some(&x)) = (seen.get(gpu), x.get(gpu)) else {
                continue;
            };
            let row = self.row(gpu, x);
            let expected: f64 = row.iter().map(|&(at, h)| h * self.mean[at]).sum();
            let gain: Vec<f64> = (0..size)
                .map(|at| {
                    row.iter()
                        .map(|&(of, h)| h * self.covariance[at * size + of])
                        .sum()
                })
                .collect();
            let variance: f64 =
                row.iter().map(|&(at, h)| h * gain[at]).sum::<f64>() + deviation * deviation;
            let innovation = seen - expected;
            if !(variance > 0.0 && innovation.is_finite()) {
                continue;
            }
            surprise += innovation * innovation / variance;
            count += 1;
            for at in 0..size {
                self.mean[at] += gain[at] * innovation / variance;
                for of in 0..size {
                    self.covariance[at * size + of] -= gain[at] * gain[of] / variance;
                }
            }
        }
        // The first of them went into what is common.
        surprise / f64::from(count.saturating_sub(1).max(1))
    }

    /// Logarithm of the time that a GPU's kernels take at a power, up to what all have in common.
    pub(crate) fn slowness(&self, gpu: usize, x: f64) -> f64 {
        let row = self.row(gpu, x);
        row.iter().take(3).map(|&(at, h)| h * self.mean[at]).sum()
    }

    /// The standard deviation of a GPU's slowness against the mean of all, at these powers.
    pub(crate) fn deviation(&self, gpu: usize, x: &[f64]) -> f64 {
        let size = self.size();
        let mut weights = vec![0.0; size];
        for (other, &x) in x.iter().enumerate().take(self.gpus) {
            let share = f64::from(u8::from(other == gpu)) - 1.0 / self.gpus as f64;
            for (at, h) in self.row(other, x).into_iter().take(3) {
                weights[at] += share * h;
            }
        }
        let of = |at: usize| -> f64 {
            let row = &self.covariance[at * size..(at + 1) * size];
            row.iter().zip(&weights).map(|(c, w)| c * w).sum()
        };
        let variance: f64 = (0..size).map(|at| weights[at] * of(at)).sum();
        variance.max(0.0).sqrt()
    }

    /// By which part a GPU's kernels become faster per part of power, and how well that is known.
    pub(crate) fn slope(&self, gpu: usize) -> (f64, f64) {
        let size = self.size();
        let (own, common) = (self.gpus + gpu, 2 * self.gpus);
        let at = |a: usize, b: usize| self.covariance[a * size + b];
        let variance = at(own, own) + at(common, common) + 2.0 * at(own, common);
        (self.mean[own] + self.mean[common], variance.max(0.0).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four GPUs with a slope of 0.9 and without noise.
    fn taught(steps: &[[f64; 4]]) -> Estimate {
        let mut estimate = Estimate::new(4);
        let slowness = [0.0, 0.03, -0.02, 0.01];
        for step in steps {
            let of = |gpu: usize| Some(slowness[gpu] - 0.9 * step[gpu] + 0.007);
            let paces: Vec<_> = (0..4).map(of).collect();
            estimate.observe(&paces, step, 1e-4);
        }
        estimate
    }

    #[test]
    fn warm_up_teaches_clocks_and_one_step_teaches_slopes() {
        let warm = taught(&[[0.0; 4]]);
        let apart = warm.slowness(1, 0.0) - warm.slowness(2, 0.0);
        assert!((apart - 0.05).abs() < 1e-3, "{apart}");
        let (slope, deviation) = warm.slope(0);
        assert!((slope - SLOPE).abs() < 1e-6 && deviation > 0.15);
        let stepped = taught(&[[0.0; 4], [-0.03, 0.04, -0.05, 0.0]]);
        for gpu in 0..4 {
            let (slope, deviation) = stepped.slope(gpu);
            assert!((slope - 0.9).abs() < 0.05, "{gpu}: {slope}");
            assert!(deviation < 0.1, "{deviation}");
        }
    }

    #[test]
    fn what_is_expected_is_no_surprise_and_a_fan_that_fails_is_one() {
        let steps = [[0.0; 4], [-0.03, 0.04, -0.05, 0.0]];
        let mut estimate = taught(&steps);
        let again = |slower: f64| {
            let slowness = [0.0, 0.03, -0.02, 0.01 + slower];
            let paces = (0..4).map(move |gpu: usize| Some(slowness[gpu] - 0.9 * steps[1][gpu]));
            paces.collect::<Vec<_>>()
        };
        let expected = estimate.observe(&again(0.0), &steps[1], 1e-3);
        assert!(expected < 1.0, "{expected}");
        let surprising = estimate.observe(&again(0.01), &steps[1], 1e-3);
        assert!(surprising > 9.0, "{surprising}");
    }

    #[test]
    fn a_missing_pace_leaves_a_gpu_unknown() {
        let mut estimate = Estimate::new(3);
        estimate.observe(&[Some(0.0), None, Some(0.02)], &[0.0; 3], 1e-3);
        assert!(estimate.deviation(1, &[0.0; 3]) > 0.1);
        assert!(estimate.deviation(0, &[0.0; 3]) < 0.15);
    }
}
