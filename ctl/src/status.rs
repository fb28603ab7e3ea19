//! `litctl status`: the node, its devices and its jobs at this moment.

use crate::control::Socket;
use crate::{Outcome, output};

/// Show caps, power, leads and jobs as litd has them now
///
/// Columns: lead is how much earlier the GPU started its kernels than the last GPU did, in the last sample; busy is
/// the share of the iteration in which it ran kernels. Role: the straggler is waited for, the leader waits longest, a
/// member is any other GPU of a job. State: litd may move the cap of a device in the state "litd"; it leaves the
/// device alone if the cap is "foreign" (set by somebody else), or if the device is "released" or "closed" (litd is
/// off); it does not steer a "faulty" device, but restores its cap, or lowers it for a budget, once the device accepts
/// that. A dash is a value that the device or the job does not report. The exit status is 1 if litd can't be
/// reached.
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
