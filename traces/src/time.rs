//! Where a rank's time goes: what it computes, what it only communicates or copies, and why nothing
//! runs the rest of the time. docs/analyze-definitions.md has the definitions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use litd_units::Nanos;
use serde::Serialize;

use crate::collectives::Matched;
use crate::spans::Spans;
use crate::timeline::{Kernel, KernelClass, NameId, StreamId, Timeline};

/// How many names of kernels are told.
const TOP: usize = 10;

/// From this length on a gap is no launch that takes long: its host does something else.
const LONG: Nanos = Nanos(1_000_000);
/// So is one of this length where it takes so many times as long as gaps mostly do: a server's steps are short.
const LONGER: Nanos = Nanos(100_000);
const TIMES: i64 = 20;

/// What is told of gaps besides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gaps {
    /// The part of the idleness for other reasons whose end had been launched before.
    pub launched: Nanos,
    /// The part of the idleness in which the host launched too late that is in long gaps.
    pub long: Nanos,
    /// How many these are.
    pub longs: usize,
}

impl Gaps {
    /// Tells the long ones of all gaps in which the host launched too late.
    fn add_long(&mut self, late: &mut [Nanos]) {
        late.sort_unstable();
        let usual = late.get(late.len() / 2).copied().unwrap_or_default();
        let least = LONG.min(LONGER.max(Nanos(usual.0.saturating_mul(TIMES))));
        let long = late.iter().rev().take_while(|&&gap| gap >= least);
        self.longs = long.clone().count();
        self.long = long.copied().sum();
    }
}

/// Long gaps in which no GPU of a job computes or copies, and no collective is under way: nothing that runs waits for
/// more than others to come. None of them can wait for another then: all wait for their hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Standstill {
    /// How long these are together, in nanoseconds.
    pub long_ns: Nanos,
    /// How many there are.
    pub longs: usize,
}

impl Standstill {
    /// Of the timelines of a job, whose clocks were set right; none of fewer than two.
    pub(crate) fn of(timelines: &[Timeline], matched: &Matched<'_>) -> Option<Self> {
        if timelines.len() < 2 {
            return None;
        }
        // GPUs that all wait for launches do so for less.
        let gaps = gaps(timelines, matched);
        let long = gaps.iter().filter(|&&gap| gap >= LONGER);
        Some(Self {
            longs: long.clone().count(),
            long_ns: long.copied().sum(),
        })
    }
}

/// Spans in the order of their starts.
type Lane<'a> = Box<dyn Iterator<Item = (Nanos, Nanos)> + 'a>;

/// How long each gap is in which none of several GPUs does more than wait for others.
fn gaps(timelines: &[Timeline], matched: &Matched<'_>) -> Vec<Nanos> {
    let lengths = timelines.iter().map(|timeline| timeline.kernels.len());
    let mut met = Vec::from_iter(lengths.map(|length| vec![false; length]));
    // Each collective from when the last of its ranks has come.
    let mut transfers = Vec::new();
    matched.each(|row| {
        for entry in row {
            let of = met.get_mut(entry.rank);
            if let Some(met) = of.and_then(|of| of.get_mut(entry.kernel)) {
                *met = true;
            }
        }
        let last = row.iter().map(|entry| entry.start).max();
        let end = row.iter().map(|entry| entry.end).max();
        transfers.extend(last.zip(end).filter(|(last, end)| last < end));
    });
    transfers.sort_unstable();
    let own = timelines.iter().zip(met).map(|(timeline, met)| {
        let kernels = timeline.kernels.iter().zip(met);
        let alone = kernels.filter(|(kernel, met)| !met && has_length(kernel));
        Box::new(alone.map(|(kernel, _)| (kernel.start, kernel.end))) as Lane<'_>
    });
    let mut lanes = Vec::from_iter(own);
    lanes.push(Box::new(transfers.into_iter()));
    let next = lanes.iter_mut().enumerate();
    let next = next.filter_map(|(at, lane)| Some((lane.next()?, at)));
    let mut next = BinaryHeap::from_iter(next.map(Reverse));
    let mut gaps = Vec::new();
    let mut until = None::<Nanos>;
    while let Some(Reverse(((start, end), at))) = next.pop() {
        let gap = until.map_or(Nanos::ZERO, |until| start - until);
        if gap > Nanos::ZERO {
            gaps.push(gap);
        }
        until = until.max(Some(end));
        let following = lanes.get_mut(at).and_then(Iterator::next);
        next.extend(following.map(|span| Reverse((span, at))));
    }
    gaps
}

/// A rank's window, each nanosecond of which is in one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Split {
    /// A computation kernel runs.
    pub computation: Nanos,
    /// None does, and a communication kernel does.
    pub exposed_communication: Nanos,
    /// Neither does, and a copy or fill does.
    pub exposed_copies: Nanos,
    /// Nothing runs: the host launched too late.
    pub idle_launch: Nanos,
    /// Nothing runs: what comes next waits for another stream.
    pub idle_stream: Nanos,
    /// Nothing runs, for another reason or for one that the trace does not tell.
    pub idle_other: Nanos,
}

impl Split {
    /// All of it: the rank's window.
    #[must_use]
    pub fn window(&self) -> Nanos {
        self.busy() + self.idle()
    }

    /// The time in which anything runs.
    #[must_use]
    pub fn busy(&self) -> Nanos {
        self.computation + self.exposed_communication + self.exposed_copies
    }

    /// The time in which nothing runs.
    #[must_use]
    pub fn idle(&self) -> Nanos {
        self.idle_launch + self.idle_stream + self.idle_other
    }

