//! What a slow GPU is told to cost, against what the same job takes less without it, where recordings are not exact.

use litd_traces::Timeline;
use litd_traces::whatif::{Mended, Part, WhatIf};
use litd_units::Nanos;

use super::clocks::{on_clocks, without_waiting_senders};
use super::parallel::{apart, on_one_clock, run_slower};

/// A job with one GPU that is slower by 5 %, or with none.
fn run(spec: &str, slow: Option<usize>, seed: u64) -> Vec<Timeline> {
    run_slower(spec, slow.map(|slow| (slow, 0.05)), seed, 2)
}

/// What the slow clock of this rank costs, as told.
fn told(mut timelines: Vec<Timeline>, slow: usize) -> Nanos {
    let (groups, _) = on_one_clock(&mut timelines);
    let slow = u32::try_from(slow).unwrap();
    let ranks = &[(slow, Part::Clock)];
    WhatIf::of(&timelines, &groups).saved(Mended { ranks, links: &[] })
}

fn wall(timelines: &[Timeline]) -> f64 {
    let kernels = || timelines.iter().flat_map(|one| &one.kernels);
    let start = kernels().map(|kernel| kernel.start).min();
    let end = kernels().map(|kernel| kernel.end).max();
    (end.unwrap() - start.unwrap()).0 as f64
}

/// Compares what is told of recordings that are changed so with what the job without the slow GPU takes less. The change is
/// given the number of stages as well.
fn compare(name: &str, change: impl Fn(&mut Vec<Timeline>, usize)) {
    let jobs = [
        (2, "pp2tp4", 2),
        (2, "pp2tp4", 5),
        (4, "pp4dp2", 3),
        (4, "pp4dp2", 6),
    ];
    for (stages, spec, slow) in jobs {
        for seed in 0..3 {
            let mut timelines = run(spec, Some(slow), seed);
            let measured = 1.0 - wall(&run(spec, None, seed)) / wall(&timelines);
            change(&mut timelines, stages);
            let whole = wall(&timelines);
            let told = told(timelines, slow).0 as f64 / whole;
            let both = [told, measured].map(|share| 100.0 * share);
            println!(
                "{name:<16} {spec} {slow}: {:.2} % told, {:.2} % measured",
                both[0], both[1]
            );
            // A tenth of it, and a fiftieth of a percent.
            let off = (told - measured).abs();
            assert!(
                off < 0.1 * measured + 0.0002,
                "{name} {spec} {slow} {seed}: {both:?}"
            );
        }
    }
}

/// Every second stage on a clock that is ahead by so much.
fn second_ahead(timelines: &mut Vec<Timeline>, stages: usize, us: i64) {
    let ahead = Vec::from_iter([0, us].into_iter().cycle().take(stages));
    *timelines = on_clocks(std::mem::take(timelines), &ahead);
}

/// Starts and ends that are told late by up to 5 µs.
fn late(timelines: &mut [Timeline]) {
    apart(timelines, 5_000, 5_000);
    for timeline in timelines {
        let kernels = &mut timeline.kernels;
        kernels.sort_by_key(|kernel| (kernel.start, kernel.end));
    }
}

#[test]
fn a_slow_gpu_costs_as_much_where_clocks_of_stages_are_somewhat_apart() {
    for us in [80, -80, 40, -40] {
        compare(&format!("{us} µs"), |job, stages| {
            second_ahead(job, stages, us)
        });
    }
}

#[test]
fn a_slow_gpu_costs_as_much_where_senders_do_not_wait() {
    compare("eager", |job, _| without_waiting_senders(job));
    for us in [80, -80] {
        compare(&format!("eager, {us} µs"), |job, stages| {
            without_waiting_senders(job);
            second_ahead(job, stages, us);
        });
    }
}

#[test]
fn a_slow_gpu_costs_as_much_where_times_are_not_exact() {
    compare("exact", |_, _| {});
    compare("5 µs late", |job, _| late(job));
    compare("all of it", |job, stages| {
        without_waiting_senders(job);
        late(job);
        second_ahead(job, stages, 80);
    });
}

#[test]
fn what_a_slow_gpu_costs_does_not_depend_on_the_year() {
    for slow in 0..8 {
        let now = run("pp2tp4", Some(slow), 1);
        let begin = now.iter().flat_map(|one| &one.kernels);
        let begin = begin.map(|kernel| kernel.start.0).min().unwrap();
        let first = on_clocks(now.clone(), &[-begin / 1_000]);
        assert_eq!(told(now, slow), told(first, slow));
    }
}
