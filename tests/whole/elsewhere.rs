//! Jobs on several nodes: what is done here depends on whether this node waits for the others.

use litd_rig::{Job, JobSpec, OtherNodes, Told};
use litd_units::Watts;

use crate::stand::{GPUS, SOON, Stand, quick};

/// A job on two nodes that has run for a while.
fn after_some_iterations(policy: &str, share: f64, told: Told) -> (Stand, Job) {
    let mut stand = Stand::clocked(&quick(policy));
    let spec = JobSpec::new("train", 0..GPUS).with(OtherNodes { share, told });
    let mut job = stand.rig.attach(spec).unwrap();
    job.welcome(SOON).unwrap();
    stand.play(&mut job, 40);
    (stand, job)
}

fn assert_watched_only((stand, _job): (Stand, Job), because: &str) {
    let status = stand.job_status("train");
    assert!(status.samples >= 3, "{status:?}");
    assert!(status.why.contains(because), "{}", status.why);
    assert!(stand.rig.ledger().is_empty(), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn a_node_that_waits_for_others_gets_gpu_red_and_no_more() {
    for policy in ["gpu-realloc", "cpu-slosh"] {
        let (mut stand, mut job) = after_some_iterations(policy, 0.1, Told::Reach);
        let all = stand.rig.ledger().found();
        let found: Watts = all[..GPUS].iter().copied().sum();
        stand.play_until(&mut job, "less power", |stand| {
            stand.sum() < found - Watts(60.0)
        });
        stand.play(&mut job, 20);
        // Power was taken, and given to nobody.
        let raised = stand
            .held()
            .iter()
            .zip(&all)
            .any(|(held, found)| held > found);
        assert!(!raised, "{:?}", stand.held());
        let why = stand.job_status("train").why;
        for part in ["gpu-red in place of", "wait for the job's other nodes in "] {
            assert!(why.contains(part), "{why}");
        }
        stand.stop();
    }
}

#[test]
fn a_node_that_others_wait_for_is_steered_as_configured() {
    let (mut stand, mut job) = after_some_iterations("gpu-realloc", 0.001, Told::Reach);
    stand.play_into_steering(&mut job);
    let found = stand.rig.ledger().found();
    stand.play_until(&mut job, "a raised cap", |stand| {
        stand
            .held()
            .iter()
            .zip(&found)
            .any(|(held, found)| held > found)
    });
    let why = stand.job_status("train").why;
    assert!(
        why.contains("this node waits for the job's other nodes in no more than"),
        "{why}"
    );
    stand.stop();
}

#[test]
fn where_it_is_not_known_who_waits_the_node_is_watched() {
    let unknown = "whether this one waits for the others is not known";
    assert_watched_only(after_some_iterations("gpu-red", 0.1, Told::Times), unknown);
    assert_watched_only(
        after_some_iterations("gpu-red", 0.1, Told::Nothing),
        "its hooks time modules, which shows no collectives",
    );
}

#[test]
fn a_node_that_no_longer_waits_gets_what_is_configured_and_the_reverse() {
    let (mut stand, job) = after_some_iterations("gpu-realloc", 0.1, Told::Reach);
    let why = stand.job_status("train").why;
    assert!(why.contains("gpu-red in place of gpu-realloc"), "{why}");
    job.end();
    // The same job elsewhere in the cluster, where it is what the others wait for.
    let spec = JobSpec::new("again", 0..GPUS).with(OtherNodes {
        share: 0.001,
        told: Told::Reach,
    });
    let mut job = stand.rig.attach(spec).unwrap();
    job.welcome(SOON).unwrap();
    stand.play_into_steering(&mut job);
    let why = stand.job_status("again").why;
    assert!(!why.contains("gpu-red in place"), "{why}");
    stand.stop();
}

#[test]
fn ranks_that_are_scattered_over_nodes_are_believed_nothing() {
    let mut stand = Stand::clocked(&quick("gpu-red"));
    let others = OtherNodes {
        share: 0.1,
        told: Told::Reach,
    };
    let mut job = stand
        .rig
        .attach(JobSpec::new("train", 0..GPUS).with(others))
        .unwrap();
    job.welcome(SOON).unwrap();
    for rank in 0..GPUS {
        job.leave(rank);
    }
    stand.pass(1.0);
    // Every other rank of the job is on this node.
    for rank in 0..GPUS {
        let hello = litd_proto::Hello {
            rank: 2 * rank as u32,
            ..job.hello(rank).unwrap()
        };
        job.connect_as(rank, hello).unwrap();
    }
    job.welcome(SOON).unwrap();
    stand.play(&mut job, 40);
    assert_watched_only((stand, job), "its ranks on this node are not consecutive");
}
