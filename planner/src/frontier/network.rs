//! The flow network: events, arcs, when each event happens and what each arc carries.

use crate::graph::Graph;
use crate::problem::Problem;
use crate::units::Units;

/// More than all that could flow: an operation at its shortest, a dependency without slack.
const ENDLESS: i64 = 1 << 61;

/// An arc between two events. Its bounds depend only on how far apart these are.
#[derive(Debug, Clone, Copy)]
struct Line {
    from: u32,
    to: u32,
    /// The shortest distance, for an operation its shortest time.
    shortest: i32,
    /// Where its bounds stand in the table, and the index past which they are all 0.
    bounds: u32,
    slack: u32,
    flow: i64,
}

/// An arc as seen from one of its ends: the number, doubled, and one at its later end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way(u32);

impl Way {
    /// No way at all.
    pub const NONE: Self = Self(u32::MAX);

    fn arc(self) -> usize {
        (self.0 >> 1) as usize
    }

    /// Whether it leads from the later event to the earlier.
    fn is_back(self) -> bool {
        self.0 & 1 == 1
    }

    /// The same arc seen from its other end.
    pub fn reversed(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// A way out of an event, and where it leads.
#[derive(Debug, Clone, Copy)]
pub struct Exit {
    pub event: u32,
    pub way: Way,
}

pub struct Network {
    operations: usize,
    lines: Vec<Line>,
    /// Most that an arc may carry by its distance beyond the shortest: endless, then what each
    /// unit less costs, then 0. One place further stands the least it must carry.
    bounds: Vec<i64>,
    /// All ways out of event n, between `first[n]` and `first[n + 1]`.
    exits: Vec<Exit>,
    first: Vec<u32>,
    /// When each event happens, up to a shift of all.
    moments: Vec<i32>,
}

impl Network {
    /// Everything at its longest, as early as possible, without flow.
    pub fn new(problem: &Problem) -> Self {
        let graph = problem.graph();
        let operations = graph.operations().len();
        // The first three serve dependencies.
        let mut bounds = vec![ENDLESS, 0, 0];
        let mut of_kind: Vec<Option<u32>> = vec![None; graph.kinds().len()];
        let lines = graph.arcs().iter().enumerate().map(|(number, arc)| {
            let (mut shortest, mut place, mut slack) = (0, 0, 1);
            if let Some(operation) = graph.operations().get(number) {
                let steps = problem.steps(number);
                shortest = problem.curve(number).shortest().0 as i32;
                slack = steps.len() as u32 + 1;
                place = *of_kind[operation.kind as usize].get_or_insert_with(|| {
                    let place = bounds.len() as u32;
                    bounds.push(ENDLESS);
                    bounds.extend_from_slice(steps);
                    bounds.extend([0, 0]);
                    place
                });
            }
            Line {
                from: arc.from,
                to: arc.to,
                shortest,
                bounds: place,
                slack,
                flow: 0,
            }
        });
        let lines: Vec<Line> = lines.collect();
        let (first, exits) = exits(&lines, graph.events());
        let moments = graph.earliest(|op| problem.curve(op).longest().0.into());
        Self {
            operations,
            lines,
            bounds,
            exits,
            first,
            moments: moments.into_iter().map(|moment| moment as i32).collect(),
        }
    }

    pub fn events(&self) -> usize {
        self.moments.len()
    }

    /// The iteration's time.
    pub fn time(&self) -> Units {
        let (start, end) = (Graph::SOURCE as usize, Graph::SINK as usize);
        Units((self.moments[end] - self.moments[start]).unsigned_abs())
    }

    /// When each event happens, in units from the beginning.
    pub fn moments(&self) -> Vec<i64> {
        let start = i64::from(self.moments[Graph::SOURCE as usize]);
        let moments = self.moments.iter();
        moments.map(|moment| i64::from(*moment) - start).collect()
    }

    /// What each arc carries.
    pub fn flows(&self) -> Vec<i64> {
        self.lines.iter().map(|line| line.flow).collect()
    }

    pub fn exits(&self, event: u32) -> &[Exit] {
        let event = event as usize;
        &self.exits[self.first[event] as usize..self.first[event + 1] as usize]
    }

    /// Where a way comes from.
    pub fn origin(&self, way: Way) -> u32 {
        let line = &self.lines[way.arc()];
        if way.is_back() { line.to } else { line.from }
    }

    /// Where a way leads.
    pub fn goal(&self, way: Way) -> u32 {
        self.origin(way.reversed())
    }

    /// How much more may flow this way.
    pub fn residual(&self, way: Way) -> i64 {
        let line = &self.lines[way.arc()];
        let place = (line.bounds + self.beyond(line).min(line.slack)) as usize;
        if way.is_back() {
            line.flow - self.bounds[place + 1]
        } else {
            self.bounds[place] - line.flow
        }
    }

    /// By how much the arc's events are further apart than they must be.
    fn beyond(&self, line: &Line) -> u32 {
        let apart = self.moments[line.to as usize] - self.moments[line.from as usize];
        (apart - line.shortest).unsigned_abs()
    }

    pub fn push(&mut self, way: Way, amount: i64) {
        let line = &mut self.lines[way.arc()];
        line.flow += if way.is_back() { -amount } else { amount };
    }

    pub fn shift(&mut self, event: u32, by: i32) {
        self.moments[event as usize] += by;
    }

    /// The operation on this way whose time is less than its longest on at least one side of a
    /// step that has just moved its ends by a unit; `longer` if the step took them apart.
    pub fn changed(&self, way: Way, longer: bool) -> Option<usize> {
        let number = way.arc();
        let line = &self.lines[number];
        let before = self.beyond(line) + u32::from(!longer) - u32::from(longer);
        let least = before.min(before + u32::from(longer) - u32::from(!longer));
        (number < self.operations && least + 1 < line.slack).then_some(number)
    }

    /// Whether the step takes the ends of this way apart, if its origin moves by `by`.
    pub fn stretches(way: Way, by: i32) -> bool {
        way.is_back() == (by > 0)
    }
}

fn exits(lines: &[Line], events: usize) -> (Vec<u32>, Vec<Exit>) {
    let mut first = vec![0_u32; events + 1];
    for line in lines {
        first[line.from as usize + 1] += 1;
        first[line.to as usize + 1] += 1;
    }
    for event in 0..events {
        first[event + 1] += first[event];
    }
    let nowhere = Exit {
        event: 0,
        way: Way::NONE,
    };
    let mut exits = vec![nowhere; 2 * lines.len()];
    let mut next = first.clone();
    for (number, line) in (0_u32..).zip(lines) {
        let mut put = |at: u32, event, way| {
            let place = &mut next[at as usize];
            exits[*place as usize] = Exit { event, way };
            *place += 1;
        };
        put(line.from, line.to, Way(number << 1));
        put(line.to, line.from, Way(number << 1 | 1));
    }
    (first, exits)
}
