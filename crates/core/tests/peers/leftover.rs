//! What a litd that has died has left, and somebody else has changed since.

use litd_core::{Config, Core, Effect, MemoryStore};
use litd_units::{Nanos, Watts};

use crate::node::{Node, SECOND, address, beside, config};

/// What a daemon leaves that dies while it holds two GPUs of 700 W within a budget of 1,000 W.
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
        "holds 650 W, which litd never set: that goes back from now on, and not 700 W, which was found before"
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
