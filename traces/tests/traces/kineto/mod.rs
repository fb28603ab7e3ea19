//! The reader on small made-up traces: every quirk, every way to be broken.

mod refused;

use std::io::{Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use litd_traces::{KernelClass, NonMax, ReadError, Timeline, Trace, join, kineto};
use litd_units::Nanos;
use proptest::prelude::*;

fn read(text: &str) -> Result<Trace, ReadError> {
    kineto::read(text.as_bytes(), "test.json", None)
}

/// A document with these events and other keys before them.
fn document(keys: &str, events: &[&str]) -> String {
    format!(
        "{{{keys} \"traceEvents\": [\n{}\n], \"traceName\": \"x\"}}",
        events.join(",\n")
    )
}

/// A kernel event: name, ts, dur, arguments.
fn kernel(name: &str, ts: &str, dur: &str, args: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#
    )
}

fn one(text: &str) -> Timeline {
    let mut trace = read(text).unwrap();
    assert_eq!(trace.timelines.len(), 1);
    trace.timelines.remove(0)
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// A trace with a bit of everything.
fn sample() -> String {
    document(
        r#""schemaVersion": 1, "odd": NaN, "deviceProperties": [{"id": 0, "name": "x]}\"{"}],
           "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},"#,
        &[
            r#"{"ph":"X","cat":"user_annotation","name":"ProfilerStep#5","pid":1,"tid":1,"ts":100,"dur":50}"#,
            r#"{"ph":"X","cat":"user_annotation","name":"ProfilerStep#6","pid":1,"tid":1,"ts":150,"dur":50}"#,
            r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":149.5,"dur":1,"pid":1,"tid":1,"args":{"correlation":11}}"#,
            r#"{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":160,"dur":1,"pid":1,"tid":1,"args":{"correlation":12}}"#,
            &kernel(
                "late",
                "170.25",
                "2.5",
                r#""device":4,"stream":9,"correlation":11"#,
            ),
            &kernel(
                "ncclKernel",
                "1.8e2",
                "10",
                r#""device":4,"stream":20,"correlation":12,"Collective name":"allreduce","In msg nelems":5,"Process Group Ranks":"[0, 3]","est. achieved occupancy %":NaN"#,
            ),
            r#"{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":"4","tid":"9","ts":"165","dur":"1","args":{}}"#,
            r#"{"ph":"i","s":"g","name":"Iteration","pid":"Traces","tid":"","ts":1}"#,
            r#"{"cat":"cpu_op","ph":"X","name":"aten::add","ts":1,"dur":2,"args":{"Concrete Inputs":["[","{"]}}"#,
        ],
    )
}

#[test]
fn a_bit_of_everything() {
    let timeline = one(&sample());
    assert_eq!((timeline.rank, timeline.world_size), (3, Some(8)));
    let shown = timeline.kernels.iter().map(|kernel| {
        let stream = &*timeline.streams[kernel.stream.0 as usize];
        (
            timeline.name_of(kernel),
            stream,
            kernel.start.0,
            kernel.end.0,
            kernel.iteration.map(NonMax::get),
        )
    });
    assert_eq!(
        Vec::from_iter(shown),
        [
            ("Memcpy HtoD", "9", 165_000, 166_000, None),
            // Launched in step 5, run in step 6.
            ("late", "9", 170_250, 172_750, Some(5)),
            ("ncclKernel", "20", 180_000, 190_000, Some(6)),
        ]
    );
    let classes = Vec::from_iter(timeline.kernels.iter().map(|kernel| kernel.class));
    use KernelClass::{Communication, Computation, Copy};
    assert_eq!(classes, [Copy, Computation, Communication]);
    let collective =
        &timeline.collectives[timeline.kernels[2].collective.unwrap().0.get() as usize];
    assert_eq!(
        (collective.in_elements, &collective.ranks[..]),
        (Some(5), &[0, 3][..])
    );
    assert_eq!(timeline.iterations.len(), 2);
    assert_eq!(timeline.iterations[1].start, Nanos(150_000));
}

#[test]
fn the_base_of_the_clock_may_come_after_the_events() {
    let event = kernel("k", "1.5", "1", "");
    let text = format!(r#"{{"traceEvents":[{event}],"baseTimeNanoseconds":1700000000000000000}}"#);
    assert_eq!(
        one(&text).kernels[0].start,
        Nanos(1_700_000_000_000_001_500)
    );
}

#[test]
fn a_bare_list_of_events_is_a_trace() {
    assert_eq!(
        one(&format!("[{}, 5, {{}}]", kernel("k", "1", "1", "")))
            .kernels
            .len(),
        1
    );
}

#[test]
fn old_categories_and_labels_are_understood() {
    let text = document(
        "",
        &[
            r#"{"ph":"X","cat":"Operator","name":"ProfilerStep#16","pid":1,"tid":"1","ts":0,"dur":100}"#,
            r#"{"ph":"X","cat":"Runtime","name":"cudaLaunchKernel","pid":1,"tid":"1","ts":5,"dur":1,"args":{"correlation":1}}"#,
            r#"{"ph":"X","cat":"Kernel","name":"k","pid":0,"tid":"stream 7","ts":500,"dur":1,"args":{"correlation":1}}"#,
            r#"{"ph":"X","cat":"Memset","name":"Memset (Device)","pid":0,"tid":"stream 7","ts":400,"dur":1,"args":{}}"#,
        ],
    );
    let timeline = one(&text);
    assert_eq!(*timeline.streams, ["7".into()]);
    assert_eq!(timeline.kernels[0].class, KernelClass::Copy);
    assert_eq!(timeline.kernels[1].iteration, NonMax::new(16));
}

#[test]
fn marks_on_the_device_do_where_launches_are_unknown() {
    let text = document(
        "",
        &[
            r#"{"ph":"X","cat":"gpu_user_annotation","name":"ProfilerStep#3","pid":0,"tid":7,"ts":10,"dur":10}"#,
            &kernel("in", "10", "1", ""),
            &kernel("out", "30", "1", ""),
        ],
    );
    let steps = Vec::from_iter(
        one(&text)
            .kernels
            .iter()
            .map(|kernel| kernel.iteration.map(NonMax::get)),
    );
    assert_eq!(steps, [Some(3), None]);
}

#[test]
fn each_stream_begins_and_ends_an_iteration_at_a_time_of_its_own() {
    let mark = |step: u32, stream: u32, from: u32, to: u32| {
        let length = to - from;
        format!(
            r#"{{"ph":"X","cat":"gpu_user_annotation","name":"ProfilerStep#{step}","pid":0,"tid":{stream},"ts":{from},"dur":{length}}}"#
        )
    };
    let on = |stream: u32, at: u32| {
        let stream = format!(r#""stream":{stream}"#);
        kernel("k", &at.to_string(), "1", &stream)
    };
    let events = [
        mark(1, 7, 10, 30),
        mark(1, 20, 12, 36),
        mark(2, 7, 30, 50),
        mark(2, 20, 40, 44),
        on(7, 11),
        // The next iteration has begun on the other stream.
        on(20, 33),
        // No mark is on its stream: that which began last counts.
        on(9, 34),
        // So it does where the stream's own has ended.
        on(20, 38),
        // The mark that began last has ended.
        on(7, 46),
    ];
    let events = Vec::from_iter(events.iter().map(String::as_str));
    let timeline = one(&document("", &events));
    let steps = timeline.kernels.iter();
    let steps = steps.map(|kernel| kernel.iteration.map(NonMax::get));
    assert_eq!(Vec::from_iter(steps), [1, 1, 2, 2, 2].map(Some));
}

#[test]
fn one_file_may_hold_several_ranks() {
    let by_argument = document(
        "",
        &[
            &kernel("a", "1", "1", r#""rank":5,"device":0"#),
            &kernel("a", "2", "1", r#""rank":2,"device":0"#),
            &kernel("b", "3", "1", r#""rank":2,"device":0"#),
        ],
    );
    let trace = read(&by_argument).unwrap();
    let counts = Vec::from_iter(
        trace
            .timelines
            .iter()
            .map(|t| (t.rank, t.kernels.len(), t.names.len())),
    );
    assert_eq!(counts, [(2, 2, 2), (5, 1, 1)]);
    let by_device = document(
        "",
        &[
            &kernel("a", "1", "1", r#""device":10"#),
            &kernel("b", "2", "1", r#""device":9"#),
        ],
    );
    let trace = read(&by_device).unwrap();
    let first = Vec::from_iter(
        trace
            .timelines
            .iter()
            .map(|t| (t.rank, t.name_of(&t.kernels[0]))),
    );
    assert_eq!(first, [(0, "b"), (1, "a")]);
    assert!(
        trace.notes[0].contains("devices 9, 10"),
        "{:?}",
        trace.notes
    );
}

#[test]
fn a_rank_with_several_devices_keeps_the_busiest() {
    let text = document(
        r#""distributedInfo":{"rank":1},"#,
        &[
            &kernel("short", "1", "1", r#""device":0"#),
            &kernel("short", "3", "1", r#""device":0"#),
            &kernel("long", "1", "100", r#""device":1"#),
        ],
    );
    let trace = read(&text).unwrap();
    assert_eq!(
        (trace.timelines.len(), trace.timelines[0].kernels.len()),
        (1, 1)
    );
    assert!(
        trace.notes[0].contains("2 kernels on its device 0 were left out"),
        "{:?}",
        trace.notes
    );
}

#[test]
fn the_rank_is_found_in_this_order() {
    let event = kernel("k", "1", "1", "");
    let comms =
        r#"{"ph":"X","cat":"cpu_op","name":"record_param_comms","ts":0,"dur":1,"args":{"Rank":6}}"#;
    let rank = |keys: &str, file: &str, given| {
        let text = document(keys, &[comms, &event]);
        kineto::read(text.as_bytes(), file, given)
            .unwrap()
            .timelines[0]
            .rank
    };
    let info = r#""distributedInfo":{"rank":4},"#;
    assert_eq!(rank(info, "worker5.json", Some(9)), 9);
    assert_eq!(rank(info, "worker5.json", None), 4);
    assert_eq!(rank("", "dir/worker5_step_1.json", None), 5);
    assert_eq!(rank("", "trace.json", None), 6);
    let unknown = read(&document("", &[&event])).unwrap();
    assert!(!unknown.rank_known && unknown.notes[0].contains("0 is assumed"));
    let error = join(vec![unknown.clone(), unknown]).unwrap_err();
    assert!(error.to_string().contains("--ranks"), "{error}");
}

#[test]
fn repeated_metadata_of_collectives_is_shared() {
    let event = |sequence: u32| {
        let args = format!(
            r#""Collective name":"allreduce","Process Group Ranks":"[0, 1]","Seq":{sequence}"#
        );
        kernel("nccl", "1", "1", &args)
    };
    let timeline = one(&document("", &[&event(1), &event(2)]));
    let [first, second] = &timeline.collectives[..] else {
        panic!()
    };
    assert_eq!((first.sequence, second.sequence), (Some(1), Some(2)));
    assert!(std::sync::Arc::ptr_eq(&first.ranks, &second.ranks));
    let names = [first, second].map(|one| one.name.clone().unwrap());
    assert!(std::sync::Arc::ptr_eq(&names[0], &names[1]));
}

#[test]
fn a_rank_with_a_fraction_is_none() {
    let info = |rank: &str| {
        let keys = format!(r#""distributedInfo":{{"rank":{rank}}},"#);
        let trace = read(&document(&keys, &[&kernel("k", "1", "1", "")])).unwrap();
        (trace.rank_known, trace.timelines[0].rank)
    };
    assert_eq!(info("1.5"), (false, 0));
    assert_eq!(info("2.0"), (true, 2));
    let by_event = kernel("k", "1", "1", r#""rank":1.5"#);
    assert!(!read(&document("", &[&by_event])).unwrap().rank_known);
}

#[test]
fn launches_of_two_ranks_with_the_same_correlations_are_told_apart() {
    let step = |number: u32, rank: u32, ts: u32| {
        format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{number}","ts":{ts},"dur":100,"args":{{"rank":{rank}}}}}"#
        )
    };
    let launch = |rank: u32, ts: u32| {
        format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":{ts},"dur":1,"args":{{"rank":{rank},"correlation":9}}}}"#
        )
    };
    let mut events = Vec::new();
    for (rank, ts) in [(0, 50), (1, 150)] {
        events.extend([step(1, rank, 0), step(2, rank, 101), launch(rank, ts)]);
        let args = format!(r#""rank":{rank},"correlation":9"#);
        events.push(kernel("k", "500", "1", &args));
    }
    let trace = read(&format!("[{}]", events.join(","))).unwrap();
    let steps = trace
        .timelines
        .iter()
        .map(|t| t.kernels[0].iteration.map(NonMax::get));
    assert_eq!(Vec::from_iter(steps), [Some(1), Some(2)]);
}

#[test]
fn gzip_of_several_members_is_one_document() {
    let text = sample();
    let (head, tail) = text.as_bytes().split_at(text.len() / 2);
    let members = [gzip(head), gzip(tail)].concat();
    let trace = kineto::read(&members[..], "test.json", None).unwrap();
    assert_eq!(trace.timelines[0].kernels, one(&text).kernels);
}

/// Hands out its bytes in pieces of the given sizes, over and over.
struct Pieces<'a>(&'a [u8], Vec<usize>);

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.1.rotate_left(1);
        let size = self.1[0].min(into.len()).min(self.0.len());
        let (now, later) = self.0.split_at(size);
        into[..size].copy_from_slice(now);
        self.0 = later;
        Ok(size)
    }
}

proptest! {
    #[test]
    fn the_size_of_pieces_changes_nothing(sizes in prop::collection::vec(1_usize..200, 1..5)) {
        let text = sample();
        let trace = kineto::read(Pieces(text.as_bytes(), sizes), "test.json", None).unwrap();
        let whole = one(&text);
        prop_assert_eq!(&trace.timelines[0].kernels, &whole.kernels);
        prop_assert_eq!(&trace.timelines[0].collectives, &whole.collectives);
    }

    #[test]
    fn a_changed_byte_never_panics(at in any::<prop::sample::Index>(), byte: u8, packed: bool) {
        let mut bytes = sample().into_bytes();
        if packed {
            bytes = gzip(&bytes);
        }
        let at = at.index(bytes.len());
        bytes[at] = byte;
        // What comes out is a trace or an error that names the file.
        if let Err(error) = kineto::read(&bytes[..], "test.json", None) {
            prop_assert!(error.to_string().contains("test.json"), "{}", error);
        }
    }

    #[test]
    fn what_is_written_is_read(
        kernels in prop::collection::vec(("\\PC{0,12}", 0_u8..4, 0_i64..1 << 52, 0_i64..1 << 40), 1..20),
        base in 0_i64..1 << 60
    ) {
        let micros = |nanos: i64| format!("{}.{:03}", nanos / 1000, nanos % 1000);
        let event = |(name, stream, start, length): &(String, u8, i64, i64)| {
            let name = serde_json::to_string(name).unwrap();
            let (ts, dur) = (micros(*start), micros(*length));
            format!(r#"{{"ph":"X","cat":"kernel","name":{name},"pid":0,"tid":{stream},"ts":{ts},"dur":{dur}}}"#)
        };
        let events = Vec::from_iter(kernels.iter().map(event));
        let events = Vec::from_iter(events.iter().map(String::as_str));
        let timeline = one(&document(&format!(r#""baseTimeNanoseconds":{base},"#), &events));
        let mut expected = Vec::from_iter(kernels.iter().map(|(name, stream, start, length)| {
            (base + start, base + start + length, name.clone(), stream.to_string())
        }));
        let mut found = Vec::from_iter(timeline.kernels.iter().map(|kernel| {
            let stream = timeline.streams[kernel.stream.0 as usize].to_string();
            (kernel.start.0, kernel.end.0, timeline.name_of(kernel).to_owned(), stream)
        }));
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
    }
}
