//! A CPU socket's limit goes back although GPUs can't keep their budget, which is no affair of the socket's.

use litd_api::Command;
use litd_power::{CapRange, DeviceKind};
use litd_units::Watts;

use crate::gpu::{Writes, found_at};
use crate::node::{Node, SECOND, observing};

fn node(budget: f64) -> Node {
    let mut gpus = found_at(4, 700.0);
    gpus[3].identity.kind = DeviceKind::Cpu;
    gpus[3].identity.address = "cpu0".to_owned();
    gpus[3].identity.serial = None;
    gpus[3].cap = Watts(300.0);
    gpus[3].power = Watts(60.0);
    gpus[3].range = CapRange {
        lowest: Watts(0.0),
        highest: Watts(4095.0),
        default: Watts(300.0),
        resolution: Watts(1.0),
    };
    let mut config = observing();
    config.caps.budget = Some(Watts(budget));
    let mut node = Node::with(gpus, config);
    node.pass(10.0);
    node
}

fn set(node: &mut Node, watts: f64) {
    node.command(Command::SetCap {
        device: "cpu0".to_owned(),
        watts: Watts(watts),
    })
    .unwrap();
}

/// An override of a socket fails and is done late, while a foreign cap on a GPU exceeds the GPUs' budget.
#[test]
fn a_failed_override_of_a_socket_goes_back_beside_gpus_above_their_budget() {
    for foreign in [false, true] {
        let mut node = node(800.0);
        node.gpus[3].writes = Writes::FailAndLand(5 * SECOND);
        set(&mut node, 150.0);
        node.pass(1.0);
        node.gpus[3].writes = Writes::Taken;
        if foreign {
            node.by_others(0, 690.0);
        }
        node.forget_late();
        node.pass(3.0);
        node.gpus[3].cap = Watts(150.0);
        node.pass(120.0);
        assert_eq!(
            node.caps()[3],
            300.0,
            "the socket keeps 150 W of an override that was told to have failed"
        );
    }
}

/// An administrator raises a socket again while somebody else's cap has the GPUs above their budget. What stands in
/// the way is said at once, and not that the socket's driver did not do it.
#[test]
fn a_socket_is_raised_by_hand_or_told_why_not() {
    for foreign in [false, true] {
        let mut node = node(800.0);
        set(&mut node, 200.0);
        node.pass(3.0);
        if foreign {
            node.by_others(0, 690.0);
            node.pass(5.0);
        }
        let raised = node.command(Command::SetCap {
            device: "cpu0".to_owned(),
            watts: Watts(300.0),
        });
        node.pass(10.0);
        match raised {
            Ok(_) => assert!(!foreign && node.caps()[3] == 300.0),
            Err(problem) => {
                assert!(foreign && problem.error.contains("raise the budget"));
                assert!(!problem.error.contains("  "), "{}", problem.error);
            }
        }
    }
}

/// Until the socket has come down it counts with what it holds, and so does its part of the budget: no GPU makes room.
#[test]
fn a_socket_that_is_lowered_by_hand_lowers_no_gpu() {
    for node_budget in [None, Some(1300.0)] {
        let mut node = node(800.0);
        let mut config = node.config.clone();
        config.node.budget = node_budget.map(Watts);
        config.node.reserve = Some(Watts(200.0));
        node.reload(config);
        node.pass(10.0);
        let before = node.writes_to(0);
        node.gpus[3].write_takes = SECOND;
        set(&mut node, 150.0);
        for _ in 0..30 {
            node.pass(0.1);
            let gpus: f64 = node.caps()[..3].iter().sum();
            assert!(gpus <= 800.0 + 0.001, "{node_budget:?}: {gpus} W");
        }
        assert_eq!(node.caps()[3], 150.0);
        assert_eq!(node.writes_to(0), before, "{node_budget:?}");
    }
}
