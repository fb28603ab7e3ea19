//! `litctl forget`: without what was learned.

use litd_api::Command;

use crate::Outcome;
use crate::control::{self, Socket};

/// Delete learned caps, so that jobs start with equal ones, and results of profilers
///
/// Root and litd's admin group may do this.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    control::change(&args.socket, json, &Command::Forget)
}
