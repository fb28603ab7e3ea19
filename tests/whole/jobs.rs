//! Jobs whose ranks come late, go, crash, fall silent; several jobs at once; and time that jumps.

use std::time::Duration;

use litd_api::{Command, EventKind, JobState};
use litd_rig::{Job, RankState};
use litd_units::Watts;

use crate::stand::{GPUS, Stand, quick, seconds};

fn steering(more: &str) -> (Stand, Job) {
    let mut stand = Stand::clocked(&format!("{}{more}", quick("gpu-realloc")));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    (stand, job)
}

fn no_jobs(stand: &Stand) -> bool {
    stand.status().jobs.is_empty()
}

#[test]
fn a_silent_job_is_stale_and_its_caps_go_back() {
    let (mut stand, mut job) = steering("jobs.stale_seconds = 20.0\n");
    stand.pass(18.0);
    assert!(!stand.is_back());
    stand.pass(3.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert_eq!(stand.job_status("train").state, JobState::Stale);
    assert_eq!(stand.journaled(), [""; 0]);
    stand.play_into_steering(&mut job);
    assert_ne!(stand.job_status("train").state, JobState::Stale);
    stand.stop();
}

#[test]
fn a_silent_job_holds_its_caps_where_that_is_configured() {
    let (mut stand, job) = steering("jobs.stale_seconds = 20.0\njobs.on_stale = \"keep\"\n");
    let held = stand.held();
    stand.pass(60.0);
    assert_eq!(stand.job_status("train").state, JobState::Stale);
    assert_eq!(stand.held(), held);
    // But not for longer than it is there.
    job.end();
    stand.pass(2.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.stop();
}

#[test]
fn a_rank_that_crashes_and_comes_back_in_time_changes_no_cap() {
    let (mut stand, mut job) = steering("jobs.reconnect_seconds = 15.0\n");
    let held = stand.held();
    job.crash(3);
    stand.play(&mut job, 3);
    stand.pass(10.0);
    assert_eq!(stand.held(), held);
    let away = stand
        .job_status("train")
        .ranks
        .into_iter()
        .filter(|rank| !rank.connected);
    assert_eq!(away.map(|rank| rank.rank).collect::<Vec<_>>(), [3]);
    job.connect(3).unwrap();
    job.welcome(crate::stand::SOON).unwrap();
    stand.pass(10.0);
    assert_eq!(stand.held(), held);
    let before = stand.job_status("train").samples;
    stand.play(&mut job, 3);
    assert!(stand.job_status("train").samples > before);
    stand.stop();
}

#[test]
fn a_rank_that_crashes_for_good_takes_the_caps_along() {
    let (mut stand, mut job) = steering("jobs.reconnect_seconds = 15.0\n");
    job.crash(3);
    stand.pass(14.0);
    assert!(!stand.is_back());
    stand.pass(3.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert_eq!(stand.journaled(), [""; 0]);
    // It may still come back, and all begins anew.
    job.connect(3).unwrap();
    job.welcome(crate::stand::SOON).unwrap();
    stand.play_into_steering(&mut job);
    stand.stop();
}

#[test]
fn a_rank_that_leaves_ends_steering_and_the_last_one_the_job() {
    let (mut stand, mut job) = steering("");
    job.leave(0);
    stand.play(&mut job, 2);
    stand.pass(1.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    assert_eq!(stand.job_status("train").ranks.len(), GPUS - 1);
    for rank in 1..GPUS {
        job.leave(rank);
    }
    stand.pass(1.0);
    assert!(no_jobs(&stand));
    stand.stop();
}

#[test]
fn a_jobs_end_brings_its_caps_back_and_empties_the_journal() {
    let (mut stand, job) = steering("");
    assert!(!stand.journaled().is_empty());
    job.end();
    stand.pass(1.0);
    assert!(no_jobs(&stand));
    assert!(stand.is_back(), "{:?}", stand.held());
    assert_eq!(stand.journaled(), [""; 0]);
    assert!(stand.has_event(EventKind::Restore, "cap is back at 700 W"));
    stand.stop();
}

#[test]
fn a_job_is_steered_once_its_last_rank_has_joined() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let own = std::process::id();
    stand.rig.hardware().set_holders(7, vec![1]);
    let mut job = stand
        .rig
        .attach(litd_rig::JobSpec::new("train", 0..GPUS))
        .unwrap();
    assert!(job.welcome(Duration::from_secs(5)).is_err());
    assert!(matches!(job.state(7), Some(RankState::Refused(_))));
    stand.play(&mut job, 20);
    assert_eq!(stand.job_status("train").state, JobState::Gathering);
    assert!(stand.rig.ledger().is_empty());

    stand.rig.hardware().set_holders(7, vec![own]);
    job.connect(7).unwrap();
    job.welcome(crate::stand::SOON).unwrap();
    stand.play_into_steering(&mut job);
    stand.stop();
}

#[test]
fn an_old_iteration_is_counted_and_changes_nothing() {
    let (mut stand, mut job) = steering("");
    let (held, before) = (stand.held(), stand.job_status("train"));
    for iteration in [1, 0, 2] {
        for rank in 0..GPUS {
            assert!(job.report_as(rank, iteration));
        }
        stand.finish();
    }
    assert_eq!(stand.counted("old_iteration"), 3 * GPUS as u64);
    let after = stand.job_status("train");
    assert_eq!(
        (after.samples, after.adjustments),
        (before.samples, before.adjustments)
    );
    assert_eq!(stand.held(), held);
    stand.play(&mut job, 5);
    assert!(stand.job_status("train").samples > before.samples);
    stand.stop();
}

#[test]
fn two_jobs_share_the_nodes_budget_and_touch_only_their_own() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let watts = Some(Watts(5200.0));
    stand
        .rig
        .ledger()
        .lower_budget(Watts(5200.0), Duration::from_secs(1));
    stand.command(&Command::SetBudget { watts });
    stand.finish();
    let mut first = stand.job("first", 0..4);
    let mut second = stand.job("second", 4..6);
    let both = |stand: &mut Stand, first: &mut Job, second: &mut Job, times: usize| {
        for _ in 0..times {
            first.run_iteration();
            second.report();
            stand.iteration_passes();
        }
    };
    both(&mut stand, &mut first, &mut second, 60);
    let budgets = |stand: &Stand| {
        let of = |name| stand.job_status(name).budget;
        (of("first"), of("second"))
    };
    assert_eq!(budgets(&stand), (Watts(2600.0), Watts(1300.0)));
    let sum = |stand: &Stand, gpus: std::ops::Range<usize>| -> Watts {
        stand.held()[gpus].iter().copied().sum()
    };
    assert!(sum(&stand, 0..4) <= Watts(2600.0) && sum(&stand, 4..6) <= Watts(1300.0));
    assert!(stand.job_status("first").adjustments > 0);
    assert!(stand.job_status("second").adjustments > 0);

    stand
        .rig
        .ledger()
        .lower_budget(Watts(4800.0), Duration::from_secs(1));
    let watts = Some(Watts(4800.0));
    stand.command(&Command::SetBudget { watts });
    both(&mut stand, &mut first, &mut second, 20);
    assert_eq!(budgets(&stand), (Watts(2400.0), Watts(1200.0)));
    stand.assert_rules();

    // The first one ends: nothing of the second one's moves.
    let theirs = stand.held()[4..6].to_vec();
    first.end();
    stand.pass(2.0);
    assert_eq!(stand.held()[4..6], theirs);
    assert_eq!(stand.status().jobs.len(), 1);
    stand.stop();
}

#[test]
fn a_jump_of_an_hour_is_survived() {
    let (mut stand, mut job) = steering("");
    let held = stand.held();
    // The node was asleep: for the daemon it is an hour later at once.
    stand.rig.jump(seconds(3600.0)).unwrap();
    assert_eq!(stand.not_ours(), []);
    stand.assert_rules();
    stand.play_into_steering(&mut job);
    assert_ne!(stand.job_status("train").state, JobState::Stale);
    assert_ne!(held, stand.rig.ledger().found());
    // And once more in the middle of a sample: some ranks have sent it, the others come later.
    job.crash(0);
    stand.rig.jump(seconds(3600.0)).unwrap();
    stand.pass(20.0);
    assert!(stand.is_back(), "{:?}", stand.held());
    stand.stop();
}
