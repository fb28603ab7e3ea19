//! The process is ended at random moments: by a signal it ends with the caps found, and a kill is undone by
//! `litd restore`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use litd_qualify::report::Outcome;
use litd_sim::rng::Rng;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::seeds::{self, Variables};

use super::{QUICK, end, node, node_with, start};

/// About as long as a run takes here.
const LONGEST: f64 = 2.0;

/// How many runs were ended with a cap changed or a clock locked, so that something had to be undone.
static CHANGED: AtomicUsize = AtomicUsize::new(0);

fn run(seed: u64) {
    let mut rng = Rng::stream(seed, &[]);
    let stand = node();
    let clocks = rng.uniform() < 0.3;
    let more = if clocks { &["--clocks"][..] } else { &[] };
    let child = start(&stand, &[&["--watch", "0.05"], more].concat());
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    std::thread::sleep(Duration::from_secs_f64(rng.uniform() * LONGEST));
    let signals = [
        Signal::SIGKILL,
        Signal::SIGKILL,
        Signal::SIGTERM,
        Signal::SIGINT,
    ];
    let signal = signals[(rng.uniform() * 4.0) as usize];
    // It may have ended before.
    let _ = kill(pid, signal);
    let mut said = String::new();
    if signal == Signal::SIGKILL {
        child.wait_with_output().unwrap();
        let locked = stand
            .rig
            .hardware()
            .nvidia()
            .gpus
            .iter()
            .any(|it| it.clocks.is_some());
        CHANGED.fetch_add(usize::from(locked || !stand.is_back()), Ordering::Relaxed);
        let (code, text) = stand.restore();
        // A write may have been under way when it was killed.
        assert!(matches!(code, Some(0 | 3)), "{code:?}: {text}");
        said = text;
    } else {
        // Before it has caught signals, nothing was written.
        let output = child.wait_with_output().unwrap();
        if !output.stdout.is_empty() {
            let report: litd_qualify::report::Report =
                serde_json::from_slice(&output.stdout).unwrap();
            let ends = [Outcome::Stopped, Outcome::Qualified, Outcome::Refused];
            assert!(ends.contains(&report.outcome), "{report:#?}");
        }
    }
    stand.assert_clean_but_for_late(&said);
    assert_eq!(stand.held(), stand.rig.ledger().found());
    for gpu in &stand.rig.hardware().nvidia().gpus {
        assert_eq!(gpu.clocks, None, "{signal}: {said}");
    }
}

#[test]
fn ended_at_any_moment_it_leaves_the_caps_found() {
    let variables = Variables {
        runs: "LITD_ABORTS",
        seed: "LITD_ABORT_SEED",
    };
    let runs = seeds::each(variables, 20, 4, run);
    let changed = CHANGED.load(Ordering::Relaxed);
    eprintln!("{runs} runs ended, {changed} of them by a kill that left something to undo");
}

/// A person may be at the machine: the run ends, and the cap that it has lowered goes back.
#[test]
fn a_kill_switch_that_is_thrown_in_the_middle_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let switch = folder.path().join("off");
    let config = format!(
        "{QUICK}rollout.kill_switches = [\"{}\"]\n",
        switch.display()
    );
    let stand = node_with(&config);
    let child = start(&stand, &["--watch", "5"]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while stand.is_back() {
        assert!(Instant::now() < deadline, "no cap was lowered");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::write(&switch, "row 7 is being rewired\n").unwrap();
    let (_, report, _) = end(child);
    assert_eq!(report.outcome, Outcome::Stopped, "{report:#?}");
    let why = report.reasons.join("; ");
    assert!(
        why.contains("row 7 is being rewired: a kill switch"),
        "{why}"
    );
    let written: BTreeSet<&str> = report.writes.iter().map(|it| it.device.as_str()).collect();
    assert_eq!(written.len(), 1, "{:#?}", report.writes);
    assert_eq!(stand.held(), stand.rig.ledger().found());
}

/// A killed process leaves a journal that the next run refuses, until it is undone.
#[test]
fn after_a_kill_the_next_run_is_refused_until_it_is_undone() {
    let stand = node();
    let mut child = start(&stand, &["--watch", "0.05"]);
    while stand.is_back() {
        std::thread::sleep(Duration::from_micros(200));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    if stand.is_back() {
        return;
    }
    let (_, report, _) = end(start(&stand, &["--watch", "0.05"]));
    assert_eq!(report.outcome, Outcome::Refused, "{report:#?}");
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(stand.held(), stand.rig.ledger().found());
}
