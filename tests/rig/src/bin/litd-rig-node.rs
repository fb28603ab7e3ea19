//! A simulated node as a program, for tests that can't be its parent process: eight GPUs and two
//! CPU sockets behind `DIRECTORY/hardware.sock`, and a training job with a rank on each GPU, which
//! connects to litd's ingest socket whenever litd is there. `DIRECTORY/state` says, ever anew,
//! what the ledger has seen: one `name=value` a line.
//!
//!   litd-rig-node DIRECTORY INGEST-SOCKET
//!
//! As litd does, it serves the process with ROCm SMI in it, looks for an NVIDIA GPU, or keeps some open, if that is
//! its first argument.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::{self, sleep};
use std::time::Duration;

use litd_power::{nvml, rocm_smi};
use litd_rig::{Hardware, Job, JobSpec, Ledger, Node, RankState, SharedHardware};
use litd_sim::Scenario;
use litd_units::Watts;

/// How often the state is written.
const STATE: Duration = Duration::from_millis(20);
/// An iteration is shown so fast.
const ITERATION: Duration = Duration::from_millis(5);
/// How often a job looks whether litd is there.
const RETRY: Duration = Duration::from_millis(100);
/// How long litd may take to answer a hello.
const WELCOME: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    if words.next_if(|word| word == rocm_smi::COMMAND).is_some() {
        return rocm_smi::serve(words);
    }
    if words.next_if(|word| word == nvml::LOOK).is_some() {
        return nvml::look(words);
    }
    if words.next_if(|word| word == nvml::KEEP).is_some() {
        return nvml::keep(words);
    }
    let arguments: Vec<PathBuf> = words.map(PathBuf::from).collect();
    let [directory, ingest] = arguments.as_slice() else {
        eprintln!("usage: litd-rig-node DIRECTORY INGEST-SOCKET");
        return ExitCode::from(2);
    };
    match run(directory, ingest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("litd-rig-node: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(directory: &Path, ingest: &Path) -> Result<(), Box<dyn Error>> {
    let hardware = Hardware::new(&Scenario::builtin("default")?, 1)?;
    let ledger = hardware.ledger();
    let hardware = hardware.shared();
    let _node = Node::start(&directory.join("hardware.sock"), hardware.clone())?;
    // The job may wait for a daemon that hangs; the state is told all the same.
    let ingest = ingest.to_owned();
    thread::spawn(move || train(&ingest, &hardware));
    loop {
        tell(directory, &ledger)?;
        sleep(STATE);
    }
}

/// Trains for ever, with litd where it is there.
fn train(ingest: &Path, hardware: &SharedHardware) {
    loop {
        let spec = JobSpec::new("boot", 0..8);
        let job = Job::attach(ingest, spec, hardware.clone(), Default::default());
        if let Ok(mut job) = job
            && job.welcome(WELCOME).is_ok()
        {
            while is_welcome(&job) {
                job.run_iteration();
                sleep(ITERATION);
            }
        }
        sleep(RETRY);
    }
}

fn is_welcome(job: &Job) -> bool {
    (0..job.ranks()).all(|rank| matches!(job.state(rank), Some(RankState::Welcome(_))))
}

/// Replaces the state as a whole: whoever reads it sees one moment.
fn tell(directory: &Path, ledger: &Ledger) -> io::Result<()> {
    let list = |caps: Vec<Watts>| {
        let caps: Vec<String> = caps.iter().map(|cap| cap.0.to_string()).collect();
        caps.join(" ")
    };
    let violations = ledger.check();
    let mut text = format!(
        "found={}\nheld={}\nrestored={}\nwrites={}\nviolations={}\n",
        list(ledger.found()),
        list(ledger.held()),
        ledger.restored(),
        ledger.len(),
        violations.len()
    );
    for violation in &violations {
        let _ = writeln!(text, "violation={violation}");
    }
    let new = directory.join("state.new");
    fs::write(&new, text)?;
    fs::rename(&new, directory.join("state"))
}
