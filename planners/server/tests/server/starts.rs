//! Messages and actions of the server at its start.

use std::path::Path;

use serde_json::json;

use crate::process::{Server, clocks, command, job, profile_csv};

/// The words with which it ends at once.
fn refusal(folder: &Path, options: &[&str]) -> String {
    let output = command(folder, options).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap()
}

#[test]
fn two_servers_never_share_a_state_folder() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let id = server.job();
    let said = refusal(folder.path(), &[]);
    let state = folder.path().join("state");
    assert!(said.contains(&*state.to_string_lossy()), "{said}");
    assert!(said.contains("another litd-planner"), "{said}");
    // A server that was killed keeps no lock.
    drop(server);
    let server = Server::start(folder.path());
    assert_eq!(server.ask_all(&id, 0)[0].0, 1);
}

/// Inputs of a plan, one after the other: a plan is never older than its inputs.
#[test]
fn other_settings_make_new_plans_of_all_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let id = server.job();
    let first = server.ask_all(&id, 0);
    drop(server);
    let server = Server::start(folder.path());
    assert_eq!(server.ask_all(&id, 0), first);
    assert!(log(folder.path()).contains("jobs taken up from the state folder: 1"));
    assert!(!log(folder.path()).contains("new plans"));
    drop(server);
    let (mut version, mut all) = (first[0].0, vec![first[0].1.clone()]);
    for (options, named) in [
        (["--microbatches", "6"], "(microbatches)"),
        (["--schedule", "gpipe"], "(microbatches, schedule)"),
        (["--blocking", "0"], "(blocking, profile, schedule)"),
        (["--unit", "0.5"], "(blocking, profile, unit)"),
    ] {
        let server = Server::start_with(folder.path(), &options);
        // A rank that waits for a newer plan gets it at once.
        let plans = server.ask_all(&id, version);
        version += 1;
        assert!(plans.iter().all(|plan| plan.0 == version), "{options:?}");
        assert!(!all.contains(&plans[0].1), "{options:?}");
        all.push(plans[0].1.clone());
        assert!(log(folder.path()).contains(named), "{}", log(folder.path()));
    }
    assert_eq!(clocks(&all[1]).len(), 12);
    // Measured anew, and the fastest clocks are gone.
    let measured = profile_csv(2);
    let slower = measured
        .lines()
        .filter(|line| !line.starts_with("0,forward,1"));
    let measured = slower.collect::<Vec<_>>().join("\n");
    std::fs::write(folder.path().join("profile.csv"), measured).unwrap();
    let server = Server::start_with(folder.path(), &["--unit", "0.5"]);
    assert_eq!(server.ask_all(&id, version)[0].0, version + 1);
    assert!(log(folder.path()).contains("(profile)"));
}

#[test]
fn a_job_that_no_longer_fits_is_told_so_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let id = server.job();
    let before = server.ask_all(&id, 0);
    drop(server);
    std::fs::write(folder.path().join("profile.csv"), profile_csv(3)).unwrap();
    let server = Server::start(folder.path());
    let (status, said) = server.get(&format!("/schedule/{id}?rank=0"));
    assert_eq!(status, 400);
    let said = said["detail"].as_str().unwrap();
    assert!(
        said.contains("2 stages") && said.contains("profile has 3"),
        "{said}"
    );
    assert!(log(folder.path()).contains(&format!("{id} has another number of stages")));
    drop(server);
    std::fs::write(folder.path().join("profile.csv"), profile_csv(2)).unwrap();
    let server = Server::start(folder.path());
    assert_eq!(server.ask_all(&id, 0)[0].1, before[0].1);
}

#[test]
fn a_profile_that_lacks_what_the_schedule_does_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for (options, wanted) in [
        (
            vec!["--schedule", "zero-bubble"],
            "profile.csv: the profile has no weight of stage 0, which the graph wants (--schedule zero-bubble)",
        ),
        (
            vec!["--schedule", "early-recomputation"],
            "has no recompute of stage 0",
        ),
        (
            vec!["--chunks", "2"],
            "chunks of layers are for the schedule interleaved, not for 1f1b",
        ),
        (
            vec!["--schedule", "interleaved", "--chunks", "3"],
            "profile.csv: the profile's 2 stages are no multiple of 3 chunks per GPU",
        ),
        (vec!["--unit", "0"], "can't be the unit of time"),
        (
            vec!["--microbatches", "0"],
            "at least 1 stage and 1 microbatch",
        ),
        (vec!["--listen", "localhost"], "127.0.0.1:7787"),
    ] {
        let said = refusal(folder.path(), &options);
        assert!(said.contains(wanted), "{options:?}: {said}");
    }
    std::fs::remove_file(folder.path().join("profile.csv")).unwrap();
    std::fs::create_dir(folder.path().join("profile.csv")).unwrap();
    assert!(refusal(folder.path(), &[]).contains("profile.csv: "));
}

