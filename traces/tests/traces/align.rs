//! Alignment and leads on small made-up nodes.

use litd_traces::{
    AlignError, AlignOptions, AnalysisOptions, Kernel, KernelClass, NonMax, Selection, Timeline,
    align, analyse, leads,
};
use litd_units::{Aggregation, Nanos};
use proptest::prelude::*;

/// A rank that runs these (stream, name, start, end), in ns.
fn rank(number: u32, kernels: &[(&str, &str, i64, i64)]) -> Timeline {
    let mut timeline = Timeline::new(number, format!("rank {number}"));
    for &(stream, name, start, end) in kernels {
        let (name_id, stream) = (timeline.names.intern(name), timeline.stream(stream));
        timeline.kernels.push(Kernel {
            name: name_id,
            stream,
            class: litd_traces::class_of(name),
            start: Nanos(start),
            end: Nanos(end),
            collective: None,
            iteration: None,
        });
    }
    timeline.sort();
    timeline
}

/// A rank that runs kernels of these names on one stream, each 100 ns after the other.
fn sequence(number: u32, names: &[&str]) -> Timeline {
    let kernels = (0..)
        .zip(names)
        .map(|(k, &name)| ("7", name, 100 * k, 100 * k + 80));
    rank(number, &Vec::from_iter(kernels))
}

fn loose() -> AlignOptions {
    AlignOptions {
        min_matched: 0.0,
        ..AlignOptions::default()
    }
}

fn names<'a>(timelines: &'a [Timeline], options: &AlignOptions) -> Vec<&'a str> {
    let alignment = align(timelines, options).unwrap();
    let name = |row: &[u32]| {
        let names = row
            .iter()
            .zip(timelines)
            .map(|(&index, timeline)| timeline.name_of(&timeline.kernels[index as usize]));
        let names = Vec::from_iter(names);
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
        names[0]
    };
    alignment.matched().map(name).collect()
}

#[test]
fn extra_kernels_of_one_rank_shift_nothing() {
    let ranks = [
        sequence(0, &["a", "b", "c", "a", "b", "c"]),
        sequence(1, &["x", "a", "x", "b", "c", "a", "b", "x", "c"]),
    ];
    assert_eq!(
        names(&ranks, &AlignOptions::default()),
        ["a", "b", "c", "a", "b", "c"]
    );
    let alignment = align(&ranks, &AlignOptions::default()).unwrap();
    assert_eq!(Vec::from_iter(alignment.left_out_counts()), [0, 3]);
    let left_out = alignment.left_out(&ranks);
    assert_eq!(
        (left_out[1][0].name.as_str(), left_out[1][0].count),
        ("x", 3)
    );
}

#[test]
fn communication_counts_only_when_asked_for_and_copies_never() {
    let kernels = [
        ("7", "gemm", 0, 10),
        ("20", "ncclDevKernel", 5, 20),
        ("7", "__amd_rocclr_copyBuffer", 12, 14),
        ("7", "gemm2", 20, 30),
    ];
    let ranks = [rank(0, &kernels), rank(1, &kernels)];
    assert_eq!(names(&ranks, &AlignOptions::default()), ["gemm", "gemm2"]);
    let all = AlignOptions {
        selection: Selection::All,
        ..AlignOptions::default()
    };
    assert_eq!(names(&ranks, &all), ["gemm", "ncclDevKernel", "gemm2"]);
}

#[test]
fn streams_with_other_numbers_are_found_by_what_they_run() {
    let ranks = [
        rank(
            0,
            &[
                ("1", "a", 0, 5),
                ("1", "b", 10, 15),
                ("2", "p", 3, 4),
                ("2", "q", 6, 7),
            ],
        ),
        // The same, but what is stream 1 there is 2 here, and 9 is new.
        rank(
            1,
            &[
                ("2", "a", 1, 5),
                ("2", "b", 11, 15),
                ("9", "p", 4, 5),
                ("9", "q", 7, 8),
            ],
        ),
    ];
    assert_eq!(
        names(&ranks, &AlignOptions::default()),
        ["a", "p", "q", "b"]
    );
}

#[test]
fn iterations_are_never_mixed_up() {
    let mut ranks = [
        sequence(0, &["a", "b", "a", "b"]),
        sequence(1, &["a", "b", "a", "b"]),
    ];
    for (timeline, steps) in ranks.iter_mut().zip([[5, 5, 6, 6], [6, 6, 7, 7]]) {
        for (kernel, step) in timeline.kernels.iter_mut().zip(steps) {
            kernel.iteration = NonMax::new(step);
        }
    }
    // By names alone all four would match, and each lead would be an iteration too long.
    let alignment = align(&ranks, &loose()).unwrap();
    assert_eq!(Vec::from_iter(alignment.matched()), [[2, 0], [3, 1]]);
}

