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
}

/// A transfer as its kernel is recorded on one of its two ranks.
fn transfer(named: Named, what: &str, [rank, peer]: [usize; 2], at: f64, length: f64) -> String {
    let (low, high) = (rank.min(peer), rank.max(peer));
    let (name, ranks) = match named {
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
    let folder = TempDir::new().unwrap();
    let mut events = vec![Vec::new(); STAGES];
    let mut begin = 0.0_f64;
    for iteration in 0..3 {
        let mut free = [begin; STAGES];
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
    report(&[], &[folder.path()])
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
                "Rank 2 computes longest, by 50.0 % more than the next, in more kernels",
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
