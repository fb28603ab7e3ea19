//! Sampling that ends, and what was learned.

use litd_api::{Command, EventKind, JobState};
use litd_proto::{Class, FromHook, Kernels, Tick};
use litd_rig::{Job, RankState};
use litd_units::{Nanos, Watts};

use crate::stand::{GPUS, Stand, quick};

fn period(job: &mut Job) -> u64 {
    job.poll();
    match job.state(0) {
        Some(RankState::Welcome(directive)) if !directive.pause => directive.period,
        other => panic!("{other:?}"),
    }
}

fn converge(stand: &mut Stand, job: &mut Job) -> u32 {
    stand.play_until(job, "convergence", |stand| {
        stand.job_status("train").state == JobState::Converged
    });
    stand.job_status("train").adjustments
}

/// Iterations without a profile that take longer than those of the plant.
fn slow_ticks(stand: &mut Stand, job: &mut Job, from: u64, count: u64, share: f64) {
    let length = stand.rig.hardware().plant().last().length.to_nanos();
    for iteration in from..from + count {
        let tick = FromHook::Tick(Tick {
            iteration,
            duration: Nanos((length.0 as f64 * share) as i64),
            profiled: false,
            overhead: Nanos::ZERO,
        });
        for rank in 0..GPUS {
            assert!(job.send_frame(rank, &tick.encode()));
        }
        stand.iteration_passes();
    }
}

#[test]
fn a_converged_job_is_left_in_peace_until_it_drifts() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play(&mut job, 1);
    assert_eq!(period(&mut job), 1);
    converge(&mut stand, &mut job);
    assert_eq!(period(&mut job), 1000);
    let (held, samples) = (stand.held(), stand.job_status("train").samples);
    let at = u64::from(stand.rig.hardware().plant().iterations());
    stand.play(&mut job, 80);
    slow_ticks(&mut stand, &mut job, at + 81, 80, 1.0);
    assert_eq!(period(&mut job), 1000, "{:?}", stand.job_status("train"));
    let events = stand.events(EventKind::State);
    assert_eq!(stand.job_status("train").samples, samples, "{events:#?}");
    // Iterations take longer from now on.
    slow_ticks(&mut stand, &mut job, at + 161, 100, 1.05);
    assert_eq!(period(&mut job), 1);
    assert_eq!(stand.held(), held);
    // A closer look for a few samples, once the node has come to where the ticks were, and peace
    // again.
    let behind = at + 260 - u64::from(stand.rig.hardware().plant().iterations());
    stand.play(&mut job, behind as usize);
    let more = stand.play_until(&mut job, "peace", |stand| {
        stand.job_status("train").sampling_period == 1000
    });
    assert!(more <= 20, "{more}");
    assert!(stand.job_status("train").samples > samples);
    stand.stop();
}

/// On an H100 starting and stopping torch's profiler took as long as a short iteration.
#[test]
fn a_profiler_that_takes_as_long_as_an_iteration_takes_a_hundredth_of_the_time_at_most() {
    let often = quick("observe")
        .replace("sampling_period = 1", "sampling_period = 10")
        .replace("warm_up = 3", "warm_up = 300");
    let mut stand = Stand::clocked(&often);
    let mut job = stand.train();
    stand.play(&mut job, 1);
    job.profiler_takes(stand.rig.hardware().plant().last().length.to_nanos());
    stand.play(&mut job, 20);
    let early = stand.job_status("train");
    assert_eq!((early.sampling_period, early.sampling_overhead), (10, None));
    // As far as three profiled iterations tell, and the one after them that ends the third.
    stand.play(&mut job, 40);
    let known = stand.job_status("train");
    assert_eq!(known.sampling_period, 160);
    assert!(
        known
            .sampling_overhead
            .is_some_and(|share| (0.004..0.01).contains(&share))
    );
    assert_eq!(period(&mut job), 160);
    stand.stop();
}

