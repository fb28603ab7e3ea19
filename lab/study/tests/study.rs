//! The model law against the optimum of a simulated node, and on random and broken nodes. More of
//! both: LITD_STUDY_SEEDS, LITD_STUDY_NODES.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod judge;

use litd_plants::{Limiter, Reading};
use litd_policies::{Law, Policy};
use litd_study::harm::RandomNode;
use litd_study::run::{self, Settings};
use litd_study::steered::PowerBit;
use litd_study::{cases, next, parallel, report, rest};
use litd_units::{Celsius, Hertz, Joules, Watts};

fn count(name: &str, usual: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(usual, |text| text.parse().unwrap())
}

#[test]
fn the_model_law_is_near_the_optimum_after_two_adjustments() {
    let cases = cases::levelling(cases::NOISE).unwrap();
    let wanted = |case: &&run::Case| case.name == "default" && case.policy == Policy::GpuRealloc;
    let case = cases.iter().find(wanted).unwrap();
    let settings = Settings {
        samples: 130,
        ..Settings::default()
    };
    let reference = run::reference(case, &settings).unwrap();
    let seeds: Vec<u64> = (0..count("LITD_STUDY_SEEDS", 2)).collect();
    let done = |_| {};
    let runs = parallel::map(
        &seeds,
        |&seed| run::run(case, Law::Model, run::seed(seed), &settings, &reference).unwrap(),
        done,
    );
    let best = reference.best.outcome.time;
    assert!(best < reference.start.time * 0.99, "nothing to be had");
    for run in &runs {
        let behind = run.end.time / best - 1.0;
        assert!(behind < 0.002, "{behind} after {:?}: {}", run.path, run.why);
        assert!(run.slowest < 0.005, "{}", run.slowest);
        assert!(run.adjustments <= 4, "{}", run.adjustments);
    }
}

#[test]
fn random_and_broken_nodes_are_not_worse_off() {
    let numbers: Vec<u64> = (0..count("LITD_STUDY_NODES", 24)).collect();
    let judged = parallel::map(
        &numbers,
        |&number| RandomNode::new(number).unwrap().judge(Law::Model).unwrap(),
        |_| {},
    );
    let breaches = judged.iter().filter(|verdict| verdict.is_breach()).count();
    let told = report::harm(Law::Model, &judged);
    println!("SIMULATED {told}");
    assert_eq!(breaches, 0, "{told}");
    let moved = judged
        .iter()
        .filter(|verdict| verdict.slower < -0.002)
        .count();
    assert!(moved * 10 > judged.len(), "the law helps almost nobody");
}

#[test]
fn a_level_noisy_node_is_left_alone() {
    let seeds = count("LITD_STUDY_SEEDS", 1);
    // The paper's law stands beside it where there is time.
    let laws = match seeds {
        1 => vec![Law::Model],
        _ => Law::ALL.to_vec(),
    };
    let jobs: Vec<(rest::Node, Law, Policy, u64)> = rest::Node::ALL
        .into_iter()
        .flat_map(|node| laws.iter().map(move |&law| (node, law)))
        .flat_map(|(node, law)| Policy::STEERING.map(|policy| (node, law, policy)))
        .flat_map(|(node, law, policy)| (0..seeds).map(move |seed| (node, law, policy, seed)))
        .collect();
    let rests = parallel::map(
        &jobs,
        |&(node, law, policy, seed)| rest::count(node, policy, law, run::seed(seed)).unwrap(),
        |_| {},
    );
    println!("SIMULATED {}", report::at_rest(&rests));
    for rest in rests.iter().filter(|rest| rest.law == Law::Model) {
        assert!(rest.rate() <= 1.0, "{rest:?}");
    }
}

#[test]
fn lower_caps_save_power_and_what_they_cost_in_time_is_told() {
    let choices = next::lower().unwrap();
    for pair in choices
        .windows(2)
        .filter(|pair| pair[0].node == pair[1].node)
    {
        assert!(pair[1].power < pair[0].power, "{pair:?}");
        assert!(pair[1].longer >= pair[0].longer, "{pair:?}");
    }
    println!("SIMULATED {}", report::next(&choices));
}

#[test]
fn nvml_calls_a_current_limit_powers_and_who_doubts_it_looks_at_power() {
    let reading = |limiter, power| Reading {
        cap: Watts(700.0),
        power: Watts(power),
        energy: Joules::ZERO,
        temperature: Celsius(60.0),
        slowdown: Celsius(90.0),
        clock: Hertz(1.665e9),
        limiter,
    };
    let bits = [PowerBit::Cause, PowerBit::Nvml, PowerBit::Doubted];
    for (limiter, power, set) in [
        (Limiter::Power, 699.0, [true, true, true]),
        // Bursts: the cap binds now and then.
        (Limiter::Power, 448.0, [true, true, false]),
        // Zeros times zeros on an H100.
        (Limiter::Current, 437.0, [false, true, false]),
        (Limiter::Current, 650.0, [false, true, true]),
        (Limiter::None, 564.0, [false, false, false]),
        (Limiter::Thermal, 699.0, [false, false, false]),
    ] {
        let told = bits.map(|bit| bit.is_set(&reading(limiter, power)));
        assert_eq!(told, set, "{limiter:?} at {power} W");
    }
}
