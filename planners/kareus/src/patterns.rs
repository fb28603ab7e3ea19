//! The recurrence of appendix B: which pieces of two nanobatches' schedules have a time and an energy of
//! their own.

use std::collections::BTreeSet;

/// An operation of a block, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// A computation.
    Computation,
    /// A communication: consecutive ones count as one.
    Communication,
}

/// A piece of a schedule, with operations named by their places in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Piece {
    /// An operation alone.
    Alone(usize),
    /// A communication beside `length` computations in a row, from the `first` on; blocks follow upon each
    /// other, so the sequence goes on in the next one.
    Overlap {
        /// The communication.
        communication: usize,
        /// The first computation beside it.
        first: usize,
        /// How many they are, communications between them not counted.
        length: usize,
    },
}

/// Every distinct piece that the recurrence P(i, j) of appendix B reaches from the beginning of two endless
/// sequences of the same block, where a communication may run beside up to `longest` computations in a row of
/// the other sequence.
///
/// A state is where each sequence stands; the recurrence's four cases are the steps from it: an operation of
/// either sequence alone, or an operation of either beside a run of the other's.
#[must_use]
pub fn pieces(block: &[Slot], longest: usize) -> BTreeSet<Piece> {
    let mut pieces = BTreeSet::new();
    if block.is_empty() {
        return pieces;
    }
    let after = |at: usize| (at + 1) % block.len();
    let (mut seen, mut next) = (BTreeSet::new(), vec![(0, 0)]);
    while let Some((i, j)) = next.pop() {
        if !seen.insert((i, j)) {
            continue;
        }
        for (one, other) in [(i, j), (j, i)] {
            pieces.insert(Piece::Alone(one));
            next.push((after(one), other));
            if block[one] == Slot::Computation {
                continue;
            }
            for (first, length, end) in runs(block, other, longest) {
                pieces.insert(Piece::Overlap {
                    communication: one,
                    first,
                    length,
                });
                next.push((after(one), end));
            }
        }
    }
    pieces
}

/// The runs of computations that begin at a place: their first, how many they are, and where the sequence
/// stands after them. Communications between do not end a run: the recurrence lets O run beside any run of O'.
fn runs(block: &[Slot], from: usize, longest: usize) -> Vec<(usize, usize, usize)> {
    let mut all = Vec::new();
    if block[from] == Slot::Communication {
        return all;
    }
    let (mut at, mut length) = (from, 0);
    while length < longest {
        if block[at] == Slot::Computation {
            length += 1;
            all.push((from, length, (at + 1) % block.len()));
        }
        at = (at + 1) % block.len();
    }
    all
}

/// How many pieces overlap, of all.
#[must_use]
pub fn overlaps(pieces: &BTreeSet<Piece>) -> usize {
    let overlap = |it: &&Piece| matches!(it, Piece::Overlap { .. });
    pieces.iter().filter(overlap).count()
}
