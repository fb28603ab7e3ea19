//! litlab as people run it: the whole process.

// In tests a panic is the report.
#![allow(clippy::unwrap_used, clippy::panic)]

mod carbon;
mod decide;
mod demo;
mod kareus;
mod mixed;
mod plan;
mod plants;
mod replay;
mod reproduce;
mod simulate;
mod study;

use std::process::{Command, Output};

/// litlab, as it was built for this test.
const LITLAB: &str = env!("CARGO_BIN_EXE_litlab");

/// What litlab answers.
fn output(args: &[&str]) -> Output {
    Command::new(LITLAB).args(args).output().unwrap()
}

/// What it prints where it must succeed.
fn litlab(args: &[&str]) -> String {
    let output = output(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
