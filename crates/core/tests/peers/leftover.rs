//! What a litd that has died has left, and somebody else has changed since.

use litd_core::MemoryStore;
use litd_units::Watts;

use crate::node::{Node, SECOND, beside, config};

#[test]
fn a_cap_that_litd_goes_on_to_move_is_not_said_to_be_left_as_it_is() {
    let _beside = beside();
    let mut config = config();
    config.caps.budget = Some(Watts(1000.0));
    let mut first = Node::new(2, config.clone());
    for _ in 0..3 {
        first.pass(SECOND);
    }
    assert_eq!(first.cap(0), Watts(500.0));
    let left = MemoryStore::clone(first.core.store());
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
