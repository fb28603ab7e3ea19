//! Why a GPU is late, from traces alone: the marks of each rank, the verdict that
//! [`litd_diagnosis`] makes of them, and what it rests on, in words.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use litd_diagnosis::{Cause, Limits, Marks, SURE, Verdict, median};
use litd_units::Nanos;
use serde::Serialize;

use super::artefact;
use super::longer::{self, Longer};
use super::matrix::Matrix;
use super::overlap::OverlapKind;
use crate::analysis::{idle_of, least, ratio};
use crate::collectives::GroupWaits;
use crate::limit::limit_of;
use crate::marks::marks;
use crate::pace::paces;
use crate::skew::Skew;
use crate::timeline::{Kernel, NonMax, Timeline};

/// Leads below this share of an iteration hold nobody back.
const LEVEL: f64 = 0.004;

/// The diagnosis, with what it rests on.
#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// What holds the node back.
    pub cause: Cause,
    /// The rank that the others wait for; null where nobody waits, for nobody in particular, or for several
    /// alike.
    pub rank: Option<u32>,
    /// All ranks that the others wait for alike, as far as the traces tell them apart: `rank` alone, or
    /// several.
    pub stragglers: Vec<u32>,
    /// Whether the ranks exchange anything in what was recorded; else nobody is seen to wait.
    #[serde(skip)]
    pub exchanges: bool,
    /// Whether more power for that rank can help.
    pub power_helps: bool,
    /// What tells how far ranks are apart: `waits` in collectives with nothing to compute, `arrivals` at
    /// collectives or, where there are none, `leads`.
    pub measure: &'static str,
    /// How far the ranks are apart by that measure, as a share of the time.
    pub spread: f64,
    /// How far noise may drive them apart.
    pub level: f64,
    /// What sets the ranks that are late apart from those that are far ahead of them.
    #[serde(skip)]
    pub apart: Marks,
    /// Whether the others' queues are empty as long as those of the ranks that are late.
    #[serde(skip)]
    pub all_idle: bool,
    /// Whether one collective alone tells who is late, which may be so by chance.
    #[serde(skip)]
    pub hangs_on_one: bool,
    /// Another rank, which the others would wait for by the collectives alone that find their ranks in step:
    /// recordings begin at different moments, which the first collectives see.
    #[serde(skip)]
    pub once_in_step: Option<u32>,
    /// Where the cause is unknown, or no host is fast enough: names whose kernels take longer on the rank that is
    /// late, and explain that.
    pub longer: Vec<Longer>,
    /// The reasons, in words and numbers.
    pub evidence: Vec<String>,
    /// What was measured of each rank.
    pub ranks: Vec<RankMarks>,
}

impl Diagnosis {
    /// Whether ranks differ and nobody is seen to wait for anybody: they exchange nothing.
    #[must_use]
    pub fn nobody_waits(&self) -> bool {
        !self.exchanges && self.cause == Cause::Unknown
    }
}

/// What was measured of a rank.
#[derive(Debug, Clone, Serialize)]
pub struct RankMarks {
    /// The rank.
    pub rank: u32,
    /// What its kernels show.
    #[serde(flatten)]
    pub marks: Marks,
    /// By how much it leads the rank that is last, as a share of an iteration, on average.
    pub lead: f64,
    /// How long it waits in collectives with nothing to compute, as a share of the iterations that
    /// are compared; null without collectives.
    pub wait: Option<f64>,
}

/// What tells who is late: whom the others wait for in collectives or, without any, who starts
/// kernels last.
struct Measure {
    /// Of each rank: the least is the straggler's. Shares.
    values: Vec<f64>,
    /// What tells whether anybody is late at all.
    name: &'static str,
    /// How far the ranks are apart by that, and how far noise may drive them; shares.
    spread: f64,
    level: f64,
}

