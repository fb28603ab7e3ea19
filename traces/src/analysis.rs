//! What a set of timelines says about its node: how busy each GPU was, how much of its
//! computation ran beside communication, by how much it led, and whether its clock is slow.

use std::borrow::Cow;
use std::collections::BTreeSet;

use litd_diagnosis::Marks;
use litd_units::Nanos;
use serde::Serialize;

use crate::align::{AlignError, AlignOptions, LeftOut, align};
use crate::class::{self, Suspect};
use crate::collectives::{AllWaits, CollectiveRow, GroupWaits, Matched, matched, tables, waits};
use crate::groups::{Communicator, Exchange, Group, Groups};
use crate::idle::idle;
use crate::leads::{self, Aggregation, LeadValues, Leads};
use crate::limit::limit_of;
use crate::marks::marks;
use crate::pace::{Overlap, Pace, paces};
use crate::skew::{self, Skew};
use crate::spans::{Spans, ratio};
use crate::study::Diagnosis;
use crate::time::{self, Gaps, Split, Standstill, TopKernel};
use crate::timeline::{Kernel, KernelClass, NonMax, Timeline};

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
    /// Kernels matched on all ranks of a group, of all groups together.
    pub matched_kernels: Option<usize>,
    /// Those / selected kernels of the rank that has fewest; the least of all groups.
    pub matched_fraction: Option<f64>,
    /// The rank that the others of its group wait for; null on ties, and where the group is healthy. Of
    /// several groups, of the one that [`Report::tell`] was asked for, or whose ranks wait longest.
    pub straggler_rank: Option<u32>,
    /// The group that this is of.
    #[serde(skip)]
    told: usize,
    /// How many ranks the job has, where its traces tell.
    #[serde(skip)]
    pub world_size: Option<u32>,
    /// First start to last end over all ranks, in nanoseconds.
    pub wall_ns: Nanos,
    /// The long gaps in which no GPU does more than wait; null for one rank.
    pub standstill: Option<Standstill>,
    /// All ranks in order.
    pub ranks: Vec<RankReport>,
    /// Ranks that do equal work.
    pub groups: Vec<GroupReport>,
    /// The process groups that collectives name.
    pub communicators: Vec<Communicator>,
    /// What the user should know about the traces.
    pub notes: Vec<String>,
    /// Doubts about any verdict, each a sentence without a full stop.
    #[serde(skip)]
    pub doubts: Vec<String>,
}

/// What a [`Report`] says of ranks that do equal work.
#[derive(Debug, Clone, Serialize)]
pub struct GroupReport {
    /// The ranks.
    pub ranks: Vec<u32>,
    /// What they exchange.
    pub kind: Exchange,
    /// Their stage of the pipeline, from 0.
    pub stage: Option<u32>,
    /// Whether they are the stages of one pipeline, a rank each: who waits for whom is the schedule.
    #[serde(skip)]
    pub pipeline: bool,
    /// The rank that the others wait for; null on ties.
    pub straggler_rank: Option<u32>,
    /// Kernels matched on all of them.
    pub matched_kernels: Option<usize>,
    /// Those / selected kernels of the rank that has fewest.
    pub matched_fraction: Option<f64>,
    /// The clocks, where they were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skew: Option<Skew>,
    /// What holds the group back, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Diagnosis>,
    /// How long each rank waits; none without collectives.
    #[serde(skip)]
    pub waits: Option<GroupWaits>,
    /// Whether the ranks exchange anything in what was recorded; else nobody is seen to wait.
    #[serde(skip)]
    pub exchanges: bool,
    /// Kernels that count as computation and behave like communication.
    #[serde(skip)]
    pub suspects: Vec<Suspect>,
}

impl GroupReport {
    /// Takes what holds the group back, which tells the straggler from those that are last by chance, or
    /// as late. Of leads the user says which names him.
    pub fn diagnosed(&mut self, diagnosis: Diagnosis) {
        if self.waits.is_some() || diagnosis.rank.is_none() {
            self.straggler_rank = diagnosis.rank;
        }
        self.diagnosis = Some(diagnosis);
    }

    /// All ranks that the others of the group wait for, one or several alike.
    #[must_use]
    pub fn stragglers(&self) -> &[u32] {
        match &self.diagnosis {
            Some(diagnosis) if diagnosis.rank.is_none() => &diagnosis.stragglers,
            _ => self.straggler_rank.as_slice(),
        }
    }

