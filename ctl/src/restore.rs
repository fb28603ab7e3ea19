//! `litctl restore`: caps back as they were found.

use litd_api::Command;

use crate::Outcome;
use crate::control::{self, Socket};

/// Another name of release, for one device or all
///
/// Does the same as `litctl release`: restores caps, and closes the devices until `litctl resume`. To
/// restore caps and keep the devices use `litctl policy observe`; if no daemon runs, `litd restore`.
/// Root and litd's admin group may do this.
#[derive(clap::Args)]
pub struct Args {
    /// A device's name (gpu3) or address [default: all devices]
    device: Option<String>,
    #[command(flatten)]
    socket: Socket,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    control::change_device(&args.socket, json, args.device.as_deref(), |device| {
        Command::Release { device }
    })
}
