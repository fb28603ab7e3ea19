//! GPUs that are divided among jobs after their rank has attached, without a reset.

use litd_api::JobState;
use litd_core::{Event, Reply};
use litd_power::{PowerError, Sharing};

use crate::node::{Node, SECOND, address, beside, config};

fn attached() -> Node {
    let mut node = Node::new(2, config());
    node.attach(0, 2);
    node.attach(1, 2);
    node
}

/// A minute and a round, with drivers that tell this of how their GPUs are divided.
fn a_minute(node: &mut Node, tells: &mut dyn FnMut(Reply) -> Reply) {
    for _ in 0..62 {
        node.now.0 += SECOND;
        node.handle(Event::Time, tells);
    }
}

/// Whether an event of the first GPU says so.
fn is_told(node: &Node, text: &str) -> bool {
    let of_first = |it: &&litd_api::Event| it.device.as_deref() == Some(address(0).as_str());
    let events = node.core.events(0).events;
    events
        .iter()
        .filter(of_first)
        .any(|it| it.text.contains(text))
}

#[test]
fn a_gpu_that_is_switched_to_mig_is_not_steered_from_the_next_minute_on() {
    let _beside = beside();
    let mut node = attached();
    a_minute(&mut node, &mut |reply| reply);
    assert!(!is_told(&node, "MIG is on"));
    a_minute(&mut node, &mut |reply| match reply {
        Reply::Identity(Ok((mut identity, range))) => {
            if identity.address == address(0) {
                identity.sharing = Sharing::Mig;
            }
            Reply::Identity(Ok((identity, range)))
        }
        reply => reply,
    });
    assert!(is_told(
        &node,
        "MIG is on: the GPU counts as shared now, and litd does not steer it"
    ));
    let job = &node.status().jobs[0];
    assert!(matches!(job.state, JobState::Suspended), "{:?}", job.state);
}

#[test]
fn a_driver_that_fails_to_tell_once_changes_nothing() {
    let _beside = beside();
    let mut node = attached();
    let mut failures = 0;
    a_minute(&mut node, &mut |reply| match reply {
        Reply::Identity(Ok((identity, _))) if failures == 0 && identity.address == address(0) => {
            failures += 1;
            Reply::Identity(Err(PowerError::Driver {
                device: identity.address,
                action: "reading its identity",
                cause: "try again".to_owned(),
            }))
        }
        reply => reply,
    });
    assert_eq!(failures, 1, "nobody asked");
    assert!(!is_told(&node, "reports no usable range of caps"));
}