    /// By how much longer the rank that waits most waits than the one that waits least.
    #[must_use]
    pub fn spread(&self) -> Nanos {
        let waits = || {
            self.waits
                .iter()
                .flat_map(|waits| waits.names.iter().copied())
        };
        waits().max().unwrap_or_default() - waits().min().unwrap_or_default()
    }
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
    /// The place of its group among the groups.
    pub group: usize,
    /// From its first start to its last end, in nanoseconds.
    pub window_ns: Nanos,
    /// How long it waits in collectives of its group, in nanoseconds; null if none is matched.
    pub wait_ns: Option<Nanos>,
    /// As a share of its window.
    pub wait_fraction: Option<f64>,
    /// How long it waits in collectives with ranks of other groups.
    pub stage_wait_ns: Option<Nanos>,
    /// As a share of its window.
    pub stage_wait_fraction: Option<f64>,
    /// How long it waits in any of them while it computes nothing.
    pub exposed_wait_ns: Option<Nanos>,
    /// As a share of its window.
    pub exposed_wait_fraction: Option<f64>,
    /// Which of these names the straggler of its group; none without collectives.
    #[serde(skip)]
    pub names_straggler: Option<Nanos>,
    /// Where its time goes.
    pub time_ns: Split,
    /// The part of what is idle for other reasons whose end is known to have been launched before: the host was in
    /// time.
    pub idle_launched_ns: Nanos,
    /// The same, and what else is known of its gaps.
    #[serde(skip)]
    pub gaps: Gaps,
    /// How long its host was in the first iteration before its first kernel started; none where traces mark no
    /// iterations.
    #[serde(skip)]
    pub before_first: Option<Nanos>,
    /// How many iterations its kernels are of; 1 where traces mark none.
    #[serde(skip)]
    pub iterations: usize,
    /// The share of its kernels whose launch the trace tells.
    pub launches_known: f64,
    /// The kernels that take most time, by name.
    pub top_kernels: Vec<TopKernel>,
    /// Its collectives, by kind and size.
    pub collectives: Vec<CollectiveRow>,
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

impl Report {
    /// The report on the straggler.
    #[must_use]
    pub fn straggler(&self) -> Option<&RankReport> {
        self.ranks
            .iter()
            .find(|rank| Some(rank.rank) == self.straggler_rank)
    }
}

/// Analyses the timelines of ranks that do equal work: statistics of each and, from two ranks on,
/// who waits for whom.
///
/// # Errors
/// When leads are refused; see [`AlignError`].
pub fn analyse(timelines: &[Timeline], options: &AnalysisOptions) -> Result<Report, AlignError> {
    let groups = Groups::one(timelines, None).named(timelines, &options.align);
    analyse_groups(timelines, &groups, options)
}

/// Analyses the timelines of a job's ranks, each group by itself.
///
/// # Errors
/// When leads are refused; see [`AlignError`].
pub fn analyse_groups(
    timelines: &[Timeline],
    groups: &Groups,
    options: &AnalysisOptions,
) -> Result<Report, AlignError> {
    let wall = wall_time(timelines);
    let ranks = timelines.iter().map(|timeline| statistics(timeline, wall));
    let mut ranks = Vec::from_iter(ranks);
    let together = matched(timelines, groups);
    let waits = add_collectives(&mut ranks, timelines, (groups, &together));
    let standstill = Standstill::of(timelines, &together);
    drop(together);
    let mut reports = Vec::new();
    for (number, group) in groups.all.iter().enumerate() {
        let place = group.range.clone();
        let own = timelines.get(place.clone()).unwrap_or_default();
        let waits = GroupWaits::of(&waits, number, place.clone());
        let ranks = ranks.get_mut(place).unwrap_or_default();
        for rank in &mut *ranks {
            rank.group = number;
        }
        reports.push(compare(own, group, waits, ranks, wall, options)?);
    }
    let suspects = reports.iter().flat_map(|group| &group.suspects);
    let suspects = Suspect::merged(suspects.cloned());
    let matched = || reports.iter().filter_map(|group| group.matched_kernels);
    let fractions = reports.iter().filter_map(|group| group.matched_fraction);
    let mut report = Report {
        schema: SCHEMA,
        simulated: timelines.iter().any(|timeline| timeline.simulated),
        matched_kernels: (matched().count() > 0).then(|| matched().sum()),
        matched_fraction: fractions.reduce(f64::min),
        straggler_rank: None,
        told: 0,
        world_size: world_size(timelines),
        wall_ns: wall,
        standstill,
        ranks,
        groups: reports,
        communicators: groups.communicators.clone(),
        notes: Vec::from_iter(Suspect::note(&suspects)),
        doubts: Vec::new(),
    };
    report.ranks.sort_by_key(|rank| rank.rank);
    report.tell(report.worst_group(|_| true));
    Ok(report)
}

/// How many ranks the job has: what its traces say or, where they don't and collectives name more ranks than were
/// recorded, as many as these and the ranks' own numbers tell at least.
fn world_size(timelines: &[Timeline]) -> Option<u32> {
    let told = timelines.iter().find_map(|timeline| timeline.world_size);
    told.or_else(|| {
        let collectives = timelines.iter().flat_map(|timeline| &timeline.collectives);
        let named = collectives.map(|collective| {
            let last = collective.ranks.iter().max();
            last.map_or(0, |last| last.saturating_add(1))
                .max(collective.group_size.unwrap_or(0))
        });
        let named = named.max()?;
        let last = timelines.iter().map(|timeline| timeline.rank).max()?;
        let recorded = u32::try_from(timelines.len()).ok()?;
        (named > recorded).then(|| named.max(last.saturating_add(1)))
    })
}

impl Report {
    /// The first ranks of the job that are missing, no more than so many, and how many are in all.
    #[must_use]
    pub fn missing_ranks(&self, most: usize) -> Option<(Vec<u32>, u32)> {
        let all = self.world_size?;
        let known = u32::try_from(self.ranks.len()).ok()?;
        let count = all.checked_sub(known).filter(|&count| count > 0)?;
        let here = |rank: &u32| self.ranks.iter().any(|it| it.rank == *rank);
        let missing = (0..all).filter(|rank| !here(rank)).take(most);
        Some((missing.collect(), count))
    }