#[test]
fn what_was_learned_is_reused_and_can_be_forgotten() {
    // The paper's law takes many small steps, the model law two.
    for (law, least) in [("paper", 4), ("model", 2)] {
        let config = format!("{}law.law = \"{law}\"\n", quick("gpu-realloc"));
        learns_and_forgets(&config, least);
    }
}

/// A job takes so many adjustments at least, the same job again half as many at most, and as many
/// as ever once what was learned is forgotten.
fn learns_and_forgets(config: &str, least: u32) {
    let mut stand = Stand::clocked(config);
    let mut adjustments = Vec::new();
    let mut run = |stand: &mut Stand| {
        let mut job = stand.train();
        adjustments.push(converge(stand, &mut job));
        job.end();
        stand.pass(1.0);
        assert!(stand.is_back(), "{:?}", stand.held());
        stand.rig.hardware().settle();
    };
    run(&mut stand);
    // It outlives the daemon.
    assert_eq!(stand.terminate(), Some(0));
    stand.start();
    run(&mut stand);
    stand.command(&Command::Forget);
    run(&mut stand);
    let [first, second, third] = adjustments[..] else {
        panic!("{adjustments:?}");
    };
    assert!(
        first >= least && second * 2 <= first && third * 2 > first,
        "{adjustments:?}"
    );
    stand.stop();
}

#[test]
fn what_a_low_budget_took_is_not_learned() {
    let mut stand = Stand::clocked(&quick("gpu-red"));
    let mut job = stand.train();
    let soon = std::time::Duration::from_secs(2);
    stand.rig.ledger().lower_budget(Watts(4500.0), soon);
    let budget = |watts| Command::SetBudget { watts };
    stand.command(&budget(Some(Watts(4500.0))));
    converge(&mut stand, &mut job);
    assert!(stand.sum() <= Watts(4500.0));
    stand.rig.ledger().set_budget(Watts(5600.0));
    stand.command(&budget(None));
    converge(&mut stand, &mut job);
    assert!(stand.sum() > Watts(5200.0), "{:?}", stand.held());
    job.end();
    stand.pass(1.0);
    stand.stop();
}

/// One rank's iteration with as many kernels as a hook sends at most.
fn large_sample(rank: usize, iteration: u64) -> Kernels {
    const KERNELS: usize = 100_000;
    let names = (0..400).map(|k| format!("kernel {k}"));
    let start = |k: usize| Nanos(1_000_000_000 + 10_000 * k as i64 + 100 * rank as i64);
    Kernels {
        iteration,
        duration: Nanos(1_000_000_000),
        new_names: names.collect(),
        // Whatever names the rank has sent before.
        name: (0..KERNELS).map(|k| (k % 10) as u32).collect(),
        stream: vec![7; KERNELS],
        class: vec![Class::Computation; KERNELS],
        start: (0..KERNELS).map(start).collect(),
        duration_of: vec![Nanos(9_000); KERNELS],
        shows_collectives: true,
    }
}

#[test]
fn eight_ranks_of_a_hundred_thousand_kernels_are_one_sample_in_bounded_memory() {
    let mut stand = Stand::clocked(&quick("gpu-realloc"));
    let mut job = stand.train();
    stand.play(&mut job, 1);
    let (before, mut most) = (stand.memory(), 0);
    let samples = stand.job_status("train").samples;
    for iteration in 2..5 {
        for rank in 0..GPUS {
            let message = FromHook::Kernels(large_sample(rank, iteration)).encode();
            assert!(job.send_frame(rank, &message), "{:?}", job.state(rank));
            stand.finish();
            most = most.max(stand.memory());
        }
        stand.finish();
    }
    let more = stand.job_status("train").samples - samples;
    assert_eq!(more, 3, "{}", stand.said());
    // 24 bytes for each kernel that waits for the other ranks, and one frame of 2 MB, decoded.
    assert!(
        most < before + 32 * 1024,
        "{before} KiB, {most} KiB at most"
    );
    stand.stop();
}
