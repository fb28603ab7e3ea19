//! Writes that are said to have failed and are done later: whatever happens to litd between, each
//! GPU gets back what was found.

use litd_api::{Command, DeviceState};
use litd_core::Event;
use litd_units::Watts;

use crate::gpu::{Writes, found_at};
use crate::node::{Node, SECOND, budget, observing, release};

/// A budget has just come down, and gpu1's write failed; it lands so many seconds later.
fn failed_write(lands_after: i64) -> Node {
    let mut node = Node::new(4);
    node.pass(5.0);
    failing(&mut node, lands_after, |node| {
        node.command(budget(1600.0)).unwrap();
    });
    node
}

fn failing(node: &mut Node, lands_after: i64, when: fn(&mut Node)) {
    node.gpus[1].writes = Writes::FailAndLand(lands_after * SECOND);
    when(node);
    node.pass(0.3);
    node.gpus[1].writes = Writes::Taken;
}

fn stopped_after_a_minute(mut node: Node) {
    node.pass(60.0);
    assert!(node.has_landed(1), "{:?}", node.log);
    assert!(node.stop(), "the stop does not come to an end");
    node.all_hold(700.0);
}

/// gpu1's writes failed, and somebody else has set 500 W by another way, on top of which they land 12 s later.
fn failed_write_below_somebody_elses_cap() -> Node {
    let mut node = Node::new(4);
    node.pass(5.0);
    node.gpus[1].writes = Writes::FailAndLand(12 * SECOND);
    node.command(budget(1600.0)).unwrap();
    node.pass(0.3);
    node.gpus[1].cap = Watts(500.0);
    node.pass(5.0);
    node.gpus[1].writes = Writes::Taken;
    let status = node.status();
    assert_eq!(status.devices[1].state, DeviceState::Foreign);
    assert_eq!(node.gpus[1].cap, Watts(500.0));
    node
}

/// gpu1 goes back from 500 W to the 700 W found, by a write that its driver calls failed and does 12 s later.
fn failed_write_back() -> Node {
    let mut node = Node::new(4);
    node.pass(5.0);
    node.command(budget(2000.0)).unwrap();
    node.pass(10.0);
    assert_eq!(node.gpus[1].cap, Watts(500.0));
    node.gpus[1].writes = Writes::FailAndLand(12 * SECOND);
    node.command(Command::SetBudget { watts: None }).unwrap();
    node.pass(0.3);
    node
}

/// The same where the late write is one of the cap that litd had found.
#[test]
fn of_the_cap_found_on_top_of_somebody_elses_cap() {
    let mut node = failed_write_back();
    node.gpus[1].cap = Watts(400.0);
    node.pass(5.0);
    node.gpus[1].writes = Writes::Taken;
    assert_eq!(node.status().devices[1].state, DeviceState::Foreign);
    node.pass(40.0);
    assert!(node.has_landed(1), "{:?}", node.log);
    assert_eq!(node.gpus[1].cap, Watts(400.0), "{:?}", node.log);
    assert!(node.stop());
    assert_eq!(node.gpus[1].cap, Watts(400.0));
}

/// A second write has succeeded, and somebody has changed the cap since: it is the one found now, and whoever comes
/// after an orderly stop knows that the first write may replace it.
#[test]
fn of_the_cap_that_was_found_before_somebody_changed_it() {
    let mut node = failed_write_back();
    node.out_of_order = true;
    node.gpus[1].writes = Writes::Taken;
    node.pass(3.0);
    assert_eq!(node.gpus[1].cap, Watts(700.0));
    node.gpus[1].cap = Watts(400.0);
    node.pass(3.0);
    assert!(node.stop());
    node.pass(10.0);
    assert!(node.has_landed(1), "{:?}", node.log);
    assert!(node.restore());
    assert_eq!(node.gpus[1].cap, Watts(400.0), "{:?}", node.log);
}

const GPU1: &str = "0000:02:00.0";

