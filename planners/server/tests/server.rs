//! The server as a process, over HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

#[path = "server/docs.rs"]
mod docs;
#[path = "server/models.rs"]
mod models;
#[path = "server/process.rs"]
mod process;
#[path = "server/starts.rs"]
mod starts;
#[path = "server/zeus.rs"]
mod zeus;

use std::io::{Read as _, Write as _};

use litd_profiles::plan::{Contract, Format};
use serde_json::{Value, json};

use crate::process::{MICROBATCHES, Server, answer, clocks, job, rank};

/// The order of the two stages: the first is one forward ahead.
const ONE_FORWARD_ONE_BACKWARD: [&str; 2] = [
    "forward forward backward forward backward forward backward backward",
    "forward backward forward backward forward backward forward backward",
];

#[test]
fn ranks_get_their_schedules_once_all_have_asked() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let id = server.job();
    assert!(id.ends_with("+dp2+pp2+tp1+Perseus+try"), "{id}");
    let waiting: Vec<_> = (0..3).map(|rank| server.ask(&id, rank, 0)).collect();
    assert!(waiting.iter().all(|one| !one.is_finished()));
    let last = server.ask(&id, 3, 0).join().unwrap().1;
    let mut schedules: Vec<Value> = waiting
        .into_iter()
        .map(|one| one.join().unwrap().1)
        .collect();
    schedules.push(last);
    for (number, schedule) in schedules.iter().enumerate() {
        assert_eq!(schedule["rank"], number);
        let names: Vec<&str> = schedule["frequencies"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry[0].as_str().unwrap())
            .collect();
        assert_eq!(names.join(" "), ONE_FORWARD_ONE_BACKWARD[number % 2]);
        assert!(
            clocks(schedule)
                .iter()
                .all(|clock| (210..=1410).contains(clock) && clock % 15 == 0)
        );
    }
    assert_eq!(schedules[0]["frequencies"], schedules[2]["frequencies"]);
}

#[test]
fn a_straggler_slows_the_other_pipeline_until_it_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let id = server.job();
    let ask_all = |after| {
        let asked: Vec<_> = (0..4).map(|rank| server.ask(&id, rank, after)).collect();
        asked
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect::<Vec<_>>()
    };
    let before = ask_all(0);
    let straggler = |degree: f64| json!({"id": 0, "delay": 0.05, "degree": degree});
    let set = format!("/set_straggler/{id}");
    // Ranks with the first plan wait for the next one.
    let waiting: Vec<_> = (0..4)
        .map(|rank| server.ask(&id, rank, before[0].0))
        .collect();
    assert_eq!(server.post(&set, &straggler(1.2)), (200, Value::Null));
    let during: Vec<_> = waiting.into_iter().map(|one| one.join().unwrap()).collect();
    assert_eq!(
        during[0].1, before[0].1,
        "the straggler itself is not slowed"
    );
    let sum = |schedule: &(u64, Value)| clocks(&schedule.1).iter().sum::<u64>();
    assert!(sum(&during[2]) < sum(&before[2]) && sum(&during[3]) < sum(&before[3]));
    assert_eq!(server.post(&set, &straggler(1.0)), (200, Value::Null));
    let after = ask_all(during[0].0);
    assert_eq!(after[2].1, before[2].1);
}

