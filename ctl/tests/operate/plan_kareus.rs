//! `litctl plan kareus` as a whole process, on results that are recorded in a file.

use std::path::Path;
use std::process::{Command, Output};

use litd_kareus::{Job, Records, Results, Workload};
use serde_json::Value;

use crate::LITCTL;
use crate::sketch::{Sketch, exhaustive, llama_3b, training};

const JOB: &str = "job.json";
const RESULTS: &str = "results.csv";

/// A job of two stages, with results of every candidate of a made-up GPU.
fn folder(change: impl Fn(String) -> String) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let workload = Workload::new(llama_3b(), training(8, 1, 2, true)).unwrap();
    let job = Job::new(&workload).unwrap();
    let results: Results = exhaustive(&job, &mut Sketch { asked: 0 });
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    write(JOB, serde_json::to_string(&workload).unwrap());
    write(RESULTS, change(Records::write(&results, &job, false)));
    folder
}

fn plan(folder: &Path, more: &[&str]) -> Output {
    let given = ["plan", "kareus", "--job", JOB, "--results", RESULTS];
    Command::new(LITCTL)
        .args(more.iter().filter(|it| **it == "--json"))
        .args(given)
        .args(["--static-power", "80"])
        .args(more.iter().filter(|it| **it != "--json"))
        .current_dir(folder)
        .output()
        .unwrap()
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(folder: &Path, more: &[&str]) -> Value {
    let output = plan(folder, &[more, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_job_and_its_results_become_a_plan_beside_the_baselines() {
    let folder = folder(|it| it);
    let output = plan(
        folder.path(),
        &["--csv", "points.csv", "--pictures", "pictures"],
    );
    assert!(output.status.success(), "{output:?}");
    let text = said(&output.stdout);
    for method in [
        "Megatron-LM",
        "Megatron-LM + Perseus",
        "Nanobatching + Perseus",
        "Kareus",
    ] {
        assert!(
            text.lines().any(|it| it.starts_with(method)),
            "{method}: {text}"
        );
    }
    assert!(!text.contains("SIMULATED"), "{text}");
    let points = std::fs::read_to_string(folder.path().join("points.csv")).unwrap();
    assert!(
        points.starts_with("method,time_s,energy_J\nMegatron-LM,"),
        "{points:.99}"
    );
    let picture = folder.path().join("pictures/iteration.svg");
    assert!(std::fs::read_to_string(picture).unwrap().contains("Kareus"));

    let report = json(folder.path(), &[]);
    assert_eq!(
        (report["gpus"].as_f64(), report["simulated"].as_bool()),
        (Some(16.0), Some(false))
    );
    let of = |method: usize, key: &str| report["methods"][method]["reductions"][key].as_f64();
    let [perseus, kareus] = [1, 3].map(|it| of(it, "energy").unwrap());
    assert!(
        of(3, "time").unwrap() > 0.0 && kareus > 0.0 && perseus > 0.0,
        "{report}"
    );
    assert!(of(3, "iso_time_energy").unwrap() > 0.0 && of(1, "iso_time_energy") == Some(0.0));
    // Every microbatch of every stage is in the plan.
    let uses = report["plan"]["microbatches"].as_array().unwrap();
    let all: u64 = uses
        .iter()
        .map(|it| it["microbatches"].as_u64().unwrap())
        .sum();
    assert_eq!(all, 8 * 2 * 2);
}

#[test]
fn a_limit_chooses_the_plan() {
    let folder = folder(|it| it);
    let fastest = json(folder.path(), &[]);
    let (time, energy) = (&fastest["plan"]["time_s"], &fastest["plan"]["energy_J"]);
    let (time, energy) = (time.as_f64().unwrap(), energy.as_f64().unwrap());
    let limit = (time * 1.1).to_string();
    let slower = json(folder.path(), &["--within-time", &limit]);
    assert!(slower["plan"]["time_s"].as_f64().unwrap() <= time * 1.1);
    assert!(slower["plan"]["energy_J"].as_f64().unwrap() < energy);
    let least = fastest["methods"][3]["cheapest_s_J"][1].as_f64().unwrap();
    let budget = 0.5 * (energy + least);
    let limit = budget.to_string();
    let cheaper = json(folder.path(), &["--within-energy", &limit]);
    assert!(cheaper["plan"]["energy_J"].as_f64().unwrap() <= budget);
    let output = plan(folder.path(), &["--within-time", "0.001"]);
    let error = said(&output.stderr);
    assert!(
        !output.status.success() && error.contains("no plan is within that: the fastest takes"),
        "{error}"
    );
}

#[test]
fn a_search_of_the_records_shows_what_each_pass_found() {
    let folder = folder(|it| format!("# SIMULATED\n{it}"));
    let output = plan(folder.path(), &["--search", "1", "--pictures", "pictures"]);
    let text = said(&output.stdout);
    assert!(
        output.status.success() && text.starts_with("SIMULATED"),
        "{output:?}"
    );
    let report = json(folder.path(), &["--search", "1"]);
    for search in report["searches"].as_array().unwrap() {
        let number = |key: &str| search[key].as_u64().unwrap();
        assert!(
            number("tried") <= 224 && number("tried") < number("candidates"),
            "{search}"
        );
        let by_pass = search["by_pass"].as_array().unwrap().iter();
        let sum: u64 = by_pass.map(|it| it.as_u64().unwrap()).sum();
        assert_eq!(sum, number("frontier"));
    }
    let picture = folder.path().join("pictures/forward-mlp.svg");
    assert!(
        std::fs::read_to_string(picture)
            .unwrap()
            .contains("SIMULATED")
    );
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let error = |change: &dyn Fn(String) -> String| {
        let folder = folder(change);
        let output = plan(folder.path(), &[]);
        assert!(!output.status.success(), "{output:?}");
        said(&output.stderr)
    };
    let token = error(&|it| it.replacen("norm_0", "gelu_0", 1));
    assert!(
        token.contains("results.csv: line 2: \"gelu_0\" is no computation of forward/attention"),
        "{token}"
    );
    let without = |name: &'static str| {
        move |it: String| {
            let lines = it.lines().filter(|line| !line.starts_with(name));
            lines.collect::<Vec<_>>().join("\n")
        }
    };
    let missing = error(&without("forward/output"));
    assert!(
        missing.contains("forward of stage 1: there is no result for forward/output"),
        "{missing}"
    );
    // Without a partition the sequential model is left; without both there is nothing.
    let both = error(&|it| without("backward/mlp")(without("backward/block")(it)));
    assert!(
        both.contains("backward of stage 0: there is no result for backward/"),
        "{both}"
    );

    let folder = folder(|it| it);
    std::fs::write(folder.path().join(JOB), r#"{"model": {}, "training": {}}"#).unwrap();
    let job = said(&plan(folder.path(), &[]).stderr);
    assert!(job.contains("job.json: missing field"), "{job}");
}

#[test]
fn searches_are_judged_by_all_results() {
    let folder = folder(|it| it);
    let report = json(folder.path(), &["--compare-searches", "3"]);
    assert_eq!(report["seeds"].as_array().unwrap().len(), 3);
    assert_eq!(report["partitions"].as_array().unwrap().len(), 4);
    let output = plan(folder.path(), &["--compare-searches", "3"]);
    let text = said(&output.stdout);
    for row in ["backward/attention", "beginning", "uncertainty"] {
        assert!(text.lines().any(|it| it.starts_with(row)), "{text}");
    }
    let few = plan(folder.path(), &["--compare-searches", "0"]);
    assert!(!few.status.success());
}

/// A user with a GPU asks, measures, appends and asks again, until a plan can be made.
#[test]
fn candidates_are_asked_for_until_nothing_is_left() {
    let folder = folder(|it| it);
    let path = folder.path();
    let all = std::fs::read_to_string(path.join(RESULTS)).unwrap();
    // The made-up GPU's result for each name, clock, SMs and launch.
    let known: std::collections::BTreeMap<String, &str> = all
        .lines()
        .skip(1)
        .map(|line| (line.split(',').take(4).collect::<Vec<_>>().join(","), line))
        .collect();
    let mut results = all.lines().next().unwrap().to_owned();
    let mut asked = Vec::new();
    loop {
        let mut command = Command::new(LITCTL);
        command.args(["plan", "candidates", "--job", JOB, "--static-power", "80"]);
        if !asked.is_empty() {
            std::fs::write(path.join("part.csv"), &results).unwrap();
            command.args(["--results", "part.csv"]);
        }
        let output = command.current_dir(path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let rows = said(&output.stdout);
        let rows: Vec<&str> = rows.lines().skip(1).collect();
        if rows.is_empty() {
            assert!(
                said(&output.stderr).contains("nothing is left to measure"),
                "{output:?}"
            );
            break;
        }
        for row in &rows {
            let key = row.split(',').take(4).collect::<Vec<_>>().join(",");
            results += &format!("\n{}", known[&key]);
        }
        asked.push(rows.len());
    }
    // 96 of each of 4 partitions, and 6 sequences at 18 clocks; then up to 4 batches of 32.
    assert_eq!(asked[..2], [4 * 96 + 6 * 18, 4 * 32]);
    assert!(asked.len() <= 5, "{asked:?}");
    let given = [
        "plan",
        "kareus",
        "--job",
        JOB,
        "--results",
        "part.csv",
        "--static-power",
        "80",
    ];
    let output = Command::new(LITCTL)
        .args(given)
        .current_dir(path)
        .output()
        .unwrap();
    assert!(
        output.status.success() && said(&output.stdout).contains("Kareus"),
        "{output:?}"
    );
}

/// A rank that computes a forward pass of 4 blocks and a backward pass of 4, as PyTorch's profiler writes it.
fn trace(blocks: usize) -> String {
    let mut events = Vec::new();
    let mut at = 0;
    let mut add = |name: &str, collective: &str| {
        let args = match collective {
            "" => r#"{"device":0,"stream":7}"#.to_owned(),
            it => format!(
                r#"{{"device":0,"stream":20,"Collective name":"{it}","In msg nelems":50000000,"Out msg nelems":50000000,"dtype":"BFloat16","Group size":8}}"#
            ),
        };
        events.push(format!(
            r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{at},"dur":90,"args":{args}}}"#
        ));
        at += 100;
    };
    add("embedding_kernel", "");
    for _ in 0..blocks {
        for name in [
            "add_kernel",
            "rms_norm_kernel",
            "nvjet_qkv",
            "rope_kernel",
            "flash_fwd",
            "nvjet_out",
        ] {
            add(name, "");
        }
        add("ncclDevKernel_AllReduce", "allreduce");
        for name in [
            "add_kernel",
            "rms_norm_kernel",
            "nvjet_up",
            "silu_kernel",
            "nvjet_down",
        ] {
            add(name, "");
        }
        add("ncclDevKernel_AllReduce", "allreduce");
    }
    add("loss_kernel", "");
    for _ in 0..blocks {
        for name in ["nvjet_down_bwd", "silu_bwd_kernel", "nvjet_up_bwd"] {
            add(name, "");
        }
        add("ncclDevKernel_AllReduce", "allreduce");
        for name in [
            "norm_bwd_kernel",
            "nvjet_out_bwd",
            "flash_bwd",
            "rope_bwd_kernel",
            "nvjet_qkv_bwd",
        ] {
            add(name, "");
        }
        add("ncclDevKernel_AllReduce", "allreduce");
        add("norm_bwd_kernel", "");
    }
    format!(
        r#"{{"distributedInfo":{{"rank":0,"world_size":8}},"traceEvents":[{}]}}"#,
        events.join(",")
    )
}

#[test]
fn a_trace_shows_its_repeating_sequences_and_their_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let run = |blocks, more: &[&str]| {
        std::fs::write(folder.path().join("rank0.json"), trace(blocks)).unwrap();
        let given = ["plan", "sequences", "rank0.json"];
        let command = &mut Command::new(LITCTL);
        command
            .args(more)
            .args(given)
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let output = run(4, &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sequences = report["sequences"].as_array().unwrap();
    let lengths: Vec<_> = sequences
        .iter()
        .map(|it| (it["operations"].as_u64(), it["repetitions"].as_u64()))
        .collect();
    assert_eq!(lengths, [(Some(13), Some(4)), (Some(11), Some(4))]);
    assert_eq!(sequences[0]["milliseconds"].as_f64(), Some(13.0 * 0.09));
    let computations = |sequence: usize, partition: usize| {
        let all = sequences[sequence]["partitions"][partition]["computations"]
            .as_array()
            .unwrap();
        all.iter()
            .map(|it| it.as_str().unwrap())
            .collect::<Vec<_>>()
    };
    // Additions and norms are one; the backward pass begins with the norm behind the sum.
    let mlp = [
        "add_kernel_0",
        "nvjet_up_0",
        "silu_kernel_0",
        "nvjet_down_0",
    ];
    assert!((0..2).any(|it| computations(0, it) == mlp), "{report}");
    let attention = [
        "norm_bwd_kernel_0",
        "nvjet_out_bwd_0",
        "flash_bwd_0",
        "rope_bwd_kernel_0",
        "nvjet_qkv_bwd_0",
    ];
    assert!(
        (0..2).any(|it| computations(1, it) == attention),
        "{report}"
    );
    let text = said(&run(4, &[]).stdout);
    assert!(
        text.contains("beside AllReduce of 100.0 MB among 8"),
        "{text}"
    );
    let few = run(2, &[]);
    let error = said(&few.stderr);
    assert!(
        !few.status.success() && error.contains("three times in a row"),
        "{error}"
    );
}

/// The files that an engine follows: the contract, and the artifact's two, which say the same together.
#[test]
fn a_plan_is_written_for_an_engine() {
    let folder = folder(|it| format!("# SIMULATED\n{it}"));
    let path = folder.path();
    let report = json(
        path,
        &[
            "--plan",
            "plan.json",
            "--plan",
            "freqs_pipeline_1.py",
            "--plan",
            "scheds_pipeline_1.py",
        ],
    );
    let check = |args: &[&str]| -> Value {
        let output = Command::new(LITCTL)
            .args(["plan", "check", "--json", "--schedule", "1f1b"])
            .args(args)
            .current_dir(path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let contract = check(&["plan.json"]);
    let files = check(&["freqs_pipeline_1.py", "scheds_pipeline_1.py"]);
    assert_eq!(
        (&contract["kind"], &files[0]["kind"], &files[1]["kind"]),
        (&"contract".into(), &"freqs".into(), &"scheds".into())
    );
    assert_eq!(contract["clocks_mhz"], files[0]["clocks_mhz"]);
    assert_eq!(contract["partitions"], files[1]["partitions"]);
    // A backward recomputes, so the forward's partitions are there twice, by two names.
    let names: Vec<&String> = contract["partitions"].as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        ["attention", "mlp", "recompute_attention", "recompute_mlp"]
    );

    let text = std::fs::read_to_string(path.join("plan.json")).unwrap();
    let plan: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plan["planner"], "kareus");
    assert_eq!(plan["simulated"], true);
    // What the report counts of each stage and direction is what the plan has.
    for used in report["plan"]["microbatches"].as_array().unwrap() {
        let stage = used["stage"].as_u64().unwrap() as usize;
        let own = |it: &&Value| {
            let launches: Vec<_> = it["partitions"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|own| (&own["launch"], &own["sms"]))
                .collect();
            let said: Vec<_> = used["partitions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|own| (&own["launch"], &own["sms"]))
                .collect();
            it["instruction"] == used["instruction"]
                && it["clock_mhz"].as_f64() == used["clock_mhz"].as_f64()
                && launches == said
        };
        let instructions = plan["stages"][stage]["instructions"].as_array().unwrap();
        assert!(
            instructions.iter().filter(own).count() as u64
                >= used["microbatches"].as_u64().unwrap()
        );
    }
}
