//! GPUs without persistence mode: their driver sets the default cap once nobody has them open, so no cap of litd's
//! outlives litd there.

use litd_core::config::{Config, OnExit};
use litd_units::Watts;

use crate::gpu::{Gpu, found_at};
use crate::node::{Node, observing};

const SAFE: f64 = 4000.0;

fn holding() -> Config {
    let mut config = observing();
    config.caps.safe_budget = Some(Watts(SAFE));
    config.caps.on_exit = OnExit::Hold;
    config
}

fn forgetful(count: usize) -> Vec<Gpu> {
    let mut gpus = found_at(8, 600.0);
    for gpu in gpus.iter_mut().take(count) {
        gpu.forgets = true;
    }
    gpus
}

/// What the node holds once litd is gone.
fn once_closed(node: &Node) -> f64 {
    let each = node.gpus.iter().map(|gpu| match gpu.forgets {
        true => gpu.range.default,
        false => gpu.cap,
    });
    each.sum::<Watts>().0
}

/// The others make room for the defaults that are taken once litd has ended.
#[test]
fn a_stop_leaves_the_safe_budget_beside_gpus_that_forget() {
    let mut node = Node::with(forgetful(2), holding());
    node.pass(5.0);
    assert_eq!(node.stops_above(), None);
    let left = once_closed(&node);
    assert!(left <= SAFE, "{left} W are left behind");
}

/// While litd is off it has closed its GPUs, and is there to say so.
#[test]
fn off_holds_the_safe_budget_beside_gpus_that_forget() {
    let mut node = Node::with(forgetful(2), holding());
    node.pass(5.0);
    node.kill_switch(true);
    node.pass(20.0);
    assert_eq!(node.caps()[..2], [700.0, 700.0]);
    node.holds_at_most(SAFE);
}

/// Where all forget, no safe budget can be left behind: nothing says that it is.
#[test]
fn what_can_not_be_held_is_said() {
    for off in [false, true] {
        let mut node = Node::with(forgetful(8), holding());
        node.pass(5.0);
        let above = match off {
            true => {
                node.kill_switch(true);
                node.pass(20.0);
                let told = node.status().gpus;
                assert!(told.caps >= Watts(5600.0), "status says {}", told.caps);
                node.above_on_exit()
            }
            false => node.stops_above(),
        };
        let above = above.expect("it is above the safe budget");
        assert!(above.contains("5600 W"), "{above}");
        assert!(above.contains("nvidia-smi -pm 1"), "{above}");
        let told = node
            .log
            .iter()
            .filter(|line| line.contains("persistence mode is off"));
        // GPUs are read one after the other.
        assert!((1..=2).contains(&told.count()), "{:?}", node.log);
    }
}
