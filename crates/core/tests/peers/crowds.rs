//! More hooks than there is room for.

use litd_core::{Config, DeviceId, Effect, Event, Home, Operation, Owners, Peer, Reply, SessionId};
use litd_power::Holder;
use litd_proto::FromHook;
use litd_units::{Nanos, Watts};

use crate::node::{Node, SECOND, beside, config, hello, pid, reading};

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
    let _beside = beside();
    let mut node = crowded();
    let of_user = |node: &mut Node, uid: u32| {
        let all = (0..OF_ONE).map(|_| node.connect_as(5000 + uid, uid));
        all.collect::<Vec<_>>()
    };
    let idle: Vec<_> = (1..5).map(|user| of_user(&mut node, user)).collect();
    assert!(idle.iter().flatten().all(|&it| !node.is_closed(it)));
    // A new hook takes the place of the oldest hook of a crowd with the most.
    let rank = node.attach(0, 2);
    assert!(!node.is_closed(rank) && node.core.is_attached(rank));
    let sent_away = |node: &Node| -> Vec<_> {
        let closed = |of: &Vec<_>| of.iter().map(|&it| node.is_closed(it)).collect::<Vec<_>>();
        idle.iter().map(closed).collect()
    };
    let closed = sent_away(&node);
    assert_eq!(closed.iter().flatten().filter(|&&it| it).count(), 1);
    assert!(closed.iter().any(|of| of[0]), "{closed:?}");
    // A hook of a crowd gets its own user's place, and no other's.
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
    let _beside = beside();
    let mut node = crowded();
    let idle: Vec<_> = (0..ALL as u32)
        .map(|user| node.connect_as(5000 + user, 2000 + user))
        .collect();
    let rank = node.attach(0, 2);
    assert!(node.core.is_attached(rank));
    // The one that has held its connection for longest.
    assert_first_alone_is_closed(&node, &idle);
    // Hooks that have said hello go after those that have said nothing.
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
    let _beside = beside();
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
    let _beside = beside();
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
    let _beside = beside();
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
    let _beside = beside();
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

/// Drivers that take their time to tell who uses their devices.
struct Slow {
    node: Node,
    sessions: u64,
    closed: Vec<SessionId>,
    energy: f64,
}

