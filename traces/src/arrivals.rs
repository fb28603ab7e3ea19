//! When ranks come to the collectives of one communicator, and how long they wait there, from what each GPU's own clock
//! says of them. Clocks of GPUs are set right by the ends of collectives, as those of recorded ranks are.

use std::collections::BTreeMap;

use litd_units::Nanos;

use crate::leads::{LeadValues, last_in};
use crate::skew::{self, Skew, Sync, ends_together};

/// A collective as one rank saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The function, such as `AllReduce`.
    pub function: &'static str,
    /// Which one of these it is among those of the communicator, the same number on all ranks.
    pub sequence: u64,
    /// Its size, the same on all ranks.
    pub bytes: u64,
    /// When its kernel began, by the rank's clock.
    pub start: Nanos,
    /// When it ended, by the same clock.
    pub end: Nanos,
}

/// Why there are no leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoArrivals {
    /// A rank alone waits for nobody that is seen.
    #[error("{ranks} of the communicator's ranks recorded collectives; at least two are needed")]
    TooFewRanks {
        /// Those that do.
        ranks: usize,
    },
    /// Without collectives that end at once, nothing tells how far the clocks are apart.
    #[error(
        "the ranks have {collectives} collectives in common that end on all at once: too few to tell how far their \
         clocks are apart"
    )]
    ClocksUnknown {
        /// So many.
        collectives: usize,
    },
    /// Ends that are this far from agreeing are not those of the same collectives, or a clock jumped.
    #[error(
        "the ends of the same collectives disagree by {by} about how far the ranks' clocks are apart"
    )]
    ClocksDisagree {
        /// The median disagreement of the worst rank.
        by: Nanos,
    },
}

/// More disagreement than real nodes show: ends of one collective lie up to some 0.3 ms apart there.
const LOOSEST: Nanos = Nanos(1_000_000);

