//! Computation beside communication, which takes longer for it: by how much is learnt from kernels that run beside it on
//! some ranks and not on others.

use std::collections::HashMap;

use crate::analysis::communication;
use crate::groups::Groups;
use crate::limit::{Limit, limit_of};
use crate::spans::Spans;
use crate::timeline::{Kernel, KernelClass, NonMax, Timeline};

/// Kernels whose overlap differs by less than this between ranks tell how fast these are; those that differ by more than
/// that tell what communication beside them costs.
const SAME: f64 = 0.1;
const OTHER: f64 = 0.3;
/// Fewer kernels tell nothing.
const FEW: usize = 10;
/// What is no more than so many times its standard error may be chance.
const SURE: f64 = 5.0;
/// Computation is not slowed by more than this part of its speed.
const MOST: f64 = 0.5;

/// What runs beside communication.
#[derive(Debug)]
pub(super) struct Beside {
    /// The part of each kernel's time that a collective runs beside it, if it computes; of a collective the part of its time
    /// that its rank computes beside it. Empty where computation loses nothing, as are the ends.
    overlaps: Vec<Vec<f32>>,
    /// Of each rank the collectives in the order of their ends.
    pub(super) ends: Vec<Vec<u32>>,
    /// The part of its speed that computation loses beside communication.
    pub(super) loses: f64,
}

impl Beside {
    pub(super) fn of(timelines: &[Timeline], groups: &Groups) -> Self {
        let mut beside = Self {
            overlaps: timelines.iter().map(overlaps).collect(),
            ends: Vec::new(),
            loses: 0.0,
        };
        let mut fit = Fit::default();
        for group in &groups.all {
            let own = timelines.get(group.range.clone()).unwrap_or_default();
            let overlaps = beside.overlaps.get(group.range.clone());
            if let (Some(alignment), Some(overlaps)) = (&group.alignment, overlaps) {
                let names = own.first().map(|timeline| timeline.names.iter());
                let limits = Vec::from_iter(names.into_iter().flatten().map(limit_of));
                let rows = || {
                    alignment
                        .matched()
                        .filter_map(|row| Row::of(row, own, (overlaps, &limits)))
                };
                fit.add(rows);
            }
        }
        beside.loses = fit.loses();
        // There are millions of these, and nothing asks for them where nothing is lost.
        match beside.loses > 0.0 {
            true => beside.ends = timelines.iter().map(ends).collect(),
            false => beside.overlaps = Vec::new(),
        }
        beside
    }

    pub(super) fn overlap(&self, rank: usize, kernel: usize) -> f64 {
        let overlap = self.overlaps.get(rank).and_then(|all| all.get(kernel));
        overlap.map_or(0.0, |&overlap| f64::from(overlap))
    }

    /// How long a kernel would take with no communication beside it, in nanoseconds.
    pub(super) fn alone(&self, rank: usize, at: usize, kernel: &Kernel) -> f64 {
        let time = kernel.duration().0 as f64;
        match kernel.class {
            KernelClass::Computation => time * (1.0 - self.loses * self.overlap(rank, at)),
            _ => time,
        }
    }
}

fn overlaps(timeline: &Timeline) -> Vec<f32> {
    let computes = timeline.kernels.iter();
    let computes = computes.filter(|kernel| kernel.class == KernelClass::Computation);
    let computes = Spans::union(computes.map(|kernel| (kernel.start, kernel.end)));
    let communicates = communication(timeline);
    let overlap = |kernel: &Kernel| {
        let other = match kernel.class {
            KernelClass::Computation => &communicates,
            KernelClass::Communication => &computes,
            KernelClass::Fused | KernelClass::Copy => return 0.0,
        };
        let covered = other.cover(kernel.start, kernel.end);
        (covered.0 as f64 / kernel.duration().0.max(1) as f64) as f32
    };
    timeline.kernels.iter().map(overlap).collect()
}

fn ends(timeline: &Timeline) -> Vec<u32> {
    let kernels = (0..).zip(&timeline.kernels);
    let ends = kernels.filter(|(_, kernel)| kernel.class == KernelClass::Communication);
    let mut ends = Vec::from_iter(ends.map(|(at, kernel)| (kernel.end, at)));
    ends.sort_unstable();
    ends.into_iter().map(|(_, at)| at).collect()
}

