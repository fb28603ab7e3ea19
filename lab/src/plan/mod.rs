//! `litlab plan`: Perseus and Kareus on SIMULATED measurements.

pub mod kareus;
mod synthetic;

use clap::Subcommand;
use litd_cli::Outcome;
use litd_cli::plan::{frontier, kareus as joint, lookup, timeline};

use kareus::Simulated;
use synthetic::Synthetic;

/// Plan a training pipeline's clocks, on SIMULATED measurements
///
/// The commands of `litctl plan` on simulated measurements, and Perseus's emulation of large clusters
/// from measurements of single GPUs. The output shows how the solver behaves, not the savings of a real
/// pipeline.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Frontier(frontier::Args<Synthetic>),
    Lookup(lookup::Args<Synthetic>),
    Timeline(timeline::Args<Synthetic>),
    /// Repeat Perseus's large-scale emulation (Tables 5 and 6, Figure 8), beside its numbers
    Emulate,
    Kareus(joint::Args<Simulated>),
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.command {
        Command::Frontier(args) => frontier::run(args, json),
        Command::Lookup(args) => lookup::run(args, json),
        Command::Timeline(args) => timeline::run(args, json),
        Command::Emulate => crate::reproduce::perseus::emulate(json),
        Command::Kareus(args) => joint::run(args, json),
    }
}