#[test]
fn leads_count_from_the_last_start() {
    let ranks = [
        rank(
            0,
            &[("7", "a", 0, 10), ("7", "b", 20, 30), ("7", "c", 40, 50)],
        ),
        rank(
            1,
            &[("7", "a", 4, 14), ("7", "b", 27, 37), ("7", "c", 49, 59)],
        ),
        rank(
            2,
            &[("7", "a", 4, 14), ("7", "b", 22, 32), ("7", "c", 41, 51)],
        ),
    ];
    let leads = leads(&ranks, &AlignOptions::default()).unwrap();
    let wave = leads
        .wave
        .iter()
        .map(|row| Vec::from_iter(row.iter().map(|lead| lead.0)));
    assert_eq!(Vec::from_iter(wave), [[4, 7, 9], [0, 0, 0], [0, 5, 8]]);
    assert_eq!(leads.values(Aggregation::Sum), [20, 0, 13].map(Nanos));
    assert_eq!(leads.values(Aggregation::Max), [9, 0, 8].map(Nanos));
    assert_eq!(leads.values(Aggregation::Last), [9, 0, 8].map(Nanos));
    assert_eq!(leads.last_in(), [0, 3, 1]);
    assert_eq!(leads.straggler(Aggregation::Sum), Some(1));
}

#[test]
fn equal_ranks_have_no_straggler() {
    let ranks = [sequence(0, &["a", "b"]), sequence(1, &["a", "b"])];
    assert_eq!(
        leads(&ranks, &loose()).unwrap().straggler(Aggregation::Sum),
        None
    );
}

#[test]
fn ranks_that_ran_something_else_are_refused_and_told_what() {
    let ranks = [
        sequence(0, &["a", "b", "c", "d"]),
        sequence(1, &["a", "y", "y", "z", "b"]),
    ];
    let error = align(&ranks, &AlignOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("leads are refused") && error.contains("50.0 %"),
        "{error}"
    );
    assert!(
        error.contains("rank 1 alone has 3 kernels: 2 × y, 1 × z"),
        "{error}"
    );
    let none = [sequence(0, &["a"]), rank(1, &[("7", "ncclKernel", 0, 1)])];
    let error = align(&none, &AlignOptions::default()).unwrap_err();
    assert!(
        matches!(error, AlignError::NothingSelected { rank: 1, .. }),
        "{error}"
    );
    let strangers = [sequence(0, &["a"]), sequence(1, &["b"])];
    assert!(
        align(&strangers, &loose()).is_err(),
        "no kernel matches, whatever is asked for"
    );
}

#[test]
fn a_hundred_thousand_unrelated_kernels_are_refused() {
    let forth = Vec::from_iter((0..100_000).map(|k| format!("kernel {}", k % 1000)));
    let mut back = forth.clone();
    back.reverse();
    let other = Vec::from_iter((0..100_000).map(|k| format!("other {k}")));
    let [forth, back, other] = [&forth, &back, &other]
        .map(|names| sequence(0, &Vec::from_iter(names.iter().map(|n| &**n))));
    let error = align(&[forth.clone(), back], &AlignOptions::default()).unwrap_err();
    assert!(matches!(error, AlignError::TooDifferent { .. }), "{error}");
    let error = align(&[forth, other], &AlignOptions::default()).unwrap_err();
    assert!(matches!(error, AlignError::TooFewMatched { .. }), "{error}");
}

/// Two ranks with ten kernels each; those of rank 1 take `slow` times as long and start later.
fn late(slow: i64) -> [Timeline; 2] {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let one = |number: u32, length: i64, delay: i64| {
        let kernels = (0..)
            .zip(names)
            .map(|(k, n)| ("7", n, 2000 * k + delay, 2000 * k + delay + length));
        // Whom the others wait for, they wait for in this.
        let exchange = [("20", "ncclX", 30_000 + delay, 31_000)];
        rank(number, &Vec::from_iter(kernels.chain(exchange)))
    };
    [one(0, 1000, 0), one(1, 1000 * slow / 100, 300)]
}

#[test]
fn pace_tells_a_slow_clock_from_a_late_start() {
    let pace = |slow| {
        let report = analyse(&late(slow), &AnalysisOptions::default()).unwrap();
        assert_eq!(report.straggler_rank, Some(1));
        report.ranks[1].pace.unwrap()
    };
    assert_eq!(pace(100), 1.0);
    assert!((pace(110) - 1.1 / 1.05).abs() < 1e-9, "{}", pace(110));
}

#[test]
fn pace_needs_eight_kernels() {
    for (count, told) in [(7, false), (8, true)] {
        let mut ranks = late(110);
        for timeline in &mut ranks {
            timeline.kernels.truncate(count);
        }
        let report = analyse(&ranks, &AnalysisOptions::default()).unwrap();
        assert_eq!(report.ranks[1].pace.is_some(), told, "{count}");
    }
}

