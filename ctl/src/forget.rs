//! `litctl forget`: without what was learned.

use litd_api::Command;

use crate::Outcome;
use crate::control::{self, Socket};

/// Delete learned caps and the results of profilers
///
/// Without learned caps the first adjustment of a job that starts is computed by its law, as on a new
/// node. Without results, profilers are tried again in jobs whose hooks have no result of their own: hooks
/// keep theirs until the node boots, and a hook that knows its profiler to be off reports that to litd
/// again. Root and litd's admin group may do this.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    control::change(&args.socket, json, &Command::Forget)
}
