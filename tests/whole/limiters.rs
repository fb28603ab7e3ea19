//! Power helps only a GPU that power limits, and only once it is there: limiters of every kind,
//! readings that lag or come from a cache, others who set caps, resets in mid-adjustment.

use litd_api::{Command, DeviceState, EventKind, JobState, Limiter, Mode};
use litd_power::{ReadBack, Sharing};
use litd_rig::{Author, Fault, Job, Rig};
use litd_sim::Scenario;
use litd_units::Watts;

use crate::stand::{GPUS, Stand, quick, seconds};

/// The straggler of the scenario: gpu-realloc raises its cap.
const RAISED: usize = 4;

/// Devices that gpu-realloc lowers.
const LOWERED: usize = 2;
const ANOTHER: usize = 3;

fn on(scenario: &str, config: &str) -> Stand {
    let rig = Rig::new(&Scenario::builtin(scenario).unwrap(), 1).unwrap();
    let mut stand = Stand::on(rig, config, true);
    stand.start();
    stand
}

fn steering(config: &str) -> (Stand, Job) {
    let mut stand = Stand::clocked(config);
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    (stand, job)
}

/// The caps of GPUs that litd has raised above what they were found with, from an entry of the
/// ledger on.
fn awards(stand: &Stand, from: usize) -> Vec<usize> {
    let found = stand.rig.ledger().found();
    let entries = stand.rig.ledger().entries().into_iter().skip(from);
    let awarded = entries.filter(|entry| {
        let rises = entry.after > entry.before && entry.after > found[entry.device];
        entry.author == Author::Litd && entry.device < GPUS && rises
    });
    awarded.map(|entry| entry.device).collect()
}

#[test]
fn a_straggler_that_heat_limits_leaves_the_caps_as_they_were_found() {
    for policy in ["gpu-realloc", "gpu-red"] {
        let mut stand = on("thermal-straggler", &quick(policy));
        let mut job = stand.train();
        stand.play(&mut job, 60);
        let status = stand.job_status("train");
        assert_eq!(status.state, JobState::Converged, "{}", status.why);
        assert!(status.why.starts_with("heat: "), "{policy}: {}", status.why);
        assert_eq!(stand.device(RAISED).limiter, Limiter::Heat);
        assert_eq!(stand.held(), stand.rig.ledger().found(), "{policy}");
        assert_eq!(stand.status().totals.adjustments, 0);
        stand.stop();
    }
}

#[test]
fn a_node_without_headroom_is_left_as_it_was_found() {
    for policy in ["gpu-realloc", "cpu-slosh"] {
        let config = format!("{}law.mitigation.initial_cap = 750.0\n", quick(policy));
        let mut stand = on("no-headroom", &config);
        let mut job = stand.train();
        stand.play(&mut job, 40);
        let why = stand.job_status("train").why;
        assert!(
            stand.has_event(EventKind::State, "no headroom"),
            "{policy}: {why}"
        );
        assert!(stand.rig.ledger().is_empty(), "{policy}");
        stand.stop();
    }
}

#[test]
fn the_power_brake_stops_rises_on_the_whole_node_for_a_minute() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    stand.rig.hardware().inject(ANOTHER, Fault::PowerBrake);
    stand.pass(1.5);
    assert!(stand.has_event(EventKind::Fault, "the power brake was pulled"));
    assert_eq!(stand.device(ANOTHER).limiter, Limiter::PowerBrake);
    let before = stand.rig.ledger().len();
    stand.play(&mut job, 20);
    assert_eq!(awards(&stand, before), [0; 0]);
    assert!(stand.job_status("train").why.contains("power brake"));
    stand.rig.hardware().heal(ANOTHER);
    stand.pass(61.0);
    let adjustments = stand.status().totals.adjustments;
    stand.play_until(&mut job, "adjustment", |stand| {
        stand.status().totals.adjustments > adjustments
    });
    stand.stop();
}

