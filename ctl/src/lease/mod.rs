//! `litctl lease`: what a fleet controller rules for a time.

mod follow;

use clap::Subcommand;
use litd_api::{Command, Lease, Mode};
use litd_units::Watts;

use crate::control::{self, Socket};
use crate::{Outcome, caps, output};

/// Show, grant or end the lease of a fleet controller
///
/// A lease sets a mode, a budget or both for some seconds, and is renewed by granting it again. When
/// it ends, the configured mode is in force again, and as budget the least of the administrator's
/// (`litctl budget`, else caps.budget), caps.safe_budget, and the GPUs' part of the node's budget. A
/// controller may use HTTP instead: PUT /v1/lease on the control socket. Root and litd's admin group may grant and end leases.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    socket: Socket,
}

#[derive(Subcommand)]
enum Action {
    /// Grant a lease, or renew the one that this controller has
    Grant {
        /// The controller's name
        #[arg(long, value_name = "NAME", default_value = "litctl")]
        controller: String,
        /// The lease's length in seconds, 1 to 86400
        #[arg(long)]
        seconds: f64,
        /// The mode: off, observe, canary or on [default: the configured mode]
        #[arg(long, value_parser = mode)]
        mode: Option<Mode>,
        /// The most that all GPU caps may add up to, in watts [default: as without a lease]
        #[arg(long, value_name = "WATTS", value_parser = caps::watts)]
        budget: Option<Watts>,
        #[command(flatten)]
        socket: Socket,
    },
    /// End the lease now
    End {
        #[command(flatten)]
        socket: Socket,
    },
    Follow(follow::Args),
}

const EXAMPLES: &str = "\
Examples:
  litctl lease                                      show it
  litctl lease grant --seconds 300 --budget 4800    at most 4,800 W for 300 s
  litctl lease grant --seconds 3600 --mode off      litd is off for an hour
  litctl lease end
  litctl lease follow /etc/litd/fleet.toml          renew it as the file says
  curl --unix-socket /run/litd/control.sock -X PUT http://litd/v1/lease \\
      -d '{\"controller\": \"fleet\", \"seconds\": 300, \"budget\": 4800}'";

fn mode(text: &str) -> Result<Mode, &'static str> {
    match text {
        "off" => Ok(Mode::Off),
        "observe" => Ok(Mode::Observe),
        "canary" => Ok(Mode::Canary),
        "on" => Ok(Mode::Steer),
        _ => Err("must be off, observe, canary or on"),
    }
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.action {
        None => show(&args.socket, json),
        Some(Action::End { socket }) => control::change(socket, json, &Command::EndLease),
        Some(Action::Follow(args)) => follow::run(args),
        Some(Action::Grant {
            controller,
            seconds,
            mode,
            budget,
            socket,
        }) => {
            let lease = Lease {
                controller: controller.clone(),
                seconds: *seconds,
                mode: *mode,
                budget: *budget,
            };
            control::change(socket, json, &Command::Lease(lease))
        }
    }
}

fn show(socket: &Socket, json: bool) -> Outcome {
    let node = socket.client()?.status()?.node;
    if json {
        return output::json(&node.lease);
    }
    output::text(&match node.lease {
        None => "no lease\n".to_owned(),
        Some(lease) => format!("{}\n", lease.in_words()),
    })
}
