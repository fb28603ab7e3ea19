//! `litctl carbon advise`: what runs on, and what is started, near a deadline.

use std::path::Path;

use serde_json::Value;

use super::{advise, carbon, folder, printed, refused};

/// The advice at a moment, and whether it is another configuration than the one that runs.
fn advised(folder: &Path, now: &str, tokens: &str, running: &str) -> (Value, bool) {
    let signal = "--trace trace.csv --forecast forecast.csv --switch-seconds 300";
    let signal = format!("{signal} --from {now} --running {running}");
    let output = advise(folder, tokens, "2030-01-01T06:00:00Z", &signal).output();
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said = serde_json::from_slice(&output.stdout);
    let said = said.unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let switch = match output.status.code() {
        Some(0) => false,
        Some(10) => true,
        other => panic!("{other:?}: {stderr}"),
    };
    (said, switch)
}

/// Less than a window is left, and what runs is in time: nothing is gained by a switch to the fastest.
#[test]
fn what_runs_and_is_in_time_runs_on_when_less_than_a_window_is_left() {
    let folder = folder();
    // Half an hour of the lean one is left, of three quarters.
    let (said, switch) = advised(folder.path(), "2030-01-01T05:15:00Z", "108000", "2,1,1");
    assert!(!switch, "{said}");
    assert_eq!(said["configuration"]["tp"], 2, "{said}");
    // Fifty minutes of it are not in time, and thirty with a switch of five are.
    let (said, switch) = advised(folder.path(), "2030-01-01T05:15:00Z", "180000", "2,1,1");
    assert!(switch, "{said}");
    assert_eq!(said["configuration"]["dp"], 2, "{said}");
    // No configuration is in time: a switch that makes the job even later is not made.
    let (said, switch) = advised(folder.path(), "2030-01-01T05:58:00Z", "18000", "2,1,1");
    assert!(!switch, "{said}");
    assert!(
        said["reason"].as_str().unwrap().contains("can't be met"),
        "{said}"
    );
}

/// A plan that begins with a slow configuration is in time with the faster one that follows: its end is the plan's, and
/// not that of the slow one alone, which would be after the deadline.
#[test]
fn what_is_in_time_ends_before_the_deadline() {
    let folder = folder();
    let deadline = "2030-01-01T06:08:00Z";
    let signal = "--trace trace.csv --forecast forecast.csv --switch-seconds 300 --from 2030-01-01T02:00:00Z";
    let signal = format!("{signal} --running 2,1,1");
    let output = advise(folder.path(), "1224000", deadline, &signal).output();
    let said: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    assert_eq!(said["configuration"]["tp"], 2, "{said}");
    assert_eq!(said["in_time"], true, "{said}");
    assert!(said["end"].as_str().unwrap() <= deadline, "{said}");
}

/// A decision that comes seconds after the hour has the hour's windows: with five of them nobody would be in time by a
/// plan.
#[test]
fn a_decision_some_seconds_late_has_not_lost_a_window() {
    let folder = folder();
    // Five hours and a half of the fastest one.
    let tokens = (100 * 3600 * 11 / 2).to_string();
    let (said, switch) = advised(folder.path(), "2030-01-01T00:00:09Z", &tokens, "1,1,2");
    let reason = said["reason"].as_str().unwrap();
    assert!(reason.contains("first window of the plan"), "{said}");
    assert!(!switch, "{said}");
}

/// 1.1 hours are 3960 seconds, which floats make a little more of.
#[test]
fn windows_are_whole_seconds_whatever_floats_make_of_them() {
    let folder = folder();
    let signal = "--trace trace.csv --from 2030-01-01T00:00:00Z --window-hours";
    let asked = |hours: &str| {
        let signal = format!("{signal} {hours}");
        advise(folder.path(), "180000", "2030-01-01T06:00:00Z", &signal)
            .output()
            .unwrap()
    };
    assert_eq!(asked("1.1").status.code(), Some(10));
    let said = refused(&asked("0.0001"));
    assert!(
        said.contains("--window-hours") && said.contains("whole seconds"),
        "{said}"
    );
    let said = refused(&asked("25"));
    assert!(said.contains("at most 24 hours"), "{said}");
}

#[test]
fn the_text_says_when_the_job_is_done_and_whether_that_is_in_time() {
    let folder = folder();
    let told = |tokens: &str| {
        let job = format!("advise --profile profile.csv --tokens {tokens} --running 1,1,2");
        let signal =
            "--trace trace.csv --from 2030-01-01T05:00:00Z --deadline 2030-01-01T06:00:00Z";
        let output = carbon(folder.path(), &format!("{job} {signal}")).output();
        printed(&output.unwrap())
    };
    // A hundred tokens a second.
    let text = told("342000");
    assert!(
        text.contains("end      2030-01-01T05:57:00Z, in time"),
        "{text}"
    );
    let text = told("720000");
    assert!(
        text.contains("end      2030-01-01T07:00:00Z, AFTER THE DEADLINE"),
        "{text}"
    );
}

/// Whoever gives neither is told of both.
#[test]
fn a_signal_that_is_missing_is_asked_for_by_both_names() {
    let folder = folder();
    let advise = |signal: &str| {
        let mut advise = advise(folder.path(), "1e6", "2030-01-02T00:00:00Z", signal);
        refused(&advise.output().unwrap())
    };
    let said = advise("");
    assert!(said.contains("--trace <FILE>|--provider <NAME>"), "{said}");
    let said = advise("--trace trace.csv --provider uk");
    assert!(said.contains("cannot be used with"), "{said}");
}