/// `litd restore` has given back the cap found by its second write. The first one, which its driver called failed,
/// would replace what an administrator sets then: the entry stays until it can't, and whoever runs it again before it
/// lands saves his cap.
#[test]
fn of_the_cap_found_that_a_restore_has_given_back_by_another_write() {
    for runs_again in [false, true] {
        let mut node = Node::new(4);
        node.pass(5.0);
        node.command(budget(2000.0)).unwrap();
        node.pass(10.0);
        node.kill();
        node.out_of_order = true;
        node.gpus[1].writes = Writes::FailAndLand(12 * SECOND);
        let late = node.restore_meanwhile(0.5, |node| node.gpus[1].writes = Writes::Taken);
        assert_eq!(node.gpus[1].cap, Watts(700.0), "{:?}", node.log);
        assert_eq!(late, [GPU1], "{:?}", node.log);
        assert_eq!(node.disk.journal_keeps(), [GPU1]);
        node.gpus[1].cap = Watts(400.0);
        if runs_again {
            assert_eq!(node.restore_meanwhile(0.0, |_| {}), [GPU1]);
        }
        node.pass(35.0);
        assert!(node.has_landed(1), "{:?}", node.log);
        assert!(node.restore());
        let expected = if runs_again { 400.0 } else { 700.0 };
        assert_eq!(node.gpus[1].cap, Watts(expected), "{:?}", node.log);
        assert_eq!(node.disk.journal_keeps(), [""; 0]);
    }
}

/// The same of a litd that is stopped in order after its second write: it does not wait, and its entry says so to `litd
/// restore`, also where it had left the journal while litd ran.
#[test]
fn of_the_cap_found_that_litd_has_given_back_by_another_write_before_a_stop() {
    for runs_on in [0.0, 5.0] {
        let mut node = failed_write_back();
        node.out_of_order = true;
        node.gpus[1].writes = Writes::Taken;
        node.pass(runs_on);
        if runs_on > 0.0 {
            assert_eq!(node.disk.journal_keeps(), [""; 0]);
        }
        let begins = node.now;
        assert!(node.stops_and_keeps(&[GPU1]), "{:?}", node.log);
        assert!(node.now < begins + 5 * SECOND, "{:?}", node.log);
        assert_eq!(node.gpus[1].cap, Watts(700.0));
        node.gpus[1].cap = Watts(400.0);
        assert_eq!(node.restore_meanwhile(0.0, |_| {}), [GPU1]);
        node.pass(35.0);
        assert!(node.has_landed(1), "{:?}", node.log);
        assert!(node.restore());
        assert_eq!(node.gpus[1].cap, Watts(400.0), "{:?}", node.log);
        assert_eq!(node.disk.journal_keeps(), [""; 0]);
    }
}

/// A foreign cap is restored where a late write replaces it.
#[test]
fn on_top_of_somebody_elses_cap() {
    let mut node = failed_write_below_somebody_elses_cap();
    node.pass(20.0);
    assert!(node.has_landed(1), "{:?}", node.log);
    assert_eq!(node.gpus[1].cap, Watts(500.0), "the late write stays");
    assert!(node.stop(), "the stop does not come to an end");
    assert_eq!(node.gpus[1].cap, Watts(500.0));
}

/// The same, and litd stops before it lands: it doesn't wait, and the next start gives theirs back.
#[test]
fn on_top_of_somebody_elses_cap_after_a_stop() {
    let mut node = failed_write_below_somebody_elses_cap();
    assert!(node.stop(), "the stop does not come to an end");
    node.pass(20.0);
    assert!(node.has_landed(1), "{:?}", node.log);
    node.start();
    node.pass(5.0);
    assert_eq!(node.gpus[1].cap, Watts(500.0), "the late write stays");
}

