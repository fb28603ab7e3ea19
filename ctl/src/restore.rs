//! `litctl restore`: caps back as they were found.

use litd_api::Command;

use crate::Outcome;
use crate::control::{self, Socket};

/// The same as release: restore caps, close every handle, leave them alone until resume
///
/// The same as `litctl release`. Root and litd's admin group may do this.
#[derive(clap::Args)]
pub struct Args {
    /// A device's name (gpu3) or address [default: all devices]
    device: Option<String>,
    #[command(flatten)]
    socket: Socket,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    control::change_device(&args.socket, json, args.device.as_deref(), |device| {
        Command::Restore { device }
    })
}
