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
