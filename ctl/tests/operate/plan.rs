//! `litctl plan` as a whole process.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::LITCTL;

/// Two stages, two microbatches.
const DAG: &str = "kind,a,b,c,d
node,2,forward,0,0
node,3,forward,0,1
node,4,backward,0,0
node,5,backward,0,1
node,6,forward,1,0
node,7,backward,1,0
node,8,forward,1,1
node,9,backward,1,1
edge,0,2,,
edge,2,3,,
edge,3,4,,
edge,4,5,,
edge,2,6,,
edge,3,8,,
edge,6,7,,
edge,7,8,,
edge,8,9,,
edge,7,4,,
edge,9,5,,
edge,5,1,,
";

fn entry(a: f64, options: &str) -> String {
    format!(r#"{{"a": {a}, "b": -0.5, "c": 2, "tmin": 2, "tmax": 4, "options": {options}}}"#)
}

const OPTIONS: &str = "[[900, 4, 9.5, 0.0038], [1100, 3, 14.4, 0.003], [1400, 2, 24.1, 0.0019]]";

fn spec(first: &str) -> String {
    let rest = entry(60.0, OPTIONS);
    format!(
        r#"{{"0,forward": {first}, "0,backward": {rest}, "1,forward": {rest}, "1,backward": {rest}}}"#
    )
}

fn plan(folder: &Path, args: &[&str]) -> Output {
    Command::new(LITCTL)
        .arg("plan")
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn files(dag: &str, spec: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("dag.csv"), dag).unwrap();
    std::fs::write(folder.path().join("spec.json"), spec).unwrap();
    folder
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

const INPUT: [&str; 4] = ["--dag", "dag.csv", "--spec", "spec.json"];

#[test]
fn a_frontier_is_written_with_every_point() {
    let folder = files(DAG, &spec(&entry(60.0, OPTIONS)));
    let mut args = vec!["frontier", "--csv", "out.csv", "--check", "--json"];
    args.extend(INPUT);
    // Two GPUs that wait with 5 kW: 10 J for a unit of time.
    args.extend(["--blocking", "5000"]);
    let report = json(&plan(folder.path(), &args));
    let csv = std::fs::read_to_string(folder.path().join("out.csv")).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "quant_time,cost_effective_J");
    // Six operations stand one after the other on the longest path.
    assert_eq!(rows.len(), 1 + 13);
    let cost = |time: f64| 60.0 * (-0.5 * time).exp() + 2.0;
    let (time, least) = rows[1].split_once(',').unwrap();
    assert_eq!(time, "24");
    assert!((least.parse::<f64>().unwrap() - 8.0 * cost(4.0)).abs() < 1e-9);
    let (time, most) = rows[13].split_once(',').unwrap();
    assert_eq!(time, "12");
    // The second forward of the first stage and the first backward have time to spare.
    let shortest = 6.0 * cost(2.0) + 2.0 * cost(3.0).min(cost(4.0));
    assert!(
        (most.parse::<f64>().unwrap() - shortest).abs() < 1e-9,
        "{most}, not {shortest}"
    );
    let points = report["points"].as_array().unwrap();
    assert_eq!(points.len(), 13);
    assert_eq!(points[0]["pays_only_for_straggler"], true);
    assert_eq!(points[12]["pays_only_for_straggler"], false);
}

#[test]
fn a_straggler_makes_clocks_slower_until_nothing_is_saved() {
    let folder = files(DAG, &spec(&entry(60.0, OPTIONS)));
    let lookup = |straggler: &[&str]| {
        let mut args = vec!["lookup", "--json"];
        args.extend(INPUT);
        args.extend(straggler);
        json(&plan(folder.path(), &args))
    };
    let alone = lookup(&[]);
    assert_eq!(alone["plan"]["time"], 12);
    let late = lookup(&["--straggler-seconds", "0.018"]);
    assert_eq!(late["plan"]["time"], 18);
    assert_eq!(lookup(&["--straggler-seconds", "9"])["plan"]["time"], 24);
    // No slower than planned, and what a clock takes is what counts.
    for report in [&alone, &late] {
        for step in report["stages"]["0"].as_array().unwrap() {
            let time = step["end_ms"].as_f64().unwrap() - step["start_ms"].as_f64().unwrap();
            assert!(
                time <= step["planned_units"].as_f64().unwrap() + 1e-6,
                "{step}"
            );
        }
        let (plan, full) = (&report["plan"], &report["full_speed"]);
        assert!(plan["energy"].as_f64() < full["energy"].as_f64());
    }
    assert!(late["plan"]["realised"].as_f64() > alone["plan"]["realised"].as_f64());
}

/// A straggler's time that changes nothing is reported, with the reason.
#[test]
fn stragglers_that_change_nothing_are_explained() {
    let folder = files(DAG, &spec(&entry(60.0, OPTIONS)));
    let lookup = |more: &str| {
        let args = format!("lookup --dag dag.csv --spec spec.json {more}");
        let output = plan(folder.path(), &args.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // Six operations on the longest path, 1.9 ms each at the full clock.
    let early = lookup("--straggler-seconds 0.01");
    assert!(
        early.contains("A pipeline that takes 0.0100 s is not late: this one takes 0.0114 s"),
        "{early}"
    );
    let late = lookup("--straggler-seconds 9");
    assert!(
        late.contains("It is done before the straggler: beyond T*, 0.0240 s"),
        "{late}"
    );
    for other in [
        &lookup("--straggler-seconds 0.018"),
        &lookup("--slowdown 1"),
    ] {
        assert!(
            !other.contains("is not late") && !other.contains("is done before"),
            "{other}"
        );
    }
}

#[test]
fn a_timeline_has_a_box_for_every_operation() {
    let folder = files(DAG, &spec(&entry(60.0, OPTIONS)));
    let mut args = vec!["timeline", "--svg", "out.svg"];
    args.extend(INPUT);
    let output = plan(folder.path(), &args);
    assert!(output.status.success(), "{output:?}");
    let svg = std::fs::read_to_string(folder.path().join("out.svg")).unwrap();
    for name in ["F1", "F2", "B1", "B2"] {
        // Two stages, two iterations.
        assert_eq!(svg.matches(&format!("\n{name}\n")).count(), 4, "{name}");
    }
    assert!(!svg.contains("SIMULATED"));
}

/// A user's mistake is reported, with the file and the place in it, and nothing is written.
#[test]
fn bad_input_is_explained() {
    let good = spec(&entry(60.0, OPTIONS));
    let cases: [(String, String, &str); 10] = [
        (
            format!("{DAG}edge,5,2\n"),
            good.clone(),
            "dag.csv: the graph has a cycle through node",
        ),
        (format!("{DAG}edge,5,99\n"), good.clone(), "names node 99"),
        (
            String::new(),
            good.clone(),
            "dag.csv: the graph has no operation",
        ),
        (
            format!("{DAG}node,10,load,0,0\n"),
            good,
            "spec.json: the profile has no load of stage 0",
        ),
        (
            DAG.into(),
            "{".into(),
            "spec.json: it is not the JSON of costs",
        ),
        (
            DAG.into(),
            r#"{"first": {}}"#.into(),
            "\"first\" is no \"stage,instruction\"",
        ),
        (
            DAG.into(),
            spec(&entry(60.0, "[]")),
            "0,forward: it has no option",
        ),
        (
            DAG.into(),
            spec(&entry(-60.0, OPTIONS)),
            "0,forward: its cost rises with time",
        ),
        (
            DAG.into(),
            spec(&entry(60.0, "[[900, 4, -1, 0.0038]]")),
            "a negative cost",
        ),
        (
            DAG.into(),
            spec(&entry(
                60.0,
                "[[900, 4, 30, 0.0038], [1400, 2, 24, 0.0019]]",
            )),
            "at 900 MHz takes longer than that at 1400 MHz and costs more",
        ),
    ];
    for (dag, spec, wanted) in cases {
        let folder = files(&dag, &spec);
        let mut args = vec!["frontier", "--csv", "out.csv"];
        args.extend(INPUT);
        let output = plan(folder.path(), &args);
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(2), "{wanted}: {output:?}");
        assert!(text.contains(wanted), "{wanted}: {text}");
        assert!(!folder.path().join("out.csv").exists());
    }
}

#[test]
fn half_an_input_is_explained() {
    let folder = files(DAG, &spec(&entry(60.0, OPTIONS)));
    let three = "stage,instruction,frequency,time,energy\n2,forward,1410,0.03,9\n";
    std::fs::write(folder.path().join("profile.csv"), three).unwrap();
    for (args, wanted) in [
        (
            vec!["frontier", "--dag", "dag.csv"],
            "not provided:\n  <--spec <SPEC.json>|--profile <PROFILE.csv>>",
        ),
        (
            vec!["frontier", "--spec", "spec.json"],
            "not provided:\n  <--dag <DAG.csv>|--schedule <NAME>>",
        ),
        (
            vec!["frontier", "--dag", "no.csv", "--spec", "spec.json"],
            "no.csv: No such file",
        ),
        (
            vec![
                "lookup",
                "--dag",
                "dag.csv",
                "--spec",
                "spec.json",
                "--slowdown",
                "0",
            ],
            "must be 1 or more",
        ),
        (
            "timeline --dag dag.csv --spec spec.json --svg x.svg --slowdown 0.5"
                .split(' ')
                .collect(),
            "must be 1 or more",
        ),
        (
            "lookup --dag dag.csv --spec spec.json --straggler-seconds 0"
                .split(' ')
                .collect(),
            "must be a number above 0",
        ),
        (
            "frontier --profile profile.csv --schedule 1f1b --microbatches 3 --chunks 2"
                .split(' ')
                .collect(),
            "chunks of layers are for the schedule interleaved, not for 1f1b",
        ),
        (
            "frontier --dag dag.csv --spec spec.json --chunks 2"
                .split(' ')
                .collect(),
            "'--dag <DAG.csv>' cannot be used with '--chunks <V>'",
        ),
        (
            "frontier --dag dag.csv --spec spec.json --rounding down"
                .split(' ')
                .collect(),
            "'--spec <SPEC.json>' cannot be used with '--rounding <ROUNDING>'",
        ),
        (
            vec!["frontier", "--dag", "/dev/zero", "--spec", "spec.json"],
            "/dev/zero: more than 256 MiB",
        ),
        (
            "frontier --profile profile.csv --schedule interleaved --microbatches 3"
                .split(' ')
                .collect(),
            "the profile's 3 stages are no multiple of 2 chunks per GPU",
        ),
        (
            vec!["partition", "--layers", "1,2", "--stages", "3"],
            "2 layers can't be divided among 3 stages",
        ),
    ] {
        let output = plan(folder.path(), &args);
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(
            !output.status.success() && text.contains(wanted),
            "{wanted}: {text}"
        );
    }
}
