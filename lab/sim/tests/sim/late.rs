//! A rank that is late once in each iteration, where those that wait for it keep others waiting.

use litd_traces::Timeline;
use litd_traces::study::Cause;
use litd_units::Nanos;

use super::parallel::{analysed, run_for};

/// How late the rank is.
const LATE: Nanos = Nanos(20_000_000);

/// A job of two replicas of four ranks each, of which this one is late behind the first kernel of each iteration: for the
/// host's sake, with nothing on its GPU. Its replica waits for it in the first collective, and the other one in the exchange of gradients.
fn with_late(rank: u32, seed: u64, iterations: u32) -> Vec<Timeline> {
    let mut timelines = run_for("tp4dp2", None, seed, iterations);
    for timeline in &mut timelines {
        let of = |kernel| {
            let kind = timeline.collective_of(kernel)?.description.as_deref()?;
            Some(kind.to_owned())
        };
        let kinds = Vec::from_iter(timeline.kernels.iter().map(of));
        let waits_in = match timeline.rank / 4 == rank / 4 {
            true => "tp",
            false => "dp",
        };
        let (mut by, mut iteration, mut waited) = (Nanos::ZERO, None, true);
        let mut began = false;
        for (kernel, kind) in timeline.kernels.iter_mut().zip(kinds) {
            if kernel.iteration != iteration {
                (iteration, waited, began) = (kernel.iteration, false, false);
            }
            let is_late = timeline.rank == rank;
            let first = !waited
                && (is_late && began
                    || !is_late && kind.is_some_and(|kind| kind.contains(waits_in)));
            (waited, began) = (waited || first, true);
            kernel.start += by + if first && is_late { LATE } else { Nanos::ZERO };
            by += if first { LATE } else { Nanos::ZERO };
            kernel.end += by;
        }
        for (nth, iteration) in (0..).zip(&mut timeline.iterations) {
            iteration.start += Nanos(LATE.0 * nth);
            iteration.end += Nanos(LATE.0 * (nth + 1));
        }
    }
    timelines
}

#[test]
fn a_rank_that_is_late_once_in_each_iteration_is_named_and_not_who_waits_for_it() {
    for iterations in 1..5 {
        for (seed, rank) in [(0, 3), (1, 5)] {
            let report = analysed(with_late(rank, seed, iterations));
            let [group] = &report.groups[..] else {
                panic!("{iterations}: one group does equal work");
            };
            let diagnosis = group.diagnosis.as_ref().unwrap();
            assert_ne!(diagnosis.cause, Cause::Healthy, "{iterations} {rank}");
            assert_eq!(
                group.straggler_rank,
                Some(rank),
                "{iterations}: {diagnosis:?}"
            );
        }
    }
}
