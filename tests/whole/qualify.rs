//! `litd qualify` as a process on a node of stand-ins: honest devices, each fault by itself, and the end of the
//! process at any moment. The hardware's ledger, in this process, has every write.
//!
//! `LITD_ABORTS`: how often it is ended at a random moment (20 if not set); `LITD_ABORT_SEED`: the first one's seed,
//! which a failure names.

mod faults;
mod moments;
mod stands;

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::stand::{DEVICES, GPUS, LITD, Stand, quick};
use litd_qualify::report::{Outcome, Report, SCHEMA, Topic, Verdict, Written};
use litd_rig::Author;
use litd_units::Watts;

/// Answers come soon here, and power follows at once.
const QUICK: &str = "caps.follow_seconds = 0.4\ncaps.answer_seconds = 1.5\n";

/// An idle node without a daemon: no process uses a GPU.
fn node() -> Stand {
    node_with(QUICK)
}

fn node_with(config: &str) -> Stand {
    let stand = Stand::bare(config, false);
    for gpu in 0..GPUS {
        stand.rig.hardware().set_holders(gpu, Vec::new());
    }
    fs::write(stand.rig.layout().config(), stand.config()).unwrap();
    stand
}

/// The process, which has just been started.
fn start(stand: &Stand, arguments: &[&str]) -> Child {
    Command::new(LITD)
        .args(["qualify", "--json"])
        .args(arguments)
        .arg("--config")
        .arg(stand.rig.layout().config())
        .env_remove("LOGS_DIRECTORY")
        .env_remove("RUNTIME_DIRECTORY")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for its report.
fn end(child: Child) -> (Option<i32>, Report, String) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Report = match serde_json::from_slice(&output.stdout) {
        Ok(report) => report,
        Err(error) => panic!("{error}: {:?}: {said}", output.status),
    };
    let status = i32::from(report.outcome.exit_status());
    assert_eq!(output.status.code(), Some(status), "{report:?}");
    (output.status.code(), report, said)
}

fn qualify(stand: &Stand, arguments: &[&str]) -> Report {
    end(start(stand, arguments)).1
}

const SHORT: [&str; 2] = ["--watch", "0.05"];

fn assert_as_found(stand: &Stand, report: &Report) {
    stand.assert_rules();
    let (held, found) = (stand.held(), stand.rig.ledger().found());
    assert_eq!(held, found, "{report:#?}");
    assert_eq!(stand.journaled(), [""; 0], "{report:#?}");
}

#[test]
fn an_idle_node_is_qualified_and_every_write_is_in_the_report() {
    let stand = node();
    let report = qualify(&stand, &["--watch", "0.2"]);
    assert_eq!(report.outcome, Outcome::Qualified, "{report:#?}");
    assert_eq!((report.schema, report.simulated), (SCHEMA, true));
    assert_eq!(report.devices.len(), DEVICES);
    assert!(report.devices.iter().all(|it| it.is_qualified()));
    assert_as_found(&stand, &report);
    // The ledger and the report have the same writes, and none is above a cap found.
    let entries = stand.rig.ledger().entries();
    assert_eq!(entries.len(), 2 * DEVICES);
    let found = stand.rig.ledger().found();
    for (entry, write) in entries.iter().zip(&report.writes) {
        assert_eq!(entry.author, Author::Litd);
        let Written::Cap(cap) = write.set else {
            panic!("{write:?}");
        };
        assert_eq!((entry.asked, Some(entry.after)), (cap, write.held));
        let name = &report.devices[entry.device].part.name;
        assert_eq!(name, &write.device);
        let found = found[entry.device];
        assert!(cap <= found && cap >= found - Watts(5.0), "{write:?}");
    }
    // What is written is in the daemon's audit log, too.
    let log = stand.rig.layout().state().join("audit/audit.jsonl");
    let log = fs::read_to_string(log).unwrap();
    let count = |record: &str| log.matches(record).count();
    assert_eq!(count("\"intent\","), 2 * DEVICES, "{log}");
    assert_eq!(count("\"confirmed\""), 2 * DEVICES, "{log}");
}

#[test]
fn the_text_is_short_and_says_that_it_is_simulated() {
    let stand = node();
    let output = Command::new(LITD)
        .args(["qualify", "--watch", "0.05", "--config"])
        .arg(stand.rig.layout().config())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("SIMULATED"), "{text}");
    assert!(
        text.contains("10 of 10 devices qualified, caps are as they were found"),
        "{text}"
    );
    // A block of some lines for each device, and a line for each write.
    assert!(text.lines().count() < DEVICES * 12, "{text}");
    println!("{text}");
}

#[test]
fn the_report_names_no_serial_number() {
    let stand = node();
    let report = qualify(&stand, &SHORT);
    let text = serde_json::to_string(&report).unwrap();
    assert!(
        !text.contains("SIM0000") && !text.contains("GPU-simulated"),
        "{text}"
    );
    if fs::exists("/etc/machine-id").unwrap() {
        let hashes: std::collections::BTreeSet<_> = report
            .devices
            .iter()
            .map(|it| it.part.serial_hash.clone())
            .collect();
        assert!(hashes.len() >= GPUS, "{hashes:?}");
    }
}

