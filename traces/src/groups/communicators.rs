//! The process groups that collectives name, and what they are for.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use litd_units::Nanos;
use serde::Serialize;

use super::chains::{Chains, Pair, pair};
use super::{Exchange, aligned_pair};
use crate::align::AlignOptions;
use crate::collectives::{is_transfer, kind_of};
use crate::timeline::{Collective, Kernel, KernelClass, NonMax, Timeline};

/// What a framework calls a transfer between two ranks.
const POINT_TO_POINT: [&str; 3] = ["send", "recv", COALESCED];
/// Several of these in one kernel, of which nothing tells the other ranks.
pub(crate) const COALESCED: &str = "coalesced";

/// Whether a collective is a transfer between two ranks.
pub(crate) fn is_point_to_point(collective: &Collective) -> bool {
    let name = collective.name.as_deref().unwrap_or_default();
    POINT_TO_POINT.contains(&name) || is_seen(collective)
}

/// Whether it was told by when transfers end, and not by the trace: then its number tells which two kernels are one. A
/// profiler that tells the other rank and no name does not make one.
pub(crate) fn is_seen(collective: &Collective) -> bool {
    collective.description.as_deref() == Some(super::seen::DESCRIPTION)
        && collective.name.is_none()
        && collective.sequence.is_some()
        && collective.peer.is_some()
}

/// What words in the description of a process group say that it is for. The first kind that has a
/// word there is it: replicas that also share contexts (`dp_shard_cp`) exchange gradients.
const WORDS: [(Exchange, &[&str]); 5] = [
    (Exchange::Pp, &["pp", "pipe", "pipeline"]),
    (Exchange::Tp, &["tp", "tensor"]),
    (
        Exchange::Dp,
        &["dp", "ddp", "fsdp", "hsdp", "data", "shard", "replicate"],
    ),
    (Exchange::Cp, &["cp", "context"]),
    (Exchange::Ep, &["ep", "expert", "experts"]),
];

/// Ranks that exchange something in collectives.
#[derive(Debug, Clone, Serialize)]
pub struct Communicator {
    /// The name of the process group.
    pub name: String,
    /// What it is for, in the framework's words.
    pub description: Option<String>,
    /// The recorded ranks that ran kernels of it.
    pub ranks: Vec<u32>,
    /// What they exchange.
    pub kind: Exchange,
    /// Kernels of all of these ranks.
    pub kernels: usize,
    /// How long those took together, in nanoseconds.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// The places of those ranks' timelines.
    #[serde(skip)]
    pub(crate) members: Vec<usize>,
    /// The ranks that the trace lists.
    #[serde(skip)]
    listed: Vec<u32>,
    /// How many kernels each member ran.
    #[serde(skip)]
    counts: Vec<usize>,
    /// The pairs of ranks that it links, where these rather than its list tell the stages of a pipeline.
    #[serde(skip)]
    links: Vec<Pair>,
    /// Whether it has several pipelines.
    #[serde(skip)]
    several: bool,
}

/// What tells communicators apart: a name, and the ranks that the trace lists.
type Key<'a> = (&'a str, &'a [u32]);

fn key(collective: &Collective) -> Option<Key<'_>> {
    Some((collective.process_group.as_deref()?, &collective.ranks))
}

/// The numbers of communicators among all.
pub(crate) fn of_kernel<'a>(
    communicators: &'a [Communicator],
) -> impl Fn(&Collective) -> Option<usize> + 'a {
    let known = communicators.iter().enumerate();
    let known = known.map(|(number, one)| ((one.name.as_str(), one.listed.as_slice()), number));
    let known = HashMap::<Key<'a>, usize>::from_iter(known);
    move |collective| {
        let (name, ranks) = key(collective)?;
        known.get(&(name, ranks)).copied()
    }
}

/// What the collectives of a communicator have in common.
struct Has {
    /// Some go from one rank to another.
    point_to_point: bool,
    /// All do.
    only_point_to_point: bool,
    only_all_to_all: bool,
    /// Between which ranks these go.
    pairs: HashSet<Pair>,
    /// Whether all of them tell.
    all_told: bool,
    /// What each member computes before it comes to the first of them.
    before: Vec<Before>,
}

/// How many kernels a rank computes in each iteration before its first transfer.
type Before = HashMap<Option<NonMax>, usize>;

/// How many kernels a rank has computed so far in each iteration.
#[derive(Default)]
struct Computed {
    iteration: Option<NonMax>,
    count: usize,
    /// In other iterations.
    others: Before,
}