/// The contract of a pipeline is what its ranks' schedules are, and changes with them.
#[test]
fn a_pipelines_contract_has_its_ranks_schedules() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let id = server.job();
    let schedules = server.ask_all(&id, 0);
    let plan = |pipeline: u32, after: u64| {
        let (status, head, body) = answer(server.send(
            "GET",
            &format!("/plan/{id}?pipeline={pipeline}&after={after}"),
            "",
        ));
        assert_eq!(status, 200, "{body}");
        let version = head
            .lines()
            .find_map(|line| line.strip_prefix("plan-version: "));
        let (format, contract) = Contract::read(&body.to_string()).unwrap();
        assert_eq!(format, Format::Contract);
        assert_eq!(contract.problems(&[]), [""; 0]);
        (version.unwrap().parse::<u64>().unwrap(), contract)
    };
    let same = |contract: &Contract, rank: u32, schedule: &Value| {
        let own = &contract.stages[rank as usize % 2].instructions;
        let own = own
            .iter()
            .map(|it| json!([it.instruction, it.clock.map(|it| it.0 / 1e6)]));
        assert_eq!(
            own.map(|it| it.to_string().replace(".0", ""))
                .collect::<Vec<_>>(),
            schedule["frequencies"]
                .as_array()
                .unwrap()
                .iter()
                .map(Value::to_string)
                .collect::<Vec<_>>()
        );
    };
    let (version, before) = plan(1, 0);
    assert_eq!(version, schedules[2].0);
    same(&before, 2, &schedules[2].1);
    same(&before, 3, &schedules[3].1);
    let late = json!({"id": 0, "delay": 0.0, "degree": 1.2});
    assert_eq!(server.post(&format!("/set_straggler/{id}"), &late).0, 200);
    let (newer, during) = plan(1, version);
    assert!(newer > version && during.totals.until > before.totals.until);
    same(&during, 3, &server.ask(&id, 3, version).join().unwrap().1);
    // The straggler's own pipeline goes on as it was.
    assert_eq!(plan(0, version).1.stages, before.stages);
    for (status, target) in [
        (400, format!("/plan/{id}?pipeline=2")),
        (422, format!("/plan/{id}?pipeline=x")),
        (400, "/plan/none".to_owned()),
    ] {
        assert_eq!(server.get(&target).0, status, "{target}");
    }
}

#[test]
fn jobs_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let id = server.job();
    let asked: Vec<_> = (0..4).map(|rank| server.ask(&id, rank, 0)).collect();
    let before: Vec<Value> = asked.into_iter().map(|one| one.join().unwrap().1).collect();
    let result = json!({"rank": 1, "iter_time": [1.0], "iter_energy": [300.0],
        "time_breakdown": {"forward": [[0.03, 0.03]]}, "energy_breakdown": {}});
    assert_eq!(
        server.post(&format!("/result/{id}"), &result),
        (200, Value::Null)
    );
    drop(server);
    let server = Server::start(folder.path());
    // The ranks have all asked before, so a rank does not wait for the others.
    assert_eq!(server.ask(&id, 1, 0).join().unwrap().1, before[1]);
    let results = std::fs::read_to_string(folder.path().join("state/results.jsonl")).unwrap();
    let line: Value = serde_json::from_str(&results).unwrap();
    assert_eq!(
        (&line["job_id"], &line["iter_energy"][0]),
        (&json!(id), &json!(300.0))
    );
}

/// A server that is killed while clients register has every rank that it said it has, and no half one.
#[test]
fn what_was_answered_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut ids = Vec::new();
    let mut told = Vec::new();
    for round in 0..4_u64 {
        let server = Server::start(folder.path());
        let (status, id) = server.post("/register_job", &job(2, 64, 1));
        assert_eq!(status, 200, "{id}");
        let id = id.as_str().unwrap().to_owned();
        let (sender, answered) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for client in 0..4_u32 {
                let (server, id, sender) = (&server, &id, sender.clone());
                scope.spawn(move || {
                    for number in (client..128).step_by(4) {
                        let body = json!({"rank": number, "dp_rank": number / 2, "pp_rank": number % 2,
                            "tp_rank": 0, "available_frequencies": [1410]});
                        // Killed in between: no answer, and nothing is promised.
                        let Ok(mut stream) = std::net::TcpStream::connect(&server.address) else { return };
                        let body = body.to_string();
                        let request = format!(
                            "POST /register_rank/{id} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                             content-length: {}\r\n\r\n{body}",
                            body.len()
                        );
                        let mut text = String::new();
                        let _ = stream.write_all(request.as_bytes());
                        let _ = stream.read_to_string(&mut text);
                        if text.starts_with("HTTP/1.1 200") {
                            sender.send(number).unwrap();
                        }
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(5 + 7 * round));
            server.kill();
        });
        drop(sender);
        told.push(answered.iter().collect::<Vec<u32>>());
        ids.push(id);
    }
    let server = Server::start(folder.path());
    for (id, told) in ids.iter().zip(&told) {
        for rank in told {
            // Only a rank that is registered can be late.
            let late = json!({"id": rank, "delay": 1e6, "degree": 1.5});
            let (status, said) = server.post(&format!("/set_straggler/{id}"), &late);
            assert_eq!(status, 200, "{said}");
        }
    }
    assert!(told.iter().any(|it| !it.is_empty()), "{told:?}");
}

