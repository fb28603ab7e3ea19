//! What a job gains if some of its ranks compute faster: its collectives once more, in their order, each
//! rank as much earlier as what it waits for allows. Nobody gains more than others waited for him.

use litd_units::Nanos;

use super::{Entry, Matched, step, waits};
use crate::spans::Spans;
use crate::timeline::{KernelClass, Timeline};

/// A rank on its way through the collectives.
struct Runner {
    /// The part of its computation that it saves.
    saves: f64,
    computes: Spans,
    /// How much of its computation is behind it.
    computed: Nanos,
    /// By how much it is earlier than recorded, in nanoseconds.
    earlier: f64,
    end: Nanos,
}

impl Runner {
    fn of(timeline: &Timeline, saves: f64) -> Self {
        let kernels = timeline.kernels.iter();
        let computes = kernels.filter(|kernel| kernel.class == KernelClass::Computation);
        let spans = computes.map(|kernel| (kernel.start, kernel.end));
        Self {
            saves,
            computes: match saves > 0.0 {
                true => Spans::union(spans),
                false => Spans::default(),
            },
            computed: Nanos::ZERO,
            earlier: 0.0,
            end: timeline
                .kernels
                .iter()
                .map(|kernel| kernel.end)
                .max()
                .unwrap_or_default(),
        }
    }

    /// Computes on until then, faster than recorded.
    fn reach(&mut self, at: Nanos) {
        let computed = self.computes.until(at).max(self.computed);
        self.earlier += self.saves * (computed - self.computed).0 as f64;
        self.computed = computed;
    }
}

/// By how much earlier all ranks that `counts` chooses are at the end, in nanoseconds, if each saves such a part of
/// its computation. Of collectives only those count whose ranks are all chosen.
pub(crate) fn gained(
    timelines: &[Timeline],
    matched: &Matched<'_>,
    saves: impl Fn(usize) -> f64,
    counts: impl Fn(usize) -> bool,
) -> f64 {
    let runners = timelines.iter().enumerate();
    let runners = runners.map(|(at, timeline)| Runner::of(timeline, saves(at).max(0.0)));
    let mut runners = Vec::from_iter(runners);
    let mut row = Vec::new();
    for at in step::in_order(matched) {
        matched.row(at as usize, &mut row);
        if row.iter().all(|entry| counts(entry.rank)) {
            meet(&mut runners, &row);
        }
    }
    let chosen = runners.iter_mut().enumerate().filter(|(at, _)| counts(*at));
    let mut chosen = Vec::from_iter(chosen.map(|(_, runner)| runner));
    let end = chosen
        .iter()
        .map(|runner| runner.end)
        .max()
        .unwrap_or_default();
    let earlier = chosen.iter_mut().map(|runner| {
        runner.reach(runner.end);
        runner.earlier + (end - runner.end).0 as f64
    });
    earlier.reduce(f64::min).unwrap_or(0.0).max(0.0)
}

/// Ranks leave a collective earlier as far as the last of them comes earlier, and no rank by more than it
/// waited there. Who did not wait for those that came later goes on by itself.
fn meet(runners: &mut [Runner], row: &[Entry]) {
    let last = row
        .iter()
        .map(|entry| entry.start)
        .max()
        .unwrap_or_default();
    let ahead = |entry: &Entry| (last - entry.start).0 as f64;
    for entry in row {
        if let Some(runner) = runners.get_mut(entry.rank) {
            runner.reach(entry.start);
        }
    }
    let earlier = |entry: &Entry| Some(runners.get(entry.rank)?.earlier + ahead(entry));
    let complete = row.iter().filter_map(earlier).fold(f64::INFINITY, f64::min);
    for (entry, wait) in row.iter().zip(waits::in_one(row)) {
        let goes_on = wait == Nanos::ZERO && entry.start < last;
        if let Some(runner) = runners.get_mut(entry.rank).filter(|_| !goes_on) {
            runner.earlier = complete.min(runner.earlier + wait.0 as f64);
        }
    }
}
