//! Traces on demand: a file's kernels, and the iterations that ranks have in common.

use std::io::{self, Read};

use litd_traces::KernelClass;
use litd_traces::demand::{self, Cuts, Demanded, Uncut, Unread, cut};
use litd_units::Nanos;

/// Seconds since 1970 at which everything here was recorded.
const BASE: i64 = 1_760_000_000;

fn read(source: impl Read) -> Result<Demanded, Unread> {
    demand::read(source, 50_000)
}

/// How a rank recorded.
#[derive(Clone)]
struct Recorded {
    iterations: u64,
    layers: u64,
    /// How much later each of its kernels starts, and how much longer an iteration takes, in microseconds.
    late: u64,
    /// How many of its first kernels are missing.
    cut: usize,
    /// Whether its optimizer's steps are marked.
    marked: bool,
}

impl Recorded {
    fn new(iterations: u64) -> Self {
        Self {
            iterations,
            layers: 6,
            late: 0,
            cut: 0,
            marked: true,
        }
    }

    /// An iteration takes 10 ms.
    fn text(&self) -> String {
        let (mut events, mut steps) = (Vec::new(), Vec::new());
        for iteration in 0..self.iterations {
            let begin = 10_000 * iteration + self.late;
            let mut at = 0;
            let mut add = |name: &str, stream: u64, length: u64| {
                events.push(kernel(name, stream, begin + at, length));
                at += length + 1;
            };
            for layer in 0..self.layers {
                add("gemm_forward", 7, 200);
                add("attention", 7, 300);
                if layer % 2 == 0 {
                    add("ncclDevKernel_AllGather_RING_LL", 20, 90);
                }
            }
            for _ in 0..self.layers {
                add("gemm_backward", 7, 400);
                add("attention_backward", 7, 300);
            }
            for _ in 0..8 {
                add("adamw", 7, 20);
            }
            // The host is ahead of its GPU.
            steps.push(format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"Optimizer.step#AdamW.step","pid":1,"tid":1,"ts":{},"dur":100}}"#,
                begin + 5000
            ));
        }
        events.drain(..self.cut);
        if self.marked {
            events.extend(steps);
        }
        document(&events)
    }

    fn read(&self) -> Demanded {
        read(self.text().as_bytes()).unwrap()
    }
}

fn kernel(name: &str, stream: u64, ts: u64, dur: u64) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":{stream},"ts":{ts},"dur":{dur},"args":{{"device":0,"stream":{stream}}}}}"#
    )
}

fn document(events: &[String]) -> String {
    format!(
        "{{\"schemaVersion\": 1, \"distributedInfo\": {{\"rank\": 1, \"world_size\": 2}}, \"traceEvents\": [{}], \
         \"baseTimeNanoseconds\": {BASE}000000000}}",
        events.join(",\n")
    )
}

fn first_names(rank: &Demanded, cuts: &Cuts, of: usize) -> Vec<String> {
    let kernels = &rank.kernels[cuts.ranks[of].kernels.clone()];
    let name = |ran: &litd_traces::demand::Ran| rank.names.get(ran.name).to_owned();
    kernels.iter().map(name).collect()
}

#[test]
fn a_file_tells_kernels_marks_and_the_rank() {
    let trace = Recorded::new(2).read();
    assert_eq!((trace.rank, trace.world_size), (Some(1), Some(2)));
    assert_eq!((trace.kernels.len(), trace.steps.len()), (2 * 35, 2));
    let first = trace.kernels[0];
    assert_eq!(first.start, Nanos(BASE * 1_000_000_000));
    assert_eq!(first.end - first.start, Nanos(200_000));
    assert_eq!(
        (trace.names.get(first.name), first.stream),
        ("gemm_forward", 7)
    );
    let collectives = trace
        .kernels
        .iter()
        .filter(|it| it.class == KernelClass::Communication);
    assert_eq!(collectives.count(), 2 * 3);
    assert!(trace.shows_collectives());
    let alone = document(&[kernel("gemm", 7, 1, 1)]);
    assert!(!read(alone.as_bytes()).unwrap().shows_collectives());
}

