//! Which kernels hold a rank up whose pace, queue and links are as good as the others'. A pace is of many
//! kernels alike; a few that take longer, copies, and what runs on a stream beside the others show here.

use std::collections::HashMap;

use litd_diagnosis::median;
use litd_units::Nanos;
use serde::Serialize;

use super::cause::Runs;
use crate::gather::shortened;
use crate::spans::Spans;
use crate::spans::ratio;
use crate::timeline::{Kernel, KernelClass, StreamId, Timeline};

/// Together they explain a rank's lateness if they take longer by at least this share of it.
const EXPLAINS: f64 = 0.5;
/// Of those only what takes longer by at least this share of it, and of its own time, is told.
const WORTH: f64 = 0.15;
const OF_ITSELF: f64 = 0.01;
/// So many names are told.
const TOLD: usize = 3;
/// Of fewer ranks than this the middle one is chance: then the one that takes longest is the measure.
const FEW: usize = 4;

/// All kernels of one name that take longer on the rank that is late than on those far ahead of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Longer {
    /// The name.
    pub name: String,
    /// `computation` or `copy`.
    pub class: &'static str,
    /// The label of the stream that they run on, where most computation runs on another.
    pub beside: Option<String>,
    /// How many ran on the rank that is late, and how many on those ahead of it.
    pub counts: [usize; 2],
    /// How long they took together on the rank that is late, in nanoseconds.
    pub time_ns: Nanos,
    /// How long they took on the ranks ahead of it.
    pub ahead_ns: Nanos,
    /// Their difference as a share of what the rank is late by.
    pub share: f64,
    /// By how many more blocks of threads they are launched with than on the ranks ahead, as a share; none where traces
    /// don't tell.
    #[serde(skip)]
    pub more_blocks: Option<f64>,
}

impl Longer {
    /// Whether they are copies.
    #[must_use]
    pub fn copies(&self) -> bool {
        self.class == COPY
    }

    /// By how much longer they take than on the ranks ahead, as a share; none where they took no time there.
    #[must_use]
    pub fn more(&self) -> Option<f64> {
        ratio(self.time_ns - self.ahead_ns, self.ahead_ns)
    }

    /// How many more of them run than on the ranks ahead, where that and not how long each takes is why they take longer.
    #[must_use]
    pub fn more_kernels(&self) -> Option<usize> {
        /// Each takes as long where it takes no more than this part longer of what all do.
        const EACH: f64 = 0.25;
        let [own, ahead] = self.counts;
        let more = own
            .checked_sub(ahead)
            .filter(|&more| more > 0 && ahead > 0)?;
        let each = self.time_ns.0 as f64 / own as f64;
        let theirs = self.ahead_ns.0 as f64 / ahead as f64;
        (each / theirs - 1.0 <= EACH * self.more()?).then_some(more)
    }

    /// Whether grids tell that they have more to do, by at least half of what they take longer.
    #[must_use]
    pub fn more_work(&self) -> Option<f64> {
        let more = self.more_blocks?;
        (self.more().is_some_and(|longer| more >= EXPLAINS * longer)).then_some(more)
    }

    /// What was measured, in words.
    pub(super) fn evidence(&self, its: &str) -> String {
        let [own, ahead] = self.counts;
        let millis = |time: Nanos| format!("{:.3} ms", time.to_millis().0);
        format!(
            "{its} {own} × {} take {} together, the {ahead} of the ranks far ahead of it {}: {} of what it is late by",
            shortened(&self.name),
            millis(self.time_ns),
            millis(self.ahead_ns),
            match self.share < 1.0 {
                true => format!("{:.0} %", 100.0 * self.share),
                false => "100 %".into(),
            }
        )
    }
}

const COPY: &str = "copy";

/// What takes longer on a rank.
#[derive(Default)]
pub(super) struct Found {
    /// What explains that it is late; empty where that is less than half of it.
    pub(super) explains: Vec<Longer>,
    /// What takes longest beyond what it does elsewhere, where that explains too little.
    pub(super) most: Option<Longer>,
}

/// What explains that a rank is late by so much: the names whose kernels take longer there than on the ranks far
/// ahead of it.
pub(super) fn find(
    timelines: &[Timeline],
    runs: &Runs,
    (last, ahead): (usize, &[usize]),
    late: f64,
) -> Found {
    let Some(timeline) = timelines.get(last).filter(|_| late > 0.0) else {
        return Found::default();
    };
    let own = sums(timeline, runs);
    let far = ahead;
    let others = ahead.iter().filter_map(|&at| timelines.get(at));
    let others = Vec::from_iter(others.map(|other| sums(other, runs)));
    let main = main_stream(timeline, runs);
    let longer = own.iter().filter_map(|(&(name, class), sum)| {
        let theirs = || others.iter().map(|all| all.get(&(name, class)));
        let times = theirs().map(|sum| sum.map_or(0.0, |sum| sum.time.0 as f64));
        let counts = theirs().map(|sum| sum.map_or(0.0, |sum| sum.count as f64));
        let ahead = measure(times.collect())?;
        let by = sum.time.0 as f64 - ahead;
        (by > OF_ITSELF * ahead).then(|| Longer {
            name: name.into(),
            class: if class == KernelClass::Copy {
                COPY
            } else {
                "computation"
            },
            beside: main
                .filter(|main| class == KernelClass::Computation && *main != sum.stream)
                .and_then(|_| timeline.streams.get(usize::from(sum.stream.0)))
                .map(|label| (**label).into()),
            counts: [sum.count, measure(counts.collect()).unwrap_or(0.0) as usize],
            time_ns: sum.time,
            ahead_ns: Nanos(ahead as i64),
            share: by / late,
            more_blocks: more_blocks(timelines, (last, far), name),
        })
    });
    let mut longer = Vec::from_iter(longer);
    longer.sort_by(|a, b| {
        b.share
            .total_cmp(&a.share)
            .then_with(|| a.name.cmp(&b.name))
    });
    let most = longer.first().cloned();
    longer.retain(|one| one.share > WORTH);
    longer.truncate(TOLD);
    match longer.iter().map(|one| one.share).sum::<f64>() >= EXPLAINS {
        true => Found {
            explains: longer,
            most: None,
        },
        false => Found {
            explains: Vec::new(),
            most,
        },
    }
}

