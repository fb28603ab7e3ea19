//! Jobs whose all-reduces run beside computation, with copies and with hosts whose calls are recorded: that lateness is
//! counted once, that a launch is one when its call returns, and what hosts do between launches.

use serde_json::Value;
use tempfile::TempDir;

use super::{document, report, write};

const RANKS: usize = 8;
const ITERATIONS: u32 = 5;
const LAYERS: usize = 5;

/// What is wrong with a job, in µs; each of a rank.
struct Job {
    /// How long the copy at the beginning of each iteration takes; none where that is nothing.
    copy: [f64; RANKS],
    /// How long its host does something else before it launches an iteration.
    stall: [f64; RANKS],
    /// How long each call takes that launches a kernel.
    call: [f64; RANKS],
    /// How much longer its kernels take, but for those that memory limits; a factor.
    slower: [f64; RANKS],
    /// How long an all-reduce takes where nobody waits.
    transfer: f64,
    /// Whether one follows the last layer as well, which nothing hides.
    last: bool,
}

const RIGHT: Job = Job {
    copy: [0.0; RANKS],
    stall: [0.0; RANKS],
    call: [2.0; RANKS],
    slower: [1.0; RANKS],
    transfer: 60.0,
    last: false,
};

fn of_rank(rank: usize, value: f64, others: f64) -> [f64; RANKS] {
    std::array::from_fn(|at| if at == rank { value } else { others })
}

/// What one rank does: when its host and its GPU are free, and its events.
#[derive(Default)]
struct Rank {
    host: f64,
    gpu: f64,
    exchanges: f64,
    calls: u32,
    events: Vec<String>,
}

impl Rank {
    /// Launches something; when it is there and the number of the call.
    fn launch(&mut self, name: &str, call: f64) -> (f64, u32) {
        self.calls += 1;
        let (at, number) = (self.host, self.calls);
        self.events.push(format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"{name}","pid":9,"tid":9,"ts":{at:.3},"dur":{call:.3},"args":{{"correlation":{number}}}}}"#
        ));
        self.host += call + 1.0;
        (at + call, number)
    }

    fn event(
        &mut self,
        [category, name]: [&str; 2],
        stream: u32,
        [start, end]: [f64; 2],
        call: u32,
    ) {
        let length = end - start;
        self.events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":{stream},"ts":{start:.3},"dur":{length:.3},"args":{{"device":0,"stream":{stream},"correlation":{call}}}}}"#
        ));
    }

    fn compute(&mut self, what: [&str; 2], length: f64, call: f64) {
        let api = if what[0] == "kernel" {
            "cudaLaunchKernel"
        } else {
            "cudaMemcpyAsync"
        };
        let (there, number) = self.launch(api, call);
        let start = self.gpu.max(there) + 0.5;
        self.gpu = start + length;
        self.event(what, 7, [start, self.gpu], number);
    }
}

