//! litctl: analyse kernel traces, simulate a node, check a decision by hand, watch the loop.

mod analyze;
mod audit;
mod budget;
mod caps;
mod colours;
mod control;
mod decide;
mod demo;
mod doctor;
mod draw;
mod events;
mod forget;
mod job;
mod lease;
mod output;
mod packaging;
mod plan;
mod policy;
mod release;
mod replay;
mod restore;
mod resume;
mod show;
mod simulate;
mod status;
mod study;
mod top;
mod trial;

#[cfg(test)]
#[path = "../tests/samples/mod.rs"]
mod samples;

use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Parser, Subcommand};

/// What a subcommand ends with; the error's text is all that a user sees.
type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Find the GPU that a node waits for, and what moving power to it would gain.
#[derive(Parser)]
#[command(name = "litctl", version, max_term_width = 100, after_help = EXIT)]
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
    Replay(replay::Args),
    Decide(decide::Args),
    Demo(demo::Args),
    Doctor(doctor::Args),
    Plan(plan::Args),
    Study(study::Args),
    Status(status::Args),
    Top(top::Args),
    Events(events::Args),
    Audit(audit::Args),
    Budget(budget::Args),
    Caps(caps::Args),
    Policy(policy::Args),
    Job(job::Args),
    Lease(lease::Args),
    Release(release::Args),
    Restore(restore::Args),
    Resume(resume::Args),
    Trial(trial::Args),
    Forget(forget::Args),
    #[command(hide = true)]
    Packaging(packaging::Args),
}

const EXIT: &str = "\
Exit status:
  0    it was done
  1    litd can't be asked: it does not run here, or may not be asked by this user
  2    the command line or a file is wrong, or litd refuses
  130  the user stopped it
doctor has its own, which its --help tells.";
/// The exit status where litd can't be asked.
const NO_DAEMON: u8 = 1;
/// The exit status of what was asked wrongly, or refused.
const MISTAKE: u8 = 2;
/// The exit status of what the user stopped: a shell's for an interrupted program.
const STOPPED: u8 = 130;

/// Reads a number of a list, in which people write spaces after commas.
fn spaced<T: FromStr>(text: &str) -> Result<T, T::Err> {
    text.trim().parse()
}

fn main() -> ExitCode {
    // The demo starts the daemon; so that one program is enough for that, this one is both.
    let name = std::env::args_os().next();
    if demo::is_called_litd(name.as_deref().map(Path::new)) {
        return litd::main(std::env::args_os());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if job::is_meant(std::env::args_os()) => return job::misunderstood(&error),
        Err(error) => error.exit(),
    };
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(error.as_ref());
            ExitCode::from(exit_status(error.as_ref()))
        }
    }
}

fn run(cli: &Cli) -> Outcome {
    match &cli.command {
        Command::Analyze(args) => analyze::run(args, cli.json),
        Command::Simulate(args) => simulate::run(args, cli.json),
        Command::Replay(args) => replay::run(args, cli.json),
        Command::Decide(args) => decide::run(args, cli.json),
        Command::Demo(args) => demo::run(args, cli.json),
        Command::Doctor(args) => doctor::run(args, cli.json),
        Command::Plan(args) => plan::run(args, cli.json),
        Command::Study(args) => study::run(args, cli.json),
        Command::Status(args) => status::run(args, cli.json),
        Command::Top(args) => top::run(args, cli.json),
        Command::Events(args) => events::run(args, cli.json),
        Command::Audit(args) => audit::run(args, cli.json),
        Command::Budget(args) => budget::run(args, cli.json),
        Command::Caps(args) => caps::run(args, cli.json),
        Command::Job(args) => job::run(args, cli.json),
        Command::Lease(args) => lease::run(args, cli.json),
        Command::Policy(args) => policy::run(args, cli.json),
        Command::Release(args) => release::run(args, cli.json),
        Command::Restore(args) => restore::run(args, cli.json),
        Command::Resume(args) => resume::run(args, cli.json),
        Command::Trial(args) => trial::run(args, cli.json),
        Command::Forget(args) => forget::run(args, cli.json),
        Command::Packaging(args) => packaging::run(args),
    }
}

fn exit_status(error: &(dyn std::error::Error + 'static)) -> u8 {
    match error.downcast_ref::<control::ControlError>() {
        Some(error) if !error.is_refusal() => NO_DAEMON,
        _ if error.is::<doctor::Findings>() => doctor::exit_status(error),
        _ if error.is::<demo::Stopped>() => STOPPED,
        _ => MISTAKE,
    }
}
