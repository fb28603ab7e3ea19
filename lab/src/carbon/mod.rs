//! `litlab carbon`: the policies of carbon-aware parallelism on recorded traces, with SIMULATED jobs.

mod episode;
mod figures;
mod profiles;
mod reproduce;
mod study;
mod summary;
mod synthetic;
mod zone;

use clap::Subcommand;
use litd_cli::Outcome;

pub use reproduce::{Args as ReproduceArgs, run as reproduce};

/// Study carbon-aware parallelism: SIMULATED jobs on recorded carbon intensity
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Study(study::Args),
    Profiles(profiles::Args),
}

pub fn run(args: &Args, json: bool) -> Outcome {
    if json {
        return Err("--json: studies of carbon print no JSON; read the files in --out".into());
    }
    match &args.command {
        Command::Study(args) => study::run(args),
        Command::Profiles(args) => profiles::run(args),
    }
}
