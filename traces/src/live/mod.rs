//! The analysis of one profiled iteration whose ranks arrive one after the other, as a daemon
//! gets them: the numbers of [`analyse`](crate::analyse) with little left to do when the last
//! rank is in, from little memory.
//!
//! Ranks of one job run mostly the very same kernels on each stream. As long as they do, a rank
//! that arrives is compared with the first one and its share of all results is computed at once.
//! Which rank the others are aligned with is known only when all are in (it is the one with
//! fewest kernels), so ranks that differ are aligned then, within a limit on the work.

mod rank;
mod waits;
mod workload;

use std::sync::Arc;

use litd_diagnosis::Marks;
use litd_units::Nanos;

use crate::align::{AlignError, AlignOptions, Matches, Sequence, Sequences, match_sequences};
use crate::leads::{LeadValues, last_in};
use crate::limit::Limit;
use crate::marks::marks;
use crate::pace::{Overlap, Pace, paces};
use crate::skew;
use crate::timeline::{KernelClass, NameId, NameTable};
pub use waits::{Reach, Waits};

use rank::{Rank, Shape};

/// Steps of the alignment's innermost loops that all ranks of one sample may cost together. With
/// all else that depends on the sample's size, less than 0.1 s.
const WORK: u64 = 1 << 22;

/// One execution of one kernel, as a hook reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveKernel {
    /// Its name, in the table that all ranks of the job share.
    pub name: NameId,
    /// The number of the stream it ran on; the label of that stream is this number.
    pub stream: u32,
    /// What kind of work it is.
    pub class: KernelClass,
    /// What limits it, as [`limit_of`](crate::limit_of()) tells by its name.
    pub limit: Option<Limit>,
    /// When it started, on a clock that all ranks share.
    pub start: Nanos,
    /// How long it took; below zero counts as zero.
    pub duration: Nanos,
}

/// Why a rank's kernels were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// A position that the job does not have.
    #[error("rank {rank} reported kernels, but its job has {ranks} ranks; leave them out")]
    NoSuchRank {
        /// The position.
        rank: usize,
        /// How many there are.
        ranks: usize,
    },
    /// One rank twice.
    #[error("rank {rank} reported the same iteration twice; keep what came first")]
    Twice {
        /// Its position.
        rank: usize,
    },
    /// More than fits the limit.
    #[error("rank {rank} reported more than {most} kernels in one iteration; sample a shorter one")]
    TooManyKernels {
        /// Its position.
        rank: usize,
        /// The limit.
        most: usize,
    },
    /// On more streams than GPUs have a use for.
    #[error("rank {rank} reported kernels on more than {most} streams; leave it out")]
    TooManyStreams {
        /// Its position.
        rank: usize,
        /// The limit.
        most: usize,
    },
}

/// What a sample can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shows {
    /// How long kernels took, and when they started.
    #[default]
    Kernels,
    /// When pieces of the computation began. A piece is as long as its kernels and whatever they waited for: by that
    /// no GPU's pace is known.
    Pieces,
}

/// What [`Live`] finds. Vectors are in the order of the ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveReport {
    /// Kernels matched on all ranks.
    pub matched: usize,
    /// Those / selected kernels of the rank that has fewest.
    pub matched_fraction: f64,
    /// What it can show: of pieces there is neither pace nor slowness.
    pub shows: Shows,
    /// Lead values.
    pub leads: Vec<LeadValues>,
    /// In how many matched kernels each rank starts last; ties count for all.
    pub last_in: Vec<usize>,
    /// Union of each rank's kernels / (first start to last end over all ranks).
    pub busy: Vec<f64>,
    /// See [`RankReport::pace`](crate::RankReport::pace).
    pub pace: Vec<Option<f64>>,
    /// How long each rank's kernels of constant overlap take together, relative to the median
    /// rank; `None` where those are too few.
    pub slowness: Vec<Option<f64>>,
    /// What may tell why a rank is late.
    pub marks: Vec<Marks>,
    /// What the job runs: a hash of the names of the computation kernels in their order on each
    /// stream, of the first of the ranks that have fewest kernels. The same on every machine, in
    /// every run and however streams are numbered.
    pub workload: u64,
}

/// What was found of the matched kernels on the ranks that are in.
#[derive(Debug)]
struct Rows {
    /// Per kernel its latest start.
    latest: Vec<Nanos>,
    overlaps: Vec<Overlap>,
}

impl Rows {
    fn new(kernels: usize) -> Self {
        Self {
            latest: vec![Nanos(i64::MIN); kernels],
            overlaps: vec![Overlap::NONE; kernels],
        }
    }

    /// Adds what one rank did to all kernels.
    fn add(&mut self, starts: &[Nanos], overlaps: impl Iterator<Item = Option<f64>>) {
        for (latest, &start) in self.latest.iter_mut().zip(starts) {
            *latest = start.max(*latest);
        }
        for (overlap, ratio) in self.overlaps.iter_mut().zip(overlaps) {
            *overlap = overlap.with(ratio);
        }
    }

