//! Budgets and leases that are asked for while the disk is full, or nearly.

use std::fmt::Debug;

use litd_api::{Command, Lease, Mode};
use litd_units::Watts;

use crate::disk::Faults;
use crate::disk_full::full;
use crate::gpu::found_at;
use crate::node::{Node, budget, lease, observing};

fn lease_of(mode: Option<Mode>, watts: Option<f64>) -> Command {
    Command::Lease(Lease {
        controller: "fleet".to_owned(),
        seconds: 60.0,
        mode,
        budget: watts.map(Watts),
    })
}

/// A budget is either refused or kept.
fn refused_or_kept<T: Debug, E: Debug>(said: &Result<T, E>, node: &Node, watts: f64) {
    let held = node.sum();
    assert!(said.is_err() || held <= watts, "{said:?} {held}");
}

/// Off by a lease, then on again with a budget, and the disk is full.
#[test]
fn lease_off_then_on_full_disk() {
    let mut node = Node::new(8);
    node.pass(5.0);
    node.command(lease_of(Some(Mode::Off), None)).unwrap();
    node.pass(5.0);
    node.disk.fail(full());
    let said = node.command(lease_of(Some(Mode::Observe), Some(2400.0)));
    node.pass(30.0);
    refused_or_kept(&said, &node, 2400.0);
}

/// A safe budget that could never be kept for a full disk; then a lease of more than that.
#[test]
fn lease_above_safe_full_disk() {
    let mut config = observing();
    config.caps.safe_budget = Some(Watts(2400.0));
    let mut node = Node::with(found_at(8, 700.0), observing());
    node.disk.fail(full());
    node.pass(5.0);
    node.reload(config);
    node.pass(5.0);
    let said = node.command(lease(3000.0, 60.0));
    node.pass(30.0);
    refused_or_kept(&said, &node, 3000.0);
}

/// A lease ends while the disk is full, and a new one is below what is held.
#[test]
fn lease_anew_full_disk() {
    let mut config = observing();
    config.caps.safe_budget = Some(Watts(2400.0));
    let mut node = Node::with(found_at(8, 700.0), config);
    node.pass(5.0);
    node.command(lease(4000.0, 60.0)).unwrap();
    node.pass(20.0);
    node.disk.fail(full());
    node.pass(100.0);
    let said = node.command(lease(3000.0, 60.0));
    node.pass(30.0);
    refused_or_kept(&said, &node, 3000.0);
}

/// The audit log's own disk is full but for some bytes in its last block.
#[test]
fn audit_room() {
    let mut node = Node::new(8);
    node.pass(5.0);
    node.disk.fail(Faults {
        audit_room: 1000,
        ..Faults::default()
    });
    let said = node.command(budget(2000.0));
    node.pass(30.0);
    refused_or_kept(&said, &node, 2000.0);
}

/// A disk for both; all GPUs are in the journal.
#[test]
fn journal_room() {
    let mut node = Node::under(4000.0, found_at(8, 700.0));
    node.disk.fail(Faults {
        audit_room: 5000,
        journal_room: 200,
        replace: true,
        ..Faults::default()
    });
    let said = node.command(budget(2000.0));
    node.pass(30.0);
    refused_or_kept(&said, &node, 2000.0);
}

/// A file's budget that is not kept for a full disk, and the same by hand.
#[test]
fn budget_again_full_disk() {
    let mut node = Node::new(8);
    node.pass(5.0);
    node.disk.fail(full());
    let mut config = node.config.clone();
    config.caps.budget = Some(Watts(2000.0));
    node.reload(config);
    node.pass(5.0);
    let said = node.command(budget(2500.0));
    node.pass(30.0);
    refused_or_kept(&said, &node, 2500.0);
}

/// Appends work, replacing does not; gpu3, which was found at `cap`, is not in the journal.
fn told_once(cap: f64) {
    let mut gpus = found_at(8, 700.0);
    gpus[3].cap = Watts(cap);
    let mut node = Node::under(3000.0, gpus);
    node.disk.fail(Faults {
        replace: true,
        ..Faults::default()
    });
    node.by_others(3, 500.0);
    node.pass(5.0);
    let before = node.log.len();
    node.pass(60.0);
    assert!(node.log.len() < before + 20);
}

#[test]
fn flaps() {
    told_once(210.0);
}

/// The GPU has to be lowered.
#[test]
fn flaps_again() {
    told_once(200.0);
}

/// A higher budget by hand is taken away while the disk is full: the file's rules "again".
#[test]
fn budget_default_full_disk() {
    let mut node = Node::under(2000.0, found_at(8, 700.0));
    node.command(budget(4000.0)).unwrap();
    node.pass(10.0);
    node.disk.fail(full());
    let said = node.command(Command::SetBudget { watts: None });
    node.pass(60.0);
    refused_or_kept(&said, &node, 2000.0);
}

/// A refused lease of a day keeps the higher one for a day.
#[test]
fn refused_lease_of_a_day() {
    let mut config = observing();
    config.caps.safe_budget = Some(Watts(2400.0));
    let mut node = Node::with(found_at(8, 700.0), config);
    node.pass(5.0);
    node.command(lease(4000.0, 60.0)).unwrap();
    node.pass(20.0);
    node.disk.fail(full());
    node.command(lease(3000.0, 86_000.0)).unwrap_err();
    node.pass(10.0);
    node.disk.fail(Faults::default());
    node.pass(3600.0);
    assert!(node.sum() <= 3000.0, "{}", node.sum());
}
