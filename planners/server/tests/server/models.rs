//! Jobs that bring their own schedule and profile.

use std::collections::BTreeMap;

use litd_profiles::plan::Contract;
use litd_profiles::synthetic;
use serde_json::{Value, json};

use crate::process::{Server, answer};

/// A job of its own: its schedule, GPUs in a row, stages of its profile, instructions.
struct Own {
    schedule: Value,
    gpus: u32,
    stages: u32,
    instructions: &'static [&'static str],
}

const TWO: &[&str] = &["forward", "backward"];
const THREE: &[&str] = &["forward", "backward", "weight"];

fn four() -> [Own; 4] {
    let own = |schedule, gpus, stages, instructions| Own {
        schedule,
        gpus,
        stages,
        instructions,
    };
    [
        own(json!({"schedule": "1f1b", "microbatches": 5}), 2, 2, TWO),
        own(
            json!({"schedule": "gpipe", "microbatches": 3, "blocking_w": 60}),
            3,
            3,
            TWO,
        ),
        own(
            json!({"schedule": "interleaved", "microbatches": 4, "chunks": 2}),
            2,
            4,
            TWO,
        ),
        own(
            json!({"schedule": "zero-bubble", "microbatches": 4, "unit_ms": 0.5}),
            2,
            2,
            THREE,
        ),
    ]
}

impl Own {
    fn register(&self, server: &Server) -> String {
        let gpus = self.gpus;
        let body = json!({"job_id": "", "pp_degree": gpus, "dp_degree": 1, "tp_degree": 1,
            "world_size": gpus, "job_metadata": null, "pipeline": self.schedule});
        let (status, id) = server.post("/register_job", &body);
        assert_eq!(status, 200, "{id}");
        let id = id.as_str().unwrap().to_owned();
        for rank in 0..gpus {
            let body = json!({"rank": rank, "dp_rank": 0, "pp_rank": rank, "tp_rank": 0,
                "available_frequencies": []});
            assert_eq!(server.post(&format!("/register_rank/{id}"), &body).0, 200);
        }
        id
    }

    /// Posts a profile of every stage; what is made up differs by `seed`.
    fn post(&self, server: &Server, id: &str, seed: u64) {
        for stage in 0..self.stages {
            let mut rows = Vec::new();
            for (kind, measurements) in synthetic::profile(self.stages, seed).measurements() {
                if kind.stage != stage {
                    continue;
                }
                for one in measurements {
                    let row = |name: &str| {
                        json!([name, one.clock.0 / 1e6, one.time.0 / 1e3, one.energy.0])
                    };
                    rows.push(row(&kind.instruction));
                    if kind.instruction == "backward" && self.instructions.len() == 3 {
                        rows.push(row("weight"));
                    }
                }
            }
            let (status, said) = server.post(
                &format!("/profile/{id}"),
                &json!({"stage": stage, "rows": rows}),
            );
            assert_eq!((status, said), (200, Value::Null));
        }
    }

    fn plan(&self, server: &Server, id: &str, after: u64) -> (u64, Contract) {
        let (status, head, body) =
            answer(server.send("GET", &format!("/plan/{id}?after={after}"), ""));
        assert_eq!(status, 200, "{body}");
        let version = head
            .lines()
            .find_map(|line| line.strip_prefix("plan-version: "));
        let contract = Contract::read(&body.to_string()).unwrap().1;
        assert_eq!(contract.problems(&[]), [""; 0]);
        (version.unwrap().parse().unwrap(), contract)
    }
}

#[test]
fn four_jobs_of_different_models_and_schedules_are_served_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let jobs = four();
    let ids: Vec<String> = jobs.iter().map(|job| job.register(&server)).collect();
    // All ask before anything was measured, and wait.
    let asked: Vec<Vec<_>> = jobs
        .iter()
        .zip(&ids)
        .map(|(job, id)| (0..job.gpus).map(|rank| server.ask(id, rank, 0)).collect())
        .collect();
    assert!(asked.iter().flatten().all(|one| !one.is_finished()));
    std::thread::scope(|scope| {
        for (number, (job, id)) in (1..).zip(jobs.iter().zip(&ids)) {
            let server = &server;
            scope.spawn(move || job.post(server, id, number));
        }
    });
    let mut plans = Vec::new();
    for ((job, id), asked) in jobs.iter().zip(&ids).zip(asked) {
        let (version, contract) = job.plan(&server, id, 0);
        let schedules: Vec<Value> = asked.into_iter().map(|one| one.join().unwrap().1).collect();
        assert_eq!(contract.stages.len(), job.gpus as usize);
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for (stage, schedule) in contract.stages.iter().zip(&schedules) {
            let frequencies = schedule["frequencies"].as_array().unwrap();
            assert_eq!(frequencies.len(), stage.instructions.len());
            for (own, row) in stage.instructions.iter().zip(frequencies) {
                assert_eq!(row[0], own.instruction);
                *names.entry(&own.instruction).or_default() += 1;
            }
        }
        let microbatches = job.schedule["microbatches"].as_u64().unwrap() as usize;
        let wanted = job
            .instructions
            .iter()
            .map(|name| (*name, microbatches * job.stages as usize));
        assert_eq!(names, wanted.collect());
        plans.push((version, contract));
    }
    // The server's own profile goes on beside them, and all of it survives a restart.
    let own = server.job();
    let before = server.ask_all(&own, 0);
    drop(server);
    let server = Server::start(folder.path());
    assert_eq!(server.ask_all(&own, 0), before);
    for ((job, id), plan) in jobs.iter().zip(&ids).zip(&plans) {
        assert_eq!(job.plan(&server, id, 0), *plan);
    }
    // Measured anew: whoever waits for a newer plan gets it.
    let newer = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| jobs[0].plan(&server, &ids[0], plans[0].0));
        jobs[0].post(&server, &ids[0], 9);
        waiting.join().unwrap()
    });
    assert!(newer.0 > plans[0].0 && newer.1 != plans[0].1);
}