impl Measure {
    /// Over iterations of this length together, so many of them, of which noise drives mean leads apart
    /// by this share.
    fn of(
        waits: Option<&GroupWaits>,
        leads: &[f64],
        (length, iterations): (Nanos, usize),
        noise: f64,
    ) -> Self {
        let Some(waits) = waits else {
            return Self {
                values: leads.to_vec(),
                name: "leads",
                spread: spread(leads),
                level: LEVEL.max(noise),
            };
        };
        let shares = |times: &[Nanos]| {
            let shares = times.iter().map(|&time| ratio(time, length).unwrap_or(0.0));
            Vec::from_iter(shares)
        };
        // What nothing hides adds up to what ranks are apart at the end of an iteration, where leads are
        // twice their mean.
        let exposed = (spread(&shares(&waits.exposed)), LEVEL.max(2.0 * noise));
        // Where computation hides waits, ranks are as far apart at collectives as they lead.
        let arrivals = waits.mean.as_deref().map(|mean| {
            let apart = spread(&shares(mean)) * iterations as f64;
            (apart, LEVEL.max(noise))
        });
        let arrivals = arrivals.filter(|one| one.0 / one.1 > exposed.0 / exposed.1);
        let (name, (spread, level)) = match arrivals {
            Some(arrivals) => ("arrivals", arrivals),
            None => ("waits", exposed),
        };
        Self {
            values: shares(&waits.names),
            name,
            spread,
            level,
        }
    }

    /// From which spread of the values on somebody is late.
    fn threshold(&self) -> f64 {
        match self.spread > 0.0 {
            true => spread(&self.values) * self.level / self.spread,
            false => self.level,
        }
    }

    /// The figure in words, for a node that is level or for one that nothing explains.
    fn apart(&self, late: &str, explained: bool) -> [String; 2] {
        let (spread, level) = (100.0 * self.spread, 100.0 * self.level);
        let unexplained = match explained {
            true => "and neither its pace nor its queue nor its transfers explain that",
            false => "and nothing in its kernels, its queue or its transfers explains that",
        };
        match self.name {
            "leads" => [
                format!(
                    "the ranks are {spread:.2} % of an iteration apart on average, no more than noise makes them"
                ),
                format!(
                    "the rank furthest ahead leads {late} by {spread:.2} % of an iteration on average, {unexplained}"
                ),
            ],
            "waits" => [
                format!(
                    "what the ranks wait in collectives with nothing to compute differs by {spread:.2} % of an iteration, where noise makes up to {level:.2} %"
                ),
                format!(
                    "another rank waits in collectives with nothing to compute for {spread:.2} % of an iteration more than {late}, {unexplained}"
                ),
            ],
            _ => [
                format!(
                    "the ranks come to collectives {spread:.2} % of an iteration apart on average, where noise makes up to {level:.2} %"
                ),
                format!(
                    "another rank comes to collectives {spread:.2} % of an iteration before {late} on average, {unexplained}"
                ),
            ],
        }
    }
}

/// Whether one collective alone tells that this rank is late: without the one in which most is waited
/// another one would be, or, where its own marks don't set it apart either, nobody.
fn hangs_on_one(
    (last, set_apart): (usize, bool),
    waits: Option<&GroupWaits>,
    measure: &Measure,
    length: Nanos,
) -> bool {
    let Some(rests) = waits.and_then(|waits| waits.without_one.as_ref()) else {
        return false;
    };
    // Ranks that are no further apart than noise makes them are told apart by their kernels.
    if measure.spread < measure.level {
        return false;
    }
    let enough = measure.threshold();
    let shares = rests.iter().map(|&time| ratio(time, length).unwrap_or(0.0));
    let shares = Vec::from_iter(shares);
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let own = shares.get(last).copied().unwrap_or(0.0);
    own - least >= enough || !set_apart && spread(&shares) < enough
}

/// The rank that would be waited for by the collectives that find their ranks in step alone, if that is
/// clearly another one.
fn once_in_step(
    last: usize,
    waits: Option<&GroupWaits>,
    measure: &Measure,
    length: Nanos,
) -> Option<usize> {
    let waits = waits?.in_step.as_ref()?;
    let other = least(waits)?;
    let more = ratio(*waits.get(last)? - *waits.get(other)?, length)?;
    (more >= measure.threshold()).then_some(other)
}

/// Ranks by their numbers, as in "ranks 0, 4 and 5".
#[must_use]
pub fn named(ranks: &[u32]) -> String {
    let [rest @ .., last] = ranks else {
        return "a rank".into();
    };
    match rest {
        [] => format!("rank {last}"),
        rest => {
            let rest = Vec::from_iter(rest.iter().map(u32::to_string));
            format!("ranks {} and {last}", rest.join(", "))
        }
    }
}

/// By how much the greatest value exceeds the least.
fn spread(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(0.0, f64::max);
    (most - values.iter().copied().fold(most, f64::min)).max(0.0)
}

