//! The five rules against the oracle's answers.

use std::path::PathBuf;

use litd_sim::workload::{Workload, fsdp};
use litd_sim::{Conditions, IterationModel};
use litd_traces::{Aggregation, aggregate, straggler_wave};
use litd_units::Millis;
use serde::Deserialize;

fn oracle(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/oracle")
        .join(file)
}

#[derive(Deserialize)]
struct Case {
    workload: String,
    speeds: Vec<f64>,
    contention: f64,
    iteration_ms: f64,
    lead_sum_ms: Vec<f64>,
    lead_max_ms: Vec<f64>,
    lead_last_ms: Vec<f64>,
    overlap_ratio: Vec<f64>,
    collective_residency_ms: Vec<f64>,
}

/// 1e-6 relative, zeros 1e-9 ms absolute.
fn assert_close(what: &str, got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        let tolerance = (expected.abs() * 1e-6).max(1e-9);
        assert!(
            (got - expected).abs() <= tolerance,
            "{what}: {got} is not {expected}"
        );
    }
}

#[test]
fn every_case_of_the_oracle_comes_out() {
    let text = std::fs::read_to_string(oracle("node.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() >= 6);
    for case in cases {
        let workload = Workload::load(&oracle(&format!("{}.json", case.workload))).unwrap();
        let mut model = IterationModel::new(&workload).unwrap();
        let result = model
            .run(&Conditions::new(&case.speeds, case.contention))
            .unwrap();
        let gpus = 0..case.speeds.len();

        assert_close("iteration", &[result.length.0], &[case.iteration_ms]);
        let wave = straggler_wave(&result.start);
        for (aggregation, expected) in [
            (Aggregation::Sum, &case.lead_sum_ms),
            (Aggregation::Max, &case.lead_max_ms),
            (Aggregation::Last, &case.lead_last_ms),
        ] {
            let leads = wave
                .iter()
                .map(|leads| aggregate(leads, aggregation).unwrap().0);
            assert_close("leads", &leads.collect::<Vec<_>>(), expected);
        }
        let overlap: Vec<_> = gpus.clone().map(|g| result.overlap_ratio(g)).collect();
        assert_close("overlap", &overlap, &case.overlap_ratio);
        let residency: Vec<_> = gpus.map(|g| result.collective_residency(g).0).collect();
        assert_close("residency", &residency, &case.collective_residency_ms);
    }
}

#[test]
fn the_generator_makes_the_oracles_workloads() {
    for (layers, file) in [(32, "llama31-8b-fsdp.json"), (4, "tiny-fsdp.json")] {
        assert_eq!(
            fsdp(layers),
            Workload::load(&oracle(file)).unwrap(),
            "{file}"
        );
    }
}

#[test]
fn a_second_run_forgets_the_first() {
    let workload = fsdp(4);
    let mut fresh = IterationModel::new(&workload).unwrap();
    let expected = fresh.run(&Conditions::new(&[1.0, 1.1], 1.3)).unwrap();
    let mut used = IterationModel::new(&workload).unwrap();
    used.run(&Conditions::new(&[0.5, 0.6, 0.7], 1.9)).unwrap();
    assert_eq!(
        used.run(&Conditions::new(&[1.0, 1.1], 1.3)).unwrap(),
        expected
    );
}

#[test]
fn a_slow_link_ends_late_and_delays_what_needs_it() {
    let workload = fsdp(2);
    let mut model = IterationModel::new(&workload).unwrap();
    let conditions = Conditions {
        slow_link: Some(&[0.0, 0.1]),
        ..Conditions::new(&[1.0, 1.0], 1.3)
    };
    let result = model.run(&conditions).unwrap();
    for (j, collective) in workload.collectives.iter().enumerate() {
        let late = result.collective_end[1][j] - result.collective_end[0][j];
        assert!((late - collective.transfer * 0.1).abs() < Millis(1e-9));
    }
    let needy = workload
        .kernels
        .iter()
        .rposition(|kernel| kernel.needs.is_some());
    let k = needy.unwrap();
    assert!(result.start[1][k] > result.start[0][k]);
}

#[test]
fn a_host_gap_delays_every_kernel() {
    let workload = fsdp(2);
    let mut model = IterationModel::new(&workload).unwrap();
    let gaps = [Millis(0.0), Millis(0.05)];
    let late = Conditions {
        host_gap: Some(&gaps),
        ..Conditions::new(&[1.0, 1.0], 1.3)
    };
    let result = model.run(&late).unwrap();
    // The kernels of the late one are as fast; it starts the last of them later, though not
    // later by every gap, since it waits for collectives meanwhile.
    let last = workload.kernels.len() - 1;
    let lead = result.start[1][last] - result.start[0][last];
    assert!(lead > Millis(0.05 * 10.0), "{lead}");
    for k in 1..=last {
        let idle = result.start[1][k] - (result.start[1][k - 1] + result.duration[1][k - 1]);
        assert!(idle >= Millis(0.05 - 1e-9), "kernel {k} came after {idle}");
    }
}

#[test]
fn bad_conditions_are_refused() {
    let mut model = IterationModel::new(&fsdp(1)).unwrap();
    let mut refusal = |speeds: &[f64], contention| {
        let refused = model.run(&Conditions::new(speeds, contention));
        refused.expect_err("must be refused").to_string()
    };
    assert!(refusal(&[], 1.3).contains("no speeds"));
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(refusal(&[1.0, bad], 1.3).contains("speed of GPU 1"));
    }
    for bad in [0.99, f64::NAN, f64::INFINITY] {
        assert!(refusal(&[1.0], bad).contains("contention"));
    }
    assert!(refusal(&[1e-320], 1.3).contains("never ends"));
    let short = [vec![1.0; 3]];
    let conditions = Conditions {
        noise: Some(&short),
        ..Conditions::new(&[1.0], 1.3)
    };
    assert!(model.run(&conditions).is_err());
    let gaps = [Millis(-1.0)];
    let conditions = Conditions {
        host_gap: Some(&gaps),
        ..Conditions::new(&[1.0], 1.3)
    };
    assert!(model.run(&conditions).is_err());
}

#[test]
fn more_than_a_machine_holds_is_refused() {
    let mut model = IterationModel::new(&fsdp(32)).unwrap();
    let error = model
        .run(&Conditions::new(&vec![1.0; 100_000], 1.3))
        .unwrap_err();
    assert!(error.to_string().contains("100000 GPUs"), "{error}");
}

#[test]
fn numbers_without_an_end_are_refused() {
    let text = r#"{"kernels": [{"name": "a", "work_ms": 1, "clock_bound": 0},
        {"name": "b", "work_ms": 1, "clock_bound": 0.5}], "collectives": []}"#;
    let mut model = IterationModel::new(&Workload::from_json(text, "test").unwrap()).unwrap();
    for speed in [1e-310, f64::MIN_POSITIVE] {
        let result = model.run(&Conditions::new(&[speed, 1.0], 1.3));
        if let Ok(result) = result {
            assert!(result.start.iter().flatten().all(|start| start.is_finite()));
            assert!(result.length.0 > 1e6, "{}", result.length);
        }
    }
}
