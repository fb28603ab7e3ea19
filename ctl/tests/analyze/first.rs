//! What people read first: the verdict, how sure it is, what it costs and what to do next, the same in
//! text, HTML and JSON.

use serde_json::Value;
use tempfile::TempDir;

use super::run::litlab;
use super::{analyze, document, exchanging, kernel, rank, report, write};

/// The text of an analysis.
fn text(folder: &TempDir) -> String {
    String::from_utf8(analyze(&[], &[folder.path()]).stdout).unwrap()
}

/// In one line.
fn joined(text: &str) -> String {
    Vec::from_iter(text.split_whitespace()).join(" ")
}

/// The page that is written of a folder.
fn page(folder: &TempDir) -> String {
    let elsewhere = TempDir::new().unwrap();
    let page = elsewhere.path().join("page.html");
    let output = analyze(&["--html", page.to_str().unwrap()], &[folder.path()]);
    assert!(output.status.success(), "{output:?}");
    std::fs::read_to_string(&page).unwrap()
}

fn doubts(folder: &TempDir) -> Vec<String> {
    let report = report(&[], &[folder.path()]);
    let doubts = report["verdict"]["doubts"].as_array().unwrap().iter();
    Vec::from_iter(doubts.map(|doubt| doubt.as_str().unwrap().to_owned()))
}

#[test]
fn the_first_screen_is_this_one() {
    let folder = TempDir::new().unwrap();
    write(&folder, "a.json", exchanging(0, 0.0, 50.0));
    write(&folder, "b.json", exchanging(1, 5.0, 55.0));
    let text = text(&folder);
    let (first, _) = text.split_once("where the time goes").unwrap();
    assert_eq!(first, include_str!("first.txt"), "{first}");
}

#[test]
fn text_pages_and_json_say_the_same() {
    let folder = TempDir::new().unwrap();
    write(&folder, "a.json", exchanging(0, 0.0, 50.0));
    write(&folder, "b.json", exchanging(1, 5.0, 55.0));
    let report = report(&[], &[folder.path()]);
    let verdict = &report["verdict"];
    assert_eq!(verdict["kind"], "slow-clock");
    let shown = [joined(&text(&folder)), joined(&page(&folder))];
    let mut said = Vec::from_iter(["text", "how_sure", "cost", "next"].map(|key| &verdict[key]));
    said.extend(verdict["doubts"].as_array().unwrap());
    for said in said {
        let said = said.as_str().unwrap();
        // A doubt begins a sentence there.
        let said = said.get(1..).unwrap().replace('\'', "&#39;");
        for shown in &shown {
            let shown = shown.replace('\'', "&#39;");
            assert!(shown.contains(&said), "{said} is not in {shown}");
        }
    }
}

#[test]
fn ranks_that_exchange_nothing_have_no_straggler() {
    let folder = TempDir::new().unwrap();
    write(&folder, "a.json", rank(0, 0.0, 50.0));
    write(&folder, "b.json", rank(1, 5.0, 50.0));
    let report = report(&[], &[folder.path()]);
    assert_eq!(report["straggler_rank"], Value::Null);
    assert_eq!(report["diagnosis"]["rank"], Value::Null);
    assert_eq!(report["diagnosis"]["power_helps"], false);
    assert_eq!(report["verdict"]["kind"], "nobody-waits");
    let text = text(&folder);
    for shown in [joined(&text), joined(&page(&folder))] {
        assert!(shown.contains("Nobody is seen to wait"), "{shown}");
        assert!(
            shown.contains("rank 0 starts matching kernels 0.52 % of an iteration before rank 1"),
            "{shown}"
        );
        assert!(!shown.contains("others wait for"), "{shown}");
    }
    assert!(
        text.contains("No straggler: the ranks exchange nothing"),
        "{text}"
    );
    assert!(!text.lines().any(|line| line.starts_with('>')), "{text}");
}

/// A rank of two that runs so many iterations, and is late in some.
fn iterations(number: u32, late: &[bool]) -> String {
    iterations_late_by(30.0, number, late)
}

/// The same, late by so many microseconds.
fn iterations_late_by(by: f64, number: u32, late: &[bool]) -> String {
    let mut events = Vec::new();
    for (step, &late) in (0..).zip(late) {
        let begin = 1_210.0 * f64::from(step);
        let delay = if late { by } else { 0.0 };
        events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{step}","pid":9,"tid":9,"ts":{begin},"dur":1209}}"#
        ));
        let kernels = (0..10).map(|k| kernel("gemm", begin + 100.0 * f64::from(k) + delay, 99.0));
        events.extend(kernels);
        events.push(kernel(
            "ncclDevKernel_AllReduce",
            begin + 1_000.0 + delay,
            200.0 - delay,
        ));
    }
    let info = format!(r#""distributedInfo":{{"rank":{number},"world_size":2}},"#);
    document(&info, &events)
}

