//! litd is killed (SIGKILL) at a random moment and started again, over and over. The hardware's
//! ledger, which lives in another process than litd, breaks no rule at any instant, and after
//! the end all caps are back.
//!
//! `LITD_KILLS`: how many runs (25 if not set); `LITD_KILL_SEED`: the first one's seed, which a
//! failure names.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::seeds::{self, Variables};
use crate::stand::{DEVICES, GPUS, LITD, SOON, Stand, quick};
use litd_rig::{Fault, Job, JobSpec, Killer, Ledger};
use litd_sim::rng::Rng;

/// When it is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// So long after its process was made: while it starts, recovers, or begins to steer.
    Start(Duration),
    /// After so many more writes.
    Writes(usize),
    /// So long after its job has connected.
    Steering(Duration),
    /// So long after it was asked to stop, having written so often.
    Stopping(usize, Duration),
}

/// A moment that does not come is over after so long.
const LATEST: Duration = Duration::from_millis(400);

fn below(rng: &mut Rng, most: usize) -> usize {
    (rng.uniform() * most as f64) as usize
}

fn pick(rng: &mut Rng) -> Moment {
    let micros = |rng: &mut Rng, most: usize| Duration::from_micros(below(rng, most) as u64);
    match below(rng, 8) {
        0 | 1 => Moment::Start(micros(rng, 40_000)),
        2..=4 => Moment::Writes(1 + below(rng, 60)),
        5 | 6 => Moment::Steering(micros(rng, 120_000)),
        _ => Moment::Stopping(1 + below(rng, 30), micros(rng, 6_000)),
    }
}

/// Runs on a thread of its own and kills when its moment has come.
fn kill_at(moment: Moment, ledger: &Ledger, killer: &Killer) {
    let writes = |count: usize| {
        let (from, until) = (ledger.len(), Instant::now() + LATEST);
        while ledger.len() < from + count && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(50));
        }
    };
    match moment {
        Moment::Start(time) | Moment::Steering(time) | Moment::Stopping(_, time) => {
            std::thread::sleep(time);
        }
        Moment::Writes(count) => writes(count),
    }
    killer.kill();
}

/// Trains and lets time pass until the daemon is no longer there, or `enough` says so.
fn train(stand: &mut Stand, job: &mut Job, mut enough: impl FnMut(&Stand) -> bool) {
    while !enough(stand) {
        job.run_iteration();
        let time = stand.rig.hardware().plant().last().length.to_nanos();
        if stand.rig.advance(time).is_err() {
            return;
        }
    }
}

/// A job on the node, unless the daemon dies before it is there.
fn attach(stand: &Stand) -> Option<Job> {
    let mut job = stand.rig.attach(JobSpec::new("train", 0..GPUS)).ok()?;
    job.welcome(SOON).ok()?;
    Some(job)
}

/// One life of the daemon, which ends as it must.
fn live(stand: &mut Stand, moment: Moment) {
    let ledger = stand.rig.ledger().clone();
    let config = stand.config().to_owned();
    let mut daemon = stand.rig.launch_clocked(Path::new(LITD), &config).unwrap();
    let killer = daemon.killer();
    std::thread::scope(|scope| {
        let strike = || scope.spawn(|| kill_at(moment, &ledger, &killer));
        let early = matches!(moment, Moment::Start(_)).then(strike);
        if stand.rig.make_ready(&mut daemon).is_err() {
            return;
        }
        let Some(mut job) = attach(stand) else { return };
        let deadline = Instant::now() + SOON;
        match moment {
            Moment::Stopping(writes, _) => {
                let (from, until) = (ledger.len(), Instant::now() + LATEST);
                train(stand, &mut job, |_| {
                    ledger.len() >= from + writes || Instant::now() > until
                });
                daemon.ask_to_stop();
                strike();
            }
            _ if early.is_none() => drop(strike()),
            _ => {}
        }
        train(stand, &mut job, |_| Instant::now() > deadline);
    });
    killer.kill();
    daemon.kill();
}

/// The end: SIGTERM to a daemon that has recovered and steered again, or `litd restore`, which is
/// what systemd runs where there is no daemon.
fn end(stand: &mut Stand, restore: bool) {
    let said = if restore {
        stand.restore_after_kill()
    } else {
        stand.start();
        let mut job = stand.train();
        let from = stand.rig.ledger().len();
        let mut iterations = 0;
        train(stand, &mut job, |stand| {
            iterations += 1;
            iterations > 30 || stand.rig.ledger().len() > from + 40
        });
        let code = stand.terminate();
        assert_eq!(code, Some(0), "{}", stand.said());
        stand.said()
    };
    stand.assert_clean_but_for_late(&said);
}

fn run(seed: u64) {
    let mut rng = Rng::stream(seed, &[]);
    let policy = ["gpu-red", "gpu-realloc", "cpu-slosh"][below(&mut rng, 3)];
    let mut stand = Stand::bare(&quick(policy), true);
    if policy == "cpu-slosh" {
        stand.rig.ledger().permit_slosh();
    }
    // Slow devices make adjustments long, and give the moment more to fall into.
    for device in 0..DEVICES {
        if below(&mut rng, 4) == 0 {
            let slow = Duration::from_micros(200 + below(&mut rng, 3000) as u64);
            stand.rig.hardware().inject(device, Fault::Slow(slow));
        }
    }
    let lives = 1 + below(&mut rng, 3);
    for _ in 0..lives {
        let moment = pick(&mut rng);
        live(&mut stand, moment);
        stand.assert_rules();
    }
    end(&mut stand, below(&mut rng, 4) == 0);
}

#[test]
fn killed_at_any_moment_it_leaves_no_cap_wrong() {
    let variables = Variables {
        runs: "LITD_KILLS",
        seed: "LITD_KILL_SEED",
    };
    seeds::each(variables, 25, 3, run);
}