#[test]
fn a_label_pairs_streams_only_if_half_of_their_work_is_alike() {
    // Of the kernels on stream 1, `alike` are those of the other rank's stream 1; its stream 2
    // runs the last three of them.
    let matched = |own: &[&'static str], alike: usize| {
        let mut kernels = Vec::from_iter((0..).zip(own).map(|(k, &n)| ("1", n, k, k + 1)));
        let first = rank(0, &kernels);
        for (kernel, foreign) in kernels
            .iter_mut()
            .zip(["v", "w", "x", "y", "z"])
            .skip(alike)
        {
            kernel.1 = foreign;
        }
        let last = (10..).zip(&own[own.len() - 3..]);
        kernels.extend(last.map(|(k, &n)| ("2", n, k, k + 1)));
        names(&[first, rank(1, &kernels)], &loose()).concat()
    };
    let four = ["a", "b", "c", "d"];
    assert_eq!(matched(&four, 1), "bcd");
    assert_eq!(matched(&four, 2), "ab");
    let five = ["a", "b", "c", "d", "e"];
    assert_eq!(matched(&five, 2), "cde");
    assert_eq!(matched(&five, 3), "abc");
}

#[test]
fn a_refusal_names_kernels_without_their_control_characters() {
    let ranks = [
        sequence(0, &["a", "b"]),
        sequence(1, &["c\u{1b}[2J\n", "d"]),
    ];
    let error = align(&ranks, &loose()).unwrap_err().to_string();
    assert!(error.contains("c\u{FFFD}[2J\u{FFFD}"), "{error:?}");
    assert!(!error.contains('\u{1b}'), "{error:?}");
    let left_out = litd_traces::LeftOut {
        name: format!("\u{9b}{}\u{7}", "k".repeat(100)),
        count: 1,
    };
    let words = litd_traces::align::in_words(&[left_out]);
    assert!(!words.contains(char::is_control), "{words:?}");
}

#[test]
fn many_ranks_with_many_names_are_refused_fast() {
    let own = |number: u32| {
        let names = Vec::from_iter((0..20).map(|k| format!("rank {number} kernel {k}")));
        sequence(number, &Vec::from_iter(names.iter().map(|n| &**n)))
    };
    // With the least counts found anew for each rank and name this is cubic.
    let ranks = Vec::from_iter((0..500).map(own));
    let error = align(&ranks, &loose()).unwrap_err().to_string();
    assert!(
        error.contains("rank 499 alone has 20 kernels"),
        "{}",
        error.len()
    );
}

#[test]
fn the_report_has_the_ratios_of_the_definitions() {
    let ranks = [
        rank(
            0,
            &[
                ("7", "a", 0, 100),
                ("7", "b", 100, 200),
                ("20", "ncclX", 50, 120),
                ("21", "ncclY", 110, 130),
            ],
        ),
        rank(1, &[("7", "a", 0, 100), ("7", "b", 300, 400)]),
    ];
    let report = analyse(&ranks, &AnalysisOptions::default()).unwrap();
    let [first, second] = &report.ranks[..] else {
        panic!()
    };
    assert_eq!(
        (first.kernels, first.computation, first.communication),
        (4, 2, 2)
    );
    // 50 of a and 30 of b, of 200; busy 200 of 400.
    assert_eq!(first.overlap_ratio, Some(0.4));
    assert_eq!((first.busy_fraction, second.busy_fraction), (0.5, 0.5));
    assert_eq!(second.overlap_ratio, Some(0.0));
    let one = analyse(&ranks[..1], &AnalysisOptions::default()).unwrap();
    assert!(
        one.matched_kernels.is_none()
            && one.straggler_rank.is_none()
            && one.ranks[0].lead.is_none()
    );
}

#[test]
fn without_computation_there_is_no_overlap_ratio() {
    let report = analyse(
        &[rank(0, &[("7", "ncclX", 0, 10)])],
        &AnalysisOptions::default(),
    )
    .unwrap();
    assert_eq!(report.ranks[0].overlap_ratio, None);
    assert_eq!(report.ranks[0].busy_fraction, 1.0);
    assert_eq!(KernelClass::Communication, litd_traces::class_of("ncclX"));
}

proptest! {
    #[test]
    fn what_is_matched_is_a_common_subsequence_of_all(
        ranks in prop::collection::vec(prop::collection::vec(("[12]", "[a-d]"), 1..30), 2..5)
    ) {
        let one = |(number, kernels): (u32, &Vec<(String, String)>)| {
            let kernels = (0..).zip(kernels).map(|(k, (s, n))| (s.as_str(), n.as_str(), k, k + 1));
            rank(number, &Vec::from_iter(kernels))
        };
        let timelines = Vec::from_iter((0..).zip(&ranks).map(one));
        let Ok(alignment) = align(&timelines, &loose()) else { return Ok(()) };
        prop_assert!(alignment.matched_fraction() <= 1.0);
        for (position, timeline) in timelines.iter().enumerate() {
            let mut by_stream = std::collections::HashMap::<_, Vec<u32>>::new();
            for row in alignment.matched() {
                let kernel = &timeline.kernels[row[position] as usize];
                let first = &timelines[0].kernels[row[0] as usize];
                prop_assert_eq!(timeline.name_of(kernel), timelines[0].name_of(first));
                by_stream.entry(kernel.stream).or_default().push(row[position]);
            }
            // Rows come in the order of the latest start; per stream that is the kernels' own.
            for indices in by_stream.values() {
                prop_assert!(indices.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