/// By how much more a rank computes, and copies with nothing to compute beside it, than those far ahead of it: the
/// sum over all names that take longer.
pub(super) fn excess(
    timelines: &[Timeline],
    runs: &Runs,
    (last, ahead): (usize, &[usize]),
) -> Nanos {
    let Some(timeline) = timelines.get(last) else {
        return Nanos::ZERO;
    };
    let others = ahead.iter().filter_map(|&at| timelines.get(at));
    let others = Vec::from_iter(others.map(|other| sums(other, runs)));
    let computes = sums(timeline, runs)
        .into_iter()
        .filter(|((_, class), _)| *class == KernelClass::Computation);
    let more = computes.map(|(key, sum)| {
        let theirs = others
            .iter()
            .map(|all| all.get(&key).map_or(0.0, |sum| sum.time.0 as f64));
        let ahead = measure(theirs.collect()).unwrap_or(0.0);
        let by = sum.time.0 as f64 - ahead;
        if by > OF_ITSELF * ahead { by } else { 0.0 }
    });
    let more = Nanos(more.sum::<f64>() as i64);
    let theirs = ahead.iter().filter_map(|&at| timelines.get(at));
    let theirs = theirs.map(|other| bare_copies(other, runs).0 as f64);
    let theirs = Nanos(measure(theirs.collect()).unwrap_or(0.0) as i64);
    more + (bare_copies(timeline, runs) - theirs).max(Nanos::ZERO)
}

/// How long a rank copies with no computation beside it.
fn bare_copies(timeline: &Timeline, runs: &Runs) -> Nanos {
    let of = |wanted: KernelClass| {
        let kernels = kernels(timeline, runs).filter(move |kernel| kernel.class == wanted);
        Spans::union(kernels.map(|kernel| (kernel.start, kernel.end)))
    };
    let (computes, copies) = (of(KernelClass::Computation), of(KernelClass::Copy));
    let bare = copies
        .iter()
        .map(|(start, end)| end - start - computes.cover(start, end));
    bare.sum()
}

/// By how many more blocks of threads launches of a name have on a rank than on those far ahead of it.
pub(super) fn more_blocks(
    timelines: &[Timeline],
    (last, ahead): (usize, &[usize]),
    name: &str,
) -> Option<f64> {
    let own = timelines.get(last)?.blocks_of(name)?;
    let theirs = ahead.iter().map(|&at| timelines.get(at)?.blocks_of(name));
    let theirs = measure(theirs.collect::<Option<_>>()?)?;
    Some(own / theirs - 1.0)
}

/// What ranks ahead take: the median, or of few the most.
fn measure(values: Vec<f64>) -> Option<f64> {
    match values.len() < FEW {
        true => values.into_iter().max_by(f64::total_cmp),
        false => median(values),
    }
}

/// All kernels of one name and class on one rank.
struct Sum {
    count: usize,
    time: Nanos,
    /// Where the last of them ran.
    stream: StreamId,
}

/// The computation and the copies of a rank by their names.
fn sums<'a>(timeline: &'a Timeline, runs: &Runs) -> HashMap<(&'a str, KernelClass), Sum> {
    let mut sums = HashMap::new();
    for kernel in kernels(timeline, runs) {
        let key = (timeline.name_of(kernel), kernel.class);
        let sum = sums.entry(key).or_insert(Sum {
            count: 0,
            time: Nanos::ZERO,
            stream: kernel.stream,
        });
        sum.count += 1;
        sum.time += kernel.duration();
        sum.stream = kernel.stream;
    }
    sums
}

/// The stream that most of a rank's computation runs on.
fn main_stream(timeline: &Timeline, runs: &Runs) -> Option<StreamId> {
    let mut counts = HashMap::<StreamId, usize>::new();
    let computes = |kernel: &&Kernel| kernel.class == KernelClass::Computation;
    for kernel in kernels(timeline, runs).filter(computes) {
        *counts.entry(kernel.stream).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|&(stream, count)| (count, stream.0));
    most.map(|(stream, _)| stream)
}

/// What a rank computes and copies in the iterations that are compared.
fn kernels<'a>(timeline: &'a Timeline, runs: &'a Runs) -> impl Iterator<Item = &'a Kernel> {
    let kernels = timeline.kernels.iter();
    kernels.filter(|kernel| !kernel.class.communicates() && runs.have(kernel))
}
