//! `litctl resume`: steering goes on where it was stopped.

use litd_api::Command;

use crate::Outcome;
use crate::control::{self, Socket};

/// Steer devices again after a release, a foreign change of their cap, or a fault
///
/// A foreign cap becomes the cap found, which litd restores after steering. The cap that a released or
/// faulty device holds becomes the cap found, unless litd had changed that device's cap and could not
/// restore it: then the cap found stays. Devices in the state "litd" are left as they are.
/// The command also ends the pauses of jobs: after a rollback, and after steering has slowed a job down. If
/// litd only observes the node because of repeated foreign changes, only the command without a name
/// ends that. Root and litd's admin group may do this.
#[derive(clap::Args)]
pub struct Args {
    /// A device's name (gpu3) or address [default: all devices]
    device: Option<String>,
    #[command(flatten)]
    socket: Socket,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    control::change_device(&args.socket, json, args.device.as_deref(), |device| {
        Command::Resume { device }
    })
}
