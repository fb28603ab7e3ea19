//! Jobs with slow links and with ranks that are slow now and then, whose truth is computed beside: what is named, and what
//! mending it gains.

use serde_json::Value;
use tempfile::TempDir;

use super::{document, report, write};

const RANKS: usize = 6;
const ITERATIONS: usize = 6;
/// Kernels of an iteration, and how long each of them takes, in µs.
const KERNELS: usize = 20;
const LENGTH: f64 = 50.0;
/// What an all-reduce of two neighbours takes, and one of all ranks.
const PAIR: f64 = 100.0;
const ALL: f64 = 200.0;

/// A job of three pairs: each iteration all ranks compute, each pair reduces twice, and then all do.
struct Job {
    /// How many times as long as usual a rank's kernels take in an iteration.
    slower: fn(usize, usize) -> f64,
    /// The same of the all-reduces of a pair.
    link: fn(usize, usize) -> f64,
}

/// A bit of noise that is the same each time.
fn noise(seed: usize) -> f64 {
    let mixed = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    1.0 + 0.01 * (mixed as f64 / f64::from(1 << 24) - 0.5)
}

impl Job {
    const PLAIN: Self = Self {
        slower: |_, _| 1.0,
        link: |_, _| 1.0,
    };

    /// Writes the traces of all ranks into a folder, and tells how long the job takes.
    fn run(&self, folder: Option<&TempDir>) -> f64 {
        let mut events = vec![Vec::new(); RANKS];
        let mut begin = 0.0;
        for iteration in 0..ITERATIONS {
            let mut free = [begin; RANKS];
            for half in 0..2 {
                for (rank, free) in free.iter_mut().enumerate() {
                    for kernel in 0..KERNELS / 2 {
                        let seed = ((iteration * 2 + half) * KERNELS + kernel) * RANKS + rank;
                        let length = LENGTH * (self.slower)(rank, iteration) * noise(seed);
                        events[rank].push(super::kernel("sm90_xmma_gemm", *free, length));
                        *free += length;
                    }
                }
                for pair in 0..RANKS / 2 {
                    let ranks = [2 * pair, 2 * pair + 1];
                    let takes = PAIR * (self.link)(pair, iteration);
                    reduce(&mut events, &mut free, &ranks, takes);
                }
            }
            let ranks = Vec::from_iter(0..RANKS);
            reduce(&mut events, &mut free, &ranks, ALL);
            for events in &mut events {
                events.push(format!(
                    r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{iteration}","pid":9,"tid":9,"ts":{begin:.3},"dur":{:.3}}}"#,
                    free[0] - begin - 0.001
                ));
            }
            begin = free[0];
        }
        if let Some(folder) = folder {
            for (rank, events) in events.iter().enumerate() {
                let info = format!(r#""distributedInfo":{{"rank":{rank},"world_size":{RANKS}}},"#);
                let name = format!("rank{rank}.json");
                write(folder, &name, document(&info, events));
            }
        }
        begin
    }

    /// What litctl says of it, and what part of its time is lost against `other`, in percent.
    fn told(&self, other: &Self) -> (Value, f64) {
        let folder = TempDir::new().unwrap();
        let takes = self.run(Some(&folder));
        let lost = 100.0 * (takes - other.run(None)) / takes;
        (report(&[], &[folder.path()]), lost)
    }
}

/// An all-reduce of some ranks, which ends on all of them together.
fn reduce(events: &mut [Vec<String>], free: &mut [f64], ranks: &[usize], takes: f64) {
    let last = ranks.iter().map(|&rank| free[rank]).fold(0.0, f64::max);
    let named = Vec::from_iter(ranks.iter().map(usize::to_string)).join(", ");
    for &rank in ranks {
        let (start, length) = (free[rank], last + takes - free[rank]);
        events[rank].push(format!(
            r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":20,"ts":{start:.3},"dur":{length:.3},"args":{{"device":0,"stream":20,"Collective name":"allreduce","In msg nelems":{0},"Out msg nelems":{0},"dtype":"Float","Group size":{1},"Process Group Name":"{named}","Process Group Ranks":"[{named}]"}}}}"#,
            1_000_000 * ranks.len(),
            ranks.len(),
        ));
        free[rank] = last + takes;
    }
}

fn said(report: &Value, key: &str) -> String {
    report["verdict"][key].as_str().unwrap().to_owned()
}

/// What the cost says an iteration takes less, in percent: the first figure.
fn less(report: &Value) -> f64 {
    let cost = said(report, "cost");
    let (before, _) = cost
        .split_once(" % less")
        .unwrap_or_else(|| panic!("{cost}"));
    let figure = before.rsplit(' ').next().unwrap();
    figure.parse().unwrap_or_else(|_| panic!("{cost}"))
}

fn assert_near(told: f64, truth: f64) {
    assert!((told - truth).abs() < 0.3, "{told} % told, {truth} % true");
}

#[test]
fn a_slow_link_is_named_by_its_ranks_with_what_it_costs() {
    let slow = Job {
        link: |pair, _| if pair == 1 { 4.0 } else { 1.0 },
        ..Job::PLAIN
    };
    let (report, lost) = slow.told(&Job::PLAIN);
    let text = said(&report, "text");
    let told = "Slow link: communication between ranks 2 and 3 takes 4.0 times as long as between other ranks (allreduce of 8 MB: 400 µs instead of 100 µs).";
    assert!(text.starts_with(told), "{text}");
    assert_eq!(report["verdict"]["kind"], "communication");
    assert_eq!(
        report["what_if"]["links"][0]["where"]["among"],
        serde_json::json!([2, 3])
    );
    assert_near(less(&report), lost);
}

#[test]
fn a_network_that_stalls_once_is_named_by_the_iteration() {
    let stall = Job {
        link: |_, iteration| if iteration == 4 { 5.0 } else { 1.0 },
        ..Job::PLAIN
    };
    let (report, lost) = stall.told(&Job::PLAIN);
    let text = said(&report, "text");
    let told = "Slow network: in iteration 4 communication of all ranks takes 5.0 times as long as in the others";
    assert!(text.starts_with(told), "{text}");
    assert!(!text.contains("Healthy"), "{text}");
    assert_near(less(&report), lost);
}

#[test]
fn links_that_are_equal_are_not_named() {
    let (report, _) = Job::PLAIN.told(&Job::PLAIN);
    assert_eq!(report["what_if"]["links"], serde_json::json!([]));
    assert!(said(&report, "text").starts_with("Healthy"), "{report}");
}

#[test]
fn a_clock_that_costs_less_than_a_link_comes_second() {
    let both = Job {
        slower: |rank, _| if rank == 5 { 1.1 } else { 1.0 },
        link: |pair, _| if pair == 0 { 4.0 } else { 1.0 },
    };
    let clock = Job {
        link: |_, _| 1.0,
        ..both
    };
    let (report, lost) = both.told(&clock);
    let text = said(&report, "text");
    assert!(
        text.starts_with("Slow link: communication between ranks 0 and 1"),
        "{text}"
    );
    assert_near(less(&report), lost);
    // Rank 5 costs nothing as long as the link does more.
    let (_, alone) = both.told(&Job {
        slower: |_, _| 1.0,
        ..both
    });
    assert!(alone < 0.5, "{alone}");
    // Both together cost more than the link alone.
    let (_, all) = both.told(&Job::PLAIN);
    let told = format!("With all of this mended {all:.0}");
    assert!(said(&report, "cost").contains(&told), "{told}: {report}");
}

#[test]
fn a_clock_that_is_slow_in_one_iteration_costs_what_that_one_takes_longer() {
    let once = Job {
        slower: |rank, iteration| {
            if rank == 4 && iteration == 2 {
                1.3
            } else {
                1.0
            }
        },
        ..Job::PLAIN
    };
    let (report, lost) = once.told(&Job::PLAIN);
    let text = said(&report, "text");
    assert!(text.starts_with("Slow clock"), "{text}");
    assert!(text.contains("rank 4, in iteration 2 alone"), "{text}");
    assert_near(less(&report), lost);
}

#[test]
fn ranks_that_are_slow_in_iterations_of_their_own_are_told_with_these() {
    let turns = Job {
        slower: |rank, iteration| match (rank, iteration) {
            (1, 1) | (4, 3) => 1.25,
            _ => 1.0,
        },
        ..Job::PLAIN
    };
    let (report, lost) = turns.told(&Job::PLAIN);
    let text = said(&report, "text");
    assert!(text.contains("rank 1 in iteration 1 alone"), "{text}");
    assert!(text.contains("rank 4 in iteration 3 alone"), "{text}");
    assert_near(less(&report), lost);
}

#[test]
fn a_clock_that_sinks_is_told_to_get_worse() {
    let sinks = Job {
        slower: |rank, iteration| match rank {
            3 => 1.0 + 0.03 * iteration as f64,
            _ => 1.0,
        },
        ..Job::PLAIN
    };
    let (report, lost) = sinks.told(&Job::PLAIN);
    let text = said(&report, "text");
    assert!(text.contains("rank 3, more and more"), "{text}");
    assert_near(less(&report), lost);
}

#[test]
fn what_mending_one_of_two_causes_gains_is_told_apart_from_both() {
    let both = Job {
        slower: |rank, _| match rank {
            0 => 1.12,
            5 => 1.05,
            _ => 1.0,
        },
        ..Job::PLAIN
    };
    let one = Job {
        slower: |rank, _| if rank == 5 { 1.05 } else { 1.0 },
        ..Job::PLAIN
    };
    let (report, lost) = both.told(&one);
    assert_eq!(report["straggler_rank"], 0);
    assert_near(less(&report), lost);
    let text = said(&report, "text");
    assert!(text.contains("Second is rank 5"), "{text}");
}

#[test]
fn what_is_second_is_told_however_dear_what_is_first() {
    let both = Job {
        slower: |rank, _| match rank {
            0 => 1.9,
            5 => 1.04,
            _ => 1.0,
        },
        ..Job::PLAIN
    };
    let (report, _) = both.told(&Job::PLAIN);
    let text = said(&report, "text");
    assert!(text.contains("Second is rank 5"), "{text}");
    // Noise is no second cause.
    let one = Job {
        slower: |rank, _| if rank == 0 { 1.9 } else { 1.0 },
        ..Job::PLAIN
    };
    let (report, _) = one.told(&Job::PLAIN);
    let text = said(&report, "text");
    assert!(!text.contains("Second"), "{text}");
}

/// A ring of four ranks: each iteration all compute, send something to the next and receive from the one before. What rank 1
/// sends takes so many µs.
fn ring(one_way: f64) -> TempDir {
    const RING: usize = 4;
    let folder = TempDir::new().unwrap();
    let mut events = vec![Vec::new(); RING];
    let mut begin = 0.0;
    for iteration in 0..ITERATIONS {
        let mut free = [begin; RING];
        for (rank, free) in free.iter_mut().enumerate() {
            for kernel in 0..KERNELS {
                let seed = (iteration * KERNELS + kernel) * RING + rank;
                let length = LENGTH * noise(seed);
                events[rank].push(super::kernel("sm90_xmma_gemm", *free, length));
                *free += length;
            }
        }
        let ready = free;
        for rank in 0..RING {
            let next = (rank + 1) % RING;
            let takes = if rank == 1 { one_way } else { PAIR };
            let end = ready[rank].max(ready[next]) + takes;
            for (at, name, peer, other, stream) in [
                (rank, "send", "Dst Rank", next, 20),
                (next, "recv", "Src Rank", rank, 21),
            ] {
                events[at].push(format!(
                    r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_SendRecv","pid":0,"tid":{stream},"ts":{:.3},"dur":{:.3},"args":{{"device":0,"stream":{stream},"Collective name":"{name}","{peer}":{other},"In msg nelems":1000000,"Out msg nelems":1000000,"dtype":"Float","Group size":4,"Process Group Name":"cp","Process Group Ranks":"[0, 1, 2, 3]"}}}}"#,
                    ready[at],
                    end - ready[at],
                ));
                free[at] = free[at].max(end);
            }
        }
        let ranks = Vec::from_iter(0..RING);
        reduce(&mut events, &mut free, &ranks, ALL);
        for events in &mut events {
            events.push(format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{iteration}","pid":9,"tid":9,"ts":{begin:.3},"dur":{:.3}}}"#,
                free[0] - begin - 0.001
            ));
        }
        begin = free[0];
    }
    for (rank, events) in events.iter().enumerate() {
        let info = format!(r#""distributedInfo":{{"rank":{rank},"world_size":{RING}}},"#);
        write(
            &folder,
            &format!("rank{rank}.json"),
            document(&info, events),
        );
    }
    folder
}

#[test]
fn a_link_that_is_slow_one_way_is_told_with_its_direction() {
    let report = report(&[], &[ring(5.0 * PAIR).path()]);
    let text = said(&report, "text");
    let told = "Slow link, one way only: transfers from rank 1 to rank 2 take 5.0 times as long as between other ranks (send of 4 MB: 500 µs instead of 100 µs).";
    assert!(text.starts_with(told), "{text}");
    assert_eq!(
        report["what_if"]["links"][0]["where"]["one_way"],
        serde_json::json!([1, 2])
    );
    let report = super::report(&[], &[ring(PAIR).path()]);
    assert_eq!(report["what_if"]["links"], serde_json::json!([]));
}
