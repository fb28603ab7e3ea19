//! Pipelines of one rank per stage: who waits for whom is the schedule there, and no rank is to blame for it.

use serde_json::Value;
use tempfile::TempDir;

use super::{document, kernel, report, write};

const STAGES: usize = 4;
const BATCHES: usize = 6;

/// How transfers name their process groups.
#[derive(Clone, Copy, PartialEq)]
enum Named {
    /// All stages have one, and reduce something in it at the end.
    Whole,
    /// Each two neighbours have one.
    Pairs,
    /// The traces tell of none.
    Not,
}

/// A transfer as its kernel is recorded on one of its two ranks.
fn transfer(named: Named, what: &str, [rank, peer]: [usize; 2], at: f64, length: f64) -> String {
    let (low, high) = (rank.min(peer), rank.max(peer));
    let (name, ranks) = match named {
        Named::Not => {
            return kernel("ncclDevKernel_SendRecv", at, length).replace(":7,", ":20,");
        }
        Named::Whole => (0, "0, 1, 2, 3".to_owned()),
        Named::Pairs => (low + 1, format!("{low}, {high}")),
    };
    let side = if what == "send" { "Dst" } else { "Src" };
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_SendRecv","pid":0,"tid":20,"ts":{at:.3},"dur":{length:.3},"args":{{"device":0,"stream":20,"Collective name":"{what}","Process Group Name":"{name}","Process Group Description":"default_pg","Process Group Ranks":"[{ranks}]","{side} Rank":{peer}}}}}"#
    )
}

/// A pipeline: all batches through all stages, and all of them back. A stage takes so long for a batch in each of ten
/// kernels; receives are posted when the one before has come or, where `early`, all at once.
fn job(
    named: Named,
    early: bool,
    length: impl Fn(usize) -> f64,
    kernels: impl Fn(usize) -> usize,
) -> Value {
    report(
        &[],
        &[traces((named, early), length, kernels, |_| 0.0).0.path()],
    )
}

/// Its traces, and how long it takes. The host of a stage does something else for so long before each iteration.
fn traces(
    (named, early): (Named, bool),
    length: impl Fn(usize) -> f64,
    kernels: impl Fn(usize) -> usize,
    stall: impl Fn(usize) -> f64,
) -> (TempDir, f64) {
    let folder = TempDir::new().unwrap();
    let mut events = vec![Vec::new(); STAGES];
    let mut begin = 0.0_f64;
    for iteration in 0..3 {
        let mut free: [f64; STAGES] = std::array::from_fn(|stage| begin + stall(stage));
        for (back, what) in [(false, "forward_gemm"), (true, "backward_gemm")] {
            let mut there = [[begin; BATCHES]; STAGES];
            for at in 0..STAGES {
                let stage = if back { STAGES - 1 - at } else { at };
                let [before, after] = match back {
                    true => [stage + 1, stage.wrapping_sub(1)],
                    false => [stage.wrapping_sub(1), stage + 1],
                };
                let posted = free[stage];
                for (batch, comes) in there[stage].into_iter().enumerate() {
                    if before < STAGES {
                        let from: f64 = if early { posted } else { free[stage] };
                        let length = (comes - from).max(5.0);
                        events[stage].push(transfer(named, "recv", [stage, before], from, length));
                        free[stage] = free[stage].max(from + length);
                    }
                    for _ in 0..kernels(stage) {
                        events[stage].push(kernel(what, free[stage], length(stage)));
                        free[stage] += length(stage);
                    }
                    if after < STAGES {
                        events[stage].push(transfer(
                            named,
                            "send",
                            [stage, after],
                            free[stage],
                            5.0,
                        ));
                        there[after][batch] = free[stage] + 5.0;
                    }
                }
            }
        }
        let end = free.iter().copied().fold(0.0, f64::max) + 50.0;
        for (events, free) in events.iter_mut().zip(free) {
            if named == Named::Whole {
                let length = end - free;
                events.push(format!(
                    r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":21,"ts":{free:.3},"dur":{length:.3},"args":{{"device":0,"stream":21,"Collective name":"allreduce","Process Group Name":"0","Process Group Ranks":"[0, 1, 2, 3]"}}}}"#
                ));
            }
            events.push(format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{iteration}","pid":9,"tid":9,"ts":{begin:.3},"dur":{:.3}}}"#,
                end - begin - 0.001
            ));
        }
        begin = end;
    }
    for (rank, events) in events.iter().enumerate() {
        let info = format!(r#""distributedInfo":{{"rank":{rank},"world_size":{STAGES}}},"#);
        write(
            &folder,
            &format!("rank{rank}.json"),
            document(&info, events),
        );
    }
    (folder, begin)
}

/// Adds when hosts launched what runs, which they do as soon as they begin with an iteration.
fn launched(folder: &TempDir, stall: impl Fn(usize) -> f64) {
    for rank in 0..STAGES {
        let path = folder.path().join(format!("rank{rank}.json"));
        let text = std::fs::read_to_string(&path).unwrap();
        let mut trace: Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array_mut().unwrap();
        let begins =
            |event: &Value| (event["cat"] == "user_annotation").then(|| event["ts"].as_f64());
        let begins = Vec::from_iter(events.iter().filter_map(begins).flatten());
        let mut calls = Vec::new();
        for (number, event) in (1..).zip(events.iter_mut()) {
            if event["cat"] != "kernel" {
                continue;
            }
            let start = event["ts"].as_f64().unwrap();
            let begin = begins.iter().rfind(|begin| **begin <= start).unwrap();
            event["args"]["correlation"] = number.into();
            calls.push(serde_json::json!({
                "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
                "ts": begin + stall(rank), "dur": 0.001, "args": {"correlation": number},
            }));
        }
        events.extend(calls);
        std::fs::write(path, trace.to_string()).unwrap();
    }
}

