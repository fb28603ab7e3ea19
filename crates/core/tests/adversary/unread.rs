//! A CPU socket that was taken back and has not been read yet: the node's budget is kept meanwhile, as if that socket held
//! what it held before.

use litd_api::Command;
use litd_power::{CapRange, DeviceKind};
use litd_units::Watts;

use crate::gpu::{Gpu, found_at};
use crate::node::{Node, SECOND, observing};

fn cpu(gpu: &mut Gpu, name: &str, cap: f64) {
    gpu.identity.kind = DeviceKind::Cpu;
    gpu.identity.address = name.to_owned();
    gpu.identity.serial = None;
    gpu.cap = Watts(cap);
    gpu.power = Watts(60.0);
    gpu.range = CapRange {
        lowest: Watts(0.0),
        highest: Watts(4095.0),
        default: Watts(cap),
        resolution: Watts(1.0),
    };
}

/// Four GPUs of 700 W and two sockets of 200 W, under a node's budget.
fn node(budget: f64, reserve: f64) -> Node {
    let mut gpus = found_at(6, 700.0);
    cpu(&mut gpus[4], "cpu0", 200.0);
    cpu(&mut gpus[5], "cpu1", 200.0);
    let mut config = observing();
    config.node.budget = Some(Watts(budget));
    config.node.reserve = Some(Watts(reserve));
    Node::with(gpus, config)
}

fn set(node: &mut Node, name: &str, watts: f64) {
    let device = name.to_owned();
    let watts = Watts(watts);
    node.command(Command::SetCap { device, watts }).unwrap();
}

fn resume(node: &mut Node, name: &str) {
    let device = Some(name.to_owned());
    node.command(Command::Resume { device }).unwrap();
}

fn let_go(node: &mut Node, name: &str) {
    let device = Some(name.to_owned());
    node.command(Command::Release { device }).unwrap();
}

/// One socket is raised by hand while another one has not been read yet.
#[test]
fn a_socket_is_raised_by_hand_once_the_gpus_have_made_room_for_it() {
    let mut node = node(2600.0, 200.0);
    node.pass(10.0);
    let_go(&mut node, "cpu1");
    node.pass(10.0);
    node.gpus[5].read_takes = 4 * SECOND;
    resume(&mut node, "cpu1");
    set(&mut node, "cpu0", 600.0);
    for _ in 0..400 {
        node.step();
        // 2600 W less the reserve.
        assert!(node.sum() <= 2400.5, "{:?}", node.caps());
    }
    assert_eq!(node.caps()[4], 600.0);
}

/// The BMC's limit comes down while a socket can't be read, or tells another limit each time.
#[test]
fn a_bmcs_limit_is_kept_while_a_socket_is_not_known() {
    for fails in [true, false] {
        let mut node = node(3600.0, 200.0);
        node.pass(10.0);
        let_go(&mut node, "cpu1");
        node.pass(5.0);
        node.gpus[5].fails_reads = fails;
        resume(&mut node, "cpu1");
        for second in 0..60 {
            for at in 0..10 {
                if !fails {
                    node.gpus[5].cap = Watts(150.0 + f64::from((second * 10 + at) % 7) * 10.0);
                }
                node.pass(0.1);
            }
            if second % 5 == 0 {
                node.told_by_bmc(2000.0, Some(2600.0));
            }
        }
        let gpus: f64 = node.caps()[..4].iter().sum();
        assert!(gpus <= 2000.5, "{fails}: {:?}", node.caps());
    }
}

/// It does not answer at all, and has a minute for that: nobody waits for it.
#[test]
fn a_bmcs_limit_waits_for_no_socket_that_hangs() {
    let mut gpus = found_at(6, 700.0);
    cpu(&mut gpus[4], "cpu0", 200.0);
    cpu(&mut gpus[5], "cpu1", 200.0);
    let mut config = observing();
    config.node.budget = Some(Watts(3000.0));
    config.node.reserve = Some(Watts(200.0));
    config.caps.answer_seconds = 60.0;
    let mut node = Node::with(gpus, config);
    node.pass(10.0);
    let_go(&mut node, "cpu1");
    node.pass(5.0);
    node.gpus[5].hangs = true;
    resume(&mut node, "cpu1");
    node.told_by_bmc(2000.0, Some(2600.0));
    node.told_by_bmc(2000.0, Some(2600.0));
    node.pass(3.0);
    assert!(node.sum() <= 2400.5, "{:?}", node.caps());
}

/// While litd was off somebody has raised one socket, and another one is slow to answer afterwards.
#[test]
fn a_socket_that_was_raised_while_litd_was_off_waits_for_no_slow_one() {
    for slow in [0, 4 * SECOND] {
        let mut node = node(2600.0, 200.0);
        node.pass(10.0);
        node.kill_switch(true);
        node.pass(10.0);
        node.by_others(4, 500.0);
        node.gpus[5].read_takes = slow;
        node.kill_switch(false);
        // Two readings of the raised one, and the writes.
        node.pass(4.0);
        assert!(node.sum() <= 2400.5, "{slow}: {:?}", node.caps());
    }
}
