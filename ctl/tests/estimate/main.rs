//! `litctl estimate` as a whole process: made-up fleets as tables and behind a Prometheus, damaged tables, and the
//! recorded nodes of ../shared/plant.

// In tests a panic is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod damaged;
mod golden;
mod made;
mod newcomer;
mod plant;
mod prometheus;
mod tables;

use std::ffi::OsStr;
use std::process::{Command, Output};

use serde_json::Value;

/// litctl, as it was built for this test.
const LITCTL: &str = env!("CARGO_BIN_EXE_litctl");

fn litctl<S: AsRef<OsStr>>(args: &[S]) -> Output {
    Command::new(LITCTL)
        .arg("estimate")
        .args(args)
        .output()
        .unwrap()
}

/// The printed text.
fn said<S: AsRef<OsStr>>(args: &[S]) -> String {
    let output = litctl(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// The output with `--json`.
fn estimate<S: AsRef<OsStr>>(args: &[S]) -> Value {
    let mut all = vec![OsStr::new("--json")];
    all.extend(args.iter().map(AsRef::as_ref));
    serde_json::from_str(&said(&all)).unwrap()
}

/// The message of a run that ends with a mistake.
fn mistake<S: AsRef<OsStr>>(args: &[S]) -> String {
    let output = litctl(args);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn close(value: &Value, expected: f64, off: f64) {
    let found = value.as_f64().unwrap_or(f64::NAN);
    assert!(
        (found - expected).abs() <= off,
        "{value} instead of {expected}"
    );
}