    /// That ranks of the job are missing, in words, if any are: the straggler may be one of those.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        /// So many missing ranks are named.
        const NAMED: usize = 8;
        let all = self.world_size?;
        let known = self.ranks.len();
        let (missing, count) = self.missing_ranks(NAMED + 1)?;
        let missing = Vec::from_iter(missing.iter().map(u32::to_string));
        let named = match missing.len() > NAMED {
            true => String::new(),
            false => format!(" ({})", missing.join(", ")),
        };
        let (are, be) = match count {
            // One rank alone is compared with nobody.
            _ if known == 1 => (
                if count == 1 { "is" } else { "are" },
                "who waits for whom can't be told without them",
            ),
            1 => ("is", "it may be the one that all wait for"),
            _ => ("are", "one of them may be the one that all wait for"),
        };
        Some(format!(
            "{count} of the job's {all} ranks {are} missing{named}: {be}"
        ))
    }

    /// The group whose ranks wait longest for their straggler, of those that are chosen; the first
    /// of several.
    #[must_use]
    pub fn worst_group(&self, chosen: impl Fn(&GroupReport) -> bool) -> usize {
        let groups = self.groups.iter().enumerate();
        let mut groups = groups.filter(|(_, group)| group.ranks.len() > 1 && chosen(group));
        let Some(mut worst) = groups.next() else {
            return 0;
        };
        for group in groups {
            if group.1.spread() > worst.1.spread() {
                worst = group;
            }
        }
        worst.0
    }

    /// The group that the report tells of.
    #[must_use]
    pub fn told(&self) -> Option<&GroupReport> {
        self.groups.get(self.told)
    }

    /// The ranks of that group.
    pub fn told_ranks(&self) -> impl Iterator<Item = &RankReport> {
        let own = self.told().map_or(&[][..], |group| &group.ranks);
        let ranks = self.ranks.iter();
        ranks.filter(move |rank| own.contains(&rank.rank))
    }

    /// Tells the straggler of one group as that of the job.
    pub fn tell(&mut self, group: usize) {
        self.told = group;
        self.straggler_rank = self.told().and_then(|group| group.straggler_rank);
    }
}

