//! A pipeline with its frontier: which plan suits which straggler, and what it does to clocks.

use litd_units::{Hertz, Joules, Millis, Watts};
use serde::Serialize;
use thiserror::Error;

use crate::frontier::{Frontier, Point};
use crate::graph::Graph;
use crate::problem::{Problem, ProblemError};
use litd_profiles::Units;
use litd_profiles::{ClockOption, Spec, SpecError};

/// How a plan's units of time and costs become milliseconds and joules.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scale {
    /// The length of a unit of time, tau.
    pub unit: Millis,
    /// The power of a GPU that waits for another.
    pub blocking: Watts,
    /// How many GPUs stand in a row: what waits when nothing is computed.
    pub gpus: u32,
}

/// A pipeline whose operations all have a cost: what can be characterised.
#[derive(Debug)]
pub struct Pipeline {
    problem: Problem,
    scale: Scale,
    /// The clocks of each kind of operation, slowest first.
    options: Vec<Vec<ClockOption>>,
    /// The fastest of each.
    full_clocks: Vec<Option<ClockOption>>,
}

/// A pipeline and its frontier.
#[derive(Debug)]
pub struct Job {
    pipeline: Pipeline,
    frontier: Frontier,
}

/// Why there is no such pipeline.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum JobError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Problem(#[from] ProblemError),
}

/// An operation's clock, time and energy in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Planned {
    /// The time that the plan gives it.
    pub time: Units,
    /// The slowest clock that is no slower than that; the fastest where all are. Nothing where
    /// no clock was measured.
    pub clock: Option<Hertz>,
    /// How long it takes at that clock.
    pub realised: Millis,
    /// The operation's energy at that clock.
    pub energy: Joules,
}

/// A schedule of clocks for one iteration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// The iteration's time as planned.
    pub time: Units,
    /// The iteration's time at the clocks chosen.
    pub realised: Millis,
    /// When all pipelines are done: the straggler's time, or this one's if that is later.
    pub until: Millis,
    /// The energy of all the pipeline's GPUs until then, waiting included.
    pub energy: Joules,
    /// Whether it saves energy only because somebody else is late: alone, a faster plan of the
    /// frontier would use less.
    pub pays_only_for_straggler: bool,
    /// The planned operations, in the order of [`Graph::operations`].
    #[serde(skip)]
    pub operations: Vec<Planned>,
}

impl Plan {
    /// When each operation begins and ends, all as early as possible.
    #[must_use]
    pub fn moments(&self, graph: &Graph) -> Vec<[Millis; 2]> {
        graph.moments(|operation| self.operations[operation].realised)
    }
}

impl Pipeline {
    /// Prices a graph.
    ///
    /// # Errors
    /// If costs are unusable or missing.
    pub fn new(graph: Graph, spec: &Spec, scale: Scale) -> Result<Self, JobError> {
        let curves = spec.curves()?;
        let problem = Problem::new(graph, |kind| curves.get(kind).cloned())?;
        let entries = problem.graph().kinds().iter().map(|kind| spec.entry(kind));
        let (mut all, mut full_clocks) = (Vec::new(), Vec::new());
        for entry in entries {
            let mut options = entry
                .and_then(|entry| entry.options.clone())
                .unwrap_or_default();
            options.sort_by(|a, b| b.measured.0.total_cmp(&a.measured.0));
            let full_clock = entry.and_then(|entry| entry.full_clock);
            full_clocks.push(full_clock.or(options.last().copied()));
            all.push(options);
        }
        Ok(Self {
            options: all,
            full_clocks,
            problem,
            scale,
        })
    }

    /// The job's units.
    #[must_use]
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Finds the frontier, which takes milliseconds to minutes; `progress` is told the points.
    #[must_use]
    pub fn characterise(self, mut progress: impl FnMut(&Problem, Point)) -> Job {
        let problem = &self.problem;
        let frontier = Frontier::observed(problem, |state| progress(problem, state.point));
        Job {
            pipeline: self,
            frontier,
        }
    }
}

