//! Jobs of which the truth is known, because it was made: that the first screen tells it.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::run::litlab;
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

/// Twenty kernels of so many µs each, one after the other.
fn kernels(length: f64) -> Vec<Event<'static>> {
    let kernels = (0..20).map(|k| compute("gemm", length * f64::from(k), length));
    Vec::from_iter(kernels)
}

/// The same of 40 µs, from this moment of an iteration on.
fn twenty(from: f64) -> Vec<Event<'static>> {
    let mut kernels = kernels(40.0);
    kernels.iter_mut().for_each(|kernel| kernel.3 += from);
    kernels
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
    if !litd_rig::is_built("litlab") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let traces = folder.path().to_str().unwrap();
    let speeds = ["1"; 16].join(",");
    let job = ["simulate", "--parallel", "pp8dp2", "--write-kineto", traces];
    litlab(&[&job[..], &["--speeds", &speeds]].concat());
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
fn slow_copies_are_told_as_why_a_rank_is_late() {
    let folder = two(|rank, _| {
        let copies = if rank == 1 { 120.0 } else { 20.0 };
        let copy = (
            "gpu_memcpy",
            "Memcpy HtoD (Pageable -> Device)",
            7,
            0.0,
            copies,
        );
        [vec![copy], twenty(copies)].concat()
    });
    let report = report(&[], &[folder.path()]);
    assert_eq!(report["straggler_rank"], 1);
    let text = said(&report, "text");
    let told = "Slow copies: rank 0 waits for rank 1, whose Memcpy HtoD (Pageable -> Device) take 600 µs (500.0 %) longer in all than on the ranks far ahead of it.";
    assert!(text.starts_with(told), "{text}");
    assert_eq!(report["diagnosis"]["longer"][0]["class"], "copy");
    assert_eq!(report["diagnosis"]["longer"][0]["time_ns"], 720_000);
    let shown = in_a_line(&[folder.path()]);
    for not in [
        "don't tell why",
        "explain less than half",
        "why is not known",
    ] {
        assert!(!shown.contains(not), "{not} is in {shown}");
    }
    assert!(
        said(&report, "next").contains("pinned memory"),
        "{}",
        said(&report, "next")
    );
}

#[test]
fn slow_copies_are_told_where_all_hosts_are_late_besides() {
    let folder = two(|rank, _| {
        let copies = if rank == 1 { 120.0 } else { 20.0 };
        let mut events = twenty(copies);
        // Each kernel is launched 30 µs after the one before ended.
        for (k, event) in (0..).zip(&mut events) {
            event.3 += 30.0 * f64::from(k);
        }
        events.push(("gpu_memcpy", "Memcpy HtoD", 7, 0.0, copies));
        events
    });
    let shown = in_a_line(&[folder.path()]);
    assert!(shown.contains("Late hosts: no host launches"), "{shown}");
    let told = "its 6 × Memcpy HtoD take 0.720 ms together, the 6 of the ranks far ahead of it 0.120 ms: 100 % of what it is late by";
    assert!(shown.contains(told), "{shown}");
}

#[test]
fn one_slow_kernel_is_told_by_its_name() {
    // One kernel in 21, which a mean over all of them does not show.
    let folder = two(|rank, _| {
        let length = if rank == 1 { 75.0 } else { 50.0 };
        let mut events = twenty(0.0);
        events.push(compute("scan_kernel", 800.0, length));
        events
    });
    let report = report(&[], &[folder.path()]);
    assert_eq!(report["straggler_rank"], 1);
    let text = said(&report, "text");
    let told = "One kernel takes longer: rank 0 waits for rank 1, whose scan_kernel takes 150 µs (50.0 %) longer in all than on the ranks far ahead of it.";
    assert!(text.starts_with(told), "{text}");
    assert_eq!(report["diagnosis"]["longer"][0]["name"], "scan_kernel");
    assert!(!in_a_line(&[folder.path()]).contains("don't tell why"));
}

#[test]
fn more_kernels_of_a_name_are_no_kernels_that_take_longer() {
    let folder = two(|rank, _| {
        let mut events = twenty(0.0);
        let more = if rank == 1 { 4 } else { 0 };
        events.extend((0..more).map(|k| compute("gemm", 800.0 + 40.0 * f64::from(k), 40.0)));
        events
    });
    let text = said(&report(&[], &[folder.path()]), "text");
    let told = "More work: rank 0 waits for rank 1, where 24 more kernels gemm run in all than on the ranks far ahead of it, each as long as there.";
    assert!(text.starts_with(told), "{text}");
}

