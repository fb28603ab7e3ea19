//! Clocks and recordings that lead astray, and are said to.

use litd_sim::rng::Rng;
use litd_sim::workload::fsdp;
use litd_sim::{Conditions, IterationModel, Workload, record};
use litd_traces::study::{Cause, ModelOptions, Study, predict};
use litd_traces::{AlignOptions, Timeline};
use litd_units::Nanos;

use super::node::{LARGE, NONE, Node, clock, data, host, link, oracle, studied};

/// Shifts what starts from a time on.
fn jump(timeline: &mut Timeline, from: Nanos, by: Nanos) {
    for kernel in &mut timeline.kernels {
        if kernel.start >= from {
            kernel.start += by;
        }
        if kernel.end >= from {
            kernel.end += by;
        }
    }
    timeline.sort();
}

/// A time at this share of a recording.
fn at(timelines: &[Timeline], share: f64) -> Nanos {
    let kernels = || timelines.iter().flat_map(|timeline| &timeline.kernels);
    let start = kernels().map(|kernel| kernel.start).min().unwrap();
    let end = kernels().map(|kernel| kernel.end).max().unwrap();
    start + Nanos(((end - start).0 as f64 * share) as i64)
}

/// Nodes of several sizes; each layer has three collectives.
fn nodes() -> impl Iterator<Item = Node> {
    let small: fn() -> Workload = || fsdp(4);
    [
        (LARGE.workload, 8, 1),
        (LARGE.workload, 4, 1),
        (small, 8, 4),
        (small, 3, 4),
    ]
    .map(|(workload, gpus, iterations)| Node {
        workload,
        gpus,
        iterations,
        ..LARGE
    })
    .into_iter()
}

#[test]
fn a_clock_that_jumps_is_named_with_its_time() {
    for node in nodes() {
        for (seed, by, share) in [
            (0, 5_000_000, 0.5),
            (1, -5_000_000, 0.5),
            (2, 5_000_000, 0.3),
            (3, 40_000_000, 0.7),
            (4, 400_000, 0.5),
        ] {
            let mut timelines = node.run(&[(1, clock(0.02))], seed);
            let (from, last) = (at(&timelines, share), node.gpus - 1);
            let start = at(&timelines, 0.0);
            jump(&mut timelines[last], from, Nanos(by));
            let study = studied(&mut timelines);
            let case = format!("{node:?} {by} at {share}: {:#?}", study.skew);
            let [jump] = &study.skew.jumps[..] else {
                panic!("{case}");
            };
            assert_eq!(jump.rank, Some(last as u32), "{case}");
            assert!((jump.by_ns.0 - by).abs() < by.abs() / 50, "{case}");
            let [after, before] = jump.between_ns;
            assert!(after <= from && from <= before, "{case}");
            assert!(after <= jump.at_ns && jump.at_ns <= before, "{case}");
            assert_eq!(jump.since_start_ns, jump.at_ns - start, "{case}");
            let diagnosis = &study.diagnosis;
            assert_eq!(diagnosis.cause, Cause::SamplingArtefact, "{case}");
            assert!(!diagnosis.power_helps);
            let side = if by > 0 { "ahead" } else { "back" };
            let told = format!("the time stamps of rank {last} jump {side} by about");
            assert!(diagnosis.evidence[0].starts_with(&told), "{diagnosis:#?}");
            assert!(
                study
                    .skew
                    .link_slowness
                    .iter()
                    .all(|slow| slow.abs() < 0.03)
            );
        }
    }
}

#[test]
fn of_two_ranks_none_is_said_to_jump() {
    let node = Node { gpus: 2, ..LARGE };
    let mut timelines = node.run(&[], 1);
    let from = at(&timelines, 0.5);
    jump(&mut timelines[0], from, Nanos(5_000_000));
    let study = studied(&mut timelines);
    let [jump] = &study.skew.jumps[..] else {
        panic!("{:#?}", study.skew);
    };
    assert_eq!(jump.rank, None);
    assert!((jump.by_ns.0 + 5_000_000).abs() < 50_000, "{jump:?}");
    assert_eq!(study.diagnosis.cause, Cause::SamplingArtefact);
    assert!(study.diagnosis.evidence[0].contains("ranks 0 and 1 jump apart"));
}

