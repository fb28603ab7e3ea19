//! Ranks that arrive one after the other are analysed as timelines read from files are.

use litd_traces::{
    AlignError, AlignOptions, AnalysisOptions, Kernel, KernelClass, Live, LiveError, LiveKernel,
    LiveReport, Marks, NameId, NameTable, NonMax, Selection, Shows, Timeline, analyse,
};
use litd_units::Nanos;
use proptest::prelude::*;

const CLASSES: [KernelClass; 3] = [
    KernelClass::Computation,
    KernelClass::Communication,
    KernelClass::Copy,
];

fn table(names: u32) -> NameTable {
    let mut table = NameTable::default();
    for name in 0..names {
        table.intern(&format!("kernel {name}"));
    }
    table
}

fn kernel(name: u32, stream: u32, class: KernelClass, start: i64, duration: i64) -> LiveKernel {
    LiveKernel {
        name: NameId(name),
        stream,
        class,
        limit: None,
        start: Nanos(start),
        duration: Nanos(duration),
    }
}

/// Kernels of these names, one after the other on one stream.
fn sequence(names: impl IntoIterator<Item = u32>) -> Vec<LiveKernel> {
    let one = |(k, name): (i64, u32)| kernel(name, 7, KernelClass::Computation, 100 * k, 80);
    (0..).zip(names).map(one).collect()
}

/// The same kernels as a reader would hand them out.
fn timeline(
    rank: u32,
    names: &NameTable,
    kernels: &[LiveKernel],
    iteration: Option<u32>,
) -> Timeline {
    let mut timeline = Timeline::new(rank, format!("rank {rank}"));
    timeline.names = names.clone();
    for kernel in kernels {
        let stream = timeline.stream(&kernel.stream.to_string());
        timeline.kernels.push(Kernel {
            name: kernel.name,
            stream,
            class: kernel.class,
            start: kernel.start,
            end: kernel.start + kernel.duration,
            collective: None,
            iteration: iteration.and_then(NonMax::new),
        });
    }
    timeline.sort();
    timeline
}

fn live(
    ranks: &[Vec<LiveKernel>],
    order: &[usize],
    names: &NameTable,
    options: AlignOptions,
) -> Result<LiveReport, AlignError> {
    let mut live = Live::new(ranks.len(), options);
    for &rank in order {
        live.add(rank, ranks[rank].iter().copied()).unwrap();
    }
    assert_eq!(live.missing(), 0);
    live.finish(names).map(|report| LiveReport {
        marks: report.marks.into_iter().map(rounded).collect(),
        // `analyse` has no such thing.
        slowness: Vec::new(),
        ..report
    })
}

/// Sums of the same numbers in another order differ in their last bits.
fn rounded(marks: Marks) -> Marks {
    let round = |value: f64| (value * 1e9).round() / 1e9;
    Marks {
        slower_compute: marks.slower_compute.map(round),
        slower_memory: marks.slower_memory.map(round),
        uncertainty: marks.uncertainty.map(round),
        uncertainty_memory: marks.uncertainty_memory.map(round),
        idle: round(marks.idle),
        slower_link: round(marks.slower_link),
    }
}

/// What `analyse` says, in the form of a live report; it has no workload.
fn batch(
    ranks: &[Vec<LiveKernel>],
    names: &NameTable,
    align: AlignOptions,
    iteration: Option<u32>,
) -> Result<LiveReport, AlignError> {
    let timelines = (0..).zip(ranks);
    let timelines = timelines.map(|(rank, kernels)| timeline(rank, names, kernels, iteration));
    let options = AnalysisOptions {
        align,
        ..AnalysisOptions::default()
    };
    let report = analyse(&Vec::from_iter(timelines), &options)?;
    let ranks = || report.ranks.iter();
    Ok(LiveReport {
        shows: Shows::Kernels,
        matched: report.matched_kernels.unwrap(),
        matched_fraction: report.matched_fraction.unwrap(),
        leads: ranks().map(|rank| rank.lead.unwrap()).collect(),
        last_in: ranks().map(|rank| rank.last_in.unwrap()).collect(),
        busy: ranks().map(|rank| rank.busy_fraction).collect(),
        pace: ranks().map(|rank| rank.pace).collect(),
        marks: ranks().map(|rank| rounded(rank.marks)).collect(),
        slowness: Vec::new(),
        workload: 0,
    })
}

