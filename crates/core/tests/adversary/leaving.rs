//! The caps that litd leaves behind: off, at a stop, in `litd restore`, and on GPUs that were released.

use litd_api::{Command, DeviceState};
use litd_core::Event;
use litd_core::config::OnExit;
use litd_units::Watts;

use crate::disk_full::full;
use crate::gpu::{Writes, found_at};
use crate::node::{Node, budget, lease, observing, release};

/// gpu3 is released under a budget that leaves no room for the cap found: it is closed at 250 W. Then something
/// else is asked for.
fn released_without_room(on_exit: OnExit, then: fn(&mut Node)) {
    let mut config = observing();
    config.caps.budget = Some(Watts(2000.0));
    config.caps.safe_budget = Some(Watts(2000.0));
    config.caps.on_exit = on_exit;
    let mut node = Node::with(found_at(8, 700.0), config);
    node.pass(10.0);
    node.command(release(3)).unwrap();
    node.pass(10.0);
    node.most = 0.0;
    then(&mut node);
    assert!(node.most <= 2000.0, "{} of 2000 W", node.most);
}

#[test]
fn released_without_room_again() {
    released_without_room(OnExit::Restore, |node| {
        node.command(release(3)).unwrap();
        node.pass(20.0);
    });
}

/// No message says that nothing is owed to it.
#[test]
fn released_without_room_is_said() {
    released_without_room(OnExit::Restore, |node| {
        let why = node.status().devices[3].why.clone();
        assert!(why.contains("its cap is not restored"), "{why}");
    });
}

#[test]
fn released_without_room_all() {
    released_without_room(OnExit::Restore, |node| {
        node.command(Command::Release { device: None }).unwrap();
        node.pass(20.0);
    });
}

#[test]
fn released_without_room_resumed() {
    released_without_room(OnExit::Restore, |node| {
        node.command(Command::Resume { device: None }).unwrap();
        node.pass(20.0);
    });
}

#[test]
fn released_without_room_off_holds() {
    released_without_room(OnExit::Hold, |node| {
        node.kill_switch(true);
        node.pass(20.0);
    });
}

#[test]
fn released_without_room_stop_holds() {
    released_without_room(OnExit::Hold, |node| {
        node.stops_at_once();
    });
}

#[test]
fn released_without_room_off_holds_beside_an_unmanaged() {
    let mut config = observing();
    config.caps.budget = Some(Watts(2400.0));
    config.caps.safe_budget = Some(Watts(2400.0));
    config.caps.on_exit = OnExit::Hold;
    let mut node = Node::with(found_at(8, 700.0), config);
    node.pass(10.0);
    node.event(Event::Unmanaged(["0000:f1:00.0".to_owned()].into()));
    node.pass(10.0);
    node.command(release(3)).unwrap();
    node.pass(10.0);
    node.most = 0.0;
    node.kill_switch(true);
    node.pass(20.0);
    node.kill_switch(false);
    node.pass(20.0);
    assert!(node.most <= 1700.0, "{} of 1700 W", node.most);
}

/// Two of eight GPUs are released under a budget without room; the safe budget is another one.
fn two_released_without_room(on_exit: OnExit, then: fn(&mut Node)) {
    let mut config = observing();
    config.caps.budget = Some(Watts(2000.0));
    config.caps.safe_budget = Some(Watts(2300.0));
    config.caps.on_exit = on_exit;
    let mut node = Node::with(found_at(8, 700.0), config);
    node.pass(10.0);
    node.command(release(3)).unwrap();
    node.command(release(5)).unwrap();
    node.pass(10.0);
    node.most = 0.0;
    then(&mut node);
    assert!(node.most <= 2300.0, "{} of 2300 W", node.most);
}

#[test]
fn two_released_off_holds() {
    two_released_without_room(OnExit::Hold, |node| {
        node.kill_switch(true);
        node.pass(20.0);
    });
}

#[test]
fn two_released_stop_holds() {
    two_released_without_room(OnExit::Hold, |node| {
        node.stops_at_once();
    });
}

#[test]
fn two_released_again_higher_budget() {
    two_released_without_room(OnExit::Restore, |node| {
        node.command(budget(1900.0)).unwrap_err();
        let mut config = node.config.clone();
        config.caps.budget = Some(Watts(2300.0));
        node.reload(config);
        node.command(Command::Release { device: None }).unwrap();
        node.pass(20.0);
    });
}

