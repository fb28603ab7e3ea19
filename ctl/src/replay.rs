//! `litctl replay`: plays recorded traces of all ranks to the daemon of this node, as if the job ran.

use std::path::PathBuf;

use litd_cli::traces::{self, Recorded};
use litd_replay::Job;
use serde::Serialize;

use crate::{Outcome, output};

/// Replay the recorded traces of a job's ranks to a daemon on simulated hardware, as if the job ran
///
/// Each rank connects to the daemon's ingest socket as its hook would. It reports each recorded iteration when the
/// iteration would have ended in real time, and sends the kernels of iterations that the daemon asks for. A trace
/// without marks of iterations counts as one iteration. If the job ran on several nodes, replay only the ranks of one
/// node: if the traces name the ranks of collectives, litd can determine whether that node waits for the others.
///
/// A daemon on real hardware refuses the ranks: it accepts only processes that use their GPU, and
/// litctl uses none. `litlab demo --stay --accept-any` starts a daemon that accepts them. `litlab
/// replay` replays traces to a daemon of its own.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    recorded: Recorded,
    /// The daemon's ingest socket
    #[arg(
        long,
        value_name = "PATH",
        env = "LITD_SOCKET",
        default_value = "/run/litd/ingest.sock"
    )]
    ingest: PathBuf,
    /// The GPU of each rank, by PCI address or UUID
    #[arg(long, value_delimiter = ',', value_name = "GPU,GPU,…", required = true)]
    gpus: Vec<String>,
}

const EXAMPLES: &str = "\
Example:
  litctl replay traces/ --gpus 0000:05:00.0,0000:15:00.0";

/// A summary of the replay.
#[derive(Serialize)]
struct Report {
    ranks: usize,
    /// Iterations told of, on each rank.
    iterations: u64,
    /// Of those the ones that the daemon has asked for.
    sampled: u64,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let timelines = args.recorded.timelines()?;
    if args.gpus.len() != timelines.len() {
        let ranks = output::count(timelines.len(), "rank");
        let gpus = output::count(args.gpus.len(), "GPU");
        return Err(format!("--gpus names {gpus} for {ranks}").into());
    }
    let mut job = Job::attach(&args.ingest, &args.recorded.job, timelines, &args.gpus)?;
    let (iterations, sampled) = job.play(args.recorded.times, || {})?;
    job.leave();
    let ranks = args.gpus.len();
    if json {
        return output::json(&Report {
            ranks,
            iterations,
            sampled,
        });
    }
    output::text(&traces::played(iterations, ranks, sampled))
}
