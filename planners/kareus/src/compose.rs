//! From partitions' results to microbatch frontiers: algorithm 2 (section 4.4).

use litd_units::{Hertz, Joules, Millis};
use serde::Serialize;
use thiserror::Error;

use crate::candidate::Candidate;
use crate::job::{Job, Microbatch};
use crate::profile::{Measurement, Profiler as _};
use crate::results::Results;
use crate::search::{Point, frontier};
use crate::sums::pareto_sums;

/// The executions from which a microbatch may choose. The paper's baselines and ablations are special cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Whether it may be executed without overlap.
    pub sequential: bool,
    /// How partitions may be executed.
    pub overlapped: Overlapped,
    /// Whether every clock may be chosen, or the highest only.
    pub clocks: Clocks,
}

/// How partitions may be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlapped {
    /// Not at all.
    None,
    /// Nanobatching (section 3.2): every communication starts as early as it can, with the communication
    /// library's number of SMs.
    Nanobatching {
        /// The SMs of the communication library.
        sms: u32,
    },
    /// With any candidate that has a result.
    Any,
}

/// The clocks that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clocks {
    /// The clocks that have results.
    All,
    /// The highest of these.
    Highest,
}

impl Method {
    /// Megatron-LM: no overlap, the highest clock.
    pub const MEGATRON: Self = Self {
        sequential: true,
        overlapped: Overlapped::None,
        clocks: Clocks::Highest,
    };
    /// Megatron-LM with Perseus.
    pub const MEGATRON_PERSEUS: Self = Self {
        clocks: Clocks::All,
        ..Self::MEGATRON
    };
    /// Kareus.
    pub const KAREUS: Self = Self {
        sequential: true,
        overlapped: Overlapped::Any,
        clocks: Clocks::All,
    };

    /// Nanobatching with Perseus, where the communication library takes so many SMs.
    #[must_use]
    pub const fn nanobatching_perseus(sms: u32) -> Self {
        Self {
            sequential: false,
            overlapped: Overlapped::Nanobatching { sms },
            clocks: Clocks::All,
        }
    }

    fn allows(self, candidate: &Candidate) -> bool {
        match self.overlapped {
            Overlapped::None => false,
            Overlapped::Nanobatching { sms } => candidate.sms == sms && candidate.launch == 0,
            Overlapped::Any => true,
        }
    }
}

/// How a microbatch is executed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Execution {
    /// Operations run one after another.
    Sequential,
    /// As partitions, with one candidate for each of [`Microbatch::overlapped`].
    Overlapped(Vec<Candidate>),
}

/// A point of a microbatch's frontier, on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// How long the microbatch takes.
    pub time: Millis,
    /// The GPU's energy in that time, static energy included.
    pub energy: Joules,
    /// Without static energy.
    pub dynamic: Joules,
    /// The clock of the whole microbatch.
    pub clock: Hertz,
    /// How it is executed.
    pub execution: Execution,
}

/// Why there is no frontier.
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ComposeError {
    #[error(
        "{instruction} of stage {stage}: there is no result for {missing}, of which it consists"
    )]
    Missing {
        stage: u32,
        instruction: &'static str,
        missing: String,
    },
    #[error(
        "{instruction} of stage {stage}: no clock has results for all its parts; {parts}. Profile them at the same clocks"
    )]
    NoCommonClock {
        stage: u32,
        instruction: &'static str,
        parts: String,
    },
    #[error(
        "{instruction} of stage {stage}: with a static power of {power} it would use {dynamic} of dynamic energy at {} MHz; is that power right?",
        clock.0 / 1e6
    )]
    Negative {
        stage: u32,
        instruction: &'static str,
        power: litd_units::Watts,
        dynamic: Joules,
        clock: Hertz,
    },
}

/// A part's name and what it took, with the place in the results.
struct Part<'a> {
    name: &'a str,
    count: f64,
    all: Vec<(Hertz, Measurement, Option<Candidate>)>,
}

impl Part<'_> {
    fn at(&self, clock: Hertz) -> Vec<(Measurement, Option<Candidate>)> {
        let all = self.all.iter().filter(|it| it.0 == clock);
        all.map(|it| (it.1, it.2)).collect()
    }
}