/// What tells collectives of a communicator apart: function, sequence number and size.
type Key = (&'static str, u64, u64);

/// The collectives that all of some ranks ran, on one clock.
#[derive(Debug, Clone)]
pub struct Arrivals {
    /// How the ranks' clocks were apart.
    skew: Skew,
    ranks: usize,
    /// The function of each collective, in the order of their last arrivals.
    functions: Vec<&'static str>,
    /// A row for each, with an entry per rank.
    rows: Vec<Sync>,
}

/// Matches the collectives of ranks of one communicator by function, sequence number and size, and puts them on one
/// clock. A window should be short, an iteration or a second: what clocks drift apart in it is not seen.
///
/// # Errors
/// When there are no two ranks, or nothing sets their clocks right.
pub fn arrivals(ranks: &[Vec<Arrival>]) -> Result<Arrivals, NoArrivals> {
    arrivals_by(ranks, ranks)
}

/// The same, where other collectives of the same ranks, such as those of several iterations, set the clocks right.
///
/// # Errors
/// When there are no two ranks, or nothing sets their clocks right.
pub fn arrivals_by(
    ranks: &[Vec<Arrival>],
    clocks: &[Vec<Arrival>],
) -> Result<Arrivals, NoArrivals> {
    let count = ranks.len().min(clocks.len());
    if count < 2 || ranks.len() != clocks.len() {
        return Err(NoArrivals::TooFewRanks { ranks: count });
    }
    let skew = skew_of(&matched(clocks), clocks.len());
    if !skew.estimated {
        return Err(NoArrivals::ClocksUnknown {
            collectives: skew.collectives,
        });
    }
    let by = skew.uncertainty_ns.iter().copied().max();
    if let Some(by) = by.filter(|&by| by > LOOSEST) {
        return Err(NoArrivals::ClocksDisagree { by });
    }
    let mut rows = Vec::from_iter(matched(ranks).into_iter().map(|((function, ..), mut row)| {
        for (sync, &ahead) in row.iter_mut().zip(&skew.ahead_ns) {
            *sync = Sync {
                start: sync.start - ahead,
                end: sync.end - ahead,
            };
        }
        (function, row)
    }));
    rows.sort_by_key(|(_, row)| row.iter().map(|it| it.start).max());
    Ok(Arrivals {
        skew,
        ranks: ranks.len(),
        functions: rows.iter().map(|(function, _)| *function).collect(),
        rows: rows.into_iter().flat_map(|(_, row)| row).collect(),
    })
}

/// A rank's collectives without those whose kernels began at once. NCCL keeps 64 time stamps for each channel: if its
/// thread comes too late, it reads a later collective's for an earlier one. Nothing tells to which of the two it
/// belongs.
fn told_once(arrivals: &[Arrival]) -> Vec<Arrival> {
    let mut told = arrivals.to_vec();
    told.sort_by_key(|it| it.start);
    let groups = told.chunk_by(|a, b| a.start == b.start);
    let single = groups.filter(|group| group.len() == 1);
    single
        .flatten()
        .filter(|it| it.start <= it.end)
        .copied()
        .collect()
}

/// The collectives that each rank tells of once, with an entry per rank.
fn matched(ranks: &[Vec<Arrival>]) -> BTreeMap<Key, Vec<Sync>> {
    let mut rows = BTreeMap::<Key, Vec<(usize, Sync)>>::new();
    for (rank, arrivals) in ranks.iter().enumerate() {
        for arrival in told_once(arrivals) {
            let key = (arrival.function, arrival.sequence, arrival.bytes);
            let (start, end) = (arrival.start, arrival.end);
            rows.entry(key)
                .or_default()
                .push((rank, Sync { start, end }));
        }
    }
    rows.retain(|_, row| row.iter().map(|it| it.0).eq(0..ranks.len()));
    let plain =
        |(key, row): (_, Vec<(usize, Sync)>)| (key, row.into_iter().map(|it| it.1).collect());
    rows.into_iter().map(plain).collect()
}

/// How the clocks are apart, by the collectives that end everywhere at once.
fn skew_of(matched: &BTreeMap<Key, Vec<Sync>>, ranks: usize) -> Skew {
    let mut lists = vec![skew::Lists::new(); ranks];
    for ((function, ..), row) in matched {
        let Some(kind) = ends_together(function) else {
            continue;
        };
        for (lists, &sync) in lists.iter_mut().zip(row) {
            lists.entry((kind, None)).or_default().push(sync);
        }
    }
    skew::estimate(&skew::rows(&lists))
}

impl Arrivals {
    /// How the ranks' clocks were apart, and how much collectives disagree about it: shorter leads mean nothing.
    #[must_use]
    pub fn skew(&self) -> &Skew {
        &self.skew
    }

    /// The collectives that all ranks ran.
    #[must_use]
    pub fn collectives(&self) -> usize {
        self.functions.len()
    }

    /// The entries of each collective, one per rank.
    fn each(&self) -> impl Iterator<Item = &[Sync]> {
        self.rows.chunks_exact(self.ranks)
    }

    /// By how much a rank came earlier to each collective than the last.
    fn leads_of(&self, rank: usize) -> Vec<Nanos> {
        let lead = |row: &[Sync]| {
            let last = row.iter().map(|it| it.start).max()?;
            Some(last - row.get(rank)?.start)
        };
        self.each().filter_map(lead).collect()
    }

    /// The lead values of each rank, at collectives.
    #[must_use]
    pub fn leads(&self) -> Vec<LeadValues> {
        let each = (0..self.ranks).map(|rank| LeadValues::of(&self.leads_of(rank)));
        each.collect()
    }

    /// To how many collectives each rank came last; ties count for all.
    #[must_use]
    pub fn last_in(&self) -> Vec<usize> {
        (0..self.ranks)
            .map(|rank| last_in(&self.leads_of(rank)))
            .collect()
    }

    /// How long each rank waits in these collectives together.
    #[must_use]
    pub fn waits(&self) -> Vec<Nanos> {
        let mut waits = vec![Nanos::ZERO; self.ranks];
        for row in self.each() {
            let each = in_one(row, |it| (it.start, it.end));
            for (wait, one) in waits.iter_mut().zip(each) {
                *wait += one;
            }
        }
        waits
    }

    /// The pieces that a hook would tell of if it timed arrivals at collectives alone, for [`Live`](crate::Live) and
    /// ingest. A piece lasts from one arrival to the next, whatever is waited for in it.
    #[must_use]
    pub fn pieces(&self, rank: usize) -> Vec<Piece> {
        let own = self.each().filter_map(|row| row.get(rank).copied());
        let mut own = Vec::from_iter(self.functions.iter().zip(own));
        own.sort_by_key(|(_, it)| it.start);
        let next = own.iter().skip(1).map(|(_, it)| it.start);
        let ends = Vec::from_iter(next.chain(own.last().map(|(_, it)| it.end)));
        let piece = |((function, it), end): (&(&&str, Sync), Nanos)| Piece {
            // As a collective's kernel it would count as communication.
            name: format!("from {function}"),
            start: it.start,
            duration: end - it.start,
        };
        own.iter().zip(ends).map(piece).collect()
    }
}

/// What lies between two arrivals of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// A name that says where it begins, and that is no collective's.
    pub name: String,
    /// When it begins, on the clock of all ranks.
    pub start: Nanos,
    /// How long it is.
    pub duration: Nanos,
}

