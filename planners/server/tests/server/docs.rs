//! The examples in docs/planner.md, run as they are written, but for the address.

use std::path::Path;
use std::process::Command;

use crate::process::Server;

const DOCUMENT: &str = include_str!("../../../../docs/planner.md");
const ADDRESS: &str = "127.0.0.1:7787";

/// The blocks of a language between two headings.
fn blocks(from: &str, to: &str, language: &str) -> Vec<&'static str> {
    let (_, rest) = DOCUMENT.split_once(from).unwrap();
    let (section, _) = rest.split_once(to).unwrap();
    let parts = section.split("```").skip(1).step_by(2);
    let blocks = parts.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    blocks.collect()
}

/// Runs a script. What it prints.
fn sh(folder: &Path, script: &str, server: &Server) -> String {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hooks/pytorch");
    let output = Command::new("sh")
        .args(["-eu", "-c", &script.replace(ADDRESS, &server.address)])
        .current_dir(folder)
        .env("PYTHONPATH", python)
        .env("LITD_SOCKET", folder.join("none"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("SKIPPED: no {program}");
    }
    found
}

/// The server with the document's profile, which the first block makes.
fn start(folder: &Path) -> Server {
    let first = blocks("### By hand", "## Following", "sh")[0];
    let (make, start) = first.split_once("litd-planner ").unwrap();
    let made = Command::new("sh")
        .args(["-c", make])
        .current_dir(folder)
        .status();
    assert!(made.unwrap().success());
    let (options, _) = start.split_once(" --state state &").unwrap();
    assert_eq!(options, "--profile profile.csv --microbatches 4");
    Server::start(folder)
}

#[test]
fn the_requests_by_hand_are_answered_as_the_document_says() {
    if !has("curl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let scripts = blocks("### By hand", "## Following", "sh");
    let said = sh(folder.path(), &scripts[1..].concat(), &server);
    assert!(said.contains("plan-version: 1\r\n"), "{said}");
    for answer in blocks("### By hand", "## Following", "text") {
        assert!(said.contains(answer.trim()), "{answer} in {said}");
    }
    let results = std::fs::read_to_string(folder.path().join("state/results.jsonl")).unwrap();
    assert!(results.contains("\"iter_time\":[0.51]"), "{results}");
}

#[test]
fn the_script_that_follows_a_plan_follows_it() {
    if !has("python3") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let (section, end) = ("## Following", "Without a daemon");
    let script = blocks(section, end, "python")[0].replace(ADDRESS, &server.address);
    std::fs::write(folder.path().join("follow.py"), script).unwrap();
    let said = sh(folder.path(), blocks(section, end, "sh")[0], &server);
    for rank in 0..2 {
        assert!(
            said.contains(&format!("rank {rank} followed plan 1")),
            "{said}"
        );
    }
}
