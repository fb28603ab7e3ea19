//! Stages of a pipeline on machines whose clocks differ: what ranks wait for is told as if they did not.

use litd_traces::study::{Cause, Clocks, set_right};
use litd_traces::{AlignOptions, Report, Timeline, partition};
use litd_units::Nanos;

use super::parallel::{analysed, apart, run};

/// The ranks of each stage in order, on a clock that is ahead by so much.
pub(super) fn on_clocks(mut timelines: Vec<Timeline>, ahead_us: &[i64]) -> Vec<Timeline> {
    let each = timelines.len() / ahead_us.len();
    for (stage, us) in timelines.chunks_mut(each).zip(ahead_us) {
        let by = Nanos(us * 1_000);
        stage.iter_mut().for_each(|timeline| timeline.shift(by));
    }
    timelines
}

/// Senders don't wait for their receivers, as with little to send.
pub(super) fn without_waiting_senders(timelines: &mut [Timeline]) {
    for timeline in timelines {
        let told = timeline
            .kernels
            .iter()
            .map(|kernel| timeline.collective_of(kernel));
        let sends = told.map(|told| told.is_some_and(|told| told.name.as_deref() == Some("send")));
        let sends = Vec::from_iter(sends);
        for (kernel, _) in timeline
            .kernels
            .iter_mut()
            .zip(sends)
            .filter(|(_, sends)| *sends)
        {
            kernel.end = kernel.end.min(kernel.start + Nanos(50_000));
        }
    }
}

/// What each rank waits for, and what is said of each group.
fn told(report: &Report) -> Vec<(Vec<i64>, Option<u32>, Option<Cause>)> {
    let groups = report.groups.iter();
    Vec::from_iter(groups.map(|group| {
        let ranks = report
            .ranks
            .iter()
            .filter(|rank| group.ranks.contains(&rank.rank));
        let waits = ranks.flat_map(|rank| [rank.wait_ns, rank.stage_wait_ns]);
        let waits = waits.map(|wait| wait.map_or(-1, |wait| wait.0));
        let cause = group.diagnosis.as_ref().map(|diagnosis| diagnosis.cause);
        (waits.collect(), group.straggler_rank, cause)
    }))
}

#[test]
fn stages_on_other_clocks_wait_as_on_one() {
    for (spec, slow, ahead) in [
        ("pp2tp4", Some(6), &[0, 20_000][..]),
        ("pp2tp4", Some(1), &[0, -20_000]),
        ("pp2tp4", None, &[700, 0]),
        ("pp4dp2", Some(3), &[0, 20_000, -3_000, 55_000]),
        ("pp4dp2", None, &[4_000_000, 0, 0, 1_000]),
        ("pp4tp2", None, &[0, 0, -150_000, 0]),
    ] {
        for ends in [1, 8_000] {
            let mut timelines = run(spec, slow, 3);
            apart(&mut timelines, 1, ends);
            let one = analysed(timelines.clone());
            let many = analysed(on_clocks(timelines, ahead));
            for (one, many) in told(&one).into_iter().zip(told(&many)) {
                assert_eq!(
                    (one.1, one.2),
                    (many.1, many.2),
                    "{spec} {slow:?} {ahead:?}"
                );
                for (one, many) in one.0.iter().zip(&many.0) {
                    // Each of some tens of transfers is off by what ends are apart.
                    let off = (one - many).abs();
                    assert!(
                        off <= 32 * ends,
                        "{spec} {ahead:?} {ends}: {one} and {many}"
                    );
                }
            }
            // A pipeline takes its time in any case.
            let longer = many.wall_ns.0 - one.wall_ns.0;
            assert!(longer.abs() < 100_000, "{spec} {ahead:?}: {longer}");
        }
    }
}

