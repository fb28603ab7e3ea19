//! A pipeline of several nodes, closed over a thermal straggler. SIMULATED: the nodes' hardware and
//! the job; litd on each node, `litctl plan report` and the planner's server are the real programs.
//!
//! Two pipelines of two stages, a node of eight GPUs for each stage. All follow the planner's
//! clocks. A GPU of the first pipeline gets warmer: litd gives it power of its neighbours'. It gets
//! hot: power does not help any more, so the other pipeline slows down. It recovers: all is undone.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use litd_api::DeviceStatus;
use litd_rig::{Daemon, Job, JobSpec, Rig};
use litd_sim::{Plant, Scenario};
use litd_units::{Celsius, Hertz, Joules, Millis, Watts};
use serde_json::{Value, json};

use crate::LITCTL;

const SOON: Duration = Duration::from_secs(20);
const GPUS: usize = 8;
const STAGES: usize = 2;
const PIPELINES: usize = 2;
const MICROBATCHES: f64 = 8.0;
/// Each stage's work, as a share of the simulated node's iteration.
const WORK: [f64; STAGES] = [1.0, 0.85];
/// The clocks that are planned with: the highest is one that all GPUs hold below their caps.
const CLOCKS: [u32; 6] = [1630, 1545, 1460, 1375, 1290, 1205];
/// The power of a GPU that waits for another.
const BLOCKING: Watts = Watts(75.0);
/// The GPU that gets hot: the slow one of the first pipeline's first stage.
const HOT: usize = 4;

const CONFIG: &str = "mode = \"on\"\npolicy = \"gpu-realloc\"\n\
    law.calibration.sampling_period = 1\nlaw.calibration.warm_up = 3\nlaw.detection.window = 1\n\
    sampling.converged_period = 2\ntrial.hold_out = 0.0\n";

/// The scenario, with the hot GPU's cooling: kelvins per watt, and how much slower that makes it at
/// 700 W.
fn scenario(cooling: f64, slower: f64) -> Scenario {
    let mut scenario = Scenario::builtin("default").unwrap();
    scenario.gpus[HOT].thermal_resistance = cooling;
    scenario.gpus[HOT].clock_offset = -slower;
    for gpu in &mut scenario.gpus {
        gpu.inlet = Celsius(40.0);
    }
    scenario
}

fn healthy() -> Scenario {
    scenario(0.075, 0.0)
}

/// A stage's time and energy at each clock, as a profiler would have measured them.
fn profile() -> String {
    let mut csv = "stage,instruction,frequency,time,energy\n".to_owned();
    for (stage, work) in WORK.iter().enumerate() {
        for clock in CLOCKS {
            let mut plant = Plant::new(&healthy(), 1).unwrap();
            for gpu in 0..GPUS {
                let clock = Hertz(f64::from(clock) * 1e6);
                plant.lock_gpu_clock(gpu, Some(clock)).unwrap();
            }
            plant.settle();
            plant.run_iteration();
            let time = plant.last().length.0 / 1e3 * work / MICROBATCHES;
            let energy = plant.iteration_energy().0 / GPUS as f64 * work / MICROBATCHES;
            for (instruction, share) in [("forward", 1.0 / 3.0), ("backward", 2.0 / 3.0)] {
                let (time, energy) = (time * share, energy * share);
                writeln!(csv, "{stage},{instruction},{clock},{time},{energy}").unwrap();
            }
        }
    }
    csv
}

/// The planner's server, as a process.
struct Planner {
    child: Child,
    address: String,
    job: String,
}

