//! Drivers that do not answer for a while, or answer from memory.

use litd_api::DeviceState;
use litd_core::config::OnExit;
use litd_power::ReadBack;
use litd_units::Watts;

use crate::gpu::{Writes, found_at};
use crate::node::{Node, budget, lease, observing, release};

const SAFE: f64 = 2400.0;

/// A fleet has lent all there is, and the driver as a whole stands still for eight seconds (it
/// resets one GPU, say) and goes on.
fn stalled(on_exit: OnExit, lease_seconds: f64) -> Node {
    let mut config = observing();
    config.caps.safe_budget = Some(Watts(SAFE));
    config.caps.on_exit = on_exit;
    let mut node = Node::with(found_at(8, 700.0), config);
    node.pass(3.0);
    node.command(lease(5600.0, lease_seconds)).unwrap();
    node.pass(10.0);
    for gpu in &mut node.gpus {
        gpu.hangs = true;
    }
    node.pass(8.0);
    for gpu in 0..8 {
        node.answers_again(gpu);
    }
    node
}

/// The lease ends after the stall.
#[test]
fn stall_before_a_lease_ends() {
    let mut node = stalled(OnExit::Restore, 60.0);
    node.pass(300.0);
    node.holds_at_most(SAFE);
}

/// litd is stopped in order, and is to leave the safe budget behind.
#[test]
fn stall_before_a_stop_that_holds() {
    let mut node = stalled(OnExit::Hold, 600.0);
    node.pass(20.0);
    node.stop();
    node.holds_at_most(SAFE);
}

/// The GPU is reset by others while it hangs.
#[test]
fn hangs_and_is_reset() {
    let mut node = Node::under(2000.0, found_at(8, 700.0));
    node.gpus[3].hangs = true;
    node.pass(30.0);
    node.is_reset(3);
    node.answers_again(3);
    node.pass(60.0);
    node.holds_at_most(2000.0);
}

/// Firmware has not taken a cap that the driver says it has; the power that the GPU draws says so.
fn cap_not_in_force(read_back: ReadBack) {
    let mut gpus = found_at(8, 700.0);
    for gpu in &mut gpus {
        gpu.identity.read_back = read_back;
        gpu.power = Watts(100.0);
    }
    let mut node = Node::with(gpus, observing());
    node.pass(5.0);
    node.gpus[3].writes = Writes::NotInForce;
    node.gpus[3].power = Watts(690.0);
    node.command(budget(4000.0)).unwrap();
    node.pass(120.0);
    node.holds_at_most(4000.0);
}

#[test]
fn cap_not_in_force_where_drivers_remember() {
    cap_not_in_force(ReadBack::MayBeCached);
}

#[test]
fn cap_not_in_force_where_devices_are_read() {
    cap_not_in_force(ReadBack::Device);
}

/// Nobody can tell whether the lower caps are in force, so their watts are given to nobody; and that is said.
#[test]
fn caps_that_wait_for_sensors_that_tell_nothing_say_so() {
    let mut gpus = found_at(4, 700.0);
    for gpu in &mut gpus {
        gpu.identity.read_back = ReadBack::MayBeCached;
        gpu.power = Watts(f64::NAN);
    }
    let mut node = Node::with(gpus, observing());
    node.pass(5.0);
    node.command(budget(1600.0)).unwrap();
    node.pass(5.0);
    node.holds_at_most(1600.0);
    node.command(budget(2400.0)).unwrap();
    node.pass(120.0);
    let status = node.status();
    assert_eq!(node.caps(), [400.0; 4], "{status:?}");
    for device in &status.devices {
        assert!(
            device.why.contains("does not report its power"),
            "{}",
            device.why
        );
    }
}

/// A lease is granted after the stall, and kept.
#[test]
fn lease_after_a_stall() {
    let mut node = stalled(OnExit::Restore, 60.0);
    node.pass(20.0);
    node.command(lease(4000.0, 60.0)).unwrap();
    node.pass(30.0);
    node.holds_at_most(4000.0);
}

/// gpu1 is left alone, litd is killed, and the next one finds a driver that does not tell which part gpu1 is for a
/// second, nor, if it is `silent`, what it holds.
fn left_alone_over_a_flaky_start(silent: bool, leave: fn(&mut Node), state: DeviceState) {
    let mut node = Node::under(2000.0, found_at(4, 700.0));
    leave(&mut node);
    node.pass(5.0);
    let (cap, writes) = (node.caps()[1], node.writes_to(1));
    assert_eq!(node.status().devices[1].state, state);
    node.kill();
    node.gpus[1].hides_serial = true;
    node.gpus[1].hides_range = silent;
    node.gpus[1].fails_reads = silent;
    node.start();
    node.pass(1.0);
    node.gpus[1].hides_serial = false;
    node.gpus[1].hides_range = false;
    node.gpus[1].fails_reads = false;
    node.pass(90.0);
    assert_eq!(node.status().devices[1].state, state, "{:?}", node.log);
    node.kill();
    node.start();
    node.pass(10.0);
    assert_eq!(node.status().devices[1].state, state, "{:?}", node.log);
    assert_eq!((node.caps()[1], node.writes_to(1)), (cap, writes));
}

#[test]
fn released_over_a_flaky_start() {
    let leave = |node: &mut Node| drop(node.command(release(1)));
    left_alone_over_a_flaky_start(false, leave, DeviceState::Released);
    left_alone_over_a_flaky_start(true, leave, DeviceState::Released);
}

#[test]
fn foreign_over_a_flaky_start() {
    let leave = |node: &mut Node| node.by_others(1, 611.0);
    left_alone_over_a_flaky_start(false, leave, DeviceState::Foreign);
    left_alone_over_a_flaky_start(true, leave, DeviceState::Foreign);
}