#[test]
fn a_gpu_that_something_else_holds_down_gets_nothing() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let held_to = Fault::Enforced(Watts(600.0));
    stand.rig.hardware().inject(RAISED, held_to);
    let mut job = stand.train();
    stand.play(&mut job, 40);
    assert_eq!(stand.device(RAISED).limiter, Limiter::Enforced);
    assert!(!awards(&stand, 0).contains(&RAISED));
    stand.rig.hardware().heal(RAISED);
    stand.stop();
}

#[test]
fn samples_count_only_once_caps_have_settled() {
    let config = format!(
        "{}settle.seconds = 30.0\nsettle.iterations = 3\nsettle.fit = false\n",
        quick("gpu-realloc")
    );
    let (mut stand, mut job) = steering(&config);
    let last = stand.rig.ledger().entries().last().unwrap().at;
    let samples = stand.job_status("train").samples;
    assert_eq!(
        stand.job_status("train").sampling_period,
        0,
        "it is profiled"
    );
    while stand.rig.now() < last + seconds(29.0) {
        stand.play(&mut job, 1);
    }
    assert_eq!(stand.job_status("train").samples, samples);
    let adjustments = stand.status().totals.adjustments;
    stand.play_until(&mut job, "adjustment", |stand| {
        stand.status().totals.adjustments > adjustments
    });
    let next = stand.rig.ledger().entries().last().unwrap().at;
    assert!(next >= last + seconds(30.0));
    assert_eq!(stand.job_status("train").bad_samples, 0);
    stand.stop();
}

#[test]
fn rises_wait_for_the_power_of_what_was_lowered_and_are_cancelled() {
    let config = format!("{}caps.follow_margin = 1.0\n", quick("gpu-realloc"));
    let mut stand = Stand::clocked(&config);
    for device in (0..GPUS).filter(|&device| device != RAISED) {
        stand.rig.hardware().inject(device, Fault::Overdraw);
    }
    let mut job = stand.train();
    stand.play_until(&mut job, "lowered caps", |stand| {
        stand.sum() < Watts(5600.0)
    });
    stand.pass(5.0);
    // What was lowered still draws: nobody has those watts.
    assert_eq!(awards(&stand, 0), [0; 0]);
    stand.pass(8.0);
    assert!(stand.has_event(EventKind::State, "rises are cancelled"));
    assert_eq!(stand.not_ours(), []);
    for device in 0..GPUS {
        stand.rig.hardware().heal(device);
    }
    stand.play_until(&mut job, "rise", |stand| !awards(stand, 0).is_empty());
    stand.stop();
}

#[test]
fn a_read_back_that_may_be_cached_is_confirmed_by_power_only() {
    let mut stand = Stand::bare(&quick("gpu-realloc"), true);
    for device in 0..GPUS {
        let mut hardware = stand.rig.hardware();
        hardware.identity_mut(device).unwrap().read_back = ReadBack::MayBeCached;
    }
    stand.start();
    let mut job = stand.train();
    stand.play(&mut job, 2);
    // The driver says what it was told; the firmware goes on as before.
    for device in 0..GPUS {
        stand.rig.hardware().inject(device, Fault::Cached);
    }
    stand.play(&mut job, 10);
    stand.pass(5.0);
    let asked = stand.rig.ledger().entries();
    let raised = asked.iter().any(|entry| entry.asked > Watts(700.0));
    assert!(!asked.is_empty() && !raised, "{asked:?}");
    for device in 0..GPUS {
        stand.rig.hardware().heal(device);
    }
    stand.pass(2.0);
    stand.resume();
    stand.play_into_steering(&mut job);
    stand.stop();
}

