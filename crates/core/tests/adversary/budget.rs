//! Budgets that can just be kept, that come at a bad moment, or that cannot be kept and are told.

use litd_core::{Config, Event};
use litd_units::Watts;

use crate::disk::Faults;
use crate::gpu::{Gpu, Writes, found_at};
use crate::node::{Node, budget, observing};

/// A configured ceiling that is no whole watt, with the floor in the same watt.
#[test]
fn ceiling_and_floor_in_one_watt() {
    let mut config = observing();
    config.caps.gpu_floor = Watts(300.2);
    config.caps.gpu_ceiling = Some(Watts(300.8));
    config.caps.budget = Some(Watts(8.0 * 300.8));
    let mut node = Node::with(found_at(8, 700.0), config);
    node.pass(20.0);
    node.holds_at_most(8.0 * 300.8);
}

/// A driver takes whole watts: a floor of 250.5 W is one of 251 W, and the budget says so.
#[test]
fn budget_of_floors_that_are_no_whole_watts_is_refused() {
    let mut config = observing();
    config.caps.gpu_floor = Watts(250.5);
    config.caps.budget = Some(Watts(8.0 * 250.5));
    let inventory: Vec<_> = found_at(8, 700.0).iter().map(Gpu::discovered).collect();
    let refused = |config: &Config| litd_core::budget::impossible(config, &inventory);
    assert!(
        !refused(&config).is_empty(),
        "2004 W for eight floors of 251 W"
    );
    config.caps.budget = Some(Watts(2008.0));
    assert_eq!(refused(&config), [], "2008 W for eight floors of 251 W");
}

/// A GPU that came up late leaves no room: what status says the GPUs hold has it in.
#[test]
fn unmanaged_gpu_is_told() {
    let mut node = Node::under(2000.0, found_at(7, 700.0));
    node.event(Event::Unmanaged(["0000:f1:00.0".to_owned()].into()));
    node.pass(20.0);
    let told = node.status().gpus;
    let holds = node.sum() + 700.0;
    assert!(
        holds <= 2000.0 || told.caps > told.budget,
        "GPUs hold {holds} W, status says {} of {}",
        told.caps,
        told.budget
    );
}

/// A budget by reload, after a GPU was faulty for a while.
#[test]
fn reload_after_a_fault() {
    let mut node = Node::new(8);
    node.pass(5.0);
    node.gpus[3].fails_reads = true;
    node.pass(4.0);
    node.gpus[3].fails_reads = false;
    node.pass(5.0);
    let mut config = observing();
    config.caps.budget = Some(Watts(2000.0));
    node.event(Event::Reloaded(Box::new(config)));
    node.pass(30.0);
    node.holds_at_most(node.status().gpus.budget.0);
}

/// Drivers do not take writes for some seconds, just when the budget comes down.
fn writes_fail(mut node: Node, gpus: std::ops::Range<usize>, writes: Writes, seconds: f64) {
    node.pass(5.0);
    for gpu in gpus.clone() {
        node.gpus[gpu].writes = writes;
    }
    let watts = 250.0 * node.gpus.len() as f64;
    node.command(budget(watts)).unwrap();
    node.pass(seconds);
    for gpu in gpus {
        node.gpus[gpu].writes = Writes::Taken;
    }
    node.pass(600.0);
    node.holds_at_most(watts);
}

#[test]
fn four_seconds_of_failing_writes() {
    writes_fail(Node::new(8), 3..4, Writes::Fail, 4.0);
}

#[test]
fn four_seconds_of_failing_writes_everywhere() {
    writes_fail(Node::new(8), 0..8, Writes::Fail, 4.0);
}

#[test]
fn no_permission_for_five_seconds() {
    writes_fail(Node::new(4), 0..4, Writes::Forbidden, 5.0);
}

#[test]
fn no_permission_for_five_seconds_below_the_default() {
    let node = Node::with(found_at(4, 600.0), observing());
    writes_fail(node, 0..4, Writes::Forbidden, 5.0);
}

#[test]
fn out_of_range_for_five_seconds_below_the_default() {
    let node = Node::with(found_at(4, 600.0), observing());
    writes_fail(node, 0..4, Writes::OutOfRange, 5.0);
}

/// A budget that can't be kept is reported to the administrator who sets it.
#[test]
fn budget_with_a_full_disk_is_told() {
    let mut node = Node::new(4);
    node.pass(5.0);
    node.disk.fail(Faults {
        append: true,
        replace: true,
        ..Faults::default()
    });
    let first = node.command(budget(1600.0));
    node.pass(3.0);
    let second = node.command(budget(1500.0));
    node.pass(3.0);
    assert!(
        first.is_err() || second.is_err(),
        "budgets of 1600 and 1500 W are said to be set, and GPUs hold {} W",
        node.sum()
    );
}
