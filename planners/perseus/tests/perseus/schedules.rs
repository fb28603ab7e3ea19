//! Pipeline schedules by what is known of them: how long they take where all stages are equal.

use litd_planner::{CONSTANT, Graph, Pipeline, Scale, Schedule};
use litd_profiles::{Kind, Pricing, Profile};

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

/// Loading, transfers and synchronising where the profile has them, and nowhere else; the times of a pipeline
/// whose forwards take 10 and backwards 20 units, worked out by hand.
#[test]
fn operations_of_constant_time_stand_where_they_happen() {
    let constant = |name: &str| CONSTANT.iter().any(|(constant, _)| *constant == name);
    let time = |named: &[(&str, u32, u64)], stages: u32, microbatches: u32| {
        let has = |kind: &Kind| {
            named
                .iter()
                .any(|it| (it.0, it.1) == (kind.instruction.as_str(), kind.stage))
        };
        let graph = Schedule::OneForwardOneBackward
            .graph_with(stages, microbatches, has)
            .unwrap();
        let units = |op: usize| {
            let kind = graph.kind(op);
            let own = named
                .iter()
                .find(|it| (it.0, it.1) == (kind.instruction.as_str(), kind.stage));
            match kind.instruction.as_str() {
                "forward" => 10,
                "backward" => 20,
                _ => own.unwrap().2,
            }
        };
        let extra =
            (0..graph.operations().len()).filter(|op| constant(&graph.kind(*op).instruction));
        (graph.earliest(units)[Graph::SINK as usize], extra.count())
    };
    // Without any: one microbatch through two stages and back, or two stages busy.
    assert_eq!(time(&[], 2, 1), (60, 0));
    assert_eq!(time(&[("load", 0, 5)], 2, 1), (65, 1));
    // The second microbatch is loaded while the first is forwarded by the other stage: 2 loads, 3 forwards ...
    assert_eq!(
        time(&[("load", 0, 5)], 2, 2),
        (5 + 10 + 10 + 20 + 10 + 20 + 20, 2)
    );
    assert_eq!(
        time(&[("send-forward", 0, 3), ("send-backward", 1, 4)], 2, 1),
        (67, 2)
    );
    // The last stage sends nothing forward, and the first nothing back.
    assert_eq!(
        time(&[("send-forward", 1, 3), ("send-backward", 0, 4)], 2, 1),
        (60, 0)
    );
    // A link makes one transfer after the other: 4 forwards of 10 arrive with 30 between them.
    assert_eq!(time(&[("send-forward", 0, 40)], 2, 1), (100, 1));
    let slow_link = time(&[("send-forward", 0, 40)], 2, 4).0;
    assert!(slow_link >= 10 + 4 * 40 + 10 + 20 + 20, "{slow_link}");
    // Each stage synchronises when its backwards are done: the first does last.
    assert_eq!(
        time(&[("synchronize", 0, 7), ("synchronize", 1, 100)], 2, 1),
        (140, 2)
    );
    assert_eq!(
        time(&[("synchronize", 0, 7), ("synchronize", 1, 9)], 2, 1),
        (67, 2)
    );
}

/// The planner takes their times from the profile; what they use counts, they have no clock, and a GPU that
/// loads may draw less than one that waits.
#[test]
fn constant_times_come_from_the_profile() {
    let mut text = String::from("stage,instruction,frequency,time,energy\n");
    for stage in 0..2 {
        for (clock, slower, power) in [(1400, 1.0, 300.0), (1000, 1.2, 220.0)] {
            for (name, time) in [("forward", 0.010), ("backward", 0.020)] {
                let time = time * slower;
                text += &format!("{stage},{name},{clock},{time},{}\n", time * power);
            }
        }
    }
    let job = |more: &str| {
        let profile: Profile = format!("{text}{more}").parse().unwrap();
        let (spec, _) = profile.price(&Pricing::default()).unwrap();
        let has = |kind: &Kind| spec.entry(kind).is_some();
        let graph = Schedule::OneForwardOneBackward
            .graph_with(2, 3, has)
            .unwrap();
        let Pricing { unit, blocking, .. } = Pricing::default();
        let scale = Scale {
            unit,
            blocking,
            gpus: 2,
        };
        Pipeline::new(graph, &spec, scale)
            .unwrap()
            .characterise(|_, _| {})
    };
    let (without, with) = (
        job(""),
        job("0,load,0,0.005,0.25\n1,synchronize,0,0.0065,0.6\n"),
    );
    let times = [&without, &with].map(|job| job.frontier().shortest().0);
    assert!(times[1] >= times[0] + 5, "{times:?}");
    let plan = with.lookup(None);
    let contract = with.contract(&plan);
    assert_eq!(contract.problems(&[]), [""; 0]);
    assert_eq!(
        contract
            .stages
            .iter()
            .map(|it| it.instructions.len())
            .sum::<usize>(),
        12
    );
    // Three loads with 50 W and a synchronisation, against waiting as long with 75 W.
    let graph = with.problem().graph();
    let constant = (0..plan.operations.len()).filter(|op| {
        graph.kind(*op).instruction != "forward" && graph.kind(*op).instruction != "backward"
    });
    let used: f64 = constant.map(|op| plan.operations[op].energy.0).sum();
    assert!((used - (3.0 * 0.25 + 0.6)).abs() < 1e-9, "{used}");
}
