//! Which kernel of one GPU is which kernel of another.
//!
//! Ranks of one job run nearly the same kernels, but not quite: a rank may run some more, so
//! that the k-th kernel of one is not the k-th of another. Kernels are therefore matched by
//! aligning the sequences of their names, stream by stream (and iteration by iteration, where
//! all traces mark them), and leads are refused where too few of them match to mean anything.

mod lcs;
mod streams;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt::Write as _;

use litd_units::Nanos;

use crate::text::printable;
use crate::timeline::{Kernel, KernelClass, NonMax, Timeline};
use lcs::{Budget, lcs};

/// Steps of the alignment's innermost loop that one rank may cost over all its streams; less than
/// 0.1 s. Two sequences may then differ in about 5,000 places within one iteration.
const WORK: u64 = 1 << 24;

/// Which kernels are matched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Selection {
    /// Computation kernels (the paper's way).
    #[default]
    Computation,
    /// All kernels: computation and communication. Copies and fills are left out, whether a DMA
    /// engine or a kernel did them: they are the runtime's work, not the model's.
    All,
}

impl Selection {
    /// Whether a kernel of this class is selected.
    #[must_use]
    pub fn takes(self, class: KernelClass) -> bool {
        match self {
            Self::Computation => class == KernelClass::Computation,
            Self::All => class != KernelClass::Copy,
        }
    }
}

/// How to align.
#[derive(Debug, Clone, Copy)]
pub struct AlignOptions {
    /// Which kernels are matched.
    pub selection: Selection,
    /// The least fraction of kernels that must match, from 0 to 1.
    pub min_matched: f64,
}

impl AlignOptions {
    /// How many kernels must match where the shortest rank has `fewest`.
    pub(crate) fn needed(&self, fewest: usize) -> usize {
        ((self.min_matched * fewest as f64 - 1e-9).ceil() as usize).max(1)
    }
}

impl Default for AlignOptions {
    fn default() -> Self {
        Self {
            selection: Selection::Computation,
            min_matched: 0.8,
        }
    }
}

/// A kernel name that a rank has and others have not, or not as often.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// The kernels' name.
    pub name: String,
    /// How many of the rank's kernels of this name have no match.
    pub count: usize,
}

/// Which kernels of all ranks are the same.
#[derive(Debug, Clone)]
pub struct Alignment {
    ranks: usize,
    indices: Vec<u32>,
    /// How many kernels each timeline has that were to be matched.
    pub selected: Vec<usize>,
    selection: Selection,
}

impl Alignment {
    /// For each matched kernel its index in [`Timeline::kernels`] of every timeline, in the order
    /// of the timelines; sorted by the time at which the last rank started it.
    pub fn matched(&self) -> impl ExactSizeIterator<Item = &[u32]> + Clone {
        self.indices.chunks_exact(self.ranks.max(1))
    }

    /// One of those.
    pub(crate) fn row(&self, k: usize) -> Option<&[u32]> {
        let ranks = self.ranks.max(1);
        self.indices.get(k * ranks..(k + 1) * ranks)
    }

    /// Puts the matched kernels of the same timelines into order again, after times have changed.
    pub(crate) fn sort(&mut self, timelines: &[Timeline]) {
        let column = |rank| self.matched().filter_map(move |row| row.get(rank).copied());
        let columns = Vec::from_iter((0..self.ranks).map(|rank| Vec::from_iter(column(rank))));
        self.indices = in_time_order(&columns, timelines);
    }

    /// Kernels matched on all ranks / kernels of the rank that has fewest, of those selected.
    #[must_use]
    pub fn matched_fraction(&self) -> f64 {
        let fewest = self.selected.iter().copied().min().unwrap_or(0);
        self.matched().len() as f64 / fewest.max(1) as f64
    }

    /// How many of each timeline's selected kernels have no match.
    pub fn left_out_counts(&self) -> impl Iterator<Item = usize> {
        self.selected
            .iter()
            .map(|count| count - self.matched().len())
    }