#[test]
fn clocks_that_agree_are_left_alone_whatever_senders_do() {
    for spec in ["pp2tp4", "pp4dp2", "pp4tp2", "tp2dp4", "dp8"] {
        for eager in [false, true] {
            for seed in 0..3 {
                let mut timelines = run(spec, Some(1), seed);
                if eager {
                    without_waiting_senders(&mut timelines);
                }
                apart(&mut timelines, 5_000, 8_000);
                let groups = partition(&mut timelines, &AlignOptions::default()).unwrap();
                let clocks = set_right(&mut timelines, &groups);
                assert_eq!(clocks, Clocks::default(), "{spec} {eager} {seed}");
            }
        }
    }
}

#[test]
fn where_senders_do_not_wait_clocks_are_set_no_further_than_transfers_need() {
    for (spec, ahead) in [("pp2tp4", 30_000), ("pp2tp4", -30_000), ("pp2dp4", 400_000)] {
        let mut timelines = run(spec, None, 2);
        without_waiting_senders(&mut timelines);
        let mut timelines = on_clocks(timelines, &[0, ahead]);
        let groups = partition(&mut timelines, &AlignOptions::default()).unwrap();
        let [wrong] = &set_right(&mut timelines, &groups).right[..] else {
            panic!("{spec} {ahead}: one clock is wrong");
        };
        let by = wrong.ahead.0 * if wrong.range.start == 0 { -1 } else { 1 };
        let share = by as f64 / (ahead * 1_000) as f64;
        println!("{spec} {ahead}: {share}");
        assert!((0.3..=1.01).contains(&share), "{spec} {ahead}: {share}");
    }
}

#[test]
fn a_pipeline_of_single_ranks_has_its_clocks_set_right() {
    let ahead = [0, 20_000, -3_000, 55_000];
    let one = analysed(run("pp4", None, 1));
    let many = analysed(on_clocks(run("pp4", None, 1), &ahead));
    assert_eq!(told(&one), told(&many));
}

/// Takes transfers out, of which only so many of each kind are left, and their other ends.
fn with_fewer(timelines: &mut [Timeline], keep: impl Fn(&str, usize) -> bool) {
    for timeline in timelines {
        let mut counts = std::collections::HashMap::<String, usize>::new();
        let names = timeline.kernels.iter().map(|kernel| {
            let name = timeline.collective_of(kernel)?.name.as_deref()?;
            ["send", "recv"].contains(&name).then(|| name.to_owned())
        });
        let mut names = Vec::from_iter(names).into_iter();
        timeline.kernels.retain(|_| {
            let Some(name) = names.next().flatten() else {
                return true;
            };
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            keep(&name, *count)
        });
    }
}

#[test]
fn few_transfers_tell_clocks_that_are_far_apart() {
    // Of each rank the first three that it sends and that it receives, which are one on two stages.
    let mut timelines = run("pp2tp4", None, 1);
    with_fewer(&mut timelines, |_, count| count <= 3);
    let mut timelines = on_clocks(timelines, &[0, 20_000]);
    let groups = partition(&mut timelines, &AlignOptions::default()).unwrap();
    let clocks = set_right(&mut timelines, &groups);
    assert!(!clocks.unknown);
    let [right] = &clocks.right[..] else {
        panic!("one clock is wrong: {clocks:?}");
    };
    assert_eq!(right.range, 4..8);
    assert!((right.ahead.0 - 20_000_000).abs() < 1_000, "{right:?}");
}

#[test]
fn what_is_handed_on_one_way_leaves_clocks_unknown() {
    let mut timelines = run("pp2tp4", None, 1);
    // Forwards alone, as for inference: the first stage sends and the second one receives.
    let (first, second) = timelines.split_at_mut(4);
    with_fewer(first, |name, _| name == "send");
    with_fewer(second, |name, _| name == "recv");
    let groups = partition(&mut timelines, &AlignOptions::default()).unwrap();
    assert!(set_right(&mut timelines.clone(), &groups).unknown);
    // What comes before it was sent is set right all the same.
    let mut behind = on_clocks(timelines, &[0, -20_000]);
    let clocks = set_right(&mut behind, &groups);
    assert_eq!(clocks.right.len(), 1);
    assert!(clocks.unknown);
}