impl Job {
    /// How long an iteration takes, in µs, and the traces.
    fn run(&self) -> (f64, TempDir) {
        let mut ranks = Vec::from_iter((0..RANKS).map(|_| Rank::default()));
        for iteration in 0..ITERATIONS {
            let mut begins = Vec::new();
            for (at, rank) in ranks.iter_mut().enumerate() {
                begins.push(rank.host);
                rank.host += self.stall[at];
                if self.copy[at] > 0.0 {
                    rank.compute(["gpu_memcpy", "Memcpy HtoD"], self.copy[at], 2.0);
                }
            }
            for layer in 0..LAYERS {
                for (at, rank) in ranks.iter_mut().enumerate() {
                    for k in 0..6_u32 {
                        // As little as noise.
                        let more = f64::from((7 * at as u32 + 3 * k + 5 * iteration) % 11) / 50.0;
                        let name = ["rms_norm", "up_gemm", "down_gemm"][k as usize % 3];
                        let follows = if name == "rms_norm" {
                            1.0
                        } else {
                            self.slower[at]
                        };
                        let length = (80.0 + more) * follows;
                        rank.compute(["kernel", name], length, self.call[at]);
                    }
                }
                // An all-reduce of the first four layers, beside the next one.
                if layer + 1 == LAYERS && !self.last {
                    continue;
                }
                let starts = ranks.iter_mut().map(|rank| {
                    let (there, number) = rank.launch("cudaLaunchKernel", 2.0);
                    (rank.gpu.max(there).max(rank.exchanges) + 0.5, number)
                });
                let starts = Vec::from_iter(starts);
                let end = starts.iter().map(|start| start.0).fold(0.0, f64::max) + self.transfer;
                for (rank, (start, number)) in ranks.iter_mut().zip(starts) {
                    let what = ["kernel", "ncclDevKernel_AllReduce"];
                    rank.event(what, 20, [start, end], number);
                    rank.exchanges = end;
                }
            }
            for (rank, begin) in ranks.iter_mut().zip(begins) {
                rank.gpu = rank.gpu.max(rank.exchanges);
                rank.compute(["kernel", "adam"], 100.0, 2.0);
                rank.host = rank.host.max(rank.gpu + 3.0);
                rank.events.push(format!(
                    r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{iteration}","pid":9,"tid":9,"ts":{begin:.3},"dur":{:.3}}}"#,
                    rank.host - begin - 0.001
                ));
            }
        }
        let end = ranks.iter().map(|rank| rank.host).fold(0.0, f64::max);
        let folder = TempDir::new().unwrap();
        for (at, rank) in ranks.iter().enumerate() {
            let info = format!(r#""distributedInfo":{{"rank":{at},"world_size":{RANKS}}},"#);
            write(
                &folder,
                &format!("rank{at}.json"),
                document(&info, &rank.events),
            );
        }
        (end / f64::from(ITERATIONS), folder)
    }

    /// The report, and what an iteration takes less if all is right, in percent.
    fn told(&self, right: &Self) -> (Value, f64) {
        let (time, folder) = self.run();
        (
            report(&[], &[folder.path()]),
            100.0 * (1.0 - right.run().0 / time),
        )
    }
}

fn said(report: &Value, key: &str) -> String {
    report["verdict"][key].as_str().unwrap().to_owned()
}

/// The percentage of the cost.
fn percent(report: &Value) -> f64 {
    let cost = said(report, "cost");
    let (start, _) = cost.split_once(" % less").unwrap();
    start.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn copies_explain_lateness_that_shows_at_each_collective() {
    let job = |rank: usize, copy: f64| Job {
        copy: of_rank(rank, copy, 100.0),
        ..RIGHT
    };
    for (rank, copy) in [(4, 500.0), (1, 300.0), (6, 200.0)] {
        let (report, truth) = job(rank, copy).told(&job(rank, 100.0));
        let text = said(&report, "text");
        let told = format!("Slow copies: the others wait for rank {rank}, whose Memcpy HtoD");
        assert!(text.starts_with(&told), "{text}");
        let cost = percent(&report);
        assert!((cost - truth).abs() < 1.5, "{cost} of {truth}");
    }
}

#[test]
fn a_long_launch_call_is_no_launch_in_time() {
    // Its calls take longer than its kernels: each begins before the last kernel has ended.
    let job = Job {
        call: of_rank(5, 110.0, 2.0),
        ..RIGHT
    };
    let (report, _) = job.told(&RIGHT);
    let text = said(&report, "text");
    assert!(
        text.starts_with("Late host: it launches kernels too late, and the others wait for rank 5"),
        "{text}"
    );
    let next = said(&report, "next");
    assert!(next.starts_with("look at the host of rank 5"), "{next}");
    let time = &report["ranks"][5]["time_ns"];
    let part = |key: &str| time[key].as_f64().unwrap();
    assert!(part("idle_launch") > 10.0 * part("idle_other"), "{time}");
}

#[test]
fn what_all_hosts_are_late_by_is_told_before_what_one_is() {
    for (rank, more) in [(3, 90.0), (0, 60.0), (7, 0.0)] {
        let job = Job {
            stall: of_rank(rank, 3_000.0 + more, 3_000.0),
            ..RIGHT
        };
        let (report, truth) = job.told(&RIGHT);
        let text = said(&report, "text");
        let told = "Late hosts: no host launches kernels fast enough for its GPU; no rank";
        assert!(text.starts_with(told), "{text}");
        assert_eq!(report["straggler_rank"], Value::Null);
        let cost = percent(&report);
        assert!((cost - truth).abs() < 3.0, "{cost} of {truth}");
        let next = said(&report, "next");
        assert!(
            next.contains("few long gaps") && !next.contains("CUDA graphs"),
            "{next}"
        );
    }
    // Where it is later than the others by much of that it is its own host.
    let job = Job {
        stall: of_rank(3, 6_000.0, 1_000.0),
        ..RIGHT
    };
    let level = Job {
        stall: [1_000.0; RANKS],
        ..RIGHT
    };
    let (report, truth) = job.told(&level);
    assert_eq!(report["straggler_rank"], 3);
    let cost = percent(&report);
    assert!((cost - truth).abs() < 4.0, "{cost} of {truth}");
}

#[test]
fn a_slow_clock_that_nobody_waits_for_is_told_and_costs_nothing() {
    // The network is what all wait for, and another rank comes to the first all-reduce by as little later.
    let slow = Job {
        slower: of_rank(6, 1.04, 1.0),
        stall: of_rank(2, 14.0, 0.0),
        transfer: 900.0,
        ..RIGHT
    };
    let right = Job {
        transfer: 900.0,
        ..RIGHT
    };
    let (report, truth) = slow.told(&right);
    assert!(truth < 0.5, "{truth}");
    let text = said(&report, "text");
    let told =
        "But the clock of rank 6 is slow: kernels there take 4.0 % longer, for which nobody waits.";
    assert!(text.starts_with("Healthy") && text.contains(told), "{text}");
    let cost = said(&report, "cost");
    assert!(!cost.contains(" % less"), "{cost}");
    let (report, _) = right.told(&right);
    assert!(!said(&report, "text").contains("clock"), "{report}");
}

#[test]
fn a_slow_clock_behind_a_late_host_is_told_with_what_both_cost() {
    // The all-reduces of the others follow each other at once while they wait for rank 1; each needs what is computed
    // before it all the same.
    let slow = Job {
        slower: of_rank(7, 1.06, 1.0),
        last: true,
        ..RIGHT
    };
    let both = Job {
        stall: of_rank(1, 3_000.0, 0.0),
        ..slow
    };
    let (report, truth) = both.told(&slow);
    let text = said(&report, "text");
    assert!(text.starts_with("Late host"), "{text}");
    assert_eq!(report["straggler_rank"], 1);
    assert!(text.contains("rank 7, whose kernels take longer"), "{text}");
    let cost = percent(&report);
    assert!((cost - truth).abs() < 0.5, "{cost} of {truth}");
}

#[test]
fn launches_come_before_a_clock_that_costs_less() {
    let bound = Job {
        call: [110.0; RANKS],
        slower: of_rank(2, 1.1, 1.0),
        ..RIGHT
    };
    let (report, _) = bound.told(&RIGHT);
    let text = said(&report, "text");
    let told = "Late hosts: no host launches kernels fast enough for its GPU";
    assert!(text.starts_with(told), "{text}");
    assert!(!text.contains("late host of"), "{text}");
    let next = said(&report, "next");
    assert!(next.starts_with("look at all hosts"), "{next}");
}