    /// What each of the same timelines left out, most frequent first.
    #[must_use]
    pub fn left_out<T: Borrow<Timeline>>(&self, timelines: &[T]) -> Vec<Vec<LeftOut>> {
        let one = |(rank, timeline): (usize, &T)| {
            let timeline = timeline.borrow();
            let mut open = vec![true; timeline.kernels.len()];
            for row in self.matched() {
                let index = row.get(rank).map(|&index| index as usize);
                if let Some(open) = index.and_then(|index| open.get_mut(index)) {
                    *open = false;
                }
            }
            let kernels = timeline.kernels.iter().zip(open);
            let kernels =
                kernels.filter(|&(kernel, open)| open && self.selection.takes(kernel.class));
            let mut counts = HashMap::new();
            for (kernel, _) in kernels {
                *counts.entry(timeline.name_of(kernel)).or_insert(0) += 1;
            }
            let all = counts.into_iter().map(|(name, count)| LeftOut {
                name: name.into(),
                count,
            });
            let mut all = Vec::from_iter(all);
            all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
            all
        };
        timelines.iter().enumerate().map(one).collect()
    }
}

/// Why timelines could not be aligned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AlignError {
    /// One timeline or none.
    #[error("leads need at least two ranks")]
    OneRank,
    /// Nothing to match.
    #[error(
        "{file}: rank {rank} has no kernels of the kind selected (--kernels computation, or all but copies)"
    )]
    NothingSelected {
        /// Where the timeline was read from.
        file: String,
        /// Its rank.
        rank: u32,
    },
    /// The ranks ran different things.
    #[error(
        "leads are refused: {what} of the {fewest} kernels of the shortest rank match on all ranks, and at least {needed:.0} % must. {differs}{left_out}",
        needed = min_matched * 100.0
    )]
    TooFewMatched {
        /// How many match, in words.
        what: String,
        /// Selected kernels of the rank that has fewest.
        fewest: usize,
        /// The fraction asked for.
        min_matched: f64,
        /// Whether order or names differ, and what to do, in words.
        differs: String,
        /// What each rank left out, a line each.
        left_out: String,
    },
    /// The ranks ran the same names in another order, so far as the search went.
    #[error(
        "leads are refused: the kernels of rank {rank} ({file}) come in an order too different from the other ranks' to be aligned. Are these ranks of one job, in the same iterations? A shorter part may align: see --iteration and --cut-at"
    )]
    TooDifferent {
        /// Where the timeline was read from.
        file: String,
        /// Its rank.
        rank: u32,
    },
}

/// One selected kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    /// The name's number, the same on all ranks.
    pub(crate) name: u32,
    /// The kernel's index in its timeline.
    pub(crate) kernel: u32,
    pub(crate) iteration: Option<NonMax>,
    /// The stream; once streams are paired its slot, or [`ALONE`].
    pub(crate) stream: u16,
}

/// The slot of a stream that has no partner on the other ranks.
const ALONE: u16 = u16::MAX;

impl Item {
    /// The part of the sequence that it is aligned in, once streams are paired.
    fn part(&self) -> Part {
        (self.iteration, self.stream)
    }
}

/// The selected kernels of a rank.
pub(crate) struct Sequence<'a> {
    /// The rank, for messages.
    pub(crate) rank: u32,
    /// Where it comes from, for messages.
    pub(crate) source: &'a str,
    /// Its kernels; those of one stream in time order and in that of [`Item::kernel`].
    pub(crate) items: Vec<Item>,
    /// The labels of its streams.
    pub(crate) labels: &'a [Box<str>],
}

/// The selected kernels of all ranks, with names numbered alike.
pub(crate) struct Sequences<'a> {
    pub(crate) ranks: Vec<Sequence<'a>>,
    /// The names by number; every [`Item::name`] is one of them.
    pub(crate) names: Vec<&'a str>,
}

impl Sequences<'_> {
    fn too_different(&self, rank: usize) -> AlignError {
        let Sequence { source, rank, .. } = &self.ranks[rank];
        AlignError::TooDifferent {
            file: (*source).into(),
            rank: *rank,
        }
    }
}

/// Which kernels match.
pub(crate) struct Matches {
    /// The rank that the others were aligned with: the first of those with fewest kernels.
    pub(crate) reference: usize,
    /// For each rank the [`Item::kernel`]s of its matched kernels, all in one order.
    pub(crate) columns: Vec<Vec<u32>>,
    /// How many kernels each rank has that were to be matched.
    pub(crate) selected: Vec<usize>,
}

/// A part of a sequence that is aligned by itself: one stream in one iteration.
type Part = (Option<NonMax>, u16);

