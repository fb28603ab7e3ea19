//! GPUs that are reset to another default, and whose driver tells its range late.

use litd_api::{Command, DeviceState};
use litd_units::Watts;

use crate::gpu::{Writes, found_at};
use crate::node::{Node, budget, observing, release};

/// GPUs found at 450 W; gpu3 is reset and comes back with a default of 600 W; for three seconds its driver tells
/// its cap, and not yet its range.
#[test]
fn reset_to_another_default_whose_range_comes_late() {
    let mut node = Node::under(2000.0, found_at(8, 450.0));
    node.gpus[3].range.highest = Watts(600.0);
    node.gpus[3].range.default = Watts(600.0);
    node.is_reset(3);
    node.gpus[3].hides_range = true;
    node.pass(4.0);
    node.gpus[3].hides_range = false;
    node.pass(60.0);
    let status = node.status();
    node.stop();
    assert_eq!(status.devices[3].state, DeviceState::Ours);
}

/// The same without a changed default.
#[test]
fn reset_whose_range_comes_late() {
    let mut node = Node::under(2000.0, found_at(8, 450.0));
    node.is_reset(3);
    node.gpus[3].hides_range = true;
    node.pass(4.0);
    node.gpus[3].hides_range = false;
    node.pass(60.0);
    let status = node.status();
    assert_eq!(status.devices[3].state, DeviceState::Ours);
    node.stop();
    node.all_hold(450.0);
}

/// Caps are lowered when litd dies; a kill switch is there when it starts again, and gpu0's driver takes no more
/// than 600 W by now.
#[test]
fn shrunk_at_a_start_that_is_off() {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    node.kill();
    node.gpus[0].range.highest = Watts(600.0);
    node.pass(1.0);
    node.start();
    node.pass(0.2);
    node.kill_switch(true);
    node.pass(3600.0);
    assert_eq!(node.caps(), [600.0, 700.0, 700.0, 700.0]);
}

/// As reset_to_another_default_whose_range_comes_late, where the driver fails the first write.
#[test]
fn reset_to_another_default_whose_range_comes_late_and_a_write_fails() {
    let mut node = Node::under(1600.0, found_at(8, 450.0));
    node.gpus[3].range.highest = Watts(600.0);
    node.gpus[3].range.default = Watts(600.0);
    node.is_reset(3);
    node.gpus[3].hides_range = true;
    node.gpus[3].writes = Writes::Fail;
    node.pass(1.5);
    node.gpus[3].writes = Writes::Taken;
    node.pass(2.5);
    node.gpus[3].hides_range = false;
    node.pass(60.0);
    let status = node.status();
    assert_eq!(status.devices[3].state, DeviceState::Ours);
}

/// gpu0's driver takes no more than 600 W by now; litd was stopped, is started, lowers the others for its budget, and
/// is off at once.
#[test]
fn shrunk_stopped_started_and_off() {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    node.gpus[0].range.highest = Watts(600.0);
    node.gpus[0].range.default = Watts(600.0);
    node.is_reset(0);
    node.pass(20.0);
    node.stop();
    node.start();
    node.pass(0.1);
    node.kill_switch(true);
    node.pass(3600.0);
    assert_eq!(node.caps(), [600.0, 700.0, 700.0, 700.0]);
}

/// gpu3 is reset: for four seconds it answers nothing and fails a write of a lower budget, then it comes back with
/// another default, and tells its range a second after its cap.
fn reset_under_a_falling_budget(range_late: f64, watts: f64) {
    let mut node = Node::under(2000.0, found_at(8, 450.0));
    node.gpus[3].fails_reads = true;
    node.gpus[3].hides_range = true;
    node.gpus[3].writes = Writes::Fail;
    node.pass(1.3);
    node.command(budget(watts)).unwrap();
    node.pass(0.7);
    node.gpus[3].range.highest = Watts(600.0);
    node.gpus[3].range.default = Watts(600.0);
    node.is_reset(3);
    node.pass(2.0);
    node.gpus[3].writes = Writes::Taken;
    node.gpus[3].fails_reads = false;
    node.pass(range_late);
    node.gpus[3].hides_range = false;
    node.pass(60.0);
    let status = node.status();
    assert_eq!(status.devices[3].state, DeviceState::Ours);
}

