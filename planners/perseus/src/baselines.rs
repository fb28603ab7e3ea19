//! Pipelines without Perseus, as most people run them or others proposed: the baselines of its evaluation (section
//! 6.1).
//!
//! - Everything at the full clock.
//! - **ZeusGlobal** (section 6.4): one power limit for all stages. A limit selects, for each kind of operation,
//!   the highest clock at which energy by time is within it.
//! - **ZeusPerStage**: a power limit for each stage, so that all stages' forwards take the same time, as nearly
//!   as clocks allow.
//! - **EnvPipe** (Choi et al., USENIX ATC 2023): the outer envelope (the last stage, the first microbatch's
//!   forwards and the last one's backwards) at the full clock, all else at the clock of the least energy; then
//!   the slowest operations on the critical path are sped up, a step of the clock at a time, until that path is
//!   the envelope. This is its published prototype's "balanced" way (`casys-kaist/EnvPipe`,
//!   `reconfiguration.py`), told again from its description; its own order of microbatches is left out.
//!
//! They choose among the measured clocks themselves, those included that no frontier has.

use litd_profiles::{Kind, Measurement, Profile, Units};
use litd_units::{Millis, Watts};

use crate::graph::Graph;
use crate::job::{Job, Plan, Planned};

/// A pipeline with all clocks that were measured.
#[derive(Debug)]
pub struct Baselines<'a> {
    job: &'a Job,
    /// The clocks of each kind of operation, slowest first.
    clocks: Vec<Vec<Measurement>>,
}

/// A microbatch's operation that waits less than this for another GPU does not wait.
const NO_WAIT: Millis = Millis(1e-3);
/// A limit is met at this much more: measurements are noisy.
const EPSILON: f64 = 1e-9;

fn power(measurement: &Measurement) -> Watts {
    Watts(measurement.energy.0 / (measurement.time.0 * 1e-3))
}

impl<'a> Baselines<'a> {
    /// The baselines of a pipeline; `None` where the profile lacks a kind of its operations.
    #[must_use]
    pub fn new(job: &'a Job, profile: &Profile) -> Option<Self> {
        let kinds = job.problem().graph().kinds().iter();
        let clocks = kinds.map(|kind| {
            let (_, own) = profile.measurements().find(|(other, _)| *other == kind)?;
            let mut own = own.to_vec();
            own.sort_by(|a, b| a.clock.0.total_cmp(&b.clock.0));
            (!own.is_empty()).then_some(own)
        });
        let clocks = clocks.collect::<Option<_>>()?;
        Some(Self { job, clocks })
    }

    fn graph(&self) -> &Graph {
        self.job.problem().graph()
    }

    /// The plan in which each operation runs at the measured clock of this number.
    fn plan(&self, choice: &[usize], straggler: Option<Millis>) -> Plan {
        let unit = self.job.scale().unit;
        let operations = choice.iter().enumerate().map(|(operation, &number)| {
            let measured = self.measured(operation, number);
            Planned {
                time: Units((measured.time / unit - 1e-9).ceil() as u32),
                clock: Some(measured.clock),
                realised: measured.time,
                energy: measured.energy,
            }
        });
        let frontier = self.job.frontier();
        self.job
            .settle(frontier.shortest(), straggler, operations.collect())
    }

    fn of(&self, operation: usize) -> &[Measurement] {
        &self.clocks[self.graph().operations()[operation].kind as usize]
    }

    fn measured(&self, operation: usize, number: usize) -> &Measurement {
        &self.of(operation)[number]
    }

    fn all(&self, choose: impl Fn(&Kind, &[Measurement]) -> usize) -> Vec<usize> {
        let of_kind: Vec<usize> = self
            .graph()
            .kinds()
            .iter()
            .zip(&self.clocks)
            .map(|(kind, clocks)| choose(kind, clocks).min(clocks.len() - 1))
            .collect();
        let operations = self.graph().operations().iter();
        operations.map(|it| of_kind[it.kind as usize]).collect()
    }

    /// The plan with the highest clock everywhere.
    #[must_use]
    pub fn full_clock(&self, straggler: Option<Millis>) -> Plan {
        self.plan(&self.all(|_, clocks| clocks.len() - 1), straggler)
    }

    /// The plan with each operation at its clock of least energy: an upper bound of savings (section 2.4).
    #[must_use]
    pub fn least_energy(&self) -> Plan {
        self.plan(&self.all(|_, clocks| thriftiest(clocks)), None)
    }