/// Matches the kernels of two or more timelines.
///
/// # Errors
/// Refuses timelines that are too different; the work spent to find out is bounded.
pub fn align<T: Borrow<Timeline>>(
    timelines: &[T],
    options: &AlignOptions,
) -> Result<Alignment, AlignError> {
    let sequences = sequences(timelines, options.selection);
    let matches = match_sequences(sequences, options, u64::MAX)?;
    Ok(Alignment {
        ranks: timelines.len(),
        indices: in_time_order(&matches.columns, timelines),
        selected: matches.selected,
        selection: options.selection,
    })
}

/// Matches the kernels of two or more ranks; `work` is how much all of them may cost together,
/// in steps of the innermost loops (each rank has a limit of its own besides).
pub(crate) fn match_sequences(
    mut all: Sequences<'_>,
    options: &AlignOptions,
    work: u64,
) -> Result<Matches, AlignError> {
    if all.ranks.len() < 2 {
        return Err(AlignError::OneRank);
    }
    let selected = Vec::from_iter(all.ranks.iter().map(|sequence| sequence.items.len()));
    let shortest = selected.iter().enumerate().min_by_key(|&(_, count)| count);
    let (reference, fewest) = shortest.map_or((0, 0), |(rank, &count)| (rank, count));
    if fewest == 0 {
        let Sequence { source, rank, .. } = &all.ranks[reference];
        return Err(AlignError::NothingSelected {
            file: (*source).into(),
            rank: *rank,
        });
    }
    let mut total = Budget(work);
    if let Err(rank) = split(&mut all.ranks, reference, &mut total) {
        return Err(all.too_different(rank));
    }
    let needed = options.needed(fewest);
    let bound = bound(&all, reference) as usize;
    let refuse = |count: usize, at_most: &str| {
        let (namesakes, left_out) = surplus(&all);
        let share = count as f64 / fewest as f64;
        // Of what is a bound only the share that would do is not known.
        let enough = at_most.is_empty().then_some(share);
        AlignError::TooFewMatched {
            what: format!("{at_most}{count} ({:.1} %)", 100.0 * share),
            fewest,
            min_matched: options.min_matched,
            differs: differs(namesakes, needed, enough),
            left_out,
        }
    };
    if bound < needed {
        return Err(refuse(bound, "at most "));
    }
    let columns = match_parts(&all.ranks, reference, &mut total);
    let columns = columns.map_err(|rank| all.too_different(rank))?;
    let count = columns[reference].len();
    if count < needed {
        return Err(refuse(count, ""));
    }
    Ok(Matches {
        reference,
        columns,
        selected,
    })
}

/// The selected kernels of all timelines.
fn sequences<T: Borrow<Timeline>>(timelines: &[T], selection: Selection) -> Sequences<'_> {
    let mut numbers = HashMap::new();
    let mut all = Vec::new();
    let mut ranks = Vec::new();
    for timeline in timelines.iter().map(T::borrow) {
        let number = |name| {
            *numbers.entry(name).or_insert_with(|| {
                all.push(name);
                all.len() as u32 - 1
            })
        };
        let names = Vec::from_iter(timeline.names.iter().map(number));
        let chosen = (0..)
            .zip(&timeline.kernels)
            .filter(|(_, kernel)| selection.takes(kernel.class));
        // A kernel whose name is not in the table matches nothing.
        let item = |(index, kernel): (u32, &Kernel)| {
            Some(Item {
                name: *names.get(kernel.name.0 as usize)?,
                stream: kernel.stream.0,
                kernel: index,
                iteration: kernel.iteration,
            })
        };
        ranks.push(Sequence {
            rank: timeline.rank,
            source: &timeline.source,
            items: chosen.filter_map(item).collect(),
            labels: &timeline.streams,
        });
    }
    Sequences { ranks, names: all }
}

/// Pairs streams, and puts each rank's kernels in the order of the parts they are aligned in. The
/// error is the rank that took too much work.
fn split(
    sequences: &mut [Sequence<'_>],
    reference: usize,
    total: &mut Budget,
) -> Result<(), usize> {
    let streams = streams::pair(sequences, reference, total)?;
    // A kernel of one iteration is never that of another; but that holds only if all ranks know
    // their iterations.
    let marked = sequences
        .iter()
        .all(|sequence| sequence.items.iter().any(|item| item.iteration.is_some()));
    for (sequence, slots) in sequences.iter_mut().zip(&streams.slots) {
        for item in &mut sequence.items {
            let slot = slots.get(&item.stream).copied();
            item.stream = slot.unwrap_or(ALONE);
            item.iteration = item.iteration.filter(|_| marked);
        }
        let key = |item: &Item| (item.part(), item.kernel);
        sequence.items.sort_unstable_by_key(key);
    }
    Ok(())
}

/// The parts of a rank's kernels that have a partner on the other ranks.
fn parts<'a>(of: &'a Sequence<'_>) -> impl Iterator<Item = (Part, &'a [Item])> {
    let parts = of.items.chunk_by(|a, b| a.part() == b.part());
    let named = parts.filter_map(|items| Some((items.first()?.part(), items)));
    named.filter(|((_, slot), _)| *slot != ALONE)
}

