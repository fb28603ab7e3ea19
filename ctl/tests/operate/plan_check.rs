//! `litctl plan check`, and the plans that litctl itself writes, as whole processes.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::LITCTL;

const PROFILE: &str = "stage,instruction,frequency,time,energy
0,forward,1410,0.030,9.0
0,forward,1200,0.034,7.9
0,forward,1000,0.040,7.4
0,backward,1410,0.060,18.5
0,backward,1200,0.068,16.2
0,backward,1000,0.080,15.2
1,forward,1410,0.024,7.2
1,forward,1200,0.027,6.3
1,forward,1000,0.032,5.9
1,backward,1410,0.048,14.8
1,backward,1200,0.054,13.0
1,backward,1000,0.064,12.2
";

const FREQS: &str = "[
[('forward', 930), ('forward', 900), ('backward', 900), ('backward', 930)],
[('forward', 930), ('backward', 900), ('forward', 900), ('backward', 900)],
]
# Iteration 324 total cost: 1224.8441048803174
";

const SCHEDS: &str = "[
[('forward', 'norm_0-none-12-1024', 'norm_0-none-18-1024'), ('backward', 'attn_0-none-21-1024', 'norm_0-none-15-1024')],
]
";

fn plan(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(LITCTL);
    let command = command.arg("plan").args(args.split_whitespace());
    command.current_dir(folder).output().unwrap()
}

