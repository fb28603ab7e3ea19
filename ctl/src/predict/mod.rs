//! `litctl predict`: energy and latency of language-model inference before it runs (EnergyLens).

mod accuracy;
mod calibrate;
mod deploy;
mod evaluate;
mod files;
mod picture;
mod run;
mod sweep;

use clap::Subcommand;

use crate::Outcome;

/// Predict energy and latency of language-model inference
///
/// EnergyLens: a model's layer is a few lines of einsums, a GPU a public specification, and kernels are
/// predicted by models of how they are built. `run` predicts one configuration, `sweep` a grid; `calibrate` fits those models to measured kernels, `evaluate`
/// tells how far predictions are from a measured table.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Whole>),
    Sweep(Box<sweep::Args>),
    Evaluate(evaluate::Args),
    Calibrate(calibrate::Args),
    Accuracy(accuracy::Accuracy),
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.command {
        Command::Run(args) => run::run(args, json),
        Command::Sweep(args) => sweep::run(args, json),
        Command::Evaluate(args) => evaluate::run(args, json),
        Command::Calibrate(args) => calibrate::run(args, json),
        Command::Accuracy(args) => accuracy::run(args, json),
    }
}