/// No more kernels than this can match on all ranks: names and their counts tell that in linear
/// time, before any order is looked at.
fn bound(all: &Sequences<'_>, reference: usize) -> u32 {
    // Per name: how many can still match, and how many the rank at hand has.
    let mut counts = vec![(0_u32, 0_u32); all.names.len()];
    let mut sum = 0;
    let names = |items: &'_ [Item]| Vec::from_iter(items.iter().map(|item| item.name as usize));
    for (part, own) in parts(&all.ranks[reference]) {
        let own = names(own);
        own.iter().for_each(|&name| counts[name].0 += 1);
        for rank in (0..all.ranks.len()).filter(|&rank| rank != reference) {
            let theirs = names(items_of(&all.ranks[rank], part));
            theirs.iter().for_each(|&name| counts[name].1 += 1);
            for &name in &own {
                counts[name].0 = counts[name].0.min(counts[name].1);
            }
            theirs.iter().for_each(|&name| counts[name].1 = 0);
        }
        for &name in &own {
            sum += std::mem::take(&mut counts[name].0);
        }
    }
    sum
}

/// A part's kernels, which stand together.
fn items_of<'a>(sequence: &'a Sequence<'_>, part: Part) -> &'a [Item] {
    let items = &sequence.items;
    let from = items.partition_point(|item| item.part() < part);
    let to = items.partition_point(|item| item.part() <= part);
    items.get(from..to).unwrap_or_default()
}

