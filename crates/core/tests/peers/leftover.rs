//! Caps of a dead litd that were changed by others since.

use litd_api::Command;
use litd_core::{Config, Core, Effect, MemoryStore, Reply};
use litd_power::PowerError;
use litd_units::{Nanos, Watts};

use crate::node::{Node, SECOND, address, beside, config};

/// The files of a daemon that dies while it holds two GPUs of 700 W within a budget of 1,000 W.
fn left_at_500_watts() -> (Config, MemoryStore) {
    let mut config = config();
    config.caps.budget = Some(Watts(1000.0));
    let mut first = Node::new(2, config.clone());
    for _ in 0..3 {
        first.pass(SECOND);
    }
    assert_eq!(first.cap(0), Watts(500.0));
    let left = MemoryStore::clone(first.core.store());
    (config, left)
}

#[test]
fn a_cap_that_litd_goes_on_to_move_is_not_said_to_be_left_as_it_is() {
    let _beside = beside();
    let (config, left) = left_at_500_watts();
    let mut node = Node::begin(2, 0, config, left, Some(0));
    node.speak(Watts(650.0));
    for _ in 0..5 {
        node.pass(SECOND);
    }
    assert!(node.cap(0) < Watts(600.0), "{}", node.cap(0));
    let said = node.core.events(0).events;
    let said = said.iter().find(|it| it.text.contains("never set"));
    assert_eq!(
        said.unwrap().text,
        "holds 650 W, which litd never set: that is the cap found from now on, and not 700 W, found before"
    );
}

/// A GPU that was left with a cap of litd's and is not found by the next one is in the baseline: who checks the node by
/// it does not take the node for well.
#[test]
fn a_gpu_that_is_gone_with_a_cap_of_litds_is_in_the_baseline() {
    let _beside = beside();
    let (config, left) = left_at_500_watts();
    let (gone, now) = (address(1), Nanos(SECOND));
    let begin = |boot: &str, left: MemoryStore| {
        let mut core = Core::new(config.clone(), Vec::new(), left, boot, now, 1e9).unwrap();
        let mut told = core
            .effects()
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Baseline(baseline) => Some(baseline.devices),
                _ => None,
            });
        let devices = told.next_back().unwrap_or_default();
        devices.into_iter().find(|it| it.address == gone)
    };
    assert_eq!(begin("boot", left.clone()).unwrap().cap, Watts(700.0));
    // Since then its driver has begun with a cap of its own.
    assert_eq!(begin("another boot", left), None);
}

/// The next litd of a node whose first GPU is to be raised within a budget of 1,200 W when the first one dies, and does
/// nothing of it yet. Its own budget is 1,000 W, and the log is gone: it has another state directory.
fn raised_when_it_died(budget: f64, fails: bool) -> Node {
    let mut config = config();
    config.caps.budget = Some(Watts(1200.0));
    let mut first = Node::new(2, config.clone());
    first.wait(3);
    assert_eq!(first.cap(0), Watts(600.0));
    first.ignores = Some(0);
    let watts = Some(Watts(budget));
    let failed = || PowerError::Driver {
        device: address(0),
        action: "setting the cap",
        cause: "timeout".to_owned(),
    };
    let command = Command::SetBudget { watts };
    let mut answers = |reply| match reply {
        Reply::Set(_) if fails => Reply::Set(Err(failed())),
        reply => reply,
    };
    if !fails {
        first.slow = Some(0);
    }
    first.command(command, &mut answers).unwrap();
    assert_eq!(first.cap(0), Watts(600.0));
    config.caps.budget = Some(Watts(1000.0));
    let mut next = first.restarted_elsewhere(config);
    next.wait(5);
    next
}

/// Within a lower budget there is room for what the first GPU may come to hold late, whoever reads the journal.
#[test]
fn a_raise_that_may_be_done_after_litd_has_died_has_room_within_the_next_budget() {
    let _beside = beside();
    for (budget, late, fails) in [(1400.0, 700.0, true), (1300.0, 650.0, false)] {
        let mut next = raised_when_it_died(budget, fails);
        let others = next.cap(1);
        assert!(
            others <= Watts(1000.0 - late),
            "{others} beside {late} W: {:?}",
            next.events()
        );
        // The write is not done: it is waited for no longer than it may be late.
        next.wait(40);
        assert_eq!((next.cap(0), next.cap(1)), (Watts(500.0), Watts(500.0)));
    }
}