    /// Splits a rank's window, and tells more of its gaps.
    pub(crate) fn of(timeline: &Timeline) -> (Self, Gaps) {
        let kernels = || timeline.kernels.iter().filter(|kernel| has_length(kernel));
        let covered = |runs: fn(KernelClass) -> bool| {
            let chosen = kernels().filter(|kernel| runs(kernel.class));
            Spans::covered(chosen.map(|kernel| (kernel.start, kernel.end)))
        };
        let computation = covered(|class| class == KernelClass::Computation);
        let without_copies = covered(|class| class != KernelClass::Copy);
        let all = covered(|_| true);
        let mut split = Self {
            computation,
            exposed_communication: without_copies - computation,
            exposed_copies: all - without_copies,
            ..Self::default()
        };
        let gaps = split.add_idle(timeline);
        (split, gaps)
    }

    /// Adds each span in which nothing runs to the kind of idleness that it is.
    fn add_idle(&mut self, timeline: &Timeline) -> Gaps {
        let kernels = &timeline.kernels;
        let mut until = None;
        // The streams of the kernels that ended last.
        let mut streams = Vec::<StreamId>::new();
        let mut next = 0;
        let mut gaps = Gaps::default();
        let mut late = Vec::new();
        while let Some(Kernel { start, .. }) = kernels.get(next) {
            let rest = kernels.get(next..).unwrap_or_default().iter();
            let count = rest.take_while(|other| other.start == *start).count();
            let same = (next..).zip(kernels.get(next..next + count).unwrap_or_default());
            let same = same.filter(|(_, kernel)| has_length(kernel));
            next += count;
            let runs = same.clone().next().is_some();
            if let Some(before) = until.filter(|before| runs && start > before) {
                let launches = same.clone().filter_map(|(at, _)| timeline.launch(at));
                let mut own = same.clone().map(|(_, kernel)| kernel.stream);
                let waits = !own.any(|stream| streams.contains(&stream));
                let launch = launches.min();
                let gap = *start - before;
                *self.idleness(before, launch, waits) += gap;
                match launch {
                    Some(launch) if launch >= before => late.push(gap),
                    Some(launch) if launch < before && !waits => gaps.launched += gap,
                    _ => {}
                }
            }
            for (_, kernel) in same {
                if until < Some(kernel.end) {
                    until = Some(kernel.end);
                    streams.clear();
                }
                if until == Some(kernel.end) {
                    streams.push(kernel.stream);
                }
            }
        }
        gaps.add_long(&mut late);
        gaps
    }

    /// The kind of a span that begins at `before`, by the first launch of what ends it and by whether
    /// that runs on other streams than what came before.
    fn idleness(&mut self, before: Nanos, launch: Option<Nanos>, waits: bool) -> &mut Nanos {
        match launch {
            Some(launch) if launch >= before => &mut self.idle_launch,
            Some(_) if waits => &mut self.idle_stream,
            _ => &mut self.idle_other,
        }
    }
}

fn has_length(kernel: &Kernel) -> bool {
    kernel.end > kernel.start
}

/// The share of a rank's kernels whose launch the trace tells.
pub(crate) fn launches_known(timeline: &Timeline) -> f64 {
    let known = timeline.launches.iter().flatten().count();
    known as f64 / timeline.kernels.len().max(1) as f64
}

/// All kernels of one name on one rank.
#[derive(Debug, Clone, Serialize)]
pub struct TopKernel {
    /// The name.
    pub name: String,
    /// `computation`, `communication`, `fused` or `copy`.
    pub class: &'static str,
    /// The framework's operator whose kernels of this name took most time; null where the trace does not tell.
    pub operator: Option<String>,
    /// How many ran.
    pub count: usize,
    /// How long they took together, in nanoseconds.
    pub total_ns: Nanos,
    /// On average.
    pub mean_ns: Nanos,
    /// The shortest.
    pub min_ns: Nanos,
    /// The longest.
    pub max_ns: Nanos,
}

/// The kernels that took most time together, by name.
pub(crate) fn top(timeline: &Timeline) -> Vec<TopKernel> {
    let mut sums = vec![None::<(KernelClass, usize, Nanos, Nanos, Nanos)>; timeline.names.len()];
    for kernel in &timeline.kernels {
        let Some(sum) = sums.get_mut(kernel.name.0 as usize) else {
            continue;
        };
        let time = kernel.duration();
        let (_, count, total, least, most) =
            sum.get_or_insert((kernel.class, 0, Nanos::ZERO, time, time));
        *count += 1;
        *total += time;
        *least = time.min(*least);
        *most = time.max(*most);
    }
    let named = (0..)
        .zip(sums)
        .filter_map(|(id, sum)| Some((NameId(id), sum?)));
    let name = |id| timeline.names.get(id);
    let mut named = Vec::from_iter(named);
    named.sort_by(|&(a, one), &(b, other)| {
        let by_name = || name(a).cmp(name(b));
        other.2.cmp(&one.2).then_with(by_name)
    });
    let top = named.into_iter().take(TOP);
    let kernel = |(id, (class, count, total, least, most))| TopKernel {
        name: name(id).into(),
        class: word(class),
        operator: timeline.operators.get(&id).map(|name| (**name).into()),
        count,
        total_ns: total,
        mean_ns: mean(total, count),
        min_ns: least,
        max_ns: most,
    };
    top.map(kernel).collect()
}

/// The mean of so many times, rounded down.
pub(crate) fn mean(total: Nanos, count: usize) -> Nanos {
    Nanos(total.0 / i64::try_from(count).unwrap_or(i64::MAX).max(1))
}

/// What a class is called.
fn word(class: KernelClass) -> &'static str {
    match class {
        KernelClass::Computation => "computation",
        KernelClass::Communication => "communication",
        KernelClass::Fused => "fused",
        KernelClass::Copy => "copy",
    }
}
