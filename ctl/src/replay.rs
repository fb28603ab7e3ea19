//! `litctl replay`: plays recorded traces of all ranks to the daemon of this node, as if the job ran.

use std::path::PathBuf;

use litd_cli::traces;
use litd_replay::Job;
use litd_traces::{Choice, folder, join};
use serde::Serialize;

use crate::{Outcome, output};

/// Play the recorded traces of a job's ranks to the daemon of this node, as if the job ran
///
/// Each rank connects to the daemon's ingest socket as its hook would, tells of every recorded
/// iteration in the time that it took, and sends the kernels of those that the daemon asks for.
/// Where traces mark no iterations, a trace is one. Of a job on several nodes play the ranks of one
/// node: where the traces tell the ranks of collectives, litd can tell whether that node waits for
/// the others.
///
/// The daemon lets only processes in that hold their GPU. `litlab replay` needs no GPU: it plays
/// traces to a daemon of its own on a simulated node.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Trace files, or folders whose *.json and *.json.gz are read (not those of subfolders)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The ranks of the files, in the order of the files, where the files do not tell
    #[arg(long, value_delimiter = ',', value_name = "R,R,…", value_parser = litd_cli::spaced::<u32>)]
    ranks: Vec<u32>,
    /// How often the traces are played, one time after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// The job's name
    #[arg(long, default_value = "replay")]
    job: String,
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

/// What was played.
#[derive(Serialize)]
struct Report {
    ranks: usize,
    /// Iterations told of, on each rank.
    iterations: u64,
    /// Of those the ones that the daemon has asked for.
    sampled: u64,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let files = folder::files(&args.paths)?;
    let choice = Choice {
        ranks: &args.ranks,
        ..Choice::default()
    };
    let (traces, _) = traces::read(&files, choice)?;
    let (timelines, _) = join(traces)?;
    let mut job = Job::attach(&args.ingest, &args.job, timelines, &args.gpus)?;
    let (iterations, sampled) = job.play(args.times, || {})?;
    job.leave();
    let ranks = args.gpus.len();
    if json {
        return output::json(&Report {
            ranks,
            iterations,
            sampled,
        });
    }
    output::text(&format!(
        "played {} of {}; the daemon asked for {sampled}\n",
        output::count(iterations, "iteration"),
        output::count(ranks, "rank"),
    ))
}