    /// The memory it takes.
    fn bytes(&self) -> usize {
        self.latest.capacity() * size_of::<Nanos>()
            + self.overlaps.capacity() * size_of::<Overlap>()
    }

    /// The kernel that starts last; of several that start at once the last in this order.
    fn last(&self, order: impl Iterator<Item = usize>) -> usize {
        order.max_by_key(|&k| self.latest.get(k)).unwrap_or(0)
    }
}

/// One iteration of one job. Ranks are named by their position, from 0.
#[derive(Debug)]
pub struct Live {
    options: AlignOptions,
    ranks: Vec<Option<Rank>>,
    /// What the rank that came first ran.
    first: Option<Arc<Shape>>,
    /// A row per kernel of that rank, as long as all ranks ran the very same.
    rows: Option<Rows>,
    shows: Shows,
}

impl Live {
    /// Kernels of all classes that one rank may report.
    pub const MOST_KERNELS: usize = 1 << 17;
    /// Streams that they may be on.
    pub const MOST_STREAMS: usize = 1 << 10;

    /// Waits for so many ranks.
    #[must_use]
    pub fn new(ranks: usize, options: AlignOptions) -> Self {
        Self {
            options,
            ranks: (0..ranks).map(|_| None).collect(),
            first: None,
            rows: None,
            shows: Shows::Kernels,
        }
    }

    /// A rank says that what it reports are pieces that it has timed.
    pub fn tells_pieces(&mut self) {
        self.shows = Shows::Pieces;
    }

    /// Takes the kernels of the rank at this position, in any order (those that start and end
    /// alike are taken to be in order).
    ///
    /// # Errors
    /// Refuses a position that there is not or that was taken before, and more kernels or streams
    /// than [`Self::MOST_KERNELS`] and [`Self::MOST_STREAMS`]; nothing changes then.
    pub fn add(
        &mut self,
        rank: usize,
        kernels: impl IntoIterator<Item = LiveKernel>,
    ) -> Result<(), LiveError> {
        let ranks = self.ranks.len();
        let Some(place) = self.ranks.get_mut(rank) else {
            return Err(LiveError::NoSuchRank { rank, ranks });
        };
        if place.is_some() {
            return Err(LiveError::Twice { rank });
        }
        let mut taken = Rank::read(rank, kernels, self.options.selection)?;
        match &self.first {
            Some(first) if *first == taken.shape => taken.shape = first.clone(),
            Some(_) => self.rows = None,
            None => {
                self.rows = Some(Rows::new(taken.starts.len()));
                self.first = Some(taken.shape.clone());
            }
        }
        if let Some(rows) = &mut self.rows {
            rows.add(&taken.starts, taken.overlaps());
        }
        *place = Some(taken);
        Ok(())
    }

    /// How many ranks have not reported yet.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.ranks.iter().filter(|rank| rank.is_none()).count()
    }

    /// The memory that the sample takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let ranks = self.ranks.iter().flatten();
        let own = |rank: &Rank| {
            let first = self.first.as_ref();
            let shared = first.is_some_and(|first| Arc::ptr_eq(first, &rank.shape));
            rank.bytes() + if shared { 0 } else { rank.shape.bytes() }
        };
        let rows = self.rows.as_ref().map_or(0, Rows::bytes);
        let first = self.first.as_ref().map_or(0, |shape| shape.bytes());
        let places = self.ranks.capacity() * size_of::<Option<Rank>>();
        places + ranks.map(own).sum::<usize>() + rows + first
    }

    /// The numbers that [`analyse`](crate::analyse) computes from the same kernels. A rank that is
    /// missing counts as one without kernels.
    ///
    /// # Errors
    /// When leads are refused; see [`AlignError`]. Ranks that differ much and in many places are
    /// refused even where `analyse` would take its time to align them.
    pub fn finish(mut self, names: &NameTable) -> Result<LiveReport, AlignError> {
        let whole = self.missing() == 0 && self.ranks.len() > 1;
        let rows = self.rows.take().filter(|rows| {
            let first = self.first.as_ref();
            let known = first.is_some_and(|shape| shape.known(names.len()));
            whole && known && rows.latest.len() >= self.options.needed(rows.latest.len())
        });
        let options = self.options;
        let mut ranks = Vec::from_iter(self.ranks.into_iter().map(Option::unwrap_or_default));
        // Nearly all samples have collectives, and need no look at their kernels.
        let are_cut = || ranks.iter().all(|rank| rank.is_cut() == Some(true));
        let shows = match !ranks.iter().any(Rank::communicates) && are_cut() {
            true => Shows::Pieces,
            false => self.shows,
        };
        let aligned = match rows {
            Some(rows) => Aligned::equal(&ranks, rows),
            None => Aligned::search(&mut ranks, names, &options)?,
        };
        Ok(aligned.report(&ranks, names, shows))
    }
}

