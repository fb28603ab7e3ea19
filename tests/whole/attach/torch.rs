//! PyTorch itself, with scripts that know nothing of litd.
//!
//! `LITD_TORCH_PYTHON`: a Python that has PyTorch 2.7 or later. Otherwise the gate's own environment is looked for,
//! then the system's.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use litd_api::WishedTrace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{ON, Stand, has_loopback};

/// Trains a small model for so many steps, and prints its losses bit by bit.
const TRAINS: &str = "
import sys, time, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
print('ready', flush=True)
for step in range(int(sys.argv[1])):
    x = torch.randn(32, 64)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex(), flush=True)
    time.sleep(0.02)
";

/// A rank of a job of two, which trains with DistributedDataParallel over gloo.
const RANK: &str = "
import os, sys, time, torch
import torch.distributed as dist
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group('gloo', init_method='file://STORE', rank=int(os.environ['RANK']), world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
print('ready', flush=True)
for step in range(int(sys.argv[1])):
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.05)
";

/// Infers for so many steps: no optimizer.
const INFERS: &str = "
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
print('ready', flush=True)
with torch.no_grad():
    for step in range(int(sys.argv[1])):
        model(torch.ones(32, 64))
        print(step, flush=True)
        time.sleep(0.02)
";

/// A Python with a PyTorch that has the client, or a sentence on why there is none. Looked for once: importing takes
/// long.
fn python() -> Option<PathBuf> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(find).clone();
    if found.is_none() {
        eprintln!(
            "SKIPPED: no Python here has PyTorch 2.7 or later, whose client is the first that works"
        );
    }
    found
}

fn find() -> Option<PathBuf> {
    let told = std::env::var_os("LITD_TORCH_PYTHON").map(PathBuf::from);
    let gates = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/torch/bin/python");
    let candidates = told.into_iter().chain([gates, "python3".into()]);
    let has_it = |python: &PathBuf| {
        let asks = "import torch; v = torch.__version__.split('.'); assert (int(v[0]), int(v[1])) >= (2, 7)";
        let run = Command::new(python).args(["-c", asks]).output();
        run.is_ok_and(|it| it.status.success())
    };
    candidates.into_iter().find(has_it)
}

/// A script that runs.
struct Script {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Script {
    fn start(python: &Path, text: &str, steps: u32, asks: bool) -> Self {
        let mut command = Command::new(python);
        command.args(["-c", text, &steps.to_string()]);
        if asks {
            command.env("KINETO_USE_DAEMON", "1");
        }
        let [script] = Self::start_all([command]);
        script
    }

    /// Starts scripts that wait for each other.
    fn start_all<const N: usize>(commands: [Command; N]) -> [Self; N] {
        let mut scripts = commands.map(|mut command| {
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            Self { child, lines }
        });
        for script in &mut scripts {
            assert_eq!(script.lines.next().unwrap().unwrap(), "ready");
        }
        scripts
    }

