//! Upper bounds of what each policy gains on one node, from how far apart its GPUs are (docs/estimate.md
//! derives them).

use serde::Serialize;

use crate::compare::median;

/// The least by which ln time falls where ln power rises, of GPUs that power limits: V100, A40, RTX 6000,
/// P100 and B300 between two neighbouring limits (0.21 to 2.55, at the highest limits 0.21 to 0.34). The
/// smaller it is, the more power does a slower leader save.
pub const SMALLEST_SLOPE: f64 = 0.2;

/// The most by which it falls. The larger it is, the less power does a straggler need to catch up.
pub const LARGEST_SLOPE: f64 = 2.5;

/// Upper bounds, in per cent. `None`: the data can't tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Bound {
    /// Less GPU power at the same throughput.
    pub gpu_red_power_pct: Option<f64>,
    /// More throughput at the same GPU power.
    pub gpu_realloc_throughput_pct: Option<f64>,
    /// More throughput at the same node power.
    pub cpu_slosh_throughput_pct: Option<f64>,
}

/// The share of their power that GPUs save if all become as slow as the slowest; `weights` are what they
/// draw. The paper's equation 16 has power proportional to the clock and an idle part that stays; here it
/// falls with the power 1/slope of the pace, all of it, which is never less.
pub(crate) fn red(pace: &[f64], weights: &[f64], slope: f64) -> f64 {
    let slowest = pace.iter().copied().fold(0.0, f64::max);
    let left = pace.iter().zip(weights);
    let left = left.map(|(pace, weight)| weight * (pace / slowest).powf(1.0 / slope));
    let all = weights.iter().sum::<f64>();
    (1.0 - left.sum::<f64>() / all).max(0.0)
}

/// The gain in throughput of a node whose GPUs become equally fast and draw the same together: its pace
/// becomes the power mean of theirs with the exponent 1/slope, least with the largest slope. Not below the
/// paper's prediction, which is that all become as fast as the median (equation 2).
pub(crate) fn realloc(pace: &[f64]) -> f64 {
    let slowest = pace.iter().copied().fold(0.0, f64::max);
    let exponent = 1.0 / LARGEST_SLOPE;
    let mean = pace.iter().map(|it| it.powf(exponent)).sum::<f64>() / pace.len() as f64;
    let level = mean
        .powf(1.0 / exponent)
        .min(median(pace).unwrap_or(slowest));
    (slowest / level - 1.0).max(0.0)
}

/// The gain in throughput if all GPUs become as fast as the fastest (equation 2).
pub(crate) fn slosh(pace: &[f64]) -> f64 {
    let slowest = pace.iter().copied().fold(0.0, f64::max);
    let fastest = pace.iter().copied().fold(f64::INFINITY, f64::min);
    (slowest / fastest - 1.0).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_gpus_gain_nothing() {
        let level = [2.0; 8];
        assert_eq!((red(&level, &[300.0; 8], 0.2), slosh(&level)), (0.0, 0.0));
        assert!(realloc(&level) < 1e-12);
    }

    /// A node in which power follows t = c P^-slope gains no more by any division of its watts.
    #[test]
    fn no_division_of_watts_gains_more() {
        let pace: [f64; 4] = [1.0, 1.02, 1.05, 1.09];
        for slope in [0.2, 0.65, 1.0, 2.5] {
            // Bisection for the pace that the same watts allow on all GPUs.
            let watts = |level: f64| {
                pace.iter()
                    .map(|it| (it / level).powf(1.0 / slope))
                    .sum::<f64>()
            };
            let (mut low, mut high) = (1.0, 1.09);
            for _ in 0..60 {
                let middle = f64::midpoint(low, high);
                match watts(middle) > 4.0 {
                    true => low = middle,
                    false => high = middle,
                }
            }
            assert!(1.09 / high - 1.0 <= realloc(&pace) + 1e-9, "{slope}");
            let saved = 1.0 - watts(1.09) / 4.0;
            assert!(
                saved <= red(&pace, &[1.0; 4], SMALLEST_SLOPE) + 1e-9,
                "{slope}"
            );
        }
        assert!(realloc(&pace) <= slosh(&pace));
    }

    /// 8 GPUs at 750 W, 140 W idle, speeds as in the paper's Figure 5: its equation 16 saves less.
    #[test]
    fn the_papers_model_saves_less() {
        let pace: [f64; 4] = [1.062, 1.05, 1.02, 1.0];
        let active = |pace: f64| 610.0 * pace / 1.062 + 140.0;
        let paper = 1.0 - pace.iter().map(|it| active(*it)).sum::<f64>() / 3000.0;
        assert!(paper > 0.02 && paper < red(&pace, &[750.0; 4], 0.2));
    }
}
