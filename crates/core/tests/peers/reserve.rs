//! Power of a node's other parts than GPUs and CPUs, by its BMC.

use litd_core::{Event, NodeReading};
use litd_units::Watts;

use crate::node::{Node, SECOND, beside, config};

const GPUS: usize = 8;

/// The power of the rest of the node.
const REST: f64 = 1400.0;

/// Time passes, and the BMC tells every five seconds what the node draws when GPUs draw so much each.
fn tell(node: &mut Node, readings: usize, each: f64) {
    for _ in 0..readings {
        for _ in 0..5 {
            node.pass(SECOND);
        }
        node.sound(Event::NodePower(NodeReading {
            source: "redfish".to_owned(),
            power: Some(Watts(GPUS as f64 * each + REST)),
            ..NodeReading::default()
        }));
    }
}

fn reserve(node: &Node) -> Watts {
    node.status().node.power.unwrap().reserve.unwrap()
}

#[test]
fn a_job_that_ends_leaves_its_watts_to_the_gpus() {
    let _beside = beside();
    let mut config = config();
    config.node.budget = Some(Watts(10_000.0));
    let mut node = Node::new(GPUS, config);
    node.draws = Some(Watts(690.0));
    tell(&mut node, 200, 690.0);
    assert_eq!(reserve(&node), Watts(REST));
    // The GPUs idle at once, and the BMC's figure follows ten seconds later.
    node.draws = Some(Watts(80.0));
    tell(&mut node, 2, 690.0);
    tell(&mut node, 100, 80.0);
    assert_eq!(reserve(&node), Watts(REST));
    assert!((0..GPUS).all(|gpu| node.cap(gpu) == Watts(700.0)));
    // Later increases of the rest count as ever.
    tell(&mut node, 3, 80.0 + 300.0 / GPUS as f64);
    assert_eq!(reserve(&node), Watts(REST + 300.0));
}
