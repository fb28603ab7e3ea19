//! litctl: analyse kernel traces, simulate a node, check a decision by hand, watch the loop.

mod analyze;
mod decide;
mod demo;
mod output;
mod simulate;

use std::process::ExitCode;
use std::str::FromStr;

use clap::{Parser, Subcommand};

/// What a subcommand ends with; the error's text is all that a user sees.
type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Find the GPU that a node waits for, and what moving power to it would gain.
#[derive(Parser)]
#[command(name = "litctl", version, max_term_width = 100)]
struct Cli {
    /// Print one JSON document instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Analyze(analyze::Args),
    Simulate(simulate::Args),
    Decide(decide::Args),
    Demo(demo::Args),
}

/// The exit status of what the user stopped: a shell's for an interrupted program.
const STOPPED: u8 = 130;

/// Reads a number of a list, in which people write spaces after commas.
fn spaced<T: FromStr>(text: &str) -> Result<T, T::Err> {
    text.trim().parse()
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        Command::Analyze(args) => analyze::run(args, cli.json),
        Command::Simulate(args) => simulate::run(args, cli.json),
        Command::Decide(args) => decide::run(args, cli.json),
        Command::Demo(args) => demo::run(args, cli.json),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(error.as_ref());
            ExitCode::from(if error.is::<demo::Stopped>() {
                STOPPED
            } else {
                2
            })
        }
    }
}