/// The same, and it never lands. Once none can be late any more `litd restore` forgets it, and what somebody sets then is
/// his, also where it is the cap that had failed.
#[test]
fn never_on_top_of_somebody_elses_cap() {
    for crash in [false, true] {
        let mut node = failed_write_below_somebody_elses_cap();
        node.forget_late();
        match crash {
            true => node.kill(),
            false => assert!(node.stop(), "the stop does not come to an end"),
        }
        assert!(node.restore(), "the restore does not come to an end");
        assert_eq!(node.disk.journal_keeps(), ["0000:02:00.0"]);
        node.pass(33.0);
        assert!(node.restore(), "the restore does not come to an end");
        assert_eq!(node.disk.journal_keeps(), [""; 0]);
        node.gpus[1].cap = Watts(400.0);
        assert!(node.restore(), "the restore does not come to an end");
        assert_eq!(node.gpus[1].cap, Watts(400.0));
    }
}

/// litd is killed in the middle of a write, and the wall clock is corrected before the restore: the write is as late as
/// it is.
#[test]
fn in_the_middle_of_a_write_whatever_the_wall_clock_says() {
    for ahead in [0.0, 3600.0, -3600.0] {
        let mut node = Node::new(4);
        node.pass(5.0);
        node.gpus[0].write_takes = 6 * SECOND;
        node.command(budget(1600.0)).unwrap();
        node.pass(0.5);
        node.kill();
        node.gpus[0].write_takes = 0;
        node.wall_ahead = ahead;
        assert!(node.restore(), "the restore does not come to an end");
        assert_eq!(node.disk.journal_keeps(), ["0000:01:00.0"], "{ahead}");
        // It is done.
        node.gpus[0].cap = Watts(400.0);
        node.pass(33.0);
        assert!(node.restore(), "the restore does not come to an end");
        assert_eq!(node.disk.journal_keeps(), [""; 0], "{ahead}");
        node.all_hold(700.0);
    }
}

/// litd stops, and what systemd runs after a stop ends before it lands: nobody waits for it, and the next start, when
/// nothing can be late any more, knows that what is there was litd's.
#[test]
fn after_a_stop_and_what_runs_after_it() {
    let mut node = failed_write(24);
    // litd waits for its own writes, in vain, and leaves them to the next.
    assert!(node.stops_and_keeps(&["0000:02:00.0"]));
    let is_told = node
        .log
        .iter()
        .any(|it| it.contains("could not be restored"));
    assert!(!is_told, "{:?}", node.log);
    assert!(node.restore(), "it waits for a predecessor's write");
    node.pass(60.0);
    assert!(node.gpus[1].cap < Watts(700.0), "it has landed");
    node.start();
    node.pass(5.0);
    node.all_hold(700.0);
}

/// Released at once, resumed after it landed.
#[test]
fn while_released() {
    let mut node = failed_write(10);
    node.command(release(1)).unwrap();
    node.pass(23.0);
    let device = Some("gpu1".to_owned());
    node.command(Command::Resume { device }).unwrap();
    stopped_after_a_minute(node);
}

/// The same by the kill switch, without anybody's release.
#[test]
fn while_the_kill_switch_is_on() {
    let mut node = failed_write(12);
    node.kill_switch(true);
    node.pass(25.0);
    node.kill_switch(false);
    stopped_after_a_minute(node);
}

/// A second write was taken before the crash.
#[test]
fn older_write_after_a_crash() {
    let mut node = failed_write(15);
    node.out_of_order = true;
    node.command(budget(2000.0)).unwrap();
    node.pass(3.0);
    node.kill();
    node.pass(0.5);
    node.start();
    stopped_after_a_minute(node);
}

/// After a crash litd goes off and on again, twice, before it lands.
#[test]
fn off_and_on_after_a_crash() {
    let mut node = Node::under(1600.0, found_at(4, 700.0));
    node.out_of_order = true;
    node.kill();
    node.config.caps.budget = Some(Watts(1200.0));
    failing(&mut node, 14, Node::start);
    for (on, seconds) in [(true, 1.5), (false, 1.5), (true, 2.0)] {
        node.kill_switch(on);
        node.pass(seconds);
    }
    let mut config = observing();
    config.caps.budget = Some(Watts(1000.0));
    node.event(Event::Reloaded(Box::new(config)));
    node.kill_switch(false);
    stopped_after_a_minute(node);
}

