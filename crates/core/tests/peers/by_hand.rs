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

/// Nobody has released the devices of a litd that is off, and `litctl resume` would not take them back.
#[test]
fn an_override_in_a_litd_that_is_off_is_refused_for_that_and_not_for_a_release() {
    let _beside = beside();
    let mut config = config();
    config.mode = Mode::Off;
    let mut node = Node::with_cpus(1, 0, config);
    node.pass(SECOND);
    let command = || Command::SetCap {
        device: "gpu0".to_owned(),
        watts: Watts(600.0),
    };
    let why = node.command(command(), &mut |reply| reply);
    let why = why.unwrap_err().error;
    assert!(
        why.starts_with("gpu0 is closed, because litd is off: "),
        "{why}"
    );
    node.sound(Event::Reloaded(Box::new(self::config())));
    node.pass(SECOND);
    let released = Command::Release {
        device: Some("gpu0".to_owned()),
    };
    node.command(released, &mut |reply| reply).unwrap();
    let why = node.command(command(), &mut |reply| reply);
    let why = why.unwrap_err().error;
    assert_eq!(
        why,
        "gpu0 is released, so litd does not set its cap: `litctl resume gpu0` first"
    );
}
