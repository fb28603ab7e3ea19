//! `litlab replay` as people run it: recorded traces, a real daemon, a simulated node.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::output;

fn json(arguments: &[&str]) -> Value {
    let output = output(&[&["--json"], arguments].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What litctl makes of the same traces.
fn analysis(traces: &str) -> Value {
    let litctl = Command::new(litd_rig::program("litctl").unwrap())
        .args(["analyze", "--json", traces])
        .output()
        .unwrap();
    assert!(litctl.status.success(), "{litctl:?}");
    serde_json::from_slice(&litctl.stdout).unwrap()
}

/// The traces of four ranks, made by the simulator.
fn simulated(folder: &Path) {
    let workload = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/oracle/tiny-fsdp.json"
    );
    let folder = folder.to_str().unwrap();
    let arguments = ["simulate", "--workload", workload, "--contention", "1.15"];
    let more = ["--speeds", "0.9,1.05,1.2,1.1", "--write-kineto", folder];
    assert!(output(&[&arguments[..], &more].concat()).status.success());
}

/// Milliseconds of a lead, in replay's report and in the analysis of the same traces.
fn leads(traces: &str) -> [Vec<f64>; 2] {
    let analysis = analysis(traces);
    let report = json(&["replay", traces]);
    assert_eq!(
        (&report["iterations"], &report["sampled"]),
        (&1.into(), &1.into())
    );
    let ranks = analysis["ranks"].as_array().unwrap();
    let analysed = ranks
        .iter()
        .map(|rank| rank["lead"]["sum_ns"].as_f64().unwrap() / 1e6);
    let devices = report["status"]["devices"].as_array().unwrap().iter();
    let shown = devices
        .take(ranks.len())
        .map(|device| device["lead"].as_f64().unwrap());
    [analysed.collect(), shown.collect()]
}

fn assert_same([analysed, shown]: [Vec<f64>; 2]) {
    assert!(analysed.iter().any(|lead| *lead > 0.0), "{analysed:?}");
    for (analysed, shown) in analysed.iter().zip(&shown) {
        assert!((analysed - shown).abs() < 1e-6, "{analysed} and {shown}");
    }
}

#[test]
fn the_daemon_shows_the_leads_that_the_traces_hold() {
    let folder = tempfile::tempdir().unwrap();
    simulated(folder.path());
    assert_same(leads(folder.path().to_str().unwrap()));
}

#[test]
fn the_stand_ins_sensors_do_not_contradict_what_the_traces_show() {
    let folder = tempfile::tempdir().unwrap();
    simulated(folder.path());
    let traces = folder.path().to_str().unwrap();
    assert_eq!(analysis(traces)["diagnosis"]["cause"], "slow-clock");
    let report = json(&["replay", traces, "--times", "8"]);
    let why = report["status"]["jobs"][0]["why"].as_str().unwrap();
    assert!(
        why.contains("slow clock") && !why.contains("not power"),
        "{why}"
    );
}

#[test]
fn real_traces_are_played_too() {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces");
    let traces = PathBuf::from(shared).join("param_dlrm_v100x8");
    if !traces.exists() {
        let note = b"SKIPPED: ../shared/traces is absent\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), note);
        return;
    }
    assert_same(leads(traces.to_str().unwrap()));
}

#[test]
fn traces_are_played_as_often_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    simulated(folder.path());
    let traces = folder.path().to_str().unwrap();
    let report = json(&["replay", traces, "--times", "4"]);
    assert_eq!(report["iterations"], 4);
    assert_eq!(report["sampled"], 4);
    assert_eq!(report["status"]["jobs"][0]["samples"], 4);
    let text = output(&["replay", traces]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("played 1 iteration of 4 ranks; the daemon asked for 1\n"));
    assert!(text.contains("SIMULATED"), "{text}");
}

/// The traces of the two ranks of one node of a job on two nodes, whose collectives run in a group
/// of these ranks.
fn on_two_nodes(folder: &Path, group: &str) {
    for rank in 0..2 {
        let mut events = Vec::new();
        for iteration in 0..8 {
            let start = 10_000 * iteration;
            for (name, stream, from, length, args) in [
                ("gemm", 7, 0, 4000 + 50 * rank, String::new()),
                (
                    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                    20,
                    4000 + 50 * rank,
                    5900 - 50 * rank,
                    format!(r#","Process Group Ranks":"{group}","Collective name":"allreduce""#),
                ),
            ] {
                events.push(format!(
                    r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":{stream},"ts":{},"dur":{length},"args":{{"stream":{stream},"device":{rank}{args}}}}}"#,
                    start + from,
                ));
            }
            events.push(format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{iteration}","pid":1,"tid":1,"ts":{start},"dur":10000}}"#
            ));
        }
        let text = format!(
            r#"{{"distributedInfo":{{"rank":{rank},"world_size":4}},"traceEvents":[{}]}}"#,
            events.join(",")
        );
        std::fs::write(folder.join(format!("rank{rank}.json")), text).unwrap();
    }
}

fn why_of(group: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    on_two_nodes(folder.path(), group);
    let report = json(&["replay", folder.path().to_str().unwrap()]);
    report["status"]["jobs"][0]["why"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn the_ranks_of_one_node_show_whether_it_waits_for_the_others() {
    let why = why_of("[0, 1, 2, 3]");
    let waits = "all GPUs of this node wait for the job's other nodes in 58";
    assert!(why.contains(waits), "{why}");
    let why = why_of("[0, 1]");
    let leads = "this node waits for the job's other nodes in no more than 0.0 %";
    assert!(why.contains(leads), "{why}");
    let why = why_of("[]");
    assert!(why.contains("is not known: between 0.0 % and 58"), "{why}");
}
