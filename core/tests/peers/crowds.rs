//! More hooks than there is room for.

use crate::node::{Node, alone, config};

/// The room for hooks in all, and for those of one user that are no ranks.
const ALL: usize = 16;
const OF_ONE: usize = 4;

fn crowded() -> Node {
    let mut config = config();
    config.limits.sessions = ALL;
    config.limits.sessions_per_user = OF_ONE;
    Node::new(2, config)
}

#[test]
fn users_who_only_hold_connections_keep_no_other_user_out() {
    let _alone = alone();
    let mut node = crowded();
    let of_user = |node: &mut Node, uid: u32| {
        let all = (0..OF_ONE).map(|_| node.connect_as(5000 + uid, uid));
        all.collect::<Vec<_>>()
    };
    let idle: Vec<_> = (1..5).map(|user| of_user(&mut node, user)).collect();
    assert!(idle.iter().flatten().all(|&it| !node.is_closed(it)));
    // Whoever comes then has the place of one of those with the most, the one that waited longest.
    let rank = node.attach(0, 2);
    assert!(!node.is_closed(rank) && node.core.is_attached(rank));
    let sent_away = |node: &Node| -> Vec<_> {
        let closed = |of: &Vec<_>| of.iter().map(|&it| node.is_closed(it)).collect::<Vec<_>>();
        idle.iter().map(closed).collect()
    };
    let closed = sent_away(&node);
    assert_eq!(closed.iter().flatten().filter(|&&it| it).count(), 1);
    assert!(closed.iter().any(|of| of[0]), "{closed:?}");
    // One of a crowd gets nobody's place.
    let more = node.connect_as(5001, 1);
    assert!(node.is_closed(more));
    assert_eq!(sent_away(&node), closed);
    // Ranks are not sent away for anybody.
    let other = node.attach(1, 2);
    assert!(node.core.is_attached(other) && node.core.is_attached(rank));
    for user in 100..130 {
        node.connect_as(9000 + user, user);
    }
    assert!(node.core.is_attached(other) && node.core.is_attached(rank));
}