/// Two GPUs of which gpu1 fails a cap by hand, which lands five seconds later.
fn failed_by_hand() -> Node {
    let mut node = Node::new(2);
    node.pass(5.0);
    failing(&mut node, 5, |node| {
        let device = "gpu1".to_owned();
        let watts = Watts(300.0);
        node.command(Command::SetCap { device, watts }).unwrap();
    });
    node.pass(0.7);
    node
}

#[test]
fn cap_by_hand_after_a_stop() {
    let mut node = failed_by_hand();
    let done = node.stop();
    node.pass(10.0);
    assert!(node.has_landed(1), "{:?}", node.log);
    if done {
        node.all_hold(700.0);
    }
}

#[test]
fn cap_by_hand_after_a_crash() {
    let mut node = failed_by_hand();
    node.kill();
    node.start();
    stopped_after_a_minute(node);
}

/// The dead litd's process waits in its driver for over a minute, through a restore and a stop, before the write is
/// done: whoever runs meanwhile is told that it hangs.
#[test]
fn after_a_minute_because_the_dead_hangs() {
    let mut node = failed_write(100);
    node.out_of_order = true;
    node.kill();
    node.start();
    hangs(&mut node, 40);
    let all = [
        "0000:01:00.0",
        "0000:02:00.0",
        "0000:03:00.0",
        "0000:04:00.0",
    ];
    assert!(node.stops_and_keeps(&all), "{:?}", node.log);
    node.start();
    hangs(&mut node, 70);
    stopped_after_a_minute(node);
}

/// Time passes, and a process of an earlier litd hangs.
fn hangs(node: &mut Node, seconds: u32) {
    for _ in 0..seconds {
        node.event(Event::PredecessorHangs);
        node.pass(1.0);
    }
}

/// litd is killed while it lowers two GPUs, whose writes are done later, and its log is lost: nobody knows that there was
/// no answer. The entries stay for as long as the writes may land, and no longer, however often `litd restore` is run.
#[test]
fn on_nodes_whose_log_was_lost() {
    let mut node = Node::with(found_at(2, 700.0), observing());
    node.pass(5.0);
    node.command(budget(1000.0)).unwrap();
    node.kill();
    node.disk.lose_log();
    for gpu in &mut node.gpus {
        gpu.cap = Watts(700.0);
    }
    for _ in 0..2 {
        assert!(node.restore());
        assert_eq!(node.disk.journal_keeps().len(), 2, "{:?}", node.log);
    }
    node.gpus[0].cap = Watts(500.0);
    assert!(node.restore());
    node.all_hold(700.0);
    node.gpus[1].cap = Watts(500.0);
    node.pass(35.0);
    assert!(node.restore());
    node.all_hold(700.0);
    assert_eq!(node.disk.journal_keeps(), Vec::<String>::new());
}

/// The journal's end is lost, so that it does not name the cap that GPUs hold. With its log litd knows the cap as its
/// own; without, somebody else may have set it: it stays, and `litd restore` says so.
#[test]
fn caps_that_no_file_names_any_more() {
    for lost in [true, false] {
        let mut node = Node::with(found_at(2, 700.0), observing());
        node.pass(5.0);
        node.command(budget(1200.0)).unwrap();
        node.pass(5.0);
        let older = node.disk.journal();
        node.command(budget(900.0)).unwrap();
        node.pass(5.0);
        node.all_hold(450.0);
        node.kill();
        node.disk.put_journal(older);
        if lost {
            node.disk.lose_log();
        }
        let unclaimed = node.restore_unless_unclaimed();
        node.all_hold(if lost { 450.0 } else { 700.0 });
        assert_eq!(unclaimed.len(), if lost { 2 } else { 0 });
        for it in unclaimed {
            assert_eq!((it.held, it.found), (Watts(450.0), Watts(700.0)));
        }
    }
}
