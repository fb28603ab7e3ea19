//! `litctl carbon follow`: a budget that follows the signal.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use litd_api::Done;
use serde_json::Value;

use super::{carbon, folder, follow, read, refused, terminate, wait_until};
use crate::lease::Node;
use crate::standin::{Daemon, command, ok};

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
    // An hour of the trace is a third of a second.
    let more = "--fallback 4500 --trace trace.csv --from 2030-01-01T01:00:00Z --speed 10800";
    let litctl = command(&daemon.socket(), &[]);
    let _following = follow(litctl, folder.path(), [4000, 6000], more);
    let leased = || format!("{:?}", budgets(&daemon));
    wait_until(leased, || budgets(&daemon).contains(&4500.0));
    assert_eq!(budgets(&daemon), [6000.0, 4000.0, 6000.0, 4500.0]);
    let metrics = || read(&folder.path().join("carbon.prom"));
    wait_until(metrics, || metrics().contains("litd_carbon_signal_lost 1"));
    assert!(metrics().contains("litd_carbon_budget_watts 4500"));
}

/// A mistake that waiting can't mend is refused at the start.
#[test]
fn a_trace_that_is_not_there_and_a_fallback_above_the_bounds_are_refused() {
    let folder = folder();
    let bounds = "follow --lowest 4000 --highest 6000 --clean 100 --dirty 400";
    for (more, why) in [
        ("--trace trase.csv", "trase.csv: No such file"),
        ("--trace profile.csv", "profile.csv: "),
        ("--trace trace.csv --forecast profile.csv", "profile.csv: "),
        (
            "--trace trace.csv --fallback 6001",
            "--fallback must not be above --highest",
        ),
    ] {
        let mut follow = carbon(folder.path(), &format!("{bounds} {more}"));
        let said = refused(&follow.output().unwrap());
        assert!(said.contains(why), "{more}: {said}");
    }
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

/// How the signal of [`says`] is followed: an hour is 3.6 s.
const MADE_UP: &str =
    "--trace signal.csv --from 2030-01-01T00:00:00Z --speed 1000 --stale-hours 1.1";

/// The policy is the hour's while there is a signal, and else the one that was found; metrics that can't
/// be written keep no budget from following.
#[test]
fn the_policy_that_was_found_comes_back() {
    let node = Node::new();
    let folder = tempfile::tempdir().unwrap();
    let signal = folder.path().join("signal.csv");
    fs::create_dir(folder.path().join("carbon.new")).unwrap();
    says(&signal, 900);
    let more = format!("{MADE_UP} --set-policy");
    let mut following = follow(node.litctl(), folder.path(), [5000, 5600], &more);
    let policy = || policy(&node);
    let wait_for = |wanted: &str| {
        let what = || format!("{}, not {wanted}", policy());
        wait_until(what, || policy() == wanted);
    };
    let set = |wanted: &str| {
        let status = node.litctl().args(["policy", wanted]).status();
        assert!(status.unwrap().success());
    };
    wait_for("gpu-red");
    fs::remove_file(&signal).unwrap();
    wait_for("gpu-realloc");
    says(&signal, 900);
    wait_for("gpu-red");
    // A policy set by an administrator is left alone.
    set("observe");
    thread::sleep(Duration::from_millis(800));
    wait_for("observe");
    set("gpu-realloc");
    wait_for("gpu-red");
    terminate(&following.0);
    assert!(following.0.wait().unwrap().success());
    wait_for("gpu-realloc");
    node.stop();
}

/// The policy that was found outlasts a crash of follow, which leaves the one that it has set.
#[test]
fn the_policy_that_was_found_outlasts_a_crash() {
    let node = Node::new();
    let folder = tempfile::tempdir().unwrap();
    says(&folder.path().join("signal.csv"), 900);
    let more = format!("{MADE_UP} --set-policy --state policy.json");
    let policy = || policy(&node);
    let wait_for = |wanted: &str| {
        let what = || format!("{}, not {wanted}", policy());
        wait_until(what, || policy() == wanted);
    };
    let crashed = follow(node.litctl(), folder.path(), [5000, 5600], &more);
    wait_for("gpu-red");
    drop(crashed);
    assert_eq!(policy(), "gpu-red");
    let metrics = folder.path().join("carbon.prom");
    fs::remove_file(&metrics).unwrap();
    let mut following = follow(node.litctl(), folder.path(), [5000, 5600], &more);
    super::wait_for(&metrics);
    terminate(&following.0);
    assert!(following.0.wait().unwrap().success());
    wait_for("gpu-realloc");
    assert!(!metrics.exists(), "nothing is followed any more");
    assert!(!folder.path().join("policy.json").exists());
    node.stop();
}

/// Where there is no litd, no lease is said to be renewed, with a fallback or without.
#[test]
fn without_litd_no_lease_is_renewed() {
    let folder = folder();
    for more in ["--trace trace.csv", "--trace trace.csv --fallback 4500"] {
        let litctl = command(&folder.path().join("no.socket"), &[]);
        // The trace ended long ago, by the wall clock's reckoning: it is of 2030.
        let more = format!("{more} --from 2030-02-01T00:00:00Z");
        let _following = follow(litctl, folder.path(), [4000, 6000], &more);
        let metrics = folder.path().join("carbon.prom");
        super::wait_for(&metrics);
        let text = read(&metrics);
        assert!(
            text.contains("litd_carbon_lease_renewed 0"),
            "{more}: {text}"
        );
        fs::remove_file(&metrics).unwrap();
    }
}

/// litd would refuse the lease in the first dirty hour.
#[test]
fn a_lowest_budget_below_the_floors_is_refused_at_the_start() {
    let node = Node::new();
    let folder = folder();
    for more in ["--lowest 100", "--lowest 5000 --fallback 100"] {
        let options = format!(
            "carbon follow {more} --highest 5600 --clean 100 --dirty 400 --trace trace.csv"
        );
        let mut litctl = node.litctl();
        litctl.current_dir(folder.path());
        let said = refused(&litctl.args(options.split_whitespace()).output().unwrap());
        assert!(said.contains("floors of litd's GPUs add up to"), "{said}");
    }
    node.stop();
}

/// The policy that rules.
fn policy(node: &Node) -> String {
    let status = node.litctl().args(["status", "--json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    status["node"]["policy"].as_str().unwrap().to_owned()
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
    let more = format!("{MADE_UP} --fallback 4900");
    let following = follow(node.litctl(), folder.path(), [5000, 5600], &more);
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
        let text = read(&folder.path().join("carbon.prom"));
        text.contains("litd_carbon_signal_lost 1")
    });
    drop(following);
    node.stop();
}
