//! `litlab decide` against the oracle's golden control cases, as a whole process.
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::LITLAB;

const CASES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/data/oracle/control.json"
);

fn decide(input: &str) -> Output {
    let mut child = Command::new(LITLAB)
        .args(["decide", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

fn assert_close(got: &Value, want: &Value, what: &str) {
    if let (Some(got), Some(want)) = (got.as_array(), want.as_array()) {
        assert_eq!(got.len(), want.len(), "{what}");
        for (got, want) in got.iter().zip(want) {
            assert_close(got, want, what);
        }
        return;
    }
    let (got, want) = (got.as_f64().unwrap(), want.as_f64().unwrap());
    let tolerance = 1e-9 * want.abs().max(1.0);
    assert!(
        (got - want).abs() <= tolerance,
        "{what}: {got} is not {want}"
    );
}

#[test]
fn the_oracles_cases_come_out_to_a_billionth() {
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(CASES).unwrap()).unwrap();
    let inputs: Vec<Value> = cases
        .iter()
        .map(|case| {
            let mut case = case.clone();
            for output in ["lead", "increase", "global_max_after", "new_caps"] {
                case.as_object_mut().unwrap().remove(output);
            }
            case
        })
        .collect();
    let output = decide(&serde_json::to_string(&inputs).unwrap());
    assert!(output.status.success(), "{output:?}");
    let answers: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answers.len(), 80);
    for (index, (answer, case)) in answers.iter().zip(&cases).enumerate() {
        for key in ["lead", "increase", "global_max_after", "new_caps"] {
            assert_close(&answer[key], &case[key], &format!("case {index}, {key}"));
        }
    }
}

#[test]
fn a_bad_case_is_named() {
    let case = |starts: &str, rest: &str| {
        format!(
            r#"[{{"starts": {starts}, "max_inc": 15, "tdp": 750, "node_cap": 1400, "caps": [700, 700]{rest}}}]"#
        )
    };
    let bad = [
        (case("[[0, 1], [0]]", ""), "1 for GPU 1"),
        (case("[[0], [1], [2]]", ""), "covers 3 GPUs and caps 2"),
        (case("[]", ""), "no kernel"),
        (case("[[-1e308], [1e308]]", ""), "not possible"),
        (case("[[0], [1]]", r#", "scale": "cosmic""#), "cosmic"),
        (
            case("[[0], [1]]", r#", "global_max_before": -1"#),
            "negative",
        ),
        ("[{}]".into(), "starts"),
        ("{".into(), "not an array of cases"),
    ];
    for (input, cause) in bad {
        let output = decide(&input);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{input}: {stderr}");
        assert!(stderr.contains(cause), "{input}: {stderr}");
    }
}

fn help(subcommand: &str, columns: &str) -> String {
    let output = Command::new(LITLAB)
        .args([subcommand, "--help"])
        .env("COLUMNS", columns)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// What follows the options.
fn examples(help: &str) -> &str {
    let rest = help.split_once("(see a summary with '-h')").unwrap().1;
    rest.find("\nExamples:\n").map_or(rest, |at| &rest[at..])
}

#[test]
fn examples_of_the_help_are_not_wrapped() {
    for subcommand in ["simulate", "decide", "demo", "study"] {
        let (narrow, wide) = (help(subcommand, "80"), help(subcommand, "200"));
        assert_eq!(examples(&narrow), examples(&wide), "{subcommand}");
        for line in examples(&wide).lines() {
            assert!(line.chars().count() <= 78, "{subcommand}: {line}");
        }
    }
}

#[test]
fn the_example_of_the_help_can_be_pasted() {
    let help = help("decide", "80");
    let example: Vec<&str> = examples(&help)
        .lines()
        .skip_while(|line| !line.starts_with("  echo "))
        .take_while(|line| !line.is_empty())
        .collect();
    let litlab = std::path::Path::new(LITLAB);
    let output = Command::new("sh")
        .args(["-c", &example.join("\n")])
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", litlab.parent().unwrap().display()),
        )
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let answers: Value = serde_json::from_slice(&output.stdout).unwrap();
    // GPU 1 starts both kernels last, by 2 and by 3.
    assert_eq!(answers[0]["lead"], serde_json::json!([5.0, 0.0]));
}