#[test]
fn what_can_not_be_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let id = server.job();
    let mut wrong = job(2, 2, 1);
    wrong["world_size"] = json!(5);
    let mut named = job(2, 2, 1);
    named["job_id"] = json!("mine");
    let mut endless = job(2, 1, 1);
    endless["job_metadata"] = json!("x".repeat(1000));
    let mut huge = job(2, 1, 1);
    huge["job_metadata"] = json!("x".repeat(100_000));
    let mut many = rank(0);
    many["available_frequencies"] = json!(vec![1; 1001]);
    let mut outside = rank(0);
    outside["rank"] = json!(4);
    let mut taken = rank(0);
    taken["rank"] = json!(1);
    let straggler = |id: u32, degree: f64| json!({"id": id, "delay": 0.0, "degree": degree});
    let (ranks, set) = (
        format!("/register_rank/{id}"),
        format!("/set_straggler/{id}"),
    );
    for (status, target, body, why) in [
        (400, "/register_job", &wrong, "world_size 5"),
        (400, "/register_job", &named, "job_id must be empty"),
        (400, "/register_job", &endless, "job_metadata"),
        (422, "/register_job", &huge, "length limit exceeded"),
        (
            400,
            ranks.as_str(),
            &many,
            "more than 1000 available_frequencies",
        ),
        (
            400,
            "/register_job",
            &job(3, 1, 1),
            "pp_degree 3 is not the profile's 2 stages",
        ),
        (
            422,
            "/register_job",
            &json!({"job_id": ""}),
            "missing field",
        ),
        (400, ranks.as_str(), &outside, "rank 4 must be below 4"),
        (400, ranks.as_str(), &taken, "rank 0 has this place"),
        (
            400,
            "/register_rank/%2e%2e%2fetc",
            &rank(0),
            "there is no job",
        ),
        (
            422,
            "/register_rank/%zz",
            &rank(0),
            "a % without two digits",
        ),
        (
            400,
            set.as_str(),
            &straggler(9, 1.2),
            "rank 9 has not registered",
        ),
        (400, set.as_str(), &straggler(0, 0.5), "degree 0.5"),
        (404, "/nothing", &json!(null), "there is nothing"),
    ] {
        let (found, detail) = server.post(target, body);
        let text = detail["detail"].as_str().unwrap_or_default();
        assert!(
            found == status && text.contains(why),
            "{target} {body}: {found} {detail}"
        );
    }
    for (status, target) in [
        (422, format!("/schedule/{id}")),
        (422, format!("/schedule/{id}?rank=x")),
        (400, format!("/schedule/{id}?rank=7")),
        (405, "/register_job".to_owned()),
    ] {
        assert_eq!(
            answer(server.send("GET", &target, "")).0,
            status,
            "{target}"
        );
    }
    // A client that vanishes while it waits.
    drop(server.send("GET", &format!("/schedule/{id}?rank=0"), ""));
    let asked: Vec<_> = (0..4).map(|rank| server.ask(&id, rank, 0)).collect();
    for one in asked {
        assert_eq!(clocks(&one.join().unwrap().1).len(), 2 * MICROBATCHES);
    }
}