impl Slow {
    fn new(node: Node) -> Self {
        Self {
            node,
            sessions: 1_000_000,
            closed: Vec::new(),
            energy: 1e6,
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        self.node.core.handle(self.node.now, event);
        for effect in self.node.core.effects() {
            match effect {
                Effect::Close { session } => {
                    self.closed.push(session);
                    self.handle(Event::Disconnected { session });
                }
                Effect::Device {
                    device,
                    operation: Operation::Read,
                } => {
                    self.energy += 1.0;
                    let reply = Reply::Read(Ok(reading(Watts(700.0), self.energy)));
                    self.handle(Event::Device { device, reply });
                }
                _ => {}
            }
        }
    }

    fn connect(&mut self, pid: u32, uid: u32) -> SessionId {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        self.handle(Event::Connected {
            session,
            peer: Peer { pid, uid },
            home: None,
        });
        session
    }

    fn say_hello(&mut self, session: SessionId, gpu: usize, ranks: u32) {
        let bytes = FromHook::Hello(hello(gpu, ranks)).encode();
        let bytes = &bytes;
        self.handle(Event::Frame { session, bytes });
    }

    /// All ranks of a job connect and say hello.
    fn job(&mut self) -> Vec<SessionId> {
        let rank = |gpu: usize| {
            let session = self.connect(pid(gpu), 1000);
            self.say_hello(session, gpu, RANKS as u32);
            session
        };
        (0..RANKS).map(rank).collect()
    }

    fn assert_all_wait(&self, ranks: &[SessionId]) {
        let gone: Vec<_> = ranks.iter().filter(|it| self.closed.contains(it)).collect();
        assert!(gone.is_empty(), "{gone:?} of {ranks:?} lost their places");
    }
}

const RANKS: usize = 8;

fn slow() -> Slow {
    let mut config = crowded_config();
    config.limits.sessions_per_user = RANKS;
    Slow::new(Node::new(RANKS, config))
}

#[test]
fn whoever_says_nothing_goes_before_a_job_that_has_said_hello_however_many_users_he_is() {
    let _beside = beside();
    let mut node = slow();
    for user in 0..ALL as u32 {
        node.connect(5000 + user, 100_000 + user);
    }
    node.node.now += Nanos(SECOND);
    let ranks = node.job();
    for user in 0..200 {
        node.connect(6000 + user, 101_000 + user);
        node.node.now += Nanos(SECOND / 20);
    }
    node.assert_all_wait(&ranks);
}

#[test]
fn hellos_of_many_users_keep_no_rank_out_whose_process_uses_its_gpu() {
    let _beside = beside();
    let mut node = slow();
    let told = |gpu: usize| {
        let (pid, uid) = (pid(gpu), 1000);
        Reply::Holders(Ok(vec![Holder::new(pid, uid)]))
    };
    // A user names all GPUs, and the drivers tell their holders.
    for gpu in 0..RANKS {
        let session = node.connect(5000 + gpu as u32, 100_000 + gpu as u32);
        node.say_hello(session, gpu, RANKS as u32);
        let (device, reply) = (DeviceId(gpu), told(gpu));
        node.handle(Event::Device { device, reply });
    }
    let ranks = node.job();
    for user in 0..200 {
        let session = node.connect(6000 + user, 101_000 + user);
        node.say_hello(session, user as usize % RANKS, RANKS as u32);
    }
    node.assert_all_wait(&ranks);
    for gpu in 0..RANKS {
        let (device, reply) = (DeviceId(gpu), told(gpu));
        node.handle(Event::Device { device, reply });
        // The question was under way when it said hello, perhaps.
        let (device, reply) = (DeviceId(gpu), told(gpu));
        node.handle(Event::Device { device, reply });
    }
    let attached = |&&it: &&SessionId| node.node.core.is_attached(it);
    assert_eq!(ranks.iter().filter(attached).count(), RANKS);
}

#[test]
fn a_user_of_many_ids_has_what_one_user_has() {
    let _beside = beside();
    let mut node = crowded();
    let subuid = "alice:100000:65536\n";
    let passwd = "alice:x:1000:1000::/home/alice:/bin/sh\n";
    node.core.set_owners(Owners::of(subuid, passwd));
    let hers: Vec<_> = (0..3 * ALL as u32)
        .map(|at| node.connect_as(5000 + at, 100_000 + at))
        .collect();
    let held = hers.iter().filter(|&&it| !node.is_closed(it)).count();
    assert_eq!(held, OF_ONE);
    let bobs = node.connect_as(9000, 1001);
    assert!(!node.is_closed(bobs));
    assert_eq!(
        hers.iter().filter(|&&it| !node.is_closed(it)).count(),
        OF_ONE
    );
}

#[test]
fn who_came_too_often_is_known_however_many_others_come() {
    let _beside = beside();
    let mut config = crowded_config();
    config.limits.connections_per_second = 1e-3;
    let mut node = Node::new(2, config);
    for at in 0..100 {
        node.connect_as(5000 + at, 1);
    }
    let refused = node.counted("too_often");
    for user in 0..3000 {
        node.connect_as(6000, 100_000 + user);
    }
    for at in 0..10 {
        node.connect_as(5000 + at, 1);
    }
    assert_eq!(node.counted("too_often"), refused + 10);
}

/// Before its process, its pod and its place are looked at.
#[test]
fn a_process_that_connects_without_end_is_not_heard_and_others_are() {
    let _beside = beside();
    let mut config = crowded_config();
    config.limits.connections_per_second = 4.0;
    let mut node = Node::new(2, config);
    let peer = |pid: u32| Peer { pid, uid: 1 };
    let now = node.now;
    let heard = (0..10_000).filter(|_| node.core.may_knock(now, peer(5000)));
    assert_eq!(heard.count(), 128);
    assert_eq!(node.counted("too_often"), 10_000 - 128);
    // Another process of the same user, and very many others.
    assert!(node.core.may_knock(now, peer(5001)));
    for pid in 10_000..15_000 {
        assert!(node.core.may_knock(now, peer(pid)));
    }
    assert!(!node.core.may_knock(now, peer(5000)));
    let later = now + Nanos(SECOND);
    assert!(node.core.may_knock(later, peer(5000)));
}
