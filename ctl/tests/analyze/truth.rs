//! Jobs of which the truth is known, because it was made: that the first screen tells it.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::run::litctl;
use super::{analyze, document, report, write};

/// One event of a GPU: its category, name, stream, start and length in µs.
type Event<'a> = (&'a str, &'a str, u32, f64, f64);

fn compute(name: &str, start: f64, length: f64) -> Event<'_> {
    ("kernel", name, 7, start, length)
}

/// How long an iteration is, in µs.
const ITERATION: f64 = 2_000.0;

/// A rank, and which iterations were recorded of it.
struct Rank {
    number: u32,
    iterations: std::ops::Range<u32>,
}

impl Rank {
    fn of(number: u32) -> Self {
        let iterations = 0..6;
        Self { number, iterations }
    }

    /// Its trace. `events` has what runs in the iteration of a number, from its beginning on; an all-reduce comes
    /// behind, which ends on all ranks at once.
    fn document<'a>(&self, events: impl Fn(u32) -> Vec<Event<'a>>) -> String {
        let mut text = Vec::new();
        for number in self.iterations.clone() {
            let begin = ITERATION * f64::from(number);
            text.push(format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{number}","pid":9,"tid":9,"ts":{begin},"dur":{}}}"#,
                ITERATION - 1.0
            ));
            let events = events(number);
            let busy = events.iter().map(|event| event.3 + event.4);
            let arrives = busy.fold(0.0, f64::max);
            let ends = ITERATION - 100.0;
            let reduce = (
                "kernel",
                "ncclDevKernel_AllReduce",
                20,
                arrives,
                ends - arrives,
            );
            for (category, name, stream, start, length) in events.into_iter().chain([reduce]) {
                let start = begin + start;
                text.push(format!(
                    r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":{stream},"ts":{start:.3},"dur":{length:.3},"args":{{"device":0,"stream":{stream}}}}}"#
                ));
            }
        }
        document(
            &format!(r#""distributedInfo":{{"rank":{}}},"#, self.number),
            &text,
        )
    }
}

fn said(report: &Value, key: &str) -> String {
    report["verdict"][key].as_str().unwrap().to_owned()
}

fn in_a_line(paths: &[&Path]) -> String {
    let text = String::from_utf8(analyze(&[], paths).stdout).unwrap();
    Vec::from_iter(text.split_whitespace()).join(" ")
}

/// Two ranks that run the same, but for what rank 1 alone does.
fn two<'a>(events: impl Fn(u32, u32) -> Vec<Event<'a>>) -> TempDir {
    let folder = TempDir::new().unwrap();
    for number in 0..2 {
        let rank = Rank::of(number).document(|iteration| events(number, iteration));
        write(&folder, &format!("rank{number}.json"), rank);
    }
    folder
}

#[test]
fn a_pipeline_whose_stages_wait_for_half_of_the_time_is_not_headed_healthy() {
    let folder = TempDir::new().unwrap();
    let traces = folder.path().to_str().unwrap();
    let speeds = ["1"; 16].join(",");
    let job = ["simulate", "--parallel", "pp8dp2", "--write-kineto", traces];
    litctl(&[&job[..], &["--speeds", &speeds]].concat());
    let report = report(&[], &[folder.path()]);
    let ranks = report["ranks"].as_array().unwrap().iter();
    let waits = ranks.map(|rank| rank["stage_wait_fraction"].as_f64().unwrap());
    let most = waits.fold(0.0, f64::max);
    assert!(most > 0.3, "{most}");
    let text = said(&report, "text");
    let told = format!(
        "Stages wait for each other, for up to {:.1} % of the time recorded; within its stage no rank holds the others back.",
        100.0 * most
    );
    assert!(text.starts_with(&told), "{text}");
    assert!(!text.contains("Healthy"), "{text}");
    // Of one stage it says what it did.
    assert!(in_a_line(&[folder.path()]).contains("Healthy: no rank holds the others back"));
}

#[test]
fn kernels_that_are_no_slower_are_not_told_as_less_than_nothing_longer() {
    let folder = two(|rank, _| {
        let (gemm, norm) = if rank == 1 {
            (41.5, 9.99)
        } else {
            (40.0, 10.0)
        };
        let one = |k: u32| {
            let begin = f64::from(k) * (gemm + norm);
            [
                compute("gemm", begin, gemm),
                compute("rms_norm", begin + gemm, norm),
            ]
        };
        Vec::from_iter((0..20).flat_map(one))
    });
    let shown = in_a_line(&[folder.path()]);
    assert!(
        shown.contains("Slow clock: the other rank waits for rank 1"),
        "{shown}"
    );
    assert!(!shown.contains("-0.1 %"), "{shown}");
    let told = "takes 3.8 % longer than that of the ranks far ahead of it where the clock limits it, and 0.1 % less where memory does";
    assert!(shown.contains(told), "{shown}");
}
