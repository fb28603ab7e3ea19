//! Runs litctl as people do, and finds real traces.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What litctl answers.
pub fn output(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_litctl"));
    command.env_remove("LITD_SOCKET").args(args);
    command.output().unwrap()
}

/// What it prints where it must succeed.
pub fn litctl(args: &[&str]) -> String {
    let output = output(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What litlab prints: the simulator writes traces whose truth is known.
pub fn litlab(args: &[&str]) -> String {
    let litlab = litd_rig::program("litlab").unwrap();
    let output = Command::new(litlab).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Says that something was not tested. Not println: the harness would keep that to itself in a test
/// that passes.
pub fn skip(why: &str) {
    let note = format!("SKIPPED: {why}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), note.as_bytes());
}

/// The path of real traces, where they are.
pub fn shared(path: &str) -> Option<PathBuf> {
    let traces = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces"));
    if !traces.is_dir() {
        skip("../shared/traces is absent");
        return None;
    }
    Some(traces.join(path))
}
