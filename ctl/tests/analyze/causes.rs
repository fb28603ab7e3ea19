//! Jobs whose ranks meet after each layer, made so that what is wrong with them is known: that the verdict names it,
//! names nobody where nobody is to blame, and tells what mending it gains.

use serde_json::Value;
use tempfile::TempDir;

use super::{document, report, write};

const RANKS: u32 = 8;
const LAYERS: u32 = 6;

/// A kernel's name, how long its GPU waits for it and how long it takes, in µs.
type Part = (&'static str, f64, f64);

/// Numbers from 0 to 1 that look like chance and are the same each time.
fn noise(of: [u32; 4]) -> f64 {
    let mut state = of.iter().fold(0x2545_f491_u64, |state, &number| {
        (state ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    state ^= state >> 29;
    state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (state >> 40) as f64 / f64::from(1_u32 << 24)
}

/// Attention, experts and a norm, six kernels in a layer. `part` changes one of them, of a rank, iteration and layer.
fn layer(place: [u32; 3], part: impl Fn(&Part) -> Part) -> Vec<Part> {
    let parts = [
        ("qkv_gemm", 0.0, 60.0),
        ("flash_attention", 0.0, 30.0),
        ("out_gemm", 0.0, 40.0),
        ("rms_norm", 0.0, 10.0),
        ("expert_gemm_up", 0.0, 90.0),
        ("expert_gemm_down", 0.0, 80.0),
    ];
    let [rank, iteration, layer] = place;
    let noisy = |(k, part_of): (u32, &Part)| {
        let (name, gap, length) = part(part_of);
        let noise = 1.0 + 0.002 * noise([rank, iteration, 10 * layer + k, 0]);
        (name, gap, length * noise)
    };
    Vec::from_iter((0..).zip(&parts).map(noisy))
}

/// The traces of a job, and how long it takes in µs.
struct Job {
    folder: TempDir,
    wall: f64,
}

impl Job {
    /// Of ranks that run what `layer` says of a rank, iteration and layer, and meet after each layer in transfers of so
    /// many µs.
    fn of(
        iterations: u32,
        (given, world): (std::ops::Range<u32>, u32),
        transfer: f64,
        layer: impl Fn([u32; 3]) -> Vec<Part>,
    ) -> Self {
        let mut times = vec![0.0_f64; world as usize];
        let mut events = vec![Vec::new(); world as usize];
        for iteration in 0..iterations {
            let begin = times[0];
            for number in 0..LAYERS {
                for (rank, time) in (0..).zip(&mut times) {
                    for (name, gap, length) in layer([rank, iteration, number]) {
                        *time += gap;
                        events[rank as usize].push(super::kernel(name, *time, length));
                        *time += length;
                    }
                }
                let end = times.iter().copied().fold(0.0, f64::max) + transfer;
                for (time, events) in times.iter_mut().zip(&mut events) {
                    let name = "ncclDevKernel_AllReduce";
                    let length = end - *time;
                    events.push(format!(
                        r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":20,"ts":{time:.3},"dur":{length:.3},"args":{{"device":0,"stream":20}}}}"#
                    ));
                    *time = end;
                }
            }
            for events in &mut events {
                events.push(format!(
                    r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{iteration}","pid":9,"tid":9,"ts":{begin:.3},"dur":{:.3}}}"#,
                    times[0] - begin - 0.001
                ));
            }
        }
        let folder = TempDir::new().unwrap();
        for rank in given {
            let info = format!(r#""distributedInfo":{{"rank":{rank},"world_size":{world}}},"#);
            let text = document(&info, &events[rank as usize]);
            write(&folder, &format!("rank{rank}.json"), text);
        }
        Self {
            folder,
            wall: times[0],
        }
    }

    /// Of eight ranks and six iterations.
    fn eight(part: impl Fn([u32; 3], &Part) -> Part) -> Self {
        Self::of(6, (0..RANKS, RANKS), 20.0, |place| {
            layer(place, |of| part(place, of))
        })
    }

    fn report(&self) -> Value {
        report(&[], &[self.folder.path()])
    }

    /// The same with one kernel more on each rank, after the last iteration.
    fn with_one_outside(self) -> Self {
        for rank in 0..RANKS {
            let name = format!("rank{rank}.json");
            let text = std::fs::read_to_string(self.folder.path().join(&name)).unwrap();
            let one = super::kernel("checkpoint_gemm", self.wall + 10.0, 10.0);
            write(
                &self.folder,
                &name,
                text.replace("\n]}", &format!(",\n{one}\n]}}")),
            );
        }
        self
    }

    /// What it takes less without what is wrong, in percent.
    fn truth(&self) -> f64 {
        100.0 * (1.0 - Self::eight(|_, &part| part).wall / self.wall)
    }
}

fn said(report: &Value, key: &str) -> String {
    report["verdict"][key].as_str().unwrap().to_owned()
}

/// The percentage before this.
fn percent(text: &str, before: &str) -> f64 {
    assert!(text.contains(before), "{text}");
    let (start, _) = text.split_once(before).unwrap();
    start.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn hosts_that_are_all_late_leave_no_rank_to_blame() {
    for seed in 0..4 {
        let job = Job::eight(|[rank, iteration, layer], &(name, _, length)| {
            // A host that lags does so for an iteration.
            let lags = 20.0 * noise([seed, rank, iteration, 7]);
            let gap = 60.0 + lags + 20.0 * noise([seed, rank, 100 * iteration + layer, 8]);
            (name, gap, length)
        });
        let report = job.report();
        let text = said(&report, "text");
        assert_eq!(report["straggler_rank"], Value::Null, "{text}");
        assert!(
            text.starts_with(
                "Late hosts: no host launches kernels fast enough for its GPU; no rank"
            ),
            "{text}"
        );
        let cost = said(&report, "cost");
        let told = percent(&cost, " % less");
        assert!((told - job.truth()).abs() < 5.0, "{cost} {}", job.truth());
        assert!(said(&report, "next").starts_with("look at all hosts, not at one"));
    }
}

#[test]
fn hosts_that_all_pause_in_one_iteration_are_told_with_it() {
    let job = Job::eight(|[_, iteration, layer], &(of, gap, length)| {
        let pauses = iteration == 4 && layer == 2 && of == "qkv_gemm";
        (of, if pauses { gap + 600.0 } else { gap }, length)
    });
    let report = job.report();
    let text = said(&report, "text");
    let told = "Late hosts: in iteration 4 all hosts launch kernels too late";
    assert!(text.starts_with(told), "{text}");
    let cost = said(&report, "cost");
    let told = percent(&cost, " % less");
    assert!((told - job.truth()).abs() < 1.0, "{cost} {}", job.truth());
}

#[test]
fn hosts_that_all_stop_for_input_are_told_by_gaps_on_all_gpus_at_once() {
    let job = Job::eight(|[_, _, layer], &(of, gap, length)| {
        let input = layer == 0 && of == "qkv_gemm";
        (of, if input { gap + 900.0 } else { gap }, length)
    });
    let report = job.report();
    let text = said(&report, "text");
    let told = "long gaps on all GPUs at once, which wait for their hosts then, take";
    assert!(text.contains(told), "{text}");
    assert!(said(&report, "next").contains("input (data loader)"));
    // The gap before the first iteration is not recorded.
    let still = &report["standstill"];
    assert_eq!(still["longs"], 5);
    let long = still["long_ns"].as_f64().unwrap() / 1e3;
    assert!((long - 5.0 * 900.0).abs() < 50.0, "{long}");
    // While one GPU computes, no others stand still.
    let job = Job::eight(|[rank, _, layer], &(of, gap, length)| {
        let stops = rank != 3 && layer == 0 && of == "qkv_gemm";
        (of, if stops { gap + 300.0 } else { gap }, length)
    });
    assert_eq!(job.report()["standstill"]["longs"], 0);
}

#[test]
fn hosts_that_pause_in_turn_are_told_with_their_iterations() {
    let job = Job::eight(|[rank, iteration, layer], &(of, gap, length)| {
        let pauses = rank == (3 * iteration + 1) % RANKS && layer == 2 && of == "qkv_gemm";
        (of, if pauses { gap + 900.0 } else { gap }, length)
    });
    let report = job.report();
    let text = said(&report, "text");
    assert!(
        text.starts_with("Late hosts, in turn: that of rank"),
        "{text}"
    );
    let pauses = report["what_if"]["pauses"]["ranks"].as_array().unwrap();
    let has = |rank: u32, iteration: u32| {
        pauses
            .iter()
            .any(|one| one["rank"] == rank && one["iterations"] == serde_json::json!([iteration]))
    };
    assert!(has(1, 0) && has(4, 1) && has(7, 2), "{pauses:?}");
    let cost = said(&report, "cost");
    let told = percent(&cost, " % less");
    assert!((told - job.truth()).abs() < 1.5, "{cost} {}", job.truth());
    // One that pauses once is named with the iteration.
    let job = Job::eight(|[rank, iteration, layer], &(of, gap, length)| {
        let pauses = rank == 2 && iteration == 3 && layer == 2 && of == "qkv_gemm";
        (of, if pauses { gap + 900.0 } else { gap }, length)
    });
    let text = said(&job.report(), "text");
    let told = "Late host: it launches kernels too late in iteration 3 alone, and the others wait for rank 2";
    assert!(text.starts_with(told), "{text}");
}

#[test]
fn a_kernel_outside_of_all_iterations_hides_none_of_them() {
    let all = Job::eight(|[_, iteration, layer], &(of, gap, length)| {
        let pauses = iteration == 4 && layer == 2 && of == "qkv_gemm";
        (of, if pauses { gap + 600.0 } else { gap }, length)
    });
    let in_turn = Job::eight(|[rank, iteration, layer], &(of, gap, length)| {
        let pauses = rank == (3 * iteration + 1) % RANKS && layer == 2 && of == "qkv_gemm";
        (of, if pauses { gap + 900.0 } else { gap }, length)
    });
    let slow = Job::eight(|[rank, iteration, _], &(of, gap, length)| {
        let slow = rank == 5 && iteration == 3;
        (of, gap, if slow { 1.2 * length } else { length })
    });
    for job in [all, in_turn, slow] {
        let without = said(&job.report(), "text");
        assert_eq!(said(&job.with_one_outside().report(), "text"), without);
    }
}

#[test]
fn one_late_host_among_late_ones_is_named_with_what_it_costs() {
    let hosts = |late: f64| {
        Job::eight(move |[rank, iteration, layer], &(name, _, length)| {
            let more = if rank == 2 { late } else { 0.0 };
            let gap = 10.0 + more + 3.0 * noise([rank, iteration, layer, 8]);
            (name, gap, length)
        })
    };
    let job = hosts(20.0);
    let report = job.report();
    assert_eq!(report["straggler_rank"], 2);
    let cost = said(&report, "cost");
    let truth = 100.0 * (1.0 - hosts(0.0).wall / job.wall);
    let told = percent(&cost, " % less");
    assert!((told - truth).abs() < 2.5, "{cost} {truth}");
    assert_eq!(cost.matches(" % less").count(), 1, "{cost}");
}

#[test]
fn what_a_few_kernels_take_longer_is_no_slow_clock() {
    for (slow, name) in [("flash", "flash_attention"), ("expert", "expert_gemm")] {
        let job = Job::eight(|[rank, ..], &(of, gap, length)| {
            let more = rank == 4 && of.starts_with(slow);
            (of, gap, if more { 1.6 * length } else { length })
        });
        let report = job.report();
        assert_eq!(report["straggler_rank"], 4);
        let text = said(&report, "text");
        assert!(!text.contains("Slow clock"), "{text}");
        assert!(
            text.contains("kernel takes longer") || text.starts_with("Some kernels take"),
            "{text}"
        );
        assert!(text.contains(&format!("whose {name}")), "{text}");
        assert_eq!(report["diagnosis"]["power_helps"], false);
        let cost = said(&report, "cost");
        let told = percent(&cost, " % less");
        assert!((told - job.truth()).abs() < 1.0, "{cost} {}", job.truth());
    }
    // A clock slows what follows it, whatever its name.
    let job = Job::eight(|[rank, ..], &(of, gap, length)| {
        let follows = if of == "rms_norm" { 1.0 } else { 1.03 };
        (of, gap, if rank == 4 { follows * length } else { length })
    });
    let text = said(&job.report(), "text");
    assert_eq!(
        text,
        "Slow clock: the others wait for rank 4; power can help."
    );
}

#[test]
fn ranks_whose_loads_change_wait_for_each_other_in_turn() {
    for seed in 0..4 {
        let job = Job::eight(|[rank, iteration, layer], &(of, gap, length)| {
            let load = 0.7 + 0.7 * noise([seed, rank, 100 * iteration + layer, 9]);
            let load = if of.starts_with("expert") { load } else { 1.0 };
            (of, gap, load * length)
        });
        let report = job.report();
        let text = said(&report, "text");
        assert_eq!(report["straggler_rank"], Value::Null, "{text}");
        assert!(text.contains("they wait for each other in turn"), "{text}");
        assert!(!text.contains("power can help"), "{text}");
    }
}

#[test]
fn a_slow_clock_is_told_among_loads_that_move() {
    for (seed, spread) in [(0, 0.7), (1, 0.5), (2, 0.9), (3, 0.7)] {
        let job = |slower: f64| {
            Job::eight(move |[rank, iteration, layer], &(of, gap, length)| {
                let chance = noise([seed, rank, 100 * iteration + layer, 9]);
                let load = match of.starts_with("expert") {
                    true => 1.0 - spread / 2.0 + spread * chance,
                    false => 1.0,
                };
                let slow = rank == 3 && of != "rms_norm";
                (of, gap, load * length * if slow { slower } else { 1.0 })
            })
        };
        let slow = job(1.05);
        let report = slow.report();
        let text = said(&report, "text");
        let told = "Slow clock: the others wait for rank 3;";
        assert!(text.starts_with(told), "{text}");
        let sure = said(&report, "how_sure");
        assert!((percent(&sure, " % longer") - 5.0).abs() < 0.2, "{sure}");
        let truth = 100.0 * (1.0 - job(1.0).wall / slow.wall);
        let cost = said(&report, "cost");
        let told = percent(&cost, " % less");
        assert!((told - truth).abs() < 0.3, "{cost} {truth}");
    }
}

#[test]
fn larger_work_that_moves_from_rank_to_rank_is_no_ranks_own() {
    for (iterations, step, more) in [
        (5, 1, 1.1),
        (6, 3, 1.2),
        (7, 5, 1.3),
        (8, 3, 1.15),
        (12, 1, 1.2),
    ] {
        let job = Job::of(iterations, (0..RANKS, RANKS), 20.0, |place| {
            let [rank, iteration, _] = place;
            layer(place, |&(of, gap, length)| {
                let has_more = rank == (step * iteration) % RANKS && of.ends_with("gemm");
                (of, gap, if has_more { more * length } else { length })
            })
        });
        let report = job.report();
        let text = said(&report, "text");
        assert!(text.starts_with("Healthy"), "{text}");
        assert_eq!(report["straggler_rank"], Value::Null);
    }
}

#[test]
fn gpus_that_differ_by_less_than_counts_as_slow_are_healthy() {
    let job = Job::eight(|[rank, ..], &(of, gap, length)| {
        (of, gap, length * (1.0 + 0.0055 * f64::from(rank) / 7.0))
    });
    let text = said(&job.report(), "text");
    assert_eq!(text, "Healthy: no rank holds the others back.");
}

#[test]
fn more_work_is_told_from_a_slow_gpu_only_where_traces_tell() {
    let slower = |memory: f64, compute: f64| {
        Job::eight(move |[rank, ..], &(of, gap, length)| {
            let by = if of == "rms_norm" { memory } else { compute };
            (of, gap, if rank == 2 { by * length } else { length })
        })
    };
    let report = slower(1.04, 1.04).report();
    assert_eq!(report["straggler_rank"], 2);
    let text = said(&report, "text");
    assert!(
        text.starts_with("More work or a slow GPU: the others wait for rank 2"),
        "{text}"
    );
    assert!(
        said(&report, "how_sure").contains("is not known"),
        "{report}"
    );
    for part in ["grids and shapes", "clocks", "ECC"] {
        assert!(said(&report, "next").contains(part), "{part}");
    }
    let report = slower(1.6, 1.0).report();
    let text = said(&report, "text");
    assert!(
        text.starts_with("More work or slow memory: the others wait for rank 2"),
        "{text}"
    );
    let sure = said(&report, "how_sure");
    assert!(
        sure.contains("the memory-bound kernels of rank 2 whose overlap is the same on every rank"),
        "{sure}"
    );
    assert!(
        sure.contains("take 60.0 % longer") || sure.contains("take 59."),
        "{sure}"
    );
}

#[test]
fn larger_grids_tell_more_work() {
    let grid = |job: &Job, blocks: [u32; 2]| {
        for rank in 0..RANKS {
            let path = job.folder.path().join(format!("rank{rank}.json"));
            let text = std::fs::read_to_string(&path).unwrap();
            let [before, after] = match rank {
                2 => blocks.map(|blocks| format!(r#""grid":[{blocks},2,1],"#)),
                _ => [100, 100].map(|blocks| format!(r#""grid":[{blocks},2,1],"#)),
            };
            let text = text.replace(&before, "");
            let places = r#""device":0,"stream":7}"#;
            let text = text.replace(places, &format!("{after}{places}"));
            std::fs::write(path, text).unwrap();
        }
        report(&[], &[job.folder.path()])
    };
    let all = Job::eight(|[rank, ..], &(of, gap, length)| {
        (of, gap, if rank == 2 { 1.2 * length } else { length })
    });
    let some = Job::eight(|[rank, ..], &(of, gap, length)| {
        let more = rank == 2 && of.starts_with("expert");
        (of, gap, if more { 1.2 * length } else { length })
    });
    for job in [all, some] {
        let report = grid(&job, [0, 120]);
        let text = said(&report, "text");
        assert!(
            text.starts_with("More work: the others wait for rank 2"),
            "{text}"
        );
        assert!(text.contains("in grids that are 20.0 % larger"), "{text}");
        assert!(
            said(&report, "next").starts_with("look at how work is divided"),
            "{report}"
        );
        assert!(!said(&report, "how_sure").contains("not known"), "{report}");
        // Where they are equal there is no more work.
        let text = said(&grid(&job, [120, 100]), "text");
        assert!(!text.starts_with("More work"), "{text}");
    }
}

#[test]
fn a_clock_that_is_slow_in_some_iterations_is_told_with_them() {
    for slow in [5..6_u32, 3..6] {
        let job = Job::eight(|[rank, iteration, _], &(of, gap, length)| {
            let slow = rank == 7 && slow.contains(&iteration) && of != "rms_norm";
            (of, gap, if slow { 1.1 * length } else { length })
        });
        let report = job.report();
        let text = said(&report, "text");
        let which = match slow.len() {
            1 => "iteration 5",
            _ => "iterations 3 to 5",
        };
        let told =
            format!("Slow clock: the others wait for rank 7, in {which} alone; power can help.");
        assert_eq!(text, told);
        // So much longer they take there.
        let sure = said(&report, "how_sure");
        assert!((percent(&sure, " % longer") - 10.0).abs() < 0.3, "{sure}");
        let cost = said(&report, "cost");
        let told = percent(&cost, " % less");
        assert!((told - job.truth()).abs() < 1.0, "{cost} {}", job.truth());
    }
}

#[test]
fn two_causes_are_both_told() {
    // On two ranks.
    let job = Job::eight(|[rank, _, layer], &(of, gap, length)| {
        let stalls = rank == 0 && layer == 3 && of == "qkv_gemm";
        let slow = rank == 5 && of != "rms_norm";
        (
            of,
            if stalls { 120.0 } else { gap },
            if slow { 1.05 * length } else { length },
        )
    });
    let text = said(&job.report(), "text");
    for part in ["rank 5", "ate host", "rank 0"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // On one.
    let job = Job::eight(|[rank, _, _], &(of, gap, length)| {
        let slow = rank == 5 && of != "rms_norm";
        (
            of,
            if rank == 5 { 3.0 } else { gap },
            if slow { 1.05 * length } else { length },
        )
    });
    let text = said(&job.report(), "text");
    let told = "Several causes: the others wait for rank 5, for a slow clock and a late host.";
    assert_eq!(text, told);
}

#[test]
fn what_takes_most_time_is_on_the_first_screen() {
    // All wait for their data.
    let job = Job::eight(|[.., layer], &(of, gap, length)| {
        let waits = layer == 0 && of == "qkv_gemm";
        (of, if waits { 600.0 } else { gap }, length)
    });
    let report = job.report();
    let text = said(&report, "text");
    assert!(text.starts_with("Healthy"), "{text}");
    assert!(text.contains("But long gaps on all GPUs at once"), "{text}");
    assert!(said(&report, "cost").contains("gaps"), "{report}");
    // A slow clock costs little beside a slow network.
    let job = Job::of(6, (0..RANKS, RANKS), 800.0, |place| {
        layer(place, |&(of, gap, length)| {
            let slow = place[0] == 2 && of != "rms_norm";
            (of, gap, if slow { 1.05 * length } else { length })
        })
    });
    let report = job.report();
    assert_eq!(report["straggler_rank"], 2);
    let cost = said(&report, "cost");
    assert!(
        cost.contains("Besides, communication with nothing beside it takes 7"),
        "{cost}"
    );
}

#[test]
fn missing_ranks_are_asked_for() {
    let job = Job::of(6, (3..5, RANKS), 20.0, |place| {
        layer(place, |&(of, gap, length)| {
            (of, gap, if place[0] == 2 { 1.1 * length } else { length })
        })
    });
    let report = job.report();
    let next = said(&report, "next");
    assert!(
        next.starts_with("give the traces of ranks 0, 1, 2, 5, 6 and 7"),
        "{next}"
    );
    let cost = said(&report, "cost");
    assert!(
        cost.starts_with("not known: the ranks given may wait for one that is missing"),
        "{cost}"
    );
    // So are they where one of those given is late, and what that costs holds for these alone.
    let job = Job::of(6, (3..5, RANKS), 20.0, |place| {
        layer(place, |&(of, gap, length)| {
            let slower = match place[0] {
                _ if of == "rms_norm" => 1.0,
                2 => 1.1,
                3 => 1.03,
                _ => 1.0,
            };
            (of, gap, slower * length)
        })
    });
    let report = job.report();
    assert_eq!(report["straggler_rank"], 3);
    let next = said(&report, "next");
    for part in [
        "give the traces of ranks 0, 1, 2, 5, 6 and 7",
        "look at clock",
    ] {
        assert!(next.contains(part), "{part} is not in {next}");
    }
    let cost = said(&report, "cost");
    assert!(
        cost.contains("if a rank that is missing is slower"),
        "{cost}"
    );
}

#[test]
fn work_of_one_rank_alone_is_extra_and_not_slow() {
    let job = Job::of(6, (0..RANKS, RANKS), 20.0, |place| {
        let mut parts = layer(place, |&part| part);
        if place[0] == 0 && place[2] == 5 {
            parts.push(("eval_metric", 0.0, 300.0));
        }
        parts
    });
    let text = said(&job.report(), "text");
    let told =
        "Extra work: the others wait for rank 0; only there eval_metric runs, for 1.80 ms in all.";
    assert_eq!(text, told);
}

#[test]
fn ranks_that_meet_in_kernels_of_unknown_names_are_not_said_to_exchange_nothing() {
    // Decoding: a meeting each 70 µs, to which ranks come a microsecond or two apart.
    let (ranks, rounds) = (4, 200);
    let folder = TempDir::new().unwrap();
    let mut times = vec![0.0_f64; ranks];
    let mut events = vec![Vec::new(); ranks];
    for round in 0..rounds {
        for (rank, (time, events)) in times.iter_mut().zip(&mut events).enumerate() {
            let slower = if rank == 2 { 1.04 } else { 1.0 };
            for (part, (name, length)) in [("gemm_qkv", 28.0), ("gemm_out", 20.0)]
                .into_iter()
                .enumerate()
            {
                let noise = 0.98 + 0.04 * noise([rank as u32, round, part as u32, 3]);
                events.push(super::kernel(name, *time, length * slower * noise));
                *time += length * slower * noise + 1.0;
            }
        }
        let last = times.iter().copied().fold(0.0, f64::max);
        for (rank, (time, events)) in times.iter_mut().zip(&mut events).enumerate() {
            let end = last + 10.0 + 1.2 * noise([rank as u32, round, 9, 4]);
            events.push(super::kernel("acme_hypercube", *time, end - *time));
            *time = end + 1.0;
        }
    }
    for (rank, events) in events.iter().enumerate() {
        let info = format!(r#""distributedInfo":{{"rank":{rank},"world_size":{ranks}}},"#);
        write(
            &folder,
            &format!("rank{rank}.json"),
            document(&info, events),
        );
    }
    let report = report(&[], &[folder.path()]);
    let verdict = report["verdict"].to_string();
    assert_ne!(report["verdict"]["kind"], "nobody-waits", "{verdict}");
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("acme_hypercube") && !notes.contains("gemm"),
        "{notes}"
    );
}
