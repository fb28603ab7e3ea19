//! Modes, the kill switch, and the leases of a fleet controller.

use std::fs;
use std::time::{Duration, Instant};

use litd_api::{DeviceState, EventKind, JobState, Mode};
use litd_rig::Fault;
use litd_units::Watts;

use crate::stand::{GPUS, Stand, quick, quick_with_switch, wait_for};

fn put(stand: &Stand, body: &str) -> (u16, String) {
    stand.ask("PUT", "/v1/lease", body)
}

#[test]
fn a_kill_switch_is_honoured_and_its_reason_is_told() {
    let rig_file = tempfile::tempdir().unwrap();
    let file = rig_file.path().join("off");
    let config = quick_with_switch("gpu-realloc", &file);
    let mut stand = Stand::clocked(&config);
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    fs::write(&file, "row 7 is being rewired\n").unwrap();
    stand.pass(5.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert_eq!(stand.journaled(), [""; 0]);
    let status = stand.status();
    assert_eq!(status.node.mode, Mode::Off);
    assert!(status.node.summary.contains("row 7 is being rewired"));
    let reads = stand.rig.ledger().len();
    stand.play(&mut job, 20);
    assert_eq!(stand.rig.ledger().len(), reads);
    assert_eq!(stand.job_status("train").state, JobState::Suspended);
    // Nobody turns it on again but who takes the file away.
    let resume = litd_api::Command::Resume { device: None };
    assert_eq!(stand.try_command(&resume).0, 409);
    fs::remove_file(&file).unwrap();
    stand.play_into_steering(&mut job);
    stand.stop();
}

/// A GPU that is gone holds more than was found: the others get their caps back all the same, and that is told.
#[test]
fn a_kill_switch_restores_the_others_of_a_gpu_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("off");
    let mut stand = Stand::clocked(&quick_with_switch("gpu-realloc", &file));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    let found = stand.rig.ledger().found();
    let held = stand.held();
    let gone = (0..GPUS).find(|&gpu| held[gpu] > found[gpu]).unwrap();
    // No more than by what that one holds too much.
    let whole: Watts = found[..GPUS].iter().copied().sum();
    stand
        .rig
        .ledger()
        .set_budget(whole + held[gone] - found[gone]);
    stand.rig.hardware().inject(gone, Fault::Gone);
    stand.pass(8.0);
    fs::write(&file, "").unwrap();
    stand.pass(6.0);
    let held = stand.held();
    let not_back: Vec<usize> = (0..GPUS).filter(|&gpu| held[gpu] != found[gpu]).collect();
    assert_eq!(not_back, [gone], "{held:?}, not {found:?}");
    let told = "that could not be lowered in 1.5 s, and the caps of the other devices are restored all the same";
    assert!(stand.has_event(EventKind::Restore, told));
    let why = stand.device(gone).why;
    assert!(
        why.starts_with("the cap found is not restored yet"),
        "{why}"
    );
    stand.rig.hardware().heal(gone);
    fs::remove_file(&file).unwrap();
    stand.pass(30.0);
    stand.stop();
}

#[test]
fn a_kill_switch_is_honoured_within_five_seconds_of_real_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("off");
    let config = format!("rollout.kill_switches = [\"{}\"]\n", file.display());
    let stand = Stand::real(&config);
    fs::write(&file, "").unwrap();
    let since = Instant::now();
    wait_for("off", || stand.status().node.mode == Mode::Off);
    assert!(since.elapsed() < Duration::from_secs(5));
    stand.stop();
}

#[test]
fn a_lease_that_ends_falls_to_the_safe_budget() {
    let config = quick("gpu-realloc") + "caps.safe_budget = 4800\n";
    let mut stand = Stand::bare(&config, true);
    stand.rig.ledger().set_budget(Watts(4800.0));
    stand.start();
    stand.pass(2.0);
    // Nobody has a lease.
    assert!(stand.sum() <= Watts(4800.0), "{}", stand.sum());
    stand.rig.ledger().set_budget(Watts(5400.0));
    let lease = r#"{"controller": "fleet", "seconds": 30, "budget": 5400}"#;
    let (code, said) = put(&stand, lease);
    assert_eq!(code, 200, "{said}");
    stand.pass(2.0);
    assert!(stand.sum() > Watts(5300.0), "{}", stand.sum());
    // Renewed in time.
    stand.pass(20.0);
    assert_eq!(put(&stand, lease).0, 200);
    stand.pass(20.0);
    assert!(stand.sum() > Watts(5300.0), "{}", stand.sum());
    let left = stand.status().node.lease.unwrap().remaining_seconds;
    assert!((9.0..=11.0).contains(&left), "{left}");
    // And no more.
    stand.pass(10.0);
    stand
        .rig
        .ledger()
        .lower_budget(Watts(4800.0), Duration::from_secs(2));
    stand.pass(3.0);
    assert!(stand.sum() <= Watts(4800.0), "{}", stand.sum());
    assert_eq!(stand.status().node.lease, None);
    let told = "ended and was not renewed: the mode is now on, with a budget of 4800 W";
    assert!(
        stand.has_event(EventKind::Command, told),
        "{}",
        stand.said()
    );
    // Nor does a lease lift it that names no budget.
    let lease = r#"{"controller": "fleet", "seconds": 30, "mode": "on"}"#;
    assert_eq!(put(&stand, lease).0, 200);
    stand.pass(3.0);
    assert!(stand.sum() <= Watts(4800.0), "{}", stand.sum());
    stand.stop();
}

