//! `litlab demo`: the loop on a simulated node, to watch.

mod daemon;
mod in_process;
mod live;
mod report;
mod run;
mod stay;
mod svg;

use std::io::IsTerminal;
use std::ops::Range;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use litd_policies::{Config, Policy};
use litd_rig::{JobSpec, Timing};
use litd_sim::Scenario;

use daemon::OverSockets;
pub use daemon::is_called_litd;
#[cfg(feature = "recorded")]
pub use daemon::program as daemon_program;
use in_process::InProcess;
use litd_cli::{Outcome, output};
use run::{Frame, Run, Summary, Watched};

/// Watch litd balance a simulated node in which one GPU is slow
///
/// Starts the daemon on a simulated node, under a simulated clock, and runs a training job that
/// reports to it, from warm-up to convergence. On a terminal it shows caps, leads and clocks as
/// they change. Everything it prints is SIMULATED.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The policy: gpu-red, gpu-realloc, cpu-slosh, or observe [default: each of the first three,
    /// or those that the scenario names]
    #[arg(long, value_name = "POLICY")]
    policy: Option<Policy>,
    /// A scenario file, or the name of a shipped one (see --list-scenarios)
    #[arg(long, value_name = "FILE", default_value = "default")]
    scenario: String,
    /// The seed of the noise; the same seed gives the same numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What the job's hooks measure: all kernels (with the profiler), modules (without it), or
    /// arrivals at collectives
    #[arg(long, value_enum, default_value_t, conflicts_with = "in_process")]
    measure: Measure,
    /// Draw leads, caps, clocks and throughput over time into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// No live view, even on a terminal
    #[arg(long)]
    no_live: bool,
    /// Run until stopped, in real time, as a daemon for `litctl status`, `top` and other commands;
    /// with one policy [default: gpu-red]
    #[arg(long, conflicts_with_all = ["svg", "in_process"])]
    stay: bool,
    /// With --stay: the simulated job leaves the last two GPUs free, and processes of your user can
    /// attach there as ranks, even on a machine without GPUs
    #[arg(long, requires = "stay")]
    accept_any: bool,
    /// Run the loop in this process instead of in a daemon behind its sockets, which is faster and
    /// gives the same caps
    #[arg(long)]
    in_process: bool,
    /// List the shipped scenarios
    #[arg(long)]
    list_scenarios: bool,
}

/// What hooks time.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Measure {
    /// All kernels
    #[default]
    Kernels,
    /// Modules of one kernel
    Leaf,
    /// Modules of several kernels, such as an attention
    Block,
    /// Arrivals at collectives and nothing else
    Arrivals,
}