impl Drop for Planner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Planner {
    fn start(folder: &Path) -> Self {
        let csv = folder.join("profile.csv");
        std::fs::write(&csv, profile()).unwrap();
        let mut child = Command::new(litd_rig::program("litd-planner").unwrap())
            .args(["--listen", "127.0.0.1:0"])
            .args(["--microbatches", &MICROBATCHES.to_string()])
            .args(["--unit", "0.5"])
            .args(["--blocking", &BLOCKING.0.to_string()])
            .args(["--state".as_ref(), folder.join("state").as_os_str()])
            .args(["--profile".as_ref(), csv.as_os_str()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap();
        let mut planner = Self {
            address: address.to_owned(),
            child,
            job: String::new(),
        };
        planner.register();
        planner
    }

    fn ask(&self, method: &str, target: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let body = body.to_string();
        let length = body.len();
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nhost: planner\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{target}: {answer}");
        serde_json::from_str(body).unwrap()
    }

    fn register(&mut self) {
        let job = json!({
            "job_id": "", "pp_degree": STAGES, "dp_degree": PIPELINES, "tp_degree": GPUS,
            "world_size": STAGES * PIPELINES * GPUS, "job_metadata": null,
        });
        let job = self.ask("POST", "/register_job", &job);
        self.job = job.as_str().unwrap().to_owned();
        let target = format!("/register_rank/{}", self.job);
        for node in 0..STAGES * PIPELINES {
            for gpu in 0..GPUS {
                let rank = json!({
                    "rank": node * GPUS + gpu, "dp_rank": node / STAGES, "pp_rank": node % STAGES,
                    "tp_rank": gpu, "available_frequencies": CLOCKS,
                });
                self.ask("POST", &target, &rank);
            }
        }
        // No rank gets a schedule before all have asked for theirs.
        thread::scope(|scope| {
            for rank in 0..STAGES * PIPELINES * GPUS {
                let planner = &*self;
                scope.spawn(move || planner.schedule(rank));
            }
        });
    }

    /// A rank's clock, in MHz: the mean over its iteration, which is what the simulated node, whose
    /// iteration has one clock, can follow.
    fn schedule(&self, rank: usize) -> u32 {
        let target = format!("/schedule/{}?rank={rank}", self.job);
        let answer = self.ask("GET", &target, &Value::Null);
        let clocks = answer["frequencies"].as_array().unwrap();
        let sum: f64 = clocks.iter().map(|it| it[1].as_f64().unwrap()).sum();
        (sum / clocks.len() as f64).ceil() as u32
    }
}

/// A stage: a node, litd on it, and the job's ranks.
struct Node {
    job: Job,
    // Before the rig: its time is what the daemon waits for.
    daemon: Daemon,
    rig: Rig,
    number: usize,
    clock: u32,
}

impl Node {
    fn start(number: usize) -> Self {
        let mut rig = Rig::new(&healthy(), number as u64).unwrap();
        let config = rig.config(CONFIG);
        let daemon = rig
            .spawn_clocked(&litd_rig::program("litd").unwrap(), &config)
            .unwrap();
        let mut job = rig.attach(JobSpec::new("train", 0..GPUS)).unwrap();
        job.welcome(SOON).unwrap();
        rig.hardware().settle();
        Self {
            job,
            rig,
            daemon,
            number,
            clock: 0,
        }
    }

    fn follow(&mut self, planner: &Planner) {
        let clock = planner.schedule(self.number * GPUS);
        if clock != self.clock {
            self.clock = clock;
            for rank in 0..GPUS {
                assert!(self.job.set_clock(rank, Some(clock)));
            }
        }
    }

    /// Runs an iteration of the stage: how long it computes, and with which energy.
    fn iterate(&mut self) -> (Millis, Joules) {
        self.job.run_iteration();
        let (length, energy) = {
            let hardware = self.rig.hardware();
            let plant = hardware.plant();
            (plant.last().length, plant.iteration_energy())
        };
        self.rig.advance(length.to_nanos()).unwrap();
        let work = WORK[self.number % STAGES];
        (length * work, energy * work)
    }

    /// Tells the planner what `litctl plan report` tells it once.
    fn report(&self, planner: &Planner) {
        let output = Command::new(LITCTL)
            .args(["plan", "report", "--once", "--job-id", &planner.job])
            .args(["--planner", &format!("http://{}", planner.address)])
            .args(["--first-rank", &(self.number * GPUS).to_string()])
            .env("LITD_CONTROL", self.rig.layout().control())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn device(&self, gpu: usize) -> DeviceStatus {
        let output = Command::new(LITCTL)
            .args(["status", "--json"])
            .env("LITD_CONTROL", self.rig.layout().control())
            .output();
        let status: litd_api::Status = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        status.devices[gpu].clone()
    }

    fn change(&self, scenario: &Scenario) {
        self.rig.hardware().change(scenario).unwrap();
        self.rig.hardware().settle();
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.rig.layout().stderr()).unwrap_or_default()
    }
}

/// The time of an iteration of the whole job, and each pipeline's energy.
#[derive(Debug, Clone, Copy)]
struct Cost {
    time: Millis,
    energy: [Joules; PIPELINES],
}

/// The nodes of the job, and the server of their plans.
struct Cluster {
    nodes: Vec<Node>,
    planner: Planner,
    _folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            planner: Planner::start(folder.path()),
            nodes: (0..STAGES * PIPELINES).map(Node::start).collect(),
            _folder: folder,
        }
    }

    fn iterate(&mut self) -> Cost {
        let stages: Vec<_> = self.nodes.iter_mut().map(Node::iterate).collect();
        // 1F1B: the longest stage once for each microbatch, the others once.
        let pipeline = |stages: &[(Millis, Joules)]| {
            let times = || stages.iter().map(|(time, _)| time.0);
            let longest = times().fold(0.0, f64::max);
            longest + (times().sum::<f64>() - longest) / MICROBATCHES
        };
        let times = stages.chunks(STAGES).map(pipeline);
        let time = times.fold(0.0, f64::max);
        let energy = |stages: &[(Millis, Joules)]| {
            let each = stages.iter().map(|&(busy, energy)| {
                let waits = (time - busy.0) / 1e3;
                energy.0 + waits * BLOCKING.0 * GPUS as f64
            });
            Joules(each.sum())
        };
        let mut chunks = stages.chunks(STAGES).map(energy);
        Cost {
            time: Millis(time),
            energy: [chunks.next().unwrap(), chunks.next().unwrap()],
        }
    }

