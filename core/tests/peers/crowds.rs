//! More hooks than there is room for.

use litd_core::{Config, DeviceId, Effect, Event, Home, Operation, Peer, Reply, SessionId};
use litd_proto::FromHook;
use litd_units::{Nanos, Watts};

use crate::node::{Node, SECOND, alone, config, hello, reading};

/// The room for hooks in all, and for those of one user that are no ranks.
const ALL: usize = 16;
const OF_ONE: usize = 4;

fn crowded_config() -> Config {
    let mut config = config();
    config.limits.sessions = ALL;
    config.limits.sessions_per_user = OF_ONE;
    config
}

fn crowded() -> Node {
    Node::new(2, crowded_config())
}

fn assert_first_alone_is_closed(node: &Node, sessions: &[SessionId]) {
    let closed: Vec<_> = sessions.iter().map(|&it| node.is_closed(it)).collect();
    assert!(
        closed[0] && closed.iter().filter(|&&it| it).count() == 1,
        "{closed:?}"
    );
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
    assert_first_alone_is_closed(&node, &idle);
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

/// A pod of this number, and what its processes have made up in it.
fn pod(number: u32, within: &str) -> Option<Home> {
    let uid = format!("{number:08x}-aaaa-4bbb-8ccc-0123456789ab");
    Home::of(&format!(
        "0::/kubepods/burstable/pod{uid}/{:064x}{within}\n",
        7
    ))
}

/// In Kubernetes most hooks are of one user, root: the pods tell one tenant from another.
#[test]
fn a_pod_keeps_no_other_pod_of_the_same_user_out() {
    let _alone = alone();
    let mut config = crowded_config();
    config.limits.connections_per_second = 4.0;
    let mut node = Node::new(2, config);
    // Many more than may come at once, also from what looks like jobs within that pod.
    let pest: Vec<_> = (0..400)
        .map(|at| {
            let within = format!("/system.slice/slurmstepd.scope/job_{at}");
            node.connect_from(
                5000 + at,
                1000,
                pod(1, if at % 2 == 0 { "" } else { &within }),
            )
        })
        .collect();
    let held = |node: &Node| pest.iter().filter(|&&it| !node.is_closed(it)).count();
    assert_eq!(held(&node), OF_ONE);
    assert!(node.counted("too_often") > 300);
    let hook = node.connect_from(100, 1000, pod(2, ""));
    node.say(hook, &FromHook::Hello(hello(0, 1)));
    assert!(node.core.is_attached(hook), "another pod's hook is refused");
    assert_eq!(held(&node), OF_ONE);
}

/// A crowd that is told that it comes too often has nobody sent away.
#[test]
fn whoever_connects_too_often_takes_nobodys_place() {
    let _alone = alone();
    let mut config = crowded_config();
    config.limits.connections_per_second = 4.0;
    let mut node = Node::new(2, config);
    for at in 0..400 {
        node.connect_as(5000 + at, 1);
    }
    let refused = node.counted("too_often");
    assert!(refused > 300, "{refused}");
    let waiting: Vec<_> = (2..=4)
        .flat_map(|uid| (0..OF_ONE as u32).map(move |at| (6000 + 10 * uid + at, uid)))
        .map(|(pid, uid)| node.connect_as(pid, uid))
        .collect();
    assert!(waiting.iter().all(|&it| !node.is_closed(it)));
    for at in 0..400 {
        node.connect_as(8000 + at, 1);
    }
    assert_eq!(node.counted("too_often"), refused + 400);
    assert!(waiting.iter().all(|&it| !node.is_closed(it)));
}

#[test]
fn a_hook_that_says_nothing_gives_way_to_one_of_its_own_user() {
    let _alone = alone();
    let mut node = crowded();
    let silent: Vec<_> = (0..OF_ONE as u32)
        .map(|at| node.connect_as(5000 + at, 1000))
        .collect();
    let rank = node.attach(0, 1);
    assert!(node.core.is_attached(rank));
    // The one that has said nothing for longest.
    assert_first_alone_is_closed(&node, &silent);
    // Ranks are no strangers: there is room for the next one without anybody's going.
    node.connect_as(6000, 1000);
    assert!(!node.is_closed(silent[1]));
    node.connect_as(6001, 1000);
    assert!(node.is_closed(silent[1]));
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
