//! Powers that level the clocks: the most speed that a budget allows, then the least power that keeps it.

use litd_units::Watts;

use super::Worth;

/// A GPU's present state and the bounds of its power.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    /// Logarithm of the time that its kernels take now.
    pub slowness: f64,
    /// By which part that shrinks per part of power.
    pub slope: f64,
    /// The variation of its slowness from iteration to iteration, and its uncertainty.
    pub noise: f64,
    /// The power that it is capped at, or that it draws where no cap limits it.
    pub power: Watts,
    /// The least and the most that it may have.
    pub range: (Watts, Watts),
}

impl Member {
    /// The power at which its kernels take this long.
    fn power_at(&self, slowness: f64) -> Watts {
        let power = self.power * ((self.slowness - slowness) / self.slope).exp();
        power.max(self.range.0).min(self.range.1)
    }

    /// How long its kernels take at this power.
    fn slowness_at(&self, power: Watts) -> f64 {
        self.slowness - self.slope * (power / self.power).ln()
    }
}

/// Halvings of an interval: enough for a thousandth of any.
const HALVINGS: u32 = 30;

/// The lowest value from `low` to `high` that `fits`, where all above it do.
pub(super) fn lowest(mut low: f64, mut high: f64, fits: impl Fn(f64) -> bool) -> f64 {
    if fits(low) {
        return low;
    }
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if fits(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// The powers wanted, and what they promise.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// A power per GPU.
    pub powers: Vec<Watts>,
    /// By which part an iteration becomes longer than now (below zero: shorter).
    pub longer: f64,
}

/// The powers that make the slowest GPU as fast as range and budget allow, and no GPU faster
/// than is worth its power.
pub(crate) fn level(members: &[Member], budget: Watts, worth: Worth) -> Target {
    let now: Vec<f64> = members.iter().map(|m| m.slowness).collect();
    let at = |slowness: f64| members.iter().map(move |m| m.power_at(slowness));
    let sum = |slowness: f64| at(slowness).sum::<Watts>();
    let slownesses = |powers: &[Watts]| -> Vec<f64> {
        let pairs = members.iter().zip(powers);
        pairs.map(|(m, &power)| m.slowness_at(power)).collect()
    };
    // The slowest can't become faster than this.
    let best = members.iter().map(|m| m.slowness_at(m.range.1));
    let best = best.fold(f64::NEG_INFINITY, f64::max);
    let worst = members.iter().map(|m| m.slowness_at(m.range.0));
    let worst = worst.fold(best, f64::max);
    let slowest = lowest(best, worst, |slowness| sum(slowness) <= budget);
    let fastest = members.iter().map(|m| m.slowness_at(m.range.1));
    let fastest = fastest.fold(slowest, f64::min);
    // The rest of the budget keeps leaders out of the slowest GPU's way: a margin.
    let ahead = |margin: f64| -> Vec<Watts> { at(slowest - margin).collect() };
    let most = slowest - fastest;
    let margin = most - lowest(0.0, most, |less| sum(slowest - (most - less)) <= budget);
    let noise: Vec<f64> = members.iter().map(|m| m.noise).collect();
    let time = |margin: f64| expected_latest(&slownesses(&ahead(margin)), &noise);
    let margin = worth.margin(
        margin,
        &time,
        &|margin| ahead(margin).into_iter().sum::<Watts>(),
        members.len(),
    );
    let powers = ahead(margin);
    Target {
        longer: time(margin) - expected_latest(&now, &noise),
        powers,
    }
}

impl Worth {
    /// The smallest margin that is worth it.
    fn margin(
        self,
        most: f64,
        time: &dyn Fn(f64) -> f64,
        power: &dyn Fn(f64) -> Watts,
        gpus: usize,
    ) -> f64 {
        match self {
            Self::Slowdown(loss) => {
                let allowed = time(most) + loss;
                lowest(0.0, most, |margin| time(margin) <= allowed)
            }
            Self::Prices(prices) => {
                let node_hour = prices.gpu_hour * gpus as f64;
                let cost = |margin: f64| {
                    prices.energy_per_kwh * power(margin).0 / 1e3 + node_hour * time(margin)
                };
                // The cost falls, then rises: a node is worth much more than its power.
                let step = most / 64.0;
                let cheaper = |margin: f64| cost(margin) <= cost((margin + step).min(most));
                lowest(0.0, most, cheaper)
            }
        }
    }
}

/// Points of the integral below, over a distance on either side.
const POINTS: u32 = 96;
const DEVIATIONS: f64 = 5.0;

/// The expected largest of independent normal variables.
pub(crate) fn expected_latest(means: &[f64], deviations: &[f64]) -> f64 {
    let latest = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let widest = deviations.iter().copied().fold(1e-7, f64::max);
    let (from, to) = (latest - DEVIATIONS * widest, latest + DEVIATIONS * widest);
    let width = (to - from) / f64::from(POINTS);
    // E = to - integral of the probability that all are below.
    let below = |t: f64| -> f64 {
        let each = means.iter().zip(deviations);
        each.map(|(&mean, &deviation)| normal((t - mean) / deviation.max(1e-7)))
            .product()
    };
    let points = (0..POINTS).map(|point| below(from + (f64::from(point) + 0.5) * width));
    to - width * points.sum::<f64>()
}

/// The normal distribution (Abramowitz and Stegun 26.2.17, within 7.5e-8).
pub(super) fn normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = 1.330_274_429_f64
        .mul_add(t, -1.821_255_978)
        .mul_add(t, 1.781_477_937)
        .mul_add(t, -0.356_563_782)
        .mul_add(t, 0.319_381_530);
    let tail = 0.398_942_280_4 * (-z * z / 2.0).exp() * t * series;
    if z > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(slowness: &[f64], ceiling: f64, noise: f64) -> Vec<Member> {
        let member = |&slowness: &f64| Member {
            slowness,
            slope: 0.65,
            noise,
            power: Watts(700.0),
            range: (Watts(300.0), Watts(ceiling)),
        };
        slowness.iter().map(member).collect()
    }

    fn spread(members: &[Member], target: &Target) -> f64 {
        let pairs = members.iter().zip(&target.powers);
        let all: Vec<f64> = pairs.map(|(m, &p)| m.slowness_at(p)).collect();
        all.iter().copied().fold(f64::MIN, f64::max) - all.iter().copied().fold(f64::MAX, f64::min)
    }

    #[test]
    fn the_expected_latest_of_equals_is_known() {
        // Eight standard normal variables: 1.4236.
        let latest = expected_latest(&[0.0; 8], &[1.0; 8]);
        assert!((latest - 1.4236).abs() < 1e-3, "{latest}");
        let alone = expected_latest(&[0.0, -9.0], &[1.0; 2]);
        assert!(alone.abs() < 1e-3, "{alone}");
    }

    #[test]
    fn power_moves_until_the_clocks_are_level() {
        let members = members(&[0.0, 0.03, -0.02, 0.01], 750.0, 0.001);
        let target = level(&members, Watts(2800.0), Worth::Slowdown(0.0005));
        assert!(spread(&members, &target) < 1e-4);
        let sum: Watts = target.powers.iter().copied().sum();
        assert!(sum <= Watts(2800.0) && sum > Watts(2799.0), "{sum}");
        assert!(target.longer < -0.02, "{}", target.longer);
    }

    #[test]
    fn leaders_keep_a_margin_that_grows_with_noise() {
        let apart = |noise| {
            let members = members(&[0.0, -0.03, -0.04, -0.05], 700.0, noise);
            let target = level(&members, Watts(2800.0), Worth::Slowdown(0.0005));
            assert_eq!(target.powers[0], Watts(700.0));
            assert!(target.longer <= 0.000_501, "{}", target.longer);
            spread(&members, &target)
        };
        assert!(apart(0.0) < 0.001);
        assert!(apart(0.005) > 0.008);
        assert!(apart(0.02) > apart(0.005));
    }

    #[test]
    fn prices_leave_a_larger_margin_than_the_bound() {
        let members = members(&[0.0, -0.03, -0.04, -0.05], 700.0, 0.005);
        let margin = |worth| spread(&members, &level(&members, Watts(2800.0), worth));
        let prices = Worth::Prices(litd_units::Prices {
            energy_per_kwh: 0.14,
            gpu_hour: 2.5,
        });
        assert!(margin(prices) > margin(Worth::Slowdown(0.0005)));
    }

    #[test]
    fn a_straggler_at_its_ceiling_leaves_power_unspent() {
        let members = members(&[0.0, -0.05, -0.05, -0.05], 720.0, 0.001);
        let target = level(&members, Watts(2800.0), Worth::Slowdown(0.0005));
        assert_eq!(target.powers[0], Watts(720.0));
        assert!(target.powers.iter().copied().sum::<Watts>() < Watts(2790.0));
    }
}
