//! When a GPU had nothing to do although it waited for no collective: its host was late.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use litd_units::Nanos;

use crate::timeline::{Kernel, KernelClass, Timeline};

/// By how much a collective may end after what waited for it started: streams stamp their times
/// apart, and older traces round them to whole microseconds.
const SLACK: Nanos = Nanos(1_000);

/// How long no kernel computed or copied, up to the start of the next one. Where a collective
/// ended in such a gap the next kernel may have waited for it: then only what comes after its end
/// counts. Kernels come in the order of their starts, each with its class, start and end.
pub(crate) fn idle(kernels: impl IntoIterator<Item = (KernelClass, Nanos, Nanos)>) -> Nanos {
    let mut idle = Nanos::ZERO;
    let mut busy_until = None::<Nanos>;
    // Collectives that had not ended at the last start of another kernel.
    let mut running = BinaryHeap::<Reverse<Nanos>>::new();
    for (class, start, end) in kernels {
        if class.communicates() {
            running.push(Reverse(end));
            continue;
        }
        let before = busy_until.unwrap_or(start);
        if start > before {
            let mut free = before;
            // Each is looked at once, however many of them run on.
            while let Some(end) = running.peek().map(|end| end.0)
                && end <= start + SLACK
            {
                free = free.max(end.min(start));
                running.pop();
            }
            idle += start - free;
        }
        busy_until = Some(before.max(end));
    }
    idle
}

/// How long nothing at all ran before collectives that their host launched after all else had ended: its GPU comes late
/// to these because of it. Of kernels that are `wanted`. Where no launches are known, before those with which iterations
/// begin: what a GPU waits for there is its host.
pub(crate) fn before_collectives(timeline: &Timeline, wanted: impl Fn(&Kernel) -> bool) -> Nanos {
    let mut idle = Nanos::ZERO;
    let mut busy_until = None::<Nanos>;
    let mut iteration = None;
    let unknown = timeline.launches.iter().flatten().next().is_none();
    for (at, kernel) in timeline.kernels.iter().enumerate() {
        let before = busy_until.filter(|&before| kernel.start > before);
        if let Some(before) = before.filter(|_| kernel.class.communicates() && wanted(kernel)) {
            let begins = unknown && kernel.iteration != iteration;
            let late = timeline.launch(at).map_or(begins, |launch| launch > before);
            idle += if late {
                kernel.start - before
            } else {
                Nanos::ZERO
            };
        }
        iteration = kernel.iteration;
        busy_until = busy_until.max(Some(kernel.end));
    }
    idle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_collective_is_no_idleness() {
        use KernelClass::{Communication, Computation, Copy};
        let kernels = [
            (Computation, 0, 10),
            (Communication, 2, 30),
            // Waits for the collective, and then 1 for its host.
            (Computation, 31, 40),
            (Copy, 35, 45),
            // A collective that runs on is not what this one waits for.
            (Communication, 46, 90),
            (Computation, 50, 60),
            (Computation, 60, 70),
            (Communication, 65, 100),
        ];
        let micros = |time: i64| Nanos(1_000 * time);
        let kernels = kernels.map(|(class, start, end)| (class, micros(start), micros(end)));
        assert_eq!(idle(kernels), micros(1 + 5));
        // It is waited for, although its end is stamped a little late.
        let late = (Computation, micros(100) - Nanos(900), micros(110));
        assert_eq!(idle(kernels.into_iter().chain([late])), micros(1 + 5));
        let too_late = (Computation, micros(98), micros(110));
        assert_eq!(
            idle(kernels.into_iter().chain([too_late])),
            micros(1 + 5 + 8)
        );
        assert_eq!(idle([]), Nanos::ZERO);
    }
}
