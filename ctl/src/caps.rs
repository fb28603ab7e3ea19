//! `litctl caps`: what every device may hold and holds; and one cap set by hand.

use std::fmt::Write as _;

use clap::Subcommand;
use litd_api::{Command, Status};
use litd_units::Watts;
use serde_json::json;

use crate::control::{self, Socket};
use crate::show::{SIMULATED, or_dash};
use crate::{Outcome, output};

/// List each device's cap and its bounds, or set one cap by hand
///
/// litd checks a cap set by hand against the device's range and the budget, if one is set, writes
/// it and reads it back. From then on it is the cap found, which litd restores after steering and when
/// litd ends. litd refuses while it steers a job on the device. Root and litd's admin group may set caps.
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
    /// Set one device's cap
    Set {
        /// The device: gpu3, cpu0 or a PCI address
        device: String,
        /// The cap in watts
        #[arg(value_parser = watts)]
        watts: Watts,
        #[command(flatten)]
        socket: Socket,
    },
}

const EXAMPLES: &str = "\
Examples:
  litctl caps                  list
  litctl caps set gpu3 650     set the cap of gpu3, on which litd steers no job";

/// Reads a number of watts, as people write it.
pub fn watts(text: &str) -> Result<Watts, &'static str> {
    let number = text.strip_suffix(['W', 'w']).unwrap_or(text).trim_end();
    match number.parse::<f64>() {
        Ok(watts) if watts.is_finite() && watts > 0.0 => Ok(Watts(watts)),
        _ => Err("must be a number of watts above 0"),
    }
}

pub fn run(args: &Args, json: bool) -> Outcome {
    match &args.action {
        None => {
            let status = args.socket.client()?.status()?;
            match json {
                true => output::json(&json!({
                    "schema": 1,
                    "simulated": status.simulated,
                    "devices": status.devices,
                })),
                false => output::text(&table(&status)),
            }
        }
        Some(Action::Set {
            device,
            watts,
            socket,
        }) => {
            let command = Command::SetCap {
                device: device.clone(),
                watts: *watts,
            };
            control::change(socket, json, &command)
        }
    }
}

fn table(status: &Status) -> String {
    let mut out = String::new();
    if status.simulated {
        let _ = writeln!(
            out,
            "{SIMULATED}SIMULATED{SIMULATED:#}: no number below is of a real node"
        );
    }
    if status.devices.is_empty() {
        return out + "litd has no device whose power can be capped: `litctl doctor` says why\n";
    }
    let _ = writeln!(
        out,
        "{:<6} {:<12} {:>7} {:>7} {:>8} {:>6} {:>7}  {:<8} back end",
        "device", "address", "cap", "found", "in force", "floor", "ceiling", "state"
    );
    for unit in &status.devices {
        let watts = |cap: Option<Watts>| or_dash(cap, |cap| format!("{cap:.0}"));
        let _ = writeln!(
            out,
            "{:<6} {:<12} {:>7} {:>7} {:>8} {:>6} {:>7}  {:<8} {}",
            unit.name,
            unit.address,
            watts(unit.cap),
            watts(unit.found),
            watts(unit.in_force),
            watts(Some(unit.floor)),
            watts(Some(unit.ceiling)),
            unit.state.name(),
            unit.backend
        );
    }
    out
}