fn check(folder: &Path, args: &str) -> (Value, bool) {
    let output = plan(folder, &format!("check --json {args}"));
    let document = serde_json::from_slice(&output.stdout);
    let document = document.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    match output.status.code() {
        Some(0) => (document, true),
        Some(2) => (document, false),
        _ => panic!("{output:?}"),
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("profile.csv", PROFILE),
        ("freqs.py", FREQS),
        ("scheds.py", SCHEDS),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn one_file_is_one_object_and_several_are_an_array() {
    let folder = folder();
    let folder = folder.path();
    let freqs = json!({
        "kind": "freqs", "stages": 2, "instructions": 8, "microbatches": 2,
        "clocks_mhz": [900, 930], "partitions": {}, "ok": true, "problems": [],
    });
    assert_eq!(check(folder, "freqs.py"), (freqs.clone(), true));
    let scheds = json!({
        "kind": "scheds", "stages": 1, "instructions": 2, "microbatches": 1,
        "clocks_mhz": [], "partitions": {"attention": 2, "mlp": 2}, "ok": true, "problems": [],
    });
    assert_eq!(
        check(folder, "freqs.py scheds.py"),
        (json!([freqs, scheds]), true)
    );
    // A file that is no plan, or can't be read, is an object too: a script sees every file.
    std::fs::write(folder.join("bad.py"), "[[('forward', 930)],\n [import os]]").unwrap();
    let (all, is_ok) = check(folder, "bad.py none.py freqs.py");
    assert!(!is_ok);
    assert_eq!(all[0]["kind"], Value::Null);
    assert_eq!(
        all[0]["problems"],
        json!(["line 2, column 3: \"import\" is no literal: a plan is read, and never run"])
    );
    assert!(
        all[1]["problems"][0]
            .as_str()
            .unwrap()
            .contains("No such file"),
        "{all}"
    );
    assert_eq!(all[2], freqs);
    // A pipe is not waited for.
    let pipe = folder.join("pipe.py");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    assert!(!check(folder, "pipe.py").1);
}

/// The plans of litctl can be followed, in each format, and have exactly the schedule's instructions.
#[test]
fn the_plans_that_litctl_writes_are_plans() {
    let folder = folder();
    let folder = folder.path();
    let schedules = ["1f1b", "gpipe", "interleaved --chunks 2"];
    for (number, schedule) in schedules.into_iter().enumerate() {
        let common = format!("--profile profile.csv --microbatches 4 --schedule {schedule}");
        for (command, name, kind) in [
            (format!("frontier {common}"), "plan.json", "contract"),
            (
                format!("lookup --slowdown 1.1 {common}"),
                "late.json",
                "contract",
            ),
            (format!("lookup {common}"), "plan.py", "freqs"),
        ] {
            let made = plan(folder, &format!("{command} --plan {name}"));
            assert!(made.status.success(), "{made:?}");
            let flags = if kind == "freqs" && number == 2 {
                String::new()
            } else {
                format!("--schedule {schedule}")
            };
            let (found, is_ok) = check(folder, &format!("{flags} {name}"));
            assert!(is_ok, "{command}: {found}");
            assert_eq!(found["kind"], kind);
            assert_eq!(found["instructions"], 16, "{found}");
        }
        let other = schedules[(number + 1) % 3];
        let (found, is_ok) = check(folder, &format!("plan.json --schedule {other}"));
        let problem = found["problems"][0].as_str().unwrap();
        assert!(!is_ok && problem.starts_with("stage"), "{found}");
    }
    let text = std::fs::read_to_string(folder.join("late.json")).unwrap();
    let late: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(late["planner"], "perseus");
    assert_eq!(late.get("simulated"), None);
    // The parts of a stage neither overlap nor leave gaps: expected times and slacks fill the time until the
    // straggler.
    let totals = &late["totals"];
    assert!(totals["until_ms"].as_f64() >= totals["time_ms"].as_f64());
    let energies = late["stages"].as_array().unwrap().iter();
    let energies = energies.flat_map(|it| it["instructions"].as_array().unwrap());
    let (mut busy, mut energy) = (0.0, 0.0);
    for it in energies {
        busy += it["time_ms"].as_f64().unwrap();
        energy += it["energy_j"].as_f64().unwrap();
    }
    let gpus = late["stages"].as_array().unwrap().len() as f64;
    let waiting = gpus * totals["until_ms"].as_f64().unwrap() - busy;
    let all = energy + waiting * 1e-3 * late["blocking_w"].as_f64().unwrap();
    assert!(
        (all - totals["energy_j"].as_f64().unwrap()).abs() < 1e-9 * all,
        "{all} {totals}"
    );
}

/// The slack of every instruction may be used up at once, and the iteration takes no longer.
#[test]
fn all_slack_may_be_used_at_once() {
    let folder = folder();
    let folder = folder.path();
    let made = plan(
        folder,
        "lookup --profile profile.csv --microbatches 6 --schedule 1f1b --plan plan.json",
    );
    assert!(made.status.success(), "{made:?}");
    let text = std::fs::read_to_string(folder.join("plan.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    // Two stages: replay the iteration with each instruction as long as its time and slack.
    let length = |with_slack: f64| {
        let mut ends = std::collections::HashMap::new();
        let mut free = [0.0, 0.0];
        let stages = [0, 1].map(|it| document["stages"][it]["instructions"].as_array().unwrap());
        let mut next = [0, 0];
        while (0..2).any(|it| next[it] < stages[it].len()) {
            for stage in 0..2 {
                let Some(own) = stages[stage].get(next[stage]) else {
                    continue;
                };
                let key = |stage: usize| {
                    (
                        stage,
                        own["instruction"].to_string(),
                        own["microbatch"].as_u64(),
                    )
                };
                let is_forward = own["instruction"] == "forward";
                let waits_for = match (is_forward, stage) {
                    (true, 1) => ends.get(&key(0)).copied(),
                    (false, 0) => ends.get(&key(1)).copied(),
                    _ => Some(0.0),
                };
                let Some(ready) = waits_for else { continue };
                let time = own["time_ms"].as_f64().unwrap()
                    + with_slack * own["slack_ms"].as_f64().unwrap();
                free[stage] = f64::max(free[stage], ready) + time;
                ends.insert(key(stage), free[stage]);
                next[stage] += 1;
            }
        }
        f64::max(free[0], free[1])
    };
    let planned = document["totals"]["time_ms"].as_f64().unwrap();
    assert!(
        (length(0.0) - planned).abs() < 1e-3,
        "{} {planned}",
        length(0.0)
    );
    assert!(
        (length(1.0) - planned).abs() < 1e-3,
        "{} {planned}",
        length(1.0)
    );
}

#[test]
fn people_are_told_what_is_wrong_and_where() {
    let folder = folder();
    let folder = folder.path();
    let bad = FREQS.replace(
        "[('forward', 930), ('backward', 900), ('forward', 900), ('backward', 900)],",
        "[],",
    );
    std::fs::write(folder.join("bad.py"), bad).unwrap();
    let output = plan(folder, "check bad.py freqs.py scheds.py");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text.contains(
            "bad.py: a Python literal of clocks, 2 stages, 2 microbatches, 4 instructions"
        ),
        "{text}"
    );
    assert!(
        text.contains("stage 1: nothing is planned for it"),
        "{text}"
    );
    assert!(
        text.contains("partition attention in 2 instructions"),
        "{text}"
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("1 of 3 plans can't be followed"), "{said}");
    let engine = FREQS.replace("'forward', 900", "'load', 0");
    std::fs::write(folder.join("load.py"), engine).unwrap();
    let (found, _) = check(folder, "load.py");
    let problem = found["problems"][0].as_str().unwrap();
    assert!(
        problem.contains("stage 0, instruction 1 (load of microbatch 0): no engine runs"),
        "{problem}"
    );
    let (found, _) = check(folder, "load.py --instruction load");
    assert!(!found.to_string().contains("no engine runs"), "{found}");
}

#[test]
fn a_plan_that_contradicts_itself_and_moves_cursors_is_refused() {
    let folder = folder();
    let folder = folder.path();
    let common = "--profile profile.csv --microbatches 4 --schedule 1f1b";
    let made = plan(folder, &format!("frontier {common} --plan plan.json"));
    assert!(made.status.success(), "{made:?}");
    let text = std::fs::read_to_string(folder.join("plan.json")).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    document["totals"]["time_ms"] = json!(1);
    document["totals"]["energy_j"] = json!(1);
    document["frontier"]["points"].as_array_mut().unwrap()[0][1] = json!(0.1);
    document["stages"][0]["instructions"][0]["partitions"] =
        json!([{"name": "x\u{1b}[31m\n", "launch": "y\u{1b}", "sms": 1, "threads": 32}]);
    std::fs::write(folder.join("a\u{1b}b.json"), document.to_string()).unwrap();
    let output = plan(folder, "check a\u{1b}b.json");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stdout).unwrap();
    for words in [
        "time_ms is 1, and the instructions of stage",
        "energy_j is 1, and all instructions together use",
        "frontier: its energy",
        "partition x",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(
        !said.contains("\u{1b}[31m\n") && !said.contains("y\u{1b}"),
        "{said:?}"
    );
    assert!(said.starts_with("a\u{fffd}b.json: "), "{said:?}");
}
