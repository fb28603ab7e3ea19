//! The process groups that collectives name, and what they are for.

use std::collections::{BTreeSet, HashMap, HashSet};

use litd_units::Nanos;
use serde::Serialize;

use super::{Exchange, aligned_pair};
use crate::align::AlignOptions;
use crate::collectives::is_transfer;
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
#[derive(Clone, Copy)]
struct Has {
    /// Some go from one rank to another.
    point_to_point: bool,
    /// All do.
    only_point_to_point: bool,
    only_all_to_all: bool,
}

/// The communicators of all timelines, in the order in which they come.
pub(super) fn find(timelines: &[Timeline], options: &AlignOptions) -> Vec<Communicator> {
    let mut numbers = HashMap::<Key<'_>, usize>::new();
    let mut all = Vec::<(Communicator, Has)>::new();
    for (at, timeline) in timelines.iter().enumerate() {
        for (kernel, collective) in told(timeline) {
            let Some(key) = key(collective) else { continue };
            let number = *numbers.entry(key).or_insert_with(|| {
                all.push(new(collective));
                all.len() - 1
            });
            let (communicator, has) = &mut all[number];
            communicator.take(at, timeline.rank, kernel);
            let name = collective.name.as_deref().unwrap_or_default();
            let point_to_point = is_point_to_point(collective);
            has.point_to_point |= point_to_point;
            has.only_point_to_point &= point_to_point;
            has.only_all_to_all &= name.replace('_', "").contains("alltoall");
            if communicator.description.is_none() {
                communicator.description = collective.description.as_deref().map(Into::into);
            }
        }
    }
    let kind = |(mut communicator, has): (Communicator, Has)| {
        communicator.kind = communicator.kind(has, timelines, options);
        communicator
    };
    all.into_iter().map(kind).collect()
}

/// The communication kernels of a timeline of which the trace tells more.
fn told(timeline: &Timeline) -> impl Iterator<Item = (&Kernel, &Collective)> {
    let kernels = timeline.kernels.iter();
    let kernels = kernels.filter(|kernel| kernel.class.communicates());
    kernels.filter_map(|kernel| Some((kernel, timeline.collective_of(kernel)?)))
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
    };
    let has = Has {
        point_to_point: false,
        only_point_to_point: true,
        only_all_to_all: true,
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

    fn kind(&self, has: Has, timelines: &[Timeline], options: &AlignOptions) -> Exchange {
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
        match has {
            _ if has.only_all_to_all => Exchange::Ep,
            _ if has.point_to_point && !has.only_point_to_point && self.hands_on(timelines) => {
                Exchange::Pp
            }
            _ if !has.only_point_to_point => Exchange::Unknown,
            _ if in_step() && !self.hands_on(timelines) => Exchange::Cp,
            _ => Exchange::Pp,
        }
    }

    /// Whether its ranks hand work on from one to the next, though all of them run the same kernels: each transfers
    /// with its neighbours in a row alone, or some compute before their first transfer where others wait for it.
    fn hands_on(&self, timelines: &[Timeline]) -> bool {
        let is_own = |told: &Collective| {
            is_point_to_point(told)
                && key(told) == Some((self.name.as_str(), self.listed.as_slice()))
        };
        let members = self.members.iter().filter_map(|&at| timelines.get(at));
        let transfers = members.map(|member| {
            transfers(member, |kernel| {
                let told = member.collective_of(kernel).filter(|told| is_own(told))?;
                Some(told.peer)
            })
        });
        let transfers = Vec::from_iter(transfers);
        let pairs = || transfers.iter().flat_map(|own| &own.pairs);
        let all_told = pairs().all(Option::is_some);
        let pairs = HashSet::<&(u32, u32)>::from_iter(pairs().flatten());
        let row = self.members.len() > 2 && all_told && pairs.len() + 1 == self.members.len();
        row || waits_at_first(&transfers)
    }

    /// The stage of a rank, from 0: its place in the list of ranks, or among those recorded.
    fn stage(&self, at: usize, rank: u32) -> Option<u32> {
        let listed = self.listed.iter().position(|&other| other == rank);
        let place = listed.or_else(|| self.members.iter().position(|&other| other == at))?;
        u32::try_from(place).ok()
    }
}

