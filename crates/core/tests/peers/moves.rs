//! How often caps move for the jobs of one user: so often that his records wash nobody else's out of the audit log is
//! too often.

use litd_core::SessionId;
use litd_policies::Policy;
use litd_proto::{Bye, FromHook};
use litd_units::Watts;

use crate::node::{Node, beside, config, hello, pid};

/// GPUs of which each job has one that was found with more than its loop begins with, and one with less.
const FOUND: [f64; 4] = [700.0, 400.0, 700.0, 400.0];

fn node() -> Node {
    let mut config = config();
    config.policy = Policy::GpuRealloc;
    let mut node = Node::found(FOUND.map(Watts).to_vec(), config);
    for gpu in [2, 3] {
        node.uids.insert(gpu, 1001);
    }
    node.wait(3);
    node
}

/// The job of a user on two GPUs comes.
fn come(node: &mut Node, gpus: [usize; 2]) -> [SessionId; 2] {
    let mut rank = 0;
    gpus.map(|gpu| {
        let uid = node.uids.get(&gpu).copied().unwrap_or(1000);
        let session = node.connect_as(pid(gpu), uid);
        let mut hello = hello(gpu, 2);
        (hello.rank, hello.local_rank) = (rank, rank);
        rank += 1;
        node.say(session, &FromHook::Hello(hello));
        assert!(node.core.is_attached(session), "{:?}", node.events());
        session
    })
}

fn leave(node: &mut Node, ranks: [SessionId; 2]) {
    for session in ranks {
        let reason = String::new();
        node.say(session, &FromHook::Bye(Bye { reason }));
    }
}

fn caps(node: &Node) -> [f64; 4] {
    [0, 1, 2, 3].map(|gpu| node.cap(gpu).0)
}

/// A job that comes and goes as fast as it can, of which each time caps move.
#[test]
fn whoever_has_caps_moved_all_the_time_is_only_observed_after_a_while_and_nobody_else_is() {
    let _beside = beside();
    let mut node = node();
    let mut cycles = 0;
    let ranks = loop {
        let ranks = come(&mut node, [0, 1]);
        node.wait(1);
        let why = node.status().jobs[0].why.clone();
        if why.contains("caps have moved 2000 times of late for jobs of user 1000") {
            break ranks;
        }
        assert_eq!(caps(&node)[..2], [550.0, 550.0], "{cycles}: {why}");
        leave(&mut node, ranks);
        node.wait(1);
        assert_eq!(caps(&node), FOUND, "{cycles}");
        cycles += 1;
        assert!(cycles < 2000, "steered all the time");
    };
    assert!(cycles >= 1000, "{cycles}");
    // From now on litd writes no more than a few records for him.
    node.wait(1);
    assert_eq!(caps(&node), FOUND);
    let before = node.core.store().audit.len();
    node.wait(60);
    assert_eq!(node.core.store().audit.len(), before);
    // Another user's job is steered.
    come(&mut node, [2, 3]);
    node.wait(1);
    assert_eq!(caps(&node), [700.0, 400.0, 550.0, 550.0]);
    // The user's own jobs are again after ten minutes.
    leave(&mut node, ranks);
    node.wait(600);
    come(&mut node, [0, 1]);
    node.wait(1);
    assert_eq!(caps(&node)[..2], [550.0, 550.0]);
}