/// How one rank departs from what all ranks run.
#[derive(Debug, Clone)]
struct Departure {
    /// Shift of all starts, and one more per kernel, taken in turns.
    late: i64,
    jitter: Vec<i64>,
    /// Every so manieth kernel is left out, and comes twice; 0 for none.
    dropped: usize,
    doubled: usize,
    /// Added to stream numbers.
    streams: u32,
    /// Added to names.
    names: u32,
    reversed: bool,
}

type Spec = (u32, u32, usize, i64, i64);

fn departed(base: &[Spec], by: &Departure) -> Vec<LiveKernel> {
    let hit = |every: usize, k: usize| every > 0 && k % every == every - 1;
    let mut kernels = Vec::new();
    let mut now = by.late;
    for (k, &(stream, name, class, gap, duration)) in base.iter().enumerate() {
        now += gap;
        if hit(by.dropped, k) {
            continue;
        }
        let jitter = by.jitter[k % by.jitter.len()];
        let (stream, name) = (stream + by.streams, name + by.names);
        let one = kernel(
            name,
            stream,
            CLASSES[class],
            now + jitter,
            duration + jitter,
        );
        kernels.push(one);
        if hit(by.doubled, k) {
            kernels.push(one);
        }
    }
    if by.reversed {
        kernels.reverse();
    }
    kernels
}

/// Mostly nothing, so that many samples have ranks that are all equal.
fn rarely<T: std::fmt::Debug + Clone + 'static>(
    usual: T,
    other: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = T> {
    prop_oneof![6 => Just(usual), 1 => other]
}

fn departure() -> impl Strategy<Value = Departure> {
    (
        0_i64..6,
        prop::collection::vec(0_i64..4, 1..9),
        rarely(0, 5_usize..40),
        rarely(0, 5_usize..40),
        rarely(0, 1_u32..3),
        prop_oneof![40 => Just(0), 1 => 1_u32..9],
        prop_oneof![9 => Just(false), 1 => Just(true)],
    )
        .prop_map(
            |(late, jitter, dropped, doubled, streams, names, reversed)| Departure {
                late,
                jitter,
                dropped,
                doubled,
                streams,
                names,
                reversed,
            },
        )
}

