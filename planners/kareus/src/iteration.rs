//! From microbatch frontiers to the iteration's: Perseus, exact (section 4.4).

use litd_planner::{Job as Pipelined, JobError, Pipeline, Point, Scale, Schedule, ScheduleError};
use litd_profiles::{ClockOption, Entry, Kind, Spec, Units};
use litd_units::{Joules, Millis};
use thiserror::Error;

use crate::compose::{Choice, ComposeError, Method, microbatch};
use crate::job::{Job, Microbatch};
use crate::profile::Profiler as _;
use crate::results::Results;
use crate::slack::give_back;

/// A job's iteration frontier, with what each microbatch may choose from.
#[derive(Debug)]
pub struct Iteration {
    pipeline: Pipelined,
    microbatches: Vec<(Microbatch, Vec<Choice>)>,
}

/// A plan of the frontier, realised with measured microbatches.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The time of the iteration.
    pub time: Millis,
    /// The energy of one GPU of each stage together, waiting included.
    pub energy: Joules,
    /// For each operation, in the order of the pipeline's graph, which microbatch it is and which of its choices
    /// it has: places in [`Iteration::microbatches`].
    pub operations: Vec<(usize, usize)>,
}

/// Why there is no iteration frontier.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum IterationError {
    #[error(transparent)]
    Compose(#[from] ComposeError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error(transparent)]
    Pipeline(#[from] JobError),
    #[error("{0} can't be the unit of time: more than 0 ms is needed")]
    Unit(Millis),
    #[error("{microbatch} takes {time}, too many units of {unit}")]
    TooLong {
        microbatch: Kind,
        time: Millis,
        unit: Millis,
    },
}

impl Iteration {
    /// Composes results and finds the frontier. Times are rounded up to whole units, so that plans can be kept.
    ///
    /// # Errors
    /// If a microbatch has no frontier, or the pipeline can't be planned.
    pub fn new(
        job: &Job,
        results: &Results,
        method: Method,
        schedule: Schedule,
        unit: Millis,
    ) -> Result<Self, IterationError> {
        if !(unit.is_finite() && unit > Millis::ZERO) {
            return Err(IterationError::Unit(unit));
        }
        let scale = Scale {
            unit,
            blocking: results.static_power(),
            gpus: job.stages,
        };
        let mut spec = Spec::default();
        let mut microbatches = Vec::with_capacity(job.microbatches.len());
        for it in &job.microbatches {
            let choices = microbatch(job, it, results, method)?;
            let kind = Kind {
                stage: it.stage,
                instruction: it.instruction.to_owned(),
            };
            spec.insert(&kind, entry(&kind, &choices, scale)?);
            microbatches.push((it.clone(), choices));
        }
        let graph = schedule.graph(job.stages, job.count)?;
        let pipeline = Pipeline::new(graph, &spec, scale)?.characterise(|_, _| {});
        Ok(Self {
            pipeline,
            microbatches,
        })
    }

    /// The pipeline and its frontier, in whole units of time.
    #[must_use]
    pub fn pipeline(&self) -> &Pipelined {
        &self.pipeline
    }

    /// The microbatches of each stage and direction, with their frontiers.
    #[must_use]
    pub fn microbatches(&self) -> &[(Microbatch, Vec<Choice>)] {
        &self.microbatches
    }

    /// Every point of the frontier, from the longest time to the shortest: time, and the energy of one GPU of each
    /// stage together: cost + stages x time x static power.
    pub fn points(&self) -> impl Iterator<Item = (Millis, Joules)> + '_ {
        let point = |it: Point| (self.pipeline.millis(it.time), self.pipeline.alone(it));
        self.pipeline.frontier().points().map(point)
    }

    /// The plan with the least energy that takes no longer than this. `None` where the fastest takes longer.
    #[must_use]
    pub fn within_time(&self, limit: Millis) -> Option<Planned> {
        let fits = |it: &(Units, Joules)| self.pipeline.millis(it.0) <= limit;
        let points = self.units().filter(fits);
        let least = points.min_by(|a, b| a.1.0.total_cmp(&b.1.0));
        least.map(|(time, _)| self.plan(time))
    }

    /// The fastest plan that uses no more than this, one GPU of each stage together. `None` where every plan uses
    /// more. Measured microbatches use a little more than the frontier, which is a relaxation, so plans are tried
    /// from the first that the frontier allows.
    #[must_use]
    pub fn within_energy(&self, limit: Joules) -> Option<Planned> {
        let allowed = self.units().filter(|it| it.1 <= limit);
        let mut times: Vec<Units> = allowed.map(|it| it.0).collect();
        times.sort_unstable();
        let mut plans = times.into_iter().map(|time| self.plan(time));
        plans.find(|plan| plan.energy <= limit)
    }

    /// The fastest plan.
    #[must_use]
    pub fn fastest(&self) -> Planned {
        self.plan(self.pipeline.frontier().shortest())
    }

    /// The plan with the least energy.
    #[must_use]
    pub fn cheapest(&self) -> Planned {
        self.plan(self.pipeline.cheapest_alone())
    }

    fn units(&self) -> impl Iterator<Item = (Units, Joules)> + '_ {
        let points = self.pipeline.frontier().points();
        points.map(|it| (it.time, self.pipeline.alone(it)))
    }

    /// The plan at a time of the frontier, with measured microbatches: each the slowest that is no slower than
    /// planned; and then slower still where nobody waits for it, because between measured points the frontier is
    /// a line and measured microbatches are faster than that.
    #[must_use]
    pub fn plan(&self, time: Units) -> Planned {
        let plan = self.pipeline.plan(time, None);
        let graph = self.pipeline.problem().graph();
        let kinds = graph.kinds().iter().map(|kind| {
            let own = |it: &(Microbatch, Vec<Choice>)| {
                it.0.stage == kind.stage && it.0.instruction == kind.instruction
            };
            self.microbatches.iter().position(own).unwrap_or(0)
        });
        let kinds: Vec<usize> = kinds.collect();
        let places: Vec<usize> = graph
            .operations()
            .iter()
            .map(|it| kinds[it.kind as usize])
            .collect();
        let times: Vec<Vec<Millis>> = self
            .microbatches
            .iter()
            .map(|(_, choices)| choices.iter().map(|it| it.time).collect())
            .collect();
        let choices: Vec<&[Millis]> = places.iter().map(|&it| times[it].as_slice()).collect();
        let mut chosen: Vec<usize> = plan
            .operations
            .iter()
            .zip(&choices)
            .map(|(planned, all)| all.partition_point(|it| *it < planned.realised))
            .collect();
        let end = give_back(graph, &mut chosen, &choices);
        let operations: Vec<(usize, usize)> = places.into_iter().zip(chosen).collect();
        let choice = |&(place, it): &(usize, usize)| &self.microbatches[place].1[it];
        let dynamic: Joules = operations.iter().map(|it| choice(it).dynamic).sum();
        let scale = self.pipeline.scale();
        let waiting = f64::from(scale.gpus) * scale.blocking.0 * end.0 * 1e-3;
        Planned {
            time: end,
            energy: dynamic + Joules(waiting),
            operations,
        }
    }
}

