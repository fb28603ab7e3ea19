//! GPUs whose drivers refuse writes for long.

use litd_units::Watts;

use crate::gpu::{Writes, found_at};
use crate::node::{Node, budget};

/// The rise back to what was found fails for two minutes; the driver is well for three seconds when litd is stopped.
fn fails_for_long(seconds: f64, then: fn(&mut Node)) -> Node {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    node.gpus[1].writes = Writes::Fail;
    let mut config = node.config.clone();
    config.caps.budget = None;
    node.reload(config);
    node.pass(seconds);
    node.gpus[1].writes = Writes::Taken;
    node.pass(3.0);
    then(&mut node);
    node
}

#[test]
fn refuses_for_long_then_stop() {
    let mut node = fails_for_long(130.0, |node| {
        node.stop();
    });
    node.all_hold(700.0);
    let _ = &mut node;
}

#[test]
fn refuses_for_long_then_stop_held() {
    // A budget that falls: the GPU is kept down, refuses, is well again, and litd stops.
    let mut node = Node::under(2400.0, found_at(4, 700.0));
    node.gpus[1].writes = Writes::Fail;
    let mut config = node.config.clone();
    config.caps.budget = Some(Watts(1600.0));
    node.reload(config);
    node.pass(130.0);
    node.gpus[1].writes = Writes::Taken;
    node.pass(3.0);
    node.stop();
    node.all_hold(700.0);
}

/// The same for a budget.
#[test]
fn refuses_for_long_then_budget() {
    let mut node = Node::under(2400.0, found_at(4, 700.0));
    node.gpus[1].writes = Writes::Fail;
    node.command(budget(1600.0)).unwrap();
    node.pass(130.0);
    node.gpus[1].writes = Writes::Taken;
    node.pass(20.0);
    node.holds_at_most(1600.0);
}

/// A GPU that fails writes while it is off: when do caps come back?
#[test]
fn off_after_refusals() {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    node.gpus[1].writes = Writes::Fail;
    node.kill_switch(true);
    node.pass(300.0);
    node.gpus[1].writes = Writes::Taken;
    node.pass(30.0);
    node.all_hold(700.0);
}

#[test]
fn off_after_refusals_in_a_minute() {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    node.gpus[1].writes = Writes::Fail;
    node.kill_switch(true);
    node.pass(300.0);
    node.gpus[1].writes = Writes::Taken;
    node.pass(50.0);
    node.all_hold(700.0);
}
