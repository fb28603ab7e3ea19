//! Exploration (section 5): all configurations of a grid, those that fit, and the Pareto front of energy
//! against latency.

use litd_units::Watts;
use serde::Serialize;

use crate::interpret::{Degrees, Program};
use crate::kernel::Setting;
use crate::predict::{Configuration, Deployment, Metrics, Phase, PredictError};
use crate::spec::Overlap;

/// The choices that are varied: every combination is a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Requests side by side.
    pub batches: Vec<u32>,
    /// Input lengths.
    pub inputs: Vec<u32>,
    /// Output lengths.
    pub outputs: Vec<u32>,
    /// How the model is shared.
    pub degrees: Vec<Degrees>,
    /// Power limits of each GPU; none: the data sheet's.
    pub limits: Vec<Option<Watts>>,
    /// Clocks as shares of the boost clock; none: as high as power allows.
    pub clocks: Vec<Option<f64>>,
    /// Proposed tokens per decode step, and the chance that one is kept.
    pub speculation: (u32, f64),
}

impl Grid {
    /// How many configurations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let lists = [
            self.batches.len(),
            self.inputs.len(),
            self.outputs.len(),
            self.degrees.len(),
            self.limits.len(),
            self.clocks.len(),
        ];
        lists.into_iter().fold(1, usize::saturating_mul)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All configurations, the batch size varying fastest.
    pub fn configurations(&self) -> impl Iterator<Item = Configuration> {
        let place = |at: usize| {
            let mut at = at;
            let mut next = |length: usize| {
                let place = at % length;
                at /= length;
                place
            };
            let batch = self.batches[next(self.batches.len())];
            let input = self.inputs[next(self.inputs.len())];
            let output = self.outputs[next(self.outputs.len())];
            let degrees = self.degrees[next(self.degrees.len())];
            let power_limit = self.limits[next(self.limits.len())];
            let clock = self.clocks[next(self.clocks.len())];
            Configuration {
                batch,
                input,
                output,
                degrees,
                speculated: self.speculation.0,
                accepted: self.speculation.1,
                setting: Setting {
                    power_limit,
                    clock,
                    sms: None,
                },
            }
        };
        (0..self.len()).map(place)
    }
}

/// A way to overlap communication, with the program that has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// The overlap; none: computing and communicating take turns.
    pub overlap: Option<Overlap>,
    /// The layer with it.
    pub program: Program,
}

/// A configuration and what it takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Explored {
    /// The configuration.
    pub configuration: Configuration,
    /// The variant's number.
    pub variant: usize,
    /// The prediction.
    pub metrics: Metrics,
    /// Prefill by operator.
    pub prefill: Phase,
    /// Decode by operator.
    pub decode: Phase,
}

/// The result of a sweep.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sweep {
    /// Configurations that fit in memory.
    pub explored: Vec<Explored>,
    /// Configurations left out because memory does not hold them.
    pub too_large: usize,
    /// Configurations left out because a degree does not divide the model.
    pub indivisible: usize,
}

/// The phases that are predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phases {
    /// Prefill alone.
    Prefill,
    /// Decode alone.
    Decode,
    /// Prefill and decode.
    Both,
}

/// Predicts every configuration of a grid with one variant and adds what comes out. `each` is called after
/// every configuration.
///
/// # Errors
/// A configuration is refused for another reason than its degree.
pub fn explore(
    deployment: &Deployment,
    grid: &Grid,
    variant: usize,
    phases: Phases,
    into: &mut Sweep,
    mut each: impl FnMut(),
) -> Result<(), PredictError> {
    for configuration in grid.configurations() {
        each();
        if !deployment.footprint(&configuration).fits() {
            into.too_large += 1;
            continue;
        }
        let nothing = || Phase { shares: Vec::new() };
        let prefill = match phases {
            Phases::Decode => Ok(nothing()),
            Phases::Prefill | Phases::Both => deployment.prefill(&configuration),
        };
        let decode = match phases {
            Phases::Prefill => Ok(nothing()),
            Phases::Decode | Phases::Both => deployment.decode(&configuration),
        };
        let (prefill, decode) = match (prefill, decode) {
            (Ok(prefill), Ok(decode)) => (prefill, decode),
            (Err(error), _) | (_, Err(error)) if error.is_indivisible() => {
                into.indivisible += 1;
                continue;
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        into.explored.push(Explored {
            metrics: Metrics::of(&configuration, &prefill, &decode),
            configuration,
            variant,
            prefill,
            decode,
        });
    }
    Ok(())
}

/// The places of those points that no other beats in both coordinates, by the first; of equal points one.
#[must_use]
pub fn pareto(points: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (points[a], points[b]);
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let mut least = f64::INFINITY;
    order.retain(|&at| {
        let better = points[at].1 < least;
        if better {
            least = points[at].1;
        }
        better
    });
    order
}

/// Lists from `first` to `last` in steps, as appendix M sweeps lengths.
#[must_use]
pub fn linear(first: u32, last: u32, step: u32) -> Vec<u32> {
    (first..=last).step_by(step.max(1) as usize).collect()
}

/// Lists from 1 to `last`, each twice the one before, as appendix M sweeps batches.
#[must_use]
pub fn doubling(last: u32) -> Vec<u32> {
    std::iter::successors(Some(1_u32), |it| it.checked_mul(2))
        .take_while(|it| *it <= last)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_has_what_nothing_beats() {
        let points = [
            (3.0, 1.0),
            (1.0, 3.0),
            (2.0, 2.0),
            (2.5, 2.5),
            (1.0, 3.0),
            (2.0, 4.0),
        ];
        assert_eq!(pareto(&points), [1, 2, 0]);
        assert_eq!(pareto(&[]), [0; 0]);
        assert_eq!(pareto(&[(f64::NAN, 1.0), (1.0, 1.0)]), [1]);
    }

    #[test]
    fn a_grid_has_every_combination_once() {
        let grid = Grid {
            batches: doubling(4),
            inputs: linear(256, 1024, 256),
            outputs: vec![1],
            degrees: vec![
                Degrees::ONE,
                Degrees {
                    tp: 2,
                    ..Degrees::ONE
                },
            ],
            limits: vec![None],
            clocks: vec![None, Some(0.5)],
            speculation: (0, 0.0),
        };
        let all: Vec<_> = grid.configurations().collect();
        assert_eq!((all.len(), grid.len()), (48, 48));
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{one:?}");
        }
    }
}