impl Computed {
    /// Takes the next kernel; how many there are in its iteration.
    fn take(&mut self, kernel: &Kernel) -> usize {
        if self.iteration != kernel.iteration {
            self.others.insert(self.iteration, self.count);
            self.iteration = kernel.iteration;
            self.count = self.others.remove(&kernel.iteration).unwrap_or(0);
        }
        self.count += usize::from(kernel.class == KernelClass::Computation);
        self.count
    }
}

/// The communicators of all timelines, in the order in which they come.
pub(super) fn find(timelines: &[Timeline], options: &AlignOptions) -> Vec<Communicator> {
    let mut numbers = HashMap::<Key<'_>, usize>::new();
    let mut all = Vec::<(Communicator, Has)>::new();
    let told = |timeline: &&Timeline| !timeline.collectives.is_empty();
    for (at, timeline) in timelines.iter().enumerate().filter(|(_, one)| told(one)) {
        let mut computed = Computed::default();
        for kernel in &timeline.kernels {
            let computed = computed.take(kernel);
            let collective = timeline.collective_of(kernel);
            let collective = collective.filter(|_| kernel.class.communicates());
            let Some((key, collective)) = collective.and_then(|told| Some((key(told)?, told)))
            else {
                continue;
            };
            let number = *numbers.entry(key).or_insert_with(|| {
                all.push(new(collective));
                all.len() - 1
            });
            let Some((communicator, has)) = all.get_mut(number) else {
                continue;
            };
            communicator.take(at, timeline.rank, kernel);
            has.take(timeline.rank, collective);
            has.before
                .resize_with(communicator.members.len(), Before::new);
            if let Some(before) = has
                .before
                .last_mut()
                .filter(|_| is_point_to_point(collective))
            {
                before.entry(kernel.iteration).or_insert(computed);
            }
            if communicator.description.is_none() {
                communicator.description = collective.description.as_deref().map(Into::into);
            }
        }
    }
    let known = |(mut communicator, has): (Communicator, Has)| {
        communicator.kind = communicator.kind(&has, timelines, options);
        communicator.link(&has);
        communicator
    };
    all.into_iter().map(known).collect()
}

impl Has {
    /// Takes a collective of this rank.
    fn take(&mut self, rank: u32, collective: &Collective) {
        let point_to_point = is_point_to_point(collective);
        self.point_to_point |= point_to_point;
        self.only_point_to_point &= point_to_point;
        let name = collective.name.as_deref().unwrap_or_default();
        self.only_all_to_all = self.only_all_to_all && kind_of(name) == "alltoall";
        if point_to_point {
            self.all_told &= collective.peer.is_some();
            self.pairs
                .extend(collective.peer.and_then(|peer| pair(rank, peer)));
        }
    }

    /// Whether all transfers go along rows of more than two ranks, each with its neighbours alone.
    fn rows(&self, members: usize) -> bool {
        let chains = Chains::of(self.pairs.iter().copied());
        let rows = self.pairs.len() + chains.lengths.len() == members;
        self.all_told && rows && chains.lengths.iter().all(|&length| length > 2)
    }
}

fn new(collective: &Collective) -> (Communicator, Has) {
    let communicator = Communicator {
        name: collective
            .process_group
            .as_deref()
            .unwrap_or_default()
            .into(),
        description: None,
        ranks: Vec::new(),
        kind: Exchange::Unknown,
        kernels: 0,
        time: Nanos::ZERO,
        members: Vec::new(),
        listed: collective.ranks.to_vec(),
        counts: Vec::new(),
        links: Vec::new(),
        several: false,
    };
    let has = Has {
        point_to_point: false,
        only_point_to_point: true,
        only_all_to_all: true,
        pairs: HashSet::new(),
        all_told: true,
        before: Vec::new(),
    };
    (communicator, has)
}

impl Communicator {
    /// Takes a kernel of the rank at this place.
    fn take(&mut self, at: usize, rank: u32, kernel: &Kernel) {
        if self.members.last() != Some(&at) {
            self.members.push(at);
            self.ranks.push(rank);
            self.counts.push(0);
        }
        if let Some(count) = self.counts.last_mut() {
            *count += 1;
        }
        self.kernels += 1;
        self.time += kernel.duration();
    }

    fn kind(&self, has: &Has, timelines: &[Timeline], options: &AlignOptions) -> Exchange {
        let words = |text: &str| kind_of_words(text, has.point_to_point);
        let described = self.description.as_deref().and_then(words);
        if let Some(kind) = described.or_else(|| words(&self.name)) {
            return kind;
        }
        let in_step = || {
            let first = self.members.first().map(|&at| &timelines[at]);
            let mut others = self.members.iter().skip(1).map(|&at| &timelines[at]);
            first.is_some_and(|first| others.all(|other| in_step(first, other, options)))
        };
        match has.only_point_to_point {
            _ if has.only_all_to_all => Exchange::Ep,
            false if has.point_to_point && self.hands_on(has) => Exchange::Pp,
            false => Exchange::Unknown,
            true if !self.hands_on(has) && in_step() => Exchange::Cp,
            true => Exchange::Pp,
        }
    }

