//! Devices that refuse, lie, block, vanish, are reset, or are somebody else's.

use std::time::Duration;

use litd_api::{Command, DeviceState, EventKind, JobState};
use litd_rig::{Fault, Job, Ledger};
use litd_units::Watts;

use crate::stand::{GPUS, Stand, quick, wait_for};

/// The straggler of the scenario: gpu-realloc raises its cap.
const RAISED: usize = 4;

/// A device that gpu-realloc lowers.
const LOWERED: usize = 2;

/// Steering is on, and the straggler holds more than it came with.
fn steering(config: &str) -> (Stand, Job) {
    let mut stand = Stand::clocked(config);
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    let (held, found) = (stand.held(), stand.rig.ledger().found());
    assert!(
        held[RAISED] > found[RAISED] && held[LOWERED] < found[LOWERED],
        "{held:?}"
    );
    (stand, job)
}

/// The broken device can't be given back; the others have to stay within what it leaves them,
/// and everything goes back once it does as it is told.
fn is_left_alone_and_mended(mut stand: Stand, mut job: Job, device: usize) {
    assert_eq!(stand.not_ours(), [(device, DeviceState::Faulty)]);
    let status = stand.job_status("train");
    assert_eq!(status.state, JobState::Suspended);
    assert!(
        status.why.starts_with(&stand.device(device).name),
        "{}",
        status.why
    );
    stand.assert_rules();

    stand.rig.hardware().heal(device);
    stand.pass(12.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    // Nobody resumes it for the administrator.
    assert_eq!(stand.not_ours(), [(device, DeviceState::Faulty)]);
    stand.resume();
    stand.play_into_steering(&mut job);
    assert_eq!(stand.not_ours(), []);
    stand.stop_after_failed_writes();
}

#[test]
fn a_raised_gpu_that_refuses_keeps_no_other_from_the_cap_found() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    stand.rig.hardware().inject(RAISED, Fault::Refuse);
    // No budget was set: its job does not need its caps any more, and the others' go back.
    let (before, found) = (stand.held(), stand.rig.ledger().found());
    let whole: Watts = found[..GPUS].iter().copied().sum();
    let too_much = before[RAISED] - found[RAISED];
    stand.rig.ledger().set_budget(whole + too_much);
    let (_, said) = stand.try_command(&Command::Release { device: None });
    assert!(said.contains("gpu4"), "{said}");
    stand.play(&mut job, 5);
    stand.pass(5.0);
    assert!(!stand.is_back());
    let held = stand.held();
    let not_back: Vec<usize> = (0..GPUS).filter(|&gpu| held[gpu] != found[gpu]).collect();
    assert_eq!(not_back, [RAISED], "{held:?}, not {found:?}");
    assert!(stand.counted("driver") >= 1, "{:?}", stand.status().totals);
    stand.assert_rules();
    // It was let go of for all that: only whoever takes it back gives the cap back.
    stand.rig.hardware().heal(RAISED);
    stand.resume();
    stand.play_into_steering(&mut job);
    stand.stop_after_failed_writes();
}

#[test]
fn a_gpu_that_refuses_is_left_alone_until_it_is_resumed() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    stand.rig.hardware().inject(RAISED, Fault::Refuse);
    stand.play_until(&mut job, "fault", |stand| !stand.not_ours().is_empty());
    stand.pass(3.0);
    is_left_alone_and_mended(stand, job, RAISED);
}

#[test]
fn a_gpu_that_lies_is_found_out_by_reading_back() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    stand.rig.hardware().inject(RAISED, Fault::Lie);
    stand.play_until(&mut job, "fault", |stand| !stand.not_ours().is_empty());
    assert!(stand.counted("ignored") >= 3);
    stand.pass(3.0);
    is_left_alone_and_mended(stand, job, RAISED);
}

#[test]
fn a_lowered_gpu_that_lies_takes_nothing_from_the_others_for_ever() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    stand.rig.hardware().inject(LOWERED, Fault::Lie);
    stand.play_until(&mut job, "fault", |stand| !stand.not_ours().is_empty());
    stand.pass(3.0);
    is_left_alone_and_mended(stand, job, LOWERED);
}

