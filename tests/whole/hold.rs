//! `caps.on_exit = "hold"`: what litd leaves behind when it stops and while it is off.

use std::fs;
use std::path::Path;

use litd_api::{DeviceState, Mode};
use litd_rig::{Daemon, DaemonError};
use litd_units::Watts;

use crate::stand::{GPUS, LITD, Stand, quick, quick_with_switch, wait_for};

const HOLD: &str = "caps.on_exit = \"hold\"\ncaps.safe_budget = 4000\n";

const RESTORE: &str = "caps.on_exit = \"restore\"\n";

/// A node on which caps are moved, and what they add up to may not be more than is safe.
fn steering(config: &str) -> Stand {
    let mut stand = Stand::clocked(&(config.to_owned() + HOLD));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    assert_safe(&stand);
    stand
}

fn assert_safe(stand: &Stand) {
    let held = &stand.held()[..GPUS];
    assert!(stand.sum() <= Watts(4000.0), "{held:?}: {}", stand.said());
}

/// The caps found are not forgotten: `litd restore` without "hold" goes back to them.
fn assert_found_again(mut stand: Stand) {
    assert!(!stand.is_back());
    assert_eq!(stand.journaled().len(), GPUS, "{}", stand.said());
    stand.configure(&(quick("gpu-realloc") + RESTORE));
    stand.rig.ledger().permit_found();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    stand.assert_clean();
}

#[test]
fn a_stop_leaves_what_is_safe_and_forgets_nothing() {
    let mut stand = steering(&quick("gpu-realloc"));
    let code = stand.terminate();
    assert_eq!(code, Some(0), "{}", stand.said());
    assert_safe(&stand);
    // Nor does `litd restore`, which systemd runs next, raise anything.
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert_safe(&stand);
    assert_found_again(stand);
}

/// As `systemctl reload litd; systemctl stop litd`, whose reload does not wait.
#[test]
fn a_stop_right_after_a_reload_leaves_what_the_new_file_says() {
    for _ in 0..4 {
        let config = quick("gpu-realloc");
        let mut stand = Stand::clocked(&config);
        let mut job = stand.train();
        stand.play_into_steering(&mut job);
        stand.reload(&(config + HOLD));
        let code = stand.terminate();
        assert_eq!(code, Some(0), "{}", stand.said());
        assert_safe(&stand);
        assert_found_again(stand);
    }
}

#[test]
fn off_leaves_what_is_safe_and_forgets_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("off");
    let mut stand = steering(&quick_with_switch("gpu-realloc", &file));
    fs::write(&file, "row 7 is being rewired\n").unwrap();
    stand.pass(5.0);
    let status = stand.status();
    assert_eq!(status.node.mode, Mode::Off);
    // Closed devices are not read: what others have set since would be missed.
    assert!(
        status.devices.iter().all(|it| it.cap.is_none()),
        "{status:#?}"
    );
    assert_safe(&stand);
    assert_eq!(stand.journaled().len(), GPUS);
    stand.kill();
    assert_found_again(stand);
}

/// litd was never started here, or its state directory's file system is not mounted.
#[test]
fn restore_makes_the_state_directory_to_hold_what_it_lowers() {
    let stand = Stand::bare(&(quick("observe") + HOLD), true);
    assert!(!stand.rig.layout().state().exists());
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert_safe(&stand);
    assert_found_again(stand);
}

#[test]
fn restore_says_what_it_could_not_hold() {
    let stand = Stand::bare(&(quick("observe") + HOLD), true);
    // Nothing can be written where this stands.
    let blocked = stand.rig.layout().state().join("journal.new");
    fs::create_dir_all(&blocked).unwrap();
    let before = stand.held();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(1), "{said}");
    let above = "GPUs may hold 5600 W, above the safe budget of 4000 W";
    assert!(said.contains(above) && said.contains("journal"), "{said}");
    assert_eq!(stand.held(), before);
    fs::remove_dir(&blocked).unwrap();
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert_safe(&stand);
}

#[test]
fn restore_lowers_what_no_journal_names() {
    let mut stand = Stand::clocked(&quick("observe"));
    stand.pass(2.0);
    stand.kill();
    assert!(stand.journaled().is_empty());
    assert!(stand.sum() > Watts(4000.0));
    stand.configure(&(quick("observe") + HOLD));
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert_safe(&stand);
    assert_found_again(stand);
}