    /// What it prints until it ends.
    fn ends(mut self) -> Vec<String> {
        let lines = self.lines.by_ref().map(Result::unwrap).collect();
        assert!(self.child.wait().unwrap().success());
        lines
    }
}

/// Waits until a process asks, has it record, and returns its trace.
fn traced(stand: &Stand, pid: u32) -> (WishedTrace, String) {
    let deadline = Instant::now() + Duration::from_secs(40);
    let wished = loop {
        match stand.wish(pid) {
            Ok(wished) => break wished.traces[0].clone(),
            Err(why) => assert!(Instant::now() < deadline, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    let text = written(&wished);
    (wished, text)
}

/// The trace that a process has been told to record.
fn written(wished: &WishedTrace) -> String {
    let asked = Instant::now();
    loop {
        if let Ok(text) = fs::read_to_string(&wished.file) {
            println!(
                "{}: {} bytes after {:?}",
                wished.file,
                text.len(),
                asked.elapsed()
            );
            fs::remove_file(&wished.file).unwrap();
            return text;
        }
        assert!(
            asked.elapsed() < Duration::from_secs(60),
            "no {}",
            wished.file
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_unmodified_script_is_traced_by_iterations() {
    let Some(python) = python() else { return };
    let Some(stand) = Stand::new(ON) else { return };
    let script = Script::start(&python, TRAINS, 1000, true);
    let (_, text) = traced(&stand, script.child.id());
    let steps = text.matches("Optimizer.step#SGD.step").count();
    assert!((1..=4).contains(&steps), "{steps} steps");
    // Nothing that the script computes is another number.
    let with = script.ends();
    let without = Script::start(&python, TRAINS, 300, false).ends();
    assert_eq!(with[..300], without[..]);
}

/// Ranks of one job begin their traces at the same iteration, although each learns of it at a time of its own.
#[test]
fn ranks_of_a_job_record_the_same_iterations() {
    let Some(python) = python() else { return };
    let Some(stand) = Stand::new(ON) else { return };
    if !has_loopback() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store").display().to_string();
    let mut ranks = Script::start_all([0, 1].map(|rank: u32| {
        let mut command = Command::new(&python);
        command.args(["-c", &RANK.replace("STORE", &store), "1500"]);
        command.envs([("KINETO_USE_DAEMON", "1"), ("RANK", &rank.to_string())]);
        command
    }));
    let pids = ranks.each_ref().map(|it| it.child.id());
    let deadline = Instant::now() + Duration::from_secs(40);
    while stand.traceable().processes.len() < 2 {
        assert!(Instant::now() < deadline, "{:?}", stand.traceable());
        std::thread::sleep(Duration::from_millis(100));
    }
    let wished = stand.wish_all(&pids).unwrap().traces;
    let steps: Vec<_> = wished.iter().map(|it| steps(&written(it))).collect();
    // Each all-reduce waits for both; the next multiple at which one might have begun is ten iterations away.
    assert_eq!(steps[0].len(), steps[1].len(), "{steps:?}");
    assert!(!steps[0].is_empty());
    for (one, other) in steps[0].iter().zip(&steps[1]) {
        let apart = (one - other).abs();
        assert!(apart < 250_000.0, "{apart} us apart: {steps:?}");
    }
    for rank in &mut ranks {
        rank.child.kill().unwrap();
        rank.child.wait().unwrap();
    }
}

/// When the optimizer's steps of a trace began, in microseconds.
fn steps(text: &str) -> Vec<f64> {
    let trace: Value = serde_json::from_str(text).unwrap();
    let base = trace["baseTimeNanoseconds"].as_f64().unwrap_or(0.0) / 1e3;
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let steps = events.filter(|it| {
        let name = it["name"].as_str().unwrap_or_default();
        name.starts_with("Optimizer.step#") && it["ph"] == "X"
    });
    let mut times: Vec<f64> = steps.map(|it| it["ts"].as_f64().unwrap() + base).collect();
    times.sort_by(f64::total_cmp);
    times
}

#[test]
fn an_inference_is_traced_by_its_duration() {
    let Some(python) = python() else { return };
    let Some(stand) = Stand::new(ON) else { return };
    let mut script = Script::start(&python, INFERS, 3000, true);
    let (_, text) = traced(&stand, script.child.id());
    assert!(text.contains("traceEvents"));
    script.child.kill().unwrap();
    script.child.wait().unwrap();
}

/// The daemon is killed, hangs, and comes back while the script trains: the script goes on, with the same losses.
#[test]
fn whatever_becomes_of_the_daemon_the_script_goes_on() {
    let Some(python) = python() else { return };
    let Some(stand) = Stand::new(ON) else { return };
    let script = Script::start(&python, TRAINS, 1200, true);
    traced(&stand, script.child.id());
    let litd = Pid::from_raw(stand.daemon.pid().try_into().unwrap());
    kill(litd, Signal::SIGSTOP).unwrap();
    std::thread::sleep(Duration::from_secs(7));
    kill(litd, Signal::SIGCONT).unwrap();
    drop(stand);
    std::thread::sleep(Duration::from_secs(3));
    let _stand = Stand::here(ON);
    let with = script.ends();
    assert_eq!(with.len(), 1200);
    let without = Script::start(&python, TRAINS, 1200, false).ends();
    assert_eq!(with, without);
}
