//! `litctl trial`: does balancing pay?

mod text;

use clap::Subcommand;
use litd_api::Command;

use crate::control::{self, Socket};
use crate::{Outcome, output};

/// Measure on a running job whether balancing pays
///
/// Blocks with the caps found (A) and with the balanced caps (B: those with which the job has
/// converged) alternate on a job that litd steers. Four blocks are a quad, whose order, ABBA or BAAB, is
/// drawn at random; budget, policy and
/// sampling are the same in all. Each block is measured for at least 5 minutes after the caps have
/// settled. Only the report of a complete trial says "saved" or "faster"; all else is an estimate.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Start(Start),
    /// Show the trial's progress and results so far, and the permanent hold-out's results
    ///
    /// Results of an incomplete trial are preliminary, and have no verdict.
    Status(Only),
    /// End the trial under way; the balanced caps come back step by step
    ///
    /// The trial's report says that it was aborted. Root and litd's admin group may do this.
    Stop(Only),
    /// Print the report of the trial under way, or of the last one
    ///
    /// The exit status is 2 if there is none. Reports outlive the daemon.
    Report(Only),
}

/// Begin a trial on a job that litd steers (with --aa also on one that it observes)
///
/// The trial begins once the job's caps are balanced. It is aborted, and its report says so, when the
/// job ends, when budget, policy or configuration change the job's caps, or when litd may no longer
/// move one of its devices. Reconnecting hooks don't abort it. Root and litd's admin group may do
/// this.
#[derive(clap::Args)]
struct Start {
    /// The job's name [default: the only one]
    job: Option<String>,
    /// Quads of four blocks [default: trial.quads of the configuration, 12]
    #[arg(long, value_name = "NUMBER")]
    quads: Option<u32>,
    /// Use the caps found in all blocks: the result must be zero, and shows how many blocks a given
    /// precision needs. While litd observes, such a trial moves no cap
    #[arg(long)]
    aa: bool,
    /// The seed for the random order of the blocks [default: from the time]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    #[command(flatten)]
    socket: Socket,
}

#[derive(clap::Args)]
struct Only {
    #[command(flatten)]
    socket: Socket,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.what {
        What::Start(start) => {
            let command = Command::StartTrial {
                job: start.job.clone(),
                quads: start.quads,
                same: start.aa,
                seed: start.seed,
            };
            control::change(&start.socket, json, &command)
        }
        What::Stop(only) => control::change(&only.socket, json, &Command::StopTrial),
        What::Status(only) => {
            let trials = only.socket.client()?.trials()?;
            match json {
                true => output::json(&trials),
                false => output::text(&text::status(&trials)),
            }
        }
        What::Report(only) => {
            let trials = only.socket.client()?.trials()?;
            let report = trials
                .report
                .ok_or("there is no trial yet: `litctl trial start` begins one")?;
            match json {
                true => output::json(&report),
                false => output::text(&text::report(&report)),
            }
        }
    }
}
