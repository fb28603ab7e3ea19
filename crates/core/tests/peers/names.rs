//! Jobs of several users that are called the same.

use litd_core::{Event, Reply, SessionId};
use litd_power::Holder;
use litd_proto::{FromHook, Hello};

use crate::node::{Node, SECOND, beside, config, hello};

const ALICE: u32 = 1000;
const BOB: u32 = 2000;

/// A process of a user, which holds the GPU that it names, says this.
fn greet(node: &mut Node, uid: u32, hello: Hello) -> SessionId {
    let gpu = node
        .status()
        .devices
        .iter()
        .position(|it| it.address == hello.gpu);
    let pid = 5000 + uid + gpu.unwrap() as u32;
    let session = node.connect_as(pid, uid);
    let bytes = FromHook::Hello(hello).encode();
    let bytes = &bytes;
    node.handle(Event::Frame { session, bytes }, &mut |reply| match reply {
        Reply::Holders(_) => Reply::Holders(Ok(vec![Holder::new(pid, uid)])),
        other => other,
    });
    session
}

/// Names, users and ranks of the jobs.
fn jobs(node: &Node) -> Vec<(String, u32, usize)> {
    let jobs = node.status().jobs.into_iter();
    jobs.map(|job| (job.name, job.uid, job.ranks.len()))
        .collect()
}

fn called(name: &str, gpu: usize, ranks: u32) -> Hello {
    let rank = gpu as u32 % ranks;
    Hello {
        job: name.to_owned(),
        rank,
        local_rank: rank,
        ..hello(gpu, ranks)
    }
}

#[test]
fn a_job_whose_name_another_user_has_taken_is_another_job() {
    let _beside = beside();
    let mut node = Node::new(4, config());
    let bob = greet(&mut node, BOB, called("train", 3, 1));
    let first = greet(&mut node, ALICE, called("train", 0, 2));
    assert!(node.core.is_attached(bob) && node.core.is_attached(first));
    let hers = "user-1000/train".to_owned();
    let his = ("train".to_owned(), BOB, 1);
    assert_eq!(jobs(&node), [his, (hers.clone(), ALICE, 1)]);
    // Once his is over hers keeps its name, also for the rank that comes now.
    node.say(bob, &FromHook::Bye(litd_proto::Bye::default()));
    let second = greet(&mut node, ALICE, called("train", 1, 2));
    assert!(node.core.is_attached(second));
    assert_eq!(jobs(&node), [(hers.clone(), ALICE, 2)]);
    // No name that he can give his job is hers.
    for (gpu, name) in [(2, hers.as_str()), (3, "train")] {
        let his = greet(&mut node, BOB, called(name, gpu, 1));
        assert!(node.core.is_attached(his), "{name}");
        node.pass(SECOND);
    }
    let his = |name: &str| (name.to_owned(), BOB, 1);
    let all = [
        his("train"),
        (hers, ALICE, 2),
        his("user-2000/user-1000/train"),
    ];
    assert_eq!(jobs(&node), all);
}

/// A job's stages are jobs of their own here, and nobody can take the name of one.
#[test]
fn a_name_like_another_users_stage_keeps_nobody_out() {
    let _beside = beside();
    let stage = |gpu: usize| Hello {
        group: format!("stage {gpu}"),
        ..called("train", gpu, 2)
    };
    let mut node = Node::new(4, config());
    let mut his = Vec::new();
    for (gpu, name) in [(2, "train/stage 0"), (3, "train/stage 1")] {
        // One of them comes before her stages, and one between.
        let bob = greet(&mut node, BOB, called(name, gpu, 1));
        let alice = greet(&mut node, ALICE, stage(gpu - 2));
        assert!(node.core.is_attached(bob) && node.core.is_attached(alice));
        his.push((format!("user-2000/{name}"), BOB, 1));
        node.pass(SECOND);
    }
    let hers = |name: &str| (name.to_owned(), ALICE, 1);
    let all = [
        hers("train/stage 0"),
        hers("train/stage 1"),
        his.remove(0),
        his.remove(0),
    ];
    assert_eq!(jobs(&node), all);
}