/// An instruction that training shows to be slower than its plan expects, on all ranks of a stage and beyond
/// noise, is changed in the job's model and in its plan.
#[test]
fn drift_makes_new_plans() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let [job, ..] = four();
    let id = job.register(&server);
    job.post(&server, &id, 1);
    let (version, before) = job.plan(&server, &id, 0);
    let mean = |contract: &Contract| {
        let own = contract.stages[1]
            .instructions
            .iter()
            .filter(|it| it.instruction == "forward");
        let times: Vec<f64> = own.map(|it| it.time.unwrap().0 * 1e-3).collect();
        times.iter().sum::<f64>() / times.len() as f64
    };
    let post = |factor: f64| {
        let times: Vec<Vec<f64>> = (0..5)
            .map(|it| vec![mean(&before) * (factor + 0.001 * f64::from(it - 2)); 5])
            .collect();
        let body = json!({"rank": 1, "iter_time": [1.0], "iter_energy": [1.0],
            "time_breakdown": {"forward": times}, "energy_breakdown": {}});
        assert_eq!(
            server.post(&format!("/result/{id}"), &body),
            (200, Value::Null)
        );
    };
    // As expected, within noise, and once only: no reason.
    for factor in [1.0, 1.03, 1.3, 1.0] {
        post(factor);
    }
    assert_eq!(job.plan(&server, &id, 0).0, version);
    post(1.3);
    post(1.3);
    let (newer, after) = job.plan(&server, &id, version);
    assert!(newer > version);
    let least = |contract: &Contract| contract.frontier.as_ref().unwrap().full_clock.0;
    assert!(
        least(&after) > least(&before) * 1.05,
        "{} {}",
        least(&after),
        least(&before)
    );
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(
        log.contains(
            "forward of stage 1 takes 130.0 % of the planned time: new plans are being computed"
        ),
        "{log}"
    );
    // The change is in the model: a restarted server plans the same.
    drop(server);
    let server = Server::start(folder.path());
    assert_eq!(job.plan(&server, &id, 0), (newer, after));
}

#[test]
fn profiles_that_can_not_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let [job, ..] = four();
    let mut body = json!({"job_id": "", "pp_degree": 2, "dp_degree": 1, "tp_degree": 1,
        "world_size": 2, "job_metadata": null});
    for (pipeline, why) in [
        (
            json!({"schedule": "sideways", "microbatches": 4}),
            "\"sideways\" is no schedule",
        ),
        (
            json!({"schedule": "1f1b", "microbatches": 0}),
            "at least 1 stage and 1 microbatch",
        ),
        (
            json!({"schedule": "1f1b", "microbatches": 4, "unit_ms": 0}),
            "unit_ms must be more",
        ),
    ] {
        body["pipeline"] = pipeline;
        let (status, said) = server.post("/register_job", &body);
        assert!(
            status == 400 && said.to_string().replace('\\', "").contains(why),
            "{said}"
        );
    }
    let id = job.register(&server);
    let target = format!("/profile/{id}");
    let good = json!(["forward", 1410, 0.03, 9.0]);
    for (status, stage, rows, why) in [
        (400, json!(2), json!([good]), "stage 2 must be below 2"),
        (400, json!(0), json!([]), "rows: 1 to"),
        (
            400,
            json!(0),
            json!([good, ["forward", 1200, 0.0, 8.0]]),
            "rows[1]: 0 seconds",
        ),
        (
            400,
            json!(0),
            json!([["", 1410, 0.03, 9.0]]),
            "rows[0]: the instruction's name",
        ),
        (
            422,
            json!(0),
            json!([["forward", 1410, 0.03]]),
            "invalid length 3",
        ),
        (422, json!(-1), json!([good]), "invalid value"),
    ] {
        let (found, said) = server.post(&target, &json!({"stage": stage, "rows": rows}));
        assert!(
            found == status && said["detail"].as_str().unwrap().contains(why),
            "{why}: {found} {said}"
        );
    }
    // Complete, and without what the schedule does: the last one is refused, and can be sent again.
    assert_eq!(
        server.post(&target, &json!({"stage": 0, "rows": [good]})).0,
        200
    );
    let (status, said) = server.post(&target, &json!({"stage": 1, "rows": [good]}));
    assert!(
        status == 400
            && said["detail"]
                .as_str()
                .unwrap()
                .contains("no backward of stage 0"),
        "{said}"
    );
    let default = server.job();
    let (status, said) = server.post(
        &format!("/profile/{default}"),
        &json!({"stage": 0, "rows": [good]}),
    );
    assert!(
        status == 400
            && said["detail"]
                .as_str()
                .unwrap()
                .contains("without a pipeline"),
        "{said}"
    );
}