pub(super) fn diagnose(
    timelines: &[Timeline],
    matrix: &Matrix<'_>,
    kinds: &[OverlapKind],
    skew: &Skew,
    waits: Option<&GroupWaits>,
) -> Diagnosis {
    let length = length(matrix);
    let runs = Runs::of(matrix);
    let marks = marks_of(timelines, matrix, kinds, skew, (length, &runs));
    let leads = leads(matrix, length);
    let noise = expected_spread(matrix, length);
    let iterations = matrix.iterations().len().max(1);
    let measure = Measure::of(waits, &leads, (length, iterations), noise);
    let limits = Limits {
        level: measure.threshold(),
        ..Limits::OF_TRACES
    };
    let verdict = litd_diagnosis::diagnose(&measure.values, &marks, &[], &limits);
    let last = verdict.last.and_then(|gpu| timelines.get(gpu));
    let last = last.map_or(0, |timeline| timeline.rank);
    let late = litd_diagnosis::as_late(&verdict, &measure.values, &marks, &limits);
    let late = late.into_iter().filter_map(|gpu| timelines.get(gpu));
    let late = Vec::from_iter(late.map(|timeline| timeline.rank));
    let exchanges = matrix.exchanges();
    let artefact = artefact::find(timelines, matrix, skew, (length, waits.is_some()));
    let is_late = verdict.cause != Cause::Healthy && artefact.is_none() && exchanges;
    let one = verdict.last.filter(|_| is_late);
    let all_idle = verdict.apart.idle <= limits.idle;
    let set_apart = match verdict.cause {
        Cause::HostBound => !all_idle,
        cause => cause != Cause::Unknown,
    };
    // That all hosts are late does not tell why one rank is.
    let unexplained = match verdict.cause {
        Cause::Unknown => verdict.seen.is_empty(),
        cause => cause == Cause::HostBound && all_idle,
    };
    let longer = one.filter(|_| unexplained).map(|last| {
        let late = spread(&measure.values) * length.0 as f64;
        longer::find(timelines, &runs, (last, &verdict.ahead), late)
    });
    let longer = longer.unwrap_or_default();
    let hangs_on_one =
        one.is_some_and(|last| hangs_on_one((last, set_apart), waits, &measure, length));
    let (cause, evidence) = match artefact {
        Some(artefact) => artefact,
        None if late.is_empty() => (Cause::Unknown, Vec::new()),
        None if !exchanges && verdict.cause != Cause::Healthy => {
            (Cause::Unknown, alone(timelines, &leads, &marks))
        }
        None => (
            verdict.cause,
            evidence((&late, last), &verdict, &measure, &longer),
        ),
    };
    let once_in_step = one.and_then(|last| once_in_step(last, waits, &measure, length));
    let stragglers = if is_late { late } else { Vec::new() };
    let each = timelines.iter().zip(marks).zip(&leads).enumerate();
    Diagnosis {
        cause,
        rank: match stragglers[..] {
            [rank] => Some(rank),
            _ => None,
        },
        stragglers,
        exchanges,
        power_helps: cause.power_helps(),
        measure: measure.name,
        spread: measure.spread,
        level: measure.level,
        apart: verdict.apart,
        all_idle,
        hangs_on_one,
        once_in_step: once_in_step.and_then(|at| Some(timelines.get(at)?.rank)),
        longer,
        evidence,
        ranks: each
            .map(|(at, ((timeline, marks), &lead))| RankMarks {
                rank: timeline.rank,
                marks,
                lead,
                wait: waits.and_then(|waits| ratio(*waits.exposed.get(at)?, length)),
            })
            .collect(),
    }
}

/// What is to be said of ranks that exchange nothing: how far apart they are, which holds nobody back by
/// itself, and whose kernels are slow.
fn alone(timelines: &[Timeline], leads: &[f64], marks: &[Marks]) -> Vec<String> {
    let mut evidence = vec![
        "no collective is recorded, nor anything that looks or behaves like one: nobody is seen to wait for another".into(),
    ];
    let place = |of: Option<(usize, &f64)>| Some(timelines.get(of?.0)?.rank);
    let each = || leads.iter().enumerate();
    let first = place(each().max_by(|a, b| a.1.total_cmp(b.1)));
    let last = place(each().min_by(|a, b| a.1.total_cmp(b.1)));
    if let (Some(first), Some(last)) = (first, last) {
        evidence.push(format!(
            "rank {first} starts matching kernels {:.2} % of an iteration before rank {last} on average: so far apart are they, and that alone holds nobody back",
            100.0 * spread(leads)
        ));
    }
    let slower = timelines.iter().zip(marks).filter_map(|(timeline, marks)| {
        let slower = marks.slower_compute?;
        let clear = SURE * marks.uncertainty.unwrap_or(0.0);
        (slower > clear.max(Limits::OF_TRACES.slower)).then_some((slower, timeline.rank))
    });
    if let Some((slower, rank)) = slower.max_by(|a, b| a.0.total_cmp(&b.0)) {
        evidence.push(format!(
            "the computation of rank {rank} takes {:.1} % longer than the median rank's",
            slower * 100.0
        ));
    }
    evidence
}

