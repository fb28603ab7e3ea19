//! `litctl status`: the node, its devices and its jobs at this moment.

use crate::control::Socket;
use crate::{Outcome, output};

/// Show caps, power, leads and jobs as litd has them now
///
/// A GPU's lead is how much earlier it started its kernels than the last GPU did, in the last sample.
/// The straggler has the smallest lead. State: "ours" means that litd may move the cap. A dash is a
/// value that the device or the job does not report. The exit status is 1 if litd can't be reached.
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
