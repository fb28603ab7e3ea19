//! `litctl plan report` as a process, between a stand-in for litd and one for the planner.
#[allow(dead_code, reason = "the status is enough")]
use std::process::Output;

use serde_json::{Value, json};

use crate::samples;
use crate::standin::{Asked, Daemon, litctl, ok, planner, refusal, sized};

/// litd with one job of eight ranks, the last of which is 1.08 times as slow as planned.
fn litd() -> Daemon {
    Daemon::new(|_: &Asked| ok(&samples::status()))
}

fn report(litd: &Daemon, address: &str, more: &[&str]) -> Output {
    let url = format!("http://{address}");
    let args = [
        "plan",
        "report",
        "--planner",
        &url,
        "--job-id",
        "2026+Perseus",
    ];
    litctl(&litd.socket(), &[&args[..], more].concat())
}

fn rank(asked: &Asked) -> u64 {
    let body: Value = serde_json::from_str(&asked.body).unwrap();
    body["id"].as_u64().unwrap()
}

#[test]
fn every_rank_is_told_of_once() {
    let (address, log) = planner(|_| ok(&()));
    let output = report(&litd(), &address, &["--once", "--first-rank", "8"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 8);
    assert!(
        text.ends_with("rank 15 is 1.08 times as slow as planned: the planner was told\n"),
        "{text}"
    );
    let asked = log.lock().unwrap();
    assert!(
        asked
            .iter()
            .all(|it| it.line == "POST /set_straggler/2026+Perseus")
    );
    assert_eq!(
        asked.iter().map(rank).collect::<Vec<_>>(),
        (8..16).collect::<Vec<_>>()
    );
}

#[test]
fn json_is_a_line_for_each_rank() {
    let (address, _) = planner(|asked| match rank(asked) {
        3 => sized(
            "400 Bad Request",
            &json!({"detail": "rank 3 has not registered"}),
        ),
        _ => ok(&()),
    });
    let output = report(&litd(), &address, &["--once", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[7], json!({"rank": 7, "degree": 1.08, "error": null}));
    assert!(
        lines[3]["error"]
            .as_str()
            .unwrap()
            .contains("has not registered")
    );
    // The message says which reports were sent and which were not.
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let wanted = "7 of 8 ranks: rank 3: 400 Bad Request: rank 3 has not registered";
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn a_job_that_litd_does_not_have_is_named_with_those_it_has() {
    let (address, log) = planner(|_| ok(&()));
    let output = report(&litd(), &address, &["--once", "--job", "zz"]);
    let (said, code) = refusal(&output);
    let name = &samples::status().jobs[0].name;
    assert!(
        said.contains(&format!("litd has no job \"zz\"; it has {name}")),
        "{said}"
    );
    assert_eq!((code, log.lock().unwrap().len()), (2, 0));
}

/// Without --once, too: nobody waits for ever for a planner that says no.
#[test]
fn a_wrong_job_id_ends_it() {
    let (address, log) = planner(|_| {
        sized(
            "400 Bad Request",
            &json!({"detail": "there is no job \"2026\""}),
        )
    });
    let (said, code) = refusal(&report(&litd(), &address, &["--interval", "0.1"]));
    assert!(said.contains("0 of 8 ranks: rank 0: 400"), "{said}");
    assert!(said.contains("there is no job"), "{said}");
    assert_eq!((code, log.lock().unwrap().len()), (2, 8));
}

#[test]
fn a_planner_that_is_away_is_named() {
    // No server listens any more at an address that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let (said, _) = refusal(&report(&litd(), &address, &["--once"]));
    assert!(
        said.contains(&format!(
            "planner at {address}: it was told of 0 of 8 ranks"
        )),
        "{said}"
    );
    assert!(said.contains("(does litd-planner listen there?)"), "{said}");
}