/// What the verdict rests on.
fn evidence(
    (late, last): (&[u32], u32),
    verdict: &Verdict,
    measure: &Measure,
    longer: &[Longer],
) -> Vec<String> {
    let apart = &verdict.apart;
    let [level, unexplained] = measure.apart(&named(late), !longer.is_empty());
    // Of several that are alike the last one stands for all.
    let its = match late {
        [_] => "its".into(),
        _ if verdict.cause == Cause::Healthy => "the last rank's".into(),
        _ => format!("rank {last}'s"),
    };
    let mut evidence = Vec::new();
    match (verdict.cause, &verdict.seen[..]) {
        (Cause::Healthy, _) => evidence.push(level),
        (Cause::Unknown, []) => evidence.push(unexplained),
        (Cause::Unknown, [Cause::SlowClock, Cause::DataDependent]) => evidence.push(
            "a slow clock would slow memory-bound kernels less, more work would slow them as much: it may be both".into(),
        ),
        (Cause::Unknown, _) => evidence.push("several causes at once: none is named".into()),
        _ => {}
    }
    evidence.extend(longer.iter().map(|one| one.evidence(&its)));
    evidence.push(pace(&its, verdict));
    if verdict.seen.contains(&Cause::HostBound) {
        let more = match apart.idle > Limits::OF_TRACES.idle {
            true => format!(
                ", {:.1} percentage points more than on the ranks far ahead of it",
                apart.idle * 100.0
            ),
            false => ", as on the others (none of the hosts keeps up)".into(),
        };
        evidence.push(format!(
            "{its} queue is empty, with no collective to wait for, for {} of an iteration{more}: the host is late",
            percent(verdict.idle)
        ));
    }
    if verdict.seen.contains(&Cause::Communication) {
        evidence.push(format!(
            "{its} transfers end {} of their length later than those of the ranks far ahead of it: the link is slow",
            percent(apart.slower_link)
        ));
    }
    evidence
}

/// How long the computation of the rank that is late takes, against that of the ranks far ahead of it.
fn pace(its: &str, verdict: &Verdict) -> String {
    let apart = &verdict.apart;
    let is_slower = |cause: &Cause| matches!(cause, Cause::SlowClock | Cause::DataDependent);
    let slower = verdict.seen.iter().any(is_slower);
    match (apart.slower_compute, apart.slower_memory) {
        (Some(compute), Some(memory)) if slower => format!(
            "{its} computation of constant overlap takes {} than that of the ranks far ahead of it where the clock limits it, and {} where memory does{}",
            against(compute),
            against(memory),
            match verdict.cause {
                Cause::SlowClock =>
                    ": the clock is slow (these traces hold no temperature that would say why)",
                Cause::DataDependent =>
                    ": a slow clock would spare the latter, so there is more work",
                _ => "",
            }
        ),
        (Some(compute), None) if slower => format!(
            "{its} computation of constant overlap takes {} than that of the ranks far ahead of it: the clock is slow, or there is more work; too few kernels are limited by memory to tell which",
            against(compute),
        ),
        (Some(compute), _) => format!(
            "{its} computation of constant overlap takes {} than that of the ranks far ahead of it: no slower than can be told",
            against(compute),
        ),
        (None, _) => {
            format!("too few of {its} kernels have the same overlap on all ranks to tell the pace")
        }
    }
}

/// A share of the time in percent.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// How much longer something takes by this share; below zero it takes less.
fn against(share: f64) -> String {
    let side = if share < 0.0 { "less" } else { "longer" };
    format!("{} {side}", percent(share.abs()))
}

