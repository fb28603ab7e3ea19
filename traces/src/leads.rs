//! Lead values: Algorithm 1 of the Lit Silicon paper.

use std::borrow::Cow;
use std::iter::Sum;
use std::ops::Sub;

pub use litd_units::Aggregation;
use litd_units::Nanos;
use serde::Serialize;

use crate::align::{AlignError, AlignOptions, Alignment, align};
use crate::timeline::Timeline;

/// The straggler wave: `waves[g][k]` is by how much GPU `g` started matched kernel `k` before
/// the GPU that started it last (Algorithm 1, line 4). `starts[g][k]` in any unit of time; all
/// rows have one length.
#[must_use]
pub fn straggler_wave<T>(starts: &[Vec<T>]) -> Vec<Vec<T>>
where
    T: Copy + PartialOrd + Sub<Output = T>,
{
    let mut wave = starts.to_vec();
    lead(&mut wave);
    wave
}

/// Makes leads of starts where they are: there may be millions.
fn lead<T>(starts: &mut [Vec<T>])
where
    T: Copy + PartialOrd + Sub<Output = T>,
{
    for k in 0..starts.iter().map(Vec::len).min().unwrap_or(0) {
        let mut latest = starts[0][k];
        for row in &starts[1..] {
            if row[k] > latest {
                latest = row[k];
            }
        }
        for row in &mut *starts {
            row[k] = latest - row[k];
        }
    }
}

/// One lead value from a GPU's per-kernel leads (Algorithm 1, line 6); `None` without kernels.
#[must_use]
pub fn aggregate<T>(leads: &[T], aggregation: Aggregation) -> Option<T>
where
    T: Copy + PartialOrd + Sum,
{
    let last = *leads.last()?;
    Some(match aggregation {
        Aggregation::Sum => leads.iter().copied().sum(),
        Aggregation::Max => leads
            .iter()
            .copied()
            .fold(leads[0], |most, lead| if lead > most { lead } else { most }),
        Aggregation::Last => last,
    })
}

/// The leads of all matched kernels of a node, and what they come from.
#[derive(Debug, Clone)]
pub struct Leads<'a> {
    /// Which kernels are the same.
    pub alignment: Cow<'a, Alignment>,
    /// `wave[g][k]`: by how much the GPU of timeline `g` started matched kernel `k` before the
    /// last GPU did. Kernels are in the order of their last starts.
    pub wave: Vec<Vec<Nanos>>,
}

/// Aligns the timelines of two or more ranks and computes their leads.
///
/// # Errors
/// When too few kernels match; see [`AlignError`].
pub fn leads(timelines: &[Timeline], options: &AlignOptions) -> Result<Leads<'static>, AlignError> {
    let alignment = align(timelines, options)?;
    Ok(of_alignment(timelines, Cow::Owned(alignment)))
}

/// The leads of timelines that are aligned.
pub(crate) fn of_alignment<'a>(timelines: &[Timeline], alignment: Cow<'a, Alignment>) -> Leads<'a> {
    let start = |(rank, timeline): (usize, &Timeline)| -> Vec<Nanos> {
        let starts = alignment.matched().filter_map(|row| {
            let kernel = timeline.kernels.get(*row.get(rank)? as usize)?;
            Some(kernel.start)
        });
        starts.collect()
    };
    let mut wave = Vec::from_iter(timelines.iter().enumerate().map(start));
    lead(&mut wave);
    Leads { alignment, wave }
}

/// In how many matched kernels a rank with these leads started last.
pub(crate) fn last_in(leads: &[Nanos]) -> usize {
    leads.iter().filter(|&&lead| lead == Nanos::ZERO).count()
}

impl Leads<'_> {
    /// The lead value of each timeline.
    #[must_use]
    pub fn values(&self, aggregation: Aggregation) -> Vec<Nanos> {
        let values = self.wave.iter().map(|leads| aggregate(leads, aggregation));
        values.map(Option::unwrap_or_default).collect()
    }

    /// For each timeline in how many matched kernels it started last; a tie counts for all.
    #[must_use]
    pub fn last_in(&self) -> Vec<usize> {
        self.wave.iter().map(|leads| last_in(leads)).collect()
    }

    /// The position of the timeline with the smallest lead value, which the others wait for;
    /// `None` on ties.
    #[must_use]
    pub fn straggler(&self, aggregation: Aggregation) -> Option<usize> {
        let values = self.values(aggregation);
        let least = values.iter().min()?;
        let mut stragglers = values
            .iter()
            .enumerate()
            .filter(|&(_, value)| value == least);
        let (position, _) = stragglers.next()?;
        stragglers.next().is_none().then_some(position)
    }
}

/// The lead values of one rank under each aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LeadValues {
    /// Sum over the matched kernels, in nanoseconds.
    pub sum_ns: Nanos,
    /// The largest, in nanoseconds.
    pub max_ns: Nanos,
    /// That of the last matched kernel, in nanoseconds.
    pub last_ns: Nanos,
}

impl LeadValues {
    /// From by how much a rank led in each matched kernel, with the one that started last at the
    /// end.
    pub(crate) fn of(leads: &[Nanos]) -> Self {
        let value = |how| aggregate(leads, how).unwrap_or_default();
        Self {
            sum_ns: value(Aggregation::Sum),
            max_ns: value(Aggregation::Max),
            last_ns: value(Aggregation::Last),
        }
    }

    /// The lead value under one aggregation.
    #[must_use]
    pub fn get(&self, aggregation: Aggregation) -> Nanos {
        match aggregation {
            Aggregation::Sum => self.sum_ns,
            Aggregation::Max => self.max_ns,
            Aggregation::Last => self.last_ns,
        }
    }
}
