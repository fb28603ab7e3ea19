//! A disk that takes no writes: what is promised then, and what is said of it.

use litd_api::{Command, DeviceState};
use litd_units::Watts;

use crate::disk::Faults;
use crate::gpu::found_at;
use crate::node::{Node, budget, lease, release};

pub fn full() -> Faults {
    Faults {
        append: true,
        replace: true,
        ..Faults::default()
    }
}

/// A lease is renewed by the same terms while the disk is full and a GPU was reset.
fn lease_renewed_with_a_full_disk(happens: fn(&mut Node)) {
    let mut node = Node::new(8);
    node.pass(5.0);
    node.command(lease(4000.0, 60.0)).unwrap();
    node.pass(10.0);
    node.holds_at_most(4000.0);
    node.disk.fail(full());
    happens(&mut node);
    for _ in 0..20 {
        node.pass(20.0);
        let _ = node.command(lease(4000.0, 60.0));
    }
    node.holds_at_most(4200.0);
}

#[test]
fn lease_renewed_full_disk_reset() {
    lease_renewed_with_a_full_disk(|node| node.is_reset(3));
}

#[test]
fn lease_renewed_full_disk_released() {
    lease_renewed_with_a_full_disk(|node| {
        node.command(release(3)).unwrap();
    });
}

#[test]
fn lease_renewed_full_disk_nothing() {
    lease_renewed_with_a_full_disk(|_| {});
}

/// A lower lease with a full disk.
#[test]
fn lease_lowered_full_disk() {
    let mut node = Node::new(8);
    node.pass(5.0);
    node.command(lease(4000.0, 60.0)).unwrap();
    node.pass(10.0);
    node.disk.fail(full());
    for _ in 0..20 {
        node.pass(20.0);
        let _ = node.command(lease(3800.0, 60.0));
    }
    node.holds_at_most(4000.0);
}

/// The disk is full, and all GPUs are just being read (their driver takes 300 ms) when the budget comes.
#[test]
fn budget_full_disk_while_reading() {
    let mut node = Node::new(4);
    node.pass(5.0);
    node.disk.fail(full());
    for gpu in &mut node.gpus {
        gpu.hangs = true;
    }
    node.pass(1.0);
    node.pass(0.2);
    let first = node.command(budget(1600.0));
    for gpu in 0..4 {
        node.answers_again(gpu);
    }
    node.pass(3.0);
    assert!(
        first.is_err() || node.sum() <= 1600.0,
        "{first:?}, {}",
        node.sum()
    );
}

/// The disk is full while gpu1 is released: nothing has failed but the journal.
#[test]
fn released_with_a_full_disk_is_answered() {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    let mut config = node.config.clone();
    config.caps.budget = None;
    node.disk.fail(full());
    node.reload(config);
    node.pass(3.0);
    node.command(release(1)).unwrap();
    node.pass(5.0);
    let said = node.letting_go(Some("gpu1")).said;
    assert!(
        !said.contains("a write that failed may still take effect"),
        "{said}"
    );
}

/// The same when everything is off, and litd is stopped.
#[test]
fn off_with_a_full_disk_then_stop() {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    node.disk.fail(full());
    node.kill_switch(true);
    node.pass(5.0);
    assert!(node.may_land_on_exit().is_empty());
}

/// The disk is full while caps go back, and is well again; nothing is written since.
#[test]
fn audit_trouble_is_over() {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    node.disk.fail(Faults {
        audit: true,
        ..Faults::default()
    });
    let mut config = node.config.clone();
    config.caps.budget = None;
    node.reload(config);
    node.pass(5.0);
    node.disk.fail(Faults::default());
    node.pass(3600.0);
    let said = node.status().node.summary;
    assert!(!said.contains("can't be written"), "{said}");
}

/// The list of devices to leave alone could not be written at first, and the disk is well again: the next litd
/// leaves them alone.
#[test]
fn what_is_left_alone_is_kept_once_the_disk_is_well() {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    node.disk.fail(Faults {
        replace: true,
        ..Faults::default()
    });
    node.by_others(1, 350.0);
    node.pass(5.0);
    let told = |node: &Node| {
        let lines = node.log.iter();
        lines
            .filter(|it| it.contains("condition can't be kept"))
            .count()
    };
    assert_eq!(told(&node), 1, "{:?}", node.log);
    node.disk.fail(Faults::default());
    node.pass(5.0);
    node.kill();
    node.start();
    node.pass(5.0);
    assert_eq!(node.status().devices[1].state, DeviceState::Foreign);
    node.command(budget(1500.0)).unwrap();
    node.pass(10.0);
    assert_eq!(node.caps()[1], 350.0);
}

