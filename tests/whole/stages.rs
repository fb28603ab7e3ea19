//! Jobs whose hooks say which ranks do equal work: each group has its own loop, and no watts move between groups.

use litd_api::{JobState, JobStatus};
use litd_rig::JobSpec;
use litd_units::Watts;

use crate::stand::{GPUS, SOON, Stand, quick, wait_for};

fn staged(stand: &Stand, stages: usize) -> litd_rig::Job {
    let spec = JobSpec::new("train", 0..GPUS).staged(stages);
    let mut job = stand.rig.attach(spec).unwrap();
    job.welcome(SOON).unwrap();
    job
}

fn sum(caps: &[Watts]) -> Watts {
    caps.iter().copied().sum()
}

fn groups(stand: &Stand) -> Vec<JobStatus> {
    let mut jobs = stand.status().jobs;
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    jobs
}

#[test]
fn stages_are_levelled_each_by_itself_and_no_watts_move_between_them() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let found = stand.rig.ledger().found();
    let mut job = staged(&stand, 2);
    let names: Vec<String> = groups(&stand).into_iter().map(|job| job.name).collect();
    assert_eq!(names, ["train/stage 0", "train/stage 1"]);
    let half = GPUS / 2;
    for _ in 0..150 {
        stand.play(&mut job, 1);
        let held = stand.held();
        for stage in [0..half, half..GPUS] {
            // A cap is lowered before another is raised.
            assert!(sum(&held[stage.clone()]) <= sum(&found[stage]) + Watts(1e-3));
        }
    }
    for (stage, job) in groups(&stand).iter().enumerate() {
        assert_eq!(job.ranks.len(), half);
        assert!(job.samples > 3, "{job:?}");
        assert!(job.adjustments > 0, "{job:?}");
        assert_ne!(job.state, JobState::Observe, "{job:?}");
        // Leads are those within the group: in each somebody is last nearly always.
        let gpus = stage * half..(stage + 1) * half;
        let leads = gpus.map(|gpu| stand.device(gpu).lead.map_or(f64::NAN, |lead| lead.0));
        let least = leads.fold(f64::INFINITY, f64::min);
        assert!(least < 5.0, "stage {stage}: {least}");
    }
    job.end();
    wait_for("end", || stand.status().jobs.is_empty());
    stand.finish();
}

#[test]
fn a_gpu_whose_work_no_other_does_is_observed_and_status_says_so() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let found = stand.rig.ledger().found();
    let mut job = staged(&stand, GPUS);
    stand.play(&mut job, 40);
    let jobs = groups(&stand);
    assert_eq!(jobs.len(), GPUS);
    for job in jobs {
        assert_eq!(job.state, JobState::Observe, "{job:?}");
        assert_eq!(job.sampling_period, 0, "{job:?}");
        assert!(
            job.why
                .contains("no other GPU of this node does the same work"),
            "{job:?}"
        );
    }
    assert_eq!(stand.held(), found);
    stand.finish();
}

#[test]
fn a_rank_that_goes_ends_the_loop_of_its_own_group() {
    let stand = Stand::real(&quick("gpu-red"));
    let mut job = staged(&stand, 2);
    assert_eq!(groups(&stand).len(), 2);
    // Rank 7 goes, and its group with it; the other one is whole.
    job.leave(7);
    wait_for("the rank", || groups(&stand)[1].ranks.len() == 3);
    assert!(
        groups(&stand)[1]
            .why
            .contains("ranks of this node are missing")
    );
    assert_eq!(groups(&stand)[0].ranks.len(), 4);
    job.end();
    wait_for("end", || stand.status().jobs.is_empty());
    stand.stop();
}
