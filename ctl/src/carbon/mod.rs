//! `litctl carbon`: which parallel configuration trains in which hour, by the grid's carbon intensity.

pub mod advise;
mod asker;
mod clock;
mod follow;
pub mod http;
mod input;
mod profile;
pub mod run;
mod schedule;
mod source;
mod standing;

use clap::Subcommand;

use crate::Outcome;

/// Train with the configuration that suits the hour's carbon intensity, and still meet the deadline
///
/// A training job can be divided among its GPUs in several configurations of tensor, pipeline and
/// data parallelism (TP, PP, DP). Some draw less power, others train faster. If the carbon
/// intensity of electricity varies, a job emits less if it trains with little power in hours of
/// high intensity and fast in hours of low intensity (Aboualim and Lee, carbon-aware dynamic
/// parallelism).
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Schedule(schedule::Args),
    Advise(advise::Args),
    Run(Box<run::Args>),
    Follow(follow::Args),
    Profile(profile::Args),
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.command {
        Command::Schedule(args) => schedule::run(args, json),
        Command::Advise(args) => advise::run(args, json),
        // What asks for JSON and gets text would fail later, and not here.
        _ if json => Err("--json: run, follow and profile print text alone; leave it out".into()),
        Command::Run(args) => run::run(args),
        Command::Follow(args) => follow::run(args),
        Command::Profile(args) => profile::run(args),
    }
}
