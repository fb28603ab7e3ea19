//! Whose events push out whose, where there is no room for all of them.

use litd_api::Command;
use litd_core::{Event, Home, Owners, SessionId};
use litd_power::{Holder, Reply};
use litd_proto::{Bye, FromHook, Notice};

use crate::node::{Node, SECOND, beside, config, hello, pid};
use crate::tenants::cgroup;

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

/// Whose the process on a GPU is, by the kernel's word.
#[derive(Clone, Copy)]
struct Whose {
    uid: u32,
    pod: Option<u32>,
}

impl Whose {
    fn cgroup(self) -> String {
        self.pod.map(cgroup).unwrap_or_default()
    }
}

/// A node of two GPUs, one process on each.
struct Two {
    node: Node,
    processes: [Whose; 2],
}

impl Two {
    fn new(processes: [Whose; 2]) -> Self {
        let node = Node::new(2, config());
        Self { node, processes }
    }

    /// The driver tells whose the processes are.
    fn handle(&mut self, event: Event<'_>) {
        let Self { node, processes } = self;
        node.handle(event, &mut |reply| {
            let Reply::Holders(Ok(holders)) = reply else {
                return reply;
            };
            let told = holders.into_iter().map(|it| {
                let whose = processes[usize::from(it.pid == pid(1))];
                Holder {
                    cgroup: whose.cgroup(),
                    ..Holder::new(it.pid, whose.uid)
                }
            });
            Reply::Holders(Ok(told.collect()))
        });
    }

    fn pass(&mut self) {
        self.node.now += litd_units::Nanos(SECOND);
        self.handle(Event::Time);
    }

    fn say(&mut self, session: SessionId, message: &FromHook) {
        let bytes = &message.encode();
        self.handle(Event::Frame { session, bytes });
    }

    /// The process on this GPU comes as a job of its own and says this a few times.
    fn attach(&mut self, gpu: usize, text: &str) -> SessionId {
        let Whose { uid, .. } = self.processes[gpu];
        let home = Home::of(&self.processes[gpu].cgroup());
        let session = self.node.connect_from(pid(gpu), uid, home);
        let mut hello = hello(gpu, 1);
        (hello.rank, hello.local_rank) = (0, 0);
        hello.job = format!("job-{gpu}");
        self.say(session, &FromHook::Hello(hello));
        assert!(self.node.core.is_attached(session));
        for _ in 0..6 {
            let text = text.to_owned();
            self.say(
                session,
                &FromHook::Notice(Notice {
                    text,
                    ..Notice::default()
                }),
            );
        }
        session
    }

    /// How many events of the first job are left after the second has come again and again, and said much each time.
    fn left(mut self) -> usize {
        self.attach(0, "my third layer is slow");
        for _ in 0..150 {
            self.pass();
            let session = self.attach(1, &"y".repeat(1000));
            let bye = Bye {
                reason: String::new(),
            };
            self.say(session, &FromHook::Bye(bye));
        }
        counted(&self.node, "my third layer is slow")
    }
}

#[test]
fn a_pod_washes_away_no_users_events_although_its_processes_have_his_id() {
    let _beside = beside();
    let whose = |uid, pod| Whose { uid, pod };
    assert_eq!(
        Two::new([whose(1000, None), whose(1000, Some(2))]).left(),
        6
    );
    assert_eq!(Two::new([whose(0, Some(1)), whose(0, Some(2))]).left(), 6);
    // Nor do all its users together.
    assert_eq!(
        Two::new([whose(1000, Some(1)), whose(1001, None)]).left(),
        6
    );
    // A user who says that much has his own events pushed out, and so has a pod.
    assert_eq!(Two::new([whose(1000, None), whose(1000, None)]).left(), 0);
    assert_eq!(
        Two::new([whose(1000, Some(1)), whose(1001, Some(1))]).left(),
        0
    );
}

#[test]
fn ids_that_may_all_be_one_users_wash_away_nobody_elses_events() {
    let _beside = beside();
    let mut node = Node::new(1, config());
    for _ in 0..4 {
        node.pass(SECOND);
        node.core.crowded_out(Some(1001));
    }
    flood(&mut node, |at| 200_000 + at);
    assert_eq!(counted(&node, "of user 1001"), 4);
}

/// Processes of two users come to a GPU and leave it, again and again.
#[test]
fn who_comes_and_goes_at_a_gpu_washes_away_none_of_the_nodes_events() {
    let _beside = beside();
    let mut node = Node::new(1, config());
    assert_eq!(counted(&node, "started on"), 1);
    for at in 0..1200 {
        let (one, other) = (Holder::new(pid(0), 1000), Holder::new(pid(0) + 1, 1001));
        let holders = [vec![one.clone(), other], vec![one]][at % 2].clone();
        let session = node.connect_from(pid(0), 1000, None);
        let bytes = &FromHook::Hello(hello(0, 1)).encode();
        node.handle(Event::Frame { session, bytes }, &mut |reply| match reply {
            Reply::Holders(_) => Reply::Holders(Ok(holders.clone())),
            reply => reply,
        });
        node.pass(SECOND);
    }
    let come = counted(&node, "several users use it");
    assert!(come > 100, "{come} {:?}", &node.events()[..9]);
    assert_eq!(counted(&node, "started on"), 1);
}

/// A user with all his subordinate ids leaves files that are none of the kind that litd reads, again and again.
#[test]
fn what_a_users_processes_leave_for_litd_washes_away_nobody_elses_events() {
    let _beside = beside();
    let mut node = Node::new(1, config());
    let passwd = "alice:x:1000:1000::/home/alice:/bin/sh\n";
    node.core
        .set_owners(Owners::of("alice:100000:65536\n", passwd));
    let mut leaves = |uid, home: Option<&Home>, what| {
        let theirs = Event::Theirs { uid, home, what };
        node.handle(theirs, &mut |reply| reply);
    };
    let pod = Home::of(&cgroup(1));
    for _ in 0..4 {
        leaves(1001, None, "a file of user 1001");
        leaves(0, pod.as_ref(), "a file of a pod");
    }
    for at in 0..3000 {
        leaves(100_000 + at, None, "a file of alice");
    }
    assert_eq!(counted(&node, "started on"), 1);
    assert_eq!(counted(&node, "of user 1001"), 4);
    assert_eq!(counted(&node, "of a pod"), 4);
    assert!(counted(&node, "of alice") > 100);
}
