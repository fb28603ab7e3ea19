//! CPU sockets under a budget of the whole node.

use litd_api::{Command, Done, Problem};
use litd_core::Config;
use litd_policies::Policy;
use litd_units::Watts;

use crate::node::{Node, SECOND, beside, config};

const GPUS: usize = 8;

/// The node's only CPU socket.
const CPU: usize = GPUS;

/// With 1000 W for what is neither GPU nor CPU.
fn under(budget: f64) -> Config {
    let mut config = config();
    config.node.budget = Some(Watts(budget));
    config.node.reserve = Some(Watts(1000.0));
    config
}

fn pass(node: &mut Node, seconds: usize) {
    for _ in 0..seconds {
        node.pass(SECOND);
    }
}

fn caps(node: &Node) -> Vec<Watts> {
    (0..GPUS).map(|gpu| node.cap(gpu)).collect()
}

fn told(node: &Node, what: &str) -> bool {
    let events = node.core.events(0).events;
    events.iter().any(|event| event.text.contains(what))
}

#[test]
fn a_socket_whose_limit_can_not_be_read_takes_no_more_from_gpus_than_its_driver_tells() {
    let _beside = beside();
    let mut node = Node::with_silent(GPUS, 1, under(7500.0), CPU);
    node.unreadable = Some(CPU);
    node.speak(Watts(700.0));
    pass(&mut node, 20);
    // The usual 700 W are the socket's, and 5800 W are left.
    assert_eq!(caps(&node), [Watts(700.0); GPUS]);
    assert!(!told(&node, "can't be kept"));
}

/// As each start has it with drivers that take their time.
#[test]
fn a_socket_that_is_being_read_is_waited_for() {
    let _beside = beside();
    let mut node = Node::with_silent(GPUS, 1, under(6300.0), CPU);
    node.pass(SECOND / 2);
    node.speak(Watts(600.0));
    pass(&mut node, 10);
    assert_eq!(node.core.left_by_node(), Some(Watts(4700.0)));
    assert!(!told(&node, "can't be kept"));
    // A socket that takes longer counts with its usual limit.
    let mut node = Node::with_silent(GPUS, 1, under(6300.0), CPU);
    pass(&mut node, 4);
    assert_eq!(node.core.left_by_node(), Some(Watts(4600.0)));
    assert!(!told(&node, "can't be kept"));
}

fn set_cpu(node: &mut Node, watts: f64) -> Result<Done, Problem> {
    let command = Command::SetCap {
        device: "cpu0".to_owned(),
        watts: Watts(watts),
    };
    node.command(command, &mut |reply| reply)
}

#[test]
fn a_sockets_limit_by_hand_waits_for_the_gpus_that_make_room_for_it() {
    let _beside = beside();
    let mut node = Node::with_cpus(GPUS, 1, under(7200.0));
    pass(&mut node, 10);
    let all = |node: &Node| caps(node).into_iter().sum::<Watts>() + node.cap(CPU);
    assert!(all(&node) <= Watts(6200.0) && all(&node) > Watts(6190.0));
    // A slow socket.
    node.slow = Some(0);
    set_cpu(&mut node, 740.0).unwrap();
    assert!(all(&node) <= Watts(6200.0), "{:?}", caps(&node));
    assert_eq!(node.cap(CPU), Watts(700.0));
    node.answer();
    pass(&mut node, 3);
    assert_eq!(node.cap(CPU), Watts(740.0));
    assert!(all(&node) <= Watts(6200.0), "{:?}", caps(&node));
}

#[test]
fn a_sockets_limit_by_hand_leaves_the_gpus_their_floors() {
    let _beside = beside();
    let mut node = Node::with_cpus(GPUS, 1, under(3330.0));
    pass(&mut node, 10);
    let refused = set_cpu(&mut node, 750.0).unwrap_err().error;
    assert_eq!(
        refused,
        "cpu0: 750 W would leave 1580 W of the node's budget to the GPUs, which can't go below 1600 W"
    );
    set_cpu(&mut node, 730.0).unwrap();
    pass(&mut node, 3);
    assert_eq!(node.cap(CPU), Watts(730.0));
    assert_eq!(caps(&node), [Watts(200.0); GPUS]);
    // Less is never too much.
    set_cpu(&mut node, 600.0).unwrap();
    pass(&mut node, 3);
    assert_eq!(node.cap(CPU), Watts(600.0));
}

/// Somebody else raises a socket, also one whose watts a job had: it takes of the node's budget what it holds, and where that
/// leaves the GPUs less than their floors, it is told.
#[test]
fn a_socket_that_somebody_else_raises_is_taken_off_the_nodes_budget() {
    let _beside = beside();
    for policy in [Policy::GpuRealloc, Policy::CpuSlosh] {
        for (budget, is_kept) in [(7200.0, true), (3330.0, false)] {
            let mut config = under(budget);
            config.policy = policy;
            let mut node = Node::with_cpus(GPUS, 1, config);
            node.draws = Some(Watts(100.0));
            pass(&mut node, 10);
            for gpu in 0..GPUS {
                node.attach(gpu, GPUS as u32);
            }
            pass(&mut node, 30);
            node.by_others(CPU, Watts(750.0));
            pass(&mut node, 60);
            let gpus: Watts = caps(&node).into_iter().sum();
            // What the node may draw, less its reserve.
            let left = Watts(budget - 1000.0) - node.cap(CPU);
            let is_told = told(&node, "can't be kept");
            let what = format!("{policy:?}, {budget}: {gpus} of {left}");
            assert_eq!(node.cap(CPU), Watts(750.0), "{what}");
            assert_eq!(
                (gpus <= left + Watts(0.5), is_told),
                (is_kept, !is_kept),
                "{what}"
            );
        }
    }
}