#[test]
fn a_straggler_that_changes_from_iteration_to_iteration_is_told() {
    let folder = TempDir::new().unwrap();
    let others = |late: &[bool]| Vec::from_iter(late.iter().map(|late| !late));
    let late = [true, true, false, true, true, true];
    write(&folder, "a.json", iterations(0, &others(&late)));
    write(&folder, "b.json", iterations(1, &late));
    let told = "which rank starts kernels last changes from iteration to iteration: rank 1 in 5, rank 0 in 1 of 6";
    assert_eq!(doubts(&folder), [told]);
    assert!(joined(&text(&folder)).contains(&told[1..]));
    // Where it is the same rank in all of them, nothing is to be said.
    write(&folder, "a.json", iterations(0, &[false; 6]));
    write(&folder, "b.json", iterations(1, &[true; 6]));
    assert_eq!(doubts(&folder), [""; 0]);
}

#[test]
fn ranks_that_wait_for_each_other_in_turn_lose_time_though_none_is_to_blame() {
    let folder = TempDir::new().unwrap();
    let turns = [true, false, true, false, true, false];
    write(&folder, "a.json", iterations_late_by(100.0, 0, &turns));
    let others = turns.map(|late| !late);
    write(&folder, "b.json", iterations_late_by(100.0, 1, &others));
    let report = report(&[], &[folder.path()]);
    let said = |key: &str| report["verdict"][key].as_str().unwrap().to_owned();
    assert_eq!(said("kind"), "healthy");
    let lost = "4.14 to 4.20 % of the time recorded with nothing to compute";
    let told = format!("they wait for each other in turn, for {lost}.");
    assert!(said("text").ends_with(&told), "{}", said("text"));
    let told = format!("each rank waits for the others for {lost}");
    assert!(said("cost").starts_with(&told), "{}", said("cost"));
    let told = "look at what differs from one collective to the next";
    assert!(said("next").contains(told), "{}", said("next"));
}

#[test]
fn stages_that_wait_for_each_other_have_something_to_balance() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let traces = folder.path().to_str().unwrap();
    let job = ["simulate", "--parallel", "pp2tp4", "--write-kineto", traces];
    litlab(&[&job[..], &["--speeds", "1,1,1,1,1,1,1,1"]].concat());
    let report = report(&[], &[folder.path()]);
    let said = |key: &str| report["verdict"][key].as_str().unwrap().to_owned();
    assert_eq!(said("kind"), "healthy");
    assert!(
        said("cost").starts_with("stages wait up to"),
        "{}",
        said("cost")
    );
    let told = "nothing to balance within a stage. Between stages compare";
    assert!(said("next").starts_with(told), "{}", said("next"));
}

#[test]
fn one_iteration_and_unknown_clocks_make_less_sure() {
    let folder = TempDir::new().unwrap();
    write(&folder, "a.json", iterations(0, &[false]));
    write(&folder, "b.json", iterations(1, &[true]));
    let [short, clocks, few] = &doubts(&folder)[..] else {
        panic!("{:?}", doubts(&folder));
    };
    assert!(short.starts_with("only 10 kernels of each rank"), "{short}");
    assert!(
        clocks.contains("time stamps are off each other is not known")
            && clocks.ends_with("only 1")
    );
    assert!(
        few.starts_with("only one iteration is compared (number 0)"),
        "{few}"
    );
    // Traces that mark none.
    write(&folder, "a.json", exchanging(0, 0.0, 50.0));
    write(&folder, "b.json", exchanging(1, 5.0, 50.0));
    let few = doubts(&folder).pop().unwrap();
    assert!(few.starts_with("the traces mark no iterations"), "{few}");
    // One rank is compared with nobody.
    let one = report(&[], &[&folder.path().join("a.json")]);
    assert_eq!(one["verdict"]["kind"], "one-rank");
    let missing = "1 of the job's 2 ranks is missing (1)";
    let doubts = one["verdict"]["doubts"].as_array().unwrap();
    assert!(matches!(&doubts[..], [one] if one.as_str().unwrap().starts_with(missing)));
}