    /// Power limits that change something: every power that was measured, highest first.
    fn limits(&self, is_of: impl Fn(&Kind) -> bool) -> Vec<Watts> {
        let kinds = self.graph().kinds().iter().zip(&self.clocks);
        let own = kinds.filter(|(kind, _)| is_of(kind));
        let mut limits: Vec<Watts> = own
            .flat_map(|(_, clocks)| clocks.iter().map(power))
            .collect();
        limits.sort_by(|a, b| b.0.total_cmp(&a.0));
        limits.dedup();
        limits
    }

    /// The frontier of one power limit for all stages: a plan for each limit, highest first.
    #[must_use]
    pub fn zeus_global(&self) -> Vec<Plan> {
        let limits = self.limits(|_| true);
        let plans = limits
            .iter()
            .map(|limit| self.plan(&self.all(|_, clocks| within(clocks, *limit)), None));
        different(plans)
    }

    /// The frontier of a power limit for each stage that balances the forwards' times: a plan for each time,
    /// shortest first.
    #[must_use]
    pub fn zeus_per_stage(&self) -> Vec<Plan> {
        let stages = self.graph().stages();
        let forward = |stage: u32| {
            let kinds = self.graph().kinds().iter().zip(&self.clocks);
            let mut own = kinds.filter(|(kind, _)| kind.stage == stage);
            own.find(|(kind, _)| kind.instruction == "forward")
                .map(|(_, clocks)| clocks.as_slice())
        };
        let forwards: Vec<Option<&[Measurement]>> = (0..stages).map(forward).collect();
        let of_stage: Vec<Vec<Watts>> = (0..stages)
            .map(|stage| self.limits(|kind| kind.stage == stage))
            .collect();
        // No stage can be faster than its full clock: the slowest of them begins.
        let fastest = forwards.iter().flatten().filter_map(|it| it.last());
        let begin = fastest.map(|it| it.time).fold(Millis::ZERO, Millis::max);
        let mut targets: Vec<Millis> = forwards
            .iter()
            .flatten()
            .flat_map(|clocks| clocks.iter().map(|it| it.time))
            .filter(|time| *time >= begin)
            .collect();
        targets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let plans = targets.iter().map(|target| {
            let limits: Vec<Watts> = of_stage
                .iter()
                .zip(&forwards)
                .map(|(limits, forward)| balancing(limits, *forward, *target))
                .collect();
            let choice = self.all(|kind, clocks| within(clocks, limits[kind.stage as usize]));
            self.plan(&choice, None)
        });
        different(plans)
    }

    /// EnvPipe's plan.
    #[must_use]
    pub fn envpipe(&self, straggler: Option<Millis>) -> Plan {
        let lanes = self.lanes();
        let is_envelope: Vec<bool> = self.envelope();
        let stages = self.graph().stages() as usize;
        let mut optimal = vec![None; stages];
        let mut choice: Vec<usize> = (0..is_envelope.len())
            .map(|operation| {
                let stage = self.graph().kind(operation).stage as usize;
                match is_envelope[operation] {
                    true => self.of(operation).len() - 1,
                    false => *optimal[stage].get_or_insert_with(|| self.valley(stage as u32)),
                }
            })
            .collect();
        // Each round makes an operation faster, or ends.
        loop {
            let plan = self.plan(&choice, straggler);
            let path = self.critical_path(&plan, &lanes);
            if path.iter().all(|&operation| is_envelope[operation]) {
                return plan;
            }
            let below = |operation: &usize| choice[*operation] + 1 < self.of(*operation).len();
            let clock = |operation: usize| self.measured(operation, choice[operation]).clock;
            let lowest = path.iter().copied().filter(below).map(clock);
            let Some(lowest) = lowest.reduce(litd_units::Hertz::min) else {
                return plan;
            };
            let slowest: Vec<usize> = path
                .into_iter()
                .filter(|operation| below(operation) && clock(*operation) <= lowest)
                .collect();
            for operation in slowest {
                choice[operation] += 1;
            }
        }
    }

