//! Which communication kernels of different ranks are one collective, how long each rank waits in
//! them, and what they carry. docs/analyze-definitions.md has the definitions.

mod step;
mod table;
mod turns;
mod waits;

use std::collections::{BTreeSet, HashMap, HashSet};

use litd_units::Nanos;

use crate::groups::{COALESCED, Exchange, Groups, is_point_to_point, is_seen, of_kernel};
use crate::timeline::{Collective, Kernel, NameId, NonMax, StreamId, Timeline};
pub use table::CollectiveRow;
pub(crate) use table::{Kinds, is_transfer, keeps_all, kind_of, tables};
pub use turns::Lag;
pub use waits::GroupWaits;
pub(crate) use waits::{AllWaits, in_one, waits};

/// Kernels of different ranks that are one collective. Of millions only their places are kept.
#[derive(Debug)]
pub(crate) struct Matched<'a> {
    timelines: &'a [Timeline],
    /// The place of each kernel's timeline, and its own place there.
    places: Vec<(u32, u32)>,
    /// Where each collective ends among the places.
    ends: Vec<usize>,
}

/// One rank's kernel of a collective.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// The place of the rank's timeline.
    pub(crate) rank: usize,
    /// The kernel's place in it.
    pub(crate) kernel: usize,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

impl Matched<'_> {
    /// Hands out each collective, with an entry per rank.
    pub(crate) fn each(&self, mut take: impl FnMut(&[Entry])) {
        let mut row = Vec::new();
        for at in 0..self.len() {
            self.row(at, &mut row);
            take(&row);
        }
    }

    /// How many collectives there are.
    fn len(&self) -> usize {
        self.ends.len()
    }

    /// Puts the entries of one of them where another's were.
    fn row(&self, at: usize, row: &mut Vec<Entry>) {
        let before = at.checked_sub(1).and_then(|before| self.ends.get(before));
        let from = before.copied().unwrap_or_default();
        let to = self.ends.get(at).copied().unwrap_or(from);
        let places = self.places.get(from..to).unwrap_or_default();
        row.clear();
        row.extend(places.iter().filter_map(|&place| self.entry(place)));
    }

    fn entry(&self, (rank, kernel): (u32, u32)) -> Option<Entry> {
        let (rank, kernel) = (rank as usize, kernel as usize);
        let Kernel { start, end, .. } = *self.timelines.get(rank)?.kernels.get(kernel)?;
        Some(Entry {
            rank,
            kernel,
            start,
            end,
        })
    }
}

/// What kernels have in common that may be one collective. Names and streams are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Scope {
    /// They are told apart by a number that all ranks give them.
    Sequenced { communicator: usize, name: u32 },
    /// By how many came before.
    Counted {
        communicator: usize,
        name: u32,
        iteration: Option<NonMax>,
    },
    /// The same, from one rank to another.
    Pair {
        communicator: usize,
        from: u32,
        to: u32,
        iteration: Option<NonMax>,
    },
    /// The same, of transfers whose numbers tell which two are one: these may be of different iterations where the user
    /// cuts at a kernel that stages reach at different times.
    Seen { communicator: usize },
    /// The same, between the two ranks of a communicator.
    Two {
        communicator: usize,
        iteration: Option<NonMax>,
    },
    /// The same, of kernels of which the trace tells no more than their names.
    Plain {
        group: usize,
        name: u32,
        stream: Option<u32>,
        iteration: Option<NonMax>,
    },
}

/// A kernel on the way to its collective.
#[derive(Debug, Clone, Copy)]
struct Found {
    bucket: u32,
    /// Its number in the bucket, and among those of its rank that have this number.
    order: u64,
    nth: u32,
    rank: u32,
    kernel: u32,
}

// A large trace has millions of these.
const _: () = assert!(size_of::<Found>() <= 24);

/// Kernels of one scope.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// How many ranks a collective has.
    ranks: usize,
    /// Whether all ranks must have as many.
    counted: bool,
}

