//! Clocks that are locked by drivers that answer late, never, or with an excuse: free in the end all the same.

use litd_api::Command;
use litd_core::{Event, Stage};
use litd_proto::{Bye, FromHook};
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
    let mut restoring = restoring.restored(config());
    restoring.wait(4);
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

/// A lock has failed, its job is over, and then it is done after all.
fn locked_after_all() -> Node {
    let mut node = Node::new(1, config());
    let session = node.attach(0, 1);
    node.clock_driver = ClockDriver::Fails;
    node.ask_clock(session, Some(1200.0));
    node.clock_driver = ClockDriver::Does;
    node.say(session, &FromHook::Bye(Bye::default()));
    node.wait(3);
    assert_eq!(node.locks.last(), Some(&None));
    node.locks.push(LOCK);
    node
}

fn tell(node: &mut Node, command: Command) {
    node.command(command, &mut |reply| reply).unwrap();
    node.wait(2);
}

/// A released GPU is unlocked, and nobody removes its users' lock later, or opens it.
#[test]
fn a_gpu_that_was_let_go_of_is_freed_once_and_then_left_alone() {
    let _beside = beside();
    let mut node = locked_after_all();
    tell(&mut node, Command::Release { device: None });
    assert!(!node.is_locked());
    let progress = node.core.letting_go(None);
    assert_eq!(progress.stage, Stage::Done);
    let said = &progress.said;
    assert!(said.contains("a lock of them that failed"), "{said}");
    let (opened, theirs) = (node.opened, Some(Hertz(9e8)));
    node.locks.push(theirs);
    node.wait(60);
    assert_eq!((node.locks.last(), node.opened), (Some(&theirs), opened));
    // A late lock after the release is undone once the GPU is litd's again.
    assert_eq!(node.journaled_clocks(), [address(0)]);
    tell(&mut node, Command::Resume { device: None });
    assert!(!node.is_locked());
    assert!(node.journaled_clocks().is_empty());
}

/// A stop is the last chance to undo what was done since.
#[test]
fn a_gpu_that_was_let_go_of_is_freed_at_a_stop() {
    let _beside = beside();
    let mut node = locked_after_all();
    tell(&mut node, Command::Release { device: None });
    node.wait(60);
    node.locks.push(LOCK);
    node.sound(Event::Stop);
    node.wait(3);
    assert!(!node.is_locked());
    assert!(node.journaled_clocks().is_empty());
}

/// A job's end tells the truth, and the next job, which opted out, keeps the lock that it sets.
#[test]
fn a_job_that_opted_out_keeps_its_own_lock_after_one_that_failed() {
    let _beside = beside();
    let mut node = locked_after_all();
    let (gpus, job) = (vec!["0".to_owned()], "slurm-1".to_owned());
    let (end, next) = (job.clone(), "slurm-2".to_owned());
    tell(
        &mut node,
        Command::EndJob {
            job,
            gpus: gpus.clone(),
        },
    );
    assert!(!node.is_locked());
    let said = node.core.giving_back(&end).said;
    assert!(said.contains("a lock of them that failed"), "{said}");
    node.locks.push(LOCK);
    let (job, opt_out) = (next.clone(), true);
    tell(
        &mut node,
        Command::BeginJob {
            job,
            gpus: gpus.clone(),
            opt_out,
        },
    );
    assert!(!node.is_locked());
    let theirs = Some(Hertz(9e8));
    node.locks.push(theirs);
    node.wait(60);
    assert_eq!(node.locks.last(), Some(&theirs));
    assert_eq!(node.journaled_clocks(), [address(0)]);
    tell(&mut node, Command::EndJob { job: next, gpus });
    assert!(!node.is_locked());
    assert!(node.journaled_clocks().is_empty());
}

/// A driver has locked clocks, and says once that it knows no such thing: of the next lock, or of the end of it.
#[test]
fn a_lock_is_undone_also_where_its_driver_said_once_that_it_can_not() {
    let _beside = beside();
    for next in [None, Some(1300.0)] {
        let mut node = Node::new(1, config());
        let session = node.attach(0, 1);
        node.ask_clock(session, Some(1200.0));
        assert!(node.is_locked());
        node.clock_driver = ClockDriver::CanNot;
        node.ask_clock(session, next);
        node.clock_driver = ClockDriver::Does;
        node.say(session, &FromHook::Bye(Bye::default()));
        node.wait(3);
        assert!(!node.is_locked(), "{:?}", node.events());
        assert!(node.journaled_clocks().is_empty());
    }
}

/// Where litd may not lock clocks nothing is to be undone: not by the next one, and not at a stop.
#[test]
fn a_lock_that_is_forbidden_keeps_no_stop_waiting() {
    let _beside = beside();
    for driver in [ClockDriver::Forbids, ClockDriver::CanNot] {
        let mut node = asked(driver);
        assert!(node.journaled_clocks().is_empty(), "{:?}", node.events());
        node.sound(Event::Stop);
        node.wait(3);
        assert!(node.stopped, "{:?}", node.events());
    }
}

/// A GPU that was locked, and that litd may not unlock any more, is reported at a stop.
#[test]
fn a_lock_that_may_not_be_undone_stays_in_the_journal() {
    let _beside = beside();
    let mut node = asked(ClockDriver::Does);
    node.clock_driver = ClockDriver::Forbids;
    node.sound(Event::Stop);
    node.wait(20);
    assert_eq!(node.journaled_clocks(), [address(0)]);
    let events = node.events();
    let said = |text: &String| text.contains("caps or clocks of ");
    assert!(events.iter().any(said), "{events:?}");
}

/// A stop with a failed lock outstanding is not a crash.
#[test]
fn what_a_stop_has_left_is_not_said_to_be_of_a_crash() {
    let _beside = beside();
    let mut node = asked(ClockDriver::Fails);
    node.clock_driver = ClockDriver::Does;
    node.sound(Event::Stop);
    node.wait(3);
    assert!(node.stopped);
    let restoring = node.restored(config());
    let said = restoring.events().into_iter();
    let said: Vec<String> = said.filter(|text| text.contains("its clocks")).collect();
    let text =
        "a lock of its clocks that failed, or got no answer, may be done by now: litd unlocks them";
    assert_eq!(said, [text]);
}
