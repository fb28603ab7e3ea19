//! `litlab simulate` as a whole process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::LITLAB;

fn oracle(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data/oracle")
        .join(file)
}

fn simulate(args: &[&str]) -> Output {
    Command::new(LITLAB)
        .arg("simulate")
        .args(args)
        .output()
        .unwrap()
}

fn tiny() -> String {
    oracle("tiny-fsdp.json").display().to_string()
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().map(|value| value.as_f64().unwrap()).collect(),
        single => vec![single.as_f64().unwrap()],
    }
}

#[test]
fn every_case_of_the_oracle_comes_out() {
    let text = std::fs::read_to_string(oracle("node.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    for case in &cases {
        let workload = oracle(&format!("{}.json", case["workload"].as_str().unwrap()));
        let speeds = numbers(&case["speeds"])
            .iter()
            .map(f64::to_string)
            .collect::<Vec<_>>();
        let output = simulate(&[
            "--workload",
            &workload.display().to_string(),
            "--speeds",
            &speeds.join(","),
            "--contention",
            &case["contention"].to_string(),
            "--json",
        ]);
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["simulated"], true);
        for key in [
            "iteration_ms",
            "lead_sum_ms",
            "lead_max_ms",
            "lead_last_ms",
            "overlap_ratio",
            "collective_residency_ms",
        ] {
            let (got, expected) = (numbers(&report[key]), numbers(&case[key]));
            assert_eq!(got.len(), expected.len(), "{key}");
            for (got, expected) in got.iter().zip(expected) {
                let tolerance = (expected.abs() * 1e-6).max(1e-9);
                assert!(
                    (got - expected).abs() <= tolerance,
                    "{key}: {got} is not {expected}"
                );
            }
        }
    }
}

#[test]
fn text_says_simulated_and_has_a_line_per_gpu() {
    let output = simulate(&[
        "--workload",
        &tiny(),
        "--speeds",
        "1,1.05",
        "--contention",
        "1.4",
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("SIMULATED one iteration: 79.309 ms"),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.starts_with("  1     1.05 ") && line.contains("60.068"))
    );
    assert!(!text.contains('\u{1b}'), "colours only on a terminal");
}

#[test]
fn bad_input_ends_with_2_and_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let cut = file("cut.json", r#"{"kernels":[{"name":"k","#);
    let deadlock = file(
        "deadlock.json",
        r#"{"kernels":[{"name":"k","work_ms":1,"clock_bound":1,"needs":0}],
            "collectives":[{"name":"c","transfer_ms":1,"after_start_of":0}]}"#,
    );
    let tiny = tiny();
    for (workload, speeds, contention, expected) in [
        ("/nowhere/w.json", "1,1", "1.3", "/nowhere/w.json: "),
        (&*cut, "1,1", "1.3", "cut.json: not a workload"),
        (
            &*deadlock,
            "1,1",
            "1.3",
            "deadlock: kernel 0 (k) needs collective 0 (c)",
        ),
        (
            &*folder.path().display().to_string(),
            "1",
            "1.3",
            "directory",
        ),
        (&*tiny, "1,x", "1.3", "--speeds"),
        (&*tiny, "", "1.3", "--speeds"),
        (&*tiny, "1,0", "1.3", "the speed of GPU 1 is 0"),
        (&*tiny, "-1,1", "1.3", "the speed of GPU 0 is -1"),
        (&*tiny, "nan", "1.3", "the speed of GPU 0 is NaN"),
        (&*tiny, "1,inf", "1.3", "the speed of GPU 1 is inf"),
        (&*tiny, "1e-320", "1.3", "never ends"),
        (&*tiny, "1,1", "0.5", "contention is 0.5"),
        (&*tiny, "1,1", "nan", "contention is NaN"),
    ] {
        let args = [
            "--workload",
            workload,
            "--speeds",
            speeds,
            "--contention",
            contention,
        ];
        for json in [&["--json"][..], &[]] {
            let output = simulate(&[&args[..], json].concat());
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
            assert!(message.contains(expected), "{args:?}: {message}");
            assert!(output.stdout.is_empty(), "{args:?}");
        }
    }
}

