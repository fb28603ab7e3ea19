//! The whole time-energy frontier of a problem.

mod network;
mod trees;

use litd_units::Joules;
use serde::Serialize;

use crate::certificate::Certificate;
use crate::graph::Graph;
use crate::problem::Problem;
use litd_profiles::Units;
use network::Network;
use trees::Trees;

/// A point of the frontier.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// The iteration's time.
    pub time: Units,
    /// The least effective cost of an iteration that takes no longer.
    pub cost: Joules,
}

/// The least cost for every whole unit of time from T* down to Tmin, and the operations' times
/// that achieve it.
#[derive(Debug, Clone)]
pub struct Frontier {
    longest: Units,
    least_cost: Joules,
    quantum: Joules,
    /// The cost of each unit less, in quanta, from `longest` down.
    marginals: Vec<i64>,
    /// With each unit less, where in `changes` its changes end.
    ends: Vec<u32>,
    changes: Vec<Change>,
}

/// An operation becomes a unit shorter or longer: its number, doubled, and one if longer.
#[derive(Debug, Clone, Copy)]
struct Change(u32);

impl Change {
    fn new(operation: usize, longer: bool) -> Self {
        Self((operation as u32) << 1 | u32::from(longer))
    }

    fn apply(self, durations: &mut [Units], backwards: bool) {
        let duration = &mut durations[(self.0 >> 1) as usize].0;
        if (self.0 & 1 == 1) == backwards {
            *duration -= 1;
        } else {
            *duration += 1;
        }
    }
}

/// The solver between two points: what an observer sees.
pub struct State<'a> {
    problem: &'a Problem,
    network: &'a Network,
    durations: &'a [Units],
    /// Where it is.
    pub point: Point,
    above_least: i64,
}

impl State<'_> {
    /// The proof that this point is optimal.
    #[must_use]
    pub fn certificate(&self) -> Certificate {
        let operations = self.problem.graph().operations().len();
        Certificate {
            time: self.point.time,
            above_least: self.above_least,
            durations: self.durations[..operations].to_vec(),
            moments: self.network.moments(),
            flows: self.network.flows(),
        }
    }
}

impl Frontier {
    /// Finds the frontier of a problem: one parametric flow, warm from end to end.
    ///
    /// The dual of "least cost within time T" is a flow from the iteration's beginning to its
    /// end, in which an operation that takes t units carries between what a unit more would save
    /// and what a unit less would cost. The maximum flow at T is what the next unit less costs,
    /// and a minimum cut says which operations become shorter and longer (Fulkerson; Kelley;
    /// Phillips and Dessouky). After that step the flow is still feasible, so it is kept, and so
    /// are the search trees of the maximum flow (Boykov and Kolmogorov), because all events on
    /// one side of the cut move together.
    #[must_use]
    pub fn characterise(problem: &Problem) -> Self {
        Self::observed(problem, |_| {})
    }

    /// The same; `observe` is shown every point, with its certificate for the asking.
    pub fn observed(problem: &Problem, mut observe: impl FnMut(&State)) -> Self {
        let mut network = Network::new(problem);
        let mut trees = Trees::new(&network);
        let mut durations: Vec<Units> = (0..problem.graph().operations().len())
            .map(|op| problem.curve(op).longest())
            .collect();
        let longest = network.time();
        let shortest = problem.shortest();
        let mut frontier = Self {
            longest,
            least_cost: problem.least_cost(),
            quantum: problem.quantum(),
            marginals: Vec::with_capacity((longest.0 - shortest.0) as usize),
            ends: Vec::new(),
            changes: Vec::new(),
        };
        let mut above_least = 0;
        let mut marginal = 0;
        loop {
            let point = frontier.point(network.time(), above_least);
            observe(&State {
                problem,
                network: &network,
                durations: &durations,
                point,
                above_least,
            });
            if point.time <= shortest {
                break;
            }
            marginal += trees.maximise(&mut network);
            above_least += marginal;
            frontier.marginals.push(marginal);
            let start = frontier.changes.len();
            trees.step(&mut network, &mut frontier.changes);
            for change in &frontier.changes[start..] {
                change.apply(&mut durations, false);
            }
            frontier.ends.push(frontier.changes.len() as u32);
        }
        frontier
    }

    fn point(&self, time: Units, above_least: i64) -> Point {
        let cost = self.least_cost + self.quantum * above_least as f64;
        Point { time, cost }
    }

    /// The longest time: everything takes as long as it saves something.
    #[must_use]
    pub fn longest(&self) -> Units {
        self.longest
    }

    /// The shortest possible time.
    #[must_use]
    pub fn shortest(&self) -> Units {
        Units(self.longest.0 - self.marginals.len() as u32)
    }

    /// How many points there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.marginals.len() + 1
    }

    /// All points, from the longest time to the shortest.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        let mut above_least = 0;
        let first = std::iter::once(self.point(self.longest, 0));
        first.chain(self.marginals.iter().zip(1..).map(move |(marginal, less)| {
            above_least += marginal;
            self.point(Units(self.longest.0 - less), above_least)
        }))
    }

    /// The point at a time, which is taken as the nearest that the frontier has.
    #[must_use]
    pub fn at(&self, time: Units) -> Point {
        let steps = self.steps_to(time);
        let above_least = self.marginals[..steps].iter().sum();
        self.point(Units(self.longest.0 - steps as u32), above_least)
    }

    /// How long each operation takes at a point, in the order of [`Graph::operations`].
    #[must_use]
    pub fn durations(&self, problem: &Problem, time: Units) -> Vec<Units> {
        let operations: &Graph = problem.graph();
        let mut durations: Vec<Units> = (0..operations.operations().len())
            .map(|op| problem.curve(op).longest())
            .collect();
        let end = match self.steps_to(time) {
            0 => 0,
            steps => self.ends[steps - 1] as usize,
        };
        for change in &self.changes[..end] {
            change.apply(&mut durations, false);
        }
        durations
    }

    fn steps_to(&self, time: Units) -> usize {
        let less = self.longest.0.saturating_sub(time.0) as usize;
        less.min(self.marginals.len())
    }
}