/// While litd is off a lease is looked at as if it were on: it rules once it is.
#[test]
fn a_lease_below_all_floors_is_refused_while_litd_is_off() {
    let mut node = Node::new(4);
    node.pass(5.0);
    node.kill_switch(true);
    node.pass(5.0);
    assert!(node.command(lease(10.0, 30.0)).is_err());
    node.kill_switch(false);
    node.pass(5.0);
    node.all_hold(700.0);
}

/// An override is no exception: nobody would know after a crash what was found.
#[test]
fn a_cap_by_hand_is_refused_while_the_disk_is_full() {
    let mut node = Node::new(2);
    node.pass(5.0);
    node.disk.fail(full());
    let by_hand = || Command::SetCap {
        device: "gpu1".to_owned(),
        watts: Watts(300.0),
    };
    let why = node.command(by_hand()).unwrap_err().error;
    assert!(
        why.contains("litd changes no cap except to restore one"),
        "{why}"
    );
    node.pass(10.0);
    node.all_hold(700.0);
    node.disk.fail(Faults::default());
    node.command(by_hand()).unwrap();
    // The entry that was tried is gone, and the override is what was found.
    node.pass(10.0);
    assert!(node.stop());
    assert_eq!(node.caps(), [700.0, 300.0]);
}

/// gpu1 has its cap back, and its entry could not leave the journal. Whatever ends litd then, a cap that an
/// administrator sets is his, also one that litd had set; and once the disk has room what litd sets anew is undone.
#[test]
fn what_is_undone_with_a_full_disk_is_undone_once() {
    const GPU1: &str = "0000:02:00.0";
    let restored: [fn(&mut Node); 2] = [
        |node| {
            node.kill();
            assert!(node.restore());
        },
        |node| {
            node.command(Command::SetBudget { watts: None }).unwrap();
            node.pass(5.0);
        },
    ];
    for restores in restored {
        let mut node = Node::new(4);
        node.pass(5.0);
        node.command(budget(2000.0)).unwrap();
        node.pass(10.0);
        node.all_hold(500.0);
        node.disk.fail(full());
        restores(&mut node);
        node.all_hold(700.0);
        assert!(node.disk.journal_keeps().iter().any(|it| it == GPU1));
        node.by_others(1, 500.0);
        node.pass(5.0);
        assert_eq!(node.gpus[1].cap, Watts(500.0), "{:?}", node.log);
        node.kill();
        for _ in 0..2 {
            assert!(node.restore());
            assert_eq!(node.gpus[1].cap, Watts(500.0), "{:?}", node.log);
            node.disk.fail(Faults::default());
        }
        // A budget from before the crash is in force again.
        node.start();
        node.command(Command::SetBudget { watts: None }).unwrap();
        node.pass(5.0);
        assert_eq!(node.status().devices[1].found, Some(Watts(500.0)));
        assert_eq!(node.gpus[1].cap, Watts(500.0), "{:?}", node.log);
        assert_eq!(node.disk.journal_keeps(), [""; 0]);
        // The journal names it again, with another cap found.
        node.command(budget(1200.0)).unwrap();
        node.pass(10.0);
        node.holds_at_most(1200.0);
        node.kill();
        assert!(node.restore());
        let held = [700.0, 500.0, 700.0, 700.0].map(Watts);
        assert_eq!(
            node.gpus.iter().map(|gpu| gpu.cap).collect::<Vec<_>>(),
            held
        );
    }
}

/// Where nothing else says that it is undone either, litd undoes it in doubt.
#[test]
fn what_is_undone_with_a_full_disk_and_no_room_for_notes_is_undone_again() {
    let mut node = Node::new(4);
    node.pass(5.0);
    node.command(budget(2000.0)).unwrap();
    node.pass(10.0);
    node.kill();
    let notes = Faults {
        notes: true,
        ..full()
    };
    node.disk.fail(notes);
    assert!(node.restore());
    node.all_hold(700.0);
    node.by_others(1, 500.0);
    assert!(node.restore());
    node.all_hold(700.0);
}
