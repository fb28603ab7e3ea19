//! What a set of timelines says about its node: how busy each GPU was, how much of its
//! computation ran beside communication, by how much it led, and whether its clock is slow.

use litd_diagnosis::Marks;
use litd_units::Nanos;
use serde::Serialize;

use crate::align::{AlignError, AlignOptions, LeftOut};
use crate::class::{self, Suspect};
use crate::idle::idle;
use crate::leads::{Aggregation, Leads, aggregate, leads};
use crate::limit::limit_of;
use crate::marks::marks;
use crate::pace::{Overlap, Pace, paces};
use crate::skew;
use crate::spans::Spans;
use crate::timeline::{Kernel, KernelClass, Timeline};

/// The version of what is printed as JSON; docs/analyze.schema.json describes it.
pub(crate) const SCHEMA: u32 = 2;

/// What to compute.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnalysisOptions {
    /// How kernels are matched.
    pub align: AlignOptions,
    /// Which lead value names the straggler.
    pub aggregation: Aggregation,
}

/// What `litctl analyze --json` prints. Parts that need two ranks are null for one.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The version of this format.
    pub schema: u32,
    /// Whether a simulator wrote any of the traces; absent where none did.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// Kernels matched on all ranks.
    pub matched_kernels: Option<usize>,
    /// Those / selected kernels of the rank that has fewest.
    pub matched_fraction: Option<f64>,
    /// The rank with the smallest lead value, which the others wait for; null on ties.
    pub straggler_rank: Option<u32>,
    /// First start to last end over all ranks, in nanoseconds.
    pub wall_ns: Nanos,
    /// All ranks in order.
    pub ranks: Vec<RankReport>,
    /// What the user should know about the traces.
    pub notes: Vec<String>,
}

/// What a [`Report`] says of one rank.
#[derive(Debug, Clone, Serialize)]
pub struct RankReport {
    /// The rank.
    pub rank: u32,
    /// Where its timeline was read from.
    pub source: String,
    /// Kernels of all classes.
    pub kernels: usize,
    /// Computation kernels.
    pub computation: usize,
    /// Communication kernels, and those that compute as well.
    pub communication: usize,
    /// Copies and fills; with the two above they make up `kernels`.
    pub copies: usize,
    /// Union of its kernels / (first start to last end over all ranks).
    pub busy_fraction: f64,
    /// Computation time beside communication on the same GPU / computation time; null without
    /// computation.
    pub overlap_ratio: Option<f64>,
    /// Its lead values.
    pub lead: Option<LeadValues>,
    /// Matched kernels in which it starts last; ties count for all.
    pub last_in: Option<usize>,
    /// How long its kernels of constant overlap take, relative to the median over the ranks:
    /// above 1 its clock is slow. Null where too few such kernels were matched.
    pub pace: Option<f64>,
    /// Selected kernels without a match, by name, most frequent first.
    pub left_out: Option<Vec<LeftOut>>,
    /// What may tell why it is late.
    #[serde(skip)]
    pub marks: Marks,
}

/// The lead values of one rank under each aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LeadValues {
    /// Sum over the matched kernels, in nanoseconds.
    pub sum_ns: Nanos,
    /// The largest, in nanoseconds.
    pub max_ns: Nanos,
    /// That of the last matched kernel, in nanoseconds.
    pub last_ns: Nanos,
}

impl LeadValues {
    /// From by how much a rank led in each matched kernel, with the one that started last at the
    /// end.
    pub(crate) fn of(leads: &[Nanos]) -> Self {
        let value = |how| aggregate(leads, how).unwrap_or_default();
        Self {
            sum_ns: value(Aggregation::Sum),
            max_ns: value(Aggregation::Max),
            last_ns: value(Aggregation::Last),
        }
    }

    /// The lead value under one aggregation.
    #[must_use]
    pub fn get(&self, aggregation: Aggregation) -> Nanos {
        match aggregation {
            Aggregation::Sum => self.sum_ns,
            Aggregation::Max => self.max_ns,
            Aggregation::Last => self.last_ns,
        }
    }
}

impl Report {
    /// The report on the straggler.
    #[must_use]
    pub fn straggler(&self) -> Option<&RankReport> {
        self.ranks
            .iter()
            .find(|rank| Some(rank.rank) == self.straggler_rank)
    }
}

