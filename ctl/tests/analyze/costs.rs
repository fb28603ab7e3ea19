//! What a slow clock costs, against the same job without it: jobs whose every time is known, because it was made.

use serde_json::Value;
use tempfile::TempDir;

use super::{document, kernel, report, write};

/// Kernels of one rank in one iteration, one after the other: their names and lengths, in µs.
type Work = Vec<(&'static str, f64)>;

/// Ranks that meet in an all-reduce of 20 µs at the end of each iteration.
struct Job {
    ranks: Vec<Vec<String>>,
    /// How long all of it takes, in µs.
    length: f64,
}

impl Job {
    fn of(ranks: u32, iterations: u32, marked: bool, work: impl Fn(u32, u32) -> Work) -> Self {
        let mut job = Self {
            ranks: vec![Vec::new(); ranks as usize],
            length: 0.0,
        };
        for iteration in 0..iterations {
            let each = Vec::from_iter((0..ranks).map(|rank| work(rank, iteration)));
            let busy = |work: &Work| work.iter().map(|(_, length)| length).sum::<f64>();
            let begin = job.length;
            let ends = begin + each.iter().map(busy).fold(0.0, f64::max) + 20.0;
            for (events, work) in job.ranks.iter_mut().zip(each) {
                if marked {
                    events.push(format!(
                        r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{iteration}","pid":9,"tid":9,"ts":{begin:.3},"dur":{:.3}}}"#,
                        ends - begin
                    ));
                }
                let mut at = begin;
                for (name, length) in work {
                    events.push(kernel(name, at, length));
                    at += length;
                }
                events.push(kernel("ncclDevKernel_AllReduce", at, ends - at));
            }
            job.length = ends;
        }
        job
    }

    fn report(&self) -> Value {
        let folder = TempDir::new().unwrap();
        for (number, events) in self.ranks.iter().enumerate() {
            let keys = format!(r#""distributedInfo":{{"rank":{number}}},"#);
            write(
                &folder,
                &format!("rank{number}.json"),
                document(&keys, events),
            );
        }
        report(&[], &[folder.path()])
    }
}

/// What the job takes less without its slow clock, and what is told of that: shares.
fn true_and_told(slow: &Job, level: &Job, rank: u32) -> [f64; 2] {
    let report = slow.report();
    assert_eq!(
        report["diagnosis"]["cause"], "slow-clock",
        "{}",
        report["verdict"]
    );
    assert_eq!(report["straggler_rank"], rank);
    let told = report["gain"]["named_iteration"].as_f64().unwrap();
    [1.0 - level.length / slow.length, told]
}

#[test]
fn a_clock_that_is_slow_for_a_part_of_an_unmarked_recording_costs_what_is_waited_then() {
    for from in [10, 30, 50] {
        let job = |slow: f64| {
            Job::of(4, 64, false, |rank, iteration| {
                let pace = if rank == 1 && iteration >= from {
                    slow
                } else {
                    1.0
                };
                Vec::from_iter((0..10).map(|_| ("gemm", 40.0 * pace)))
            })
        };
        let [truth, told] = true_and_told(&job(1.3), &job(1.0), 1);
        assert!(
            (told / truth - 1.0).abs() < 0.1,
            "{from}: {told} of {truth}"
        );
    }
}

#[test]
fn stages_whose_collectives_name_no_ranks_are_not_only_told_of_clocks_that_jump() {
    // Forwards the second stage is 3 ms behind the first one, backwards it is as far ahead of it.
    let folder = TempDir::new().unwrap();
    for rank in 0..4_u32 {
        let mut events = Vec::new();
        for step in 0..40_u32 {
            let late = (rank >= 2) == (step < 20);
            let at = 600.0 * f64::from(step) + if late { 3_000.0 } else { 0.0 };
            let at = if step < 20 { at } else { at + 3_000.0 };
            let arrives = at + 400.0 + f64::from(rank % 2);
            events.push(kernel("gemm", at, arrives - at));
            events.push(kernel(
                "ncclDevKernel_AllReduce",
                arrives,
                at + 450.0 - arrives,
            ));
        }
        let keys = format!(r#""distributedInfo":{{"rank":{rank}}},"#);
        write(
            &folder,
            &format!("rank{rank}.json"),
            document(&keys, &events),
        );
    }
    let report = report(&[], &[folder.path()]);
    let evidence = report["diagnosis"]["evidence"].to_string();
    let told = "ranks 0, 1 may be one stage of a pipeline, or one job, and ranks 2, 3 another; give the files of each alone";
    assert!(evidence.contains(told), "{evidence}");
}
