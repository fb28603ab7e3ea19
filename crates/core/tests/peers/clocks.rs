//! Clocks that are locked by drivers that answer late, never, or with an excuse: free in the end all the same.

use litd_units::Hertz;

use crate::node::{ClockDriver, Node, address, beside, config};

const LOCK: Option<Hertz> = Some(Hertz(1.2e9));

/// A rank of a job on the one GPU has asked for a clock, and the driver has made that of it.
fn asked(driver: ClockDriver) -> Node {
    let mut node = Node::new(1, config());
    let session = node.attach(0, 1);
    node.clock_driver = driver;
    node.ask_clock(session, Some(1200.0));
    node
}

/// A lock that was under way when litd died may be done half a minute later, and nobody's answer says so.
#[test]
fn a_lock_that_got_no_answer_before_litd_died_is_freed_however_late_it_is_done() {
    let _beside = beside();
    let dead = asked(ClockDriver::Hangs);
    assert_eq!(dead.journaled_clocks(), [address(0)]);
    let mut restoring = dead.restored(config());
    restoring.wait(4);
    assert_eq!(restoring.locks.last(), Some(&None));
    assert_eq!(restoring.core.may_lock_on_exit(), [address(0)]);
    assert_eq!(restoring.journaled_clocks(), [address(0)]);
    let mut node = restoring.restarted(config());
    node.wait(8);
    node.locks.push(LOCK);
    node.wait(30);
    assert!(!node.is_locked(), "{:?}", node.events());
    assert!(node.journaled_clocks().is_empty());
}

/// Nor does every `litd restore` wait for it anew.
#[test]
fn a_lock_that_got_no_answer_is_waited_for_once() {
    let _beside = beside();
    let dead = asked(ClockDriver::Hangs);
    let mut restoring = dead.restored(config());
    restoring.wait(4);
    for _ in 0..3 {
        assert_eq!(restoring.journaled_clocks(), [address(0)]);
        restoring = restoring.restored(config());
        restoring.wait(10);
    }
    assert!(restoring.journaled_clocks().is_empty());
}

/// A lock that was done is freed, and nothing is left to be waited for.
#[test]
fn a_lock_that_was_done_before_litd_died_is_freed_once() {
    let _beside = beside();
    let dead = asked(ClockDriver::Does);
    assert!(dead.is_locked());
    let mut restoring = dead.restored(config());
    restoring.wait(4);
    assert!(!restoring.is_locked());
    assert!(restoring.journaled_clocks().is_empty());
}

/// Of a lock in place of one that was done nobody knows again when it is.
#[test]
fn a_second_lock_that_got_no_answer_is_waited_for_as_the_first() {
    let _beside = beside();
    let mut dead = Node::new(1, config());
    let session = dead.attach(0, 1);
    dead.ask_clock(session, Some(1200.0));
    dead.clock_driver = ClockDriver::Hangs;
    dead.ask_clock(session, Some(1300.0));
    let mut restoring = dead.restored(config());
    restoring.wait(4);
    assert_eq!(restoring.core.may_lock_on_exit(), [address(0)]);
}
