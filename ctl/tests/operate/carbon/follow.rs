//! `litctl carbon follow`: a budget that follows the signal.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use litd_api::Done;
use serde_json::Value;

use super::folder;
use crate::LITCTL;
use crate::lease::{Following, Node};
use crate::standin::{Daemon, ok};

/// The budgets that were leased, without repeats.
fn budgets(daemon: &Daemon) -> Vec<f64> {
    let asked = daemon.asked();
    let leases = asked
        .iter()
        .filter_map(|it| serde_json::from_str::<Value>(&it.body).ok());
    let mut budgets: Vec<f64> = leases.filter_map(|it| it["budget"].as_f64()).collect();
    budgets.dedup();
    budgets
}

/// The signal rises and the budget falls; the signal ends and the fallback rules.
#[test]
fn a_budget_follows_the_signal_within_bounds() {
    let folder = folder();
    let done = Done {
        message: "the lease has a budget".to_owned(),
    };
    let daemon = Daemon::new(move |_| ok(&done));
    let mut command = Command::new(LITCTL);
    command
        .current_dir(folder.path())
        .env("LITD_CONTROL", daemon.socket())
        .args([
            "carbon",
            "follow",
            "--lowest",
            "4000",
            "--highest",
            "6000",
            "--clean",
            "100",
            "--dirty",
            "400",
        ])
        .args([
            "--fallback",
            "4500",
            "--every",
            "0.1",
            "--trace",
            "trace.csv",
            "--metrics",
            "carbon.prom",
        ])
        .args(["--from", "2030-01-01T01:00:00Z", "--speed", "10800"])
        .stderr(Stdio::null());
    let _following = Following(command.spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(60);
    while !budgets(&daemon).contains(&4500.0) {
        assert!(Instant::now() < until, "{:?}", budgets(&daemon));
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(budgets(&daemon), [6000.0, 4000.0, 6000.0, 4500.0]);
    let metrics = || fs::read_to_string(folder.path().join("carbon.prom")).unwrap();
    while !metrics().contains("litd_carbon_signal_lost 1") {
        assert!(Instant::now() < until, "{}", metrics());
        thread::sleep(Duration::from_millis(20));
    }
    assert!(metrics().contains("litd_carbon_budget_watts 4500"));
}

/// A signal that has one value, whatever the hour is.
fn says(signal: &Path, value: u32) {
    let mut text = "datetime_utc,ci_direct_g_per_kwh\n".to_owned();
    for hour in 0..240 {
        let (day, hour) = (1 + hour / 24, hour % 24);
        text += &format!("2030-01-{day:02}T{hour:02}:00:00Z,{value}\n");
    }
    let beside = signal.with_extension("beside");
    fs::write(&beside, text).unwrap();
    fs::rename(&beside, signal).unwrap();
}

/// The policy is the hour's while there is a signal, and else the one that was found; a disk without room for the
/// metrics keeps no budget from following.
#[test]
fn the_policy_that_was_found_comes_back() {
    let node = Node::new();
    let folder = tempfile::tempdir().unwrap();
    let signal = folder.path().join("signal.csv");
    let metrics = folder.path().join("carbon.prom");
    symlink("/dev/full", metrics.with_extension("new")).unwrap();
    says(&signal, 900);
    let mut litctl = node.litctl();
    litctl.args([
        "carbon",
        "follow",
        "--lowest",
        "5000",
        "--highest",
        "5600",
        "--clean",
        "100",
    ]);
    litctl.args([
        "--dirty",
        "400",
        "--every",
        "0.2",
        "--set-policy",
        "--stale-hours",
        "1.1",
    ]);
    litctl.args([
        "--from",
        "2030-01-01T00:00:00Z",
        "--speed",
        "1000",
        "--trace",
    ]);
    litctl
        .arg(&signal)
        .arg("--metrics")
        .arg(&metrics)
        .stderr(Stdio::null());
    let mut following = Following(litctl.spawn().unwrap());
    let wait_for = |policy: &str| {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let status = node.litctl().args(["status", "--json"]).output().unwrap();
            let status: Value = serde_json::from_slice(&status.stdout).unwrap();
            if status["node"]["policy"] == policy {
                return;
            }
            assert!(Instant::now() < until, "not {policy}: {}", status["node"]);
            thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for("gpu-red");
    fs::remove_file(&signal).unwrap();
    wait_for("gpu-realloc");
    says(&signal, 900);
    wait_for("gpu-red");
    // Somebody else's choice is left alone.
    let mut policy = node.litctl();
    assert!(
        policy
            .args(["policy", "observe"])
            .status()
            .unwrap()
            .success()
    );
    thread::sleep(Duration::from_millis(800));
    wait_for("observe");
    assert!(
        node.litctl()
            .args(["policy", "gpu-realloc"])
            .status()
            .unwrap()
            .success()
    );
    wait_for("gpu-red");
    let pid = following.0.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(following.0.wait().unwrap().success());
    wait_for("gpu-realloc");
    node.stop();
}

/// The whole chain: the signal rises, litd's budget falls, caps follow within a second and no rule is broken; the
/// signal is lost, and the fallback rules.
#[test]
fn caps_follow_the_signal() {
    let mut node = Node::new();
    let folder = tempfile::tempdir().unwrap();
    let signal = folder.path().join("signal.csv");
    let says = |value| says(&signal, value);
    says(50);
    let metrics = folder.path().join("carbon.prom");
    let mut litctl = node.litctl();
    litctl
        .args([
            "carbon",
            "follow",
            "--lowest",
            "5000",
            "--highest",
            "5600",
            "--clean",
            "100",
            "--dirty",
            "400",
        ])
        .args([
            "--fallback",
            "4900",
            "--every",
            "0.2",
            "--from",
            "2030-01-01T00:00:00Z",
            "--speed",
            "1000",
        ])
        .args(["--stale-hours", "1.1", "--trace"])
        .arg(&signal)
        .arg("--metrics")
        .arg(&metrics)
        .stderr(Stdio::null());
    let following = Following(litctl.spawn().unwrap());
    for (value, budget) in [(50, 5600.0), (250, 5300.0), (900, 5000.0), (100, 5600.0)] {
        says(value);
        node.wait_for("the budget of the signal", |it| it["budget"] == budget);
        node.pass(1);
        assert!(node.sum() <= budget, "{} of {budget}", node.sum());
    }
    fs::remove_file(&signal).unwrap();
    node.wait_for("the fallback", |it| it["budget"] == 4900.0);
    node.pass(1);
    assert!(node.sum() <= 4900.0, "{}", node.sum());
    // The file is written once the lease has been answered.
    node.wait_for("the metrics to say so", |_| {
        let text = fs::read_to_string(&metrics).unwrap();
        text.contains("litd_carbon_signal_lost 1")
    });
    drop(following);
    node.stop();
}