/// What collectives say of each rank: what it waits, and what it sends.
fn add_collectives(
    ranks: &mut [RankReport],
    timelines: &[Timeline],
    (groups, matched): (&Groups, &Matched<'_>),
) -> AllWaits {
    let waits = waits(timelines, groups, matched);
    let tables = tables(timelines, matched);
    for ((rank, table), waits) in ranks.iter_mut().zip(tables).zip(&waits.ranks) {
        rank.collectives = table;
        if waits.collectives > 0 {
            let share = |time| ratio(time, rank.window_ns);
            rank.wait_fraction = share(waits.own);
            rank.stage_wait_fraction = share(waits.stages);
            rank.exposed_wait_fraction = share(waits.exposed);
            rank.wait_ns = Some(waits.own);
            rank.stage_wait_ns = Some(waits.stages);
            rank.exposed_wait_ns = Some(waits.exposed);
        }
    }
    waits
}

/// Compares the ranks of one group with each other.
fn compare(
    timelines: &[Timeline],
    group: &Group,
    waits: Option<GroupWaits>,
    ranks: &mut [RankReport],
    wall: Nanos,
    options: &AnalysisOptions,
) -> Result<GroupReport, AlignError> {
    let mut report = GroupReport {
        ranks: timelines.iter().map(|timeline| timeline.rank).collect(),
        kind: group.kind,
        stage: group.stage,
        pipeline: group.pipeline,
        straggler_rank: None,
        matched_kernels: None,
        matched_fraction: None,
        skew: None,
        diagnosis: None,
        waits: None,
        exchanges: false,
        suspects: Vec::new(),
    };
    if timelines.len() < 2 {
        return Ok(report);
    }
    let alignment = match &group.alignment {
        Some(alignment) => Cow::Borrowed(alignment),
        None => Cow::Owned(align(timelines, &options.align)?),
    };
    let leads = leads::of_alignment(timelines, alignment);
    report.suspects = class::behaving(timelines, &leads.alignment);
    report.matched_kernels = Some(leads.alignment.matched().len());
    report.matched_fraction = Some(leads.alignment.matched_fraction());
    report.waits = waits;
    report.exchanges = class::exchange(timelines, &leads.alignment);
    let straggler = match &report.waits {
        _ if group.pipeline => None,
        Some(waits) => least(&waits.names),
        // Who starts last is waited for only where anybody waits.
        None if report.exchanges => leads.straggler(options.aggregation),
        None => None,
    };
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
    if let Some(waits) = &report.waits {
        for (at, rank) in ranks.iter_mut().enumerate() {
            rank.names_straggler = waits.names.get(at).copied();
        }
    }
    for (rank, columns) in ranks.iter_mut().zip(columns) {
        let ((((lead, last_in), left_out), pace), marks) = columns;
        rank.lead = Some(lead);
        rank.last_in = Some(last_in);
        rank.left_out = Some(left_out);
        rank.pace = pace.middle;
        rank.marks = marks;
    }
    Ok(report)
}

/// The place of the least value, if no other is as small.
pub(crate) fn least(values: &[Nanos]) -> Option<usize> {
    let least = values.iter().min()?;
    let mut places = values.iter().enumerate();
    let mut places = places.by_ref().filter(|(_, value)| *value == least);
    let (place, _) = places.next()?;
    places.next().is_none().then_some(place)
}

/// From the first start to the last end over all ranks.
pub(crate) fn wall_time(timelines: &[Timeline]) -> Nanos {
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
    let (split, gaps) = Split::of(timeline);
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
        busy_fraction: ratio(split.busy(), wall).unwrap_or(0.0),
        overlap_ratio: ratio(overlapped, time),
        group: 0,
        window_ns: split.window(),
        wait_ns: None,
        wait_fraction: None,
        stage_wait_ns: None,
        stage_wait_fraction: None,
        exposed_wait_ns: None,
        exposed_wait_fraction: None,
        names_straggler: None,
        time_ns: split,
        idle_launched_ns: gaps.launched,
        gaps,
        before_first: before_first(timeline),
        iterations: iterations(timeline),
        launches_known: time::launches_known(timeline),
        top_kernels: time::top(timeline),
        collectives: Vec::new(),
        lead: None,
        last_in: None,
        pace: None,
        left_out: None,
        marks: Marks::default(),
    }
}

/// How many iterations a rank's kernels are of.
fn iterations(timeline: &Timeline) -> usize {
    let numbers = timeline
        .kernels
        .iter()
        .filter_map(|kernel| kernel.iteration);
    let numbers = numbers.map(NonMax::get);
    BTreeSet::from_iter(numbers).len().max(1)
}

/// How long a host was in the first iteration before the first kernel started.
fn before_first(timeline: &Timeline) -> Option<Nanos> {
    let first = timeline.kernels.first()?;
    let number = first.iteration?.get();
    let mut iterations = timeline.iterations.iter();
    let began = iterations
        .find(|iteration| iteration.number == number)?
        .start;
    (first.start > began).then(|| first.start - began)
}

/// When any communication kernel ran.
pub(crate) fn communication(timeline: &Timeline) -> Spans {
    let kernels = timeline.kernels.iter();
    let communication = kernels.filter(|kernel| kernel.class.communicates());
    Spans::union(communication.map(|kernel| (kernel.start, kernel.end)))
}

/// How long a GPU that ran these kernels had nothing to do; they come in the order of their starts.
pub(crate) fn idle_of<'a>(kernels: impl IntoIterator<Item = &'a Kernel>) -> Nanos {
    let kernels = kernels.into_iter();
    idle(kernels.map(|kernel| (kernel.class, kernel.start, kernel.end)))
}

/// The pace of each timeline; see [`RankReport::pace`].
fn paces_of(timelines: &[Timeline], leads: &Leads<'_>) -> Vec<Pace> {
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
