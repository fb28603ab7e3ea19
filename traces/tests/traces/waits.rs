//! Waits and where time goes, compared with what counting says, from the definitions in
//! docs/analyze-definitions.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use litd_traces::study::{Cause, Diagnosis, ModelOptions, remove_skew, study};
use litd_traces::{
    AnalysisOptions, Kernel, KernelClass, Report, Split, Timeline, analyse, analyse_groups,
    formats, join, kineto, partition,
};
use litd_units::Nanos;
use proptest::prelude::*;

/// A rank as its profiler would write it: name, stream, start, length (all in ns), launch.
type Event = (&'static str, u32, i64, i64, Option<i64>);

fn micros(nanos: i64) -> String {
    format!("{}.{:03}", nanos / 1000, nanos % 1000)
}

fn rank(number: u32, events: &[Event]) -> Timeline {
    let mut text = Vec::new();
    for (correlation, &(name, stream, start, length, launch)) in (1..).zip(events) {
        let category = match name {
            "Memcpy DtoH" => "gpu_memcpy",
            _ => "kernel",
        };
        text.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":{stream},"ts":{},"dur":{},"args":{{"device":0,"stream":{stream},"correlation":{correlation}}}}}"#,
            micros(start),
            micros(length)
        ));
        if let Some(launch) = launch {
            text.push(format!(
                r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{},"dur":1,"args":{{"correlation":{correlation}}}}}"#,
                micros(launch)
            ));
        }
    }
    let text = format!(
        r#"{{"distributedInfo":{{"rank":{number}}},"traceEvents":[{}]}}"#,
        text.join(",")
    );
    let mut trace = kineto::read(text.as_bytes(), "test.json", None).unwrap();
    trace.timelines.remove(0)
}

fn report(timelines: &[Timeline]) -> Report {
    analyse(timelines, &AnalysisOptions::default()).unwrap()
}

/// Two ranks that exchange something every 9 ms: one arrives late by 0.3 ms, and computes longer
/// behind the last exchange, where nobody waits.
fn exchanging() -> Vec<Timeline> {
    const STEP: i64 = 9_000_000;
    let one = |number: u32| {
        let late = i64::from(number) * 300_000;
        let mut events = Vec::new();
        for k in 0..33 {
            let begin = k * STEP;
            events.push(("gemm", 7, begin, 1_000_000, None));
            let start = begin + 2_000_000 + late;
            // Both ends are the same to 30 us.
            let end = begin + 3_000_000 + (k % 4) * 10_000 * i64::from(number);
            events.push(("ncclDevKernel_SendRecv", 20, start, end - start, None));
        }
        // The rank that was waited for runs ahead at the end: its leads cancel.
        for k in 0..33 {
            let begin = 33 * STEP + k * 100_000 + i64::from(1 - number) * 400_000;
            events.push(("tail_norm", 7, begin, 50_000, None));
        }
        rank(number, &events)
    };
    vec![one(0), one(1)]
}

#[test]
fn ranks_that_wait_for_each_other_are_not_healthy_because_leads_cancel() {
    let mut timelines = exchanging();
    let skew = remove_skew(&mut timelines);
    let report = report(&timelines);
    assert_eq!(report.straggler_rank, Some(1));
    let waits = report.ranks.iter().map(|rank| rank.wait_ns.unwrap());
    let waits = Vec::from_iter(waits);
    // 33 times 0.3 ms, but for where rank 1's own kernel ended later.
    assert!((9_300_000..=9_900_000).contains(&waits[0].0), "{waits:?}");
    assert_eq!(waits[1], Nanos(0));
    let options = AnalysisOptions::default();
    let models = ModelOptions::default();
    let diagnosis = study(&timelines, skew, &options.align, &models)
        .unwrap()
        .diagnosis;
    assert_ne!(diagnosis.cause, Cause::Healthy, "{diagnosis:?}");
    assert_eq!(diagnosis.rank, Some(1));
    assert_eq!(diagnosis.measure, "waits");
}

