//! Whose events push out whose, where there is no room for all of them.

use litd_api::Command;
use litd_core::Owners;

use crate::node::{Node, SECOND, beside, config};

/// More events than are kept, of clients that are sent away: so many a second are told of.
const SECONDS: u32 = 300;
const A_SECOND: u32 = 5;

/// Each of these ids causes one event after the other.
fn flood(node: &mut Node, mut uid: impl FnMut(u32) -> u32) {
    for second in 0..SECONDS {
        node.pass(SECOND);
        for at in 0..A_SECOND {
            node.core.crowded_out(Some(uid(second * A_SECOND + at)));
        }
    }
}

fn counted(node: &Node, part: &str) -> usize {
    let events = node.events();
    events.iter().filter(|it| it.contains(part)).count()
}

#[test]
fn a_user_of_many_ids_washes_away_no_other_users_events() {
    let _beside = beside();
    let mut node = Node::new(1, config());
    let subuid = "alice:100000:65536\n";
    let passwd = "alice:x:1000:1000::/home/alice:/bin/sh\n";
    node.core.set_owners(Owners::of(subuid, passwd));
    for _ in 0..4 {
        node.pass(SECOND);
        node.core.crowded_out(Some(1001));
    }
    flood(&mut node, |at| 100_000 + at);
    assert_eq!(counted(&node, "of user 1001"), 4);
    // Users of whom nothing is known share one room, though the last of alice's ids has the largest number.
    let mut node = Node::new(1, config());
    let subuid = "alice:100000:65536\nalice:4294967290:6\n";
    node.core.set_owners(Owners::of(subuid, passwd));
    for _ in 0..4 {
        node.pass(SECOND);
        node.core.crowded_out(None);
    }
    flood(&mut node, |at| 4_294_967_290 + at % 6);
    assert_eq!(counted(&node, "of the metrics"), 4);
}

#[test]
fn a_user_washes_away_no_trial_that_an_administrator_has_asked_for() {
    let _beside = beside();
    let mut node = Node::new(1, config());
    node.attach(0, 1);
    let trial = Command::StartTrial {
        job: None,
        quads: Some(2),
        same: true,
        seed: Some(7),
    };
    node.command(trial, &mut |reply| reply).unwrap();
    assert_eq!(counted(&node, "asked for: A/A trial"), 1);
    flood(&mut node, |_| 1000);
    assert_eq!(counted(&node, "asked for: A/A trial"), 1);
}
