//! A graph with its costs, in whole numbers.

use litd_units::Joules;
use thiserror::Error;

use crate::graph::Graph;
use litd_profiles::Curve;
use litd_profiles::Kind;
use litd_profiles::Units;

/// The sum of all possible costs stays below 2^60 quanta, so that no sum of flows overflows.
const ROOM: i32 = 60;

/// An iteration takes no more units: each would be a point of the frontier, and these take some
/// 400 MiB. In milliseconds it is nine hours.
const MAX_TIME: u64 = 1 << 25;

/// A graph and the cost of each kind of its operations.
///
/// Inside, costs are whole multiples of a [`quantum`](Self::quantum), a power of two that is as
/// small as the sum of all costs allows: sums are exact, and optimality can be checked with `==`
/// however large or small the energies are.
#[derive(Debug, Clone)]
pub struct Problem {
    graph: Graph,
    curves: Vec<Curve>,
    quantum: f64,
    slopes: Vec<Slopes>,
    /// With every operation at its longest.
    least_cost: Joules,
}

/// The cost of each unit less, in quanta, for one kind of operation.
#[derive(Debug, Clone)]
struct Slopes {
    shortest: u32,
    /// From `shortest` + 1 units down to `shortest` first; not rising.
    steps: Vec<i64>,
    /// The operation's cost above its least cost, at `shortest`, `shortest` + 1, ...
    above_least: Vec<i64>,
}

/// Why a graph and costs don't make a problem.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ProblemError {
    #[error("the profile has no {0}, which the graph wants")]
    Missing(Kind),
    #[error(
        "an iteration could take {0} units of time; at most {MAX_TIME} are possible: choose a longer unit"
    )]
    TooLong(u64),
    #[error("all costs together are {0:?} J, too much to compute with")]
    TooDear(String),
}

impl Problem {
    /// The graph with a curve for each of its kinds of operation.
    ///
    /// # Errors
    /// If a kind has no curve, or sums would overflow.
    pub fn new(
        graph: Graph,
        curve_of: impl Fn(&Kind) -> Option<Curve>,
    ) -> Result<Self, ProblemError> {
        let curves = graph
            .kinds()
            .iter()
            .map(|kind| curve_of(kind).ok_or_else(|| ProblemError::Missing(kind.clone())))
            .collect::<Result<Vec<_>, _>>()?;
        let curve = |op: usize| &curves[graph.operations()[op].kind as usize];
        let all = 0..graph.operations().len();
        let longest = graph.earliest(|op| curve(op).longest().0.into())[Graph::SINK as usize];
        if longest > MAX_TIME {
            return Err(ProblemError::TooLong(longest));
        }
        let least_cost: f64 = all.clone().map(|op| least(curve(op))).sum();
        let range: f64 = all.map(|op| most(curve(op)) - least(curve(op))).sum();
        if !(least_cost.is_finite() && range.is_finite()) {
            return Err(ProblemError::TooDear(format!("{least_cost:e}")));
        }
        // A hundredth for rounding; where nothing can be paid any quantum will do.
        let quantum = (1.01 * range.max(f64::MIN_POSITIVE.sqrt())).log2().ceil() as i32 - ROOM;
        let quantum = 2_f64.powi(quantum);
        let slopes = curves.iter().map(|curve| Slopes::new(curve, quantum));
        Ok(Self {
            slopes: slopes.collect(),
            graph,
            quantum,
            least_cost: Joules(least_cost),
            curves,
        })
    }

    /// The graph.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// An operation's cost, by its time.
    #[must_use]
    pub fn curve(&self, operation: usize) -> &Curve {
        &self.curves[self.graph.operations()[operation].kind as usize]
    }

    /// The resolution of costs.
    #[must_use]
    pub fn quantum(&self) -> Joules {
        Joules(self.quantum)
    }

    /// The cost with every operation at its longest time: no plan costs less.
    #[must_use]
    pub fn least_cost(&self) -> Joules {
        self.least_cost
    }

    /// The cost of an operation above its least, in quanta, at a time that it can take.
    #[must_use]
    pub fn above_least(&self, operation: usize, time: Units) -> Option<i64> {
        let slopes = self.slopes(operation);
        let index = time.0.checked_sub(slopes.shortest)?;
        slopes.above_least.get(index as usize).copied()
    }

    /// The cost of making an operation shorter by a unit, in quanta: first from its shortest time plus one, last
    /// from its longest; never rising.
    #[must_use]
    pub fn steps(&self, operation: usize) -> &[i64] {
        &self.slopes(operation).steps
    }

    /// The iteration's time with every operation at its shortest.
    #[must_use]
    pub fn shortest(&self) -> Units {
        let times = self.graph.earliest(|op| self.curve(op).shortest().0.into());
        Units(times[Graph::SINK as usize] as u32)
    }

    fn slopes(&self, operation: usize) -> &Slopes {
        &self.slopes[self.graph.operations()[operation].kind as usize]
    }
}

fn least(curve: &Curve) -> f64 {
    curve.cost(curve.longest()).0
}

fn most(curve: &Curve) -> f64 {
    curve.cost(curve.shortest()).0
}

impl Slopes {
    fn new(curve: &Curve, quantum: f64) -> Self {
        // Rounded each: what falls still falls, so the curve stays convex.
        let mut steps: Vec<i64> = curve
            .slopes()
            .map(|slope| (slope / quantum).round() as i64)
            .collect();
        let mut above_least: Vec<i64> = steps
            .iter()
            .scan(0, |sum, step| {
                *sum += step;
                Some(*sum)
            })
            .collect();
        above_least.insert(0, 0);
        above_least.reverse();
        steps.reverse();
        Self {
            shortest: curve.shortest().0,
            steps,
            above_least,
        }
    }
}
