//! `litctl plan`: the time-energy frontier of a pipeline (Perseus), and the plans on it.

mod candidates;
mod check;
mod kareus;
mod measured;
mod partition;
mod planner;
mod report;
mod sequences;

use clap::Subcommand;
use litd_cli::plan::{frontier, kareus as joint, lookup, timeline};

use crate::Outcome;
use kareus::Recorded;
use measured::Measured;

/// Plan a pipeline's clocks: find computations that can run slower without a longer iteration
///
/// Perseus: a pipeline's iteration is a graph of instructions (a stage's forward or backward of a
/// microbatch). Those off its critical path can run slower without a longer iteration; while another
/// pipeline is late, all can. `frontier` finds the least energy for every iteration time, and `lookup` the plan for a
/// late pipeline, with clocks. Both write plans that a training engine follows, and `check` finds
/// mistakes in such plans. `report` runs beside litd and reports stragglers to a planner's server.
/// `kareus` plans overlap and clocks together.
///
/// Words of Kareus (`sequences`, `candidates`, `kareus`): nanobatches are the two halves of a
/// microbatch, which take turns; a partition is the computations of one nanobatch beside a
/// communication of the other; the launch is the computation with which that communication starts; a
/// candidate is a way to execute a partition (clock, SMs of the communication, launch); a pass is a
/// rule by which the search chooses candidates. (`partition` divides layers among stages.)
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Args),
    Frontier(frontier::Args<Measured>),
    Lookup(lookup::Args<Measured>),
    Timeline(timeline::Args<Measured>),
    Candidates(candidates::Args),
    Kareus(joint::Args<Recorded>),
    Partition(partition::Args),
    Report(report::Args),
    Sequences(sequences::Args),
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.command {
        Command::Check(args) => check::run(args, json),
        Command::Frontier(args) => frontier::run(args, json),
        Command::Lookup(args) => lookup::run(args, json),
        Command::Timeline(args) => timeline::run(args, json),
        Command::Candidates(args) => candidates::run(args, json),
        Command::Kareus(args) => joint::run(args, json),
        Command::Partition(args) => partition::run(args, json),
        Command::Report(args) => report::run(args, json),
        Command::Sequences(args) => sequences::run(args, json),
    }
}
