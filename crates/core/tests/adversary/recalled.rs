//! What litd knows of a node counts also after a start that nobody has restored caps before: a crash in a container, or
//! litd's own new start when a driver comes up.

use litd_api::{Command, DeviceState};
use litd_core::config::OnExit;
use litd_units::Watts;

use crate::gpu::found_at;
use crate::node::{EPSILON, Node, budget, observing};

/// Three GPUs, which litd has not seen yet, under a budget of 1500 W. gpu0 draws 690 W whatever its cap reads.
fn one_does_not_follow() -> Node {
    let mut gpus = found_at(3, 700.0);
    for gpu in &mut gpus {
        gpu.power = Watts(150.0);
    }
    gpus[0].power = Watts(690.0);
    let mut config = observing();
    config.caps.budget = Some(Watts(1500.0));
    config.caps.safe_budget = Some(Watts(1500.0));
    Node::with(gpus, config)
}

/// The same once litd has seen that gpu0's cap is not in force.
fn one_is_not_in_force() -> Node {
    let mut node = one_does_not_follow();
    node.pass(60.0);
    let state = node.status().devices[0].state;
    assert_eq!(state, DeviceState::Faulty);
    assert!(node.sum_drawn() <= 1500.0 + EPSILON, "{:?}", node.caps());
    node
}

trait Drawn {
    /// What GPUs may draw: gpu0 draws what it has always drawn.
    fn sum_drawn(&self) -> f64;
}

impl Drawn for Node {
    fn sum_drawn(&self) -> f64 {
        700.0 + self.caps()[1..].iter().sum::<f64>()
    }
}

/// gpu0 stays faulty for so long, and the others' caps leave room for what it draws all the time.
#[track_caller]
fn stays_counted(node: &mut Node, seconds: usize) {
    for _ in 0..seconds {
        node.pass(1.0);
        assert!(node.sum_drawn() <= 1500.0 + EPSILON, "{:?}", node.caps());
    }
    let device = &node.status().devices[0];
    assert_eq!(device.state, DeviceState::Faulty);
}

#[test]
fn a_cap_that_is_not_in_force_is_known_after_a_crash() {
    let mut node = one_is_not_in_force();
    node.kill();
    node.start();
    stays_counted(&mut node, 60);
    // Also while it draws little, and across any number of crashes.
    node.gpus[0].power = Watts(100.0);
    node.kill();
    node.start();
    stays_counted(&mut node, 60);
    let device = Some("gpu0".to_owned());
    node.command(Command::Resume { device }).unwrap();
    node.pass(60.0);
    node.all_hold(500.0);
    node.kill();
    node.start();
    node.pass(60.0);
    node.all_hold(500.0);
}

#[test]
fn a_cap_that_is_not_in_force_is_known_after_a_stop_that_holds_caps() {
    let mut node = one_is_not_in_force();
    node.config.caps.on_exit = OnExit::Hold;
    node.reload(node.config.clone());
    node.stop();
    // Nothing shows it any more.
    node.gpus[0].power = Watts(100.0);
    node.start();
    stays_counted(&mut node, 60);
}

/// litd dies before it can see that gpu0 does not follow: the next one looks before it raises the others.
#[test]
fn power_has_to_follow_a_cap_that_a_dead_litd_has_lowered() {
    let mut node = one_does_not_follow();
    node.pass(3.0);
    node.kill();
    node.start();
    node.pass(3.0);
    node.command(budget(1400.0)).unwrap();
    node.pass(60.0);
    let device = &node.status().devices[0];
    assert_eq!(device.state, DeviceState::Faulty);
    assert!(node.sum_drawn() <= 1400.0 + EPSILON, "{:?}", node.caps());
}

/// The cap was restored, as `litd restore` does after a crash: the next litd judges the GPU anew.
#[test]
fn a_gpu_whose_cap_was_restored_is_judged_anew() {
    let mut node = one_is_not_in_force();
    node.gpus[0].power = Watts(100.0);
    node.kill();
    assert!(node.restore());
    node.start();
    node.pass(60.0);
    node.all_hold(500.0);
}

/// Eight GPUs, which a limit of the BMC's leaves `left` W together: 500 W of 4500 are the other parts'.
fn limited() -> Node {
    let mut gpus = found_at(8, 700.0);
    for gpu in &mut gpus {
        gpu.power = Watts(300.0);
    }
    let mut node = Node::with(gpus, observing());
    node.pass(5.0);
    for _ in 0..30 {
        node.told_by_bmc(2900.0, Some(4500.0));
        node.pass(5.0);
    }
    assert!(node.sum() <= 4000.0 + EPSILON, "{:?}", node.caps());
    node
}

#[test]
fn a_limit_of_the_bmc_and_the_power_beside_the_gpus_are_known_after_a_crash() {
    let mut node = limited();
    let before = node.sum();
    for told in [false, true] {
        node.kill();
        node.start();
        for _ in 0..60 {
            node.pass(1.0);
            assert!(node.sum() <= before + EPSILON, "{:?}", node.caps());
        }
        if told {
            // One reading without it may be wrong; two lift it.
            node.told_by_bmc(2900.0, None);
            node.pass(5.0);
            assert!(node.sum() <= before + EPSILON, "{:?}", node.caps());
            node.told_by_bmc(2900.0, None);
            node.pass(30.0);
            node.all_hold(700.0);
        }
    }
    // What was lifted is not remembered.
    node.kill();
    node.start();
    node.pass(30.0);
    node.all_hold(700.0);
}

/// An administrator stops litd: all caps are restored, and what the BMC has told no longer counts.
#[test]
fn a_limit_of_the_bmc_ends_with_a_stop() {
    let mut node = limited();
    assert!(node.stop());
    node.all_hold(700.0);
    node.start();
    node.pass(60.0);
    node.all_hold(700.0);
}

/// litd does not start itself anew while the node is short of power: the next one would not know it.
#[test]
fn litd_does_not_start_itself_anew_while_the_node_is_short_of_power() {
    let mut node = Node::under(4000.0, found_at(8, 700.0));
    assert!(node.may_start_anew());
    node.is_short_of_power();
    assert!(!node.may_start_anew());
    node.pass(70.0);
    assert!(node.may_start_anew());
}
