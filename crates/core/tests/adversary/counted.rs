//! The watts with which GPUs count that have failed, hang or have a foreign cap.

use litd_api::{Command, DeviceState};
use litd_power::ReadBack;
use litd_units::Watts;

use crate::gpu::found_at;
use crate::node::{Node, budget, observing};

/// Whether status says that the budget is exceeded.
fn not_kept(node: &Node) -> bool {
    let told = node.status().gpus;
    told.caps > told.budget
}

/// gpu3's cap was once not in force; it was resumed (or reset), and all is well. Later the driver stands
/// still for eight seconds, and a budget comes down.
fn not_in_force_once(again: fn(&mut Node)) {
    let mut gpus = found_at(8, 700.0);
    for gpu in &mut gpus {
        gpu.identity.read_back = ReadBack::Device;
        gpu.power = Watts(100.0);
    }
    let mut node = Node::with(gpus, observing());
    node.pass(5.0);
    node.gpus[3].power = Watts(690.0);
    node.command(budget(4000.0)).unwrap();
    node.pass(30.0);
    // Power follows.
    node.gpus[3].power = Watts(100.0);
    again(&mut node);
    node.pass(60.0);
    let state = node.status().devices[3].state;
    assert_eq!(state, DeviceState::Ours);
    node.command(budget(5600.0)).unwrap();
    node.pass(3600.0);
    for gpu in &mut node.gpus {
        gpu.hangs = true;
    }
    node.pass(8.0);
    for gpu in 0..8 {
        node.answers_again(gpu);
    }
    node.pass(10.0);
    node.command(budget(2000.0)).unwrap();
    node.pass(300.0);
    node.holds_at_most(2000.0);
}

#[test]
fn not_in_force_once_resumed() {
    not_in_force_once(|node| {
        let device = Some("gpu3".to_owned());
        node.command(Command::Resume { device }).unwrap();
    });
}

#[test]
fn not_in_force_once_reset() {
    not_in_force_once(|node| node.is_reset(3));
}

/// Reads of gpu3 fail for a minute, within which it is reset.
#[test]
fn reset_while_reads_fail_for_long() {
    let mut node = Node::under(2000.0, found_at(8, 700.0));
    node.gpus[3].fails_reads = true;
    node.gpus[3].hides_range = true;
    node.pass(5.0);
    node.is_reset(3);
    node.pass(600.0);

    assert!(node.sum() <= 2000.0 || not_kept(&node));
}

/// A GPU that somebody else has set is reset.
#[test]
fn foreign_and_reset() {
    let mut node = Node::under(2000.0, found_at(8, 700.0));
    node.by_others(3, 333.0);
    node.pass(30.0);
    node.is_reset(3);
    node.pass(30.0);
    // The caps belong to one rival, who changed one of them once.
    assert!(!node.status().node.yielded);
}

/// A foreign program sets gpu3 to 650 W, and a BMC's limit of 250 W is in force there: the others make room for
/// that.
#[test]
fn foreign_with_a_limit_in_force_is_told() {
    let mut node = Node::under(3000.0, found_at(8, 700.0));
    node.gpus[3].enforced = Some(Watts(250.0));
    node.by_others(3, 650.0);
    node.pass(60.0);

    assert!(!node.log.iter().any(|it| it.contains("is not kept")));
}

/// A rise of gpu3 is done by its GPU, and its driver does not answer; then the budget falls.
#[test]
fn rise_hangs_then_the_budget_falls() {
    let mut node = Node::under(2000.0, found_at(8, 700.0));
    node.gpus[3].hangs = true;
    let mut config = node.config.clone();
    config.caps.budget = Some(Watts(4000.0));
    node.reload(config.clone());
    node.pass(0.2);
    node.gpus[3].cap = Watts(500.0);
    node.pass(20.0);
    config.caps.budget = Some(Watts(1700.0));
    node.reload(config);
    node.pass(60.0);

    assert!(node.sum() <= 1700.0 || not_kept(&node));
}
