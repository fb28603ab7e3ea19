//! `litctl replay`: plays recorded traces of all ranks against a daemon, as if the job ran.

mod rank;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use litd_api::Status;
use litd_rig::{Daemon, Rig, gpu_address};
use litd_sim::Scenario;
use litd_traces::{Choice, Timeline, join};
use litd_units::Nanos;
use serde::Serialize;

use crate::analyze::read;
use crate::control::Client;
use crate::demo::daemon_program;
use crate::{Outcome, output, status};
use rank::Rank;

/// How long the daemon may take to let all ranks in, to ask for samples, and to show the last.
const SOON: Duration = Duration::from_secs(30);

/// How often is looked.
const POLL: Duration = Duration::from_millis(5);

/// Play the recorded traces of a job's ranks to a daemon, as if the job ran
///
/// Each rank connects to the daemon's ingest socket as its hook would, tells of every recorded
/// iteration in the time that it took, and sends the kernels of those that the daemon asks for.
/// Where traces mark no iterations, a trace is one. Of a job on several nodes play the ranks of one
/// node: where the traces tell the ranks of collectives, litd can tell whether that node waits for
/// the others.
///
/// A daemon on real hardware lets only processes in that hold their GPU. --stand-in needs none: it
/// starts a daemon of its own, which observes, on a simulated node whose GPUs train meanwhile, and shows
/// in the end what that has found.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Trace files, or folders whose *.json and *.json.gz are read (not those of subfolders)
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The ranks of the files, in the order of the files, where the files do not tell
    #[arg(long, value_delimiter = ',', value_name = "R,R,…", value_parser = crate::spaced::<u32>)]
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
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "GPU,GPU,…",
        required_unless_present = "stand_in"
    )]
    gpus: Vec<String>,
    /// Start a daemon on a simulated node for this
    #[arg(long, conflicts_with_all = ["ingest", "gpus"])]
    stand_in: bool,
}

const EXAMPLES: &str = "\
Examples:
  litctl replay traces/ --stand-in                         what would litd make of these traces?
  litctl replay traces/ --gpus 0000:05:00.0,0000:15:00.0   to the daemon of this node";

/// What was played, and what the stand-in's daemon shows of it.
#[derive(Serialize)]
struct Report {
    ranks: usize,
    /// Iterations told of, on each rank.
    iterations: u64,
    /// Of those the ones that the daemon has asked for.
    sampled: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let files = read::files(&args.paths)?;
    let choice = Choice {
        ranks: &args.ranks,
        ..Choice::default()
    };
    let (traces, _) = read::traces(&files, choice)?;
    let (timelines, _) = join(traces)?;
    let node = match args.stand_in {
        true => Some(StandIn::start(timelines.len())?),
        false => None,
    };
    let socket = match &node {
        Some(node) => node.rig.layout().ingest(),
        None => args.ingest.clone(),
    };
    let gpus = match &node {
        Some(_) => (0..timelines.len()).map(gpu_address).collect(),
        None => args.gpus.clone(),
    };
    let mut job = Job::attach(&socket, &args.job, timelines, &gpus)?;
    let load = || {
        if let Some(node) = &node {
            node.work();
        }
    };
    let (iterations, sampled) = job.play(args.times, load)?;
    let report = Report {
        ranks: gpus.len(),
        iterations,
        sampled,
        status: match &node {
            Some(node) => Some(node.status_after(sampled)?),
            None => None,
        },
    };
    job.leave();
    if json {
        return output::json(&report);
    }
    let told = format!(
        "played {} of {}; the daemon asked for {sampled}\n",
        output::count(iterations, "iteration"),
        output::count(report.ranks, "rank"),
    );
    let shown = report.status.as_ref().map(status::render);
    output::text(&(told + &shown.map(|text| format!("\n{text}")).unwrap_or_default()))
}

/// The job: all its ranks.
struct Job {
    ranks: Vec<Rank>,
}

impl Job {
    /// Connects all ranks, and waits until the daemon asks for samples.
    fn attach(
        socket: &Path,
        job: &str,
        timelines: Vec<Timeline>,
        gpus: &[String],
    ) -> Result<Self, Box<dyn Error>> {
        if gpus.len() != timelines.len() {
            let ranks = output::count(timelines.len(), "rank");
            return Err(format!(
                "--gpus names {} for {ranks}",
                output::count(gpus.len(), "GPU")
            )
            .into());
        }
        let deadline = Instant::now() + SOON;
        let here = u32::try_from(gpus.len())?;
        let largest = timelines.iter().map(|timeline| timeline.rank + 1).max();
        let told = timelines.iter().filter_map(|timeline| timeline.world_size);
        let world = told.chain(largest).max().unwrap_or(here).max(here);
        let mut ranks = Vec::new();
        let played: Arc<[u32]> = timelines.iter().map(|timeline| timeline.rank).collect();
        for (local, (timeline, gpu)) in (0..).zip(timelines.into_iter().zip(gpus)) {
            let hello = rank::hello(job, &timeline, (local, here, world), gpu);
            let here = played.clone();
            ranks.push(Rank::connect(socket, hello, &timeline, here, deadline)?);
        }
        let mut job = Self { ranks };
        while !job.ranks.iter().all(Rank::is_asked) {
            if Instant::now() > deadline {
                return Err(
                    "the daemon asks for no samples: is its policy off, or does it wait \
                            for other ranks?"
                        .into(),
                );
            }
            thread::sleep(POLL);
            job.poll()?;
        }
        Ok(job)
    }

    /// Plays all iterations so many times, in the time that they took, each with its load on the
    /// GPUs; answers how many were told of, and how many asked for.
    fn play(&mut self, times: u32, load: impl Fn()) -> Result<(u64, u64), Box<dyn Error>> {
        let recorded = self.ranks.iter().map(Rank::iterations).min().unwrap_or(0);
        let span = self.ranks.iter().map(Rank::span).max().unwrap_or_default();
        // The first iteration played is one that is asked for.
        let first = self.ranks.iter().map(Rank::first).max().unwrap_or(0);
        let (mut told, mut sampled) = (0, 0);
        for round in 0..times {
            let shift = Nanos(span.0.saturating_mul(i64::from(round)));
            for iteration in 0..recorded {
                self.poll()?;
                load();
                let lasts = self.ranks.iter().map(|rank| rank.duration(iteration));
                let duration = lasts.max().unwrap_or_default();
                thread::sleep(Duration::from_nanos(u64::try_from(duration.0).unwrap_or(0)));
                let mut asked = true;
                for rank in &mut self.ranks {
                    asked &= rank.tell(first + told, iteration, duration, shift)?;
                }
                told += 1;
                sampled += u64::from(asked);
            }
        }
        Ok((told, sampled))
    }

    fn poll(&mut self) -> Outcome {
        self.ranks.iter_mut().try_for_each(|rank| rank.poll())
    }

    fn leave(self) {
        self.ranks.into_iter().for_each(Rank::leave);
    }
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
            client: Client::at(&rig.layout().control())?,
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
            if most >= samples.min(1) || Instant::now() > deadline {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }
}
