//! `litctl status`: the node, its devices and its jobs at this moment.

use crate::control::Socket;
use crate::{Outcome, output};

/// Show caps, power, leads and jobs as litd has them now
///
/// A lead is by how much a GPU's kernels started before those of the GPU that started them last, in
/// the last sample: the smallest one belongs to the straggler. A dash is a value that the device or
/// the job does not report. The exit status is 1 if litd can't be reached.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let status = args.socket.client()?.status()?;
    if json {
        output::json(&status)
    } else {
        output::text(&litd_cli::status::render(&status))
    }
}