#[test]
fn a_cpu_socket_that_refuses_is_counted_with_what_it_holds() {
    let mut stand = Stand::clocked(&quick("cpu-slosh"));
    stand.rig.ledger().permit_slosh();
    let mut job = stand.train();
    stand.play_until(&mut job, "sloshing", |stand| {
        stand.held()[GPUS] < Watts(400.0) && stand.sum() > Watts(5600.0)
    });
    // It is low, and will not go back up; then the other one is high, and will not go down.
    stand.rig.hardware().inject(GPUS, Fault::Refuse);
    let (code, said) = stand.try_command(&Command::Release { device: None });
    assert_eq!(code, 409, "{said}");
    assert!(
        said.contains("cpu0: it is open until its cap is restored"),
        "{said}"
    );
    stand.play(&mut job, 10);
    stand.assert_rules();
    assert_eq!(stand.sum(), Watts(5600.0));
    stand.rig.hardware().heal(GPUS);
    stand.pass(12.0);
    stand.rig.hardware().inject(GPUS + 1, Fault::Lie);
    stand.resume();
    stand.play(&mut job, 40);
    stand.assert_rules();
    stand.rig.hardware().heal(GPUS + 1);
    stand.pass(12.0);
    stand.stop();
}

/// The budget is lowered while a device does not answer: what it may hold is what the others
/// have to do without, within a second.
fn budget_is_lowered_while(fault: Fault) {
    let config = format!("{}caps.answer_seconds = 1.0\n", quick("gpu-realloc"));
    let stand = Stand::real(&config);
    let mut job = stand.train();
    let ledger: Ledger = stand.rig.ledger().clone();
    wait_for("steering", || {
        job.run_iteration();
        // As fast as a whole iteration is taken in; a flood it is not to be.
        std::thread::sleep(Duration::from_millis(20));
        ledger.held()[RAISED] > Watts(710.0)
    });
    stand.rig.hardware().inject(RAISED, fault);
    ledger.lower_budget(Watts(5200.0), Duration::from_secs(1));
    let watts = Some(Watts(5200.0));
    stand.command(&Command::SetBudget { watts });
    // The ledger looks by itself whether the second is kept.
    wait_for("the second's end", || ledger.budget() == Watts(5200.0));
    stand.assert_rules();
    let at = stand.device(RAISED).address;
    wait_for("fault", || {
        stand.not_ours() == [(RAISED, DeviceState::Faulty)]
    });
    assert!(
        stand.has_event(EventKind::Fault, "has not answered for 1 s"),
        "{at}"
    );
    stand.rig.hardware().heal(RAISED);
    wait_for("answer", || {
        stand.has_event(EventKind::Fault, "answers again")
    });
    wait_for("restore", || {
        stand.held()[RAISED] == Watts(700.0) || stand.sum() <= Watts(5200.0)
    });
    stand.resume();
    stand.assert_rules();
    ledger.permit_found();
    stand.command(&Command::SetBudget { watts: None });
    stand.stop();
}

#[test]
fn a_gpu_whose_answers_hang_does_not_hold_up_a_lower_budget() {
    budget_is_lowered_while(Fault::Block(Duration::from_secs(30)));
}

#[test]
fn a_gpu_that_hangs_before_it_obeys_does_not_hold_up_a_lower_budget() {
    budget_is_lowered_while(Fault::Slow(Duration::from_secs(30)));
}

#[test]
fn a_gpu_that_falls_off_the_bus_and_comes_back_is_given_back() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    stand.rig.hardware().inject(RAISED, Fault::Gone);
    stand.play(&mut job, 5);
    stand.pass(5.0);
    assert!(stand.counted("gone") >= 3, "{:?}", stand.status().totals);
    is_left_alone_and_mended(stand, job, RAISED);
}

#[test]
fn a_driver_that_is_unloaded_and_loaded_again_costs_a_resume() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    stand.rig.unload();
    stand.play(&mut job, 5);
    stand.pass(5.0);
    let faulty = stand.not_ours();
    assert_eq!(faulty.len(), 10, "{faulty:?}");
    stand.rig.load().unwrap();
    stand.pass(12.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.resume();
    stand.play_into_steering(&mut job);
    stand.stop_after_failed_writes();
}

#[test]
fn a_gpu_that_is_reset_is_steered_again_after_a_new_warm_up() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    let adjusting = stand.job_status("train").state;
    assert_ne!(adjusting, JobState::WarmUp);
    stand.rig.hardware().reset(LOWERED).unwrap();
    assert_eq!(stand.held()[LOWERED], Watts(750.0));
    stand.pass(1.5);
    assert!(stand.has_event(EventKind::Foreign, "the device was reset"));
    assert_eq!(stand.not_ours(), []);
    assert_eq!(stand.job_status("train").state, JobState::WarmUp);
    assert!(stand.sum() <= Watts(5600.0), "{}", stand.sum());
    stand.play_into_steering(&mut job);
    stand.stop();
}

