//! litlab: litd's laboratory. Whatever it prints of a node is SIMULATED.

#[cfg(feature = "planners")]
mod carbon;
mod decide;
mod demo;
#[cfg(feature = "planners")]
mod plan;
#[cfg(feature = "planners")]
mod plants;
#[cfg(feature = "recorded")]
mod replay;
#[cfg(feature = "planners")]
mod reproduce;
mod simulate;
mod study;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use litd_cli::{Outcome, output};

/// Try litd without a GPU, and repeat its studies: nodes and jobs are SIMULATED.
#[derive(Parser)]
#[command(name = "litlab", version, max_term_width = 100, after_help = EXIT)]
struct Cli {
    /// Print one JSON document instead of text (`litlab carbon` and `litlab reproduce carbon` refuse this)
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Simulate(simulate::Args),
    #[cfg(feature = "recorded")]
    Replay(replay::Args),
    Decide(decide::Args),
    #[cfg(feature = "planners")]
    Plan(plan::Args),
    #[cfg(feature = "planners")]
    Plants(plants::Args),
    Study(study::Args),
    #[cfg(feature = "planners")]
    Carbon(carbon::Args),
    #[cfg(feature = "planners")]
    Reproduce(reproduce::Args),
}

const EXIT: &str = "\
Exit status:
  0    the command did what it was asked
  2    the command line or a file is wrong, or something could not be done
  130  the user stopped it before its end";
/// The exit status of what was asked wrongly, or could not be done.
const MISTAKE: u8 = 2;
/// The exit status of what the user stopped: a shell's for an interrupted program.
const STOPPED: u8 = 130;

fn main() -> ExitCode {
    // The demo starts the daemon; so that one program is enough for that, this one is both.
    let name = std::env::args_os().next();
    if demo::is_called_litd(name.as_deref().map(Path::new)) {
        return litd::main(std::env::args_os());
    }
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note("litlab", &error.to_string());
            ExitCode::from(match error.is::<demo::Stopped>() {
                true => STOPPED,
                false => MISTAKE,
            })
        }
    }
}

fn run(cli: &Cli) -> Outcome {
    match &cli.command {
        Command::Demo(args) => demo::run(args, cli.json),
        Command::Simulate(args) => simulate::run(args, cli.json),
        #[cfg(feature = "recorded")]
        Command::Replay(args) => replay::run(args, cli.json),
        Command::Decide(args) => decide::run(args, cli.json),
        #[cfg(feature = "planners")]
        Command::Plan(args) => plan::run(args, cli.json),
        #[cfg(feature = "planners")]
        Command::Plants(args) => plants::run(args, cli.json),
        Command::Study(args) => study::run(args, cli.json),
        #[cfg(feature = "planners")]
        Command::Carbon(args) => carbon::run(args, cli.json),
        #[cfg(feature = "planners")]
        Command::Reproduce(args) => reproduce::run(args, cli.json),
    }
}
