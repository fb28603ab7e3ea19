//! `litlab plants`: the family of nodes that laws are judged on.

mod list;
mod show;
mod validate;

use clap::Subcommand;
use litd_cli::Outcome;

/// Inspect the family of SIMULATED nodes on which laws are judged
///
/// A node of the family is a plant. The plants' author knew public data, literature and the interface between a node
/// and a law, but not the laws. Each assumption is a dimension with a range and a source (docs/plants.md).
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Validate(validate::Args),
    Show(show::Args),
    List(list::Args),
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.command {
        Command::Validate(args) => validate::run(args, json),
        Command::Show(args) => show::run(args, json),
        Command::List(args) => list::run(args, json),
    }
}

/// A number with three digits that count, without an exponent.
fn short(number: f64) -> String {
    let size = number.abs();
    match () {
        () if !number.is_finite() => "-".to_owned(),
        () if size >= 100.0 => format!("{number:.0}"),
        () if size >= 10.0 => format!("{number:.1}"),
        () if size >= 1.0 => format!("{number:.2}"),
        () if size >= 0.01 || size == 0.0 => format!("{number:.3}"),
        () => format!("{number:.5}"),
    }
}
