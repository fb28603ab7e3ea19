//! Zeus's own client, unmodified, between this server and an NVML stand-in.

use std::path::{Path, PathBuf};
use std::process::Command;

use litd_rig::Rig;
use litd_sim::Scenario;
use serde_json::Value;

use crate::ONE_FORWARD_ONE_BACKWARD;
use crate::process::{Server, clocks};

/// The stand-in's fastest clocks, MHz, at which a controller of Zeus begins.
const FASTEST: u32 = 1980;
const FASTEST_MEMORY: u32 = 2619;

/// A Python that can import the client.
fn python(script: &Path) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/planner/bin/python");
    let pythons = [own, PathBuf::from("python3")];
    pythons.into_iter().find(|python| {
        let output = Command::new(python).arg(script).arg("--check").output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// The client registers, fetches its schedules and follows them; its clock locks are read from the GPUs.
#[test]
fn the_unmodified_zeus_client_follows_its_schedule_on_the_gpus() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/zeus_client.py");
    let Some(python) = python(&script) else {
        eprintln!(
            "SKIPPED: no python3 with zeus[pfo] (.ci/run installs it where pip has a network; \
             docs/planner.md says how)"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let rig = Rig::new(&Scenario::builtin("default").unwrap(), 1).unwrap();
    let library = rig.install_nvml().unwrap();
    let output = Command::new(python)
        .arg(&script)
        .arg(format!("http://{}", server.address))
        .args(ONE_FORWARD_ONE_BACKWARD)
        .env("LD_LIBRARY_PATH", library.parent().unwrap())
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("ZEUSD_SOCK_PATH")
        .env_remove("ZEUSD_HOST_PORT")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    // The client asked NVML for the available clocks; the state has what it told the server.
    let journal = std::fs::read_to_string(folder.path().join("state/journal.jsonl")).unwrap();
    let lines = journal
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let registered: Vec<Value> = lines.map(|mut line: Value| line["rank"].take()).collect();
    let registered: Vec<&Value> = registered.iter().filter(|it| !it.is_null()).collect();
    let id = registered[0]["id"].as_str().unwrap();
    let gpus = rig.hardware().nvidia().gpus.clone();
    let mut changes = 0;
    for (rank, gpu) in gpus[..ONE_FORWARD_ONE_BACKWARD.len()].iter().enumerate() {
        let mut infos = registered.iter().map(|it| &it["rank"]);
        let info = infos.find(|info| info["rank"] == rank).unwrap();
        let known = &info["available_frequencies"];
        assert_eq!((&known[0], &known[1]), (&1980.into(), &1965.into()));
        // The same clocks are sent again.
        let told = clocks(&server.ask(id, rank as u32, 0).join().unwrap().1);
        // The client begins at the fastest clock, locks what differs from before, in two iterations, and resets at
        // its end.
        let both = told.iter().chain(&told).map(|&clock| clock as u32);
        let mut wanted: Vec<u32> = std::iter::once(FASTEST).chain(both).collect();
        wanted.dedup();
        let mut wanted: Vec<_> = wanted.iter().map(|&clock| Some((clock, clock))).collect();
        changes += wanted.len() - 2;
        wanted.push(None);
        assert_eq!(gpu.locks, wanted, "rank {rank}");
        let memory = vec![Some((FASTEST_MEMORY, FASTEST_MEMORY)), None];
        assert_eq!(gpu.memory_locks, memory, "rank {rank}");
    }
    assert!(
        changes > 0,
        "a plan without a change of clocks shows little"
    );
    for other in &gpus[ONE_FORWARD_ONE_BACKWARD.len()..] {
        assert_eq!((&other.locks, &other.memory_locks), (&vec![], &vec![]));
    }
}