/// How long the rank of each entry waits in a collective: until the last has come, and no longer
/// than its kernel took more than the shortest. A sender that need not wait does not.
pub(crate) fn in_one<'a, T>(
    row: &'a [T],
    span: impl Fn(&T) -> (Nanos, Nanos) + Copy + 'a,
) -> impl Iterator<Item = Nanos> + 'a {
    let length = move |entry: &T| span(entry).1 - span(entry).0;
    let last = row.iter().map(|entry| span(entry).0).max();
    let shortest = row.iter().map(length).min();
    let (last, shortest) = (last.unwrap_or_default(), shortest.unwrap_or_default());
    row.iter().map(move |entry| {
        let longer = length(entry) - shortest;
        (last - span(entry).0).min(longer).max(Nanos::ZERO)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignOptions, Live, LiveKernel, NameTable, Shows, class_of};

    /// What a rank tells whose clock is ahead by so much and that comes late by so much.
    fn told(ahead: i64, late: i64, functions: &[&'static str]) -> Vec<Arrival> {
        let arrival = |(sequence, function): (u64, &&'static str)| {
            let from = 10_000_000 * sequence as i64 + ahead;
            let length = 200_000 + 10_000 * (sequence as i64 % 3);
            Arrival {
                function,
                sequence,
                bytes: 1 << 20,
                start: Nanos(from + late),
                end: Nanos(from + 2_000_000 + length),
            }
        };
        (0..).zip(functions).map(arrival).collect()
    }

    fn leads(ranks: &[Vec<Arrival>]) -> Vec<i64> {
        let found = arrivals(ranks).unwrap();
        found.leads().iter().map(|it| it.max_ns.0).collect()
    }

    #[test]
    fn a_clock_that_is_ahead_is_no_lead() {
        let all = ["AllReduce"; 9];
        let ranks = [
            told(0, 0, &all),
            told(-123_456_789, 0, &all),
            told(55_000, 700_000, &all),
        ];
        assert_eq!(leads(&ranks), [700_000, 700_000, 0]);
        let found = arrivals(&ranks).unwrap();
        assert_eq!(found.last_in(), [0, 0, 9]);
        assert_eq!(
            found.waits(),
            [Nanos(9 * 700_000), Nanos(9 * 700_000), Nanos::ZERO]
        );
    }

    #[test]
    fn the_loop_sees_the_same_leads_in_the_pieces() {
        let functions = [
            "AllReduce",
            "AllGather",
            "Broadcast",
            "ReduceScatter",
            "AlltoAll",
        ];
        let all = Vec::from_iter(functions.into_iter().cycle().take(40));
        let ranks = [
            told(0, 0, &all),
            told(-9_876_543, 640_000, &all),
            told(55_000, 700_000, &all),
        ];
        let found = arrivals(&ranks).unwrap();
        let mut names = NameTable::default();
        let mut live = Live::new(ranks.len(), AlignOptions::default());
        live.tells_pieces();
        for rank in 0..ranks.len() {
            let kernel = |piece: Piece| LiveKernel {
                class: class_of(&piece.name),
                name: names.intern(&piece.name),
                stream: 0,
                limit: None,
                start: piece.start,
                duration: piece.duration,
            };
            let pieces = Vec::from_iter(found.pieces(rank).into_iter().map(kernel));
            live.add(rank, pieces).unwrap();
        }
        let report = live.finish(&names).unwrap();
        assert_eq!((report.matched, report.shows), (40, Shows::Pieces));
        assert_eq!(report.leads, found.leads());
        assert_eq!(report.last_in, [0, 0, 40]);
        assert_eq!(report.pace, [None; 3]);
    }

    #[test]
    fn without_collectives_that_end_at_once_nothing_is_said() {
        let all = ["Broadcast"; 40];
        let ranks = [told(0, 0, &all), told(1, 2, &all)];
        let unknown = |collectives| NoArrivals::ClocksUnknown { collectives };
        assert_eq!(arrivals(&ranks).unwrap_err(), unknown(0));
        let few = ["AllReduce"; 4];
        let ranks = [told(0, 0, &few), told(1, 2, &few)];
        assert_eq!(arrivals(&ranks).unwrap_err(), unknown(4));
        assert_eq!(
            arrivals(&ranks[..1]).unwrap_err(),
            NoArrivals::TooFewRanks { ranks: 1 }
        );
        assert_eq!(
            arrivals(&[]).unwrap_err(),
            NoArrivals::TooFewRanks { ranks: 0 }
        );
    }

    #[test]
    fn only_what_all_ranks_tell_once_is_compared() {
        let mut ranks = [
            told(0, 0, &["AllGather"; 20]),
            told(900_000, 300_000, &["AllGather"; 20]),
        ];
        // One is lost; one comes twice; of one the time stamp is that of a later one; one ends before it begins.
        ranks[0].remove(3);
        let twice = Arrival {
            start: Nanos(1),
            ..ranks[1][5]
        };
        ranks[1].push(twice);
        ranks[0][10].start = ranks[0][15].start;
        ranks[1][18].end = ranks[1][18].start - Nanos(1);
        let found = arrivals(&ranks).unwrap();
        // In rank 0, places behind the one that is lost are one lower than their numbers: 11 and 16 go with 10 and 15.
        assert_eq!(found.collectives(), 20 - 5);
        assert_eq!(leads(&ranks), [300_000, 0]);
    }

    #[test]
    fn collectives_that_are_not_the_same_are_not_compared() {
        // Of rank 1 two collectives were not counted: its numbers are those of later ones on rank 0, and so it would
        // always be early.
        let mut ranks = [
            told(0, 0, &["AllReduce"; 30]),
            told(0, 0, &["AllReduce"; 30]),
        ];
        for (rank, shift) in ranks.iter_mut().zip([0, 2]) {
            for arrival in rank {
                let number = arrival.sequence + shift;
                let from = Nanos((number * number) as i64 * 1_000_000);
                arrival.start = from;
                arrival.end = from + Nanos(500_000);
            }
        }
        let disagree = arrivals(&ranks).unwrap_err();
        assert!(matches!(disagree, NoArrivals::ClocksDisagree { by } if by > Nanos(10_000_000)));
        // Where sizes show that they differ, they don't match.
        for arrival in &mut ranks[1] {
            arrival.bytes = 7;
        }
        let unknown = NoArrivals::ClocksUnknown { collectives: 0 };
        assert_eq!(arrivals(&ranks).unwrap_err(), unknown);
    }
}
