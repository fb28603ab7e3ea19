//! `litlab plan kareus` and `litlab reproduce kareus`, on the simulated GPU.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::LITLAB;

/// Llama 3.2 3B on two stages of 8 GPUs.
const JOB: &str = r#"{
    "model": {"hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8,
              "head_dim": 128, "intermediate_size": 8192, "vocab_size": 128256},
    "training": {"tensor_parallel": 8, "context_parallel": 1, "pipeline_parallel": 2, "microbatch": 8,
                 "microbatches": 8, "sequence": 4096, "recompute": true}}"#;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("job.json"), JOB).unwrap();
    folder
}

fn run(folder: &Path, given: &[&str]) -> Output {
    let command = &mut Command::new(LITLAB);
    command.args(given).current_dir(folder).output().unwrap()
}

fn plan(folder: &Path, more: &[&str]) -> String {
    let given = [&["plan", "kareus", "--job", "job.json"], more].concat();
    let output = run(folder, &given);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_searched_plan_says_that_it_is_simulated_and_comes_out_again() {
    let folder = folder();
    let written = [
        "--csv",
        "points.csv",
        "--pictures",
        "pictures",
        "--seed",
        "3",
    ];
    let text = plan(folder.path(), &written);
    assert!(text.starts_with("SIMULATED: "), "{text}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let points = read("points.csv");
    assert!(points.starts_with("# SIMULATED\n"), "{points:.99}");
    for picture in ["iteration.svg", "forward-attention.svg"] {
        let picture = read(&format!("pictures/{picture}"));
        assert!(picture.contains("SIMULATED"), "{picture:.99}");
    }
    assert_eq!(plan(folder.path(), &written), text);
    assert_ne!(plan(folder.path(), &["--seed", "4"]), text);
}

/// What overlap is for: with the same simulated GPU Kareus's fastest plan is faster than each baseline's and takes
/// less energy.
#[test]
fn overlap_saves_time_and_energy_beside_the_baselines() {
    let folder = folder();
    let given = ["--json", "plan", "kareus", "--job", "job.json"];
    let output = run(folder.path(), &given);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["simulated"], true);
    let methods = report["methods"].as_array().unwrap();
    let fastest = |it: &Value| [0, 1].map(|at| it["fastest_s_J"][at].as_f64().unwrap());
    let (kareus, baselines) = methods.split_last().unwrap();
    assert_eq!((&kareus["method"], baselines.len()), (&"Kareus".into(), 3));
    let [time, energy] = fastest(kareus);
    for it in baselines {
        let [slower, more] = fastest(it);
        assert!(time < slower && energy < more, "{report}");
    }
}

#[test]
fn judged_searches_are_held_against_every_candidate() {
    let folder = folder();
    let text = plan(folder.path(), &["--compare-searches", "1"]);
    assert!(text.starts_with("SIMULATED: "), "{text}");
    let row = |name: &str| -> Vec<f64> {
        let row = text.lines().find_map(|it| it.strip_prefix(name)).unwrap();
        row.split_whitespace()
            .map(|it| it.parse().unwrap())
            .collect()
    };
    // 18 clocks, 10 counts of SMs; 4 launches or 5.
    for (name, candidates) in [
        ("forward/attention", 720.0),
        ("forward/mlp", 720.0),
        ("backward/attention", 900.0),
        ("backward/mlp", 720.0),
    ] {
        let [all, tried, median, worst, ..] = row(name)[..] else {
            panic!("{text}");
        };
        assert_eq!((all, median), (candidates, worst));
        assert!(tried < all / 2.0, "{text}");
        assert!((95.0..=100.0).contains(&worst), "{text}");
    }
}

#[test]
fn a_gpu_that_is_not_the_simulated_one_is_refused() {
    let folder = folder();
    let gpu = r#"{"sms": 108, "clocks": [900e6, 1980e6], "stride": 15e6, "least_clock": 900e6, "most_sms": 30,
                  "matrix_rate": 312e12, "link_rate": 300e9}"#;
    std::fs::write(folder.path().join("gpu.json"), gpu).unwrap();
    let given = [
        "plan",
        "kareus",
        "--job",
        "job.json",
        "--gpu",
        "gpu.json",
        "--compare-searches",
        "1",
    ];
    let output = run(folder.path(), &given);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        error.contains("the simulated GPU can't be locked to"),
        "{error}"
    );
}

fn reproduce(what: &str) -> Output {
    let given = ["--json", "reproduce", "kareus", "--what", what];
    run(Path::new("."), &given)
}

#[test]
fn the_papers_tables_stand_beside_what_is_simulated() {
    // Of all tables these need one search.
    let output = run(
        Path::new("."),
        &["reproduce", "kareus", "--what", "table-8"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("SIMULATED: "), "{text}");
    let items: Vec<Value> = serde_json::from_slice(&reproduce("table-8").stdout).unwrap();
    assert_eq!(items.len(), 6, "{items:?}");
    for it in &items {
        let [theirs, ours, difference] =
            ["theirs", "ours", "difference"].map(|key| it[key].as_f64().unwrap());
        assert!((ours - theirs - difference).abs() < 1e-9, "{it}");
        assert!(it["note"].as_str().unwrap().contains("SIMULATED"), "{it}");
        // What lacks a part is no better than the whole.
        assert!(ours >= 0.0, "{it}");
    }
}

#[test]
fn a_table_that_the_paper_does_not_have_is_refused() {
    let output = reproduce("table-77");
    assert!(!output.status.success(), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("no item of that name"), "{error}");
}