/// For each rank the indices of its matched kernels, in one order. What has matched so far is
/// aligned with one rank after the other, so that the ranks agree on which of several alike
/// kernels is meant. The error is the rank that took too much work.
fn match_parts(
    sequences: &[Sequence<'_>],
    reference: usize,
    total: &mut Budget,
) -> Result<Vec<Vec<u32>>, usize> {
    let mut budgets = Vec::from_iter(sequences.iter().map(|_| Budget(WORK)));
    let mut columns = vec![Vec::new(); sequences.len()];
    let split = |items: &[Item]| -> (Vec<u32>, Vec<u32>) {
        items.iter().map(|item| (item.name, item.kernel)).unzip()
    };
    let pick = |from: &[u32], positions: &[u32]| -> Vec<u32> {
        let picked = positions
            .iter()
            .filter_map(|&position| from.get(position as usize));
        picked.copied().collect()
    };
    for (part, own) in parts(&sequences[reference]) {
        let (mut names, kernels) = split(own);
        let mut matched = vec![(reference, kernels)];
        for rank in (0..sequences.len()).filter(|&rank| rank != reference) {
            let (their_names, their_kernels) = split(items_of(&sequences[rank], part));
            let pairs = total
                .within(&mut budgets[rank], |budget| {
                    lcs(&names, &their_names, budget)
                })
                .ok_or(rank)?;
            let (kept, theirs): (Vec<u32>, Vec<u32>) = pairs.into_iter().unzip();
            if kept.len() < names.len() {
                names = pick(&names, &kept);
                for (_, kernels) in &mut matched {
                    *kernels = pick(kernels, &kept);
                }
            }
            matched.push((rank, pick(&their_kernels, &theirs)));
        }
        for (rank, kernels) in matched {
            columns[rank].extend(kernels);
        }
    }
    Ok(columns)
}

/// The matched kernels row by row, sorted by the latest start over the ranks, so that the last
/// one is the last.
fn in_time_order<T: Borrow<Timeline>>(columns: &[Vec<u32>], timelines: &[T]) -> Vec<u32> {
    let mut order = vec![(Nanos(i64::MIN), 0_u32); columns.first().map_or(0, Vec::len)];
    for (column, timeline) in columns.iter().zip(timelines) {
        for ((row, entry), &index) in (0..).zip(&mut order).zip(column) {
            let kernel = timeline.borrow().kernels.get(index as usize);
            *entry = (
                kernel.map_or(entry.0, |kernel| entry.0.max(kernel.start)),
                row,
            );
        }
    }
    order.sort_unstable();
    let row = |&(_, row): &(Nanos, u32)| {
        columns
            .iter()
            .filter_map(move |column| column.get(row as usize).copied())
    };
    order.iter().flat_map(row).collect()
}

/// What keeps kernels from matching where so many have namesakes on all ranks and so many are needed, and how
/// they are compared all the same.
fn differs(namesakes: usize, needed: usize, enough: Option<f64>) -> String {
    let what = match namesakes >= needed {
        true => format!(
            "Names are not what differs, but their order or their streams: all ranks have {namesakes} of the same names. Ranks that run them in another order are no measure of each other."
        ),
        false => format!(
            "Names differ: only {namesakes} are of the same names on all ranks. Are these ranks of one job, in the same iterations?"
        ),
    };
    let lower = match enough.map(|share| (100.0 * share).floor() / 100.0) {
        Some(share) if share > 0.0 => format!(" {share:.2}"),
        _ => ", with a lower share,".into(),
    };
    format!("{what} --min-matched{lower} compares them all the same, and names no cause.")
}

/// How many kernels have a namesake on all ranks, and what each rank has more of than the rank that has least of
/// it, a line per rank.
fn surplus(all: &Sequences<'_>) -> (usize, String) {
    let count = |sequence: &Sequence<'_>| {
        let mut counts = vec![0_u32; all.names.len()];
        for item in &sequence.items {
            counts[item.name as usize] += 1;
        }
        counts
    };
    // Counted again below rather than kept: there may be many names and many ranks.
    let mut least = vec![u32::MAX; all.names.len()];
    for sequence in &all.ranks {
        for (least, count) in least.iter_mut().zip(count(sequence)) {
            *least = count.min(*least);
        }
    }
    let mut text = String::new();
    for sequence in &all.ranks {
        let counts = count(sequence).into_iter().zip(&least).zip(&all.names);
        let more = counts.map(|((count, least), name)| ((count - least) as usize, *name));
        let more = Vec::from_iter(more.filter(|&(surplus, _)| surplus > 0));
        let rank = sequence.rank;
        let _ = match more.len() {
            0 => write!(text, "\n  rank {rank} has none that the others lack"),
            _ => write!(text, "\n  rank {rank} alone has {}", words(more)),
        };
    }
    (least.iter().map(|&least| least as usize).sum(), text)
}

/// The kernels left out in one line: how many, and the most frequent names.
#[must_use]
pub fn in_words(left_out: &[LeftOut]) -> String {
    words(
        left_out
            .iter()
            .map(|LeftOut { name, count }| (*count, name.as_str()))
            .collect(),
    )
}

fn words(mut kinds: Vec<(usize, &str)>) -> String {
    const SHOWN: usize = 3;
    let total: usize = kinds.iter().map(|kind| kind.0).sum();
    let hidden = kinds.len().saturating_sub(SHOWN);
    let frequent_first = |kind: &(usize, &str)| std::cmp::Reverse(kind.0);
    if hidden > 0 {
        // There may be very many: only those shown are sorted.
        kinds.select_nth_unstable_by_key(SHOWN, frequent_first);
        kinds.truncate(SHOWN);
    }
    kinds.sort_by_key(frequent_first);
    let mut shown = Vec::from_iter(kinds.iter().map(|(count, name)| {
        let short = shortened(name);
        format!("{count} × {short}")
    }));
    if hidden > 0 {
        shown.push(format!(
            "{hidden} more {}",
            if hidden == 1 { "name" } else { "names" }
        ));
    }
    let noun = if total == 1 { "kernel" } else { "kernels" };
    format!("{total} {noun}: {}", shown.join(", "))
}

/// A name's beginning and end, fit for a message: kernels' names are long, and alike at the
/// beginning.
fn shortened(name: &str) -> String {
    const HEAD: usize = 40;
    const TAIL: usize = 20;
    let cut = |at: usize| name.char_indices().nth(at).map(|(byte, _)| byte);
    let length = name.chars().count();
    match (cut(HEAD), cut(length.saturating_sub(TAIL))) {
        (Some(head), Some(tail)) if length > HEAD + TAIL => {
            let part = |range| printable(name.get(range).unwrap_or_default());
            format!("{}…{}", part(0..head), part(tail..name.len()))
        }
        _ => printable(name),
    }
}
