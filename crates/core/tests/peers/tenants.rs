//! Reports of one tenant's processes count for his own jobs, and pods are told apart.

use std::collections::BTreeSet;
use std::ops::Range;

use litd_api::Command;
use litd_core::{Config, Event, Home, MemoryStore, Owners};
use litd_policies::Policy;
use litd_power::{Holder, Reply};
use litd_proto::{FromHook, SetClock};
use litd_units::{Hertz, Watts};

use crate::node::{Node, SECOND, address, beside, config, hello, pid};

/// The control group of a process in the pod with this number.
pub fn cgroup(number: u32) -> String {
    format!("0::/kubepods/pod{number:08x}-aaaa-4bbb-8ccc-0123456789ab\n")
}

fn home(number: u32) -> Option<Home> {
    Home::of(&cgroup(number))
}

/// Whether a hook in pod 1 is told that its GPU is shared, where processes of these control groups use it.
fn is_shared(home: Option<Home>, cgroups: [String; 2]) -> bool {
    let mut node = Node::with_store(1, 0, config(), MemoryStore::default());
    let session = node.connect_from(pid(0), 1000, home);
    let mut hello = hello(0, 1);
    (hello.rank, hello.local_rank) = (0, 0);
    let holders: Vec<Holder> = [pid(0), pid(0) + 1]
        .into_iter()
        .zip(cgroups)
        .map(|(pid, cgroup)| Holder {
            cgroup,
            ..Holder::new(pid, 1000)
        })
        .collect();
    let bytes = FromHook::Hello(hello).encode();
    let frame = Event::Frame {
        session,
        bytes: &bytes,
    };
    node.handle(frame, &mut |reply| match reply {
        Reply::Holders(_) => Reply::Holders(Ok(holders.clone())),
        reply => reply,
    });
    assert_ne!(node.core.is_attached(session), node.is_closed(session));
    node.counted("gpu_shared") > 0
}

#[test]
fn a_gpu_that_two_pods_use_is_nobodys_though_their_user_has_one_number() {
    let _beside = beside();
    assert!(is_shared(home(1), [cgroup(1), cgroup(2)]));
    assert!(is_shared(home(1), [cgroup(1), String::new()]));
    // The containers of one pod, and two processes of one user in jobs of Slurm, are one user's.
    assert!(!is_shared(home(1), [cgroup(1), cgroup(1)]));
    let step =
        |job: u32| format!("0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n");
    assert!(!is_shared(Home::of(&step(7)), [step(7), step(8)]));
    // litd in the pod itself does not tell its own pod from nothing.
    assert!(!is_shared(None, [cgroup(1), cgroup(1)]));
}

/// A job on this GPU beside, in a pod. Why it is not steered, if so.
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

/// The record of harm that was done to a pod's job.
fn harmed(whose: &str) -> MemoryStore {
    let harm = format!("{{{whose},\"job\":\"train\",\"why\":\"0.5 % slower\"}}");
    MemoryStore {
        trial: format!("{{\"report\":null,\"harms\":[{harm}]}}").into_bytes(),
        ..MemoryStore::default()
    }
}

#[test]
fn harm_that_one_pod_tells_of_stops_no_other_pod_of_the_same_user() {
    let _beside = beside();
    let pods = "\"uid\":1000,\"pod\":\"pod-00000001-aaaa-4bbb-8ccc-0123456789ab\"";
    let mut node = Node::with_store(3, 0, config(), harmed(pods));
    let why = why_not_steered(&mut node, 0, home(1)).unwrap();
    let told = "slower: no job of user 1000 in pod-00000001-aaaa-4bbb-8ccc-0123456789ab is steered";
    assert!(why.contains(told), "{why}");
    let summary = node.status().node.summary;
    let told = "; until `litctl resume`, no job of a user to whom steering did harm is steered";
    assert!(summary.contains(told), "{summary}");
    assert_eq!(why_not_steered(&mut node, 1, home(2)), None);
    assert_eq!(why_not_steered(&mut node, 2, None), None);
}

#[test]
fn harm_of_a_subordinate_id_is_its_owners() {
    let _beside = beside();
    let mut node = Node::with_store(1, 0, config(), harmed("\"uid\":500"));
    // Drivers tell of processes of user 1000.
    let owners = Owners::of("carol:1000:10\n", "carol:x:500:500::/:\n");
    node.core.set_owners(owners);
    assert!(why_not_steered(&mut node, 0, None).is_some());
}

#[test]
fn a_clock_that_one_job_asks_for_takes_no_watts_from_another() {
    let _beside = beside();
    asks_for_a_clock(Node::new(2, under(1400.0)), 900.0);
}