#[test]
fn a_clock_may_jump_twice() {
    let mut timelines = LARGE.run(&[], 1);
    for (share, by) in [(0.3, 5_000_000), (0.7, -3_000_000)] {
        let from = at(&timelines, share);
        jump(&mut timelines[5], from, Nanos(by));
    }
    let skew = studied(&mut timelines).skew;
    let jumps = skew.jumps.iter().map(|jump| (jump.rank, jump.by_ns));
    let expected = [5_000_000, -3_000_000].map(|by| (Some(5), Nanos(by)));
    assert_eq!(Vec::from_iter(jumps), expected, "{skew:#?}");
}

#[test]
fn no_clock_is_said_to_jump_that_does_not() {
    for node in nodes() {
        let faults = [
            NONE,
            clock(0.1),
            host(0.2),
            data(0.3),
            link(0.1),
            link(1.0),
            link(3.0),
        ];
        for (seed, fault) in (0..).zip(faults) {
            let skew = studied(&mut node.run(&[(1, fault)], seed)).skew;
            assert_eq!(skew.jumps, [], "{node:?} {fault:?}");
        }
        // A clock that drifts by 2 ms has no place where it jumps; one that is ahead from the beginning does
        // not jump either.
        let mut timelines = node.run(&[], 9);
        let (start, end) = (at(&timelines, 0.0), at(&timelines, 1.0));
        let drift = |time: Nanos| {
            let share = (time - start).0 as f64 / (end - start).0 as f64;
            time + Nanos((2e6 * share) as i64)
        };
        for kernel in &mut timelines[0].kernels {
            (kernel.start, kernel.end) = (drift(kernel.start), drift(kernel.end));
        }
        jump(&mut timelines[1], start, Nanos(5_000_000));
        // Collectives of the second half are another kind's, which end on one rank 10 µs later.
        let middle = at(&timelines, 0.5);
        for kernel in &mut timelines[2].kernels {
            if kernel.collective.is_some() && kernel.start > middle {
                kernel.end += Nanos(10_000);
            }
        }
        let skew = studied(&mut timelines).skew;
        assert_eq!(skew.jumps, [], "{node:?}");
        assert!(skew.removed[1], "{skew:#?}");
    }
}

#[test]
fn no_skew_known_is_not_no_skew() {
    let mut timelines = LARGE.run(&[], 1);
    assert!(studied(&mut timelines).skew.estimated);
    for timeline in &mut timelines {
        timeline
            .kernels
            .retain(|kernel| kernel.collective.is_none());
    }
    let skew = studied(&mut timelines).skew;
    assert!(!skew.estimated && skew.ahead_ns.is_empty() && skew.collectives == 0);
}

/// The diagnosis of a node must not depend on other events in the recording.
#[test]
fn what_ran_outside_of_the_iterations_says_nothing_of_them() {
    let node = Node {
        iterations: 2,
        ..LARGE
    };
    let marks = |timelines: &mut [Timeline]| {
        let diagnosis = studied(timelines).diagnosis;
        let idle = diagnosis.ranks.iter().map(|rank| rank.marks.idle);
        (diagnosis.cause, diagnosis.evidence, Vec::from_iter(idle))
    };
    let mut timelines = node.run(&[(2, host(0.05))], 1);
    let told = marks(&mut timelines);
    assert_eq!(told.0, Cause::HostBound);
    // Ranks 0 and 1 go on for as long again, with pauses.
    let length = (at(&timelines, 1.0) - at(&timelines, 0.0)).0;
    for timeline in &mut timelines[..2] {
        let more = timeline.kernels.iter().step_by(7).map(|kernel| {
            let mut kernel = *kernel;
            (kernel.iteration, kernel.collective) = (None, None);
            kernel.start += Nanos(length);
            kernel.end += Nanos(length);
            kernel
        });
        let more = Vec::from_iter(more);
        timeline.kernels.extend(more);
        timeline.sort();
    }
    assert_eq!(marks(&mut timelines), told);
}

fn few_match(mut timelines: Vec<Timeline>) -> (Cause, Vec<String>) {
    let skew = litd_traces::study::remove_skew(&mut timelines);
    let align = AlignOptions {
        min_matched: 0.1,
        ..AlignOptions::default()
    };
    let study: Study<'_> =
        litd_traces::study::study(&timelines, skew, &align, &ModelOptions::default()).unwrap();
    (study.diagnosis.cause, study.diagnosis.evidence)
}

