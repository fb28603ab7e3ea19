//! `litctl release`: caps back, handles closed.

use litd_api::Command;

use crate::Outcome;
use crate::control::{self, Socket};

/// Release devices: restore their caps and close every handle
///
/// Needed before a GPU reset, a driver upgrade or a change of partition mode, which open handles
/// prevent. Within 5 s litd answers that the devices are released, or why they are not. A job on a released
/// GPU is only observed; its other GPUs keep their caps. litd takes a device back on `litctl resume`, when
/// the GPU returns to the bus or its driver is loaded anew (unless release.resume_on_return = false),
/// or after release.resume_after_seconds, if that is set.
/// Root and litd's admin group may do this.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    socket: Socket,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// A device's name (gpu3, cpu0) or address
    #[arg(long, value_name = "DEVICE")]
    gpu: Option<String>,
    /// All GPUs and CPU sockets
    #[arg(long)]
    all: bool,
}

const EXAMPLES: &str = "\
Examples:
  litctl release --gpu gpu3 && nvidia-smi --gpu-reset -i 3; litctl resume gpu3
  litctl release --all         before a driver upgrade";

pub fn run(args: &Args, json: bool) -> Outcome {
    control::change_device(&args.socket, json, args.which.gpu.as_deref(), |device| {
        Command::Release { device }
    })
}
