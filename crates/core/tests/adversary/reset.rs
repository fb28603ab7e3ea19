//! GPUs that are reset, and come back at their default above what a budget leaves them.

use litd_units::Watts;

use crate::gpu::{Writes, found_at};
use crate::node::{MS, Node, budget, release};

const BUDGET: f64 = 2000.0;

/// Reads fail for four seconds; then it takes everything.
#[test]
fn reset_that_takes_four_seconds() {
    let mut node = Node::under(BUDGET, found_at(8, 700.0));
    node.gpus[3].fails_reads = true;
    node.gpus[3].hides_range = true;
    node.pass(4.0);
    node.gpus[3].fails_reads = false;
    node.gpus[3].hides_range = false;
    node.is_reset(3);
    node.pass(120.0);
    node.holds_at_most(BUDGET);
}

/// A GPU that was found below its default is reset, and its driver takes no write for some seconds.
fn reset_and_writes_fail(seconds: f64, reset: fn(&mut Node)) {
    let mut node = Node::under(BUDGET, found_at(8, 600.0));
    reset(&mut node);
    node.gpus[3].writes = Writes::Fail;
    node.pass(seconds);
    node.gpus[3].writes = Writes::Taken;
    node.pass(100.0);
    node.holds_at_most(BUDGET);
    node.stop();
    node.all_hold(600.0);
}

/// Only the cap shows the reset.
#[test]
fn reset_and_two_failed_writes() {
    reset_and_writes_fail(3.0, |node| node.by_others(3, 700.0));
}

/// The energy shows it, too.
#[test]
fn reset_with_energy_and_failed_writes() {
    reset_and_writes_fail(4.0, |node| node.is_reset(3));
}

/// The driver has another default and highest cap afterwards.
#[test]
fn reset_to_another_default() {
    let mut node = Node::under(1900.0, found_at(8, 700.0));
    node.gpus[3].range.highest = Watts(600.0);
    node.gpus[3].range.default = Watts(600.0);
    node.is_reset(3);
    node.pass(120.0);
    node.holds_at_most(1900.0);
}

/// Where a released GPU leaves no room, status says so.
#[test]
fn released_and_reset_is_told() {
    let mut node = Node::under(BUDGET, found_at(8, 700.0));
    node.command(release(3)).unwrap();
    node.pass(5.0);
    node.by_others(3, 700.0);
    node.pass(60.0);
    let told = node.status().gpus;
    assert!(
        node.sum() <= BUDGET || told.caps > told.budget,
        "GPUs hold {} W, status says {} of {}",
        node.sum(),
        told.caps,
        told.budget
    );
}

/// A GPU that was released and reset is released once more, as `litctl release --all` does before a
/// driver's upgrade: that gives nobody else its room.
fn released_twice(its_driver_hangs: bool) {
    let mut node = Node::under(3600.0, found_at(8, 500.0));
    node.command(release(3)).unwrap();
    node.pass(4.0);
    node.by_others(3, 700.0);
    node.pass(20.0);
    node.holds_at_most(3600.0);
    node.most = 0.0;
    node.gpus[3].hangs = its_driver_hangs;
    node.command(release(3)).unwrap();
    node.pass(30.0);
    assert!(node.most <= 3600.0, "GPUs held {} of 3600 W", node.most);
}

#[test]
fn released_twice_at_once() {
    released_twice(false);
}

#[test]
fn released_twice_by_a_driver_that_hangs() {
    released_twice(true);
}

/// Closing a GPU without persistence mode is what gives it its default: the others have made room before.
#[test]
fn a_gpu_that_forgets_its_cap_when_it_is_closed_is_closed_once_the_others_have_made_room() {
    for write_takes in [0, 300 * MS] {
        let mut gpus = found_at(8, 600.0);
        for gpu in &mut gpus {
            gpu.write_takes = write_takes;
        }
        gpus[3].forgets = true;
        let mut node = Node::under(4000.0, gpus);
        node.most = 0.0;
        node.command(release(3)).unwrap();
        node.pass(5.0);
        assert_eq!(node.caps()[3], 700.0);
        assert!(node.most <= 4000.0, "{} W, {:?}", node.most, node.log);
    }
}

/// Without an energy counter nobody can tell a reset from a hand that sets the default; but whoever can have his GPUs
/// reset is not to end steering for everybody else.
#[test]
fn resets_that_nothing_shows_do_not_have_the_node_yield() {
    let mut node = Node::under(4800.0, found_at(8, 600.0));
    for _ in 0..4 {
        for gpu in [0, 1] {
            node.by_others(gpu, 700.0);
            node.pass(6.0);
        }
    }
    assert!(!node.status().node.yielded, "{:?}", node.log);
    node.pass(30.0);
    node.holds_at_most(4800.0);
}

/// Nothing but the cap shows the resets. The third one is taken for somebody's hand, which stops no raise of the
/// other GPUs, for it may well be their neighbour's user who has his GPU reset.
#[test]
fn three_resets_of_one_gpu_stop_no_raise_of_the_others() {
    for resets in [2, 3] {
        let mut node = Node::under(4000.0, found_at(8, 700.0));
        for _ in 0..resets {
            node.by_others(0, 700.0);
            node.pass(6.0);
        }
        node.pass(30.0);
        node.holds_at_most(4000.0);
        node.command(budget(5000.0)).unwrap();
        node.pass(60.0);
        node.holds_at_most(5000.0);
        let sum = node.sum();
        assert!(
            sum >= 4900.0,
            "after {resets} resets the GPUs have {sum} W of 5000 W"
        );
    }
}
