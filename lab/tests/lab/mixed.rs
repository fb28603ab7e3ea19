//! A node of eight AMD GPUs and two EPYC sockets under cpu-slosh, from warm-up to convergence:
//! the real daemon on the files of a made-up `/sys`, and the loop in one process. SIMULATED.
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use litd_api::{DeviceState, JobState};
use litd_rig::{Job, JobSpec, Rig};
use litd_rig_sysfs::{Board, Cpus, Mount, obstacle};
use litd_sim::Scenario;
use litd_units::{Millis, Nanos, Watts};
use serde_json::Value;

use crate::LITLAB;

const SEED: u64 = 3;
const SOON: Duration = Duration::from_secs(30);

/// What the demo has: see `litlab demo --help`.
const CONFIG: &str = r#"
mode = "on"
policy = "cpu-slosh"
[caps]
budget = 5600.0
gpu_floor = 300.0
gpu_ceiling = 750.0
cpu_floor = 100.0
[law.mitigation]
initial_cap = 700.0
[sampling]
steady_temperature = 100.0
converged_period = 10
"#;

/// Iterations of a period, and periods "before", between convergence and "after", and "after".
const PERIOD: usize = 10;
const WARM_UP: usize = 3;
const SETTLE: usize = 10;
const MEASURE: usize = 30;
/// So often is looked whether it has converged.
const LOOK: usize = 5;
/// Without convergence it ends after so many periods.
const PATIENCE: usize = 400;

/// What a run came to.
#[derive(Debug)]
struct Outcome {
    /// Iterations per second, after / before.
    throughput: f64,
    caps: Vec<Watts>,
}

/// The demo's own figures, of the loop in its process.
fn in_process() -> Outcome {
    let seed = SEED.to_string();
    let args = ["demo", "--policy", "cpu-slosh", "--in-process", "--json"];
    let output = Command::new(LITLAB)
        .args(args)
        .args(["--seed", &seed])
        .output();
    let document: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let entry = &document["policies"][0];
    let caps = entry["caps_w"].as_array().unwrap().iter();
    Outcome {
        throughput: entry["throughput_ratio"].as_f64().unwrap(),
        caps: caps.map(|cap| Watts(cap.as_f64().unwrap())).collect(),
    }
}

/// A node, its drivers, the daemon on it and its job.
struct Node {
    job: Job,
    daemon: litd_rig::Daemon,
    rig: Rig,
    _mount: Mount,
}

impl Node {
    fn start(cpus: Cpus) -> Self {
        let mut rig = Rig::new(&Scenario::builtin("default").unwrap(), SEED).unwrap();
        rig.ledger().set_budget(Watts(5600.0));
        rig.ledger().permit_slosh();
        let board = Board {
            cpus,
            ..Board::default()
        };
        let mount = Mount::start(rig.shared_hardware(), board).unwrap();
        let text = rig.config(&format!("{CONFIG}{}", mount.config()));
        let daemon = rig.spawn_clocked(Path::new(LITLAB), &text).unwrap();
        let mut job = rig.attach(JobSpec::new("train", 0..8)).unwrap();
        job.welcome(SOON).unwrap();
        rig.advance(Nanos(0)).unwrap();
        rig.hardware().settle();
        Self {
            job,
            daemon,
            rig,
            _mount: mount,
        }
    }

    /// The mean length of a period's iterations. In none does the node draw more than its budget
    /// and the sockets' limits at start allow.
    fn period(&mut self) -> Millis {
        let mut time = Millis::ZERO;
        for _ in 0..PERIOD {
            self.job.run_iteration();
            let hardware = self.rig.hardware();
            let plant = hardware.plant();
            time += plant.last().length;
            let drawn = plant.gpu_power() + plant.cpu_power();
            assert!(drawn <= Watts(5600.0 + 800.0), "{drawn}");
        }
        self.rig.advance(time.to_nanos()).unwrap();
        time / PERIOD as f64
    }

    fn state(&self) -> JobState {
        let output = Command::new(litd_rig::program("litctl").unwrap())
            .args(["status", "--json"])
            .env("LITD_CONTROL", self.rig.layout().control())
            .output();
        let output = output.unwrap();
        let status: litd_api::Status = serde_json::from_slice(&output.stdout).unwrap();
        let states: Vec<_> = status.devices.iter().map(|device| device.state).collect();
        assert!(!states.contains(&DeviceState::Faulty), "{states:?}");
        status.jobs[0].state
    }

    /// Everything goes back to what was found.
    fn stop(mut self) {
        drop(self.job);
        self.daemon.ask_to_stop();
        // Time passes for it until it is gone.
        while self.daemon.ended().is_none() && self.rig.advance(Nanos(200_000_000)).is_ok() {}
        let status = self.daemon.terminate().unwrap();
        assert!(status.success(), "{status}");
        let (held, violations) = (self.rig.ledger().held(), self.rig.ledger().check());
        assert!(self.rig.ledger().restored(), "{held:?}");
        assert!(violations.is_empty(), "{violations:#?}");
    }

    fn run(&mut self) -> Outcome {
        let mut periods: Vec<Millis> = Vec::new();
        let mut converged = 0;
        while converged < SETTLE + MEASURE {
            assert!(
                periods.len() < PATIENCE,
                "not converged: {:?}",
                self.state()
            );
            periods.extend((0..LOOK).map(|_| self.period()));
            converged = match self.state() {
                JobState::Converged => converged + LOOK,
                _ => 0,
            };
        }
        let mean =
            |periods: &[Millis]| periods.iter().copied().sum::<Millis>() / periods.len() as f64;
        let after = mean(&periods[periods.len() - MEASURE..]);
        Outcome {
            throughput: mean(&periods[..WARM_UP]) / after,
            caps: self.rig.ledger().held(),
        }
    }
}

fn sloshes_as_in_process(cpus: Cpus) {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    let mut node = Node::start(cpus);
    let over_files = node.run();
    let in_process = in_process();
    println!("SIMULATED: {over_files:?}; in one process: {in_process:?}");
    let difference = (over_files.throughput - in_process.throughput).abs();
    assert!(difference < 1e-3, "{over_files:?} {in_process:?}");
    assert!(over_files.throughput > 1.03, "{over_files:?}");
    // The GPUs have what the sockets gave, and no more.
    let (gpus, sockets) = over_files.caps.split_at(8);
    assert_eq!(gpus, in_process.caps);
    let sum = |caps: &[Watts]| caps.iter().copied().sum::<Watts>();
    assert!(sum(gpus) > Watts(5700.0), "{over_files:?}");
    assert!(sum(sockets) < Watts(800.0), "{over_files:?}");
    assert!(sum(&over_files.caps) <= Watts(5600.0 + 800.0));
    node.stop();
}

#[test]
fn cpu_slosh_over_amdgpu_and_the_sockets_hwmon_does_as_the_loop_in_one_process() {
    sloshes_as_in_process(Cpus::HsmpHwmon);
}

#[test]
fn cpu_slosh_over_amdgpu_and_dev_hsmp_does_as_the_loop_in_one_process() {
    sloshes_as_in_process(Cpus::HsmpDevice);
}
