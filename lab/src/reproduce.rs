//! `litlab reproduce`: a paper's evaluation, with our numbers beside its.

use clap::Subcommand;
use litd_cli::Outcome;

use crate::carbon;

/// Repeat a paper's evaluation and print our numbers beside its
///
/// What is SIMULATED says so, and so does what cannot be compared.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Subcommand)]
enum Paper {
    Carbon(carbon::ReproduceArgs),
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.paper {
        Paper::Carbon(args) => carbon::reproduce(args, json),
    }
}
