//! The whole iterations that all ranks have recorded. Ranks of a job run the same kernels, and collectives keep them
//! together: an iteration begins on each rank with the same kernel, at nearly the same time.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;

use litd_units::Nanos;

use super::period::{Places, period, prints};
use super::read::{Demanded, Ran};
use crate::timeline::KernelClass;

/// Marks of optimizers' steps are on the host, which is ahead of its GPU now more, now less: an iteration takes at least
/// this share of their distance.
const LEAST_OF_STEPS: f64 = 0.75;

/// So many iterations are told of, the last ones.
const MOST_ITERATIONS: usize = 16;

/// Whole iterations of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// How long each iteration took, the earliest first.
    pub durations: Vec<Nanos>,
    /// The kernels of the last one, in [`Demanded::kernels`].
    pub kernels: Range<usize>,
}

/// Whole iterations that all ranks have recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cuts {
    /// The ranks, in the order in which they were given, with equally many iterations each.
    pub ranks: Vec<Cut>,
    /// When the last one began, on the rank that is the reference.
    pub began: Nanos,
    /// Whether the process has marked its iterations, by steps of optimizers.
    pub marked: bool,
}

/// Why there are none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Uncut {
    /// Less than two iterations were recorded, or the job does not repeat itself.
    #[error("its kernels show no second iteration: they do not repeat, or too little was recorded")]
    NoPeriod,
    /// A rank recorded at another time.
    #[error(
        "ranks have recorded different times: rank {rank} began {} s {} the others, or its clock differs",
        seconds(*.by), if *.by < Nanos::ZERO { "before" } else { "after" }
    )]
    Apart {
        /// The rank, in the order in which they were given.
        rank: usize,
        /// How much later it began; below zero: earlier.
        by: Nanos,
    },
    /// Ranks have no iteration in common, though they recorded at the same time.
    #[error("ranks have recorded no whole iteration in common")]
    NoneInCommon,
}

fn seconds(time: Nanos) -> String {
    format!("{:.3}", time.as_secs_f64().abs())
}

/// A rank's busiest stream.
struct Track {
    /// When each of its kernels started.
    starts: Vec<Nanos>,
    /// When the kernel before it ended, and it could have started.
    free: Vec<Nanos>,
    names: Vec<u64>,
    prints: Vec<u64>,
    places: Places,
}

impl Track {
    fn of(rank: &Demanded) -> Self {
        let hashes: Vec<u64> = rank.names.iter().map(hash).collect();
        let name = |ran: &Ran| hashes.get(ran.name.0 as usize).copied().unwrap_or(0);
        let stream = busiest(&rank.kernels);
        let on_it = || rank.kernels.iter().filter(|ran| ran.stream == stream);
        let names: Vec<u64> = on_it().map(name).collect();
        let prints = prints(&names);
        let mut free = Vec::with_capacity(names.len());
        let mut end = Nanos::ZERO;
        for ran in on_it() {
            free.push(if free.is_empty() { ran.start } else { end });
            end = ran.end;
        }
        Self {
            starts: on_it().map(|ran| ran.start).collect(),
            free,
            places: Places::of(&prints),
            names,
            prints,
        }
    }

    fn start(&self, at: usize) -> Option<Nanos> {
        self.starts.get(at).copied()
    }

    /// How long a kernel takes with what comes before the next one.
    fn per_kernel(&self) -> f64 {
        let (Some(&first), Some(&last)) = (self.starts.first(), self.starts.last()) else {
            return 0.0;
        };
        (last - first).as_secs_f64() / self.starts.len().saturating_sub(1).max(1) as f64
    }

    /// After so many kernels the same ones come again, by its marks and its kernels.
    fn period(&self, steps: &[Nanos]) -> Option<usize> {
        let least = match steps {
            [first, .., last] => {
                let apart = (*last - *first).as_secs_f64() / (steps.len() - 1) as f64;
                (LEAST_OF_STEPS * apart / self.per_kernel()) as usize
            }
            _ => 1,
        };
        period(&self.names, &self.places, least)
    }

    /// Where iterations begin: at a place that comes once in each, the first one after a step of an optimizer, or else
    /// the one before which the stream waited longest.
    fn begins(&self, lag: usize, steps: &[Nanos]) -> Option<usize> {
        let times = |at: usize| {
            let print = self.prints.get(at)?;
            Some(self.places.of_print(*print).len())
        };
        let first = || 0..lag.min(self.prints.len());
        let least = first().filter_map(times).min()?;
        let mut rare = first().filter(|&at| times(at) == Some(least));
        let step = steps.iter().find(|&&step| Some(step) >= self.start(0));
        let after = |at: &usize| step.is_some_and(|&step| self.start(*at) >= Some(step));
        if let Some(at) = rare.clone().find(after) {
            return Some(at);
        }
        let waited = |&at: &usize| Some(self.start(at)? - *self.free.get(at)?);
        let first = rare.next()?;
        let longest = std::iter::once(first).chain(rare);
        longest.max_by_key(|at| (waited(at), std::cmp::Reverse(*at)))
    }

