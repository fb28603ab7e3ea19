//! `litctl predict`: energy and latency of language-model inference before it runs (EnergyLens).

mod calibrate;
mod evaluate;
mod files;

use clap::Subcommand;

use crate::Outcome;

/// Predict energy and latency of language-model inference
///
/// EnergyLens: a model's layer is a few lines of einsums, a GPU a public specification, and kernels are
/// predicted by models of how they are built. `calibrate` fits those models to measured kernels, `evaluate`
/// tells how far predictions are from a measured table.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Evaluate(evaluate::Args),
    Calibrate(calibrate::Args),
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.command {
        Command::Evaluate(args) => evaluate::run(args, json),
        Command::Calibrate(args) => calibrate::run(args, json),
    }
}