#[test]
fn clocks_are_locked_on_demand_and_free_afterwards() {
    let stand = node();
    let report = qualify(&stand, &["--watch", "0.05", "--clocks"]);
    assert_as_found(&stand, &report);
    let hardware = stand.rig.hardware();
    for gpu in &hardware.nvidia().gpus {
        assert_eq!(gpu.locks.len(), 2, "{report:#?}");
        assert!(gpu.locks[0].is_some() && gpu.clocks.is_none());
    }
    let checks = report.devices[..GPUS].iter().flat_map(|it| &it.checks);
    let clocks = checks.filter(|it| it.topic == Topic::Clocks);
    assert!(clocks.clone().count() == GPUS);
    assert!(clocks.clone().all(|it| it.verdict == Verdict::Shown));
    let writes = report.writes.iter();
    let of_clocks = writes.filter(|it| !matches!(it.set, Written::Cap(_)));
    assert_eq!(of_clocks.count(), 2 * GPUS);
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_it_would_do() {
    let stand = node();
    let report = qualify(&stand, &["--dry-run"]);
    assert_eq!(report.outcome, Outcome::Planned, "{report:#?}");
    assert!(stand.rig.ledger().is_empty());
    assert!(!stand.rig.layout().state().exists());
    let text = &report.devices[3].checks[0].text;
    assert_eq!(text, "would be set to 695 W, and to 700 W again");
}

/// Nothing was written, and the report says why.
fn assert_refused(stand: &Stand, arguments: &[&str], part: &str) {
    let before = stand.rig.ledger().len();
    let report = qualify(stand, arguments);
    assert_eq!(report.outcome, Outcome::Refused, "{report:#?}");
    assert_eq!(stand.rig.ledger().len(), before);
    assert!(
        report.reasons.iter().any(|it| it.contains(part)),
        "{report:#?}"
    );
}

#[test]
fn a_node_with_a_job_is_refused_and_ones_own_load_is_none() {
    let stand = node();
    let pid = std::process::id();
    stand.rig.hardware().set_holders(5, vec![pid]);
    for arguments in [&SHORT[..], &["--dry-run"]] {
        assert_refused(&stand, arguments, "drain the node");
    }
    let report = qualify(&stand, &["--watch", "0.05", "--load-pid", &pid.to_string()]);
    assert_eq!(report.outcome, Outcome::Qualified, "{report:#?}");
    assert_as_found(&stand, &report);
}

#[test]
fn beside_a_litd_nothing_is_written() {
    let mut stand = node();
    stand.start();
    for arguments in [&SHORT[..], &["--dry-run"]] {
        assert_refused(&stand, arguments, "systemctl stop litd");
    }
    stand.stop();
}

#[test]
fn what_a_dead_litd_has_left_changed_is_not_taken_for_the_caps_found() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    stand.kill();
    for gpu in 0..GPUS {
        stand.rig.hardware().set_holders(gpu, Vec::new());
    }
    for arguments in [&SHORT[..], &["--dry-run"]] {
        assert_refused(&stand, arguments, "`litd restore` first");
    }
    stand.restore_after_kill();
}

/// What an earlier litd has found may be among what could not be read in its journal.
#[test]
fn beside_the_copy_of_a_damaged_journal_nothing_is_written() {
    let stand = node();
    let state = stand.rig.layout().state();
    fs::create_dir_all(&state).unwrap();
    let copy = state.join("journal.damaged");
    fs::write(&copy, "damaged").unwrap();
    let remedy = format!("then remove {}", copy.display());
    for arguments in [&SHORT[..], &["--dry-run"]] {
        assert_refused(&stand, arguments, &remedy);
    }
    fs::remove_file(&copy).unwrap();
    let report = qualify(&stand, &SHORT);
    assert_eq!(report.outcome, Outcome::Qualified, "{report:#?}");
}

#[test]
fn a_kill_switch_and_a_litd_that_is_off_are_obeyed() {
    let off = tempfile::NamedTempFile::new().unwrap();
    let switch = format!(
        "{QUICK}rollout.kill_switches = [\"{}\"]\n",
        off.path().display()
    );
    assert_refused(&node_with(&switch), &SHORT, "kill switch");
    let off = format!("mode = \"off\"\n{QUICK}");
    assert_refused(&node_with(&off), &SHORT, "mode = \"off\"");
}

#[test]
fn what_can_not_be_put_on_record_is_not_written() {
    // A directory in the way of the journal's replacement, and a file in the way of the audit log's directory.
    for (name, is_directory, part) in [
        ("journal.new", true, "undo journal"),
        ("audit", false, "audit.jsonl"),
    ] {
        let stand = node();
        let state = stand.rig.layout().state();
        fs::create_dir(&state).unwrap();
        match is_directory {
            true => fs::create_dir(state.join(name)).unwrap(),
            false => fs::write(state.join(name), "").unwrap(),
        }
        let report = qualify(&stand, &SHORT);
        assert_eq!(report.outcome, Outcome::Failed, "{report:#?}");
        assert!(stand.rig.ledger().is_empty(), "{report:#?}");
        assert!(report.writes.is_empty());
        let checks = report.devices.iter().flat_map(|it| &it.checks);
        let failed = checks.filter(|it| it.verdict == Verdict::Failed);
        let texts: Vec<&str> = failed.map(|it| it.text.as_str()).collect();
        assert_eq!(texts.len(), DEVICES);
        assert!(
            texts[0].contains("not written") && texts[0].contains(part),
            "{texts:?}"
        );
        assert_as_found(&stand, &report);
    }
}

#[test]
fn at_the_time_limit_it_stops_with_the_caps_found() {
    let stand = node();
    let report = qualify(&stand, &["--watch", "0.3", "--time-limit", "1"]);
    assert_eq!(report.outcome, Outcome::Stopped, "{report:#?}");
    assert!(report.reasons[0].contains("time limit"));
    assert_as_found(&stand, &report);
}
