//! What one tenant's processes tell is for his own jobs, and pods tell one tenant from another.

use litd_core::{Home, MemoryStore, Owners};
use litd_proto::FromHook;

use crate::node::{Node, alone, config, hello, pid};

fn home(number: u32) -> Option<Home> {
    let path = format!("/kubepods/pod{number:08x}-aaaa-4bbb-8ccc-0123456789ab");
    Home::of(&format!("0::{path}\n"))
}

/// A job on this GPU alone, in a pod. Why it is not steered, if so.
fn why_not_steered(node: &mut Node, gpu: usize, home: Option<Home>) -> Option<String> {
    let uid = 1000;
    let session = node.connect_from(pid(gpu), uid, home);
    let mut hello = hello(gpu, 1);
    (hello.rank, hello.local_rank) = (0, 0);
    hello.job = format!("job-{gpu}");
    node.say(session, &FromHook::Hello(hello));
    assert!(node.core.is_attached(session));
    let name = format!("job-{gpu}");
    let mut jobs = node.status().jobs.into_iter();
    let job = jobs.find(|job| job.name.ends_with(&name)).unwrap();
    job.why.contains("steering made").then_some(job.why)
}

/// What was kept of harm that was done to a pod's job.
fn harmed(whose: &str) -> MemoryStore {
    let harm = format!("{{{whose},\"job\":\"train\",\"why\":\"0.5 % slower\"}}");
    MemoryStore {
        trial: format!("{{\"report\":null,\"harms\":[{harm}]}}").into_bytes(),
        ..MemoryStore::default()
    }
}

#[test]
fn harm_that_one_pod_tells_of_stops_no_other_pod_of_the_same_user() {
    let _alone = alone();
    let pods = "\"uid\":1000,\"pod\":\"pod-00000001-aaaa-4bbb-8ccc-0123456789ab\"";
    let mut node = Node::with_store(3, 0, config(), harmed(pods));
    assert!(why_not_steered(&mut node, 0, home(1)).is_some());
    assert_eq!(why_not_steered(&mut node, 1, home(2)), None);
    assert_eq!(why_not_steered(&mut node, 2, None), None);
}

#[test]
fn harm_of_a_subordinate_id_is_its_owners() {
    let _alone = alone();
    let mut node = Node::with_store(1, 0, config(), harmed("\"uid\":500"));
    // Its drivers tell of processes of user 1000.
    let owners = Owners::of("carol:1000:10\n", "carol:x:500:500::/:\n");
    node.core.set_owners(owners);
    assert!(why_not_steered(&mut node, 0, None).is_some());
}
