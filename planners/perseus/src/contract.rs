//! A plan as the contract that whoever runs it gets.

use litd_profiles::plan::{Contract, Instruction, Origin, Stage, Totals};
use litd_units::{Joules, Millis, Watts};

use crate::graph::Graph;
use crate::job::{Job, Plan};
use crate::schedule::is_constant;

/// So many points of the frontier, about, go into a contract.
const POINTS: usize = 250;

impl Job {
    /// The operations of each GPU of the row in a plan, in its order: as [`Graph::operations`] numbers them,
    /// without those of constant time, which have no clock. Chunk c of GPU g is stage c * GPUs + g of the profile.
    #[must_use]
    pub fn lanes(&self, moments: &[[Millis; 2]]) -> Vec<Vec<usize>> {
        let gpus = self.scale().gpus.max(1);
        let graph = self.problem().graph();
        let mut lanes = vec![Vec::new(); gpus as usize];
        let has_clock = |operation: &usize| !is_constant(&graph.kind(*operation).instruction);
        for operation in (0..moments.len()).filter(has_clock) {
            lanes[(graph.kind(operation).stage % gpus) as usize].push(operation);
        }
        for lane in &mut lanes {
            // Topological order breaks the ties of operations that take no time.
            lane.sort_by(|&a, &b| {
                let begin = |operation: usize| moments[operation][0].0;
                begin(a).total_cmp(&begin(b)).then(a.cmp(&b))
            });
        }
        lanes
    }

    /// A plan as a contract: what each GPU does, at which clock, and what to expect.
    #[must_use]
    pub fn contract(&self, plan: &Plan) -> Contract {
        let moments = plan.moments(self.problem().graph());
        let slacks = self.slacks(&moments, plan.until);
        let lanes = self.lanes(&moments);
        let stages = (0..).zip(&lanes).map(|(stage, lane)| Stage {
            stage,
            instructions: lane
                .iter()
                .map(|&operation| self.instruction(plan, operation, slacks[operation]))
                .collect(),
        });
        let mut contract = Contract::new(stages.collect());
        contract.planner = Some("perseus".into());
        contract.blocking = Some(self.scale().blocking);
        contract.totals = self.totals(plan);
        contract.frontier = Some(self.origin(plan));
        contract
    }

    fn instruction(&self, plan: &Plan, operation: usize, slack: Millis) -> Instruction {
        let graph = self.problem().graph();
        let kind = graph.kind(operation);
        let planned = &plan.operations[operation];
        let (time, energy) = (planned.realised, planned.energy);
        let power = Watts(energy.0 / (time.0 * 1e-3));
        Instruction {
            instruction: kind.instruction.clone(),
            microbatch: graph.operations()[operation].microbatch,
            chunk: kind.stage / self.scale().gpus.max(1),
            // Measured at clock 0: there was no choice.
            clock: planned.clock.filter(|clock| clock.0 > 0.0),
            partitions: Vec::new(),
            time: Some(time),
            energy: Some(energy),
            power: Some(power).filter(|power| power.is_finite()),
            slack: Some(slack),
        }
    }

    /// How much later each operation may end without any other beginning later, or the iteration ending
    /// after `until`.
    fn slacks(&self, moments: &[[Millis; 2]], until: Millis) -> Vec<Millis> {
        let graph = self.problem().graph();
        let mut slacks: Vec<Millis> = moments.iter().map(|[_, end]| until - *end).collect();
        for arc in &graph.arcs()[moments.len()..] {
            // Events 2 + 2n and 3 + 2n are operation n's.
            if arc.from > Graph::SINK && arc.to > Graph::SINK {
                let (from, to) = ((arc.from / 2 - 1) as usize, (arc.to / 2 - 1) as usize);
                slacks[from] = slacks[from].min(moments[to][0] - moments[from][1]);
            }
        }
        slacks
            .into_iter()
            .map(|slack| slack.max(Millis::ZERO))
            .collect()
    }

    fn totals(&self, plan: &Plan) -> Totals {
        let frontier = self.frontier();
        let waiting = |time: Millis| Joules(self.scale().blocking.0 * time.0 * 1e-3);
        let effective = plan.operations.iter();
        let effective = effective.map(|it| it.energy - waiting(it.realised)).sum();
        let steps = frontier.longest().0 - plan.time.0.min(frontier.longest().0);
        let before = litd_profiles::Units(plan.time.0 + 1);
        Totals {
            iteration: Some(steps.into()),
            time: Some(plan.realised),
            until: Some(plan.until),
            energy: Some(plan.energy),
            effective: Some(effective),
            cost_change: Some(frontier.at(plan.time).cost - frontier.at(before).cost),
        }
    }

    fn origin(&self, plan: &Plan) -> Origin {
        let frontier = self.frontier();
        let every = frontier.len().div_ceil(POINTS);
        let last = frontier.len() - 1;
        let points = frontier.points().enumerate();
        let points = points.filter(|(at, _)| at % every == 0 || *at == last);
        let mut points: Vec<(Millis, Joules)> = points
            .map(|(_, point)| (self.millis(point.time), self.alone(point)))
            .collect();
        points.reverse();
        Origin {
            unit: self.scale().unit,
            time: self.millis(plan.time),
            shortest: self.millis(frontier.shortest()),
            longest: self.millis(frontier.longest()),
            cheapest: self.millis(self.cheapest_alone()),
            full_clock: self.full_speed(None).realised,
            points,
        }
    }
}