#[test]
fn a_page_has_each_groups_ranks_leads_and_paces() {
    if !litd_rig::is_built("litlab") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let speeds = ["--speeds", "1,1,0.97,1,1,1,1,1", "--seed", "3"];
    let traces = folder.path().to_str().unwrap();
    let job = ["simulate", "--parallel", "pp2tp4", "--write-kineto", traces];
    litlab(&[&job[..], &speeds[..]].concat());
    let page = page(&folder);
    assert!(
        page.contains("<li>0: stage 0, ranks 0 1 2 3, TP: Slow clock"),
        "{page}"
    );
    assert!(
        page.contains("<li>1: stage 1, ranks 4 5 6 7, TP: Healthy"),
        "{page}"
    );
    let text = text(&folder).replace('>', " ");
    let (_, rows) = text.split_once("rank kernels").unwrap();
    let (_, table) = page.split_once("<h2>Ranks</h2>").unwrap();
    for (rank, name) in [(2, "<strong>2, straggler</strong>"), (5, "5"), (6, "6")] {
        let start = format!("{rank} ");
        let row = rows
            .lines()
            .find(|row| row.trim_start().starts_with(&start));
        let row = row.unwrap();
        let columns = Vec::from_iter(row.split_whitespace());
        // The summed lead is a number and its unit.
        let (pace, lead) = (columns.last().unwrap(), columns[6..8].join(" "));
        let group = rank / 4;
        let cells = format!("<tr><td>{name}</td><td>{group}</td><td>{pace}</td><td>{lead}</td>");
        assert!(table.contains(&cells), "{cells} is not in {table}");
    }
}

#[test]
fn a_page_marks_nobody_where_recordings_mean_nothing() {
    let folder = TempDir::new().unwrap();
    // Recorded one after the other, for the most part.
    write(&folder, "a.json", exchanging(0, 0.0, 50.0));
    write(&folder, "b.json", rank(1, 700.0, 50.0));
    let report = report(&[], &[folder.path()]);
    assert_eq!(report["verdict"]["kind"], "sampling-artefact");
    assert!(!page(&folder).contains("straggler</strong>"));
    assert!(!text(&folder).lines().any(|line| line.starts_with('>')));
}

/// A rank of three in these iterations, which nothing marks; it exchanges something at their ends, when the slowest is
/// there.
fn unmarked(number: u32, iterations: std::ops::Range<u32>, pace: f64) -> String {
    let mut events = Vec::new();
    for step in iterations.clone() {
        let begin = 2_000.0 * f64::from(step);
        let each = |k: u32| {
            kernel(
                &format!("gemm{k}"),
                begin + 100.0 * f64::from(k) * pace,
                90.0 * pace,
            )
        };
        events.extend((0..10).map(each));
        let comes = begin + 1_000.0 * pace;
        events.push(kernel(
            "ncclDevKernel_AllReduce",
            comes,
            begin + 1_200.0 - comes,
        ));
    }
    // One began before the recording of this rank did.
    if iterations.start > 0 {
        let begin = 2_000.0 * f64::from(iterations.start) - 900.0;
        events.insert(0, kernel("ncclDevKernel_AllReduce", begin, 100.0));
    }
    let info = format!(r#""distributedInfo":{{"rank":{number},"world_size":3}},"#);
    document(&info, &events)
}

#[test]
fn a_rank_that_was_recorded_an_iteration_later_is_not_waited_for() {
    let kind = |from: u32| {
        let folder = TempDir::new().unwrap();
        write(&folder, "a.json", unmarked(0, 0..4, 1.0));
        write(&folder, "b.json", unmarked(1, from..from + 4, 1.0));
        write(&folder, "c.json", unmarked(2, 0..4, 1.05));
        let report = report(&[], &[folder.path()]);
        let named = report["straggler_rank"].as_u64();
        (
            report["verdict"]["kind"].as_str().unwrap().to_owned(),
            named,
        )
    };
    assert_eq!(kind(0), ("slow-clock".to_owned(), Some(2)));
    assert_eq!(kind(1), ("sampling-artefact".to_owned(), None));
}

#[test]
fn percentages_say_what_they_are_of() {
    let folder = TempDir::new().unwrap();
    write(&folder, "a.json", exchanging(0, 0.0, 50.0));
    write(&folder, "b.json", exchanging(1, 5.0, 50.0));
    let report = report(&[], &[folder.path()]);
    // What others wait with nothing to compute is of the same whole, not of what they wait.
    let cost = report["verdict"]["cost"].as_str().unwrap();
    assert!(
        cost.starts_with("the other rank waits in collectives for 0.45 % of the time recorded (5.00 µs per iteration). With nothing to compute it waits for 0.45 % of the time recorded."),
        "{cost}"
    );
}

#[test]
fn what_could_be_chance_is_likely_and_no_more() {
    let folder = TempDir::new().unwrap();
    write(&folder, "a.json", exchanging(0, 0.0, 50.0));
    write(&folder, "b.json", exchanging(1, 5.0, 55.0));
    let report = report(&[], &[folder.path()]);
    let sure = report["verdict"]["how_sure"].as_str().unwrap();
    assert!(sure.starts_with("likely, no more: "), "{sure}");
    // What is no chance is told apart.
    let (chance, slower) = sure
        .split_once(", but the kernels of rank 1 whose overlap is the same")
        .unwrap();
    assert!(chance.contains("noise alone can cause"), "{sure}");
    assert!(
        slower.contains("longer than") && !slower.contains("noise"),
        "{sure}"
    );
}