#[test]
fn kernels_behind_the_last_collective_keep_nobody_waiting() {
    // Rank 0 is late in a hundred kernels that no collective follows.
    let one = |number: u32| {
        let mut events = vec![
            ("gemm", 7, 0, 1_000, None),
            ("ncclDevKernel_AllReduce", 20, 2_000, 5_000, None),
        ];
        let late = i64::from(1 - number) * 3_000;
        events.extend((0..100).map(|k| ("norm", 7, 10_000 + 5_000 * k + late, 1_000, None)));
        // Rank 1 comes to the only collective a little later.
        events[1].2 += i64::from(number) * 100;
        events[1].3 -= i64::from(number) * 100;
        rank(number, &events)
    };
    let report = report(&[one(0), one(1)]);
    assert_eq!(report.straggler_rank, Some(1));
    assert_eq!(report.ranks[0].wait_ns, Some(Nanos(100)));
    // By leads it would be the other.
    let lead = |rank: usize| report.ranks[rank].lead.unwrap().sum_ns;
    assert!(lead(0) < lead(1));
}

/// Ranks whose recordings begin so long after each other, and which come to each collective of theirs so
/// late; all times are in microseconds.
fn recorded<const RANKS: usize>(
    begins: [i64; RANKS],
    late: impl Fn(usize, i64) -> i64,
) -> Vec<Timeline> {
    const STEP: i64 = 1_000_000;
    let one = |rank: usize| {
        let mut events = Vec::new();
        for k in 0..20 {
            // Only the first collective sees when the recording began.
            let begin = k * STEP + if k == 0 { begins[rank] * 1_000 } else { 0 };
            events.push(("gemm", 7, begin, 100_000, None));
            let start = begin + 200_000 + late(rank, k) * 1_000;
            let end = (k + 1) * STEP - 10_000;
            events.push(("ncclDevKernel_AllReduce", 20, start, end - start, None));
        }
        self::rank(u32::try_from(rank).unwrap(), &events)
    };
    Vec::from_iter((0..RANKS).map(one))
}

#[test]
fn the_collective_that_brings_ranks_in_step_is_told_where_it_alone_blames() {
    // Rank 2's recording began last, rank 1 comes late ever after.
    let late = |rank, _| if rank == 1 { 20 } else { 0 };
    let mut timelines = recorded([0, 0, 700], late);
    // Rank 2 is said to be late, and that the rest says otherwise.
    assert_eq!(report(&timelines).straggler_rank, Some(2));
    let told = diagnosis(&mut timelines);
    assert_eq!(
        (told.rank, told.once_in_step),
        (Some(2), Some(1)),
        "{told:?}"
    );
    // Where they agree there is nothing to say.
    let told = diagnosis(&mut recorded([0, 700, 0], late));
    assert_eq!((told.rank, told.once_in_step), (Some(1), None), "{told:?}");
}

#[test]
fn one_collective_that_alone_names_a_rank_is_told() {
    let late = |rank, k| if rank == 1 && k == 7 { 300 } else { 0 };
    let told = diagnosis(&mut recorded([0; 3], late));
    assert_eq!((told.rank, told.hangs_on_one), (Some(1), true), "{told:?}");
    // Two that agree do.
    let late = |rank, k| {
        if rank == 1 && (k == 7 || k == 9) {
            300
        } else {
            0
        }
    };
    let told = diagnosis(&mut recorded([0; 3], late));
    assert_eq!((told.rank, told.hangs_on_one), (Some(1), false), "{told:?}");
}

#[test]
fn all_that_are_as_late_are_named_together() {
    // Ranks 0 and 2 come late, by turns a little more.
    let late = |rank, k: i64| match rank {
        0 => 20 + k % 2,
        2 => 20 + (k + 1) % 2,
        _ => 0,
    };
    let mut timelines = recorded([0; 4], late);
    let told = diagnosis(&mut timelines);
    assert_eq!(
        (told.rank, &told.stragglers[..]),
        (None, &[0, 2][..]),
        "{told:?}"
    );
    let mut report = report(&timelines);
    report.groups[0].diagnosed(told);
    assert_eq!(report.groups[0].straggler_rank, None);
    assert_eq!(report.groups[0].stragglers(), [0, 2]);
    // Later by more than noise makes them: one of them alone.
    let late = |rank, _| [20, 0, 12, 0][rank];
    let told = diagnosis(&mut recorded([0; 4], late));
    assert_eq!(
        (told.rank, &told.stragglers[..]),
        (Some(0), &[0][..]),
        "{told:?}"
    );
}