/// gpu3 followed its cap late (11 s), and counts as faulty since; litd is stopped and is to hold the safe budget.
#[test]
fn followed_late_then_stop_holds() {
    let mut config = observing();
    config.caps.safe_budget = Some(Watts(2000.0));
    config.caps.budget = Some(Watts(5600.0));
    config.caps.on_exit = OnExit::Hold;
    let mut gpus = found_at(8, 700.0);
    gpus[3].power = Watts(690.0);
    let mut node = Node::with(gpus, config);
    node.pass(5.0);
    node.pass(25.0);
    node.gpus[3].power = Watts(100.0);
    node.pass(300.0);
    node.stops_at_once();
    node.holds_at_most(2000.0);
}

fn held_at(safe: f64, gpus: usize) -> Node {
    let mut config = observing();
    config.caps.safe_budget = Some(Watts(safe));
    config.caps.on_exit = OnExit::Hold;
    let mut gpus = found_at(gpus, 700.0);
    for gpu in &mut gpus {
        // As any driver.
        gpu.read_takes = 100_000_000;
    }
    let mut node = Node::with(gpus, config);
    node.pass(10.0);
    node.holds_at_most(safe);
    node
}

/// litd is off and holds the safe budget; before a driver's upgrade everything is released.
#[test]
fn off_holds_then_release_all() {
    let mut node = held_at(2400.0, 8);
    node.kill_switch(true);
    node.pass(10.0);
    node.holds_at_most(2400.0);
    node.command(Command::Release { device: None }).unwrap();
    node.pass(20.0);
    node.holds_at_most(2400.0);
}

/// The same, one after the other.
#[test]
fn off_holds_then_release_one() {
    let mut node = held_at(2400.0, 8);
    node.kill_switch(true);
    node.pass(10.0);
    node.command(release(3)).unwrap();
    node.command(release(4)).unwrap();
    node.pass(20.0);
    node.holds_at_most(2400.0);
}

/// The same, and litd is stopped. A GPU that is released by name gets its cap found where the safe budget has room for
/// that beside the others' floors, and stays as it is where it has not.
#[test]
fn off_holds_then_release_one_then_stop() {
    for (safe, has_room) in [(2400.0, true), (2000.0, false)] {
        let mut node = held_at(safe, 8);
        node.kill_switch(true);
        node.pass(10.0);
        node.command(release(3)).unwrap();
        node.pass(20.0);
        let expected = if has_room { 700.0 } else { safe / 8.0 };
        assert_eq!(node.gpus[3].cap, Watts(expected), "{:?}", node.log);
        let said = node.letting_go(Some("gpu3")).said;
        assert_eq!(said.contains("it holds 250 W"), !has_room, "{said}");
        node.stops_at_once();
        assert_eq!(node.gpus[3].cap, Watts(expected), "{:?}", node.log);
        assert_eq!(
            node.disk.journal_keeps().len(),
            if has_room { 7 } else { 8 }
        );
        node.holds_at_most(safe);
    }
}

/// After a crash `litd restore` is to hold the safe budget, and gpu3's driver does not tell its range.
#[test]
fn restore_holds_beside_an_untold_range() {
    let mut node = held_at(1000.0, 4);
    node.kill();
    node.gpus[3].hides_range = true;
    node.restore();
    node.holds_at_most(1000.0);
}

/// The same at an orderly stop: the driver's range has not been told for some seconds.
#[test]
fn stop_holds_beside_an_untold_range() {
    let mut node = held_at(1000.0, 4);
    node.gpus[3].hides_range = true;
    let device = Some("gpu3".to_owned());
    node.command(Command::Resume { device }).unwrap();
    node.pass(5.0);
    node.stops_at_once();
    node.holds_at_most(1000.0);
}

/// And a disk that is full.
#[test]
fn restore_holds_beside_an_untold_range_and_a_full_disk() {
    let mut node = held_at(2400.0, 8);
    node.kill();
    node.gpus[3].hides_range = true;
    node.disk.fail(full());
    node.restore();
    node.holds_at_most(2400.0);
}

/// litd is off and holds the safe budget; one of nine GPUs has come up late; before a driver's upgrade everything is
/// released.
#[test]
fn off_holds_beside_an_unmanaged_then_release_all() {
    let mut node = held_at(2400.0, 8);
    node.event(Event::Unmanaged(["0000:f1:00.0".to_owned()].into()));
    node.pass(5.0);
    node.kill_switch(true);
    node.pass(10.0);
    node.holds_at_most(1700.0);
    node.command(Command::Release { device: None }).unwrap();
    node.pass(20.0);
    node.holds_at_most(1700.0);
}

/// The same where one GPU is somebody else's.
#[test]
fn off_holds_beside_a_foreign_then_release_all() {
    let mut node = held_at(2400.0, 8);
    node.by_others(3, 500.0);
    node.pass(5.0);
    node.kill_switch(true);
    node.pass(10.0);
    node.command(Command::Release { device: None }).unwrap();
    node.pass(20.0);
    node.holds_at_most(2400.0);
}

