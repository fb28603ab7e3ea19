//! The baselines choose as their papers say, and none is better than the frontier.

use litd_planner::baselines::Baselines;
use litd_planner::{Job, Pipeline, Scale, Schedule};
use litd_profiles::{Kind, Measurement, Pricing, Profile, Shape, synthetic};
use litd_units::{Hertz, Joules, Millis};

fn job(profile: &Profile, stages: u32, microbatches: u32) -> Job {
    let pricing = Pricing {
        unit: Millis(0.1),
        shape: Shape::Lines,
        ..Pricing::default()
    };
    let (spec, _) = profile.price(&pricing).unwrap();
    let graph = Schedule::OneForwardOneBackward
        .graph(stages, microbatches)
        .unwrap();
    let scale = Scale {
        unit: pricing.unit,
        blocking: pricing.blocking,
        gpus: stages,
    };
    Pipeline::new(graph, &spec, scale)
        .unwrap()
        .characterise(|_, _| {})
}

/// Clocks of 1000, 1200 and 1400 MHz: 240, 270 and 310 W, for operations as long as their weight.
fn three_clocks(weights: &[[f64; 2]]) -> Profile {
    let clocks = [
        (1400.0, 1.0, 310.0),
        (1200.0, 1.1, 270.0),
        (1000.0, 1.25, 240.0),
    ];
    let mut rows = Vec::new();
    for (stage, weights) in (0..).zip(weights) {
        for (instruction, weight) in ["forward", "backward"].into_iter().zip(weights) {
            for (megahertz, slower, power) in clocks {
                let kind = Kind {
                    stage,
                    instruction: instruction.into(),
                };
                let time = Millis(weight * slower);
                let measurement = Measurement {
                    clock: Hertz(megahertz * 1e6),
                    time,
                    energy: Joules(power * time.0 * 1e-3),
                };
                rows.push((kind, measurement));
            }
        }
    }
    Profile::new(rows)
}

fn megahertz(plan: &litd_planner::Plan) -> Vec<u32> {
    let clocks = plan.operations.iter();
    clocks
        .map(|it| (it.clock.unwrap().0 / 1e6) as u32)
        .collect()
}

#[test]
fn one_limit_selects_the_highest_clock_within_it() {
    let profile = three_clocks(&[[10.0, 20.0], [12.0, 24.0]]);
    let job = job(&profile, 2, 3);
    let baselines = Baselines::new(&job, &profile).unwrap();
    let plans = baselines.zeus_global();
    let clocks: Vec<u32> = plans.iter().map(|plan| megahertz(plan)[0]).collect();
    assert_eq!(clocks, [1400, 1200, 1000]);
    for (plan, slower) in plans.iter().zip([1.0, 1.1, 1.25]) {
        assert!(
            megahertz(plan)
                .iter()
                .all(|clock| *clock == megahertz(plan)[0])
        );
        let full = baselines.full_clock(None).realised;
        assert!((plan.realised.0 - full.0 * slower).abs() < 1e-6);
    }
    // 297 W for as long as at the full clock, against 310 W and 300 W.
    assert_eq!(megahertz(&baselines.least_energy())[0], 1200);
}

#[test]
fn a_limit_for_each_stage_balances_the_forwards() {
    // The second stage is 20 % longer: the first can run at 1200 MHz, and not at 1000 MHz.
    let profile = three_clocks(&[[10.0, 20.0], [12.0, 24.0]]);
    let job = job(&profile, 2, 3);
    let baselines = Baselines::new(&job, &profile).unwrap();
    let plans = baselines.zeus_per_stage();
    let of_stage = |plan: &litd_planner::Plan, stage: u32| {
        let graph = job.problem().graph();
        let own = (0..plan.operations.len()).find(|it| graph.kind(*it).stage == stage);
        megahertz(plan)[own.unwrap()]
    };
    let pairs: Vec<(u32, u32)> = plans
        .iter()
        .map(|it| (of_stage(it, 0), of_stage(it, 1)))
        .collect();
    assert_eq!(
        pairs,
        [(1200, 1400), (1000, 1400), (1000, 1200), (1000, 1000)]
    );
}

#[test]
fn envpipe_keeps_its_envelope_at_the_full_clock() {
    // The last stage is the longest, as EnvPipe assumes: nothing else is on the critical path for long.
    let profile = synthetic::profile_with_weights(&[1.0, 1.0, 1.0, 1.4], 3);
    let job = job(&profile, 4, 12);
    let baselines = Baselines::new(&job, &profile).unwrap();
    let (plan, full) = (baselines.envpipe(None), baselines.full_clock(None));
    let graph = job.problem().graph();
    let mut slowed = 0;
    for (number, clock) in megahertz(&plan).into_iter().enumerate() {
        let (kind, own) = (graph.kind(number), graph.operations()[number]);
        let first = kind.instruction == "forward" && own.microbatch == 0;
        let last = kind.instruction == "backward" && own.microbatch == 11;
        match kind.stage == 3 || first || last {
            true => assert_eq!(clock, 1410, "{kind} {}", own.microbatch),
            false => slowed += usize::from(clock < 1410),
        }
    }
    assert!(slowed > 50, "{slowed}");
    assert!(plan.realised.0 <= full.realised.0 * 1.02 && plan.energy < full.energy);
}

/// Within a unit of time for each operation on a path, and the curves' convexity, nothing beats the frontier.
#[test]
fn no_baseline_is_better_than_the_frontier() {
    for (weights, seed) in [([1.0, 1.1, 1.05, 1.2], 1), ([1.2, 1.0, 1.1, 1.0], 2)] {
        let profile = synthetic::profile_with_weights(&weights, seed);
        let job = job(&profile, 4, 8);
        let baselines = Baselines::new(&job, &profile).unwrap();
        let mut plans = vec![baselines.envpipe(None), baselines.full_clock(None)];
        plans.extend(baselines.zeus_global());
        plans.extend(baselines.zeus_per_stage());
        assert!(plans.len() > 50);
        for plan in plans {
            let best = job.lookup(Some(plan.realised));
            assert!(
                best.energy.0 <= plan.energy.0 * 1.001,
                "{} J in {}, not {} J in {}",
                plan.energy.0,
                plan.realised,
                best.energy.0,
                best.realised
            );
        }
    }
}
