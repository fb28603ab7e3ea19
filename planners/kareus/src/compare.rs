//! The paper's two comparisons of iteration frontiers (section 6.1, figure 9).

use litd_units::{Joules, Millis};
use serde::Serialize;

/// A point of an iteration frontier.
pub type IterationPoint = (Millis, Joules);

/// A frontier beside the baselines, in percent; more is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reductions {
    /// The fastest point's time, below that of the plain baseline.
    pub time: f64,
    /// The fastest point's energy, below that of the plain baseline.
    pub energy: f64,
    /// Energy below that of the other baseline's fastest point, within its time. `None` where nothing is as fast.
    pub iso_time_energy: Option<f64>,
    /// Time below that of the other baseline's cheapest point, within its energy. `None` where all needs more.
    pub iso_energy_time: Option<f64>,
}

/// Holds a frontier against a plain baseline (Megatron-LM) and against a baseline's frontier (Megatron-LM with
/// Perseus). `None` where one of the three has no point.
#[must_use]
pub fn reductions(
    ours: &[IterationPoint],
    plain: &[IterationPoint],
    frontier: &[IterationPoint],
) -> Option<Reductions> {
    let (own, plain) = (fastest(ours)?, fastest(plain)?);
    let (deadline, budget) = (fastest(frontier)?, cheapest(frontier)?);
    let below = |ours: f64, theirs: f64| 100.0 * (1.0 - ours / theirs);
    // Times are sums of the same units, so a hair is rounding.
    let hair = 1.0 + 1e-9;
    let in_time = ours.iter().filter(|it| it.0.0 <= deadline.0.0 * hair);
    let in_budget = ours.iter().filter(|it| it.1.0 <= budget.1.0 * hair);
    let least = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::min);
    Some(Reductions {
        time: below(own.0.0, plain.0.0),
        energy: below(own.1.0, plain.1.0),
        iso_time_energy: least(&mut in_time.map(|it| it.1.0)).map(|it| below(it, deadline.1.0)),
        iso_energy_time: least(&mut in_budget.map(|it| it.0.0)).map(|it| below(it, budget.0.0)),
    })
}

fn fastest(points: &[IterationPoint]) -> Option<IterationPoint> {
    points
        .iter()
        .copied()
        .min_by(|a, b| a.0.0.total_cmp(&b.0.0))
}

fn cheapest(points: &[IterationPoint]) -> Option<IterationPoint> {
    points
        .iter()
        .copied()
        .min_by(|a, b| a.1.0.total_cmp(&b.1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(all: &[(f64, f64)]) -> Vec<IterationPoint> {
        all.iter()
            .map(|&(time, energy)| (Millis(time), Joules(energy)))
            .collect()
    }

    /// Figure 9, by hand.
    #[test]
    fn reductions_are_read_off_the_frontiers() {
        let plain = points(&[(100.0, 1000.0)]);
        let perseus = points(&[(100.0, 900.0), (120.0, 800.0), (140.0, 850.0)]);
        let ours = points(&[(90.0, 950.0), (96.0, 790.0), (100.0, 720.0), (130.0, 600.0)]);
        let found = reductions(&ours, &plain, &perseus).unwrap();
        assert!((found.time - 10.0).abs() < 1e-9 && (found.energy - 5.0).abs() < 1e-9);
        assert!((found.iso_time_energy.unwrap() - 20.0).abs() < 1e-9);
        assert!((found.iso_energy_time.unwrap() - 20.0).abs() < 1e-9);
        let slow = points(&[(101.0, 900.0)]);
        let found = reductions(&slow, &plain, &perseus).unwrap();
        assert_eq!((found.iso_time_energy, found.iso_energy_time), (None, None));
        assert_eq!(reductions(&[], &plain, &perseus), None);
    }
}