#[test]
fn what_is_slow_beside_the_other_kernels_is_told_with_its_stream() {
    let folder = two(|rank, _| {
        let length = if rank == 1 { 900.0 } else { 700.0 };
        let mut events = twenty(0.0);
        events.push(("kernel", "moe_shared_expert", 24, 0.0, length));
        events
    });
    let text = said(&report(&[], &[folder.path()]), "text");
    let told = "whose moe_shared_expert on stream 24, beside most others, takes 1.20 ms (28.6 %) longer in all";
    assert!(text.contains(told), "{text}");
}

#[test]
fn what_nothing_explains_is_still_unknown() {
    // Rank 1 comes late to its collective by what no kernel takes longer.
    let folder = two(|rank, _| {
        let mut events = twenty(0.0);
        events.push(compute(
            "last",
            800.0 + 60.0 * f64::from(rank),
            20.0 + f64::from(rank),
        ));
        events
    });
    let text = said(&report(&[], &[folder.path()]), "text");
    for not in ["Slow copies", "slow kernel"] {
        assert!(!text.contains(not), "{text}");
    }
}

#[test]
fn what_differs_most_is_named_where_it_explains_too_little() {
    // Rank 1 comes 60 µs late to its collective, of which a kernel takes one.
    let folder = two(|rank, _| {
        let rank = f64::from(rank);
        let mut events = twenty(0.0);
        events.push(compute("last", 800.0, 20.0 + rank));
        events.push((
            "gpu_user_annotation",
            "unknown",
            7,
            821.0,
            1.0 + 59.0 * rank,
        ));
        events
    });
    let shown = in_a_line(&[folder.path()]);
    for part in [
        "Unknown: rank 0 waits for rank 1",
        "what single kernels take explain less than half of that",
        "most of what takes longer: its 6 × last take 0.126 ms together, the 6 of the ranks far ahead of it 0.120 ms: 2 % of what it is late by",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
}

#[test]
fn one_wild_time_spoils_no_figure_and_is_told() {
    let hour = 3.6e9;
    for (start, length, told) in [
        (900.0, hour, "ends 3599.989 s after the rest"),
        (-hour, 5.0, "starts 3600.000 s before the rest"),
        (hour, 5.0, "after the rest"),
        (-hour, hour + 5.0, "starts 3600.000 s before the rest"),
    ] {
        let job = |wild: bool| {
            let folder = two(|rank, _| kernels(if rank == 1 { 42.0 } else { 40.0 }));
            if wild {
                let path = folder.path().join("rank1.json");
                let text = std::fs::read_to_string(&path).unwrap();
                let event = super::kernel("wild_one", start, length);
                std::fs::write(path, text.replacen("\n]", &format!(",\n{event}\n]"), 1)).unwrap();
            }
            report(&[], &[folder.path()])
        };
        let (right, spoilt) = (job(false), job(true));
        for key in [
            "straggler_rank",
            "wall_ns",
            "matched_kernels",
            "diagnosis",
            "verdict",
        ] {
            assert_eq!(spoilt[key], right[key], "{key}");
        }
        for key in ["window_ns", "wait_fraction", "busy_fraction", "kernels"] {
            assert_eq!(spoilt["ranks"][1][key], right["ranks"][1][key], "{key}");
        }
        let notes = spoilt["notes"].to_string();
        for part in ["rank 1", "wild_one", told] {
            assert!(notes.contains(part), "{part} is not in {notes}");
        }
        assert!(!right["notes"].to_string().contains("left out"));
    }
}

#[test]
fn a_long_wait_at_the_end_is_not_taken_for_a_wild_time() {
    // The other rank comes to the last collective half a minute later.
    let folder = TempDir::new().unwrap();
    for number in 0..2 {
        let mut rank = Rank::of(number).document(|_| twenty(0.0));
        let late = 3e7 * f64::from(number);
        let event = super::kernel(
            "ncclDevKernel_AllReduce",
            12_000.0 + late,
            3e7 - late + 10.0,
        );
        rank = rank.replacen("\n]", &format!(",\n{event}\n]"), 1);
        write(&folder, &format!("rank{number}.json"), rank);
    }
    let report = report(&[], &[folder.path()]);
    assert_eq!(report["ranks"][0]["wait_ns"], 30_000_000_000_i64);
    assert!(
        !report["notes"].to_string().contains("left out"),
        "{}",
        report["notes"]
    );
}

#[test]
fn iterations_that_all_ranks_have_are_compared() {
    let folder = TempDir::new().unwrap();
    for number in 0..3 {
        let rank = Rank {
            iterations: if number == 1 { 11..15 } else { 10..14 },
            ..Rank::of(number)
        };
        let by = if number == 2 { 41.0 } else { 40.0 };
        let rank = rank.document(|_| kernels(by));
        write(&folder, &format!("rank{number}.json"), rank);
    }
    let report = report(&[], &[folder.path()]);
    assert_eq!(report["straggler_rank"], 2);
    assert_eq!(report["matched_kernels"], 60);
    assert_eq!(report["matched_fraction"], 1.0);
    let notes = report["notes"].to_string();
    let told = "iterations 10 and 14 are left out, because not all ranks have them: rank 1 lacks 10; ranks 0 and 2 lack 14";
    assert!(notes.contains(told), "{notes}");
    // To ask for one that a rank lacks is refused with those that it has.
    let refused = analyze(&["--iteration", "14"], &[folder.path()]);
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.contains("it has 4 iterations from 10 to 13"),
        "{refused}"
    );
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
        shown.contains("Slow clock: rank 0 waits for rank 1"),
        "{shown}"
    );
    assert!(!shown.contains("-0.1 %"), "{shown}");
    let told = "its clock-bound kernels take 3.8 % longer than those of the ranks far ahead of it, and its memory-bound ones 0.1 % less";
    assert!(shown.contains(told), "{shown}");
}