#[test]
fn reset_under_a_falling_budget_at_once() {
    reset_under_a_falling_budget(0.0, 1800.0);
}

#[test]
fn reset_under_a_falling_budget_later() {
    reset_under_a_falling_budget(1.5, 1800.0);
}

/// A GPU found at 450 W is reset to another default (600 W) in the first second after a crash.
fn reset_after_a_crash(off: bool, at: f64) {
    let mut node = Node::under(1600.0, found_at(5, 450.0));
    node.kill();
    node.config.caps.budget = None;
    node.start();
    node.pass(0.2);
    if off {
        node.kill_switch(true);
    }
    node.pass(at);
    node.gpus[3].range.highest = Watts(600.0);
    node.gpus[3].range.default = Watts(600.0);
    node.is_reset(3);
    node.pass(30.0);
    let foreign = node.log.iter().any(|it| it.contains("somebody else"));
    assert!(!foreign);
}

#[test]
fn reset_after_a_crash_off() {
    reset_after_a_crash(true, 0.7);
}

#[test]
fn reset_after_a_crash_on() {
    reset_after_a_crash(false, 0.7);
}

#[test]
fn reset_after_a_crash_later() {
    reset_after_a_crash(false, 1.5);
}

#[test]
fn reset_under_a_tight_budget_later() {
    reset_under_a_falling_budget(1.5, 1600.0);
}

/// gpu3 (found at 450 W) is reset to another default, and its driver does not tell its range; it is released, its
/// driver is upgraded and somebody sets 450 W; then it is resumed, and a budget comes and goes.
fn stale_reset(under: Option<f64>) {
    let mut config = observing();
    config.caps.budget = under.map(Watts);
    let mut node = Node::with(found_at(4, 450.0), config);
    node.pass(10.0);
    node.gpus[3].range.highest = Watts(600.0);
    node.gpus[3].range.default = Watts(600.0);
    node.is_reset(3);
    node.gpus[3].hides_range = true;
    node.pass(4.0);
    node.command(release(3)).unwrap();
    node.pass(600.0);
    node.gpus[3].hides_range = false;
    node.by_others(3, 450.0);
    node.pass(10.0);
    let device = Some("gpu3".to_owned());
    node.command(Command::Resume { device }).unwrap();
    node.pass(20.0);
    let state = node.status().devices[3].state;
    node.command(budget(1000.0)).unwrap();
    node.pass(20.0);
    node.stop();
    assert_eq!(state, DeviceState::Ours);
    node.all_hold(450.0);
}

#[test]
fn stale_reset_free() {
    stale_reset(None);
}

#[test]
fn stale_reset_under() {
    stale_reset(Some(1200.0));
}

/// gpu3's writes fail (an Xid), it is faulty, and is reset: all is well from then on.
fn fails_then_reset(found: f64, after: f64) {
    let mut node = Node::under(2000.0, found_at(8, found));
    node.gpus[3].writes = Writes::Fail;
    node.command(budget(1800.0)).unwrap();
    node.pass(after);
    node.gpus[3].fails_reads = true;
    node.pass(4.0);
    node.is_reset(3);
    node.gpus[3].fails_reads = false;
    node.gpus[3].writes = Writes::Taken;
    node.pass(120.0);
    let state = node.status().devices[3].state;
    node.command(budget(3000.0)).unwrap();
    node.pass(60.0);
    assert_eq!(state, DeviceState::Ours, "{:?}", node.caps());
}

#[test]
fn fails_then_reset_700() {
    fails_then_reset(700.0, 10.0);
}
