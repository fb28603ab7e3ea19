//! What is refused, with its cause, and the limits of what is kept.

use std::io::Read;

use litd_traces::{ReadError, Trace, join, kineto};

use super::{document, gzip, kernel, one, read, sample};

#[test]
fn long_names_are_read_and_absurd_ones_refused() {
    let long = "k".repeat(5_000);
    let timeline = one(&document("", &[&kernel(&long, "1", "1", "")]));
    assert_eq!(timeline.name_of(&timeline.kernels[0]), long);
    let absurd = document("", &[&kernel(&"k".repeat(100_000), "1", "1", "")]);
    let error = read(&absurd).unwrap_err().to_string();
    assert!(
        error.contains("100000 bytes") && error.len() < 400,
        "{error}"
    );
}

#[test]
fn names_up_to_the_limit_are_read() {
    for length in [6_000, 60_000] {
        let long = "k".repeat(length);
        let timeline = one(&document("", &[&kernel(&long, "1", "1", "")]));
        assert_eq!(timeline.name_of(&timeline.kernels[0]).len(), length);
    }
}

#[test]
fn every_kept_text_is_limited() {
    let refused = |args: &str, cause: &str| {
        let error = read(&document("", &[&kernel("k", "1", "1", args)]))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("test.json: ") && error.contains(cause) && error.len() < 400,
            "{error}"
        );
    };
    let read_well = |args: &str| one(&document("", &[&kernel("k", "1", "1", args)]));
    for (key, what) in [
        ("stream", "label of a stream"),
        ("device", "label of a device"),
        ("dtype", "dtype"),
        ("Collective name", "name of a collective"),
        ("Process Group Name", "process group"),
    ] {
        let long = "x".repeat(4_097);
        refused(&format!(r#""{key}":"{long}""#), what);
        read_well(&format!(r#""{key}":"{}""#, &long[1..]));
    }
    let ranks = |count: usize, each: &str| {
        let list = vec![each; count].join(",");
        format!(r#""Process Group Ranks":"[{list}]""#)
    };
    refused(&ranks(60_000, "12345"), "bytes, more than the 262144");
    refused(&ranks(65_537, "1"), "65536 ranks");
    let collectives = read_well(&ranks(65_536, "1")).collectives;
    assert_eq!(collectives[0].ranks.len(), 65_536);
}

#[test]
fn the_sum_of_all_kept_text_is_limited() {
    let name = |k: usize| format!("{k:05}{}", "k".repeat(60_000 - 5));
    let events = |distinct: usize| {
        let all = (0..1_200).map(|k| kernel(&name(k % distinct), "1", "1", ""));
        format!("[{}]", Vec::from_iter(all).join(","))
    };
    // The same text over and over takes no room.
    assert_eq!(one(&events(10)).kernels.len(), 1_200);
    let error = read(&events(1_200)).unwrap_err().to_string();
    assert!(
        error.starts_with("test.json: ") && error.contains("64 MiB"),
        "{error}"
    );
}

#[test]
fn no_node_has_so_many_devices_ranks_or_streams() {
    let events = |count: usize, key: &str| {
        let all = (0..count).map(|k| kernel("k", "1", "1", &format!(r#""{key}":{k}"#)));
        format!("[{}]", Vec::from_iter(all).join(","))
    };
    for (key, most, what) in [
        ("device", 1_024, "1024 devices"),
        ("rank", 1_024, "1024 ranks"),
        ("stream", 4_096, "4096 streams"),
    ] {
        assert!(read(&events(most, key)).is_ok(), "{key}");
        let error = read(&events(most + 1, key)).unwrap_err().to_string();
        assert!(
            error.starts_with("test.json: ") && error.contains(what),
            "{error}"
        );
    }
}

#[test]
fn a_name_forges_no_lines_of_a_message() {
    let event = kernel(r"\u001b[31mk\nok", "1", "-1", "");
    let error = read(&document("", &[&event])).unwrap_err().to_string();
    assert!(error.contains("\u{FFFD}[31mk\u{FFFD}ok"), "{error:?}");
    assert!(!error.contains(char::is_control), "{error:?}");
    let devices = [0, 1].map(|k| kernel("k", "1", "1", &format!(r#""device":"a\r{k}""#)));
    let trace = read(&document("", &[&devices[0], &devices[1]])).unwrap();
    assert!(
        !trace.notes.concat().contains(char::is_control),
        "{:?}",
        trace.notes
    );
}

#[test]
fn impossible_times_are_refused_by_kernel_and_file() {
    for (ts, dur, cause) in [
        ("5", "-1", "backwards"),
        ("1e300", "1", "ts"),
        ("NaN", "1", "ts"),
        (
            "9223372036854775.000",
            "1",
            "does not fit|not a time that fits",
        ),
        ("1", "\"x\"", "dur"),
    ] {
        let error = read(&document("", &[&kernel("gemm", ts, dur, "")]))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("test.json: ") && error.contains("\"gemm\""),
            "{error}"
        );
        assert!(
            cause.split('|').any(|cause| error.contains(cause)),
            "{error}"
        );
    }
    let base = document(
        r#""baseTimeNanoseconds": 9223372036854775807,"#,
        &[&kernel("k", "1", "1", "")],
    );
    assert!(
        read(&base)
            .unwrap_err()
            .to_string()
            .contains("baseTimeNanoseconds")
    );
    let missing = document("", &[r#"{"ph":"X","cat":"kernel","name":"k","ts":1}"#]);
    assert!(read(&missing).unwrap_err().to_string().contains("no dur"));
}

#[test]
fn what_is_no_trace_is_told_apart() {
    type Check = fn(&ReadError) -> bool;
    let cases: [(&[u8], Check); 9] = [
        (b"", |e| matches!(e, ReadError::Empty { .. })),
        (b" \n", |e| matches!(e, ReadError::Empty { .. })),
        (b"hello", |e| {
            matches!(e, ReadError::NotJson { offset: 0, .. })
        }),
        (b"\x1F\x8B\x08", |e| {
            matches!(e, ReadError::TruncatedPacking { .. })
        }),
        (b"\x1F\x8Bnonsense, not gzip", |e| {
            matches!(e, ReadError::CorruptPacking { .. })
        }),
        (br#"{"a":1}"#, |e| matches!(e, ReadError::NotKineto { .. })),
        (br#"{"schemaVersion":1,"traceEvents":[]}"#, |e| {
            matches!(e, ReadError::NoKernels { events: 0, .. })
        }),
        (br#"{"traceEvents":[]}"#, |e| {
            matches!(e, ReadError::NotKineto { .. })
        }),
        (br#"{"traceEvents":[]} more"#, |e| {
            matches!(e, ReadError::NotJson { .. })
        }),
    ];
    for (bytes, check) in cases {
        let error = kineto::read(bytes, "test.json", None).unwrap_err();
        assert!(
            check(&error),
            "{:?}: {error}",
            String::from_utf8_lossy(bytes)
        );
        assert!(error.to_string().starts_with("test.json: "), "{error}");
    }
}

#[test]
fn an_event_without_end_is_not_swallowed() {
    struct Endless(&'static [u8]);
    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if let [first, rest @ ..] = self.0 {
                into[0] = *first;
                self.0 = rest;
                return Ok(1);
            }
            into.fill(b'x');
            Ok(into.len())
        }
    }
    let error = kineto::read(Endless(br#"{"traceEvents":[{"name":""#), "f", None).unwrap_err();
    assert!(matches!(error, ReadError::EventTooLong { .. }), "{error}");
}

#[test]
fn ranks_that_do_not_belong_together_are_refused() {
    let trace = |rank: u32, world: u32, ts: u32, step: u32, file: &str| {
        let info = format!(r#""distributedInfo":{{"rank":{rank},"world_size":{world}}},"#);
        let mark = format!(
            r#"{{"ph":"X","cat":"gpu_user_annotation","name":"ProfilerStep#{step}","pid":0,"ts":0,"dur":9999}}"#
        );
        let text = document(&info, &[&mark, &kernel("k", &ts.to_string(), "5", "")]);
        kineto::read(text.as_bytes(), file, None).unwrap()
    };
    let refused = |second: Trace| join(vec![trace(0, 2, 10, 1, "a"), second]).unwrap_err();
    let duplicate = refused(trace(0, 2, 10, 1, "b"));
    assert!(
        matches!(&duplicate, ReadError::DuplicateRank { first, second, .. } if first == "a" && second == "b")
    );
    for (second, cause) in [
        (trace(1, 4, 10, 1, "b"), "world size 2"),
        (trace(2, 2, 10, 1, "b"), "rank 2 of a job of world size 2"),
        (trace(1, 2, 900, 1, "b"), "before"),
        (trace(1, 2, 10, 7, "b"), "no iteration in common"),
    ] {
        let error = refused(second).to_string();
        assert!(error.contains(cause) && error.contains('b'), "{error}");
    }
    assert_eq!(
        join(vec![trace(1, 2, 10, 1, "b"), trace(0, 2, 12, 1, "a")])
            .unwrap()
            .0[1]
            .rank,
        1
    );
}

#[test]
fn every_truncation_is_an_error() {
    let text = sample();
    for cut in 0..text.len() {
        let error = kineto::read(&text.as_bytes()[..cut], "test.json", None).unwrap_err();
        assert!(
            matches!(error, ReadError::CutJson { .. } | ReadError::Empty { .. }),
            "{cut}: {error}"
        );
    }
    let packed = gzip(text.as_bytes());
    for cut in 2..packed.len() {
        let error = kineto::read(&packed[..cut], "test.json", None).unwrap_err();
        assert!(
            matches!(error, ReadError::TruncatedPacking { .. }),
            "{cut}: {error}"
        );
    }
    let error = read(&text[..text.len() - 40]).unwrap_err().to_string();
    assert!(
        error.contains("after 9 events") || error.contains("after 8 events"),
        "{error}"
    );
}