/// A job of the simulator, with the GPUs of these speeds.
fn simulated(job: &[&str], speeds: &str) -> Value {
    let folder = TempDir::new().unwrap();
    let traces = folder.path().to_str().unwrap();
    let run = ["simulate", "--speeds", speeds, "--write-kineto", traces];
    litlab(&[&run[..], job].concat());
    report(&[], &[folder.path()])
}

/// What the job takes less where no GPU is slow, and what its gain is told to be; shares.
fn true_and_told(slow: &Value, level: &Value) -> [f64; 2] {
    let wall = |report: &Value| report["wall_ns"].as_f64().unwrap();
    let told = slow["gain"]["iteration"].as_f64().unwrap();
    [1.0 - wall(level) / wall(slow), told]
}

#[test]
fn two_ranks_are_told_the_whole_gain_and_not_half_of_it() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    for spec in ["tp2", "dp2", "cp2"] {
        let job = ["--parallel", spec, "--seed", "3"];
        let slow = simulated(&job, "1,0.96");
        let [truth, told] = true_and_told(&slow, &simulated(&job, "1,1"));
        assert!((told - truth).abs() < 0.003, "{spec}: {told} of {truth}");
        let cost = said(&slow, "cost");
        let begins = "with rank 1 as fast as the other rank an iteration would take ";
        assert!(cost.starts_with(begins), "{cost}");
        assert!(cost.contains("an estimate"), "{cost}");
    }
}

#[test]
fn a_gain_knows_of_computation_that_communication_slows() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    // Collectives run beside computation, which is slower for it; with less waiting it is less so.
    let workload = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/oracle/llama31-8b-fsdp.json"
    );
    let job = ["--workload", workload, "--contention", "1.3"];
    let slow = simulated(&job, "1,1,1,1,0.95,1,1,1");
    let [truth, told] = true_and_told(&slow, &simulated(&job, "1,1,1,1,1,1,1,1"));
    assert!((told - truth).abs() < 0.003, "{told} of {truth}");
}

#[test]
fn transfers_without_process_groups_are_doubted_where_they_count_as_those_of_all() {
    // Pairs, each of which transfers something at a time of its own or, as in an all-to-all, at one time.
    let job = |ranks: u32, apart: f64| {
        let folder = TempDir::new().unwrap();
        for number in 0..ranks {
            let mut events = twenty(0.0);
            let (pair, late) = (f64::from(number / 2), f64::from(number % 2));
            let start = 810.0 + apart * pair + 20.0 * late;
            let length = 40.0 - 20.0 * late;
            events.push(("kernel", "ncclDevKernel_SendRecv", 21, start, length));
            let rank = Rank::of(number).document(|_| events.clone());
            write(&folder, &format!("rank{number}.json"), rank);
        }
        report(&[], &[folder.path()])["verdict"]["doubts"].to_string()
    };
    let told = "the trace does not tell which ranks take part in ncclDevKernel_SendRecv; it is taken for one of all 8 ranks";
    assert!(job(8, 50.0).contains(told), "{}", job(8, 50.0));
    for right in [job(2, 50.0), job(8, 0.0)] {
        assert!(!right.contains("between which ranks"), "{right}");
    }
}
