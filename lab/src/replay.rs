//! `litlab replay`: plays recorded traces to a daemon on a simulated node.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use litd_api::Status;
use litd_cli::traces::{self, Recorded};
use litd_cli::{Outcome, output, status};
use litd_client::Client;
use litd_replay::Job;
use litd_rig::{Daemon, Rig, gpu_address};
use litd_sim::Scenario;
use serde::Serialize;

use crate::demo::daemon_program;

/// How long the daemon may take to show the last sample. One that it leaves out is never shown.
const SOON: Duration = Duration::from_secs(5);

/// How often is looked.
const POLL: Duration = Duration::from_millis(5);

/// Replay traces to a daemon on a SIMULATED node, and print its diagnosis
///
/// Starts its own daemon in the mode observe, on a simulated node with a GPU for each rank. Each
/// rank connects to the daemon as its hook would. It reports each recorded iteration when the
/// iteration would have ended in real time, and sends the kernels of the iterations that the daemon
/// asks for. A trace without marks of iterations counts as one iteration. Then prints the daemon's diagnosis: leads
/// are those of the traces; caps, power and clocks are SIMULATED.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    recorded: Recorded,
    /// What litlab always does: for scripts that say so
    #[arg(long, hide = true)]
    stand_in: bool,
}

const EXAMPLES: &str = "\
Example:
  litlab replay traces/

litlab reads Kineto's JSON; if it was built with --features formats, all formats
that litctl reads.";

/// What was played, and what the daemon shows of it.
#[derive(Serialize)]
struct Report {
    ranks: usize,
    /// Iterations told of, on each rank.
    iterations: u64,
    /// Of those the ones that the daemon has asked for.
    sampled: u64,
    status: Status,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let timelines = args.recorded.timelines()?;
    let gpus: Vec<String> = (0..timelines.len()).map(gpu_address).collect();
    let node = StandIn::start(timelines.len())?;
    let ingest = node.rig.layout().ingest();
    let mut job = Job::attach(&ingest, &args.recorded.job, timelines, &gpus)?;
    let (iterations, sampled) = job.play(args.recorded.times, || node.work())?;
    let report = Report {
        ranks: gpus.len(),
        iterations,
        sampled,
        status: node.status_after(sampled)?,
    };
    job.leave();
    if json {
        return output::json(&report);
    }
    output::text(&format!(
        "{}\n{}",
        traces::played(iterations, report.ranks, sampled),
        status::render(&report.status),
    ))
}

/// A daemon on a simulated node, whose GPUs this process holds.
struct StandIn {
    client: Client,
    _daemon: Daemon,
    rig: Rig,
}

impl StandIn {
    fn start(ranks: usize) -> Result<Self, Box<dyn Error>> {
        let rig = Rig::new(&Scenario::builtin("default")?, 1)?;
        let gpus = rig.hardware().plant().gpu_count();
        if ranks > gpus {
            return Err(
                format!("the simulated node has {gpus} GPUs, and these are {ranks} ranks").into(),
            );
        }
        // GPUs that idle would show the daemon that power limits none of them.
        rig.hardware().run_iteration();
        let config = "mode = \"observe\"\nlaw.calibration.sampling_period = 1\n";
        let daemon = rig.spawn(&daemon_program()?, &rig.config(config))?;
        Ok(Self {
            client: Client::new(&rig.layout().control())?,
            _daemon: daemon,
            rig,
        })
    }

    /// The GPUs work for an iteration of the simulated node's own, so that their sensors are those of
    /// GPUs that train.
    fn work(&self) {
        self.rig.hardware().run_iteration();
    }

    /// What the daemon shows once it has taken in so many samples, or left them out.
    fn status_after(&self, samples: u64) -> Result<Status, Box<dyn Error>> {
        let deadline = Instant::now() + SOON;
        loop {
            let status = self.client.status()?;
            let seen = |job: &litd_api::JobStatus| job.samples + job.bad_samples;
            let most = status.jobs.iter().map(seen).max().unwrap_or(0);
            if most >= samples || Instant::now() > deadline {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }
}