/// Analyses the timelines of a job's ranks: statistics of each and, from two ranks on, leads.
///
/// # Errors
/// When leads are refused; see [`AlignError`].
pub fn analyse(timelines: &[Timeline], options: &AnalysisOptions) -> Result<Report, AlignError> {
    let wall = wall_time(timelines);
    let ranks = timelines.iter().map(|timeline| statistics(timeline, wall));
    let mut report = Report {
        schema: SCHEMA,
        simulated: timelines.iter().any(|timeline| timeline.simulated),
        matched_kernels: None,
        matched_fraction: None,
        straggler_rank: None,
        wall_ns: wall,
        ranks: ranks.collect(),
        notes: Vec::new(),
    };
    if timelines.len() < 2 {
        return Ok(report);
    }
    let leads = leads(timelines, &options.align)?;
    let suspects = class::behaving(timelines, &leads.alignment);
    report.notes.extend(Suspect::note(&suspects));
    report.matched_kernels = Some(leads.alignment.matched().len());
    report.matched_fraction = Some(leads.alignment.matched_fraction());
    let straggler = leads.straggler(options.aggregation);
    report.straggler_rank = straggler
        .and_then(|at| timelines.get(at))
        .map(|timeline| timeline.rank);
    let values = leads.wave.iter().map(|leads| LeadValues::of(leads));
    let left_out = leads.alignment.left_out(timelines);
    let paces = paces_of(timelines, &leads);
    let idles = Vec::from_iter(timelines.iter().map(|timeline| idle_of(&timeline.kernels)));
    let marks = marks(&paces, &idles, &skew::of_timelines(timelines), wall);
    let columns = values
        .zip(leads.last_in())
        .zip(left_out)
        .zip(paces)
        .zip(marks);
    for (rank, columns) in report.ranks.iter_mut().zip(columns) {
        let ((((lead, last_in), left_out), pace), marks) = columns;
        rank.lead = Some(lead);
        rank.last_in = Some(last_in);
        rank.left_out = Some(left_out);
        rank.pace = pace.middle;
        rank.marks = marks;
    }
    Ok(report)
}

/// From the first start to the last end over all ranks.
fn wall_time(timelines: &[Timeline]) -> Nanos {
    let kernels = || timelines.iter().flat_map(|timeline| &timeline.kernels);
    let start = kernels().map(|kernel| kernel.start).min();
    let end = kernels().map(|kernel| kernel.end).max();
    end.unwrap_or_default() - start.unwrap_or_default()
}

fn statistics(timeline: &Timeline, wall: Nanos) -> RankReport {
    let count = |class| {
        timeline
            .kernels
            .iter()
            .filter(|kernel| kernel.class == class)
            .count()
    };
    let kernels = timeline.kernels.iter();
    let busy = Spans::covered(kernels.map(|kernel| (kernel.start, kernel.end)));
    let communication = communication(timeline);
    let computation = || {
        let kernels = timeline.kernels.iter();
        kernels.filter(|kernel| kernel.class == KernelClass::Computation)
    };
    let overlapped: Nanos = computation()
        .map(|kernel| communication.cover(kernel.start, kernel.end))
        .sum();
    let time: Nanos = computation().map(Kernel::duration).sum();
    RankReport {
        rank: timeline.rank,
        source: timeline.source.clone(),
        kernels: timeline.kernels.len(),
        computation: count(KernelClass::Computation),
        communication: count(KernelClass::Communication) + count(KernelClass::Fused),
        copies: count(KernelClass::Copy),
        busy_fraction: ratio(busy, wall).unwrap_or(0.0),
        overlap_ratio: ratio(overlapped, time),
        lead: None,
        last_in: None,
        pace: None,
        left_out: None,
        marks: Marks::default(),
    }
}

/// When any communication kernel ran.
pub(crate) fn communication(timeline: &Timeline) -> Spans {
    let kernels = timeline.kernels.iter();
    let communication = kernels.filter(|kernel| kernel.class.communicates());
    Spans::union(communication.map(|kernel| (kernel.start, kernel.end)))
}

/// `None` if there is nothing to divide by.
pub(crate) fn ratio(part: Nanos, whole: Nanos) -> Option<f64> {
    (whole > Nanos::ZERO).then(|| part.0 as f64 / whole.0 as f64)
}

/// How long a GPU that ran these kernels had nothing to do; they come in the order of their starts.
pub(crate) fn idle_of<'a>(kernels: impl IntoIterator<Item = &'a Kernel>) -> Nanos {
    let kernels = kernels.into_iter();
    idle(kernels.map(|kernel| (kernel.class, kernel.start, kernel.end)))
}

/// The pace of each timeline; see [`RankReport::pace`].
fn paces_of(timelines: &[Timeline], leads: &Leads) -> Vec<Pace> {
    let alignment = &leads.alignment;
    let kernel = |rank: usize, k: usize| {
        let index = *alignment.row(k)?.get(rank)?;
        timelines.get(rank)?.kernels.get(index as usize)
    };
    let mut overlaps = vec![Overlap::NONE; alignment.matched().len()];
    for (rank, timeline) in timelines.iter().enumerate() {
        let communication = communication(timeline);
        for (k, overlap) in overlaps.iter_mut().enumerate() {
            let kernel = kernel(rank, k);
            let computes = kernel.filter(|kernel| kernel.class == KernelClass::Computation);
            *overlap = overlap.with(computes.and_then(|kernel| {
                let covered = communication.cover(kernel.start, kernel.end);
                ratio(covered, kernel.duration())
            }));
        }
    }
    let first = timelines.first();
    let limits = first.map(|timeline| Vec::from_iter(timeline.names.iter().map(limit_of)));
    let limit = |k: usize| *limits.as_ref()?.get(kernel(0, k)?.name.0 as usize)?;
    let duration = |rank, k| kernel(rank, k).map_or(Nanos::ZERO, Kernel::duration);
    let size = [timelines.len(), overlaps.len()];
    paces(size, duration, |k| !overlaps[k].varies(), limit)
}
