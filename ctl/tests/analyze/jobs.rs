//! What is said of jobs whose ranks divide the work, as the simulator writes them.

use litd_sim::parallel::Run;
use litd_sim::{Parallel, kineto};
use litd_units::Nanos;
use serde_json::Value;
use tempfile::TempDir;

use super::{report, run};

/// Writes the ranks of a job whose GPUs have these speeds; stages of so many ranks are on clocks ahead by so much.
fn job(spec: &str, speeds: &[f64], (each, ahead_ms): (usize, &[i64])) -> TempDir {
    let job: Parallel = spec.parse().unwrap();
    let run = Run {
        speeds,
        noise: 0.01,
        seed: 7,
        iterations: 2,
    };
    let folder = TempDir::new().unwrap();
    for (at, mut timeline) in job.run(&run).unwrap().into_iter().enumerate() {
        let ahead = ahead_ms.get(at / each).map_or(0, |ms| ms * 1_000_000);
        timeline.shift(Nanos(ahead));
        let file = folder.path().join(format!("rank{at}.json"));
        kineto::write_file(&timeline, &file).unwrap();
    }
    folder
}

fn of(spec: &str, speeds: &[f64]) -> TempDir {
    job(spec, speeds, (1, &[]))
}

fn text(folder: &TempDir) -> String {
    let text = run::litctl(&["analyze", folder.path().to_str().unwrap()]);
    Vec::from_iter(text.split_whitespace()).join(" ")
}

fn verdict(report: &Value, key: &str) -> String {
    report["verdict"][key].as_str().unwrap().to_owned()
}

#[test]
fn stages_on_machines_with_other_clocks_are_said_to_have_been_set_right() {
    let level = [1.0; 8];
    let apart = job("pp2tp4", &level, (4, &[0, 20]));
    let told = report(&[], &[apart.path()]);
    let together = report(&[], &[of("pp2tp4", &level).path()]);
    assert_eq!(verdict(&told, "text"), verdict(&together, "text"));
    assert_eq!(told["wall_ns"], together["wall_ns"]);
    let notes = Vec::from_iter(told["notes"].as_array().unwrap());
    let note = "the time stamps of ranks 4, 5, 6 and 7 are 20.0 ms ahead, by what was handed over from and to other ranks; they were set right";
    assert!(notes.iter().any(|one| *one == note), "{notes:?}");
}

#[test]
fn a_group_names_its_own_ranks_alone() {
    let folder = of("pp2tp4", &[0.97, 1.0, 1.0, 1.0, 1.0, 1.0, 0.97, 1.0]);
    let text = text(&folder);
    for part in [
        "stage 0, ranks 0 1 2 3, TP: Slow clock: the others wait for rank 0;",
        "stage 1, ranks 4 5 6 7, TP: Slow clock: the others wait for rank 6;",
        "That is in stage 1 (ranks 4, 5, 6 and 7). Other groups wait for rank 0.",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn the_gain_of_a_stage_of_one_rank_is_that_of_one_iteration() {
    let slow = report(&[], &[of("pp4", &[1.0, 1.0, 0.9, 1.0]).path()]);
    let level = report(&[], &[of("pp4", &[1.0; 4]).path()]);
    let wall = |report: &Value| report["wall_ns"].as_f64().unwrap() / 1e6;
    let cost = verdict(&slow, "cost");
    let (_, told) = cost.split_once('(').unwrap();
    let (told, _) = told.split_once(" ms)").unwrap();
    let told: f64 = told.parse().unwrap();
    // Two iterations are recorded.
    let measured = (wall(&slow) - wall(&level)) / 2.0;
    assert!(
        (told - measured).abs() < 0.02 * measured,
        "{cost}: {measured}"
    );
}

#[test]
fn most_ranks_cost_what_the_fast_one_waits() {
    let report = report(
        &[],
        &[of("dp8", &[0.97, 0.97, 0.97, 0.97, 0.97, 0.97, 0.97, 1.0]).path()],
    );
    let cost = verdict(&report, "cost");
    let told = "the other rank waits in collectives for 2.";
    assert!(cost.starts_with(told), "{cost}");
}

#[test]
fn ranks_that_are_apart_by_little_more_than_noise_are_said_to_be() {
    let folder = of("dp8", &[0.995, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    let report = report(&[], &[folder.path()]);
    assert_eq!(verdict(&report, "kind"), "healthy");
    let cost = verdict(&report, "cost");
    assert!(
        cost.ends_with("% of an iteration at most, by which ranks are apart."),
        "{cost}"
    );
    let text = text(&folder);
    assert!(text.contains("too close to name one"), "{text}");
    assert!(text.contains("by little more than chance"), "{text}");
}

#[test]
fn ranks_of_another_job_are_doubted() {
    let folder = of("tp8", &[1.0; 8]);
    let other = of("dp8", &[1.0; 8]);
    std::fs::copy(
        other.path().join("rank7.json"),
        folder.path().join("rank7.json"),
    )
    .unwrap();
    let report = report(&[], &[folder.path()]);
    let doubts = report["verdict"]["doubts"].as_array().unwrap();
    let told = "these may be of different jobs";
    let mut doubts = doubts.iter().map(|doubt| doubt.as_str().unwrap());
    assert!(doubts.any(|doubt| doubt.ends_with(told)), "{report}");
}

#[test]
fn where_ranks_are_missing_their_traces_come_first_whatever_is_told() {
    // Rank 6 is slow and not given; those that are wait for it in what looks like a slow link.
    let folder = of("pp2tp4", &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.95, 1.0]);
    for rank in [2, 3, 6, 7] {
        std::fs::remove_file(folder.path().join(format!("rank{rank}.json"))).unwrap();
    }
    let report = report(&[], &[folder.path()]);
    let sure = verdict(&report, "how_sure");
    assert!(sure.starts_with("likely, no more"), "{sure}");
    let next = verdict(&report, "next");
    let told = "give the traces of ranks 2, 3, 6 and 7 as well";
    assert!(next.starts_with(told), "{next}");
}