/// What ranks take for a kernel that matches, and the part of that beside communication.
struct Row {
    /// Its iteration and what limits it: a slow memory is no slow clock.
    like: (Option<NonMax>, Option<Limit>),
    times: Vec<f64>,
    overlaps: Vec<f64>,
}

impl Row {
    /// With what limits the kernels of each name of the first timeline.
    fn of(
        row: &[u32],
        timelines: &[Timeline],
        (overlaps, limits): (&[Vec<f32>], &[Option<Limit>]),
    ) -> Option<Self> {
        let kernels = row.iter().zip(timelines);
        let kernels = kernels.map(|(&at, timeline)| timeline.kernels.get(at as usize));
        let kernels = kernels.collect::<Option<Vec<&Kernel>>>()?;
        let times = Vec::from_iter(kernels.iter().map(|kernel| kernel.duration().0 as f64));
        let overlaps = row
            .iter()
            .zip(overlaps)
            .map(|(&at, all)| all.get(at as usize));
        let overlaps = overlaps.map(|overlap| overlap.copied().map(f64::from));
        let first = kernels.first()?;
        let limit = limits.get(first.name.0 as usize).copied().flatten();
        let has_length = times.len() > 1 && times.iter().all(|&time| time > 0.0);
        let row = Self {
            like: (first.iteration, limit),
            times,
            overlaps: overlaps.collect::<Option<_>>()?,
        };
        has_length.then_some(row)
    }

    /// By how much overlap differs.
    fn spread(&self) -> f64 {
        let most = self.overlaps.iter().copied().fold(0.0, f64::max);
        most - self.overlaps.iter().copied().fold(most, f64::min)
    }
}

/// A line through speeds by overlap, each kernel around its own mean over the ranks.
#[derive(Default)]
struct Fit {
    count: usize,
    both: f64,
    overlaps: f64,
    speeds: f64,
    mean: f64,
}

impl Fit {
    fn add<R: Iterator<Item = Row>>(&mut self, rows: impl Fn() -> R) {
        // How long each rank takes in each iteration for what has as much communication beside it on all.
        let mut sums = HashMap::<_, (usize, Vec<f64>)>::new();
        for row in rows().filter(|row| row.spread() < SAME) {
            let sum = sums.entry(row.like);
            let (count, sum) = sum.or_insert_with(|| (0, vec![0.0; row.times.len()]));
            *count += 1;
            sum.iter_mut()
                .zip(&row.times)
                .for_each(|(sum, time)| *sum += time);
        }
        for row in rows().filter(|row| row.spread() >= OTHER) {
            let paces = sums.get(&row.like).filter(|(count, _)| *count >= FEW);
            let Some((_, paces)) = paces else { continue };
            let ranks = row.times.len() as f64;
            let speeds = paces.iter().zip(&row.times).map(|(pace, time)| pace / time);
            let speeds = Vec::from_iter(speeds);
            let speed = speeds.iter().sum::<f64>() / ranks;
            let mean = row.overlaps.iter().sum::<f64>() / ranks;
            for (own, overlap) in speeds.iter().zip(&row.overlaps) {
                let (own, overlap) = (own / speed - 1.0, overlap - mean);
                self.count += 1;
                self.both += own * overlap;
                self.overlaps += overlap * overlap;
                self.speeds += own * own;
                self.mean += mean;
            }
        }
    }

    /// The part of its speed that computation loses.
    fn loses(&self) -> f64 {
        if self.count < FEW || self.overlaps <= 0.0 {
            return 0.0;
        }
        let slope = -self.both / self.overlaps;
        let rest = (self.speeds - slope * slope * self.overlaps).max(0.0);
        let error = (rest / self.count as f64 / self.overlaps).sqrt();
        if slope <= SURE * error {
            return 0.0;
        }
        // Speeds are relative to their mean, which communication has lowered already.
        let mean = self.mean / self.count as f64;
        (slope / (1.0 + mean * slope)).min(MOST)
    }
}