    /// So many iterations, with reports and new plans in between. The last one's cost.
    fn run(&mut self, iterations: usize) -> Cost {
        let mut cost = self.iterate();
        for iteration in 1..iterations {
            if iteration % 10 == 0 {
                // The others have nothing to report.
                self.nodes[0].report(&self.planner);
                for node in &mut self.nodes {
                    node.follow(&self.planner);
                }
            }
            cost = self.iterate();
        }
        cost
    }

    fn clocks(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.clock).collect()
    }

    fn show(&self, when: &str, cost: Cost) {
        let caps = &self.nodes[0].rig.ledger().held()[..GPUS];
        let hot = self.nodes[0].device(HOT);
        println!(
            "SIMULATED {when:9} {:7.1} ms  {:6.1} J + {:6.1} J  clocks {:?} MHz, caps {:?}, hot GPU {:.0} MHz, {:?}",
            cost.time.0,
            cost.energy[0].0,
            cost.energy[1].0,
            self.clocks(),
            caps.iter().map(|cap| cap.0).collect::<Vec<_>>(),
            hot.clock.unwrap().0 / 1e6,
            hot.plan
        );
    }
}

fn degree(device: &DeviceStatus) -> f64 {
    device.plan.unwrap().degree
}

#[test]
fn a_hot_gpu_gets_power_then_the_others_slow_down_then_all_is_undone() {
    if !litd_rig::is_built("litd-planner") {
        return;
    }
    let mut cluster = Cluster::start();
    for node in &mut cluster.nodes {
        node.follow(&cluster.planner);
    }
    let before = cluster.run(60);
    cluster.show("before", before);
    let (planned, found) = (cluster.clocks(), cluster.nodes[0].rig.ledger().found());
    assert!(planned[1] < planned[0], "the smaller stage is slower");

    // Warmer: the clock needs more than the cap, and the neighbours can spare it.
    cluster.nodes[0].change(&scenario(0.078, 0.09));
    let warm = cluster.run(1);
    cluster.show("warmer", warm);
    let levelled = cluster.run(120);
    cluster.show("levelled", levelled);
    let held = cluster.nodes[0].rig.ledger().held();
    let said = cluster.nodes[0].said();
    assert!(warm.time > before.time * 1.01, "it is late at first");
    assert!(held[HOT] > found[HOT] + Watts(20.0), "{held:?}\n{said}");
    assert!(levelled.time < before.time * 1.005, "{levelled:?}\n{said}");
    assert_eq!(cluster.clocks(), planned, "the planner has nothing to do");
    let hot = cluster.nodes[0].device(HOT);
    assert_eq!(degree(&hot), 1.0);
    for gpu in (0..GPUS).filter(|&gpu| gpu != HOT) {
        let device = cluster.nodes[0].device(gpu);
        let clock = device.clock.unwrap().0 / 1e6;
        assert!(
            clock > f64::from(planned[0]) * 0.99,
            "gpu{gpu}: {clock} MHz"
        );
    }

    // Hot: no power helps, so the other pipeline takes its time.
    cluster.nodes[0].change(&scenario(0.095, 0.11));
    let late = cluster.run(1);
    cluster.show("hot", late);
    let slowed = cluster.run(120);
    cluster.show("slowed", slowed);
    let hot = cluster.nodes[0].device(HOT);
    let said = cluster.nodes[0].said();
    assert!(degree(&hot) > 1.03, "{hot:?}\n{said}");
    let clocks = cluster.clocks();
    assert_eq!(clocks[..STAGES], planned[..STAGES], "its own stay");
    assert!(
        clocks[2] < planned[2] && clocks[3] < planned[3],
        "{clocks:?}"
    );
    assert!(slowed.energy[1] < late.energy[1] * 0.98, "{slowed:?}");
    assert!(slowed.time < late.time * 1.01, "{slowed:?}, {late:?}");

    // Well again.
    cluster.nodes[0].change(&healthy());
    let after = cluster.run(200);
    cluster.show("after", after);
    assert_eq!(degree(&cluster.nodes[0].device(HOT)), 1.0);
    assert_eq!(cluster.clocks(), planned);
    assert!((after.time.0 / before.time.0 - 1.0).abs() < 0.005);
    assert!((after.energy[1].0 / before.energy[1].0 - 1.0).abs() < 0.01);
    finish(cluster);
}

/// The job ends and litd stops: all caps are what was found, all clocks are free.
fn finish(cluster: Cluster) {
    for node in cluster.nodes {
        let Node {
            job,
            mut rig,
            daemon,
            ..
        } = node;
        job.end();
        for _ in 0..10 {
            rig.advance(litd_units::Nanos(500_000_000)).unwrap();
        }
        assert!(rig.ledger().restored(), "{:?}", rig.ledger().held());
        let broken = rig.ledger().check();
        assert!(broken.is_empty(), "{broken:?}");
        let locked = |hardware: &litd_rig::Hardware| {
            let mut gpus = hardware.nvidia().gpus.iter();
            gpus.any(|gpu| gpu.clocks.is_some())
        };
        assert!(!locked(&rig.hardware()));
        drop(daemon);
    }
}