    /// Whether its ranks hand work on from one to the next, though all of them run the same kernels: each transfers
    /// with its neighbours in a row alone, or some compute before their first transfer where others wait for it.
    fn hands_on(&self, has: &Has) -> bool {
        has.rows(self.members.len()) || waits_at_first(&has.before)
    }

    /// The ranks that the trace lists, or those that were recorded.
    fn list(&self) -> &[u32] {
        match self.listed.is_empty() {
            true => &self.ranks,
            false => &self.listed,
        }
    }

    /// Says which pairs it links: itself where it is one, and those that transfer where it has several pipelines.
    fn link(&mut self, has: &Has) {
        self.several = self.has_several(has);
        self.links = match self.list() {
            &[one, other] => Vec::from_iter(pair(one, other)),
            _ if self.several => Vec::from_iter(has.pairs.iter().copied()),
            _ => Vec::new(),
        };
    }

    /// Whether its list, such as that of a job's default group, is not that of the stages of one pipeline: transfers
    /// tell their peers, and there are two neighbours in the list of which one was recorded and that transfer nothing to
    /// each other.
    fn has_several(&self, has: &Has) -> bool {
        let recorded = HashSet::<u32>::from_iter(self.ranks.iter().copied());
        let apart = |both: &[u32]| {
            let &[one, other] = both else { return false };
            let known = recorded.contains(&one) || recorded.contains(&other);
            known && pair(one, other).is_some_and(|both| !has.pairs.contains(&both))
        };
        has.point_to_point && has.all_told && self.list().windows(2).any(apart)
    }

    /// The stage of a rank, from 0: its place in the list of ranks, or among those recorded.
    fn stage(&self, at: usize, rank: u32) -> Option<u32> {
        let listed = self.listed.iter().position(|&other| other == rank);
        let place = listed.or_else(|| self.members.iter().position(|&other| other == at))?;
        u32::try_from(place).ok()
    }
}

/// Whether these are the stages of a pipeline, a rank each, though no process group says so: all that they exchange are
/// transfers, and some wait for their first one while others compute for it.
pub(super) fn unnamed_stages(timelines: &[Timeline]) -> bool {
    let communicates = |kernel: &&Kernel| kernel.class.communicates();
    let before = |timeline: &Timeline| {
        let mut before = Before::new();
        let mut computed = Computed::default();
        for kernel in &timeline.kernels {
            let computed = computed.take(kernel);
            if communicates(&kernel) {
                before.entry(kernel.iteration).or_insert(computed);
            }
        }
        before
    };
    let transfers_only = |timeline: &Timeline| {
        let names = Vec::from_iter(timeline.names.iter().map(is_transfer));
        let mut kernels = timeline.kernels.iter().filter(communicates);
        kernels.all(|kernel| names.get(kernel.name.0 as usize) == Some(&true))
    };
    timelines.len() > 1
        && timelines.iter().all(transfers_only)
        && waits_at_first(&Vec::from_iter(timelines.iter().map(before)))
}

/// Whether in most iterations some ranks wait for their first transfer while others compute for it.
fn waits_at_first(ranks: &[Before]) -> bool {
    /// Who computes fewer kernels than one in so many of another's waits.
    const WAITS: usize = 4;
    let Some((first, _)) = ranks.split_first() else {
        return false;
    };
    let waits = first.keys().filter_map(|iteration| {
        let before = ranks.iter().map(|rank| rank.get(iteration).copied());
        let before = before.collect::<Option<Vec<usize>>>()?;
        Some(WAITS * before.iter().min()? < *before.iter().max()?)
    });
    let waits = Vec::from_iter(waits);
    2 * waits.iter().filter(|waits| **waits).count() > waits.len()
}

/// What a process group is for by the words of a text. Groups that span the stages of a pipeline
/// besides other ranks (Megatron's for the norm of gradients) have its word too, and hand nothing
/// from one stage to the next: a pipeline's has transfers between two ranks.
fn kind_of_words(text: &str, point_to_point: bool) -> Option<Exchange> {
    let text = text.to_ascii_lowercase();
    let has = |wanted: &[&str]| {
        let mut words = text.split(|c: char| !c.is_alphabetic());
        words.any(|word| wanted.contains(&word))
    };
    let mut kinds = WORDS
        .iter()
        .filter(|(kind, _)| point_to_point || *kind != Exchange::Pp);
    kinds.find(|(_, words)| has(words)).map(|(kind, _)| *kind)
}