#[test]
fn a_lease_sets_the_mode_and_another_controller_waits_for_its_end() {
    let mut stand = Stand::clocked(&quick("gpu-realloc").replace("\"on\"", "\"observe\""));
    let mut job = stand.train();
    let on = r#"{"controller": "dps", "seconds": 3600, "mode": "on"}"#;
    assert_eq!(put(&stand, on).0, 200);
    stand.play_into_steering(&mut job);
    let (code, said) = put(&stand, &on.replace("dps", "other"));
    assert_eq!(code, 409);
    assert!(said.contains("dps holds a lease"), "{said}");
    for wrong in [
        r#"{"controller": "dps", "seconds": 0}"#,
        r#"{"controller": "dps", "seconds": 60, "budget": 10}"#,
        r#"{"controller": "", "seconds": 60}"#,
    ] {
        assert_eq!(put(&stand, wrong).0, 409, "{wrong}");
    }
    assert_eq!(put(&stand, "{}").0, 400);
    assert_eq!(stand.ask("DELETE", "/v1/lease", "").0, 200);
    stand.finish();
    stand.pass(1.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert_eq!(stand.status().node.mode, Mode::Observe);
    stand.stop();
}

#[test]
fn a_canary_is_on_by_its_name() {
    let mode = |percent: f64| {
        let config = format!(
            "mode = \"canary\"\nrollout.node = \"gpu-node-17\"\nrollout.percent = {percent:?}\n"
        );
        let stand = Stand::clocked(&config);
        let mode = stand.status().node.mode;
        stand.stop();
        mode
    };
    let place = litd_core::canary_place("gpu-node-17") as f64 / 100.0;
    assert_eq!(mode(place + 0.01), Mode::Steer);
    assert_eq!(mode(place - 0.01), Mode::Observe);
}

#[test]
fn a_controller_that_asks_for_less_than_can_be_kept_does_not_get_more() {
    let mut stand = Stand::clocked(&quick("observe"));
    let lease =
        |watts: u32| format!(r#"{{"controller": "fleet", "seconds": 8, "budget": {watts}}}"#);
    assert_eq!(put(&stand, &lease(4000)).0, 200);
    stand.pass(3.0);
    assert!(stand.sum() <= Watts(4000.0), "{}", stand.sum());
    // It sheds load, by more than the GPUs can.
    for _ in 0..5 {
        let (code, said) = put(&stand, &lease(500));
        assert_eq!(code, 409, "{said}");
        assert!(
            said.contains("the present lease of fleet stays as it is, for another 8 s")
                && said.contains("floors add up"),
            "{said}"
        );
        stand.pass(5.0);
        assert!(stand.sum() <= Watts(4000.0), "{}", stand.sum());
    }
    // What is no budget at all keeps nothing.
    assert_eq!(put(&stand, &lease(0)).0, 409);
    stand.pass(4.0);
    assert_eq!(stand.status().node.lease, None);
    stand.stop();
}

#[test]
fn a_configuration_that_was_cut_off_lifts_no_budget_unsaid() {
    let mut stand = Stand::clocked(&(quick("observe") + "caps.budget = 4000\n"));
    stand.pass(3.0);
    assert!(stand.sum() <= Watts(4000.0), "{}", stand.sum());
    stand.daemon().reload("\n").unwrap();
    stand.pass(3.0);
    assert!(stand.has_event(
        EventKind::Daemon,
        "is empty, perhaps because the disk was full"
    ));
    assert!(stand.sum() <= Watts(4000.0), "{}", stand.sum());
    // One that has lost its end is a good one, and is told of.
    stand.reload(&quick("observe"));
    stand.pass(3.0);
    assert!(stand.has_event(
        EventKind::Daemon,
        "the configuration no longer sets caps.budget, so caps may rise"
    ));
    stand.stop();
}

#[test]
fn a_lease_is_not_prolonged_where_less_rules_without_it() {
    let mut stand = Stand::clocked(&(quick("observe") + "caps.safe_budget = 3000\n"));
    let lease =
        |watts: u32| format!(r#"{{"controller": "fleet", "seconds": 8, "budget": {watts}}}"#);
    assert_eq!(put(&stand, &lease(4000)).0, 200);
    stand.pass(3.0);
    for _ in 0..3 {
        let (code, said) = put(&stand, &lease(500));
        assert_eq!(code, 409, "{said}");
        assert!(said.contains("the budget stays as it was"), "{said}");
        stand.pass(3.0);
    }
    assert_eq!(stand.status().node.lease, None);
    assert!(stand.sum() <= Watts(3000.0), "{}", stand.sum());
    // One that switches litd off lowers nothing.
    let off = r#"{"controller": "fleet", "seconds": 8, "mode": "off", "budget": 500}"#;
    assert_eq!(put(&stand, off).0, 200);
    stand.stop();
}

#[test]
fn a_cap_of_somebody_elses_is_theirs_after_an_off() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("off");
    let mut stand = Stand::clocked(&(quick_with_switch("observe", &file) + "caps.budget = 4000\n"));
    stand.pass(3.0);
    let theirs = Watts(661.0);
    stand.rig.hardware().foreign_set(2, theirs).unwrap();
    stand.pass(3.0);
    assert_eq!(stand.not_ours(), [(2, DeviceState::Foreign)]);
    fs::write(&file, "").unwrap();
    stand.pass(5.0);
    fs::remove_file(&file).unwrap();
    stand.pass(5.0);
    assert_eq!(
        stand.not_ours(),
        [(2, DeviceState::Foreign)],
        "{}",
        stand.said()
    );
    assert_eq!(stand.held()[2], theirs);
    assert!(stand.sum() <= Watts(4000.0), "{:?}", stand.held());
}
