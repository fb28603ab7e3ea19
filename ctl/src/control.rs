//! The daemon as litctl's commands ask it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use litd_api::{Command, DEFAULT_CONTROL_SOCKET, DeviceStatus, Done};
pub use litd_client::{Client, ControlError, Follow, News};

use crate::{Outcome, output};

/// Where the daemon listens: what all commands have that talk to it.
#[derive(Clone, clap::Args)]
pub struct Socket {
    /// The daemon's control socket
    #[arg(
        long = "socket",
        value_name = "PATH",
        env = "LITD_CONTROL",
        default_value = DEFAULT_CONTROL_SOCKET
    )]
    path: PathBuf,
}

impl Socket {
    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The daemon that listens there.
    pub fn client(&self) -> Result<Client, ControlError> {
        Client::new(&self.path)
    }

    /// The same, given up after so long.
    pub fn client_within(&self, patience: Duration) -> Result<Client, ControlError> {
        Client::within(&self.path, patience)
    }
}

/// Asks for a change, and prints what was done.
pub fn change(socket: &Socket, json: bool, command: &Command) -> Outcome {
    print(&socket.client()?.command(command)?, json)
}

/// The same for one device, by name or address, or for all.
pub fn change_device(
    socket: &Socket,
    json: bool,
    device: Option<&str>,
    command: impl FnOnce(Option<String>) -> Command,
) -> Outcome {
    let client = socket.client()?;
    let address = match device {
        Some(asked) => Some(address(&client.status()?.devices, asked)?),
        None => None,
    };
    print(&client.command(&command(address))?, json)
}

fn print(done: &Done, json: bool) -> Outcome {
    if json {
        output::json(done)
    } else {
        output::text(&format!("{}\n", done.message))
    }
}

/// The address of the device that a person calls by its name or by its address.
fn address(devices: &[DeviceStatus], asked: &str) -> Result<String, String> {
    let meant = |device: &&DeviceStatus| {
        device.name.eq_ignore_ascii_case(asked) || device.address.eq_ignore_ascii_case(asked)
    };
    if let Some(device) = devices.iter().find(meant) {
        return Ok(device.address.clone());
    }
    let known: Vec<_> = devices
        .iter()
        .map(|device| format!("{} ({})", device.name, device.address))
        .collect();
    Err(match known.is_empty() {
        true => format!("{asked}: litd has no devices"),
        false => format!(
            "{asked}: litd has no such device; it has {}",
            known.join(", ")
        ),
    })
}

/// The name that people know a device by; the address where nobody knows better.
pub fn name_of<'a>(devices: &'a [DeviceStatus], address: &'a str) -> &'a str {
    devices
        .iter()
        .find(|device| device.address == address)
        .map_or(address, |device| &device.name)
}
