//! The unit file: what systemd says about it, and a booted systemd that runs it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::booted::Life;
use crate::built::{built, repository};
use crate::tools::have;

fn unit() -> String {
    fs::read_to_string(repository().join("systemd/litd.service")).expect("the unit is there")
}

/// A root file system with the programs that the units start, and this unit.
fn root_with(name: &str, unit: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    for program in ["usr/sbin/litd", "usr/bin/litd-planner", "bin/kill"] {
        let path = root.path().join(program);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        fs::write(&path, "#!/bin/sh\n").expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let units = root.path().join("etc/systemd/system");
    fs::create_dir_all(&units).expect("a directory");
    fs::write(units.join(name), unit).expect("it is written");
    root
}

/// What `systemd-analyze verify` says, if it has anything to say.
fn verified(unit: &str) -> Result<(), String> {
    verified_as("litd.service", unit)
}

fn verified_as(name: &str, unit: &str) -> Result<(), String> {
    let root = root_with(name, unit);
    let output = Command::new("systemd-analyze")
        .args(["verify", "--recursive-errors=no", "--man=no"])
        .arg(format!("--root={}", root.path().display()))
        .arg(name)
        .output()
        .expect("systemd-analyze runs");
    clean(&output)
}

#[test]
fn systemd_has_nothing_to_say_about_the_planners_unit() {
    if !have(&["systemd-analyze"]) {
        return;
    }
    let unit = repository().join("systemd/litd-planner.service");
    let unit = fs::read_to_string(unit).expect("the unit is there");
    assert_eq!(verified_as("litd-planner.service", &unit), Ok(()));
    let odd = unit.replace("/usr/bin/litd-planner", "/usr/bin/litd-plan");
    assert!(verified_as("litd-planner.service", &odd).is_err());
}

fn clean(output: &Output) -> Result<(), String> {
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    match output.status.success() && said.is_empty() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&said).into_owned()),
    }
}

#[test]
fn systemd_has_nothing_to_say_about_the_unit() {
    if !have(&["systemd-analyze"]) {
        return;
    }
    assert_eq!(verified(&unit()), Ok(()));
    for (right, wrong) in [
        ("WatchdogSec=", "WatchDogSec="),
        ("ExecStart=/usr/sbin/litd", "ExecStart=/usr/sbin/litdd"),
    ] {
        let wrong = unit().replacen(right, wrong, 1);
        assert!(verified(&wrong).is_err(), "verify does not see {wrong}");
    }
}

/// Whether the unit's exposure is 3.0 or lower.
fn is_hardened(unit: &str) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("litd.service");
    fs::write(&path, unit).expect("it is written");
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", "--threshold=30"])
        .arg(&path)
        .output()
        .expect("systemd-analyze runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = said.lines().last().unwrap_or_default();
    assert!(verdict.contains("exposure level"), "{output:?}");
    eprintln!("{verdict}");
    output.status.success()
}

#[test]
fn its_exposure_is_3_or_lower() {
    if !have(&["systemd-analyze"]) {
        return;
    }
    assert!(is_hardened(&unit()));
    let lax = unit().replace("SystemCallFilter=", "#");
    assert!(!is_hardened(&lax), "the threshold does nothing");
}

/// Boots with the unit, its companions and `files` (source, place); nothing where that can't be
/// done. One of the files is `/usr/sbin/litd`, and one the hardware that it finds
/// (`tests/whole/systemd/standin.sh` says what that one has).
fn live(files: &[(PathBuf, &str)]) -> Option<Life> {
    let companions = [
        ("litd.service", "/usr/lib/systemd/system/litd.service"),
        ("sysusers.conf", "/usr/lib/sysusers.d/litd.conf"),
        ("tmpfiles.conf", "/usr/lib/tmpfiles.d/litd.conf"),
    ]
    .map(|(name, place)| (repository().join("systemd").join(name), place));
    Life::with("systemd/probe.sh", &[&companions, files].concat())
}

/// What holds for whatever the unit starts.
fn is_right(life: &Life) {
    assert_eq!(life.of("runtime_directory"), "755 root");
    assert_eq!(life.of("state_directory"), "700 root");
    assert_eq!(life.of("started"), "active success");
    assert!(!life.of("status").is_empty(), "a status line for people");
    assert_eq!(life.of("watchdog"), "2s");
    assert_ne!(life.of("steered"), life.of("found"));
    assert_eq!(life.of("reload"), "0");
    assert_eq!(life.of("reloaded"), "0", "SIGHUP was not heeded");

    assert_eq!(life.of("after_hang"), "running 1");
    assert!(life.tells(&["Watchdog timeout", "restart counter is at 1", "Started"]));
    assert_ne!(life.of("after_hang_caps"), life.of("found"));
    assert_eq!(life.of("after_kill"), "running 2");
    assert!(life.tells(&["status=9/KILL", "restart counter is at 2", "Started"]));

    assert_eq!(life.of("stopped"), "inactive success");
    assert_eq!(life.of("after_stop_caps"), life.of("found"));
    assert_eq!(life.of("after_stop_directory"), "755 root");
    assert_eq!(life.of("after_hangup"), "running 1");
    assert_eq!(life.of("bad_configuration"), "failed 2 0");
    assert_eq!(life.of("after_bad_caps"), life.of("found"));
}

#[test]
fn the_unit_carries_a_daemon_through_its_life() {
    let rig = repository().join("tests/whole/systemd");
    let Some(life) = live(&[
        (rig.join("standin.pl"), "/usr/sbin/litd"),
        (rig.join("standin.sh"), "/opt/litd-test/hardware.sh"),
    ]) else {
        return;
    };
    is_right(&life);
    assert_eq!(life.of("found"), "700");
    assert_eq!(life.of("steered"), "500");
    assert_eq!(life.of("control_group"), "litd-admin");
    // Whatever ends the daemon, ExecStopPost gives back before the next start.
    assert!(life.tells(&[
        "Watchdog timeout",
        "restored 700",
        "restart counter is at 1"
    ]));
    assert!(life.tells(&["status=9/KILL", "restored 700", "restart counter is at 2"]));
    // The hardening lets the stand-in do what it must, and nothing of what it tries besides.
    for line in &life.journal {
        let refused = ["may write", "chown:", "fds:"];
        assert!(!refused.iter().any(|it| line.starts_with(it)), "{line}");
    }
}

#[test]
fn litd_lives_under_its_unit_and_never_leaves_a_cap() {
    let node = built(&["litd-rig-node"]);
    let Some(life) = live(&[
        (PathBuf::from(env!("CARGO_BIN_EXE_litd")), "/usr/sbin/litd"),
        (node.join("litd-rig-node"), "/opt/litd-test/litd-rig-node"),
        (
            repository().join("tests/whole/systemd/rig.sh"),
            "/opt/litd-test/hardware.sh",
        ),
    ]) else {
        return;
    };
    is_right(&life);
    assert_eq!(life.of("control_group"), "litd");
    assert_eq!(life.of("baseline"), "litd-baseline");
    // Before each start after a crash everything is back where it was found.
    for (end, start) in [
        ("Watchdog timeout", "restart counter is at 1"),
        ("status=9/KILL", "restart counter is at 2"),
    ] {
        assert!(life.tells(&[end, "cap is back at", start]), "{end}");
    }
    let writes: u64 = life.of("writes").parse().expect("a number");
    assert!(writes > 3 * 8, "caps hardly moved: {writes} writes");
    assert_eq!(life.of("violations"), "0");
    assert_eq!(life.of("restored"), "true");
    assert_eq!(life.of("held"), life.of("found"));
}