#[test]
fn a_late_host_of_a_stage_is_no_schedule() {
    for stall in [2_000.0, 600.0] {
        let stalls = |stage| if stage == 0 { stall } else { 0.0 };
        let (folder, time) = traces((Named::Whole, false), |_| 40.0, |_| 10, stalls);
        launched(&folder, stalls);
        let verdict = &report(&[], &[folder.path()])["verdict"];
        let said = |key: &str| verdict[key].as_str().unwrap().to_owned();
        let text = said("text");
        let told = "Late host: the host of rank 0 launches kernels too late";
        assert!(text.starts_with(told), "{text}");
        assert_eq!(said("kind"), "host-bound");
        let next = said("next");
        assert!(next.contains("look at the host of rank 0"), "{next}");
        let (_, right) = traces((Named::Whole, false), |_| 40.0, |_| 10, |_| 0.0);
        let cost = said("cost");
        let (told, _) = cost.split_once(" % less").unwrap();
        let told: f64 = told.rsplit(' ').next().unwrap().parse().unwrap();
        let truth = 100.0 * (1.0 - right / time);
        assert!((told - truth).abs() < 2.0, "{cost} {truth}");
    }
    let (folder, _) = traces((Named::Whole, false), |_| 40.0, |_| 10, |_| 0.0);
    launched(&folder, |_| 0.0);
    let text = report(&[], &[folder.path()])["verdict"]["text"].to_string();
    assert!(!text.contains("host"), "{text}");
}

#[test]
fn hosts_that_are_late_on_all_stages_are_no_schedule() {
    for (named, launches) in [(Named::Whole, true), (Named::Pairs, false)] {
        let stall = |_| 2_000.0;
        let (folder, time) = traces((named, false), |_| 40.0, |_| 10, stall);
        if launches {
            launched(&folder, stall);
        }
        let report = report(&[], &[folder.path()]);
        let said = |key: &str| report["verdict"][key].as_str().unwrap().to_owned();
        let text = said("text");
        let told = "Late hosts: no GPU does more than wait for ";
        assert!(text.starts_with(told), "{text}");
        assert_eq!(said("kind"), "host-bound");
        assert!(said("next").starts_with("look at what all hosts do"));
        let cost = said("cost");
        let (told, _) = cost.split_once(" % less").unwrap();
        let told: f64 = told.rsplit(' ').next().unwrap().parse().unwrap();
        // Of three iterations the first begins with the recording.
        let truth = 100.0 * 2.0 * 2_000.0 / (time - 2_000.0);
        assert!((told - truth).abs() < 1.5, "{cost} {truth}");
    }
}

#[test]
fn no_stage_of_a_pipeline_is_blamed_for_its_schedule() {
    for (named, early) in [
        (Named::Whole, false),
        (Named::Whole, true),
        (Named::Pairs, false),
        (Named::Pairs, true),
    ] {
        let report = job(named, early, |_| 40.0, |_| 10);
        let verdict = &report["verdict"];
        assert_eq!(report["straggler_rank"], Value::Null, "{verdict}");
        assert_eq!(verdict["kind"], "uneven-work", "{verdict}");
        let text = verdict.to_string();
        assert!(text.contains("as a stage of a pipeline does"), "{text}");
        for not in ["that is of", "computes longest"] {
            assert!(!text.contains(not), "{not} is in {text}");
        }
        // Nobody waits for longer than there is time.
        let cost = verdict["cost"].as_str().unwrap();
        let shares = cost.split(' ').filter_map(|word| word.parse::<f64>().ok());
        assert!(
            shares.clone().count() > 0 && shares.clone().all(|share| share < 70.0),
            "{cost}"
        );
    }
}

#[test]
fn stages_that_no_process_group_names_are_not_blamed() {
    for more in [10, 11] {
        // Of the same kernels, and of more on the last one.
        let kernels = |stage| if stage + 1 == STAGES { more } else { 10 };
        for early in [false, true] {
            let report = job(Named::Not, early, |_| 40.0, kernels);
            let verdict = &report["verdict"];
            assert_eq!(report["straggler_rank"], Value::Null, "{verdict}");
            assert_eq!(verdict["kind"], "uneven-work", "{verdict}");
        }
    }
}

#[test]
fn the_longest_stage_of_a_pipeline_is_told_with_how_it_is_longer() {
    for named in [Named::Whole, Named::Pairs] {
        let more = job(
            named,
            false,
            |_| 40.0,
            |stage| if stage == 2 { 15 } else { 10 },
        );
        let slow = job(
            named,
            false,
            |stage| if stage == 2 { 43.0 } else { 40.0 },
            |_| 10,
        );
        for (report, told) in [
            (
                more,
                "the others wait for stage 2 (rank 2), which computes 50.0 % longer than the median stage, in more kernels",
            ),
            (
                slow,
                "Rank 2 computes longest, by 7.5 % more than the next, in as many kernels",
            ),
        ] {
            let text = report["verdict"]["text"].as_str().unwrap();
            // Stages that run the same kernels may be compared, and then the clock may be told.
            let clock = text.starts_with("Slow clock: the others wait for rank 2");
            assert!(text.contains(told) || clock, "{text}");
        }
    }
}