/// Two ranks, the second of which starts all kernels later, without anything that they exchange.
fn apart(exchange: Option<Event>) -> [Timeline; 2] {
    [0, 1].map(|number| {
        let late = i64::from(number) * 300_000;
        let kernels = (0..40).map(|k| ("gemm", 7, k * 1_000_000 + late, 500_000, None));
        let one = exchange.filter(|_| number == 0);
        rank(number, &Vec::from_iter(kernels.chain(one)))
    })
}

fn diagnosis(timelines: &mut [Timeline]) -> Diagnosis {
    let skew = remove_skew(timelines);
    let align = AnalysisOptions::default().align;
    let study = study(timelines, skew, &align, &ModelOptions::default());
    study.unwrap().diagnosis
}

#[test]
fn nobody_is_said_to_wait_where_nothing_is_exchanged() {
    let mut timelines = apart(None);
    let report = report(&timelines);
    assert_eq!(report.straggler_rank, None);
    // How far they are apart is told all the same.
    assert_eq!(report.ranks[0].lead.unwrap().max_ns, Nanos(300_000));
    let told = diagnosis(&mut timelines);
    assert_eq!((told.cause, told.rank), (Cause::Unknown, None));
    assert!(told.nobody_waits() && !told.power_helps, "{told:?}");
    assert!(
        told.evidence[1]
            .starts_with("rank 0 starts matching kernels 0.75 % of an iteration before rank 1"),
        "{told:?}"
    );
    // A collective that does not match tells that there is somebody to wait for.
    let mut timelines = apart(Some((
        "ncclDevKernel_AllReduce",
        20,
        41_000_000,
        1_000,
        None,
    )));
    assert_eq!(self::report(&timelines).straggler_rank, Some(1));
    assert_eq!(diagnosis(&mut timelines).rank, Some(1));
}

#[test]
fn who_is_last_is_told_of_each_iteration() {
    // Rank 1 is late in the first of two, rank 0 in the second.
    let one = |number: u32| {
        let mut text = vec![];
        for step in 0..2_u32 {
            let begin = step * 1_000;
            text.push(format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{step}","pid":1,"tid":1,"ts":{begin},"dur":1000}}"#
            ));
            let late = if step == number { 0 } else { 20 };
            for k in 0..10 {
                let start = begin + 50 * k + late;
                text.push(format!(
                    r#"{{"ph":"X","cat":"kernel","name":"gemm{k}","pid":0,"tid":7,"ts":{start},"dur":10,"args":{{"device":0,"stream":7}}}}"#
                ));
            }
        }
        let text = format!(
            r#"{{"distributedInfo":{{"rank":{number}}},"traceEvents":[{}]}}"#,
            text.join(",")
        );
        let mut trace = kineto::read(text.as_bytes(), "test.json", None).unwrap();
        trace.timelines.remove(0)
    };
    let mut timelines = [one(0), one(1)];
    let skew = remove_skew(&mut timelines);
    let align = AnalysisOptions::default().align;
    let study = study(&timelines, skew, &align, &ModelOptions::default()).unwrap();
    let last = study.waves.iter().map(|wave| wave.straggler_rank);
    assert_eq!(Vec::from_iter(last), [Some(1), Some(0)]);
}

