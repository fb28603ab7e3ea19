//! `litlab demo` as a whole process: the paper's job done on the shipped scenarios.
use std::process::{Command, Output};

use serde_json::Value;

use crate::LITLAB;

fn demo(args: &[&str]) -> Output {
    Command::new(LITLAB)
        .arg("demo")
        .args(args)
        .output()
        .unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = demo(&[args, &["--json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(entry: &Value, key: &str) -> f64 {
    entry[key].as_f64().unwrap()
}

fn largest(entry: &Value, key: &str) -> f64 {
    let values = entry[key].as_array().unwrap().iter();
    values.map(|v| v.as_f64().unwrap()).fold(0.0, f64::max)
}

fn sum(entry: &Value, key: &str) -> f64 {
    let values = entry[key].as_array().unwrap().iter();
    values.map(|v| v.as_f64().unwrap()).sum()
}

#[test]
fn the_default_node_loses_its_straggler() {
    for seed in ["1", "2", "77"] {
        let document = json(&["--seed", seed]);
        assert_eq!(document["simulated"], true);
        let [red, realloc, slosh] = document["policies"].as_array().unwrap().as_slice() else {
            panic!("three policies are run when none is named");
        };
        for (entry, name) in [
            (red, "gpu-red"),
            (realloc, "gpu-realloc"),
            (slosh, "cpu-slosh"),
        ] {
            assert_eq!(entry["policy"], name);
            assert_eq!(entry["converged"], true, "{name}");
            let before = largest(entry, "lead_sum_before_ms");
            let after = largest(entry, "lead_sum_ms");
            assert!(after < before / 10.0, "{name}: {before} -> {after}");
        }
        let throughput = |entry| number(entry, "throughput_ratio");
        let power = |entry| number(entry, "node_power_ratio");
        assert!(power(red) <= 0.965 && throughput(red) >= 0.999, "{red}");
        assert!((power(realloc) - 1.0).abs() <= 0.003, "{realloc}");
        assert!(throughput(realloc) >= 1.02, "{realloc}");
        assert!(throughput(slosh) > throughput(realloc), "{slosh}");
        // The budgets: 8 x 750 W, 8 x 700 W, and that plus 20 W per GPU.
        for (entry, budget) in [(red, 6000.0), (realloc, 5600.0), (slosh, 5760.0)] {
            assert!(sum(entry, "caps_w") <= budget, "{entry}");
            assert!(largest(entry, "caps_w") <= 750.0, "{entry}");
        }
    }
}

#[test]
fn same_seed_same_numbers_other_seed_other_numbers() {
    let run = |seed| demo(&["--policy", "gpu-realloc", "--json", "--seed", seed]).stdout;
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn where_the_right_answer_is_to_do_nothing_nothing_is_done_and_why_is_said() {
    let scenarios = [
        ("no-effect", "level"),
        ("thermal-straggler", "heat"),
        ("late-host", "late host"),
        ("slow-link", "slow link"),
        ("uneven-data", "uneven work"),
        ("no-headroom", "no headroom"),
    ];
    for (scenario, reason) in scenarios {
        let document = json(&["--scenario", scenario]);
        let entries = document["policies"].as_array().unwrap();
        assert!(!entries.is_empty());
        for entry in entries {
            let verdict = entry["verdict"].as_str().unwrap();
            assert!(verdict.contains(reason), "{scenario}: {verdict}");
            if scenario == "no-effect" && entry["policy"] == "cpu-slosh" {
                all_got_what_the_cpus_spare(entry);
                continue;
            }
            assert_eq!(entry["adjustments"], 0, "{scenario}: {entry}");
            assert_eq!(entry["converged"], true, "{scenario}: {entry}");
            for ratio in ["throughput_ratio", "node_power_ratio"] {
                assert!(
                    (number(entry, ratio) - 1.0).abs() < 1e-3,
                    "{scenario}: {entry}"
                );
            }
        }
    }
}

/// On a level node the CPUs' watts make all GPUs faster alike.
fn all_got_what_the_cpus_spare(entry: &Value) {
    let caps = entry["caps_w"].as_array().unwrap();
    let watts: Vec<f64> = caps.iter().map(|cap| cap.as_f64().unwrap()).collect();
    assert!(
        watts.iter().all(|cap| (718.0..=720.0).contains(cap)),
        "{entry}"
    );
    assert!(number(entry, "throughput_ratio") > 1.01, "{entry}");
}

#[test]
fn observe_says_what_it_sees_and_writes_nothing() {
    let document = json(&["--policy", "observe"]);
    let entry = &document["policies"][0];
    assert_eq!(entry["adjustments"], 0);
    let verdict = entry["verdict"].as_str().unwrap();
    assert!(verdict.contains("wait for gpu4"), "{verdict}");
    assert!(
        entry["caps_w"]
            .as_array()
            .unwrap()
            .iter()
            .all(|cap| *cap == 700.0)
    );
}

#[test]
fn gpu_red_needs_no_headroom() {
    let document = json(&["--scenario", "no-headroom", "--policy", "gpu-red"]);
    assert!(number(&document["policies"][0], "node_power_ratio") < 0.97);
}

#[test]
fn two_stragglers_both_get_power() {
    let document = json(&["--scenario", "two-stragglers", "--policy", "gpu-realloc"]);
    let entry = &document["policies"][0];
    let cap = |gpu: usize| entry["caps_w"][gpu].as_f64().unwrap();
    assert!(cap(1) > 715.0 && cap(4) > 715.0, "{entry}");
    assert!(number(entry, "throughput_ratio") > 1.015, "{entry}");
}

#[test]
fn text_says_simulated_and_is_plain_when_piped() {
    let output = demo(&["--policy", "gpu-red"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.contains("SIMULATED"), "{text}");
    assert!(text.contains("after/before"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn the_picture_is_an_svg_that_says_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.svg");
    let output = demo(&["--policy", "gpu-red", "--svg", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for text in [
        "SIMULATED",
        "gpu-red: lead",
        "gpu-red: cap",
        "gpu-red: clock",
        "gpu-red: power of all GPUs",
        "throughput",
        "grey lines",
    ] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("typo.toml");
    std::fs::write(&scenario, "title = \"x\"\ntdp = 750\n").unwrap();
    let cases = [
        (vec!["--policy", "gpu-blue"], "gpu-realloc"),
        (vec!["--scenario", "nowhere.toml"], "two-stragglers"),
        (vec!["--scenario", scenario.to_str().unwrap()], "typo.toml"),
        (
            vec!["--policy", "gpu-red", "--svg", "no/such/folder/x.svg"],
            "x.svg",
        ),
    ];
    for (args, hint) in cases {
        let output = demo(&args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(hint), "{args:?}: {stderr}");
        // Nothing was run before the mistake was found.
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn shipped_scenarios_are_listed() {
    let output = demo(&["--list-scenarios"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["default", "no-headroom", "no-effect", "thermal-straggler"] {
        assert!(text.contains(name), "{text}");
    }
}

/// What a terminal of 80 x 24 gets to see of a demo that is quit, and how the demo ends.
fn quit_on_a_terminal(key: &[u8]) -> (String, String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("demo.svg");
    let mut demo = Command::new(LITLAB);
    demo.args(["demo", "--policy", "gpu-red", "--svg"])
        .arg(&picture);
    let (seen, output) = litd_rig::on_a_terminal(demo, key).unwrap();
    assert!(!picture.exists());
    (
        seen,
        String::from_utf8(output.stderr).unwrap(),
        output.status.code(),
    )
}

#[test]
fn a_small_terminal_shows_all_gpus_and_who_quits_is_told_where() {
    // q, Ctrl-C, Esc.
    for key in [&b"q"[..], b"\x03", b"\x1b"] {
        let (seen, stderr, code) = quit_on_a_terminal(key);
        assert_eq!(code, Some(130), "{stderr}");
        assert!(
            stderr.starts_with("litlab: stopped at iteration "),
            "{stderr}"
        );
        assert!(stderr.ends_with(" of gpu-red\n"), "{stderr}");
        assert!(seen.contains("gpu7") && seen.contains("> gpu4"), "{seen}");
        assert!(!seen.contains("paper"), "a table of nothing: {seen}");
    }
}

#[test]
fn one_gpu_has_nobody_to_wait_for() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("one.toml");
    let all = include_str!("../../sim/scenarios/default.toml");
    let one = all
        .replace("count = 8", "count = 1")
        .replace("[3.5, 2.5, 6, 4, 0, 3, 3, 1.5]", "0")
        .replace(
            "[0.061, 0.064, 0.056, 0.060, 0.075, 0.063, 0.063, 0.068]",
            "0.06",
        );
    std::fs::write(&scenario, one).unwrap();
    let output = demo(&["--scenario", scenario.to_str().unwrap()]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("at least two GPUs"), "{stderr}");
}

#[test]
fn text_fits_eighty_columns() {
    for args in [&["--no-live"][..], &["--list-scenarios"]] {
        let text = String::from_utf8(demo(args).stdout).unwrap();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

/// The daemon behind its sockets decides exactly as the loop in this process does: the documents
/// are the same to the last digit, and caps, leads and adjustments are in them.
#[test]
fn the_daemon_decides_as_the_loop_in_this_process() {
    for (scenario, seed) in [
        ("default", "3"),
        ("two-stragglers", "8"),
        ("no-headroom", "5"),
    ] {
        let run = |more: &[&str]| json(&[&["--scenario", scenario, "--seed", seed], more].concat());
        assert_eq!(run(&[]), run(&["--in-process"]), "{scenario}");
    }
}