/// A failed write lands while litd is off; hours later litd is stopped in order.
fn lands_while_let_go(off: bool) {
    let mut node = Node::new(4);
    node.pass(5.0);
    node.gpus[1].writes = Writes::FailAndLand(10_000_000_000);
    node.command(budget(1600.0)).unwrap();
    node.pass(0.3);
    node.gpus[1].writes = Writes::Taken;
    match off {
        true => node.kill_switch(true),
        false => drop(node.command(release(1)).unwrap()),
    }
    node.pass(3600.0);
    node.stop();
    node.all_hold(700.0);
}

#[test]
fn lands_while_off_then_stop() {
    lands_while_let_go(true);
}

#[test]
fn lands_while_released_then_stop() {
    lands_while_let_go(false);
}

/// gpu3 has just been lowered, its power does not follow yet, when it is released without room, reset and resumed.
#[test]
fn stale_settling() {
    let mut gpus = found_at(8, 700.0);
    gpus[3].power = Watts(690.0);
    let mut config = observing();
    config.caps.budget = Some(Watts(2000.0));
    let mut node = Node::with(gpus, config);
    node.pass(3.0);
    node.command(release(3)).unwrap();
    node.pass(20.0);
    node.is_reset(3);
    let mut config = node.config.clone();
    config.caps.budget = None;
    node.reload(config);
    node.pass(20.0);
    node.command(Command::Resume {
        device: Some("gpu3".to_owned()),
    })
    .unwrap();
    node.pass(30.0);
    assert_eq!(node.status().devices[3].state, DeviceState::Ours);
}

/// After a crash all that was found goes back, by `litd restore` or by the next litd.
fn goes_back(node: &mut Node, restores: bool) {
    match restores {
        true => assert!(node.restore()),
        false => {
            node.start();
            node.pass(5.0);
            assert!(node.stop());
        }
    }
    node.all_hold(700.0);
}

/// A backup brings an older copy of the journal back, which does not know what litd set last. Its log does.
#[test]
fn an_older_copy_of_the_journal_gives_back_what_was_found() {
    for restores in [true, false] {
        let mut node = Node::under(1800.0, found_at(4, 700.0));
        let older = node.disk.journal();
        node.command(budget(1400.0)).unwrap();
        node.pass(5.0);
        node.all_hold(350.0);
        node.kill();
        node.disk.put_journal(older);
        goes_back(&mut node, restores);
        assert_eq!(node.disk.journal_keeps(), Vec::<String>::new());
    }
}

/// Drivers that count in another unit than they tell: what they make of a cap is litd's as the cap is.
#[test]
fn what_a_driver_rounds_goes_back_after_a_crash() {
    for (crash, restores) in [(5.0, true), (5.0, false), (0.0, true)] {
        let mut gpus = found_at(4, 700.0);
        for gpu in &mut gpus {
            gpu.writes = Writes::Rounded;
        }
        let mut node = Node::with(gpus, observing());
        node.pass(5.0);
        node.command(budget(1732.0)).unwrap();
        node.pass(crash);
        node.kill();
        assert!(node.caps()[1] < 433.0, "{:?}", node.caps());
        goes_back(&mut node, restores);
    }
}

/// The same without a crash, where it is told later what came of a cap.
#[test]
fn what_a_driver_rounds_later_is_nobody_elses() {
    let mut node = Node::with(found_at(4, 700.0), observing());
    node.pass(5.0);
    for gpu in &mut node.gpus {
        gpu.writes = Writes::RoundedLater;
    }
    node.command(budget(1732.0)).unwrap();
    node.pass(60.0);
    assert!(node.caps()[1] < 433.0, "{:?}", node.caps());
    let states = node.status().devices;
    let ours = |it: &litd_api::DeviceStatus| it.state == DeviceState::Ours;
    assert!(states.iter().all(ours), "{states:?}");
    // Nor is it written over and over.
    assert!(node.writes_to(1) < 4, "{:?}", node.log);
    assert!(node.stop());
    node.all_hold(700.0);
}

/// litd is off and holds the safe budget, which a GPU that refuses, hangs or holds a foreign cap keeps from being kept.
fn off_holds_too_much(fails: fn(&mut Node)) -> Node {
    let mut config = observing();
    config.caps.safe_budget = Some(Watts(500.0));
    config.caps.on_exit = OnExit::Hold;
    let mut node = Node::with(found_at(2, 600.0), config);
    node.command(lease(1200.0, 600.0)).unwrap();
    node.pass(10.0);
    node.all_hold(600.0);
    fails(&mut node);
    node.kill_switch(true);
    node.pass(20.0);
    assert_eq!(node.caps(), [600.0, 200.0]);
    node
}