/// Matches the communication kernels of all ranks.
pub(crate) fn matched<'a>(timelines: &'a [Timeline], groups: &Groups) -> Matched<'a> {
    let Search {
        mut all, buckets, ..
    } = find(timelines, groups);
    all.sort_unstable_by_key(|one| (one.bucket, one.order, one.rank, one.kernel));
    for same in all.chunk_by_mut(|a, b| (a.bucket, a.order, a.rank) == (b.bucket, b.order, b.rank))
    {
        for (nth, one) in (0..).zip(same) {
            one.nth = nth;
        }
    }
    all.sort_unstable_by_key(|one| (one.bucket, one.order, one.nth, one.rank));
    let mut matched = Matched {
        timelines,
        places: Vec::with_capacity(all.len()),
        ends: Vec::new(),
    };
    for bucket in all.chunk_by(|a, b| a.bucket == b.bucket) {
        let known = bucket.first().map(|one| one.bucket as usize);
        let Some(known) = known.and_then(|bucket| buckets.get(bucket)) else {
            continue;
        };
        let rows = || bucket.chunk_by(|a, b| (a.order, a.nth) == (b.order, b.nth));
        let complete = |row: &&[Found]| row.len() == known.ranks && known.ranks > 1;
        if known.counted && !rows().all(|row| complete(&row)) {
            continue;
        }
        for row in rows().filter(complete) {
            let places = row.iter().map(|one| (one.rank, one.kernel));
            matched.places.extend(places);
            matched.ends.push(matched.places.len());
        }
    }
    matched
}

/// What is known while kernels are put into buckets.
struct Search<'a> {
    groups: &'a Groups,
    /// Whether all ranks mark iterations.
    marked: bool,
    texts: HashMap<&'a str, u32>,
    numbers: HashMap<Scope, u32>,
    buckets: Vec<Bucket>,
    all: Vec<Found>,
}

fn find<'a>(timelines: &'a [Timeline], groups: &'a Groups) -> Search<'a> {
    let marks = |timeline: &Timeline| timeline.kernels.iter().any(|k| k.iteration.is_some());
    let count = timelines
        .iter()
        .map(|timeline| communication(timeline).count());
    let mut search = Search {
        groups,
        marked: timelines.iter().all(marks),
        texts: HashMap::new(),
        numbers: HashMap::new(),
        buckets: Vec::new(),
        all: Vec::with_capacity(count.sum()),
    };
    let communicator_of = of_kernel(&groups.communicators);
    for (number, group) in groups.all.iter().enumerate() {
        let own = timelines.get(group.range.clone()).unwrap_or_default();
        let by_stream = by_stream(own);
        let first = u32::try_from(group.range.start).unwrap_or(u32::MAX);
        // Where times tell the stages, those of transfers that they don't tell go to other stages as well.
        let is_seen_stage = group.stage.is_some() && groups.stages_are_seen();
        for (rank, timeline) in (first..).zip(own) {
            let names = timeline.names.iter().filter(|_| is_seen_stage);
            let lost = Vec::from_iter(names.map(is_transfer));
            let mut counts = HashMap::<u32, u64>::new();
            // There are millions of kernels, and few names.
            let mut plain = HashMap::<(NameId, StreamId, Option<NonMax>), u32>::new();
            for (at, kernel) in communication(timeline) {
                let told = timeline.collective_of(kernel);
                let communicator = told.and_then(&communicator_of);
                let (bucket, sequence) = match told.zip(communicator) {
                    Some((told, communicator)) => {
                        let scope = search.scope(timeline.rank, kernel, told, communicator);
                        let Some(scope) = scope else { continue };
                        let sequenced =
                            matches!(scope, Scope::Sequenced { .. } | Scope::Seen { .. });
                        let bucket = search.bucket(scope, group.range.len());
                        (bucket, told.sequence.filter(|_| sequenced))
                    }
                    None if lost.get(kernel.name.0 as usize) == Some(&true) => continue,
                    None => {
                        let key = (kernel.name, kernel.stream, search.iteration(kernel));
                        let bucket = plain.entry(key).or_insert_with(|| {
                            let scope = search.plain(number, timeline, kernel, &by_stream);
                            search.bucket(scope, group.range.len())
                        });
                        (*bucket, None)
                    }
                };
                let order = sequence.unwrap_or_else(|| {
                    let count = counts.entry(bucket).or_default();
                    *count += 1;
                    *count
                });
                search.all.push(Found {
                    bucket,
                    order,
                    nth: 0,
                    rank,
                    kernel: at,
                });
            }
        }
    }
    search
}

