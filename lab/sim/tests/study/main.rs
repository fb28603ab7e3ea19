//! The paper's analysis on simulated nodes: the oracle's predictions, causes told apart, and
//! recordings that mean nothing.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod node;
mod recordings;

use litd_sim::workload::fsdp;
use litd_sim::{Conditions, IterationModel, Workload, record};
use litd_traces::study::{Cause, Diagnosis};
use litd_units::Nanos;
use node::{Fault, LARGE, NONE, Node, clock, data, host, link, llama, oracle, studied, workload};
use serde_json::Value;

#[test]
fn equations_1_to_16_give_the_oracles_predictions() {
    let cases = std::fs::read_to_string(oracle("node.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&cases).unwrap();
    assert_eq!(cases.len(), 6);
    for case in &cases {
        let workload = workload(case["workload"].as_str().unwrap());
        let speeds = case["speeds"].as_array().unwrap();
        let speeds = Vec::from_iter(speeds.iter().map(|speed| speed.as_f64().unwrap()));
        let contention = case["contention"].as_f64().unwrap();
        let mut model = IterationModel::new(&workload).unwrap();
        let result = model.run(&Conditions::new(&speeds, contention)).unwrap();
        let models = studied(&mut record::timelines(&workload, result, record::EPOCH, 0)).models;
        let expected = &case["predict_700w_idle_140w"];
        let constant = expected["constant"].as_u64().unwrap();
        assert_eq!(models.constant as u64, constant);
        assert_eq!(models.varying as u64, expected["varying"].as_u64().unwrap());
        let close = |value: f64, expected: &Value| {
            let expected = expected.as_f64().unwrap();
            assert!((value - expected).abs() < 1e-6, "{value} and {expected}");
        };
        for (name, aligned) in [
            ("max", &models.max),
            ("med", &models.med),
            ("min", &models.min),
        ] {
            close(aligned.speedup, &expected[name]["speedup"]);
            close(
                aligned.node_power_ratio,
                &expected[name]["node_power_ratio"],
            );
        }
        let baseline = expected["t_baseline"].as_f64().unwrap();
        assert!((models.t_baseline_ms / baseline - 1.0).abs() < 1e-6);
    }
}

impl Node {
    /// In how many of so many seeds the cause is named, and one that is wrong.
    fn told(&self, fault: Fault, cause: Cause, seeds: u64) -> (u64, Option<Diagnosis>) {
        let mut wrong = None;
        let mut right = 0;
        for seed in 0..seeds {
            let at = (seed % self.gpus as u64) as usize;
            let diagnosis = studied(&mut self.run(&[(at, fault)], seed)).diagnosis;
            let rank = (cause != Cause::Healthy).then_some(at as u32);
            if (diagnosis.cause, diagnosis.rank) == (cause, rank) {
                right += 1;
            } else {
                wrong = Some(diagnosis);
            }
        }
        (right, wrong)
    }
}

/// The least that must be told apart at 1 % of kernel noise.
const LEAST: [(Fault, Cause); 5] = [
    (NONE, Cause::Healthy),
    (
        Fault {
            clock: 0.015,
            ..NONE
        },
        Cause::SlowClock,
    ),
    (Fault { host: 0.02, ..NONE }, Cause::HostBound),
    (Fault { data: 0.03, ..NONE }, Cause::DataDependent),
    (Fault { link: 0.1, ..NONE }, Cause::Communication),
];

#[test]
fn causes_are_told_apart_at_one_percent_of_noise() {
    for (fault, cause) in LEAST {
        let (right, wrong) = LARGE.told(fault, cause, 100);
        assert!(right >= 95, "{fault:?}: {right} of 100: {wrong:#?}");
    }
}

/// Seeds per node; the gate's --full sets more.
fn seeds(usual: u64) -> u64 {
    let told = std::env::var("LITD_DIAGNOSIS_SEEDS").ok();
    told.and_then(|seeds| seeds.parse().ok()).unwrap_or(usual)
}

/// Models of 2, 4 and 32 layers on 2, 4 and 8 GPUs, one iteration and several.
fn nodes() -> impl Iterator<Item = Node> {
    let workloads: [fn() -> Workload; 3] = [|| fsdp(2), || fsdp(4), llama];
    let of = |workload, gpus| {
        [1, 4].map(|iterations| Node {
            workload,
            gpus,
            iterations,
            ..LARGE
        })
    };
    workloads
        .into_iter()
        .flat_map(move |workload| [2, 4, 8].map(|gpus| of(workload, gpus)))
        .flatten()
}

#[test]
fn causes_are_told_apart_on_other_nodes_and_by_other_amounts() {
    let seeds = seeds(2);
    for (fault, cause) in LEAST {
        for times in [1.0, 1.5, 2.0, 5.0, 10.0] {
            let fault = Fault {
                clock: fault.clock * times,
                host: fault.host * times,
                data: fault.data * times,
                link: fault.link * times,
            };
            let told = Vec::from_iter(nodes().map(|node| (node.told(fault, cause, seeds), node)));
            let right: u64 = told.iter().map(|((right, _), _)| right).sum();
            let of = seeds * told.len() as u64;
            let wrong = told.iter().find(|((_, wrong), _)| wrong.is_some());
            println!("{fault:?}: {right} of {of}");
            assert!(
                right * 100 >= 95 * of,
                "{fault:?}: {right} of {of}: {wrong:#?}"
            );
        }
    }
}

#[test]
fn of_two_causes_at_once_none_is_named_that_is_not_there() {
    let seeds = seeds(1);
    let faults = [clock(0.03), host(0.03), data(0.04), link(0.3)];
    let causes = LEAST[1..].iter().map(|(_, cause)| *cause);
    let causes = Vec::from_iter(causes);
    let (mut named, mut of) = (0, 0);
    for (a, &one) in faults.iter().enumerate() {
        for (b, &other) in faults.iter().enumerate().skip(a + 1) {
            for node in nodes() {
                for seed in 0..seeds {
                    // On one GPU, and on two.
                    for at in [0, 1] {
                        let mut timelines = node.run(&[(0, one), (at, other)], seed);
                        let diagnosis = studied(&mut timelines).diagnosis;
                        let on = |rank: u32, cause| {
                            (rank == 0 && cause == causes[a])
                                || (rank as usize == at && cause == causes[b])
                        };
                        let right = match diagnosis.rank {
                            Some(rank) => on(rank, diagnosis.cause),
                            None => false,
                        };
                        let unknown = diagnosis.cause == Cause::Unknown;
                        of += 1;
                        named += u64::from(right);
                        assert!(
                            right || unknown,
                            "{one:?} {other:?} on {at}, {node:?}: {diagnosis:#?}"
                        );
                    }
                }
            }
        }
    }
    println!("named {named} of {of}");
}

#[test]
fn noise_is_not_sold_as_speed() {
    let models = studied(&mut LARGE.run(&[], 1)).models;
    assert!(models.min.speedup > 1.01, "{models:?}");
    assert!(models.min.speedup_without_noise < 1.003, "{models:?}");
    assert!(models.min.noise_share.unwrap() > 0.8, "{models:?}");
}

#[test]
fn a_clock_that_is_ahead_is_found_and_set_back() {
    let mut timelines = LARGE.run(&[(3, clock(0.02))], 3);
    let told = studied(&mut timelines.clone()).waves;
    for kernel in &mut timelines[5].kernels {
        kernel.start += Nanos(4_000_000);
        kernel.end += Nanos(4_000_000);
    }
    let study = studied(&mut timelines);
    assert_eq!(study.skew.ahead_ns[5], Nanos(4_000_000));
    assert!(study.skew.removed[5]);
    assert_eq!(
        study
            .skew
            .removed
            .iter()
            .filter(|removed| **removed)
            .count(),
        1
    );
    assert_eq!(study.waves[0].lead_ns, told[0].lead_ns);
    assert_eq!(study.diagnosis.cause, Cause::SlowClock);
}

#[test]
fn leads_grow_and_level_off_and_overlap_goes_with_duration() {
    let workload = workload("llama31-8b-fsdp");
    let speeds = [1.035, 1.025, 1.06, 1.04, 1.0, 1.03, 1.03, 1.015];
    let mut model = IterationModel::new(&workload).unwrap();
    let result = model.run(&Conditions::new(&speeds, 1.3)).unwrap();
    let mut timelines = record::timelines(&workload, result, record::EPOCH, 0);
    let study = studied(&mut timelines);
    assert!(!study.straggler_changes);
    assert_eq!(study.waves[0].last[0].rank, 4);
    assert_eq!(study.waves[0].plateau[4].lead_ns, Nanos::ZERO);
    assert!(study.waves[0].plateau[2].lead_ns > Nanos(100_000));
    assert!(study.waves[0].plateau[2].from < 0.9);
    // 32 layers forward and backward.
    assert_eq!(study.layers.len(), 64);
    let varying = study
        .kernels
        .iter()
        .find(|kernel| kernel.varying > 20)
        .unwrap();
    let pearson = varying.pearson.iter().flatten().copied();
    assert!(pearson.clone().count() > 0 && pearson.fold(1.0, f64::min) > 0.9);
}