const NOT_KEPT: &str = "the safe budget of 500 W is not kept while litd is off";

#[test]
fn off_holds_too_much_is_told() {
    let refuses = |node: &mut Node| node.gpus[0].writes = Writes::Fail;
    let hangs = |node: &mut Node| node.gpus[0].hangs = true;
    let released = |node: &mut Node| {
        node.command(release(0)).unwrap();
        node.pass(3.0);
    };
    for fails in [refuses, hangs, released] {
        let node = off_holds_too_much(fails);
        let told = node.log.iter().filter(|it| it.contains(NOT_KEPT));
        assert_eq!(told.count(), 1);
        assert!(node.status().node.summary.contains(NOT_KEPT));
    }
}

/// Once it can be lowered that is told as well, and a litd that is on again has another budget to keep.
#[test]
fn off_holds_again_is_told() {
    let mut node = off_holds_too_much(|node| node.gpus[0].writes = Writes::Fail);
    node.gpus[0].writes = Writes::Taken;
    node.pass(40.0);
    node.holds_at_most(500.0);
    let again = |it: &String| it.contains("the GPUs' caps are within the budget again");
    assert!(node.log.iter().any(again));
    assert!(!node.status().node.summary.contains(NOT_KEPT));
}

/// Somebody sets a cap while litd goes off, and a write fails, so that litd reads that cap: it is told as left alone until
/// `litctl resume`, and is.
#[test]
fn a_cap_that_is_set_while_litd_goes_off_is_left_alone_afterwards() {
    for crash in [false, true] {
        let mut node = Node::under(2000.0, found_at(4, 700.0));
        node.pass(10.0);
        node.gpus[1].writes = Writes::Fail;
        node.by_others(1, 380.0);
        node.kill_switch(true);
        node.pass(1.5);
        node.gpus[1].writes = Writes::Taken;
        node.pass(10.0);
        let told = |it: &String| it.contains("left alone until `litctl resume 0000:02:00.0`");
        assert!(node.log.iter().any(told), "{:?}", node.log);
        assert_eq!(node.caps()[1], 380.0);
        if crash {
            node.kill();
            node.start();
            node.pass(10.0);
        }
        node.kill_switch(false);
        node.pass(10.0);
        assert_eq!(node.status().devices[1].state, DeviceState::Foreign);
        assert_eq!(node.caps()[1], 380.0);
        let device = Some("gpu1".to_owned());
        node.command(Command::Resume { device }).unwrap();
        node.pass(10.0);
        assert_eq!(node.status().devices[1].state, DeviceState::Ours);
    }
}

/// A GPU that was released by name is told as released also where litd starts switched off, and stays so afterwards.
#[test]
fn a_gpu_that_was_released_is_released_after_a_start_with_mode_off() {
    let mut node = Node::under(2000.0, found_at(4, 700.0));
    node.pass(5.0);
    node.command(release(1)).unwrap();
    node.pass(10.0);
    assert!(node.stop());
    let on = node.config.clone();
    node.config.mode = litd_api::Mode::Off;
    node.start();
    node.pass(10.0);
    assert_eq!(node.status().devices[1].state, DeviceState::Released);
    assert_eq!(node.status().devices[2].state, DeviceState::Closed);
    node.reload(on);
    node.pass(10.0);
    assert_eq!(node.status().devices[1].state, DeviceState::Released);
    assert_eq!(node.status().devices[2].state, DeviceState::Ours);
}

/// A foreign cap stays foreign over a restart, also where its GPU's driver tells no range at first.
#[test]
fn a_foreign_cap_is_left_alone_after_a_start_in_which_its_range_is_not_told() {
    for crash in [false, true] {
        let mut node = Node::under(2000.0, found_at(4, 700.0));
        node.pass(10.0);
        node.by_others(1, 444.0);
        node.pass(5.0);
        assert_eq!(node.status().devices[1].state, DeviceState::Foreign);
        match crash {
            true => node.kill(),
            false => assert!(node.stop()),
        }
        node.gpus[1].hides_range = true;
        node.start();
        node.pass(10.0);
        assert_eq!(node.caps()[1], 444.0);
        node.gpus[1].hides_range = false;
        node.pass(60.0);
        assert_eq!(node.caps()[1], 444.0, "{:?}", node.log);
        assert_eq!(node.status().devices[1].state, DeviceState::Foreign);
        assert!(node.sum() <= 2000.0, "{:?}", node.caps());
    }
}