    /// The beginning of an iteration that began elsewhere then.
    fn beginning(&self, print: u64, then: Nanos, within: Nanos) -> Option<Nanos> {
        let places = self.places.of_print(print);
        let start = |place: &(u64, u32)| self.start(place.1 as usize);
        let after = places.partition_point(|place| start(place) < Some(then));
        let near = places.get(after.saturating_sub(1)..)?.iter().take(2);
        let starts = near.filter_map(start);
        let nearest = starts.min_by_key(|&start| away(start, then))?;
        (away(nearest, then) <= within).then_some(nearest)
    }
}

fn away(one: Nanos, other: Nanos) -> Nanos {
    one.max(other) - one.min(other)
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// The stream with most kernels of computation.
fn busiest(kernels: &[Ran]) -> u32 {
    let mut streams: HashMap<u32, usize> = HashMap::new();
    for ran in kernels {
        let computes = ran.class == KernelClass::Computation;
        *streams.entry(ran.stream).or_default() += usize::from(computes);
    }
    let busiest = streams
        .into_iter()
        .max_by_key(|&(stream, kernels)| (kernels, std::cmp::Reverse(stream)));
    busiest.map_or(0, |(stream, _)| stream)
}

/// Cuts the ranks' kernels into iterations.
///
/// # Errors
/// There is no whole iteration that all of them have recorded; see [`Uncut`].
pub fn cut(ranks: &[Demanded]) -> Result<Cuts, Uncut> {
    let tracks: Vec<Track> = ranks.iter().map(Track::of).collect();
    let fewest = (0..tracks.len()).min_by_key(|&at| tracks.get(at).map(|it| it.names.len()));
    let chosen = fewest.and_then(|at| Some((tracks.get(at)?, ranks.get(at)?)));
    let (reference, recorded) = chosen.ok_or(Uncut::NoPeriod)?;
    are_together(&tracks, reference)?;
    let steps = &recorded.steps;
    let lag = reference.period(steps).ok_or(Uncut::NoPeriod)?;
    let first = reference.begins(lag, steps).ok_or(Uncut::NoPeriod)?;
    let print = reference.prints.get(first).copied().unwrap_or(0);
    let within = Nanos((reference.per_kernel() * lag as f64 * 1e9 / 2.0) as i64);
    // When each iteration begins, on each rank; the reference is one of them.
    let begins = |at: usize| -> Option<Vec<Nanos>> {
        let is_one = reference.prints.get(at) == Some(&print);
        let then = reference.start(at).filter(|_| is_one)?;
        let of = |track: &Track| track.beginning(print, then, within);
        tracks.iter().map(of).collect()
    };
    let places = (first..reference.prints.len()).step_by(lag);
    let all: Vec<Option<Vec<Nanos>>> = places.map(begins).collect();
    let whole = all.windows(2).filter_map(|pair| match pair {
        [Some(from), Some(to)] if from.iter().zip(to).all(|(from, to)| from < to) => {
            Some((from, to))
        }
        _ => None,
    });
    let mut whole: Vec<_> = whole.collect();
    whole.drain(..whole.len().saturating_sub(MOST_ITERATIONS));
    let (from, to) = whole.last().copied().ok_or(Uncut::NoneInCommon)?;
    let of = |(at, rank): (usize, &Demanded)| {
        let before = |time: Option<&Nanos>| match time {
            Some(&time) => rank.kernels.partition_point(|ran| ran.start < time),
            None => 0,
        };
        let duration =
            |(from, to): &(&Vec<Nanos>, &Vec<Nanos>)| Some(*to.get(at)? - *from.get(at)?);
        Cut {
            durations: whole.iter().filter_map(duration).collect(),
            kernels: before(from.get(at))..before(to.get(at)),
        }
    };
    Ok(Cuts {
        ranks: ranks.iter().enumerate().map(of).collect(),
        began: from.iter().copied().min().unwrap_or_default(),
        marked: !steps.is_empty(),
    })
}

/// Whether all ranks have recorded at the same time, at least in part.
fn are_together(tracks: &[Track], reference: &Track) -> Result<(), Uncut> {
    let span = |track: &Track| Some((track.start(0)?, *track.starts.last()?));
    let Some((from, to)) = span(reference) else {
        return Err(Uncut::NoPeriod);
    };
    for (rank, track) in tracks.iter().enumerate() {
        let (begin, end) = span(track).ok_or(Uncut::NoPeriod)?;
        if begin > to || end < from {
            let by = begin - from;
            return Err(Uncut::Apart { rank, by });
        }
    }
    Ok(())
}
