//! Ranks that claim what is not theirs, or send too much.

use std::time::Duration;

use litd_api::{EventKind, JobState};
use litd_proto::{FromHook, Hello, Notice, NoticeKind, RefusalCode};
use litd_rig::{JobSpec, RankState, gpu_address};

use crate::stand::{GPUS, SOON, Stand, quick, wait_for};

/// What a daemon may grow by under any load that these tests make, in KiB.
const GROWTH: u64 = 16 * 1024;

fn refused(state: Option<&RankState>) -> Option<RefusalCode> {
    match state {
        Some(RankState::Refused(refusal)) => Some(refusal.code),
        _ => None,
    }
}

#[test]
fn whoever_does_not_hold_a_gpu_gets_nowhere_near_its_cap() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    // GPUs 4 to 7 are another process's.
    for gpu in 4..GPUS {
        stand.rig.hardware().set_holders(gpu, vec![1]);
    }
    let mut thief = stand.rig.attach(JobSpec::new("thief", 4..GPUS)).unwrap();
    assert!(thief.welcome(SOON).is_err());
    wait_for("refusals", || {
        thief.poll();
        (0..4).all(|rank| refused(thief.state(rank)) == Some(RefusalCode::NotHolder))
    });
    assert_eq!(stand.counted("not_holder"), 4);
    assert!(stand.status().jobs.is_empty());
    // Its own job claims one of them besides.
    let mut job = stand.job("train", 0..4);
    stand.play(&mut job, 1);
    let hello = Hello {
        gpu: gpu_address(6),
        ..job.hello(0).unwrap()
    };
    job.connect_as(0, hello).unwrap();
    wait_for("refusal", || {
        job.poll();
        refused(job.state(0)) == Some(RefusalCode::NotHolder)
    });
    job.connect(0).unwrap();
    job.welcome(SOON).unwrap();
    stand.play(&mut job, 40);
    let touched = |device: usize| {
        stand
            .rig
            .ledger()
            .entries()
            .iter()
            .any(|e| e.device == device)
    };
    assert!(touched(2));
    assert!((4..GPUS).all(|gpu| !touched(gpu)));
    stand.stop();
}

#[test]
fn a_gpu_in_use_is_no_other_jobs() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    let mut other = stand.rig.attach(JobSpec::new("other", [2, 3])).unwrap();
    assert!(other.welcome(SOON).is_err());
    wait_for("refusals", || {
        other.poll();
        (0..2).all(|rank| refused(other.state(rank)) == Some(RefusalCode::GpuTaken))
    });
    assert_eq!(stand.status().jobs.len(), 1);
    stand.play(&mut job, 3);
    stand.stop();
}

#[test]
fn a_rank_that_floods_is_cut_off_and_the_others_do_not_notice() {
    // So few that also a busy machine sends ten times as many.
    let config = quick("gpu-realloc") + "limits.frames_per_second = 200\n";
    let stand = Stand::real(&config);
    let mut job = stand.job("train", 0..4);
    let mut flooder = stand.job("flood", [7]);
    job.run_iteration();
    let before = stand.memory();
    let sent = flooder.flood(0, 200_000);
    wait_for("cut", || {
        flooder.poll();
        flooder.flood(0, 1000);
        !matches!(flooder.state(0), Some(RankState::Welcome(_)))
    });
    assert!(sent > 2000, "{sent}");
    assert!(stand.counted("too_fast") > 2000);
    assert_eq!(stand.counted("flood"), 1);
    let after = stand.memory();
    assert!(after < before + GROWTH, "{before} KiB, then {after} KiB");
    let ledger = stand.rig.ledger().clone();
    wait_for("steering", || {
        job.run_iteration();
        std::thread::sleep(Duration::from_millis(20));
        !ledger.is_empty()
    });
    // Whoever behaves again is let in again.
    flooder.connect(0).unwrap();
    flooder.welcome(SOON).unwrap();
    stand.stop();
}

#[test]
fn a_rank_that_sends_garbage_loses_its_connection_and_no_more() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play_into_steering(&mut job);
    for (rank, garbage) in [b"\xff\xff\xff".as_slice(), b"\x12\x05abc", &[0x1a; 64]]
        .into_iter()
        .enumerate()
    {
        assert!(job.send_frame(rank, garbage));
        stand.finish();
        wait_for("refusal", || {
            job.poll();
            refused(job.state(rank)) == Some(RefusalCode::Malformed)
        });
    }
    assert_eq!(stand.counted("malformed"), 3);
    for rank in 0..3 {
        job.connect(rank).unwrap();
    }
    job.welcome(SOON).unwrap();
    let before = stand.job_status("train").samples;
    stand.play(&mut job, 3);
    let after = stand.job_status("train");
    assert!(after.samples > before && after.state != JobState::Gathering);
    stand.stop();
}

#[test]
fn what_a_hook_has_to_tell_is_logged_a_few_times() {
    let mut stand = Stand::clocked(&quick("gpu-red"));
    let mut job = stand.train();
    let notice = FromHook::Notice(Notice {
        kind: NoticeKind::ProfilingOff,
        text: "slower since it was profiled\nerror: forged".to_owned(),
        samples: 0,
    });
    for _ in 0..20 {
        assert!(job.send_frame(3, &notice.encode()));
    }
    stand.finish();
    let told = stand.events(EventKind::Job);
    let told = told
        .iter()
        .filter(|text| text.contains("rank 3 says: slower"));
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), 8);
    assert!(told.iter().all(|text| !text.contains('\n')));
    assert_eq!(stand.counted("notices"), 12);
    // And it stays welcome.
    stand.play(&mut job, 1);
    assert_eq!(stand.job_status("train").samples, 1);
    stand.stop();
}