#[test]
fn what_a_stage_waits_in_several_transfers_at_once_counts_once() {
    let transfer = |name: &str, peer: &str, stream: u32, start: u32| {
        let length = 1_000 - start;
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_SendRecv","pid":0,"tid":{stream},"ts":{start},"dur":{length},"args":{{"device":0,"stream":{stream},"Collective name":"{name}","Process Group Name":"pp","Process Group Ranks":"[0, 1]",{peer}}}}}"#
        )
    };
    let stage = |rank: u32, transfers: [String; 2]| {
        let text = format!(
            r#"{{"distributedInfo":{{"rank":{rank}}},"traceEvents":[
                {{"ph":"X","cat":"kernel","name":"gemm{rank}","pid":0,"tid":7,"ts":0,"dur":10,"args":{{"device":0,"stream":7}}}},{}]}}"#,
            transfers.join(",")
        );
        let mut trace = kineto::read(text.as_bytes(), "test.json", None).unwrap();
        trace.timelines.remove(0)
    };
    let send = |stream| transfer("send", r#""Dst Rank":1"#, stream, 900);
    let recv = |stream, start| transfer("recv", r#""Src Rank":0"#, stream, start);
    // From 100 and from 300 on, both until 900.
    let mut timelines = [
        stage(0, [send(20), send(21)]),
        stage(1, [recv(20, 100), recv(21, 300)]),
    ];
    let options = AnalysisOptions::default();
    let groups = partition(&mut timelines, &options.align).unwrap();
    let report = analyse_groups(&timelines, &groups, &options).unwrap();
    assert_eq!(report.groups.len(), 2);
    assert_eq!(report.ranks[1].stage_wait_ns, Some(Nanos(800_000)));
}

#[test]
fn ranks_around_a_ring_wait_for_one_that_comes_late() {
    let ranks = |description: &str| {
        let of = |rank: u32| {
            // Rank 1 comes 200 us late each time, and all go on together.
            let late = if rank == 1 { 200 } else { 0 };
            let kernels = (0..6).flat_map(|step| {
                let begin = 1_000 * step;
                let start = begin + 600 + late;
                let length = begin + 900 - start;
                [
                    format!(
                        r#"{{"ph":"X","cat":"kernel","name":"flash","pid":0,"tid":7,"ts":{begin},"dur":500,"args":{{"device":0,"stream":7}}}}"#
                    ),
                    format!(
                        r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_SendRecv","pid":0,"tid":20,"ts":{start},"dur":{length},"args":{{"device":0,"stream":20,"Collective name":"coalesced","Process Group Name":"3","Process Group Description":"{description}","Process Group Ranks":"[0, 1, 2, 3]"}}}}"#
                    ),
                ]
            });
            let text = format!(
                r#"{{"distributedInfo":{{"rank":{rank}}},"traceEvents":[{}]}}"#,
                Vec::from_iter(kernels).join(",")
            );
            let mut trace = kineto::read(text.as_bytes(), "test.json", None).unwrap();
            trace.timelines.remove(0)
        };
        [0, 1, 2, 3].map(of)
    };
    let waits = |description: &str| {
        let mut timelines = ranks(description);
        let options = AnalysisOptions::default();
        let groups = partition(&mut timelines, &options.align).unwrap();
        let report = analyse_groups(&timelines, &groups, &options).unwrap();
        Vec::from_iter(report.ranks.iter().map(|rank| rank.wait_ns))
    };
    let [some, none] = [1_200_000, 0].map(|wait| Some(Nanos(wait)));
    assert_eq!(waits("CONTEXT_PARALLEL_GROUP"), [some, none, some, some]);
    // What each stage of a pipeline hands on comes in turn, and who waits for whom is not told.
    assert_eq!(waits("PIPELINE_MODEL_PARALLEL_GROUP"), [None; 4]);
}

#[test]
fn copies_that_nothing_hides_are_told_as_such() {
    let events = [
        ("gemm", 7, 0, 2_300, None),
        ("Memcpy DtoH", 7, 2_300, 97_000, None),
        ("gemm", 7, 99_700, 300, None),
    ];
    let report = report(&[rank(0, &events)]);
    let one = &report.ranks[0];
    assert_eq!(one.window_ns, Nanos(100_000));
    assert_eq!(one.time_ns.exposed_copies, Nanos(97_000));
    assert_eq!(one.time_ns.computation, Nanos(2_600));
    assert_eq!(one.time_ns.idle_other, Nanos(400));
    let top = &one.top_kernels[0];
    assert_eq!(
        (top.name.as_str(), top.class, top.count),
        ("Memcpy DtoH", "copy", 1)
    );
}

#[test]
fn idleness_is_told_by_launches_and_streams() {
    let events = [
        ("a", 7, 0, 1_000, Some(0)),
        // Launched when nothing ran any more.
        ("b", 7, 3_000, 1_000, Some(1_000)),
        // Launched long before, behind a kernel of its own stream.
        ("c", 7, 4_500, 500, Some(100)),
        // Launched long before, behind one of another stream.
        ("d", 9, 5_700, 300, Some(100)),
        // Not known when.
        ("e", 9, 7_000, 1_000, None),
    ];
    let one = &report(&[rank(0, &events)]).ranks[0];
    let expected = Split {
        computation: Nanos(3_800),
        idle_launch: Nanos(2_000),
        idle_stream: Nanos(700),
        idle_other: Nanos(500 + 1_000),
        ..Split::default()
    };
    assert_eq!(one.time_ns, expected);
    assert_eq!(one.idle_launched_ns, Nanos(500));
    assert!((one.launches_known - 0.8).abs() < 1e-12);
}

#[test]
fn the_operator_that_launched_a_kernel_is_told() {
    let text = r#"{"distributedInfo":{"rank":0},"traceEvents":[
        {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":1,"args":{"External id":7,"Ev Idx":1}},
        {"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":3,"dur":1,"args":{"External id":9}},
        {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":2,"dur":5,"args":{"device":0,"stream":7,"External id":7}},
        {"ph":"X","cat":"kernel","name":"elementwise","pid":0,"tid":7,"ts":8,"dur":1,"args":{"device":0,"stream":7,"external id":9}},
        {"ph":"X","cat":"kernel","name":"other","pid":0,"tid":7,"ts":9,"dur":0.5,"args":{"device":0,"stream":7}}]}"#;
    let trace = kineto::read(text.as_bytes(), "test.json", None).unwrap();
    let top = &report(&trace.timelines).ranks[0].top_kernels;
    let operators = top.iter().map(|one| (&*one.name, one.operator.as_deref()));
    let expected = [
        ("gemm", Some("aten::mm")),
        ("elementwise", Some("aten::add")),
        ("other", None),
    ];
    assert_eq!(Vec::from_iter(operators), expected);
}

#[test]
fn a_kernel_is_of_the_operator_that_was_running_when_it_was_launched() {
    // The kernel's External id is its correlation, which is the number of another operator's call.
    let text = r#"{"distributedInfo":{"rank":0},"traceEvents":[
        {"ph":"X","cat":"cpu_op","name":"aten::result_type","pid":1,"tid":1,"ts":1,"dur":1,"args":{"External id":40}},
        {"ph":"X","cat":"cpu_op","name":"autograd::engine","pid":1,"tid":2,"ts":10,"dur":90,"args":{"External id":41}},
        {"ph":"X","cat":"cpu_op","name":"aten::convolution_backward","pid":1,"tid":2,"ts":20,"dur":40,"args":{"External id":42}},
        {"ph":"X","cat":"cpu_op","name":"aten::empty","pid":1,"tid":1,"ts":25,"dur":10},
        {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":2,"ts":30,"dur":2,"args":{"correlation":40}},
        {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":2,"ts":70,"dur":2,"args":{"correlation":41}},
        {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":30,"dur":2,"args":{"correlation":42}},
        {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":50,"dur":2,"args":{"correlation":43}},
        {"ph":"X","cat":"kernel","name":"dgrad","pid":0,"tid":7,"ts":200,"dur":50,"args":{"device":0,"stream":7,"correlation":40,"External id":40}},
        {"ph":"X","cat":"kernel","name":"add","pid":0,"tid":7,"ts":300,"dur":40,"args":{"device":0,"stream":7,"correlation":41,"External id":41}},
        {"ph":"X","cat":"kernel","name":"fill","pid":0,"tid":7,"ts":400,"dur":30,"args":{"device":0,"stream":7,"correlation":42,"External id":42}},
        {"ph":"X","cat":"kernel","name":"outside","pid":0,"tid":7,"ts":500,"dur":20,"args":{"device":0,"stream":7,"correlation":43,"External id":43}}]}"#;
    let trace = kineto::read(text.as_bytes(), "test.json", None).unwrap();
    let top = &report(&trace.timelines).ranks[0].top_kernels;
    let operators = top.iter().map(|one| (&*one.name, one.operator.as_deref()));
    let expected = [
        ("dgrad", Some("aten::convolution_backward")),
        ("add", Some("autograd::engine")),
        ("fill", Some("aten::empty")),
        ("outside", None),
    ];
    assert_eq!(Vec::from_iter(operators), expected);
}

/// The split as the definitions have it: each span in which nothing starts or ends, looked at by itself.
fn counted(timeline: &Timeline) -> Split {
    let kernels = timeline.kernels.iter().enumerate();
    let kernels = Vec::from_iter(kernels.filter(|(_, kernel)| kernel.end > kernel.start));
    let longest = kernels.iter().map(|(_, k)| k.end.0 - k.start.0).max();
    let mut moments = Vec::from_iter(
        kernels
            .iter()
            .flat_map(|(_, kernel)| [kernel.start.0, kernel.end.0]),
    );
    moments.sort_unstable();
    moments.dedup();
    let mut split = Split::default();
    for span in moments.windows(2) {
        let [from, to] = [span[0], span[1]];
        let length = Nanos(to - from);
        // Kernels are in the order of their starts: those that may run, end or start here.
        let first = from - longest.unwrap_or_default();
        let first = kernels.partition_point(|(_, k)| k.start.0 < first);
        let near = &kernels[first..];
        let near = &near[..near.partition_point(|(_, k)| k.start.0 <= to)];
        let runs = |class| {
            let mut kernels = near.iter();
            kernels.any(|(_, k)| k.class == class && k.start.0 <= from && to <= k.end.0)
        };
        let communicates = [KernelClass::Communication, KernelClass::Fused];
        if runs(KernelClass::Computation) {
            split.computation += length;
        } else if communicates.into_iter().any(runs) {
            split.exposed_communication += length;
        } else if runs(KernelClass::Copy) {
            split.exposed_copies += length;
        } else {
            let next = near.iter().filter(|(_, k)| k.start.0 == to);
            let last = near.iter().filter(|(_, k)| k.end.0 == from);
            let launches = next.clone().filter_map(|(at, _)| timeline.launch(*at));
            let launches = Vec::from_iter(launches);
            let streams = Vec::from_iter(last.map(|(_, k)| k.stream));
            let same = next.clone().any(|(_, k)| streams.contains(&k.stream));
            if !launches.is_empty() && launches.iter().all(|launch| launch.0 >= from) {
                split.idle_launch += length;
            } else if !launches.is_empty() && !same {
                split.idle_stream += length;
            } else {
                split.idle_other += length;
            }
        }
    }
    split
}

proptest! {
    #[test]
    fn the_split_is_what_counting_says(
        kernels in prop::collection::vec(
            (0_usize..4, 0_u32..3, 0_i64..90, 0_i64..9, prop::option::of(0_i64..90)), 1..14)
    ) {
        const NAMES: [&str; 4] =
            ["gemm", "ncclDevKernel_AllReduce", "allreduce_fusion_kernel", "Memcpy DtoH"];
        let events = kernels.iter().map(|&(class, stream, start, length, launch)| {
            (NAMES[class], stream, start, length, launch)
        });
        // A device that only copies is no rank.
        let computes = std::iter::once(("gemm", 0, 45, 0, None));
        let timeline = rank(0, &Vec::from_iter(events.chain(computes)));
        let split = report(std::slice::from_ref(&timeline)).ranks[0].time_ns;
        prop_assert_eq!(split, counted(&timeline));
        let busy = timeline.kernels.iter().filter(|k| k.end > k.start);
        let start = busy.clone().map(|k| k.start).min().unwrap_or_default();
        let end = busy.map(|k| k.end).max().unwrap_or_default();
        prop_assert_eq!(split.window(), end - start);
    }
}

/// How long ranks wait in collectives that tell no process group, as the definitions have it.
fn waited(timelines: &[Timeline]) -> Vec<Nanos> {
    let communicates = |timeline: &Timeline| {
        let kernels = timeline.kernels.clone().into_iter();
        let kernels = kernels.filter(|kernel| kernel.class.communicates());
        Vec::from_iter(kernels)
    };
    let label = |timeline: &Timeline, kernel: &Kernel| {
        timeline.streams[usize::from(kernel.stream.0)].to_string()
    };
    let marked = timelines
        .iter()
        .all(|timeline| timeline.kernels.iter().any(|k| k.iteration.is_some()));
    // Names whose streams have the same labels on all ranks.
    let labels = |timeline: &Timeline, name: &str| {
        let kernels = communicates(timeline).into_iter();
        let kernels = kernels.filter(|kernel| timeline.name_of(kernel) == name);
        BTreeSet::from_iter(kernels.map(|kernel| label(timeline, &kernel)))
    };
    let alike = |name: &str| {
        let mut all = timelines.iter().map(|timeline| labels(timeline, name));
        let first = all.next().unwrap();
        all.all(|labels| labels == first)
    };
    type Key = (String, Option<String>, Option<u32>);
    let mut found = BTreeMap::<Key, Vec<Vec<(i64, i64)>>>::new();
    for (rank, timeline) in timelines.iter().enumerate() {
        for kernel in communicates(timeline) {
            assert!(kernel.collective.is_none());
            let name = timeline.name_of(&kernel).to_owned();
            let stream = alike(&name).then(|| label(timeline, &kernel));
            let iteration = kernel
                .iteration
                .filter(|_| marked)
                .map(|number| number.get());
            let each = found.entry((name, stream, iteration)).or_default();
            each.resize(timelines.len(), Vec::new());
            each[rank].push((kernel.start.0, kernel.end.0));
        }
    }
    let mut waits = vec![Nanos::ZERO; timelines.len()];
    for each in found.values() {
        let count = each[0].len();
        if each.iter().any(|own| own.len() != count) {
            continue;
        }
        for nth in 0..count {
            let row = Vec::from_iter(each.iter().map(|own| own[nth]));
            let last = row.iter().map(|one| one.0).max().unwrap();
            let shortest = row.iter().map(|one| one.1 - one.0).min().unwrap();
            for (wait, (start, end)) in waits.iter_mut().zip(row) {
                *wait += Nanos((last - start).min(end - start - shortest).max(0));
            }
        }
    }
    waits
}

/// The traces of all real jobs of several ranks: a folder or a file in `../shared/traces`, of how many ranks, and from which
/// share of kernels that match on they are compared. Recordings that are no ranks of one job are left out, as litctl refuses
/// them.
const REAL: [(&str, usize, f64); 3] = [
    ("param_dlrm_v100x8", 8, 0.8),
    ("hta/trace_filter", 2, 0.5),
    // Eight GPUs that exchange nothing.
    (
        "tracelens/traces/mi300/jax_conv_minimal_08/tw003.xplane.pb",
        8,
        0.8,
    ),
];

/// The files of a folder in their order, or the one file.
fn files(path: PathBuf) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(&path) else {
        return vec![path];
    };
    let mut files = Vec::from_iter(entries.map(|file| file.unwrap().path()));
    files.sort();
    files
}

#[test]
fn waits_and_time_of_real_ranks_are_what_the_definitions_say() {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces");
    let shared = PathBuf::from(shared);
    if !shared.is_dir() {
        let note = "skipped: ../shared/traces is absent\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), note.as_bytes());
        return;
    }
    for (folder, ranks, min_matched) in REAL {
        let files = files(shared.join(folder));
        let traces = files
            .iter()
            .map(|file| formats::read_file(file, None).unwrap());
        let mut timelines = join(traces.collect()).unwrap().0;
        let mut options = AnalysisOptions::default();
        options.align.min_matched = min_matched;
        let groups = partition(&mut timelines, &options.align).unwrap();
        assert_eq!(groups.all.len(), 1, "{folder}");
        let report = analyse_groups(&timelines, &groups, &options).unwrap();
        let waits = waited(&timelines);
        assert_eq!((timelines.len(), report.ranks.len()), (ranks, ranks));
        let communicates = |kernel: &Kernel| kernel.class.communicates();
        let mut all = timelines.iter().flat_map(|timeline| &timeline.kernels);
        let exchange = all.any(communicates);
        let waited = waits.iter().any(|&wait| wait > Nanos::ZERO);
        assert_eq!(waited, exchange, "{folder}");
        for ((rank, timeline), wait) in report.ranks.iter().zip(&timelines).zip(waits) {
            let at = format!("{folder}, rank {}", rank.rank);
            assert_eq!(rank.wait_ns, exchange.then_some(wait), "{at}");
            assert_eq!(rank.time_ns, counted(timeline), "{at}");
            let ends = timeline.kernels.iter().map(|kernel| kernel.end);
            let window = ends.max().unwrap() - timeline.kernels[0].start;
            assert_eq!(rank.time_ns.window(), window, "{at}");
            println!("{at}: waits {wait}, {:?} of {window}", rank.time_ns);
        }
    }
}