fn marks_of(
    timelines: &[Timeline],
    matrix: &Matrix<'_>,
    kinds: &[OverlapKind],
    skew: &Skew,
    (length, runs): (Nanos, &Runs),
) -> Vec<Marks> {
    // One name is looked into once; it may be long.
    let mut known = HashMap::new();
    let kernels = 0..matrix.kernels();
    let limit = kernels.map(|k| {
        let name = matrix.name(k);
        *known.entry(name).or_insert_with(|| limit_of(name))
    });
    let limits = Vec::from_iter(limit);
    let constant = |k: usize| {
        let has_length = (0..matrix.gpus()).all(|gpu| matrix.duration(gpu, k) > Nanos::ZERO);
        has_length && kinds[k] != OverlapKind::Varying
    };
    let size = [matrix.gpus(), matrix.kernels()];
    let duration = |gpu, k| matrix.duration(gpu, k);
    let paces = paces(size, duration, constant, |k| limits[k]);
    let idles = Vec::from_iter(timelines.iter().map(|timeline| runs.idle(timeline)));
    marks(&paces, &idles, skew, length)
}

/// The iterations in which kernels match, those of consecutive numbers as one span each: what a
/// rank ran before, behind and between says nothing of them. None where traces mark none.
pub(super) struct Runs(Vec<RangeInclusive<u32>>);

impl Runs {
    fn of(matrix: &Matrix<'_>) -> Self {
        let mut runs = Vec::<RangeInclusive<u32>>::new();
        for number in matrix.iterations().into_keys() {
            let Some(number) = number else {
                return Self(Vec::new());
            };
            match runs.last_mut() {
                Some(run) if run.end().checked_add(1) == Some(number) => {
                    *run = *run.start()..=number;
                }
                _ => runs.push(number..=number),
            }
        }
        Self(runs)
    }

    /// Whether a kernel is of one of them; each is where traces mark none.
    pub(super) fn have(&self, kernel: &Kernel) -> bool {
        self.0.is_empty() || self.0.iter().any(|run| is_in(kernel, run))
    }

    /// How long a rank's GPU had nothing to do in them; in all of its time if there are none.
    fn idle(&self, timeline: &Timeline) -> Nanos {
        if self.0.is_empty() {
            return idle_of(&timeline.kernels);
        }
        let idle = |run| idle_of(timeline.kernels.iter().filter(|kernel| is_in(kernel, run)));
        self.0.iter().map(idle).sum()
    }
}

fn is_in(kernel: &Kernel, run: &RangeInclusive<u32>) -> bool {
    let number = kernel.iteration.map(NonMax::get);
    number.is_some_and(|number| run.contains(&number))
}

/// Mean lead of each GPU, as a share of an iteration.
fn leads(matrix: &Matrix<'_>, length: Nanos) -> Vec<f64> {
    let kernels = matrix.kernels().max(1) as f64;
    let iteration = length.0.max(1) as f64 / matrix.iterations().len().max(1) as f64;
    matrix.column(|gpu| {
        let leads = (0..matrix.kernels()).map(|k| matrix.lead(gpu, k).0 as f64);
        leads.sum::<f64>() / kernels / iteration
    })
}

/// From first start to last end of matched kernels, of all iterations.
fn length(matrix: &Matrix<'_>) -> Nanos {
    let iterations = matrix.iterations();
    iterations
        .values()
        .map(|kernels| matrix.length(kernels))
        .sum()
}

/// How far kernel noise alone drives ranks apart, as a share of an iteration.
fn expected_spread(matrix: &Matrix<'_>, length: Nanos) -> f64 {
    let deviation = |k: usize| {
        let times = matrix.column(|gpu| matrix.duration(gpu, k).0 as f64);
        let middle = median(times.clone()).filter(|&middle| middle > 0.0)?;
        median(
            times
                .iter()
                .map(|time| (time / middle - 1.0).abs())
                .collect(),
        )
    };
    let kernels = 0..matrix.kernels();
    let noise = median(kernels.clone().filter_map(deviation).collect());
    let first = kernels.map(|k| matrix.duration(0, k).0 as f64);
    let squares: f64 = first.map(|time| time.powi(2)).sum();
    // 1.4826 makes a standard deviation of a median absolute one.
    let drift = 1.4826 * noise.unwrap_or(0.0) * squares.sqrt();
    match length > Nanos::ZERO {
        true => 2.5 * drift / length.0 as f64,
        false => 0.0,
    }
}
