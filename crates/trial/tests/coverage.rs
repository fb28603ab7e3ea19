//! Trials on jobs whose truth is known: the intervals cover it as often as they say, A/A shows
//! zero, and harm is stopped when the power analysis says.
//!
//! `LITD_TRIALS`: seeds per kind of job and truth (1,000 if not set). Of 200 seeds the share that
//! is covered has a standard deviation of 1.5 % itself, so that two of nine such shares lie outside
//! 93 to 97 % by chance; of 1,000 it has 0.7 %. What the first 200 show is printed besides.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod job;

use job::{Job, KINDS, Kind, blocks, design};
use litd_trial::report::{About, harm};
use litd_trial::{Design, HARM, Prices, Report, Verdict};

const GAIN: f64 = 0.02;
const NONE: f64 = 0.0;
const LOSS: f64 = -0.005;

fn seeds() -> u64 {
    let asked = std::env::var("LITD_TRIALS").ok();
    asked.and_then(|it| it.parse().ok()).unwrap_or(1000)
}

fn about() -> About {
    About {
        job: "train".to_owned(),
        policy: "gpu-realloc".to_owned(),
        simulated: true,
        gpus: 8,
        prices: Some(Prices {
            energy_per_kwh: 0.14,
            gpu_hour: 2.5,
        }),
        started_unix: 0.0,
    }
}

fn report(kind: Kind, truth: f64, power: f64, design: Design, seed: u64) -> Report {
    let mut job = Job::new(kind, truth, power, seed);
    let blocks = blocks(&mut job, &design);
    let mut report = Report::new(about(), design);
    report.complete(&blocks);
    report
}

/// Runs a trial per seed on both cores.
fn all<T: Send>(one: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let count = seeds();
    let half = count / 2;
    let some = |seeds: std::ops::Range<u64>| seeds.map(&one).collect::<Vec<T>>();
    std::thread::scope(|scope| {
        let later = scope.spawn(|| some(half..count));
        let mut all = some(0..half);
        all.extend(later.join().unwrap());
        all
    })
}

#[test]
fn intervals_cover_the_truth_as_often_as_they_say() {
    println!(
        "of {} seeds each, the 95 % interval covers the truth in",
        seeds()
    );
    let mut wrong = Vec::new();
    for kind in KINDS {
        for truth in [GAIN, NONE, LOSS] {
            let covered = all(|seed| {
                let it = report(kind, truth, -0.01, design(seed), seed);
                let thr = it.throughput.unwrap();
                let watts = it.power.unwrap();
                let value = it.net_value.unwrap();
                // 1 % of 5600 W, of 8 GPUs, at 0.14 per kWh; noise is far smaller.
                let worth = 2.5 * truth + 0.14 * 0.056 / 8.0;
                let within = |low: f64, truth: f64, high: f64| low <= truth && truth <= high;
                [
                    within(thr.low, truth, thr.high),
                    within(watts.low, -0.01, watts.high),
                    within(value.low, worth, value.high),
                ]
            });
            let share = |which: usize, of: usize| {
                let hits = covered.iter().take(of).filter(|it| it[which]).count();
                hits as f64 * 100.0 / covered.len().min(of) as f64
            };
            let whole = |which| share(which, usize::MAX);
            let (throughput, power, value) = (whole(0), whole(1), whole(2));
            println!(
                "{throughput:5.1} % (power {power:5.1} %, net value {value:5.1} %; of the first 200 {:5.1} %)  {kind:?}, truth {:+.1} %",
                share(0, 200),
                truth * 100.0
            );
            for (what, share) in [
                ("throughput", throughput),
                ("power", power),
                ("value", value),
            ] {
                if !(93.0..=97.0).contains(&share) {
                    wrong.push(format!("{what} of {kind:?}, {truth}: {share} %"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_a_a_trial_shows_zero() {
    for kind in KINDS {
        let zero = all(|seed| {
            let design = Design {
                same: true,
                ..design(seed)
            };
            // A/A: both arms hold the caps found, so balancing brings no gain.
            let it = report(kind, GAIN, -0.05, design, seed);
            assert!(!it.saved() && !it.faster() && !it.slower());
            it.verdict == Verdict::Zero
        });
        let share = zero.iter().filter(|&&it| it).count() as f64 * 100.0 / zero.len() as f64;
        println!("{share:5.1} %  {kind:?}: A/A is zero");
        assert!(share >= 93.0, "{kind:?}: {share} %");
    }
}

/// Of one run: quads until it was stopped, and those predicted.
type Run = (Option<u32>, Option<u32>);

/// Quads until a trial is stopped for harm, and how many its own power analysis had predicted
/// after the first six.
fn stopped(kind: Kind, truth: f64, seed: u64, most: u32) -> Run {
    let design = Design {
        quads: most,
        ..design(seed)
    };
    let mut job = Job::new(kind, truth, 0.0, seed);
    let mut all = Vec::new();
    let mut report = Report::new(about(), design);
    let mut stopped = None;
    for quad in 0..most {
        let block = |index| {
            let arm = design.arm(4 * quad + index);
            job.block(arm, arm, &design)
        };
        all.extend((0..4).map(block));
        if quad == 5 {
            report.update(&all);
        }
        if stopped.is_none() && harm(&all).is_some() {
            stopped = Some(quad + 1);
        }
        if stopped.is_some() && quad >= 5 {
            break;
        }
    }
    let predicted = report.stops.iter().find(|it| it.share == -truth);
    (
        stopped,
        predicted.and_then(|it| it.blocks).map(|blocks| blocks / 4),
    )
}

#[test]
fn harm_is_stopped_within_what_the_power_analysis_predicts() {
    for kind in KINDS {
        let runs = all(|seed| stopped(kind, LOSS, seed, 40));
        let in_time = |&&(stopped, predicted): &&(Option<u32>, Option<u32>)| matches!((stopped, predicted), (Some(stopped), Some(predicted)) if stopped <= predicted);
        let share = runs.iter().filter(in_time).count() as f64 * 100.0 / runs.len() as f64;
        let quads = |of: fn(&Run) -> Option<u32>| {
            let mut quads: Vec<u32> = runs.iter().filter_map(of).collect();
            quads.sort_unstable();
            quads.get(quads.len() / 2).copied()
        };
        println!(
            "{share:5.1} %  {kind:?}: stopped within the prediction; median {:?} quads, predicted {:?}",
            quads(|it| it.0),
            quads(|it| it.1)
        );
        assert!(share >= 93.0, "{kind:?}: {share} %");
    }
}

#[test]
fn what_does_no_harm_is_hardly_ever_stopped() {
    for (truth, most) in [(NONE, 0.5), (GAIN, 0.0), (-HARM, 2.0)] {
        let runs = all(|seed| stopped(KINDS[(seed % 3) as usize], truth, seed, 30).0);
        let share = runs.iter().flatten().count() as f64 * 100.0 / runs.len() as f64;
        println!(
            "{share:5.1} %  truth {:+.2} %: stopped for harm",
            truth * 100.0
        );
        assert!(share <= most, "{truth}: {share} %");
    }
}