/// A microbatch's frontier as costs in whole units: of one whole time the cheapest, and none that takes longer for
/// no less.
fn entry(kind: &Kind, choices: &[Choice], scale: Scale) -> Result<Entry, IterationError> {
    let mut options: Vec<ClockOption> = Vec::with_capacity(choices.len());
    for choice in choices {
        let units = (choice.time / scale.unit - 1e-9).ceil();
        if units > f64::from(u32::MAX) {
            return Err(IterationError::TooLong {
                microbatch: kind.clone(),
                time: choice.time,
                unit: scale.unit,
            });
        }
        let blocked = scale.blocking.0 * units * scale.unit.0 * 1e-3;
        let option = ClockOption {
            clock: choice.clock,
            time: Units(units as u32),
            cost: choice.energy - Joules(blocked),
            measured: choice.time,
        };
        // Choices come by rising time and falling dynamic energy, but rounding takes a little off each.
        match options.last_mut() {
            Some(last) if last.time == option.time && option.cost < last.cost => *last = option,
            Some(last) if option.cost >= last.cost => {}
            _ => options.push(option),
        }
    }
    let full_clock = options.first().copied();
    options.reverse();
    Ok(Entry {
        a: None,
        b: None,
        c: None,
        tmin: None,
        tmax: None,
        options: Some(options),
        full_clock,
    })
}
