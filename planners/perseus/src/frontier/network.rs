//! The flow network: events, arcs, when each event happens and what each arc carries.

use crate::graph::Graph;
use crate::problem::Problem;
use litd_profiles::Units;

/// More than all that could flow: an operation at its shortest, a dependency without slack.
const ENDLESS: i64 = 1 << 61;

/// An arc between two events. Its bounds depend only on how far apart these are.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// The arc's exit at the earlier event; the sister is the one at the later.
    exit: u32,
    /// The shortest distance, for an operation its shortest time.
    shortest: i32,
    /// Where its bounds stand in the table, and the index past which they are all 0.
    bounds: u32,
    slack: u32,
}

/// An arc as seen from one of its ends. What the maximum flow reads stands together.
#[derive(Debug, Clone, Copy)]
pub struct Exit {
    /// Where it leads.
    pub event: u32,
    /// The same arc seen from there.
    pub sister: u32,
    /// How much more may flow this way.
    pub residual: i64,
}

pub struct Network {
    operations: usize,
    lines: Vec<Line>,
    /// The capacity of an arc by its distance beyond the shortest: unlimited, then the cost of each unit less,
    /// then 0. The next entry is the least flow that it must carry.
    bounds: Vec<i64>,
    /// All exits of event n, between `first[n]` and `first[n + 1]`.
    exits: Vec<Exit>,
    first: Vec<u32>,
    /// For each exit its arc, doubled, and one at the later end.
    arc_of: Vec<u32>,
    /// When each event happens, up to a shift of all.
    moments: Vec<i32>,
    /// The number that each event of the graph has here.
    numbers: Vec<u32>,
}

