//! `litctl caps`: what every device may hold and holds; and one cap set by hand.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Subcommand;
use litd_api::{Command, DeviceStatus, Done, Status};
use litd_units::Watts;

use crate::control::{Client, ControlError, Socket};
use crate::show::{SIMULATED, or_dash};
use crate::{Outcome, output};

/// List what every device may hold and holds, or set one cap by hand
///
/// A cap set by hand is yours: litd checks it against the device's range and the budget, writes it,
/// reads it back, and leaves it there when it ends. Where a job is steered, litd moves caps itself
/// and refuses. Root and litd's admin group may set caps.
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
        /// Its cap in watts
        #[arg(value_parser = watts)]
        watts: Watts,
        #[command(flatten)]
        socket: Socket,
    },
}

const EXAMPLES: &str = "\
Examples:
  litctl caps                  list
  litctl caps set gpu3 650     from now on, also without litd";

/// A driver that has not taken a cap for so long is waited for no longer.
const PATIENCE: Duration = Duration::from_secs(10);

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
            let status = Client::new(&args.socket)?.status()?;
            match json {
                true => output::json(&status.devices),
                false => output::text(&table(&status)),
            }
        }
        Some(Action::Set {
            device,
            watts,
            socket,
        }) => set(socket, device, *watts, json),
    }
}

/// Sets a cap and waits until it is read back: "asked for" is not "set".
fn set(socket: &Socket, device: &str, watts: Watts, json: bool) -> Outcome {
    let client = Client::new(socket)?;
    let command = Command::SetCap {
        device: device.to_owned(),
        watts,
    };
    let done: Done = client.command(&command)?;
    let held = confirmed(&client, device, watts)?;
    match json {
        true => output::json(&held),
        false => {
            let cap = or_dash(held.cap, |cap| cap.to_string());
            output::text(&format!("{}; read back: {cap}\n", done.message))
        }
    }
}

fn confirmed(client: &Client, device: &str, watts: Watts) -> Result<DeviceStatus, ControlError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = client.status()?;
        let named =
            |unit: &&DeviceStatus| unit.name == device || unit.address.eq_ignore_ascii_case(device);
        let found = status.devices.iter().find(named);
        // The driver may cut the cap off to its unit.
        let near = |unit: &&DeviceStatus| {
            let found = unit.found.is_some() && unit.found == unit.cap;
            found
                && unit
                    .cap
                    .is_some_and(|cap| cap <= watts && watts - cap < Watts(2.0))
        };
        if let Some(unit) = found.filter(near) {
            return Ok(unit.clone());
        }
        let given_up = found.is_none_or(|unit| unit.asked.is_none());
        if given_up || Instant::now() >= deadline {
            return Err(ControlError::Refused(format!(
                "{device} does not hold {watts}: `litctl events` says why"
            )));
        }
        sleep(Duration::from_millis(20));
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
        "{:<6} {:<14} {:>8} {:>8} {:>9} {:>7} {:>7}  {:<8} back end",
        "device", "address", "cap", "found", "enforced", "floor", "ceiling", "state"
    );
    for unit in &status.devices {
        let watts = |cap: Option<Watts>| or_dash(cap, |cap| format!("{cap:.0}"));
        let _ = writeln!(
            out,
            "{:<6} {:<14} {:>8} {:>8} {:>9} {:>7} {:>7}  {:<8} {}",
            unit.name,
            unit.address,
            watts(unit.cap),
            watts(unit.found),
            watts(unit.enforced),
            watts(Some(unit.floor)),
            watts(Some(unit.ceiling)),
            unit.state.name(),
            unit.backend
        );
    }
    out
}