/// The stage of each timeline that is in a pipeline: in the one that it ran most kernels of. Frameworks may give each
/// two neighbours a process group of their own, or have all transfers in that of the whole job: then chains of pairs tell.
pub(super) fn stages(all: &[Communicator], timelines: &[Timeline]) -> Vec<Option<u32>> {
    fn order(count: usize, one: &Communicator) -> (usize, Reverse<&str>) {
        (count, Reverse(&one.name))
    }
    let own = || all.iter().filter(|one| one.kind == Exchange::Pp);
    let chains = Chains::of(own().flat_map(|one| one.links.iter().copied()));
    let mut most = vec![None::<(usize, &Communicator)>; timelines.len()];
    for one in own() {
        for (&at, &count) in one.members.iter().zip(&one.counts) {
            let Some(most) = most.get_mut(at) else {
                continue;
            };
            if most.is_none_or(|(known, of)| order(known, of) < order(count, one)) {
                *most = Some((count, one));
            }
        }
    }
    let each = most.into_iter().zip(timelines).enumerate();
    let each = each.map(|(at, (most, timeline))| {
        let (_, most) = most?;
        let listed = most.listed.len().max(most.members.len());
        let longer = |length| most.several || length > listed;
        match chains.place(timeline.rank) {
            Some((place, length)) if longer(length) => u32::try_from(place).ok(),
            _ => most.stage(at, timeline.rank),
        }
    });
    each.collect()
}

/// Whether all of these run the same computation in the same order.
pub(super) fn alike(timelines: &[Timeline]) -> bool {
    let Some((first, rest)) = timelines.split_first() else {
        return false;
    };
    rest.iter().all(|other| names(first).eq(names(other)))
}

/// Whether two ranks run the same kernels in the same order, as far as they have the same ones: ranks
/// that exchange with each other do, stages of a pipeline don't.
fn in_step(one: &Timeline, other: &Timeline, options: &AlignOptions) -> bool {
    if names(one).eq(names(other)) {
        return true;
    }
    let Ok(alignment) = aligned_pair(one, other, options) else {
        return false;
    };
    let [first, second] = &alignment[..] else {
        return false;
    };
    let left_over = HashSet::<&str>::from_iter(first.iter().map(|kind| kind.name.as_str()));
    !second
        .iter()
        .any(|kind| left_over.contains(kind.name.as_str()))
}

/// The names of a timeline's computation, in order.
fn names(timeline: &Timeline) -> impl Iterator<Item = &str> {
    let kernels = timeline.kernels.iter();
    let kernels = kernels.filter(|kernel| kernel.class == KernelClass::Computation);
    kernels.map(|kernel| timeline.name_of(kernel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_without_a_name_are_not_taken_for_those_that_times_tell() {
        let told = Collective {
            peer: Some(1),
            sequence: Some(7),
            description: Some("mesh_pp".into()),
            ..Collective::default()
        };
        assert!(!is_seen(&told) && !is_point_to_point(&told));
        let seen = Collective {
            description: Some(super::super::seen::DESCRIPTION.into()),
            ..told
        };
        assert!(is_seen(&seen) && is_point_to_point(&seen));
    }

    #[test]
    fn names_of_collectives_count_in_any_case() {
        for (name, is_exchange) in [
            ("all_to_all", true),
            ("ALLTOALL_BASE", true),
            ("allreduce", false),
        ] {
            let told = Collective {
                name: Some(name.into()),
                ..Collective::default()
            };
            let (_, mut has) = new(&told);
            has.take(0, &told);
            assert_eq!(has.only_all_to_all, is_exchange, "{name}");
        }
    }

    #[test]
    fn descriptions_tell_what_a_process_group_is_for() {
        for (text, kind) in [
            ("mesh_tp", Some(Exchange::Tp)),
            ("TENSOR_MODEL_PARALLEL_GROUP", Some(Exchange::Tp)),
            ("PIPELINE_MODEL_PARALLEL_GROUP", Some(Exchange::Pp)),
            ("mesh_dp_shard_cp", Some(Exchange::Dp)),
            ("DATA_PARALLEL_GROUP_WITH_CP", Some(Exchange::Dp)),
            ("CONTEXT_PARALLEL_GROUP", Some(Exchange::Cp)),
            ("EXPERT_MODEL_PARALLEL_GROUP", Some(Exchange::Ep)),
            ("EXPERT_DATA_PARALLEL_GROUP", Some(Exchange::Dp)),
            ("default_pg", None),
            ("undefined", None),
            ("step", None),
            ("7", None),
        ] {
            assert_eq!(kind_of_words(text, true), kind, "{text}");
        }
        let norm = "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP";
        assert_eq!(kind_of_words(norm, true), Some(Exchange::Pp));
        assert_eq!(kind_of_words(norm, false), Some(Exchange::Tp));
    }
}
