//! The audit log's numbers: one that is missing is a record that is missing.

use litd_api::Command;
use litd_api::audit::Entry;

use crate::disk::Faults;
use crate::gpu::found_at;
use crate::node::{Node, budget};

/// The log can't be written for so long, from just before something happens. The numbers that are missing then, and how many
/// the log itself says are.
fn missing_after(seconds: f64, happens: fn(&mut Node)) -> (u64, u64) {
    let mut node = Node::under(2000.0, found_at(4, 700.0));
    node.disk.fail(Faults {
        audit: true,
        ..Faults::default()
    });
    node.pass(5.0);
    happens(&mut node);
    node.pass(seconds);
    node.disk.fail(Faults::default());
    node.pass(10.0);
    node.command(budget(1800.0)).unwrap();
    node.pass(10.0);
    node.holds_at_most(1800.0);
    let records = node.disk.audited();
    let pairs = records.iter().zip(records.iter().skip(1));
    let missing = pairs.map(|(one, next)| next.seq - one.seq - 1).sum();
    let lost = records.iter().map(|it| match it.entry {
        Entry::Lost { count } => count,
        _ => 0,
    });
    (missing, lost.sum())
}

/// Four caps go back, or are not lowered: each write and its outcome are missing, and nothing else.
#[test]
fn caps_go_back_without_a_log() {
    let (missing, lost) = missing_after(3600.0, |node| {
        node.command(Command::Release { device: None }).unwrap();
        node.pass(10.0);
        let device = None;
        node.command(Command::Resume { device }).unwrap();
    });
    assert_eq!(missing, lost);
    assert!(missing < 100, "{missing}");
}

/// No write may be made.
#[test]
fn nothing_happens_without_a_log() {
    let nothing = |node: &mut Node| {
        node.command(budget(1700.0)).unwrap_err();
    };
    assert_eq!(missing_after(3600.0, nothing), (0, 0));
}

/// Caps are to be lowered, and wait for the log: each second their records are tried.
#[test]
fn caps_wait_for_the_log() {
    let waits = |node: &mut Node| {
        let mut config = node.config.clone();
        config.caps.budget = Some(litd_units::Watts(1700.0));
        node.reload(config);
    };
    let (missing, lost) = missing_after(60.0, waits);
    assert_eq!(missing, lost);
}
