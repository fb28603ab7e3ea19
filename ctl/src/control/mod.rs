//! Talking to the daemon: HTTP with JSON on its control socket, as `litd_api` has it.

mod access;
mod answer;
mod error;
mod follow;
mod http;

use std::path::{Path, PathBuf};
use std::time::Duration;

use litd_api::{Command, DEFAULT_CONTROL_SOCKET, DeviceStatus, Done, Events, Status, Trials};
use serde::de::DeserializeOwned;

use crate::{Outcome, output};
pub use error::ControlError;
pub use follow::{Follow, News};
use http::Exchange;
pub use http::{Request, converse};

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

/// Asks the daemon; every request is a connection of its own.
pub struct Client {
    exchange: Exchange,
}

impl Client {
    pub fn new(socket: &Socket) -> Result<Self, ControlError> {
        Self::at(&socket.path)
    }

    /// For the daemon that listens there.
    pub fn at(socket: &Path) -> Result<Self, ControlError> {
        Ok(Self {
            exchange: Exchange::new(socket)?,
        })
    }

    /// One that gives up after so long.
    pub fn within(socket: &Socket, patience: Duration) -> Result<Self, ControlError> {
        Ok(Self {
            exchange: Exchange::within(&socket.path, patience)?,
        })
    }

    pub fn status(&self) -> Result<Status, ControlError> {
        self.ask(&Request::Get("/v1/status".into()))
    }

    /// The events after a number.
    pub fn events(&self, after: u64) -> Result<Events, ControlError> {
        self.ask(&Request::Get(format!("/v1/events?after={after}")))
    }

    /// Trials and the hold-out.
    pub fn trials(&self) -> Result<Trials, ControlError> {
        self.ask(&Request::Get("/v1/trial".into()))
    }

    pub fn command(&self, command: &Command) -> Result<Done, ControlError> {
        let body =
            serde_json::to_vec(command).map_err(|error| ControlError::Answer(error.to_string()))?;
        self.ask(&Request::Post("/v1/command".into(), body))
    }

    fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, ControlError> {
        let (status, body) = self.exchange.exchange(request)?;
        answer::read(status, &body)
    }
}

/// Asks for a change, and prints what was done.
pub fn change(socket: &Socket, json: bool, command: &Command) -> Outcome {
    print(&Client::new(socket)?.command(command)?, json)
}

/// The same for one device, by name or address, or for all.
pub fn change_device(
    socket: &Socket,
    json: bool,
    device: Option<&str>,
    command: impl FnOnce(Option<String>) -> Command,
) -> Outcome {
    let client = Client::new(socket)?;
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