#[test]
fn an_iteration_begins_with_the_same_kernel_on_all_ranks() {
    for marked in [true, false] {
        let one = Recorded {
            marked,
            ..Recorded::new(4)
        };
        let late = Recorded {
            late: 137,
            cut: 5,
            ..one.clone()
        };
        let ranks = [one.read(), late.read()];
        let cuts = cut(&ranks).unwrap();
        assert_eq!(cuts.marked, marked);
        for (of, rank) in ranks.iter().enumerate() {
            assert_eq!(cuts.ranks[of].kernels.len(), 35, "marked: {marked}");
            assert!(cuts.ranks[of].durations.len() >= 2);
            let all = cuts.ranks[of].durations.iter();
            assert!(all.clone().all(|&it| it == Nanos(10_000_000)), "{all:?}");
            assert_eq!(
                first_names(rank, &cuts, of),
                first_names(&ranks[0], &cuts, 0)
            );
        }
        let begins = |of: usize| ranks[of].kernels[cuts.ranks[of].kernels.start].start;
        assert_eq!(begins(1) - begins(0), Nanos(137_000));
    }
}

#[test]
fn too_little_is_no_iteration() {
    let mut one = Recorded::new(1);
    assert_eq!(cut(&[one.read()]), Err(Uncut::NoPeriod));
    one.marked = false;
    one.layers = 1;
    assert_eq!(cut(&[one.read()]), Err(Uncut::NoPeriod));
    assert_eq!(cut(&[]), Err(Uncut::NoPeriod));
}

#[test]
fn ranks_that_recorded_at_different_times_have_none_in_common() {
    let one = Recorded::new(3);
    let other = Recorded {
        late: 5_000_000,
        ..one.clone()
    };
    let apart = cut(&[one.read(), other.read()]).unwrap_err();
    let told = "ranks have recorded different times: rank 1 began 5.000 s after the others, or its clock differs";
    assert_eq!(apart.to_string(), told);
    // Together, but with one iteration in common at most.
    let other = Recorded {
        late: 25_000,
        ..one.clone()
    };
    assert_eq!(cut(&[one.read(), other.read()]), Err(Uncut::NoneInCommon));
    // Another program.
    let other = one.text().replace("\"name\":\"", "\"name\":\"other_");
    let ranks = [one.read(), read(other.as_bytes()).unwrap()];
    assert_eq!(cut(&ranks), Err(Uncut::NoneInCommon));
}

#[test]
fn what_is_no_trace_is_one_error() {
    let whole = Recorded::new(2).text();
    let refused = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        refused(&whole[..whole.len() - 40]),
        "it ends in the middle of the document"
    );
    assert!(refused("").contains("no JSON"));
    assert!(
        refused("\u{1f}\u{8b}\u{8}").contains("no JSON"),
        "gzip is not unpacked"
    );
    assert!(refused("{\"traceEvents\": [}]}").contains("no JSON"));
    assert_eq!(
        refused("{\"traceEvents\": []}"),
        "it has no kernel of a GPU in it"
    );
    let two = [
        kernel("a", 7, 1, 1),
        kernel("a", 7, 2, 1).replace("\"device\":0", "\"device\":1"),
    ];
    assert!(refused(&document(&two)).contains("two GPUs, 0 and 1"));
    for (ts, dur) in [("1", "-1"), ("9e99", "1"), ("-1", "1"), ("null", "1")] {
        let odd = kernel("a", 7, 1, 1)
            .replace("\"ts\":1,\"dur\":1", &format!("\"ts\":{ts},\"dur\":{dur}"));
        let odd = document(&[odd]).replace(&format!("{BASE}000000000"), "0");
        assert!(refused(&odd).contains("no possible start"), "{ts} {dur}");
    }
}

/// More of one thing than fits, for ever.
struct Endless {
    piece: fn(u64) -> String,
    number: u64,
    rest: Vec<u8>,
}

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.number += 1;
            self.rest = (self.piece)(self.number).into_bytes();
        }
        let length = into.len().min(self.rest.len());
        into[..length].copy_from_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Ok(length)
    }
}

#[test]
fn a_file_without_end_is_refused_in_bounded_memory() {
    let endless = |piece: fn(u64) -> String| {
        let rest = b"{\"traceEvents\": [".to_vec();
        read(Endless {
            piece,
            number: 0,
            rest,
        })
        .unwrap_err()
        .to_string()
    };
    let kernels = endless(|at| kernel("gemm", 7, at, 1) + ",");
    assert!(kernels.contains("50000 kernels"), "{kernels}");
    let names = endless(|at| kernel(&format!("gemm{at}"), 7, at, 1) + ",");
    assert!(names.contains("4096 names of kernels"), "{names}");
    let bytes = endless(|at| kernel(&format!("{at}{}", "x".repeat(4000)), 7, at, 1) + ",");
    assert!(bytes.contains("bytes of kernels' names"), "{bytes}");
    let value = endless(|_| "x".repeat(100_000));
    assert!(value.contains("longer than"), "{value}");
}
