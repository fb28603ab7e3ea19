//! The first screen of `litctl analyze`: that each sentence is true, on traces of our own making.
use std::fs;

use crate::run::litctl;
use litd_traces::formats;
use serde_json::Value;
use tempfile::TempDir;

/// One event of a GPU: category, name, stream, start, length (in microseconds), and when the host launched
/// it, where that is recorded.
type Event = (&'static str, &'static str, u32, i64, i64, Option<i64>);

/// A folder with one trace per rank of a job of so many ranks.
struct Job(TempDir);

impl Job {
    fn of(world: Option<u32>, ranks: &[(u32, Vec<Event>)]) -> Self {
        let folder = TempDir::new().unwrap();
        // Where nothing tells how many ranks there are, collectives are not to tell it either.
        let members = world.map_or(ranks.len(), |_| 8);
        for (rank, events) in ranks {
            let mut text = Vec::new();
            for (correlation, (category, name, stream, start, length, launch)) in (1..).zip(events)
            {
                text.push(format!(
                    r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":{stream},"ts":{start},"dur":{length},"args":{{"device":0,"stream":{stream},"correlation":{correlation},"Collective name":"allreduce","In msg nelems":1000000,"Out msg nelems":1000000,"dtype":"Float","Group size":{members}}}}}"#
                ));
                text.extend(launch.map(|at| format!(
                    r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{at},"dur":1,"args":{{"correlation":{correlation}}}}}"#
                )));
            }
            let world = world.map_or(String::new(), |world| format!(r#","world_size":{world}"#));
            let text = format!(
                r#"{{"distributedInfo":{{"rank":{rank}{world}}},"traceEvents":[{}]}}"#,
                text.join(",")
            );
            fs::write(folder.path().join(format!("rank{rank}.json")), text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// The text, in one line.
    fn text(&self, more: &[&str]) -> String {
        let traces = self.path("");
        in_a_line(&litctl(&[&["analyze", &traces], more].concat()))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&litctl(&["--json", "analyze", &self.path("")])).unwrap()
    }

    /// The HTML report, in one line.
    fn page(&self) -> String {
        let html = TempDir::new().unwrap();
        let html = html.path().join("r.html");
        litctl(&["analyze", &self.path(""), "--html", html.to_str().unwrap()]);
        in_a_line(&fs::read_to_string(html).unwrap())
    }
}

fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn kernel(name: &'static str, start: i64, length: i64) -> Event {
    ("kernel", name, 7, start, length, None)
}

/// Ranks that compute a millisecond ten times, each rank's kernels longer by its share, and then wait for
/// each other.
fn slow(world: Option<u32>, by: &[i64]) -> Job {
    let most = by.iter().max().unwrap();
    let one = |rank: usize| {
        let mut events = Vec::new();
        let mut at = 0;
        for step in 0..20 {
            let begin = at;
            for part in 0..10 {
                // No two ranks are the same to the microsecond.
                let noise = (step * 7 + part * 3 + rank as i64 * 5) % 3;
                let length = 1_000 + by[rank] + noise;
                events.push(kernel("gemm", at, length));
                at += length;
            }
            let end = begin + 10 * (1_000 + most + 2) + 500;
            events.push(("kernel", "ncclDevKernel_AllReduce", 20, at, end - at, None));
            at = end;
        }
        (u32::try_from(rank).unwrap(), events)
    };
    Job::of(world, &Vec::from_iter((0..by.len()).map(one)))
}

#[test]
fn most_of_the_time_is_said_of_more_than_half_only() {
    let told = |computes: i64, copies: i64| {
        let events = [
            kernel("gemm", 0, computes),
            ("gpu_memcpy", "Memcpy DtoH", 7, computes, copies, None),
            kernel("gemm", 999, 1),
        ];
        let again = |step: i64| {
            let at = move |event: &Event| {
                let (category, name, stream, start, length, launch) = *event;
                (category, name, stream, 1_000 * step + start, length, launch)
            };
            Vec::from_iter(events.iter().map(at))
        };
        let events = Vec::from_iter((0..10).flat_map(again));
        Job::of(None, &[(0, events)]).text(&[])
    };
    let text = told(700, 0);
    assert!(
        text.contains("Most of the time is computation: 70.1 %"),
        "{text}"
    );
    let text = told(172, 276);
    assert!(!text.contains("Most of the time is computation"), "{text}");
    assert!(!text.contains("Nothing takes most"), "{text}");
    assert!(
        text.contains("gaps between kernels, for reasons that these traces don't tell, take 55.1 % of the time recorded"),
        "{text}"
    );
    let text = told(350, 276);
    assert!(text.contains("Nothing takes most of the time"), "{text}");
    assert!(
        text.contains("take 37.3 %, and computation takes 35.1 %"),
        "{text}"
    );
}

#[test]
fn equal_stragglers_are_all_named_in_text_json_and_pictures() {
    let job = slow(None, &[30, 0, 0, 30, 0, 0]);
    let text = job.text(&[]);
    for part in [
        "Slow clock: the others wait for ranks 0 and 3; power can help.",
        "The stragglers are ranks 0 and 3",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(text.matches("> ").count(), 2, "{text}");
    let report = job.json();
    assert_eq!(report["straggler_rank"], Value::Null);
    assert_eq!(report["diagnosis"]["rank"], Value::Null);
    assert_eq!(report["diagnosis"]["stragglers"], serde_json::json!([0, 3]));
    assert_eq!(report["verdict"]["kind"], "slow-clock");
    let page = job.page();
    for name in [
        "<strong>0, straggler</strong>",
        "<strong>3, straggler</strong>",
    ] {
        assert!(page.contains(name), "{name}");
    }
    assert_eq!(page.matches(", straggler</strong>").count(), 2);
    // One of them alone is named as before.
    let report = slow(None, &[30, 0, 0, 0, 0, 0]).json();
    assert_eq!(report["straggler_rank"], 0);
    assert_eq!(report["diagnosis"]["rank"], 0);
    assert_eq!(report["diagnosis"]["stragglers"], serde_json::json!([0]));
}

#[test]
fn one_slowness_has_one_figure() {
    let job = slow(None, &[30, 0, 0, 0]);
    let text = job.text(&[]);
    let figure = "3.0 % longer than th";
    assert_eq!(text.matches(figure).count(), 2, "{text}");
    assert!(
        text.contains("the kernels of rank 0 whose overlap is the same on every rank take 3.0 % longer than those of the ranks far ahead"),
        "{text}"
    );
    assert!(
        text.contains(
            "its kernels take 3.0 % longer than those of the ranks far ahead of it (only kernels"
        ),
        "{text}"
    );
}

#[test]
fn nobody_gains_more_than_others_waited() {
    let job = slow(None, &[30, 0, 0, 0]);
    let report = job.json();
    let gain = report["gain"]["iteration"].as_f64().unwrap();
    let waits = report["ranks"].as_array().unwrap()[1..].iter();
    let waits = waits.map(|rank| rank["wait_fraction"].as_f64().unwrap());
    let least = waits.fold(1.0, f64::min);
    assert!(gain > 0.02 && gain <= least + 1e-9, "{gain} {least}");
    let told = format!("an iteration would take {:.1} % less", 100.0 * gain);
    assert!(job.text(&[]).contains(&told), "{told}");
}

#[test]
fn the_share_that_matches_is_told_of_all_ranks() {
    let one = |rank: u32| {
        let mut events = Vec::from_iter((0..90).map(|k| kernel("gemm", 10 * k, 5)));
        let more = if rank == 1 { 10 } else { 0 };
        events.extend((0..more).map(|k| kernel("only_here", 900 + 10 * k, 5)));
        (rank, events)
    };
    let text = Job::of(None, &[one(0), one(1)]).text(&[]);
    assert!(
        text.contains("2 ranks, 90 kernels matched (90.0 % of all of rank 1, 100.0 % of rank 0)"),
        "{text}"
    );
    assert!(
        text.contains("90.0 % to 100.0 % of a rank's kernels match"),
        "{text}"
    );
}

#[test]
fn ranks_are_asked_for_where_there_are_more() {
    let kernels = || Vec::from_iter((0..30).map(|k| kernel("gemm", 10 * k, 10)));
    let one = |world| Job::of(world, &[(0, kernels())]);
    let text = one(Some(1)).text(&[]);
    assert!(text.contains("the job has one rank"), "{text}");
    assert!(!text.contains("other ranks"), "{text}");
    let text = one(Some(8)).text(&[]);
    assert!(
        text.contains("7 of the job's 8 ranks are missing (1, 2, 3, 4, 5, 6, 7): who waits for whom can't be told without them"),
        "{text}"
    );
    assert!(
        text.contains("Give the traces of the other ranks as well"),
        "{text}"
    );
    assert!(one(None).text(&[]).contains("If the job has more ranks"));
}

#[test]
fn missing_ranks_make_a_verdict_less_sure() {
    let all = slow(Some(4), &[30, 0, 0, 0]).json();
    let some = slow(Some(8), &[30, 0, 0, 0]).json();
    let sure = |report: &Value| report["verdict"]["how_sure"].as_str().unwrap().to_owned();
    assert!(!sure(&all).contains("of the ranks given"), "{}", sure(&all));
    assert!(
        sure(&some).starts_with("sure only of the ranks given: "),
        "{}",
        sure(&some)
    );
    let text = some["verdict"]["text"].as_str().unwrap();
    assert!(text.contains("of the 4 ranks given, of 8"), "{text}");
    assert!(!all["verdict"]["text"].as_str().unwrap().contains("given"));
    let doubts = some["verdict"]["doubts"].to_string();
    assert!(
        doubts.contains("4 of the job's 8 ranks are missing"),
        "{doubts}"
    );
}

#[test]
fn one_ranks_bandwidth_is_called_no_bound() {
    let text = Job::of(
        Some(8),
        &[(
            0,
            vec![
                kernel("gemm", 0, 10),
                kernel("ncclDevKernel_AllReduce", 10, 50),
            ],
        )],
    )
    .text(&[]);
    assert!(
        text.contains("this is no bound in either direction"),
        "{text}"
    );
    let text = slow(None, &[30, 0]).text(&[]);
    assert!(
        text.contains("by the shortest kernel of each collective on any rank"),
        "{text}"
    );
}

#[test]
fn launches_that_are_recorded_in_part_are_told() {
    let events = |known: i64| {
        let kernels = (0..100).map(|k| {
            let launch = (k < known).then_some(10 * k - 3);
            ("kernel", "gemm", 7, 10 * k, 5, launch)
        });
        Vec::from_iter(kernels)
    };
    let text = |known| Job::of(None, &[(0, events(known))]).text(&[]);
    assert!(
        text(60).contains("launches are recorded in part only (60.0 % of the kernels of rank 0)"),
        "{}",
        text(60)
    );
    assert!(!text(99).contains("launches are"));
    assert!(text(0).contains("launches are not recorded"));
}

/// Two ranks whose GPUs idle so long before each kernel, the second one so much longer; and it copies for so
/// long before each collective. Kernels are launched so long before they start.
fn late_hosts(gap: i64, later: i64, copy: i64, ahead: i64) -> Job {
    let one = |rank: u32| {
        let mut events = Vec::new();
        let step = 20 * (10 + gap + later) + copy + 100;
        for k in 0..10 {
            let mut at = k * step;
            for _ in 0..20 {
                at += gap + i64::from(rank) * later;
                events.push(("kernel", "gemm", 7, at, 10, Some(at - ahead)));
                at += 10;
            }
            if rank == 1 && copy > 0 {
                events.push(("gpu_memcpy", "Memcpy HtoD", 7, at, copy, Some(at - ahead)));
                at += copy;
            }
            let end = (k + 1) * step - 10;
            events.push((
                "kernel",
                "ncclDevKernel_AllReduce",
                20,
                at,
                end - at,
                Some(at - ahead),
            ));
        }
        (rank, events)
    };
    Job::of(None, &[one(0), one(1)])
}

#[test]
fn advice_on_hosts_follows_the_evidence() {
    let own = late_hosts(1, 3, 0, 1).text(&[]);
    for part in [
        "Late host: it launches kernels too late, and rank 0 waits for rank 1",
        "look at the host of rank 1",
        "percentage points more than on the ranks far ahead",
    ] {
        assert!(own.contains(part), "{part} is not in {own}");
    }
    // Both GPUs idle alike, and another thing makes one late.
    let all = late_hosts(10, 0, 50, 1).text(&[]);
    for part in [
        "Late hosts: no host launches kernels fast enough for its GPU",
        "none of the hosts keeps up",
        "look at all hosts and not at that of rank 1 alone",
    ] {
        assert!(all.contains(part), "{part} is not in {all}");
    }
    // What was launched long before was not launched late.
    let launched = late_hosts(1, 3, 0, 500).text(&[]);
    for part in [
        "were launched in time and start late all the same",
        "so its host may not be why",
    ] {
        assert!(launched.contains(part), "{part} is not in {launched}");
    }
}

#[test]
fn models_are_left_out_where_clocks_are_not_the_cause() {
    let job = late_hosts(1, 3, 0, 1);
    let text = job.text(&["--models"]);
    assert!(
        text.contains("Left out: the models suppose that clocks make ranks differ"),
        "{text}"
    );
    assert!(!text.contains("gpu-realloc"), "{text}");
    assert!(!job.page().contains("gpu-realloc"));
    let job = slow(None, &[30, 0, 0, 0]);
    assert!(job.text(&["--models"]).contains("gpu-realloc"));
    assert!(job.page().contains("gpu-realloc"));
}

#[test]
fn columns_of_waits_say_what_they_hold() {
    let page = slow(None, &[30, 0]).page();
    assert!(!page.contains("all waits"), "{page}");
    assert!(
        page.contains("<th>waits with nothing to compute (any)</th><th>waits in own group</th>")
    );
}

#[test]
fn the_perfetto_trace_keeps_the_doubts() {
    let job = slow(Some(8), &[30, 0]);
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("r.pftrace");
    litctl(&[
        "analyze",
        &job.path(""),
        "--perfetto",
        trace.to_str().unwrap(),
    ]);
    let bytes = fs::read(&trace).unwrap();
    let doubt = b"6 of the job's 8 ranks are missing";
    assert!(bytes.windows(doubt.len()).any(|window| window == doubt));
    // It is read back as before.
    let read = formats::read_file(&trace, None).unwrap();
    let kernels = read.timelines.iter().map(|timeline| timeline.kernels.len());
    assert_eq!(Vec::from_iter(kernels), [220, 220]);
}

#[test]
fn a_summary_of_collectives_gets_the_four_answers() {
    let folder = TempDir::new().unwrap();
    let summary = folder.path().join("summary.csv");
    let text = "rank,Collective name,dur_sum,operation_count\n\
        0,allreduce,9000,2\n1,allreduce,1000,2\n2,allreduce,5000,2\n";
    fs::write(&summary, text).unwrap();
    let path = summary.to_str().unwrap();
    let text = in_a_line(&litctl(&["analyze", path]));
    for part in [
        "verdict The others wait for rank 1",
        "how sure fairly sure; the two that spend least",
        "cost the others wait 2.000 to 4.000 ms in each collective",
        "next look at rank 1: record traces",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let report: Value = serde_json::from_str(&litctl(&["--json", "analyze", path])).unwrap();
    assert_eq!(report["verdict"]["kind"], "collectives");
    assert_eq!(report["straggler_rank"], 1);
}

#[test]
fn names_that_begin_alike_are_told_apart() {
    let names = [
        "Cijk_Alik_Bljk_F8HS_BH_BiasSH_MT32x16x1024_MI16x16x1_SN",
        "Cijk_Alik_Bljk_F8HS_BH_BiasSH_MT64x16x512_MI16x16x1_SN",
    ];
    let events = vec![kernel(names[0], 0, 10), kernel(names[1], 10, 9)];
    let text = Job::of(None, &[(0, events)]).text(&[]);
    assert!(
        text.contains("MT32x16x1024") && text.contains("MT64x16x512"),
        "{text}"
    );
}

#[test]
fn exit_statuses_are_told() {
    for help in [&["--help"][..], &["analyze", "--help"]] {
        let help = litctl(help);
        assert!(help.contains("Exit status"), "{help}");
    }
}

/// Three ranks that meet twenty times. Each begins to be recorded so many microseconds after the first, and is
/// so late for each collective but the first.
fn begun(begins: [i64; 3], late: [i64; 3]) -> Job {
    let one = |rank: usize| {
        let mut events = Vec::new();
        for k in 0..20 {
            let begin = k * 1_000 + if k == 0 { begins[rank] } else { 0 };
            let start = begin + 200 + if k == 0 { 0 } else { late[rank] };
            events.push(kernel("gemm", begin, 100));
            let end = (k + 1) * 1_000 - 10;
            events.push((
                "kernel",
                "ncclDevKernel_AllReduce",
                20,
                start,
                end - start,
                None,
            ));
        }
        (u32::try_from(rank).unwrap(), events)
    };
    Job::of(None, &Vec::from_iter((0..3).map(one)))
}

#[test]
fn a_verdict_that_one_collective_may_take_back_is_likely_and_no_more() {
    // Rank 2's recording began last, rank 1 comes late ever after.
    let job = begun([0, 0, 700], [0, 20, 0]);
    let report = job.json();
    assert_eq!(report["straggler_rank"], 2);
    let verdict = &report["verdict"];
    let says = |key: &str| verdict[key].as_str().unwrap().to_owned();
    let told = "That is likely, no more: without the first collectives, whose waits come from where recordings started, it would be rank 1.";
    assert!(says("text").contains(told), "{}", says("text"));
    let sure = says("how_sure");
    assert!(
        sure.contains("likely, no more") && !sure.contains("is sure"),
        "{sure}"
    );
    let cost = "1.08 ms per iteration). Without the first collectives, whose waits come from where recordings started, 0 to 380 µs per iteration.";
    assert!(says("cost").contains(cost), "{}", says("cost"));
    // Where they agree nothing is to be taken back.
    let verdict = begun([0, 20, 0], [0, 20, 0]).json()["verdict"].to_string();
    for not in ["That is likely", "ithout the first"] {
        assert!(!verdict.contains(not), "{not} is in {verdict}");
    }
}

#[test]
fn doubts_are_marked_as_such() {
    let text = slow(Some(8), &[30, 0, 0, 0]).text(&[]);
    assert_eq!(text.matches("Doubts: ").count(), 1, "{text}");
    assert!(text.contains("Doubts: 4 of the job's 8 ranks"), "{text}");
}

#[test]
fn gaps_whose_launches_are_known_are_no_riddle() {
    // Launched all at once, as a graph is; one in five launches is not recorded.
    let events = (0..100).map(|k| {
        let launch = (k % 5 > 0).then_some(-10);
        ("kernel", "gemm", 7, 10 * k, 3, launch)
    });
    let text = Job::of(None, &[(0, Vec::from_iter(events))]).text(&[]);
    let (first, rest) = text.split_once("rank kernels").unwrap();
    assert!(
        first.contains("gaps between kernels that had been launched in time take 56.4 %"),
        "{first}"
    );
    assert!(first.contains("the steps of one graph"), "{first}");
    for not in ["don't tell", "record the host's calls"] {
        assert!(!first.contains(not), "{not} is in {first}");
    }
    assert!(
        rest.contains("13.4 % of the window may be late launches"),
        "{rest}"
    );
}

#[test]
fn the_cost_is_what_the_named_rank_alone_brings_and_then_what_all_do() {
    let job = slow(None, &[30, 15, 0, 0, 0]);
    let report = job.json();
    let gain = |key: &str| report["gain"][key].as_f64().unwrap();
    let (named, all) = (gain("named"), gain("group"));
    // Of 3 % half is left to rank 1, which is slow as well.
    assert!((named - 0.0140).abs() < 1e-3, "{named}");
    assert!((all - 0.0267).abs() < 1e-3, "{all}");
    assert_eq!(gain("named"), gain("named_iteration"));
    let cost = report["verdict"]["cost"].as_str().unwrap();
    let told = format!(
        "with rank 0 as fast as the median rank an iteration would take {:.1} % less (",
        100.0 * named
    );
    assert!(cost.starts_with(&told), "{told} is not how {cost} begins");
    let told = format!(
        "If every rank were at least as fast as the median rank: {:.1} % less (",
        100.0 * all
    );
    assert!(cost.contains(&told), "{cost}");
    // What is waited would be another figure beside it.
    assert!(!cost.contains("wait in collectives"), "{cost}");
    // What the models say beside it is told apart.
    let text = job.text(&["--models"]);
    assert!(
        text.contains("\"cost\" above goes by what was waited"),
        "{text}"
    );
    assert!(!text.contains("--models tells what that gains"), "{text}");
    // Where it is the only slow one there is one figure.
    let cost = slow(None, &[30, 0, 0, 0, 0]).json()["verdict"]["cost"].to_string();
    assert!(!cost.contains("If every rank were"), "{cost}");
    assert_eq!(cost.matches("% less").count(), 1, "{cost}");
}

#[test]
fn one_rank_is_told_what_of_its_own_time_is_lost() {
    let events = |class: &'static str, name: &'static str, most: i64| {
        let events = (0..40).flat_map(|k| {
            let other = (class, name, 7, 100 * k + 60, most, Some(0));
            [("kernel", "gemm", 7, 100 * k, 50, Some(100 * k - 1)), other]
        });
        Vec::from_iter(events)
    };
    let one = |world, events| Job::of(world, &[(0, events)]);
    let job = one(None, events("gpu_memcpy", "Memcpy DtoH", 20));
    let cost = job.json()["verdict"]["cost"].as_str().unwrap().to_owned();
    assert_eq!(
        cost,
        "of this rank's time 1.18 ms (29.6 %) idle, 800 µs (20.1 %) in copies with nothing beside them. How long other ranks wait is not in this."
    );
    // What comes second is told as well, and what to do about it.
    let text = job.text(&[]);
    assert!(
        text.contains("Most of the time is computation: 50.3 % of the time recorded; copies with"),
        "{text}"
    );
    assert!(text.contains("; also look at what is copied"), "{text}");
    // Communication may be waiting.
    let job = |world| one(world, events("kernel", "ncclDevKernel_AllReduce", 500));
    let next = |world| {
        job(world).json()["verdict"]["next"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let advice = "Then look at the collectives";
    for (world, first) in [
        (
            Some(8),
            "give the traces of the other ranks as well, before anything else",
        ),
        (
            None,
            "if the job has more ranks, give their traces as well, before anything else",
        ),
    ] {
        assert!(next(world).starts_with(first), "{}", next(world));
        assert!(next(world).contains(advice));
    }
    assert!(next(Some(1)).starts_with("look at the collectives"));
}

#[test]
fn too_few_kernels_allow_no_firm_verdict() {
    let job = Job::of(None, &[(0, vec![kernel("gemm", 0, 10)])]);
    let verdict = job.json()["verdict"].clone();
    assert_eq!(
        verdict["text"],
        "Too little to say: only 1 kernel was recorded (10.0 µs)."
    );
    assert!(
        verdict["how_sure"]
            .as_str()
            .unwrap()
            .starts_with("not at all")
    );
    assert_eq!(verdict["kind"], "one-rank");
    // Nor do they between ranks.
    let one = |rank: u32| {
        let events = (0..5).flat_map(|k| {
            let late = 20 * i64::from(rank);
            let begin = 1_000 * k + 200 + late;
            let reduce = (
                "kernel",
                "ncclDevKernel_AllReduce",
                20,
                begin,
                600 - late,
                None,
            );
            [kernel("gemm", 1_000 * k + late, 100), reduce]
        });
        (rank, Vec::from_iter(events))
    };
    let verdict = Job::of(None, &[one(0), one(1), one(2)]).json()["verdict"].clone();
    let sure = verdict["how_sure"].as_str().unwrap();
    assert!(
        sure.contains("likely, no more") && !sure.contains("is sure"),
        "{sure}"
    );
    assert!(
        verdict["doubts"][0]
            .as_str()
            .unwrap()
            .starts_with("only 5 kernels of each rank")
    );
}

#[test]
fn programs_are_told_where_models_mean_nothing() {
    let applies = |job: &Job| job.json()["models"]["applies"].clone();
    assert_eq!(applies(&slow(None, &[30, 0, 0, 0])), true);
    assert_eq!(applies(&late_hosts(1, 3, 0, 1)), false);
}

#[test]
fn a_page_has_the_verdict_as_its_title_and_the_kinds_of_idleness_apart() {
    let page = slow(None, &[30, 0, 0, 0]).page();
    assert!(
        page.contains("<title>Slow clock: the others wait for rank 0"),
        "{page}"
    );
    assert!(page.contains("<h1>Who waits for whom, and why?</h1>"));
    let events = (0..40).map(|k| ("kernel", "gemm", 7, 100 * k, 50, Some(100 * k - 1)));
    let job = Job::of(None, &[(0, Vec::from_iter(events))]);
    let page = job.page();
    assert!(
        page.contains("<h1>Where does this GPU&#39;s time go?</h1>"),
        "{page}"
    );
    // The verdict's own figure is in the table.
    let text = job.text(&[]);
    let launches = "launches take 49.4 %";
    assert!(text.contains(launches) && page.contains(launches), "{text}");
    assert!(
        page.contains("<td>49.4</td><td>0.0</td><td>0.0</td>"),
        "{page}"
    );
}
