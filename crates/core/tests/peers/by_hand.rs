//! A cap set by hand that nobody waits for any longer.

use litd_api::{Command, Mode};
use litd_core::Event;
use litd_units::Watts;

use crate::node::{Node, SECOND, beside, config};

#[test]
fn no_cap_goes_back_before_there_is_room_beside_one_by_hand_that_is_under_way() {
    let _beside = beside();
    let mut config = config();
    config.caps.budget = Some(Watts(1200.0));
    let mut node = Node::with_cpus(2, 1, config.clone());
    for _ in 0..3 {
        node.pass(SECOND);
    }
    assert_eq!(node.cap(0) + node.cap(1), Watts(1200.0));
    let found = Watts(2.0 * 700.0) + node.cap(2);
    node.slow = Some(2);
    let command = Command::SetCap {
        device: "cpu0".to_owned(),
        watts: Watts(740.0),
    };
    node.command(command, &mut |reply| reply).unwrap();
    assert_eq!(node.cap(2), Watts(740.0));
    // litd goes off before the socket's driver has answered.
    config.mode = Mode::Off;
    node.sound(Event::Reloaded(Box::new(config)));
    let sum = node.cap(0) + node.cap(1) + node.cap(2);
    assert!(sum <= found, "{sum} of {found}");
    node.answer();
    node.pass(SECOND);
    let caps = [node.cap(0), node.cap(1), node.cap(2)];
    assert_eq!(caps, [Watts(700.0); 3]);
}