#[test]
fn ranks_of_which_few_kernels_match_get_no_firm_answer() {
    for fault in [NONE, clock(0.1), data(0.1), host(0.3), link(1.0)] {
        let timelines = || LARGE.run(&[(1, fault)], 1);
        // Every rank lacks other parts, of kernels that come in every layer.
        let mut sampled = timelines();
        for (rank, timeline) in sampled.iter_mut().enumerate() {
            for at in 0..timeline.kernels.len() {
                let name = timeline.name_of(&timeline.kernels[at]);
                let plain = name.replace(|c: char| c.is_ascii_digit(), "");
                timeline.kernels[at].name = timeline.names.intern(&plain);
            }
            let mut rng = Rng::stream(1, &[rank as u64]);
            timeline.kernels.retain(|_| rng.normal() > 0.0);
        }
        let (cause, evidence) = few_match(sampled);
        assert_eq!(cause, Cause::SamplingArtefact, "{evidence:?}");
        assert!(evidence[1].contains("parts of the recordings are missing"));
        // Half of the kernels of rank 1 are others.
        let mut different = timelines();
        let odd = different[1].names.intern("something else");
        for kernel in different[1].kernels.iter_mut().step_by(2) {
            if kernel.collective.is_none() {
                kernel.name = odd;
            }
        }
        let (cause, evidence) = few_match(different);
        assert_eq!(cause, Cause::Unknown, "{evidence:?}");
        assert!(evidence[1].contains("run different things"), "{evidence:?}");
    }
}

/// Profilers write whole nanoseconds. What that makes of the models of a few tiny kernels is no
/// more than it must be: each duration is wrong by a nanosecond at most.
#[test]
fn what_models_miss_is_what_whole_nanoseconds_leave_out() {
    let tiny = Workload::load(&oracle("tiny-fsdp.json")).unwrap();
    let options = ModelOptions::default();
    let mut most = 0.0_f64;
    for scale in [1.0, 0.1, 0.01, 0.001] {
        for (seed, kernels) in (0..).zip([6, 6, 6, 12, 100, 100]) {
            let mut workload = tiny.clone();
            if kernels < workload.kernels.len() {
                workload.kernels.truncate(kernels);
                workload.collectives.clear();
            }
            for kernel in &mut workload.kernels {
                kernel.needs = kernel.needs.filter(|_| !workload.collectives.is_empty());
                kernel.work = kernel.work * scale;
            }
            let speeds = [1.0, 1.031, 1.007, 1.0123 + 0.001 * f64::from(seed)];
            let mut model = IterationModel::new(&workload).unwrap();
            let result = model.run(&Conditions::new(&speeds, 1.3)).unwrap();
            let exact = result
                .duration
                .iter()
                .map(|row| row.iter().map(|time| time.0).collect());
            let exact = Vec::from_iter(exact);
            let overlap = result.overlapped.iter().zip(&result.duration);
            let ratio = overlap.map(|(part, whole)| {
                let both = part.iter().zip(whole);
                both.map(|(part, whole)| part.0 / whole.0).collect()
            });
            let overlap = Vec::from_iter(ratio);
            let exact = predict(&exact, &overlap, &options);
            let mut timelines = record::timelines(&workload, result, record::EPOCH, 0);
            let models = studied(&mut timelines).models;
            // Both sums of a ratio may be wrong by a nanosecond per kernel.
            let kernels = workload.kernels.len() as f64;
            let bound = 2.0 * kernels * 1e-6 / exact.t_baseline * 1.1;
            for (aligned, exact) in [&models.max, &models.med, &models.min]
                .into_iter()
                .zip(exact.aligned)
            {
                let miss = (aligned.speedup / exact.0 - 1.0).abs();
                assert!(miss <= bound, "{miss} exceeds {bound}");
                most = most.max(miss / bound);
                let miss = (aligned.node_power_ratio / exact.1 - 1.0).abs();
                assert!(miss <= bound, "{miss} exceeds {bound}");
            }
        }
    }
    // The bound is no idle one.
    assert!(most > 0.05, "{most}");
}