/// The microbatch's points that no other beats in time and dynamic energy, by rising time. Every point that none
/// beats in time and total energy is among them, and none more is needed for the iteration, in which whoever has
/// finished still draws static power.
///
/// Each clock is composed on its own, from what every partition has at that clock: one clock per microbatch, one
/// configuration per type of partition. Pareto sums take the place of the product, with the same result.
///
/// # Errors
/// If a part has no result, or no clock has results for all parts.
pub fn microbatch(
    job: &Job,
    of: &Microbatch,
    results: &Results,
    method: Method,
) -> Result<Vec<Choice>, ComposeError> {
    let others = parts(job, &of.others, results);
    let sequential = parts(job, &of.sequential, results);
    let overlapped: Vec<Part> = of
        .overlapped
        .iter()
        .map(|&(place, count)| partition(job, place, count, results, method))
        .collect();
    let mut alternatives: Vec<(&[Part], bool)> = Vec::new();
    if method.sequential {
        alternatives.push((&sequential, true));
    }
    if method.overlapped != Overlapped::None {
        alternatives.push((&overlapped, false));
    }
    let mut found = Vec::new();
    let mut failure = None;
    for (parts, sequential) in alternatives {
        match composed(of, parts, &others, results, method, sequential) {
            Ok(choices) => found.extend(choices),
            // A choice without results is left out, as long as another has some.
            Err(error) => failure = Some(error),
        }
    }
    let points: Vec<Point> = found.iter().map(|it| [it.time.0, it.dynamic.0]).collect();
    let kept: Vec<Choice> = frontier(&points)
        .iter()
        .map(|&it| found[it].clone())
        .collect();
    if let Some(it) = kept.iter().find(|it| it.dynamic < Joules::ZERO) {
        return Err(ComposeError::Negative {
            stage: of.stage,
            instruction: of.instruction,
            power: results.static_power(),
            dynamic: it.dynamic,
            clock: it.clock,
        });
    }
    match (kept.is_empty(), failure) {
        (true, Some(error)) => Err(error),
        (true, None) => Err(missing(of, "any execution that the method allows")),
        (false, _) => Ok(kept),
    }
}

/// All clocks' frontiers of one way to execute a microbatch.
fn composed(
    of: &Microbatch,
    parts: &[Part],
    others: &[Part],
    results: &Results,
    method: Method,
    sequential: bool,
) -> Result<Vec<Choice>, ComposeError> {
    let all: Vec<&Part> = parts.iter().chain(others).collect();
    if let Some(part) = all.iter().find(|it| it.all.is_empty()) {
        return Err(missing(of, part.name));
    }
    let mut clocks = common_clocks(&all);
    if clocks.is_empty() {
        let spans = all.iter().map(|it| span(it)).collect::<Vec<_>>();
        return Err(ComposeError::NoCommonClock {
            stage: of.stage,
            instruction: of.instruction,
            parts: spans.join(", "),
        });
    }
    if method.clocks == Clocks::Highest {
        clocks.drain(..clocks.len() - 1);
    }
    let power = results.static_power();
    let mut choices = Vec::new();
    for clock in clocks {
        let options: Vec<_> = all.iter().map(|it| (it.at(clock), it.count)).collect();
        let lists: Vec<(Vec<Point>, f64)> = options
            .iter()
            .map(|(options, count)| {
                let point = |(it, _): &(Measurement, _)| [it.time.0, it.dynamic(power).0];
                (options.iter().map(point).collect(), *count)
            })
            .collect();
        choices.extend(pareto_sums([0.0; 2], &lists).into_iter().map(|sum| {
            let [time, dynamic] = sum.point;
            let chosen = sum.chosen.iter().zip(&options).take(parts.len());
            let candidates = chosen.filter_map(|(&it, (options, _))| options[it].1);
            Choice {
                time: Millis(time),
                energy: Joules(dynamic + power.0 * time * 1e-3),
                dynamic: Joules(dynamic),
                clock,
                execution: match sequential {
                    true => Execution::Sequential,
                    false => Execution::Overlapped(candidates.collect()),
                },
            }
        }));
    }
    Ok(choices)
}

fn missing(of: &Microbatch, missing: &str) -> ComposeError {
    ComposeError::Missing {
        stage: of.stage,
        instruction: of.instruction,
        missing: missing.to_owned(),
    }
}

/// Sequences as parts.
fn parts<'a>(job: &'a Job, list: &[(usize, u32)], results: &Results) -> Vec<Part<'a>> {
    let part = |&(place, count): &(usize, u32)| {
        let name = job.sequences[place].name.as_str();
        let all = results.of_sequence(name).iter();
        Part {
            name,
            count: f64::from(count),
            all: all.map(|&(clock, it)| (clock, it, None)).collect(),
        }
    };
    list.iter().map(part).collect()
}

/// A partition as a part, with the candidates that the method allows.
fn partition<'a>(
    job: &'a Job,
    place: usize,
    count: u32,
    results: &Results,
    method: Method,
) -> Part<'a> {
    let name = job.partitions[place].name.as_str();
    let all = results.of_partition(name).iter();
    let allowed = all.filter(|(candidate, _)| method.allows(candidate));
    Part {
        name,
        count: f64::from(count),
        all: allowed
            .map(|&(it, measured)| (it.clock, measured, Some(it)))
            .collect(),
    }
}

/// The clocks at which every part has a result, ascending.
fn common_clocks(parts: &[&Part]) -> Vec<Hertz> {
    let mut clocks: Vec<Hertz> = match parts.first() {
        Some(first) => first.all.iter().map(|it| it.0).collect(),
        None => Vec::new(),
    };
    clocks.retain(|clock| {
        parts
            .iter()
            .all(|part| part.all.iter().any(|it| it.0 == *clock))
    });
    clocks.sort_by(|a, b| a.0.total_cmp(&b.0));
    clocks.dedup();
    clocks
}

/// "forward/mlp has 900 to 1410 MHz".
fn span(part: &Part) -> String {
    let clocks = part.all.iter().map(|it| it.0.0 / 1e6);
    let (low, high) = clocks.fold((f64::INFINITY, 0.0_f64), |(low, high), it| {
        (low.min(it), high.max(it))
    });
    format!("{} has {low} to {high} MHz", part.name)
}
