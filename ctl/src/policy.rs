//! `litctl policy`: what the daemon does about stragglers.

use litd_api::{Command, Mode, Status};
use serde_json::json;

use crate::control::{self, Socket};
use crate::{Outcome, output};

/// Show or set the policy: what litd does if GPUs wait for another GPU
///
/// gpu-red takes power from the GPUs that wait, gpu-realloc moves it to the GPU that they wait for, cpu-slosh also
/// adds watts that the CPUs don't use (while the CPUs have none to spare, or more than one job runs, jobs are only
/// observed). observe restores the caps found, and then moves caps only to keep a budget or for `litctl caps set`. A
/// policy set here lasts until the daemon is stopped or the node boots; after a crash it is in force again. Root and
/// litd's admin group may set it.
#[derive(clap::Args)]
pub struct Args {
    /// gpu-red, gpu-realloc, cpu-slosh or observe [default: show it]
    #[arg(value_name = "NAME")]
    policy: Option<String>,
    #[command(flatten)]
    socket: Socket,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    // litd knows which policies it has: it may be newer than this program.
    match &args.policy {
        None => show(&args.socket.client()?.status()?, json),
        Some(policy) => {
            let policy = policy.clone();
            control::change(&args.socket, json, &Command::SetPolicy { policy })
        }
    }
}

fn show(status: &Status, json: bool) -> Outcome {
    let node = &status.node;
    if json {
        return output::json(&json!({ "policy": node.policy, "mode": node.mode }));
    }
    let mode = match node.mode {
        Mode::Off => "mode off: all devices are closed",
        Mode::Canary => "mode canary",
        Mode::Observe => {
            "mode observe: litd moves caps only to keep a budget, to restore them, or for an override"
        }
        Mode::Steer => "mode on",
    };
    output::text(&format!("{} ({mode})\n", node.policy))
}
