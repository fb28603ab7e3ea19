//! litctl: analyse kernel traces, plan, and ask and direct the daemon of this node.

mod analyze;
mod audit;
mod budget;
mod caps;
mod carbon;
mod control;
mod doctor;
mod estimate;
mod events;
mod forget;
mod job;
mod lease;
mod output;
mod packaging;
mod page;
mod plan;
mod policy;
mod predict;
mod qualify;
mod release;
mod replay;
mod restore;
mod resume;
mod show;
mod stacks;
mod status;
mod svg;
mod top;
mod trace;
mod trial;
mod wait;

#[cfg(test)]
#[path = "../../crates/api/tests/samples/mod.rs"]
mod samples;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use litd_cli::{Outcome, spaced};
use litd_replay::ClientError;

/// Operate the daemon litd on this node; analyse traces and telemetry; plan for training and inference.
#[derive(Parser)]
#[command(name = "litctl", version, max_term_width = 100, after_help = EXIT)]
struct Cli {
    /// Print JSON instead of text: one document, or one per line where the command's help says so
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Analyze(analyze::Args),
    Estimate(estimate::Args),
    Replay(replay::Args),
    Doctor(doctor::Args),
    Qualify(qualify::Args),
    Plan(plan::Args),
    Carbon(carbon::Args),
    Predict(predict::Args),
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
    Trace(trace::Args),
    Trial(trial::Args),
    Stacks(stacks::Args),
    Forget(forget::Args),
    #[command(hide = true)]
    Packaging(packaging::Args),
}

const EXIT: &str = "\
Exit status:
  0    done
  1    no connection to litd: it does not run here, or this user has no
       permission
  2    the command line or a file is wrong, or litd refuses the command
doctor, qualify, job, carbon advise and carbon run have other exit statuses: see
their --help.";
/// The exit status where litd can't be asked.
const NO_DAEMON: u8 = 1;
/// The exit status of what was asked wrongly, or refused.
const MISTAKE: u8 = 2;

fn main() -> ExitCode {
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
        Command::Estimate(args) => estimate::run(args, cli.json),
        Command::Replay(args) => replay::run(args, cli.json),
        Command::Doctor(args) => doctor::run(args, cli.json),
        Command::Qualify(args) => qualify::run(args, cli.json),
        Command::Plan(args) => plan::run(args, cli.json),
        Command::Carbon(args) => carbon::run(args, cli.json),
        Command::Predict(args) => predict::run(args, cli.json),
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
        Command::Trace(args) => trace::run(args, cli.json),
        Command::Trial(args) => trial::run(args, cli.json),
        Command::Stacks(args) => stacks::run(args, cli.json),
        Command::Forget(args) => forget::run(args, cli.json),
        Command::Packaging(args) => packaging::run(args),
    }
}

fn exit_status(error: &(dyn std::error::Error + 'static)) -> u8 {
    if let Some(ClientError::Connect { .. }) = error.downcast_ref() {
        return NO_DAEMON;
    }
    match error.downcast_ref::<control::ControlError>() {
        Some(error) if !error.is_refusal() => NO_DAEMON,
        _ if error.is::<job::NotDone>() => job::NOT_DONE,
        _ if error.is::<doctor::Findings>() => doctor::exit_status(error),
        _ if error.is::<carbon::advise::Switch>() => carbon::advise::SWITCH,
        _ if error.is::<carbon::run::Late>() => carbon::run::LATE,
        _ => MISTAKE,
    }
}
