//! Drivers of GPUs in trouble that tell for a while caps that no such GPU can hold.

use litd_units::Watts;

use crate::gpu::found_at;
use crate::node::{Node, budget, observing};

/// Caps beyond the range of 200 to 700 W.
const NONSENSE: [f64; 2] = [760.0, 5000.0];

/// Two GPUs of 700 W hold 500 W each for a budget.
fn lowered() -> Node {
    let mut node = Node::with(found_at(2, 700.0), observing());
    node.pass(5.0);
    node.command(budget(1000.0)).unwrap();
    node.pass(10.0);
    node.all_hold(500.0);
    node
}

/// What nobody can have set is nobody's: litd's cap is undone once the driver tells the truth again.
#[test]
fn a_cap_that_the_gpu_can_not_hold_is_taken_for_nobodys() {
    for said in NONSENSE {
        for seconds in [1.0, 2.0, 4.0, 20.0] {
            let mut node = lowered();
            node.gpus[1].says = Some(Watts(said));
            node.pass(seconds);
            node.gpus[1].says = None;
            node.pass(60.0);
            node.holds_at_most(1000.0);
            assert_eq!(node.caps()[1], 500.0);
            assert!(node.stop());
            node.all_hold(700.0);
        }
    }
}

/// The same after a crash: `litd restore` and the next start keep the entry.
#[test]
fn a_cap_found_outlives_nonsense_after_a_crash() {
    for said in NONSENSE {
        for starts in [false, true] {
            for other_serial in [false, true] {
                let mut node = lowered();
                node.kill();
                node.gpus[1].says = Some(Watts(said));
                let serial = node.gpus[1].identity.serial.clone();
                if other_serial {
                    node.gpus[1].identity.serial = Some("X9".to_owned());
                }
                if starts {
                    node.start();
                    node.pass(8.0);
                    node.kill();
                } else {
                    node.restore();
                }
                node.gpus[1].says = None;
                node.gpus[1].identity.serial = serial;
                assert!(node.restore(), "{said} {starts} {other_serial}");
                node.all_hold(700.0);
            }
        }
    }
}
