//! `litctl carbon run`: training with the configuration of the hour.

mod cost;
pub mod job;
mod learned;
mod lock;
mod machine;
mod print;
mod progress;
mod rates;
mod runner;
#[cfg(test)]
mod simulated;
mod state;

use std::fs;
use std::path::PathBuf;

use litd_carbon::Profile;
use litd_units::{Seconds, Tokens};

use self::job::Ask;
use self::runner::Runner;
pub use self::runner::{LATE, Late};
use super::input;
use super::{clock, source};
use crate::{Outcome, output};

/// Run a training job with the configuration of the hour, from checkpoint to checkpoint
///
/// At the end of each window a configuration is chosen as by `litctl carbon advise`. If it is
/// another one, litctl asks the job for a checkpoint: a file appears whose name is in
/// $LITD_CARBON_CHECKPOINT and which litd.checkpoint_due() looks for, or a signal is sent. The job
/// writes a checkpoint, writes to --progress how many tokens it has, and ends; litctl starts it
/// again. Its environment has LITD_TP, LITD_PP and LITD_DP, and {tp}, {pp} and {dp} in the command
/// are replaced. --state keeps what is needed after a crash of litctl: the same command then
/// continues. It prints text alone: --json is refused.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Power and throughput of each configuration
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// Tokens to train in all, such as 8e9
    #[arg(long, value_name = "N", value_parser = input::tokens)]
    tokens: Tokens,
    /// The deadline, in hours after the first start; another value at a restart moves the deadline
    #[arg(long, value_name = "D", value_parser = input::hours)]
    deadline_hours: Seconds,
    /// A file in which the job writes how many tokens its last checkpoint has
    #[arg(long, value_name = "FILE")]
    progress: PathBuf,
    /// A folder for the state that must survive a crash; it is created if missing
    #[arg(long, value_name = "FOLDER")]
    state: PathBuf,
    /// How the job is asked for a checkpoint: file, or signal:NAME
    #[arg(long, value_name = "HOW", default_value = "file")]
    checkpoint: Ask,
    /// How many seconds a checkpoint may take before the job is ended
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = input::seconds)]
    grace: Seconds,
    /// After so many failures of the job without a new checkpoint in between, litctl gives up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    failures: u32,
    /// After how many hours without a new checkpoint, by the wall clock, the job is taken to hang,
    /// ended, and started again as after a crash [default: never; a job that may hang is only
    /// reported]
    #[arg(long, value_name = "HOURS", value_parser = input::hours)]
    hang_hours: Option<Seconds>,
    /// The length of a window, in hours
    #[arg(long, value_name = "W", default_value = "1", value_parser = input::window)]
    window_hours: Seconds,
    /// K, the seconds that a switch takes; if recent switches took longer, their time counts
    /// [default: the profile's switch_s, or --grace until one was measured]
    #[arg(long, value_name = "K", value_parser = input::seconds)]
    switch_seconds: Option<Seconds>,
    /// The least speed to expect, as a share of the greatest speed that the job has had: longer
    /// sequences, a slow data loader or throttling slow it down. Plans meet the deadline at this
    /// speed, so a smaller share saves less
    #[arg(long, value_name = "SHARE", default_value_t = rates::STEADY, value_parser = input::share)]
    slowest: f64,
    /// How many seconds longer than K the first load of a configuration may take. A switch is left
    /// out if such a load could make the job late
    #[arg(long, value_name = "SECONDS", default_value = "1800", value_parser = input::seconds)]
    longest_load: Seconds,
    /// Print what would be started now, and start nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    source: source::Source,
    #[command(flatten)]
    clock: clock::Pace,
    /// The job's command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    // The last one, because its heading holds for all options after it.
    #[command(flatten)]
    print: print::Print,
}

const EXAMPLES: &str = "\
Examples:
  litctl carbon run --profile P.csv --tokens 8e9 --deadline-hours 48 \\
      --progress ckpt/tokens --state run --provider uk -- \\
      torchrun --nproc-per-node 8 train.py --tp {tp} --pp {pp}
  An hour of a recorded trace in a second:
  litctl carbon run … --trace T.csv --from 2024-05-08T00:00:00Z \\
      --speed 3600 -- ./train.sh
  litctl carbon run … --print slurm --nodes 2 -- \\
      srun torchrun … train.py --tp {tp} --pp {pp} | sbatch
  litctl carbon run … --print kubernetes --image IMAGE --claim CLAIM -- \\
      torchrun … | kubectl apply -f -

Exit status:
  0    the job has all its tokens, in time (or had them before, and nothing was
       started)
  2    the command line or a file is wrong, the job failed too often, or litctl
       was told to stop
  11   the job has all its tokens, but after the deadline";

pub fn run(args: &Args) -> Outcome {
    let profile: Profile = input::parse(&args.profile)?;
    if let Some(under) = args.print.print {
        let words = std::env::args_os().map(|word| {
            let word = word.into_string();
            word.map_err(|word| {
                format!("--print: {word:?} is not UTF-8, and no script or manifest can have it")
            })
        });
        let words: Vec<String> = words.collect::<Result<_, _>>()?;
        let script = print::script(&args.print, under, profile.gpus(), args.grace, &words)?;
        return output::text(&script);
    }
    // A dry run leaves nothing behind, and what is not there needs no lock.
    if args.dry_run && !args.state.exists() {
        let folder = std::path::absolute(&args.state)?;
        return Runner::new(args, folder, &profile)?.dry_run();
    }
    fs::create_dir_all(&args.state)
        .map_err(|error| format!("{}: {error}", args.state.display()))?;
    let folder = args.state.canonicalize();
    let folder = folder.map_err(|error| format!("{}: {error}", args.state.display()))?;
    let _lock = lock::Lock::of(&folder)?;
    let mut runner = Runner::new(args, folder, &profile)?;
    if args.dry_run {
        return runner.dry_run();
    }
    runner.run()
}
