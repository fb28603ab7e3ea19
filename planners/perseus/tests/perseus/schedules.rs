//! Pipeline schedules by what is known of them: how long they take where all stages are equal.

use litd_planner::{Graph, Schedule};

/// The iteration's time, and how many operations there are.
fn time(schedule: Schedule, stages: u32, microbatches: u32) -> (u64, usize) {
    let graph = schedule.graph(stages, microbatches).unwrap();
    // With its weights apart, a backward takes half as long.
    let has_weights = schedule == Schedule::ZeroBubble;
    let units = |op: usize| match graph.kind(op).instruction.as_str() {
        "backward" if !has_weights => 2,
        _ => 1,
    };
    (
        graph.earliest(units)[Graph::SINK as usize],
        graph.operations().len(),
    )
}

const SIZES: [(u32, u32); 5] = [(1, 1), (2, 4), (4, 8), (4, 32), (8, 24)];

#[test]
fn one_f_one_b_and_gpipe_wait_once_through_the_pipeline() {
    for (stages, microbatches) in SIZES {
        let wanted = u64::from(3 * (microbatches + stages - 1));
        let count = 2 * (stages * microbatches) as usize;
        for schedule in [Schedule::OneForwardOneBackward, Schedule::GPipe] {
            assert_eq!(
                time(schedule, stages, microbatches),
                (wanted, count),
                "{schedule:?}"
            );
        }
    }
}

/// Narayanan et al. 2021: the bubble is divided by the number of chunks.
#[test]
fn interleaving_divides_the_bubble() {
    for (stages, microbatches) in SIZES {
        if microbatches % stages != 0 {
            continue;
        }
        for chunks in 1..4 {
            let schedule = Schedule::Interleaved { chunks };
            let wanted = 3 * (chunks * microbatches + stages - 1);
            let count = 2 * (chunks * stages * microbatches) as usize;
            let found = time(schedule, stages, microbatches);
            assert_eq!(
                found,
                (wanted.into(), count),
                "{stages} x {microbatches} x {chunks}"
            );
        }
    }
    assert!(Schedule::Interleaved { chunks: 2 }.graph(4, 6).is_err());
}

/// Qi et al. 2023, ZB-H1: the bubble is a third of 1F1B's.
#[test]
fn zero_bubble_has_a_third_of_the_bubble() {
    for (stages, microbatches) in SIZES {
        let wanted = 3 * microbatches + stages - 1;
        let count = 3 * (stages * microbatches) as usize;
        let found = time(Schedule::ZeroBubble, stages, microbatches);
        assert_eq!(found, (wanted.into(), count), "{stages} x {microbatches}");
    }
}

/// The recomputation fills time in which the gradient is waited for, and the last stage has none.
#[test]
fn early_recomputation_is_cheaper_than_recomputing_on_the_way_back() {
    for (stages, microbatches) in SIZES {
        let (found, count) = time(Schedule::EarlyRecomputation, stages, microbatches);
        let without = u64::from(3 * (microbatches + stages - 1));
        let late = u64::from(4 * (microbatches + stages - 1));
        assert!(
            found >= without && (found < late || stages == 1),
            "{stages} x {microbatches}"
        );
        assert_eq!(count, ((3 * stages - 1) * microbatches) as usize);
    }
}

#[test]
fn impossible_sizes_are_refused() {
    for (stages, microbatches) in [(0, 1), (1, 0), (u32::MAX, 1), (60_000, 60_000)] {
        assert!(Schedule::GPipe.graph(stages, microbatches).is_err());
    }
    assert!(Schedule::Interleaved { chunks: 0 }.graph(2, 2).is_err());
}