/// Any user can have his GPU hang until its driver resets it.
#[test]
fn a_gpu_that_its_user_has_reset_again_and_again_takes_nothing_from_the_others() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    for _ in 0..5 {
        stand.rig.hardware().reset(LOWERED).unwrap();
        stand.pass(2.5);
        assert_eq!(stand.not_ours(), []);
        assert!(stand.held()[LOWERED] < Watts(750.0), "{:?}", stand.held());
        stand.play(&mut job, 30);
    }
    stand.stop();
}

#[test]
fn new_limits_after_a_reset_are_kept() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    let lowest = Watts(690.0);
    stand.rig.hardware().range_mut(LOWERED).unwrap().lowest = lowest;
    stand.rig.ledger().limit(LOWERED, lowest, Watts(750.0));
    stand.rig.hardware().reset(LOWERED).unwrap();
    stand.pass(1.5);
    stand.play(&mut job, 60);
    assert_eq!(stand.device(LOWERED).floor, lowest);
    assert_eq!(stand.not_ours(), []);
    stand.stop();
}

#[test]
fn a_foreign_cap_is_seen_before_it_is_written_over() {
    let (mut stand, _job) = steering(&quick("gpu-realloc"));
    let theirs = Watts(640.0);
    stand.rig.hardware().foreign_set(LOWERED, theirs).unwrap();
    // Before the next reading: every GPU is to come down.
    let lower = Watts(stand.rig.ledger().budget().0 - 400.0);
    stand.command(&Command::SetBudget { watts: Some(lower) });
    stand.pass(2.5);
    assert_eq!(stand.not_ours(), [(LOWERED, DeviceState::Foreign)]);
    assert_eq!(stand.held()[LOWERED], theirs);
    stand.terminate();
    assert_eq!(stand.held()[LOWERED], theirs);
    stand.assert_rules();
}

#[test]
fn a_foreign_cap_is_left_alone_until_it_is_resumed() {
    let (mut stand, mut job) = steering(&quick("gpu-realloc"));
    // Little enough for the node to be as uneven as before.
    let theirs = Watts(697.0);
    stand.rig.hardware().foreign_set(LOWERED, theirs).unwrap();
    stand.play(&mut job, 5);
    stand.pass(1.5);
    assert_eq!(stand.not_ours(), [(LOWERED, DeviceState::Foreign)]);
    assert!(stand.has_event(EventKind::Foreign, "somebody else changed the cap"));
    assert_eq!(stand.job_status("train").state, JobState::Suspended);
    // Theirs stays, the others are back.
    assert_eq!(stand.held()[LOWERED], theirs);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.play(&mut job, 20);
    assert_eq!(stand.held()[LOWERED], theirs);

    stand.resume();
    let before = stand.status().totals.adjustments;
    stand.play_until(&mut job, "adjustment", |stand| {
        stand.status().totals.adjustments > before
    });
    assert_eq!(stand.not_ours(), []);
    stand.assert_rules();
    // What it held when it was resumed is what goes back: somebody meant it.
    assert_eq!(stand.terminate(), Some(0));
    stand.assert_rules();
    let mut expected = stand.rig.ledger().found();
    expected[LOWERED] = theirs;
    assert_eq!(stand.held(), expected);
    assert_eq!(stand.journaled(), [""; 0]);
}

#[test]
fn a_gpu_whose_power_does_not_follow_its_cap_is_faulty() {
    let config = format!("{}caps.follow_seconds = 3.0\n", quick("gpu-red"));
    let mut stand = Stand::clocked(&config);
    let mut job = stand.train();
    stand.rig.hardware().inject(LOWERED, Fault::Overdraw);
    // gpu-red lowers it below what margin there is.
    stand.play_until(&mut job, "fault", |stand| !stand.not_ours().is_empty());
    assert_eq!(stand.not_ours(), [(LOWERED, DeviceState::Faulty)]);
    assert_eq!(stand.counted("power_not_followed"), 1);
    assert!(stand.has_event(EventKind::Fault, "the cap is not in force"));
    stand.rig.hardware().heal(LOWERED);
    stand.stop();
}