/// Matched kernels: the k-th of the rows is the k-th kernel that each rank holds.
struct Aligned {
    rows: Rows,
    /// What limits each of them.
    limits: Vec<Option<Limit>>,
    /// The one that started last, on the last rank to start it.
    last: usize,
    /// The rank that the others were aligned with.
    reference: usize,
    /// How many selected kernels that rank had.
    fewest: usize,
}

impl Aligned {
    /// Ranks that ran the very same.
    fn equal(ranks: &[Rank], rows: Rows) -> Self {
        let order = ranks.first().into_iter().flat_map(Rank::by_work);
        Self {
            last: rows.last(order),
            reference: 0,
            fewest: rows.latest.len(),
            limits: ranks
                .first()
                .map_or(Vec::new(), |rank| rank.shape.limits.clone()),
            rows,
        }
    }

    /// Ranks that differ: leaves them with the kernels that match.
    fn search(
        ranks: &mut [Rank],
        names: &NameTable,
        options: &AlignOptions,
    ) -> Result<Self, AlignError> {
        let Matches {
            reference,
            columns,
            selected,
        } = matches(ranks, names, options)?;
        let mut rows = Rows::new(columns.first().map_or(0, Vec::len));
        let limits = ranks.first().zip(columns.first()).map(|(rank, column)| {
            let limit = |&kernel: &u32| rank.shape.limits.get(kernel as usize).copied().flatten();
            column.iter().map(limit).collect()
        });
        for (rank, column) in ranks.iter_mut().zip(&columns) {
            let overlaps = Vec::from_iter(rank.overlaps());
            rank.keep(column);
            let overlaps = column
                .iter()
                .map(|&kernel| overlaps.get(kernel as usize).copied().flatten());
            rows.add(&rank.starts, overlaps);
        }
        Ok(Self {
            last: rows.last(0..rows.latest.len()),
            reference,
            fewest: selected.get(reference).copied().unwrap_or(0),
            limits: limits.unwrap_or_default(),
            rows,
        })
    }

    fn report(self, ranks: &[Rank], names: &NameTable, shows: Shows) -> LiveReport {
        let durations = Vec::from_iter(ranks.iter().map(|rank| rank.durations.as_slice()));
        let kernels = durations.iter().map(|column| column.len()).min();
        let latest = &self.rows.latest;
        let constant = |k: usize| !self.rows.overlaps[k].varies();
        let size = [ranks.len(), kernels.unwrap_or(0)];
        let limit = |k: usize| self.limits.get(k).copied().flatten();
        let paces = match shows {
            Shows::Kernels => paces(size, |rank, k| durations[rank][k], constant, limit),
            Shows::Pieces => vec![Pace::default(); ranks.len()],
        };
        let idles = Vec::from_iter(ranks.iter().map(|rank| rank.idle));
        let lists = Vec::from_iter(ranks.iter().map(|rank| rank.synchronising(names)));
        let skew = skew::estimate(&skew::rows(&lists));
        let mut report = LiveReport {
            shows,
            matched: latest.len(),
            matched_fraction: latest.len() as f64 / self.fewest.max(1) as f64,
            leads: Vec::with_capacity(ranks.len()),
            last_in: Vec::with_capacity(ranks.len()),
            busy: rank::busy(ranks),
            pace: paces.iter().map(|pace| pace.middle).collect(),
            slowness: paces.iter().map(|pace| pace.together).collect(),
            marks: marks(&paces, &idles, &skew, rank::wall(ranks)),
            workload: ranks
                .get(self.reference)
                .map_or(0, |rank| workload::of(&rank.shape, names)),
        };
        let mut leads = Vec::with_capacity(latest.len());
        for rank in ranks {
            leads.clear();
            let kernels = latest.iter().zip(&rank.starts);
            leads.extend(kernels.map(|(&latest, &start)| latest - start));
            // The order of the others changes no lead value.
            let end = leads.len().saturating_sub(1);
            if self.last < end {
                leads.swap(self.last, end);
            }
            report.leads.push(LeadValues::of(&leads));
            report.last_in.push(last_in(&leads));
        }
        report
    }
}

/// Which kernels of the ranks match, as [`align`](crate::align()) finds it.
fn matches(
    ranks: &[Rank],
    names: &NameTable,
    options: &AlignOptions,
) -> Result<Matches, AlignError> {
    let labels = Vec::from_iter(ranks.iter().map(Rank::labels));
    let sources = Vec::from_iter((0..ranks.len()).map(|rank| format!("rank {rank}")));
    let sequence = |(number, rank): (u32, &Rank)| Sequence {
        rank: number,
        source: sources.get(number as usize).map_or("", String::as_str),
        items: rank.items(names.len()),
        labels: labels.get(number as usize).map_or(&[], Vec::as_slice),
    };
    let all = Sequences {
        ranks: (0..).zip(ranks).map(sequence).collect(),
        names: names.iter().collect(),
    };
    match_sequences(all, options, WORK)
}
