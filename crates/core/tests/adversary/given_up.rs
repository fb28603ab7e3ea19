//! Overrides that end while their writes are under way: what was found goes back, whoever comes after.

use litd_api::Command;
use litd_units::Watts;

use crate::gpu::found_at;
use crate::node::{Node, SECOND, observing};

/// A node of which gpu1 is to be set to 300 W by hand, which its driver takes so long for.
fn overridden(takes: i64) -> Node {
    let mut node = Node::with(found_at(4, 700.0), observing());
    node.pass(5.0);
    node.gpus[1].write_takes = takes;
    node.command(Command::SetCap {
        device: "gpu1".to_owned(),
        watts: Watts(300.0),
    })
    .unwrap();
    node.pass(0.5);
    node
}

/// The device is released while its override is under way.
#[test]
fn an_override_that_a_release_has_ended_does_not_stay_after_a_crash() {
    let mut all = Vec::new();
    for restores in [true, false] {
        let mut node = overridden(8 * SECOND);
        node.command(crate::node::release(1)).unwrap();
        node.pass(1.0);
        node.kill();
        node.gpus[1].write_takes = 0;
        if restores {
            assert!(node.restore());
        }
        node.gpus[1].cap = Watts(300.0);
        node.start();
        node.pass(60.0);
        let _ = node.command(Command::Resume {
            device: Some("gpu1".to_owned()),
        });
        node.pass(60.0);
        node.stop();
        all.push(node.caps());
    }
    assert!(all.iter().all(|caps| *caps == [700.0; 4]), "{all:?}");
}

/// litd is stopped while an override is under way: the driver does it once litd is gone.
#[test]
fn an_override_that_a_stop_has_ended_is_in_the_journal_while_it_may_be_done() {
    let mut node = overridden(60 * SECOND);
    node.stop();
    let kept = node.disk.journal_keeps();
    assert!(kept.contains(&"0000:02:00.0".to_owned()), "{kept:?}");
}