impl<'a> Search<'a> {
    fn text(&mut self, text: &'a str) -> u32 {
        let next = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        *self.texts.entry(text).or_insert(next)
    }

    fn iteration(&self, kernel: &Kernel) -> Option<NonMax> {
        kernel.iteration.filter(|_| self.marked)
    }

    /// The scope of a kernel of a communicator; none of a transfer between two ranks, one of which
    /// is not told. Where all members hand something on at once, as around a ring, none goes on until its
    /// neighbours have come; a pipeline's do so in turn.
    fn scope(
        &mut self,
        rank: u32,
        kernel: &Kernel,
        told: &'a Collective,
        communicator: usize,
    ) -> Option<Scope> {
        let name = told.name.as_deref().unwrap_or_default();
        let iteration = self.iteration(kernel);
        if is_seen(told) {
            return Some(Scope::Seen { communicator });
        }
        if is_point_to_point(told) {
            let of = self.groups.communicators.get(communicator)?;
            let two = of.members.len() == 2;
            let around = name == COALESCED && of.kind != Exchange::Pp;
            let counted = Scope::Counted {
                communicator,
                name: self.text(name),
                iteration,
            };
            return match (name, told.peer) {
                ("send", Some(peer)) => Some((rank, peer)),
                ("recv", Some(peer)) => Some((peer, rank)),
                _ => None,
            }
            .map(|(from, to)| Scope::Pair {
                communicator,
                from,
                to,
                iteration,
            })
            .or(two.then_some(Scope::Two {
                communicator,
                iteration,
            }))
            .or(around.then_some(counted));
        }
        let name = self.text(name);
        Some(match told.sequence {
            Some(_) => Scope::Sequenced { communicator, name },
            None => Scope::Counted {
                communicator,
                name,
                iteration,
            },
        })
    }

    fn plain(
        &mut self,
        group: usize,
        timeline: &'a Timeline,
        kernel: &Kernel,
        by_stream: &HashSet<&str>,
    ) -> Scope {
        let name = timeline.name_of(kernel);
        let label = timeline.streams.get(usize::from(kernel.stream.0));
        let label = label.filter(|_| by_stream.contains(name));
        Scope::Plain {
            group,
            name: self.text(name),
            stream: label.map(|label| self.text(label)),
            iteration: self.iteration(kernel),
        }
    }

    fn bucket(&mut self, scope: Scope, of_group: usize) -> u32 {
        let next = u32::try_from(self.buckets.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(scope).or_insert(next);
        if number == next {
            let ranks = match scope {
                Scope::Plain { .. } => of_group,
                Scope::Pair { .. } | Scope::Seen { .. } => 2,
                Scope::Sequenced { communicator, .. }
                | Scope::Counted { communicator, .. }
                | Scope::Two { communicator, .. } => {
                    let known = self.groups.communicators.get(communicator);
                    known.map_or(0, |known| known.members.len())
                }
            };
            self.buckets.push(Bucket {
                ranks,
                counted: !matches!(scope, Scope::Sequenced { .. } | Scope::Seen { .. }),
            });
        }
        number
    }
}

/// The communication kernels of a timeline, with their places.
fn communication(timeline: &Timeline) -> impl Iterator<Item = (u32, &Kernel)> {
    let kernels = (0..).zip(&timeline.kernels);
    kernels.filter(|(_, kernel)| kernel.class.communicates())
}

/// The names of communication kernels that all ranks run on streams of the same labels.
fn by_stream(timelines: &[Timeline]) -> HashSet<&str> {
    let labels = |timeline| {
        let mut streams = BTreeSet::<(NameId, u16)>::new();
        for (_, kernel) in communication(timeline) {
            streams.insert((kernel.name, kernel.stream.0));
        }
        let mut labels = HashMap::<&str, BTreeSet<&str>>::new();
        for (name, stream) in streams {
            let label = timeline.streams.get(usize::from(stream));
            let label = label.map_or("", |label| label);
            labels
                .entry(timeline.names.get(name))
                .or_default()
                .insert(label);
        }
        labels
    };
    let mut each = timelines.iter().map(labels);
    let Some(mut alike) = each.next() else {
        return HashSet::new();
    };
    for labels in each {
        alike.retain(|name, streams| labels.get(name) == Some(streams));
    }
    alike.into_keys().collect()
}
