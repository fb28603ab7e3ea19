//! More hooks than there is room for.

use litd_core::{DeviceId, Effect, Event, Operation, Peer, Reply, SessionId};
use litd_proto::FromHook;
use litd_units::{Nanos, Watts};

use crate::node::{Node, SECOND, alone, config, hello, reading};

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
    // One of a crowd gets its own user's place, and no other's.
    let more = node.connect_as(5001, 1);
    assert!(!node.is_closed(more) && node.is_closed(idle[0][1]));
    assert_eq!(sent_away(&node)[1..], closed[1..]);
    // Ranks are not sent away for anybody.
    let other = node.attach(1, 2);
    assert!(node.core.is_attached(other) && node.core.is_attached(rank));
    for user in 100..130 {
        node.connect_as(9000 + user, user);
    }
    assert!(node.core.is_attached(other) && node.core.is_attached(rank));
}

#[test]
fn many_users_with_one_connection_each_keep_no_rank_out() {
    let _alone = alone();
    let mut node = crowded();
    let idle: Vec<_> = (0..ALL as u32)
        .map(|user| node.connect_as(5000 + user, 2000 + user))
        .collect();
    let rank = node.attach(0, 2);
    assert!(node.core.is_attached(rank));
    // The one that has held its connection for longest.
    let closed: Vec<_> = idle.iter().map(|&it| node.is_closed(it)).collect();
    assert!(
        closed[0] && closed.iter().filter(|&&it| it).count() == 1,
        "{closed:?}"
    );
    // Whoever has said hello goes after those who have said nothing.
    let hello = FromHook::Hello(hello(1, 2));
    let frame = hello.encode();
    let bytes = &frame;
    node.core.handle(
        node.now,
        Event::Frame {
            session: idle[1],
            bytes,
        },
    );
    let (session, home) = (SessionId(u64::MAX), None);
    let peer = Peer {
        pid: 9000,
        uid: 3000,
    };
    let newcomer = Event::Connected {
        session,
        peer,
        home,
    };
    node.core.handle(node.now, newcomer);
    let effects = node.core.effects();
    let closed = effects.iter().filter_map(|effect| match effect {
        Effect::Close { session } => Some(*session),
        _ => None,
    });
    assert_eq!(closed.collect::<Vec<_>>(), [idle[2]]);
}

/// Each hello has the driver asked who holds the GPU, which may take as long as a reading is apart.
#[test]
fn hellos_without_end_do_not_keep_a_gpu_from_being_read() {
    let _alone = alone();
    let mut node = crowded();
    let mut asked = Vec::new();
    let mut reads = 0;
    for round in 0..20 {
        let session = node.connect_as(9000 + round, 4000 + round);
        let bytes = FromHook::Hello(hello(0, 1)).encode();
        node.core.handle(
            node.now,
            Event::Frame {
                session,
                bytes: &bytes,
            },
        );
        node.now += Nanos(SECOND);
        node.core.handle(node.now, Event::Time);
        // The driver is done with one thing a second.
        if let Some(operation) = asked.pop() {
            let reply = match operation {
                Operation::Read => Reply::Read(Ok(reading(Watts(700.0), f64::from(round)))),
                Operation::Holders => Reply::Holders(Ok(Vec::new())),
                other => panic!("{other:?}"),
            };
            reads += u32::from(operation == Operation::Read);
            let device = DeviceId(0);
            node.core.handle(node.now, Event::Device { device, reply });
        }
        for effect in node.core.effects() {
            match effect {
                Effect::Device {
                    device: DeviceId(0),
                    operation,
                } => asked.push(operation),
                Effect::Close { session } => {
                    node.core.handle(node.now, Event::Disconnected { session })
                }
                _ => {}
            }
        }
    }
    assert!(reads >= 5, "read {reads} times in 20 s");
}