impl Job {
    /// Graph and costs.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.pipeline.problem
    }

    /// The frontier.
    #[must_use]
    pub fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// The frontier's units.
    #[must_use]
    pub fn scale(&self) -> Scale {
        self.pipeline.scale
    }

    /// A number of units in milliseconds.
    #[must_use]
    pub fn millis(&self, time: Units) -> Millis {
        self.scale().unit * f64::from(time.0)
    }

    /// The energy of the pipeline until all pipelines are done (equation 3), if its operations have this cost.
    fn total(&self, cost: Joules, until: Millis) -> Joules {
        let waiting = f64::from(self.scale().gpus) * self.scale().blocking.0 * until.0 * 1e-3;
        cost + Joules(waiting)
    }

    /// The energy at a point of the frontier if no other pipeline is late.
    #[must_use]
    pub fn alone(&self, point: Point) -> Joules {
        self.total(point.cost, self.millis(point.time))
    }

    /// The time with the least energy when nobody else is late. Longer ones pay only for a
    /// straggler: the effective cost goes on falling, but the whole pipeline waits longer.
    #[must_use]
    pub fn cheapest_alone(&self) -> Units {
        let points = self.frontier.points();
        let least = points.min_by(|a, b| self.alone(*a).0.total_cmp(&self.alone(*b).0));
        least.map_or(self.frontier.longest(), |point| point.time)
    }

    /// The plan with the least energy while another pipeline takes as long as `straggler`
    /// (equation 2: T_opt = min(T*, T')); nobody waits longer than for it. Without a straggler
    /// the shortest time.
    #[must_use]
    pub fn lookup(&self, straggler: Option<Millis>) -> Plan {
        let units = straggler.map_or(0.0, |time| time / self.scale().unit + 1e-9);
        // Beyond the ends the nearest is taken; `as` saturates.
        let time = self.frontier.at(Units(units as u32)).time;
        self.plan(time, straggler)
    }

    /// The plan at a time of the frontier.
    #[must_use]
    pub fn plan(&self, time: Units, straggler: Option<Millis>) -> Plan {
        let durations = self.frontier.durations(self.problem(), time);
        self.realise(time, straggler, &durations, |kind, time| {
            let options = &self.pipeline.options[kind];
            let planned = self.millis(time) + self.scale().unit * 1e-9;
            let in_time = options.iter().find(|option| option.measured <= planned);
            in_time.or(options.last()).copied()
        })
    }

    /// The clocks without a plan: everything at the full clock.
    #[must_use]
    pub fn full_speed(&self, straggler: Option<Millis>) -> Plan {
        let count = self.problem().graph().operations().len();
        let shortest: Vec<Units> = (0..count)
            .map(|operation| self.problem().curve(operation).shortest())
            .collect();
        let time = self.frontier.shortest();
        self.realise(time, straggler, &shortest, |kind, _| {
            self.pipeline.full_clocks[kind]
        })
    }

    fn realise(
        &self,
        time: Units,
        straggler: Option<Millis>,
        durations: &[Units],
        choose: impl Fn(usize, Units) -> Option<ClockOption>,
    ) -> Plan {
        let blocked = |time: Millis| Joules(self.scale().blocking.0 * time.0 * 1e-3);
        let graph = self.problem().graph();
        let kinds = graph.operations().iter().map(|operation| operation.kind);
        let operations = kinds.enumerate().zip(durations);
        let operations =
            operations.map(
                |((number, kind), &time)| match choose(kind as usize, time) {
                    Some(option) => Planned {
                        time,
                        clock: Some(option.clock),
                        realised: option.measured,
                        energy: option.cost + blocked(self.millis(option.time)),
                    },
                    None => Planned {
                        time,
                        clock: None,
                        realised: self.millis(time),
                        energy: self.problem().curve(number).cost(time)
                            + blocked(self.millis(time)),
                    },
                },
            );
        self.settle(time, straggler, operations.collect())
    }

    /// The plan in which each operation does this, whoever chose it.
    #[must_use]
    pub fn settle(&self, time: Units, straggler: Option<Millis>, operations: Vec<Planned>) -> Plan {
        let blocked = |time: Millis| Joules(self.scale().blocking.0 * time.0 * 1e-3);
        let mut plan = Plan {
            time,
            realised: Millis::ZERO,
            until: Millis::ZERO,
            energy: Joules::ZERO,
            pays_only_for_straggler: time > self.cheapest_alone(),
            operations,
        };
        let moments = plan.moments(self.problem().graph());
        let ends = moments.iter().map(|[_, end]| *end);
        plan.realised = ends.fold(Millis::ZERO, Millis::max);
        plan.until = plan.realised.max(straggler.unwrap_or(Millis::ZERO));
        let effective = |planned: &Planned| planned.energy - blocked(planned.realised);
        let cost = plan.operations.iter().map(effective).sum();
        plan.energy = self.total(cost, plan.until);
        plan
    }
}
