//! The block that a sequence of operations repeats (section 4.2), for sequences that come from a trace.

use crate::partitioning::Operation;

/// Where a sequence repeats itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeating {
    /// The first operation of the first repetition.
    pub start: usize,
    /// How many operations are repeated.
    pub length: usize,
    /// How often they are there, one after another.
    pub repetitions: usize,
}

/// A block that is there fewer times is no pattern: two of anything may be chance.
const LEAST: usize = 3;

/// The repetition that covers most of the sequence, of equal ones the shortest and first; only what contains both a
/// computation and a collective counts. Operations are the same if their names, or their kinds of collective and
/// groups, are; what they ask of a GPU may vary. `None` where nothing is there three times.
///
/// Whatever stands before the first repetition and after the last (embedding, output layer) belongs to no partition.
/// Where the cycle is cut does not matter to [`partitions`](crate::partitions).
#[must_use]
pub fn repeating(operations: &[Operation]) -> Option<Repeating> {
    let count = operations.len();
    let mut best: Option<Repeating> = None;
    for length in 2..=count / LEAST {
        let mut run = 0;
        for at in 0..count - length {
            let goes_on = same(&operations[at], &operations[at + length]);
            run = if goes_on { run + 1 } else { 0 };
            let repetitions = run / length + 1;
            let start = (at + 1).saturating_sub(run);
            let found = Repeating {
                start,
                length,
                repetitions,
            };
            let more = best.is_none_or(|it| covered(&found) > covered(&it));
            if repetitions >= LEAST && more && overlaps(&operations[start..start + length]) {
                best = Some(found);
            }
        }
    }
    best
}

fn covered(it: &Repeating) -> usize {
    it.length * it.repetitions
}

/// Whether something could overlap.
fn overlaps(block: &[Operation]) -> bool {
    let is_collective = |it: &Operation| matches!(it, Operation::Collective(_));
    block.iter().any(is_collective) && !block.iter().all(is_collective)
}

fn same(one: &Operation, other: &Operation) -> bool {
    match (one, other) {
        (Operation::Computation { name: a, .. }, Operation::Computation { name: b, .. }) => a == b,
        (Operation::Collective(a), Operation::Collective(b)) => {
            a.kind == b.kind && a.group == b.group
        }
        _ => false,
    }
}
