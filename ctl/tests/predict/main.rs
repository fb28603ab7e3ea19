//! `litctl predict`, as a user runs it. Tables here are made up (synthetic); those of ../shared/energylens are
//! measured, and tests that need them say so when they are not there.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod models;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn litctl(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litctl"));
    command.arg("predict").args(arguments).output().unwrap()
}

/// The output as JSON.
fn json(arguments: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(arguments);
    let output = litctl(&all);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The message of a refusal.
fn refused(arguments: &[&str]) -> String {
    let output = litctl(arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A measured table, where it is.
fn measured(name: &str) -> Option<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let path: PathBuf = top.join("../shared/energylens").join(name);
    match path.exists() {
        true => Some(path.to_str().unwrap().to_owned()),
        false => {
            eprintln!("SKIPPED: {} is not there", path.display());
            None
        }
    }
}