#[test]
fn what_somebody_else_has_set_stays_over_a_stop_and_a_restore_that_hold() {
    let mut stand = Stand::real(&(quick("observe") + HOLD));
    wait_for("the safe budget", || stand.sum() <= Watts(4000.0));
    let theirs = Watts(661.0);
    stand.rig.hardware().foreign_set(0, theirs).unwrap();
    wait_for("what is theirs", || {
        stand.not_ours() == [(0, DeviceState::Foreign)]
    });
    wait_for("room for it", || stand.sum() <= Watts(4000.0));
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    let (code, said) = stand.restore();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(stand.held()[0], theirs, "{said}");
    assert_safe(&stand);
    stand.start();
    wait_for("what is theirs", || {
        stand.not_ours() == [(0, DeviceState::Foreign)]
    });
    assert_eq!(stand.held()[0], theirs, "{}", stand.said());
}

/// A file in which nothing can be understood is no word for raising caps that the dead litd held.
#[test]
fn a_file_that_says_nothing_raises_nothing_that_was_held() {
    let directory = tempfile::tempdir().unwrap();
    let baseline = directory.path().join("baseline");
    let baseline = format!("state.baseline = \"{}\"\n", baseline.display());
    let mut stand = steering(&(quick("gpu-realloc") + &baseline));
    stand.kill();
    for (wrong, expected) in [
        ("mode = \"drive\"\n", Some(2)),
        ("mode = \"drive\"\ncaps.on_exit = \"restore\"\n", Some(0)),
    ] {
        let restores = expected == Some(0);
        stand.configure(&(baseline.clone() + wrong));
        if restores {
            stand.rig.ledger().permit_found();
        }
        let (code, said) = stand.restore();
        assert_eq!(code, expected, "{said}");
        assert_eq!(stand.is_back(), restores, "{said}");
    }
}

/// A file whose end is missing is good, and litd was not told to read it.
#[test]
fn after_a_crash_a_good_file_that_says_nothing_raises_nothing_that_was_held() {
    let mut stand = steering(&quick("gpu-realloc"));
    stand.kill();
    stand.configure(&quick("gpu-realloc"));
    for _ in 0..2 {
        let (code, said) = stand.restore();
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("says nothing of caps.on_exit"), "{said}");
        assert_safe(&stand);
    }
    let (program, directory) = (Path::new(LITD), stand.rig.layout().directory.clone());
    match Daemon::spawn(program, &directory, stand.config(), None) {
        Err(DaemonError::Ended { status, stderr }) => {
            assert_eq!(status.code(), Some(2), "{stderr}");
            assert!(stderr.contains("says nothing of caps.on_exit"), "{stderr}");
        }
        other => panic!("{other:?}"),
    }
    assert_safe(&stand);
    assert_found_again(stand);
}

/// A reload is somebody's word.
#[test]
fn a_crash_after_a_reload_follows_the_reload() {
    let config = quick("gpu-realloc");
    let mut stand = steering(&config);
    stand.rig.ledger().permit_found();
    stand.reload(&config);
    stand.pass(1.0);
    assert!(stand.said().contains(
        "the configuration no longer sets caps.safe_budget, caps.on_exit = \"hold\", so"
    ));
    stand.kill();
    let said = stand.restore_after_kill();
    stand.assert_clean_but_for_late(&said);
}

/// As an administrator runs `litd restore`: without the variables that systemd sets for the unit. The baseline lies
/// beside the locks.
#[test]
fn a_hold_is_known_by_hand_too() {
    let mut stand = steering(&quick("gpu-realloc"));
    stand.kill();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let baseline = stand.rig.layout().locks().with_file_name("baseline");
    fs::write(
        baseline,
        format!("litd-baseline 1\nboot {boot}hold 4000000000\n"),
    )
    .unwrap();
    stand.configure("mode = \"drive\"\n");
    let (code, said) = stand.restore();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the last litd left caps held"), "{said}");
    assert_safe(&stand);
}

/// The links to a lost journal are what tells of it: they stay, however often caps are held.
#[test]
fn a_lost_journal_is_told_of_each_time() {
    let mut stand = steering(&quick("gpu-realloc"));
    stand.kill();
    let state = stand.rig.layout().state();
    let elsewhere = state.with_extension("not-mounted");
    fs::rename(&state, &elsewhere).unwrap();
    for _ in 0..3 {
        let (code, said) = stand.restore();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("and is not there any more"), "{said}");
    }
    let _ = fs::remove_dir_all(&state);
    fs::rename(&elsewhere, &state).unwrap();
    assert_found_again(stand);
}
