//! The paper's analysis on simulated nodes: the oracle's predictions, and causes told apart.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use std::path::Path;

use litd_sim::rng::Rng;
use litd_sim::{Conditions, IterationModel, Workload, record};
use litd_traces::study::{Cause, ModelOptions, Study, remove_skew, study};
use litd_traces::{AlignOptions, Kernel, KernelClass, Timeline};
use litd_units::{Millis, Nanos};
use serde_json::Value;

fn oracle(file: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../testdata/oracle")
        .join(file)
}

fn workload(name: &str) -> Workload {
    Workload::load(&oracle(&format!("{name}.json"))).unwrap()
}

fn studied(mut timelines: Vec<Timeline>) -> Study {
    let skew = remove_skew(&mut timelines);
    study(
        &timelines,
        skew,
        &AlignOptions::default(),
        &ModelOptions::default(),
    )
    .unwrap()
}

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
        let models = studied(record::timelines(&workload, result, record::EPOCH, 0)).models;
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

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Clock(f64),
    Host(f64),
    Data(f64),
    Link(f64),
}

/// One iteration of eight GPUs with 1 % kernel noise, of which one has a fault.
fn node(fault: Fault, seed: u64) -> (Vec<Timeline>, usize) {
    let workload = workload("llama31-8b-fsdp");
    let mut rng = Rng::stream(seed, &[]);
    let at = (seed % 8) as usize;
    let mut speeds = [1.0; 8];
    let mut gaps = [Millis(0.0); 8];
    let mut noise = vec![vec![1.0; workload.kernels.len()]; 8];
    for row in &mut noise {
        for factor in row {
            *factor = (1.0 + 0.01 * rng.normal()).max(0.5);
        }
    }
    match fault {
        Fault::Clock(by) => speeds[at] = 1.0 - by,
        Fault::Data(by) => noise[at].iter_mut().for_each(|factor| *factor *= 1.0 + by),
        Fault::Host(by) => {
            gaps[at] = Millis(600.0 * by / workload.kernels.len() as f64);
        }
        Fault::None | Fault::Link(_) => {}
    }
    let mut model = IterationModel::new(&workload).unwrap();
    let result = model.run(&Conditions {
        speeds: &speeds,
        contention: 1.3,
        noise: Some(&noise),
        host_gap: Some(&gaps),
    });
    let result = result.unwrap();
    let mut timelines = record::timelines(&workload, result, record::EPOCH, 0);
    if let Fault::Link(by) = fault {
        late_transfers(&mut timelines, at, by);
    }
    (timelines, at)
}

/// Makes the transfers of one GPU longer, and all that it does afterwards later.
fn late_transfers(timelines: &mut [Timeline], at: usize, by: f64) {
    let collectives = |timeline: &Timeline| {
        let kernels = timeline.kernels.iter();
        let kernels = kernels.filter(|kernel| kernel.class == KernelClass::Communication);
        Vec::from_iter(kernels.copied())
    };
    let all = Vec::from_iter(timelines.iter().map(collectives));
    let mut delays = Vec::new();
    for k in 0..all[at].len() {
        let arrival = all.iter().map(|row| row[k].start).max().unwrap();
        let end = all[at][k].end;
        delays.push((end, Nanos(((end - arrival).0 as f64 * by) as i64)));
    }
    let timeline = &mut timelines[at];
    for kernel in &mut timeline.kernels {
        let Kernel { start, end, .. } = *kernel;
        // Everyone waits for the next collective, so that only the last delay counts.
        let behind = delays.iter().rfind(|(at, _)| *at <= start);
        kernel.start += behind.map_or(Nanos::ZERO, |delay| delay.1);
        let own = delays.iter().find(|(at, _)| *at == end);
        let own = own.filter(|_| kernel.class == KernelClass::Communication);
        kernel.end += own.or(behind).map_or(Nanos::ZERO, |delay| delay.1);
        kernel.end = kernel.end.max(kernel.start);
    }
    timeline.sort();
}

#[test]
fn causes_are_told_apart_at_one_percent_of_noise() {
    for (fault, cause) in [
        (Fault::None, Cause::Healthy),
        (Fault::Clock(0.015), Cause::SlowClock),
        (Fault::Clock(0.06), Cause::SlowClock),
        (Fault::Host(0.02), Cause::HostBound),
        (Fault::Data(0.03), Cause::DataDependent),
        (Fault::Link(0.1), Cause::Communication),
    ] {
        let mut right = 0;
        let mut wrong = Vec::new();
        for seed in 0..100 {
            let (timelines, at) = node(fault, seed);
            let diagnosis = studied(timelines).diagnosis;
            let rank = (cause != Cause::Healthy).then_some(at as u32);
            if (diagnosis.cause, diagnosis.rank) == (cause, rank) {
                right += 1;
            } else {
                wrong.push(diagnosis);
            }
        }
        assert!(
            right >= 95,
            "{fault:?}: {right} of 100: {:#?}",
            wrong.first()
        );
    }
}

#[test]
fn noise_is_not_sold_as_speed() {
    let (timelines, _) = node(Fault::None, 1);
    let models = studied(timelines).models;
    assert!(models.min.speedup > 1.01, "{models:?}");
    assert!(models.min.speedup_without_noise < 1.003, "{models:?}");
    assert!(models.min.noise_share.unwrap() > 0.8, "{models:?}");
}

#[test]
fn a_clock_that_is_ahead_is_found_and_set_back() {
    let (mut timelines, _) = node(Fault::Clock(0.02), 3);
    let told = studied(timelines.clone()).waves;
    for kernel in &mut timelines[5].kernels {
        kernel.start += Nanos(4_000_000);
        kernel.end += Nanos(4_000_000);
    }
    let study = studied(timelines);
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
    let study = studied(record::timelines(&workload, result, record::EPOCH, 0));
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