impl Network {
    /// The network with each operation at its longest, as early as possible, without flow.
    pub fn new(problem: &Problem) -> Self {
        let graph = problem.graph();
        // The first three serve dependencies.
        let mut bounds = vec![ENDLESS, 0, 0];
        let mut of_kind: Vec<Option<u32>> = vec![None; graph.kinds().len()];
        let lines = (0..graph.arcs().len()).map(|number| {
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
                exit: 0,
                shortest,
                bounds: place,
                slack,
            }
        });
        let lines = lines.collect();
        let earliest = graph.earliest(|op| problem.curve(op).longest().0.into());
        // Events at about the same time are neighbours in memory, because paths and trees consist of such events.
        let mut order: Vec<u32> = (0..graph.events() as u32).collect();
        order.sort_by_key(|&event| earliest[event as usize]);
        let mut numbers = vec![0; order.len()];
        for (number, &event) in (0..).zip(&order) {
            numbers[event as usize] = number;
        }
        let moments = order.iter().map(|&event| earliest[event as usize] as i32);
        let moments = moments.collect();
        let mut network = Self {
            operations: graph.operations().len(),
            lines,
            bounds,
            exits: Vec::new(),
            first: Vec::new(),
            arc_of: Vec::new(),
            moments,
            numbers,
        };
        network.join(graph);
        for number in 0..network.lines.len() {
            network.set_flow(number, 0);
        }
        network
    }

    /// Lists the exits of each event.
    fn join(&mut self, graph: &Graph) {
        let mut first = vec![0_u32; graph.events() + 1];
        let number = |event: u32| self.numbers[event as usize];
        for arc in graph.arcs() {
            first[number(arc.from) as usize + 1] += 1;
            first[number(arc.to) as usize + 1] += 1;
        }
        for event in 0..graph.events() {
            first[event + 1] += first[event];
        }
        let nowhere = Exit {
            event: 0,
            sister: 0,
            residual: 0,
        };
        self.exits = vec![nowhere; 2 * graph.arcs().len()];
        self.arc_of = vec![0; self.exits.len()];
        let mut next = first.clone();
        let mut place = |event: u32| {
            let next = &mut next[event as usize];
            *next += 1;
            *next - 1
        };
        for (arc, ends) in (0_u32..).zip(graph.arcs()) {
            let [from, to] = [ends.from, ends.to].map(number);
            let (ahead, back) = (place(from), place(to));
            self.lines[arc as usize].exit = ahead;
            self.arc_of[ahead as usize] = arc << 1;
            self.arc_of[back as usize] = arc << 1 | 1;
            for (exit, event, sister) in [(ahead, to, back), (back, from, ahead)] {
                self.exits[exit as usize] = Exit {
                    event,
                    sister,
                    residual: 0,
                };
            }
        }
        self.first = first;
    }

    pub fn events(&self) -> usize {
        self.moments.len()
    }

    /// The iteration's time.
    pub fn time(&self) -> Units {
        let (start, end) = (self.source() as usize, self.sink() as usize);
        Units((self.moments[end] - self.moments[start]).unsigned_abs())
    }

    /// The iteration's beginning.
    pub fn source(&self) -> u32 {
        self.numbers[Graph::SOURCE as usize]
    }

    /// The iteration's end.
    pub fn sink(&self) -> u32 {
        self.numbers[Graph::SINK as usize]
    }

    /// When each event happens, in units from the beginning.
    pub fn moments(&self) -> Vec<i64> {
        let start = self.moments[self.source() as usize];
        let numbers = self.numbers.iter();
        numbers
            .map(|&number| i64::from(self.moments[number as usize] - start))
            .collect()
    }

    /// The flow through each arc.
    pub fn flows(&self) -> Vec<i64> {
        let lines = self.lines.iter();
        lines
            .map(|line| self.flow(line, self.place(line)))
            .collect()
    }

    /// The exits of an event, by number.
    pub fn exits_of(&self, event: u32) -> std::ops::Range<u32> {
        self.first[event as usize]..self.first[event as usize + 1]
    }

    #[inline]
    pub fn exit(&self, exit: u32) -> &Exit {
        &self.exits[exit as usize]
    }

    /// How much more may flow out by this exit, or in.
    #[inline]
    pub fn residual(&self, exit: u32, inwards: bool) -> i64 {
        let here = &self.exits[exit as usize];
        if inwards {
            self.exits[here.sister as usize].residual
        } else {
            here.residual
        }
    }

    /// The exit by which flow leaves and the one by which it arrives, if it goes out by this exit,
    /// or in.
    #[inline]
    pub fn way(&self, exit: u32, inwards: bool) -> [u32; 2] {
        let sister = self.exits[exit as usize].sister;
        if inwards {
            [sister, exit]
        } else {
            [exit, sister]
        }
    }

    /// Lets more flow along a way; says how much more is then possible.
    #[inline]
    pub fn push(&mut self, [from, to]: [u32; 2], amount: i64) -> i64 {
        self.exits[to as usize].residual += amount;
        let residual = &mut self.exits[from as usize].residual;
        *residual -= amount;
        *residual
    }

    /// Where in the table the bounds of an arc stand at its present distance.
    fn place(&self, line: &Line) -> usize {
        (line.bounds + self.beyond(line).min(line.slack)) as usize
    }

    /// By how much the arc's events are further apart than they must be.
    fn beyond(&self, line: &Line) -> u32 {
        let ahead = self.exits[line.exit as usize];
        let back = self.exits[ahead.sister as usize];
        let apart = self.moments[ahead.event as usize] - self.moments[back.event as usize];
        (apart - line.shortest).unsigned_abs()
    }

    /// The flow of an arc whose residuals were made for this place in the table.
    fn flow(&self, line: &Line, place: usize) -> i64 {
        let back = self.exits[line.exit as usize].sister;
        self.exits[back as usize].residual + self.bounds[place + 1]
    }

    fn set_flow(&mut self, number: usize, flow: i64) {
        let line = self.lines[number];
        let place = self.place(&line);
        let back = self.exits[line.exit as usize].sister;
        self.exits[line.exit as usize].residual = self.bounds[place] - flow;
        self.exits[back as usize].residual = flow - self.bounds[place + 1];
    }

    /// Moves an event by a unit. Arcs to events that do not move with it must be told.
    pub fn shift(&mut self, event: u32, by: i32) {
        self.moments[event as usize] += by;
    }

    /// Tells an arc that the event at this exit has just been moved away from the other end.
    /// Yields the operation whose time has changed by that, and whether it has become longer.
    pub fn follow(&mut self, exit: u32, by: i32) -> Option<(usize, bool)> {
        let code = self.arc_of[exit as usize];
        let number = (code >> 1) as usize;
        let line = self.lines[number];
        // The earlier end moved back or the later end moved on.
        let longer = (code & 1 == 1) == (by > 0);
        let after = self.beyond(&line);
        let before = if longer { after - 1 } else { after + 1 };
        let flow = self.flow(&line, (line.bounds + before.min(line.slack)) as usize);
        self.set_flow(number, flow);
        // At their longest, operations let events move apart and wait.
        let within = before.min(after) + 1 < line.slack;
        (number < self.operations && within).then_some((number, longer))
    }
}