/// Names and spans of the kernels in a rank's file, in its order.
fn kernels_of(file: &std::path::Path) -> Vec<(String, f64, f64)> {
    let file = std::fs::File::open(file).unwrap();
    let trace: Value = serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let kernels = events.iter().filter(|event| event["cat"] == "kernel");
    let number = |value: &Value| value.as_f64().unwrap();
    let mut spans: Vec<_> = kernels
        .map(|event| {
            let name = event["name"].as_str().unwrap().to_owned();
            (name, number(&event["ts"]), number(&event["dur"]))
        })
        .collect();
    spans.sort_by(|a, b| a.1.total_cmp(&b.1));
    spans
}

#[test]
fn what_a_hook_without_a_profiler_would_time_is_made_from_the_streams() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = tiny();
    for (how, least, most) in [("leaf", 80, 80), ("block", 2, 80), ("arrivals", 11, 11)] {
        let ranks = folder.path().join(how);
        let text = ranks.display().to_string();
        let output = simulate(&[
            "--workload",
            &tiny,
            "--speeds",
            "1,1.05,1.1",
            "--contention",
            "1.4",
            "--as",
            how,
            "--write-kineto",
            &text,
        ]);
        assert!(output.status.success(), "{output:?}");
        let pieces = kernels_of(&ranks.join("rank0.json.gz"));
        assert!(
            (least..=most).contains(&pieces.len()),
            "{how}: {}",
            pieces.len()
        );
        for pair in pieces.windows(2) {
            let gap = pair[1].1 - (pair[0].1 + pair[0].2);
            assert!(gap.abs() < 0.0015, "{how}: {pair:?}");
        }
        assert!(pieces.iter().all(|(name, _, _)| !name.contains("nccl")));
    }
    let output = simulate(&[
        "--workload",
        &tiny,
        "--speeds",
        "1,1",
        "--contention",
        "1",
        "--as",
        "leaf",
    ]);
    assert!(!output.status.success());
}

#[test]
fn kineto_files_are_written_for_every_rank() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = folder.path().join("new/ranks");
    let ranks_text = ranks.display().to_string();
    let arguments = [
        "--workload",
        &tiny(),
        "--speeds",
        "1,1.05,1.1",
        "--contention",
        "1.4",
    ];
    let output = simulate(&[&arguments[..], &["--write-kineto", &ranks_text]].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_dir(&ranks).unwrap().count(), 3);
    for rank in 0..3 {
        let file = std::fs::File::open(ranks.join(format!("rank{rank}.json.gz"))).unwrap();
        let trace: Value = serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap();
        assert_eq!(trace["simulated"], true);
        assert_eq!(trace["distributedInfo"]["rank"], rank);
        let events = trace["traceEvents"].as_array().unwrap();
        let kernels = events
            .iter()
            .filter(|event| event["cat"] == "kernel")
            .count();
        assert_eq!(kernels, 80 + 11);
    }

    let blocked = folder.path().join("file");
    std::fs::write(&blocked, "").unwrap();
    let blocked = blocked.display().to_string();
    let output = simulate(&[&arguments[..], &["--write-kineto", &blocked]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains(&blocked));
}

#[test]
fn files_of_a_larger_run_are_not_mixed_with_those_of_a_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let (tiny, ranks) = (tiny(), folder.path().display().to_string());
    let run = |speeds| {
        simulate(&[
            "--workload",
            &tiny,
            "--contention",
            "1.4",
            "--write-kineto",
            &ranks,
            "--speeds",
            speeds,
        ])
    };
    // Spaces after commas are fine.
    assert!(run("1, 1.05, 1.1").status.success());
    assert!(run("1,1.1,1.2").status.success(), "the same ranks again");
    let output = run("1,1.05");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("rank2.json.gz") && message.contains("more than 2 ranks"),
        "{message}"
    );
}