/// Nor where a GPU that litd does not manage has its part of the budget.
#[test]
fn nor_does_one_beside_a_gpu_that_is_not_managed() {
    let _beside = beside();
    let mut node = Node::new(2, under(2150.0));
    node.sound(Event::Unmanaged(BTreeSet::from([address(7)])));
    asks_for_a_clock(node, 1650.0);
}

fn under(budget: f64) -> Config {
    let mut config = config();
    config.policy = Policy::Observe;
    config.caps.budget = Some(Watts(budget));
    config
}

/// Of two jobs, of one GPU each, one asks for a clock; then a budget leaves 450 W to each GPU.
fn asks_for_a_clock(mut node: Node, budget: f64) {
    for gpu in 0..2 {
        let session = node.connect(gpu);
        let mut hello = hello(gpu, 1);
        (hello.rank, hello.local_rank) = (0, 0);
        hello.job = format!("job-{gpu}");
        node.say(session, &FromHook::Hello(hello));
        assert!(node.core.is_attached(session));
        if gpu == 0 {
            let clock = Some(Hertz(1.2e9));
            node.say(session, &FromHook::SetClock(SetClock { clock }));
        }
    }
    for _ in 0..5 {
        node.pass(1_000_000_000);
    }
    let watts = Some(Watts(budget));
    let asked = node.command(Command::SetBudget { watts }, &mut |reply| reply);
    assert!(asked.is_ok(), "{asked:?}");
    for _ in 0..5 {
        node.pass(1_000_000_000);
    }
    let plan = node.status().devices[0].plan.unwrap();
    assert!(plan.locked.is_some(), "{plan:?}");
    assert_eq!((node.cap(0), node.cap(1)), (Watts(450.0), Watts(450.0)));
}

/// Whoever connects a job takes watts from nobody: GPUs outside of it hold what they held, whatever caps their
/// owner has given them, and its own GPUs get no less than before.
#[test]
fn a_job_that_connects_takes_no_watts_from_other_gpus() {
    let _beside = beside();
    let uneven = [700.0, 700.0, 700.0, 700.0, 300.0, 300.0, 300.0, 300.0];
    let odd = [750.0, 650.0, 600.0, 512.0, 480.0, 333.0, 250.0, 200.0];
    for policy in [Policy::GpuRealloc, Policy::GpuRed, Policy::CpuSlosh] {
        for found in [uneven, odd] {
            // Less than all were found with, as much, and more.
            for budget in [2900.0, 3775.0, 4000.0, 4600.0] {
                for its in [7..8, 0..1, 4..8, 2..5] {
                    takes_from_nobody(policy, found, budget, its);
                }
            }
        }
    }
}

fn pass_five_seconds(node: &mut Node) {
    for _ in 0..5 {
        node.pass(SECOND);
    }
}

fn takes_from_nobody(policy: Policy, found: [f64; 8], budget: f64, its: Range<usize>) {
    let mut config = config();
    config.policy = policy;
    config.caps.budget = Some(Watts(budget));
    let mut node = Node::found(found.map(Watts).to_vec(), config);
    pass_five_seconds(&mut node);
    let before: Vec<Watts> = (0..8).map(|gpu| node.cap(gpu)).collect();
    for gpu in its.clone() {
        let session = node.connect(gpu);
        let mut hello = hello(gpu, its.len() as u32);
        hello.rank -= its.start as u32;
        hello.local_rank -= its.start as u32;
        node.say(session, &FromHook::Hello(hello));
        assert!(node.core.is_attached(session));
    }
    pass_five_seconds(&mut node);
    let what = format!("{policy:?} {found:?} {budget} {its:?}: {before:?}");
    for gpu in 0..8 {
        let (cap, before) = (node.cap(gpu), before[gpu]);
        // A unit of a driver may go to another GPU.
        let is_less = !its.contains(&gpu) && cap < before - Watts(1.0);
        assert!(!is_less, "gpu{gpu} has {cap} in {what}");
    }
    let sum: f64 = (0..8).map(|gpu| node.cap(gpu).0).sum();
    assert!(sum <= budget, "{sum} W in {what}");
    let own = |caps: &dyn Fn(usize) -> Watts| its.clone().map(caps).sum::<Watts>();
    let (now, then) = (own(&|gpu| node.cap(gpu)), own(&|gpu| before[gpu]));
    assert!(
        now >= then - Watts(its.len() as f64) || policy == Policy::GpuRed,
        "the job has {now} of {then} in {what}"
    );
}