impl Measure {
    fn timing(self) -> Timing {
        match self {
            Self::Kernels => Timing::Kernels,
            Self::Leaf => Timing::Leaves,
            Self::Block => Timing::Blocks,
            Self::Arrivals => Timing::Arrivals,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  litlab demo                                  all three policies
  litlab demo --policy gpu-red --svg red.svg   one policy, and a picture
  litlab demo --scenario thermal-straggler     where doing nothing is right
  litlab demo --measure leaf                   a job whose hooks time modules
  litlab demo --stay                           a daemon to play with
  litlab demo --stay --accept-any              the same; your own jobs attach
  litlab demo --json | jq '.policies[0]'       for scripts";

/// The user ended the live view.
#[derive(Debug, thiserror::Error)]
#[error("stopped at iteration {iteration} of {policy}")]
pub struct Stopped {
    iteration: u32,
    policy: Policy,
}

/// A run's history and its end.
struct Finished {
    frames: Vec<Frame>,
    summary: Summary,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    if args.list_scenarios {
        return report::list_scenarios(json);
    }
    let scenario = load(&args.scenario)?;
    if scenario.gpus.len() < 2 {
        return Err(format!("{}: leads need at least two GPUs", args.scenario).into());
    }
    if let Some(file) = &args.svg {
        check_folder(file)?;
    }
    if args.stay && json {
        return Err("--stay prints no JSON: ask the daemon with `litctl status --json`".into());
    }
    if args.stay {
        let policy = args.policy.unwrap_or(Policy::GpuRed);
        let free = stay::free(&scenario, args.accept_any)?;
        let job = job_on(0..free.start, args);
        return stay::run(policy, &scenario, args.seed, job, &free);
    }
    let policies = policies(args, &scenario)?;
    let watch = !json && !args.no_live && std::io::stdout().is_terminal();
    if !json && !watch {
        report::print_heading(&scenario, args.seed)?;
    }
    let mut finished = Vec::new();
    let mut outcome = Ok(());
    for policy in policies {
        let run = start(policy, &scenario, args)?;
        let done = if watch {
            live::watch(run, &scenario)
        } else {
            quietly(run, json)
        };
        match done {
            Ok(done) => finished.push(done),
            // What is finished is shown nevertheless.
            Err(stopped) if stopped.is::<Stopped>() => {
                outcome = Err(stopped);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    if json {
        report::print_json(&finished)?;
    } else if !finished.is_empty() {
        if watch {
            report::print_heading(&scenario, args.seed)?;
        }
        report::print_table(&finished, args.scenario == "default")?;
    }
    outcome?;
    if let Some(file) = &args.svg {
        svg::draw(file, &scenario, &finished)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        if !json {
            output::text(&format!("\nThe picture is in {}.\n", file.display()))?;
        }
    }
    Ok(())
}

/// The job, with a rank on each of these GPUs.
fn job_on(gpus: Range<usize>, args: &Args) -> JobSpec {
    JobSpec::new(daemon::JOB, gpus).timed(args.measure.timing())
}

/// One policy's run, about to begin.
fn start(
    policy: Policy,
    scenario: &Scenario,
    args: &Args,
) -> Result<Run, Box<dyn std::error::Error>> {
    let config = Config::default();
    let watched: Box<dyn Watched> = if args.in_process {
        Box::new(InProcess::new(policy, scenario, args.seed, &config)?)
    } else {
        let job = job_on(0..scenario.gpus.len(), args);
        Box::new(OverSockets::new(policy, scenario, args.seed, job, &config)?)
    };
    Ok(Run::new(policy, config, watched))
}

/// A picture that cannot be written is better known before the run than after it.
fn check_folder(file: &Path) -> Result<(), String> {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if folder.is_dir() {
        return Ok(());
    }
    let (file, folder) = (file.display(), folder.display());
    Err(format!("{file}: there is no folder {folder}"))
}

/// A shipped scenario by its name, any other from its file.
fn load(name: &str) -> Result<Scenario, Box<dyn std::error::Error>> {
    if litd_sim::scenario::builtin_names().any(|builtin| builtin == name) {
        return Ok(Scenario::builtin(name)?);
    }
    let file = Path::new(name);
    if !file.exists() {
        let names: Vec<_> = litd_sim::scenario::builtin_names().collect();
        return Err(format!(
            "{name}: no such scenario file, and no shipped scenario has that name; there are {}",
            names.join(", ")
        )
        .into());
    }
    Ok(Scenario::load(file)?)
}

fn policies(args: &Args, scenario: &Scenario) -> Result<Vec<Policy>, Box<dyn std::error::Error>> {
    if let Some(policy) = args.policy {
        return Ok(vec![policy]);
    }
    if scenario.policies.is_empty() {
        return Ok(Policy::STEERING.to_vec());
    }
    let parsed = scenario.policies.iter().map(|name| name.parse());
    Ok(parsed.collect::<Result<_, _>>()?)
}

/// Runs to the end with no more than a progress bar.
fn quietly(mut run: Run, json: bool) -> Result<Finished, Box<dyn std::error::Error>> {
    let bar = ProgressBar::new(1000);
    if json {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    bar.set_style(
        ProgressStyle::with_template("{msg:12} {bar:40} {percent:>3} %")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_message(run.policy().name());
    let mut frames = Vec::new();
    while let Some(frame) = run.advance()? {
        bar.set_position((run.progress() * 1000.0) as u64);
        frames.push(frame);
    }
    bar.finish_and_clear();
    Ok(Finished {
        summary: run.summary(&frames),
        frames,
    })
}
