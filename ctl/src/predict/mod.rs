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
/// EnergyLens: a model's layer is described by a few lines of einsums, and a GPU by its public
/// specification; latency and power of each kernel are computed from how kernels are built (tiles,
/// waves, pages). `run` predicts one configuration and `sweep` a grid; `calibrate` fits constants
/// to measured kernels; `evaluate` and `accuracy` print how far predictions are from measurements.
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