    /// The number of the clock at which a stage's operations use least together, on the grid of its own.
    fn valley(&self, stage: u32) -> usize {
        let kinds = self.graph().kinds().iter().zip(&self.clocks);
        let own: Vec<&Vec<Measurement>> = kinds
            .filter(|(kind, _)| kind.stage == stage)
            .map(|(_, clocks)| clocks)
            .collect();
        let count = own.iter().map(|clocks| clocks.len()).min().unwrap_or(1);
        let energy =
            |number: &usize| -> f64 { own.iter().map(|clocks| clocks[*number].energy.0).sum() };
        let best = (0..count).min_by(|a, b| energy(a).total_cmp(&energy(b)));
        best.unwrap_or(0)
    }

    /// The last stage, the first microbatch's forwards and the last microbatch's backwards.
    fn envelope(&self) -> Vec<bool> {
        let graph = self.graph();
        let last = graph.operations().iter().map(|it| it.microbatch).max();
        let is_in = |operation: usize| {
            let (kind, own) = (graph.kind(operation), &graph.operations()[operation]);
            kind.stage + 1 == graph.stages()
                || (kind.instruction == "forward" && own.microbatch == 0)
                || (kind.instruction == "backward" && Some(own.microbatch) == last)
        };
        (0..graph.operations().len()).map(is_in).collect()
    }

    /// Before each operation: the one on its own GPU, and those on others that it waits for.
    fn lanes(&self) -> Vec<(Option<usize>, Vec<usize>)> {
        let graph = self.graph();
        let count = graph.operations().len();
        let gpus = self.job.scale().gpus.max(1);
        let mut before = vec![(None, Vec::new()); count];
        for arc in &graph.arcs()[count..] {
            if arc.from <= Graph::SINK || arc.to <= Graph::SINK {
                continue;
            }
            // Events 2 + 2n and 3 + 2n are operation n's.
            let (from, to) = ((arc.from / 2 - 1) as usize, (arc.to / 2 - 1) as usize);
            match graph.kind(from).stage % gpus == graph.kind(to).stage % gpus {
                true => before[to].0 = Some(from),
                false => before[to].1.push(from),
            }
        }
        before
    }

    /// From the operation that ends last back to the beginning: an operation that did not wait follows upon
    /// the one before it on its GPU, one that did upon what it waited for.
    fn critical_path(&self, plan: &Plan, before: &[(Option<usize>, Vec<usize>)]) -> Vec<usize> {
        let moments = plan.moments(self.graph());
        let end = |operation: &usize| moments[*operation][1].0;
        let mut current = (0..moments.len()).max_by(|a, b| end(a).total_cmp(&end(b)));
        let mut path = Vec::new();
        while let Some(operation) = current {
            path.push(operation);
            let (own, others) = &before[operation];
            let began = moments[operation][0];
            let no_wait = own.filter(|own| began - moments[*own][1] < NO_WAIT);
            let latest = others.iter().max_by(|a, b| end(a).total_cmp(&end(b)));
            current = no_wait.or(latest.copied());
        }
        path
    }
}

/// The number of the clock at which the least energy is used.
fn thriftiest(clocks: &[Measurement]) -> usize {
    let energies = clocks.iter().enumerate();
    let least = energies.min_by(|(_, a), (_, b)| a.energy.0.total_cmp(&b.energy.0));
    least.map_or(0, |(number, _)| number)
}

/// The number of the highest clock whose power is within a limit; the lowest clock where none is.
fn within(clocks: &[Measurement], limit: Watts) -> usize {
    let is_within = |it: &Measurement| power(it).0 <= limit.0 * (1.0 + EPSILON);
    clocks.iter().rposition(is_within).unwrap_or(0)
}

/// The lowest limit at which the forward still takes no longer than the target.
fn balancing(limits: &[Watts], forward: Option<&[Measurement]>, target: Millis) -> Watts {
    let highest = limits.first().copied().unwrap_or(Watts(f64::INFINITY));
    let Some(clocks) = forward else {
        return highest;
    };
    let in_time =
        |limit: &&Watts| clocks[within(clocks, **limit)].time.0 <= target.0 * (1.0 + EPSILON);
    limits
        .iter()
        .rev()
        .find(in_time)
        .copied()
        .unwrap_or(highest)
}

/// Plans without repetitions of the one before.
fn different(plans: impl Iterator<Item = Plan>) -> Vec<Plan> {
    let mut kept: Vec<Plan> = Vec::new();
    for plan in plans {
        let same = |other: &Plan| other.realised == plan.realised && other.energy == plan.energy;
        if !kept.last().is_some_and(same) {
            kept.push(plan);
        }
    }
    kept
}
