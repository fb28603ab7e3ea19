//! Which streams of different ranks are the same one.

use std::collections::HashMap;

use super::Sequence;
use super::lcs::Budget;

/// Streams that are compared by what ran on them; more per rank are not (real GPUs use few).
const COMPARED: usize = 64;

/// For each rank and stream its slot; streams of different ranks with one slot are the same.
pub(super) struct Pairing {
    pub(super) slots: Vec<HashMap<u16, u16>>,
}

/// How often each name ran on one stream, by name.
type Histogram = Vec<(u32, u32)>;

struct Stream<'a> {
    id: u16,
    label: &'a str,
    count: u32,
    names: Histogram,
}

/// Pairs streams by label where a label exists on all ranks and stands for similar work, and the
/// others by their work: stream numbers need not agree between ranks. The error is the rank that
/// took too much work.
pub(super) fn pair(
    sequences: &[Sequence<'_>],
    reference: usize,
    budget: &mut Budget,
) -> Result<Pairing, usize> {
    let mut streams: Vec<Vec<Stream<'_>>> = sequences.iter().map(streams_of).collect();
    let mut slots = vec![HashMap::new(); sequences.len()];
    let mut next = 0_u16;
    let Some(own) = streams.get_mut(reference).map(std::mem::take) else {
        return Ok(Pairing { slots });
    };
    let by_label: Vec<_> = streams.iter().map(|of| positions(of)).collect();
    let mut paired: Vec<Vec<bool>> = streams.iter().map(|of| vec![false; of.len()]).collect();
    let mut open = Vec::new();
    for stream in own {
        let partners: Option<Vec<usize>> = others(&streams, reference)
            .map(|(rank, theirs)| {
                let &position = by_label[rank].get(stream.label)?;
                let other = theirs.get(position).filter(|_| !paired[rank][position])?;
                let alike = 2 * common(&stream.names, &other.names);
                (alike >= stream.count.min(other.count)).then_some(position)
            })
            .collect();
        let Some(partners) = partners else {
            open.push(stream);
            continue;
        };
        let others = (0..streams.len()).filter(|&rank| rank != reference);
        for (rank, partner) in others.zip(partners) {
            paired[rank][partner] = true;
            slots[rank].insert(streams[rank][partner].id, next);
        }
        slots[reference].insert(stream.id, next);
        next = next.saturating_add(1);
    }
    open.truncate(COMPARED);
    for (slot, stream) in (next..).zip(&open) {
        slots[reference].insert(stream.id, slot);
    }
    for (theirs, paired) in streams.iter_mut().zip(&paired) {
        let mut paired = paired.iter();
        theirs.retain(|_| paired.next() == Some(&false));
    }
    for (rank, theirs) in others(&streams, reference) {
        for (mine, other) in by_work(&open, theirs, budget).ok_or(rank)? {
            slots[rank].insert(other, next.saturating_add(mine));
        }
    }
    Ok(Pairing { slots })
}

/// Where each label is, so that many streams take no search each.
fn positions<'a>(streams: &[Stream<'a>]) -> HashMap<&'a str, usize> {
    let labels = streams.iter().map(|stream| stream.label);
    labels.zip(0..).collect()
}

fn others<T>(all: &[T], reference: usize) -> impl Iterator<Item = (usize, &T)> {
    all.iter()
        .enumerate()
        .filter(move |&(rank, _)| rank != reference)
}

/// Pairs (position in `open`, id of the other stream), most common work first; `None` if that
/// takes more than the budget.
fn by_work(
    open: &[Stream<'_>],
    theirs: &[Stream<'_>],
    budget: &mut Budget,
) -> Option<Vec<(u16, u16)>> {
    let mut candidates = Vec::new();
    for (mine, stream) in (0_u16..).zip(open) {
        for other in theirs.iter().take(COMPARED) {
            budget.spend(stream.names.len() + other.names.len())?;
            let score = common(&stream.names, &other.names);
            if score > 0 {
                let foreign = other.label != stream.label;
                candidates.push((std::cmp::Reverse(score), foreign, mine, other.id));
            }
        }
    }
    candidates.sort_unstable();
    let mut pairs: Vec<(u16, u16)> = Vec::new();
    for (.., mine, other) in candidates {
        if pairs.iter().all(|&(m, o)| m != mine && o != other) {
            pairs.push((mine, other));
        }
    }
    Some(pairs)
}

/// The streams of a rank that selected kernels ran on, those with most kernels first.
fn streams_of<'a>(sequence: &Sequence<'a>) -> Vec<Stream<'a>> {
    let mut names_by_stream = vec![Vec::new(); sequence.labels.len()];
    for item in &sequence.items {
        if let Some(names) = names_by_stream.get_mut(usize::from(item.stream)) {
            names.push(item.name);
        }
    }
    let most = sequence.items.iter().map(|item| item.name + 1).max();
    let mut counts = vec![0; most.unwrap_or(0) as usize];
    let mut streams = Vec::new();
    for ((id, label), names) in (0..).zip(sequence.labels).zip(names_by_stream) {
        if !names.is_empty() {
            let count = names.len() as u32;
            streams.push(Stream {
                id,
                label,
                count,
                names: histogram(&names, &mut counts),
            });
        }
    }
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.count));
    streams
}

/// How often each name occurs. `counts` is all zeros, before and after.
fn histogram(names: &[u32], counts: &mut [u32]) -> Histogram {
    let mut distinct = Vec::new();
    for &name in names {
        let count = &mut counts[name as usize];
        if *count == 0 {
            distinct.push(name);
        }
        *count += 1;
    }
    distinct.sort_unstable();
    let count = |name: u32| (name, std::mem::take(&mut counts[name as usize]));
    distinct.into_iter().map(count).collect()
}

/// How many kernels two histograms have in common, order aside: a bound on what any alignment
/// can match.
fn common(a: &Histogram, b: &Histogram) -> u32 {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut sum = 0;
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        match x.0.cmp(&y.0) {
            std::cmp::Ordering::Less => _ = a.next(),
            std::cmp::Ordering::Greater => _ = b.next(),
            std::cmp::Ordering::Equal => {
                sum += x.1.min(y.1);
                (_, _) = (a.next(), b.next());
            }
        }
    }
    sum
}