fn base() -> impl Strategy<Value = Vec<Spec>> {
    let class = prop_oneof![6 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let kernel = (0_u32..3, 0_u32..6, class, 0_i64..12, 0_i64..30);
    prop::collection::vec(kernel, 1..120)
}

fn options() -> impl Strategy<Value = AlignOptions> {
    let selection = prop_oneof![Just(Selection::Computation), Just(Selection::All)];
    let least = prop_oneof![4 => Just(0.0), 4 => Just(0.8), 1 => Just(1.5)];
    (selection, least).prop_map(|(selection, min_matched)| AlignOptions {
        selection,
        min_matched,
    })
}

fn sample() -> impl Strategy<Value = (Vec<Vec<LiveKernel>>, Vec<usize>)> {
    (2_usize..6).prop_flat_map(|ranks| {
        let departures = prop::collection::vec(departure(), ranks);
        let order = Just(Vec::from_iter(0..ranks)).prop_shuffle();
        let all_equal = prop::bool::weighted(0.3);
        (base(), departures, order, all_equal).prop_map(|(base, mut by, order, all_equal)| {
            for by in by.iter_mut().filter(|_| all_equal) {
                (by.dropped, by.doubled, by.streams, by.names) = (0, 0, 0, 0);
            }
            let ranks = by.iter().map(|by| departed(&base, by));
            (ranks.collect(), order)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn says_what_the_analysis_of_timelines_says(
        (ranks, order) in sample(), options in options(), marked in prop::option::of(0_u32..9)
    ) {
        // The last names are in no table.
        let names = table(12);
        let mut found = live(&ranks, &order, &names, options);
        if let Ok(report) = &mut found {
            // Of pieces a live report tells less.
            prop_assume!(report.shows == Shows::Kernels);
            report.workload = 0;
        }
        let expected = batch(&ranks, &names, options, marked);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn the_order_of_arrival_does_not_matter((ranks, order) in sample(), options in options()) {
        let names = table(20);
        let in_order = Vec::from_iter(0..ranks.len());
        let [one, other] = [&in_order, &order].map(|order| live(&ranks, order, &names, options));
        prop_assert_eq!(one, other);
    }
}

/// What two ranks show whose kernels begin so many nanoseconds after the end of the one before; the last one is of a
/// class.
fn shown(gap: i64, class: KernelClass) -> LiveReport {
    let names = table(4);
    let rank = |longer: i64| {
        let one = |k: i64| {
            let lasts = 5_000 + longer;
            let class = if k == 11 {
                class
            } else {
                KernelClass::Computation
            };
            kernel((k % 4) as u32, 7, class, k * (lasts + gap), lasts)
        };
        Vec::from_iter((0..12).map(one))
    };
    let ranks = [rank(0), rank(200)];
    live(&ranks, &[0, 1], &names, AlignOptions::default()).unwrap()
}

#[test]
fn pieces_that_tile_a_stream_tell_no_pace() {
    let pieces = shown(0, KernelClass::Computation);
    assert_eq!(
        (pieces.shows, &pieces.pace[..]),
        (Shows::Pieces, &[None; 2][..])
    );
    assert_eq!(pieces.marks[1].slower_compute, None);
    // Who starts first is told all the same.
    assert!(
        pieces.leads[0].max_ns > pieces.leads[1].max_ns,
        "{:?}",
        pieces.leads
    );
    // Kernels leave a gap, and where any communicates they are no pieces.
    for (gap, class) in [
        (1_000, KernelClass::Computation),
        (0, KernelClass::Communication),
    ] {
        let kernels = shown(gap, class);
        assert_eq!(kernels.shows, Shows::Kernels);
        assert!(kernels.pace[1] > kernels.pace[0], "{:?}", kernels.pace);
    }
}

#[test]
fn ties_between_streams_go_to_the_stream_reported_last() {
    // Both streams run one kernel at once; which one is the last decides the last lead.
    let rank = |late: i64| {
        [
            kernel(0, 9, KernelClass::Computation, 10 - late, 5),
            kernel(1, 3, KernelClass::Computation, 10, 5),
        ]
    };
    let ranks = [rank(0).to_vec(), rank(4).to_vec()];
    let swapped = ranks.clone().map(|mut kernels| {
        kernels.reverse();
        kernels
    });
    let names = table(2);
    let last = |ranks: &[Vec<LiveKernel>]| {
        let report = live(ranks, &[1, 0], &names, AlignOptions::default()).unwrap();
        let expected = batch(ranks, &names, AlignOptions::default(), None).unwrap();
        assert_eq!(report.leads, expected.leads);
        report.leads[1].last_ns
    };
    assert_eq!((last(&ranks), last(&swapped)), (Nanos(0), Nanos(4)));
}

#[test]
fn what_is_not_as_announced_is_refused() {
    let mut live = Live::new(2, AlignOptions::default());
    let (rank, ranks) = (2, 2);
    let error = live.add(rank, sequence([0])).unwrap_err();
    assert_eq!(error, LiveError::NoSuchRank { rank, ranks });
    live.add(0, sequence([0])).unwrap();
    let error = live.add(0, sequence([0])).unwrap_err();
    assert_eq!(error, LiveError::Twice { rank: 0 });
    let most = Live::MOST_KERNELS;
    let endless = std::iter::repeat(kernel(0, 7, KernelClass::Computation, 0, 1));
    let error = live.add(1, endless.clone()).unwrap_err();
    assert_eq!(error, LiveError::TooManyKernels { rank: 1, most });
    let most = Live::MOST_STREAMS;
    let streams = (0..=most as u32).map(|stream| LiveKernel {
        stream,
        ..kernel(0, 7, KernelClass::Copy, 0, 1)
    });
    let error = live.add(1, streams.clone()).unwrap_err();
    assert_eq!(error, LiveError::TooManyStreams { rank: 1, most });
    assert_eq!(live.missing(), 1);
    let error = live.finish(&table(1)).unwrap_err();
    assert!(
        matches!(error, AlignError::NothingSelected { rank: 1, .. }),
        "{error}"
    );
    let mut live = Live::new(1, AlignOptions::default());
    let kernels = endless
        .take(Live::MOST_KERNELS - most)
        .chain(streams.take(most));
    live.add(0, kernels).unwrap();
    assert_eq!(live.finish(&table(1)), Err(AlignError::OneRank));
}

#[test]
fn no_time_and_no_id_can_do_harm() {
    let extremes = [i64::MIN, i64::MIN / 2, -1, 0, i64::MAX / 2, i64::MAX];
    let mut kernels = Vec::new();
    for start in extremes {
        let one = |duration| {
            kernel(
                u32::MAX,
                u32::MAX,
                KernelClass::Computation,
                start,
                duration,
            )
        };
        kernels.extend(extremes.map(one));
        let one = |duration| kernel(0, 0, KernelClass::Communication, start, duration);
        kernels.extend(extremes.map(one));
    }
    let named = Vec::from_iter(kernels.iter().map(|&kernel| LiveKernel {
        name: NameId(0),
        ..kernel
    }));
    let loose = AlignOptions {
        min_matched: 0.0,
        ..AlignOptions::default()
    };
    let found = live(&[named.clone(), named.clone()], &[0, 1], &table(1), loose).unwrap();
    assert!(found.busy.iter().all(|busy| (0.0..=1.0).contains(busy)));
    let error = live(&[kernels.clone(), kernels], &[0, 1], &table(1), loose).unwrap_err();
    assert!(
        matches!(error, AlignError::NothingSelected { .. }),
        "{error}"
    );
}

#[test]
fn ranks_in_another_order_are_given_up_on() {
    let forth = Vec::from_iter((0..20_000).map(|k| k % 200));
    let back = Vec::from_iter(forth.iter().rev().copied());
    let ranks = [forth, back].map(sequence);
    let found = live(&ranks, &[0, 1], &table(200), AlignOptions::default());
    assert!(matches!(found, Err(AlignError::TooDifferent { .. })));
}

#[test]
fn ranks_that_run_the_same_share_memory() {
    let bytes = |ranks: [u32; 4]| {
        let mut live = Live::new(ranks.len(), AlignOptions::default());
        for (rank, first) in ranks.into_iter().enumerate() {
            let kernels = sequence((0..10_000).map(|k| (k + first) % 40));
            live.add(rank, kernels).unwrap();
        }
        live.bytes()
    };
    let same = bytes([0; 4]);
    assert!(same <= 24 * 40_000, "{same}");
    assert!(bytes([0, 1, 2, 3]) <= 24 * 40_000);
}

#[test]
fn a_workload_is_told_by_what_streams_run_and_by_nothing_else() {
    let streams = |first: &[u32], second: &[u32], numbers: [u32; 2], pace: i64| {
        let mut kernels = Vec::new();
        for (names, stream) in [first, second].into_iter().zip(numbers) {
            for (k, &name) in (0..).zip(names) {
                let computation = KernelClass::Computation;
                kernels.push(kernel(name, stream, computation, k * pace, 1));
                let communication = KernelClass::Communication;
                kernels.push(kernel(9, stream, communication, k * pace * pace, 1));
            }
        }
        kernels
    };
    let workload = |kernels: Vec<LiveKernel>, names: &NameTable| {
        let ranks = [kernels.clone(), kernels];
        let found = live(&ranks, &[0, 1], names, AlignOptions::default());
        found.unwrap().workload
    };
    let names = table(10);
    let usual = workload(streams(&[0, 1, 2], &[3, 4, 5], [1, 2], 10), &names);
    assert_eq!(
        usual, 18_003_541_180_926_539_573,
        "the value is part of what litd keeps on disk: it must not change"
    );
    let other_numbers = streams(&[3, 4, 5], &[0, 1, 2], [8, 3], 17);
    assert_eq!(workload(other_numbers, &names), usual);
    let mut backwards = NameTable::default();
    for name in (0..10).rev() {
        backwards.intern(&format!("kernel {name}"));
    }
    let renamed = streams(&[9, 8, 7], &[6, 5, 4], [1, 2], 10);
    assert_eq!(workload(renamed.clone(), &backwards), usual);
    assert_ne!(workload(renamed, &names), usual);
    let another_order = streams(&[0, 2, 1], &[3, 4, 5], [1, 2], 10);
    assert_ne!(workload(another_order, &names), usual);
}