#[test]
fn one_foreign_change_stops_all_rises_and_a_second_one_all_steering() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut one = stand.job("one", 0..4);
    let mut other = stand.job("other", 4..GPUS);
    let adjusts = |stand: &Stand| stand.status().totals.adjustments;
    for _ in 0..12 {
        one.run_iteration();
        stand.play(&mut other, 1);
    }
    assert!(adjusts(&stand) > 0);
    stand
        .rig
        .hardware()
        .foreign_set(LOWERED, Watts(640.0))
        .unwrap();
    stand.pass(1.5);
    assert_eq!(stand.not_ours(), [(LOWERED, DeviceState::Foreign)]);
    let before = stand.rig.ledger().len();
    stand.play(&mut other, 20);
    assert_eq!(awards(&stand, before), [0; 0]);
    let why = stand.job_status("other").why;
    let told = "somebody else set the cap of gpu2; once `litctl resume gpu2` has taken it back, caps may rise";
    assert!(why.contains(told), "{why}");
    assert_eq!(stand.status().node.mode, Mode::Steer);

    stand
        .rig
        .hardware()
        .foreign_set(LOWERED, Watts(620.0))
        .unwrap();
    stand.pass(3.0);
    assert_eq!(stand.status().node.mode, Mode::Observe);
    assert!(stand.status().node.yielded);
    let mut expected = stand.rig.ledger().found();
    expected[LOWERED] = Watts(620.0);
    assert_eq!(stand.held(), expected);
    let policy = "gpu-realloc".to_owned();
    let (code, answer) = stand.try_command(&Command::SetPolicy { policy });
    assert!(code >= 400 && answer.contains("litctl resume"), "{answer}");
    // One device is not the node.
    let device = Some("gpu2".to_owned());
    stand.command(&Command::Resume { device });
    assert_eq!(stand.status().node.mode, Mode::Observe);
    stand.resume();
    assert_eq!(stand.status().node.mode, Mode::Steer);
    let before = adjusts(&stand);
    stand.play_until(&mut other, "adjustment", |stand| adjusts(stand) > before);
    stand.assert_rules();
    stand.terminate();
}

#[test]
fn a_reset_in_mid_adjustment_starts_warm_up_over() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    // What litd is about to be answered is of a GPU that is no more.
    stand.rig.hardware().inject(RAISED, Fault::Refuse);
    stand.play(&mut job, 1);
    stand.rig.hardware().reset(LOWERED).unwrap();
    stand.rig.hardware().heal(RAISED);
    stand.play(&mut job, 1);
    stand.pass(1.5);
    assert!(stand.has_event(EventKind::Foreign, "identity and limits are read anew"));
    assert_eq!(stand.not_ours(), []);
    assert_eq!(stand.job_status("train").state, JobState::WarmUp);
    assert_eq!(stand.status().node.mode, Mode::Steer);
    stand.play_into_steering(&mut job);
    stand.stop();
}

#[test]
fn a_gpu_that_comes_back_in_partitions_is_left_alone() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    let partitioned = Sharing::Partitioned;
    stand.rig.hardware().identity_mut(LOWERED).unwrap().sharing = partitioned;
    stand.rig.hardware().reset(LOWERED).unwrap();
    stand.pass(3.0);
    let status = stand.job_status("train");
    assert_eq!(status.state, JobState::Suspended);
    assert!(status.why.contains("it is partitioned"), "{}", status.why);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.play(&mut job, 10);
    assert!(stand.is_back());
    stand.rig.hardware().identity_mut(LOWERED).unwrap().sharing = Sharing::Whole;
    stand.resume();
    stand.pass(1.0);
    stand.play_into_steering(&mut job);
    stand.stop();
}

#[test]
fn a_gpu_that_needs_more_than_the_others_is_not_hidden() {
    let config = format!(
        "{}law.mitigation.max_adjustment = 30.0\nailing.above = 0.02\nailing.hours = 0.01\n",
        quick("gpu-realloc")
    );
    let (mut stand, mut job) = steering(&config);
    let name = stand.device(RAISED).address;
    let told = "inspect this hardware";
    stand.play_until(&mut job, "event", |stand| {
        stand.has_event(EventKind::Fault, told)
    });
    let since = stand.device(RAISED).ailing_since;
    assert!(since.is_some(), "{name}");
    assert!(stand.device(RAISED).needs_more_seconds >= 36.0);
    let well = (0..GPUS).filter(|&gpu| stand.device(gpu).ailing_since.is_none());
    assert_eq!(well.count(), GPUS - 1);
    // It is remembered.
    assert_eq!(stand.terminate(), Some(0));
    stand.start();
    assert_eq!(stand.device(RAISED).ailing_since, since);
    stand.stop();
}