/// What one rank transfers in a communicator.
#[derive(Default)]
struct Transfers {
    /// Between which ranks, the lower first; none where the trace does not tell.
    pairs: HashSet<Option<(u32, u32)>>,
    /// How many kernels it computes in an iteration before its first transfer.
    before: HashMap<Option<NonMax>, usize>,
}

/// What a rank transfers: `told` has the other rank of a transfer, as far as that is known, and none for other kernels.
fn transfers(timeline: &Timeline, told: impl Fn(&Kernel) -> Option<Option<u32>>) -> Transfers {
    let mut own = Transfers::default();
    let mut computed = HashMap::<Option<NonMax>, usize>::new();
    for kernel in &timeline.kernels {
        let computed = computed.entry(kernel.iteration).or_default();
        if kernel.class == KernelClass::Computation {
            *computed += 1;
        }
        let Some(peer) = told(kernel) else { continue };
        own.before.entry(kernel.iteration).or_insert(*computed);
        let rank = timeline.rank;
        let pair = peer.map(|peer| (rank.min(peer), rank.max(peer)));
        own.pairs.insert(pair);
    }
    own
}

/// Whether these are the stages of a pipeline, a rank each, though no process group says so: all that they exchange are
/// transfers, and some wait for their first one while others compute for it.
pub(super) fn unnamed_stages(timelines: &[Timeline]) -> bool {
    let communicates = |kernel: &&Kernel| kernel.class.communicates();
    let transfers_only = |timeline: &Timeline| {
        let names = Vec::from_iter(timeline.names.iter().map(is_transfer));
        let mut kernels = timeline.kernels.iter().filter(communicates);
        kernels.all(|kernel| names.get(kernel.name.0 as usize) == Some(&true))
    };
    timelines.len() > 1 && timelines.iter().all(transfers_only) && {
        let transfers = timelines
            .iter()
            .map(|one| transfers(one, |kernel| communicates(&kernel).then_some(None)));
        waits_at_first(&Vec::from_iter(transfers))
    }
}

/// Whether in most iterations some ranks wait for their first transfer while others compute for it.
fn waits_at_first(ranks: &[Transfers]) -> bool {
    /// Who computes fewer kernels than one in so many of another's waits.
    const WAITS: usize = 4;
    let Some((first, _)) = ranks.split_first() else {
        return false;
    };
    let waits = first.before.keys().filter_map(|iteration| {
        let before = ranks.iter().map(|rank| rank.before.get(iteration).copied());
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

/// The stage of the timeline at this place, if it is in a pipeline: in the one that it ran most
/// kernels of.
pub(super) fn stage(all: &[Communicator], timelines: &[Timeline], at: usize) -> Option<u32> {
    let count = |one: &&Communicator| {
        let place = one.members.iter().position(|&member| member == at)?;
        one.counts.get(place).copied()
    };
    let own = all.iter().filter(|one| one.kind == Exchange::Pp);
    let own = own.filter(|one| count(one).is_some());
    let most = own.min_by(|a, b| count(b).cmp(&count(a)).then_with(|| a.name.cmp(&b.name)))?;
    let rank = timelines.get(at)?.rank;
    let row = row(all, rank);
    if row.len() > most.listed.len().max(most.members.len()) {
        let place = row.iter().position(|&other| other == rank)?;
        return u32::try_from(place).ok();
    }
    most.stage(at, rank)
}

/// The ranks that a chain of pairs of a pipeline leads to from this one, in order: frameworks may give each two
/// neighbours a process group of their own.
fn row(all: &[Communicator], rank: u32) -> BTreeSet<u32> {
    let pairs = all.iter().filter(|one| one.kind == Exchange::Pp);
    let pairs = pairs.map(|one| match one.listed.is_empty() {
        true => one.ranks.as_slice(),
        false => one.listed.as_slice(),
    });
    let pairs = Vec::from_iter(pairs.filter(|ranks| ranks.len() == 2));
    let mut row = BTreeSet::from([rank]);
    loop {
        let before = row.len();
        for pair in &pairs {
            if pair.iter().any(|rank| row.contains(rank)) {
                row.extend(pair.iter().copied());
            }
        }
        if row.len() == before {
            return row;
        }
    }
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
