//! `litctl plan`: the time-energy frontier of a pipeline (Perseus), and the plans on it.

mod emulate;
mod frontier;
mod input;
mod lookup;
mod partition;
mod picture;
mod planner;
mod report;
mod timeline;

use std::fmt::{self, Write as _};

use clap::Subcommand;
use litd_planner::{Job, Plan};
use litd_units::Millis;

use crate::Outcome;

/// Plan how fast each stage of a training pipeline computes: all that nobody waits for, slower
///
/// Perseus: a pipeline's iteration is a graph of forward and backward computations. Those that
/// are not on its critical path can be slower for nothing, and while another pipeline is late
/// all of them can. `frontier` finds the least energy for every iteration time, `lookup` the plan
/// for a straggler, with clocks. `report` runs beside litd and tells a planner's server about
/// stragglers.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Frontier(frontier::Args),
    Lookup(lookup::Args),
    Timeline(timeline::Args),
    Partition(partition::Args),
    Emulate(emulate::Args),
    Report(report::Args),
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.command {
        Command::Frontier(args) => frontier::run(args, json),
        Command::Lookup(args) => lookup::run(args, json),
        Command::Timeline(args) => timeline::run(args, json),
        Command::Partition(args) => partition::run(args, json),
        Command::Emulate(args) => emulate::run(args, json),
        Command::Report(args) => report::run(args, json),
    }
}

/// How much less energy a plan uses than another, in percent.
fn saving(plan: &Plan, than: &Plan) -> f64 {
    100.0 * (1.0 - plan.energy / than.energy)
}

/// Explains a fastest plan that takes longer than the full clock.
fn rounding(out: &mut String, job: &Job, full: &Plan, plan: &Plan) -> fmt::Result {
    let longer = 100.0 * (plan.realised / full.realised - 1.0);
    let shows = longer >= 0.005 && longer.is_finite();
    if plan.time > job.frontier().shortest() || !shows {
        return Ok(());
    }
    let unit = job.scale().unit.0;
    writeln!(
        out,
        "It takes {longer:.2} % longer than at full clock, because planned times are whole units \
         of {unit} ms: a smaller --unit comes nearer."
    )
}

fn seconds(time: Millis) -> String {
    format!("{:.4} s", time.0 * 1e-3)
}

/// Reads a number that is more than 0.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "must be a number above 0".into())
}