/// Clients on other machines are not served without a token, unless the administrator allows it.
#[test]
fn other_machines_need_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let everywhere = ["--listen", "0.0.0.0:0"];
    let said = refusal(folder.path(), &everywhere);
    assert!(
        said.contains("there is no token: give --token-file FILE"),
        "{said}"
    );
    drop(Server::start_with(
        folder.path(),
        &["--listen", "0.0.0.0:0", "--without-token"],
    ));
    let file = folder.path().join("token");
    let option = ["--token-file", file.to_str().unwrap()];
    assert!(refusal(folder.path(), &option).contains("token: No such file"));
    std::fs::write(&file, "short\n").unwrap();
    assert!(refusal(folder.path(), &option).contains("16 to 1024 visible ASCII"));
    std::fs::write(&file, "0123456789abcdef\n").unwrap();
    let server = Server::start_with(folder.path(), &option);
    let (status, said) = server.post("/register_job", &job(2, 1, 1));
    assert!(
        status == 401 && said["detail"].as_str().unwrap().contains("token"),
        "{said}"
    );
    let register = |token: &str| {
        let program = "import sys; sys.path.insert(0, sys.argv[1])\n\
                       from litd.perseus import Server\n\
                       print(Server.register(sys.argv[2], pp=2, token=sys.argv[3]).job)";
        let hook = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hooks/pytorch");
        let mut python = std::process::Command::new("python3");
        let url = format!("http://{}", server.address);
        python.args(["-c", program, hook, &url, token]).output()
    };
    let Ok(output) = register("0123456789abcdef") else {
        eprintln!("SKIPPED: no python3");
        return;
    };
    assert!(output.status.success(), "{output:?}");
    assert!(!register("0123456789abcdee").unwrap().status.success());
}

/// Chunk c of GPU g is stage c * GPUs + g of the profile.
#[test]
fn interleaved_gpus_get_the_clocks_of_all_their_chunks() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("profile.csv"), profile_csv(4)).unwrap();
    let server = Server::start_with(folder.path(), &["--schedule", "interleaved"]);
    let (status, said) = server.post("/register_job", &job(4, 1, 1));
    assert_eq!(status, 400, "{said}");
    let id = server.job();
    for (_, plan) in server.ask_all(&id, 0) {
        assert_eq!(clocks(&plan).len(), 2 * 2 * 4);
    }
    let beyond = json!({"rank": 0, "dp_rank": 0, "pp_rank": 2, "tp_rank": 0,
        "available_frequencies": []});
    let (status, _) = server.post(&format!("/register_rank/{id}"), &beyond);
    assert_eq!(status, 400);
}

/// A message that a crash left half written was never answered, and does not spoil the ones before it.
#[test]
fn half_a_line_and_half_a_file_are_left_by_crashes_only() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("results.jsonl"), "{\"whole\": 1}\n{\"half").unwrap();
    std::fs::write(state.join("jobs.json.next"), "{\"jobs\": {").unwrap();
    std::fs::write(state.join("plans.json"), "{\"sched").unwrap();
    let server = Server::start(folder.path());
    let id = server.job();
    let result = json!({"rank": 0, "iter_time": [1.0], "iter_energy": [2.0],
        "time_breakdown": {}, "energy_breakdown": {}});
    assert_eq!(server.post(&format!("/result/{id}"), &result).0, 200);
    let lines = std::fs::read_to_string(state.join("results.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!((lines.len(), &lines[1]["rank"]), (2, &json!(0)));
    drop(server);
    std::fs::write(state.join("jobs.json"), "{\"jobs\": {").unwrap();
    let said = refusal(folder.path(), &[]);
    assert!(
        said.contains("jobs.json: not the jobs of this server"),
        "{said}"
    );
}
