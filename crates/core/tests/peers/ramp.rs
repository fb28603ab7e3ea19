//! `caps.max_rise_w_per_s`: no faster rise, never a slower decrease.

use litd_api::Command;
use litd_core::{Config, Event};
use litd_units::Watts;

use crate::node::{Node, SECOND, address, beside, config};

const GPUS: usize = 4;

/// The caps of all GPUs together.
fn sum(node: &Node) -> Watts {
    (0..GPUS).map(|gpu| node.cap(gpu)).sum()
}

fn with_budget(watts: Option<f64>) -> Config {
    let mut config = config();
    config.caps.budget = watts.map(Watts);
    config.caps.max_rise_w_per_s = Some(100.0);
    config
}

/// A node of 4 x 700 W whose budget is 1600 W.
fn lowered() -> Node {
    let mut node = Node::new(GPUS, with_budget(Some(1600.0)));
    for _ in 0..3 {
        node.pass(SECOND);
    }
    assert_eq!(sum(&node), Watts(1600.0));
    node
}

fn reload(node: &mut Node, watts: Option<f64>) {
    node.sound(Event::Reloaded(Box::new(with_budget(watts))));
}

#[test]
fn a_larger_budget_is_used_at_the_rate_and_in_full() {
    let _beside = beside();
    let mut node = lowered();
    reload(&mut node, Some(2400.0));
    let mut last = sum(&node);
    assert!(
        last <= Watts(1700.0),
        "a second's worth is saved up: {last}"
    );
    for second in 1..=8 {
        // Many events within a second give no more than one.
        for _ in 0..10 {
            node.pass(SECOND / 10);
        }
        let now = sum(&node);
        assert!(
            now <= last + Watts(100.0) + Watts(1e-3),
            "{second}: {last} to {now}"
        );
        last = now;
    }
    assert_eq!(last, Watts(2400.0));
    let caps: Vec<Watts> = (0..GPUS).map(|gpu| node.cap(gpu)).collect();
    assert_eq!(caps, [Watts(600.0); GPUS]);
}

#[test]
fn a_smaller_budget_is_kept_at_once_and_so_is_one_that_comes_while_caps_rise() {
    let _beside = beside();
    let mut node = lowered();
    reload(&mut node, Some(2400.0));
    node.pass(3 * SECOND);
    assert!(sum(&node) > Watts(1700.0));
    reload(&mut node, Some(1000.0));
    assert_eq!(sum(&node), Watts(1000.0));
}

#[test]
fn a_stop_waits_for_nothing() {
    let _beside = beside();
    let mut node = lowered();
    node.sound(Event::Stop);
    for _ in 0..3 {
        node.pass(SECOND);
    }
    assert!(node.stopped);
    assert_eq!(sum(&node), Watts(2800.0));
}

#[test]
fn a_lifted_budget_gives_the_caps_found_back_at_the_rate() {
    let _beside = beside();
    let mut node = lowered();
    reload(&mut node, None);
    node.pass(SECOND);
    assert!(sum(&node) <= Watts(1800.0), "{}", sum(&node));
    for _ in 0..12 {
        node.pass(SECOND);
    }
    assert_eq!(sum(&node), Watts(2800.0));
}

#[test]
fn a_device_that_is_released_or_set_by_hand_waits_for_nothing() {
    let _beside = beside();
    let mut node = lowered();
    reload(&mut node, Some(2400.0));
    let released = Command::Release {
        device: Some(address(0)),
    };
    node.command(released, &mut |reply| reply).unwrap();
    assert_eq!(node.cap(0), Watts(700.0));
    let mut node = Node::new(GPUS, with_budget(None));
    for watts in [300.0, 650.0].map(Watts) {
        let device = address(1);
        let by_hand = Command::SetCap { device, watts };
        node.command(by_hand, &mut |reply| reply).unwrap();
        assert_eq!(node.cap(1), watts);
    }
}