#[test]
fn a_gpu_that_tells_one_cap_after_the_other_holds_up_nobody_elses_undo() {
    for falls_silent in [true, false] {
        let (mut stand, _job) = steering(&quick("gpu-realloc"));
        let fickle = Fault::Fickle(Watts(2.0));
        stand.rig.hardware().inject(RAISED, fickle);
        stand.pass(1.0);
        if falls_silent {
            stand.rig.hardware().inject(RAISED, Fault::InReset);
        }
        // With room for all that was found, whatever the raised one holds meanwhile.
        stand.rig.ledger().set_budget(Watts(6000.0));
        let observe = quick("gpu-realloc").replace("\"on\"", "\"observe\"");
        stand.reload(&(observe + "caps.budget = 6000\n"));
        stand.pass(10.0);
        let (held, mut expected) = (stand.held(), stand.rig.ledger().found());
        assert_ne!(held[RAISED], expected[RAISED]);
        expected[RAISED] = held[RAISED];
        assert_eq!(held, expected, "silent: {falls_silent}: {}", stand.said());
        stand.rig.hardware().heal(RAISED);
        stand.pass(20.0);
        stand.stop();
    }
}

#[test]
fn no_gpu_rises_into_what_another_one_may_have_risen_by() {
    const BUDGET: Watts = Watts(4900.0);
    let observe = quick("gpu-realloc").replace("\"on\"", "\"observe\"");
    let mut stand = Stand::clocked(&(observe + "caps.budget = 4800\n"));
    stand.pass(3.0);
    assert_eq!(stand.sum(), Watts(4800.0));
    // Somebody raises one, and its driver tells another cap each time.
    let raised = stand.held()[RAISED] + Watts(100.0);
    stand.rig.hardware().foreign_set(RAISED, raised).unwrap();
    let fickle = Fault::Fickle(Watts(2.0));
    stand.rig.hardware().inject(RAISED, fickle);
    stand.pass(1.0);
    stand.command(&Command::SetBudget {
        watts: Some(BUDGET),
    });
    stand.pass(5.0);
    assert!(stand.sum() <= BUDGET, "{:?}", stand.held());
}

#[test]
fn after_a_foreign_cap_no_idle_gpu_rises_until_it_is_resumed() {
    let observe = quick("gpu-realloc").replace("\"on\"", "\"observe\"");
    let mut stand = Stand::clocked(&(observe + "caps.budget = 4800\n"));
    stand.pass(3.0);
    let theirs = stand.held()[RAISED] + Watts(50.0);
    stand.rig.hardware().foreign_set(RAISED, theirs).unwrap();
    stand.pass(3.0);
    let held = stand.held();
    stand.command(&Command::SetBudget {
        watts: Some(Watts(5400.0)),
    });
    stand.pass(5.0);
    assert_eq!(stand.held(), held);
    stand.resume();
    stand.pass(5.0);
    let lower = |device: &usize| stand.held()[*device] <= held[*device];
    let not_risen: Vec<usize> = (0..GPUS).filter(lower).collect();
    assert!(not_risen.len() <= 1, "{:?}", stand.held());
}

#[test]
fn a_cap_that_somebody_else_has_set_is_left_alone_by_the_next_litd_too() {
    let mut stand = Stand::real(&quick("observe"));
    let lower = |stand: &Stand, watts: f64| {
        stand.command(&Command::SetBudget {
            watts: Some(Watts(watts)),
        });
    };
    lower(&stand, 5000.0);
    wait_for("a budget", || stand.sum() <= Watts(5000.0));
    let theirs = Watts(450.0);
    stand.rig.hardware().foreign_set(LOWERED, theirs).unwrap();
    wait_for("what is theirs", || {
        stand.not_ours() == [(LOWERED, DeviceState::Foreign)]
    });
    stand.kill();
    stand.restore_after_kill();
    stand.start();
    stand.wait_for_found();
    lower(&stand, 4400.0);
    wait_for("a lower budget", || stand.sum() <= Watts(4400.0));
    assert_eq!(stand.held()[LOWERED], theirs, "{}", stand.said());
    assert_eq!(stand.not_ours(), [(LOWERED, DeviceState::Foreign)]);
    stand.resume();
    wait_for("it is litd's", || stand.not_ours().is_empty());
    lower(&stand, 3200.0);
    wait_for("the lowest budget", || stand.held()[LOWERED] < theirs);
    assert_eq!(stand.terminate(), Some(0), "{}", stand.said());
    assert_eq!(stand.held()[LOWERED], theirs);
}
