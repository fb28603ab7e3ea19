//! Stand-in hardware: a process that holds simulated devices and answers on a unix socket, so
//! that the whole daemon can be tested where there is no GPU.
//!
//! One request per line and one answer per line, both JSON, all numbers in base units:
//!
//! ```text
//! {"op":"inventory"}                                  {"devices":[{"identity":{},"range":{}}]}
//! {"op":"read","device":"0000:05:00.0"}               {"reading":{}}
//! {"op":"range","device":"0000:05:00.0"}              {"range":{}}
//! {"op":"set","device":"0000:05:00.0","watts":650.0}  {"done":true}
//! {"op":"holders","device":"0000:05:00.0"}            {"pids":[4711]}
//! {"op":"highest_clock","device":"0000:05:00.0"}      {"clock":2.1e9}
//! {"op":"clocks","device":"0000:05:00.0","hertz":[1.2e9,1.2e9]}
//!                                                     {"done":true}     null: the driver's choice
//! {"op":"release","device":"0000:05:00.0"}            {"done":true}
//! anything that goes wrong                            {"error":"gone","cause":"..."}
//! ```
//!
//! Like a driver's call, a request blocks its caller for as long as the other side likes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use litd_units::{Hertz, Watts};
use serde::{Deserialize, Serialize};

use crate::domain::{CapRange, ClockRange, Handles, Identity, PowerDomain, Reading};
use crate::error::PowerError;
use crate::holder::{Holder, Processes};

/// After so long without an answer the stand-in counts as dead: longer than a driver that blocks for 30 s and then
/// goes on.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// The longest line: 16 devices with all their names fit many times.
pub const LONGEST_LINE: u64 = 64 * 1024;

/// A request to the stand-in hardware. Devices are named by their addresses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Request {
    /// List all devices.
    Inventory,
    /// Read all sensors of a device.
    Read {
        /// The device's address.
        device: String,
    },
    /// Read the range of its cap.
    Range {
        /// The device's address.
        device: String,
    },
    /// Set its cap.
    Set {
        /// The device's address.
        device: String,
        /// The cap.
        watts: Watts,
    },
    /// List the processes that use it.
    Holders {
        /// The device's address.
        device: String,
    },
    /// Read the highest clock that it can be locked to.
    #[serde(rename = "highest_clock")]
    HighestClock {
        /// The device's address.
        device: String,
    },
    /// Lock its clocks, or let the driver choose.
    Clocks {
        /// The device's address.
        device: String,
        /// The lowest and the highest clock.
        hertz: Option<(Hertz, Hertz)>,
    },
    /// Announce that its handles are closed.
    Release {
        /// The device's address.
        device: String,
    },
}

/// A device in the inventory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// The device's identity.
    pub identity: Identity,
    /// The range of its cap.
    pub range: CapRange,
}

/// An answer of the stand-in hardware.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// Success.
    Good(Outcome),
    /// Failure.
    Bad(Refusal),
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The inventory.
    Devices(Vec<Listed>),
    /// All sensors.
    Reading(Reading),
    /// The range of the cap.
    Range(CapRange),
    /// The processes that use the device.
    Pids(Vec<u32>),
    /// A clock.
    Clock(Hertz),
    /// Done, or claimed to be.
    Done(bool),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of error.
    pub error: Cause,
    /// In words.
    pub cause: String,
    /// The range of the cap, if the cap was out of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<CapRange>,
}

/// The kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The device doesn't accept this cap.
    OutOfRange,
    /// Not allowed.
    Permission,
    /// The device is not there.
    Gone,
    /// Any other error.
    Driver,
}

/// All devices of the stand-in hardware behind `socket`, in its order: GPUs first. Each opens a connection of its
/// own at its first use, and a new one after that broke.
///
/// # Errors
/// Nobody answers there, or not in this language. The error's `device` is the socket.
pub fn discover(socket: &Path) -> Result<Vec<Box<dyn PowerDomain>>, PowerError> {
    discover_within(socket, PATIENCE)
}

/// Like [`discover`], with another time after which the stand-in counts as dead, for each request, now and later.
/// It must be more than 0.
///
/// # Errors
/// As [`discover`].
pub fn discover_within(
    socket: &Path,
    patience: Duration,
) -> Result<Vec<Box<dyn PowerDomain>>, PowerError> {
    const ACTION: &str = "listing the simulated devices";
    let line = |name: String| Line {
        name,
        socket: socket.to_owned(),
        patience,
        connection: None,
    };
    let domain = |device: Listed| {
        let line = line(device.identity.address.clone());
        let identity = device.identity;
        Box::new(Simulated { identity, line }) as Box<dyn PowerDomain>
    };
    let mut line = line(socket.display().to_string());
    match line.ask(&Request::Inventory, ACTION)? {
        Outcome::Devices(devices) => Ok(devices.into_iter().map(domain).collect()),
        other => Err(line.surprise(ACTION, &other)),
    }
}

/// A simulated device.
struct Simulated {
    identity: Identity,
    line: Line,
}

impl Simulated {
    fn device(&self) -> String {
        self.identity.address.clone()
    }

    fn clocks(&mut self, hertz: Option<(Hertz, Hertz)>) -> Result<(), PowerError> {
        const ACTION: &str = "locking clocks";
        let device = self.device();
        match self.line.ask(&Request::Clocks { device, hertz }, ACTION)? {
            Outcome::Done(true) => Ok(()),
            other => Err(self.line.surprise(ACTION, &other)),
        }
    }
}

impl PowerDomain for Simulated {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn identify(&mut self) -> Result<Identity, PowerError> {
        const ACTION: &str = "reading its identity";
        match self.line.ask(&Request::Inventory, ACTION)? {
            Outcome::Devices(devices) => {
                let mut known = devices.into_iter().map(|device| device.identity);
                let own = known.find(|known| known.address == self.identity.address);
                self.identity = own.ok_or_else(|| PowerError::Gone {
                    device: self.identity.address.clone(),
                    cause: "it is not listed any more".to_owned(),
                })?;
                Ok(self.identity.clone())
            }
            other => Err(self.line.surprise(ACTION, &other)),
        }
    }

    fn range(&mut self) -> Result<CapRange, PowerError> {
        const ACTION: &str = "reading the range of caps";
        let device = self.device();
        match self.line.ask(&Request::Range { device }, ACTION)? {
            Outcome::Range(range) => range.checked(&self.identity.address),
            other => Err(self.line.surprise(ACTION, &other)),
        }
    }

    fn set_cap(&mut self, watts: Watts) -> Result<(), PowerError> {
        const ACTION: &str = "setting the cap";
        if !watts.is_finite() {
            // JSON can't express this number.
            return Err(self
                .line
                .driver(ACTION, format!("a cap of {watts} is not possible")));
        }
        let device = self.device();
        match self.line.ask(&Request::Set { device, watts }, ACTION)? {
            Outcome::Done(true) => Ok(()),
            other => Err(self.line.surprise(ACTION, &other)),
        }
    }

    fn read(&mut self) -> Result<Reading, PowerError> {
        const ACTION: &str = "reading the sensors";
        let device = self.device();
        match self.line.ask(&Request::Read { device }, ACTION)? {
            Outcome::Reading(reading) => Ok(reading),
            other => Err(self.line.surprise(ACTION, &other)),
        }
    }

    /// The stand-in's processes are this node's, and have its users.
    fn holders(&mut self) -> Result<Vec<Holder>, PowerError> {
        const ACTION: &str = "listing the processes";
        let device = self.device();
        match self.line.ask(&Request::Holders { device }, ACTION)? {
            Outcome::Pids(pids) => {
                let holders = Processes::new(Path::new("/proc")).of(pids);
                holders.map_err(|error| self.line.driver(ACTION, error.to_string()))
            }
            other => Err(self.line.surprise(ACTION, &other)),
        }
    }

    fn highest_clock(&mut self) -> Result<Hertz, PowerError> {
        const ACTION: &str = "reading the highest clock";
        let device = self.device();
        match self.line.ask(&Request::HighestClock { device }, ACTION)? {
            Outcome::Clock(clock) => Ok(clock),
            other => Err(self.line.surprise(ACTION, &other)),
        }
    }

    fn lock_clocks(&mut self, range: ClockRange) -> Result<(), PowerError> {
        self.clocks(Some((range.lowest, range.highest)))
    }

    fn unlock_clocks(&mut self) -> Result<(), PowerError> {
        self.clocks(None)
    }

    fn release(&mut self) -> Handles {
        let device = self.device();
        // A connection that is not open, or that breaks, is as closed as it can be.
        if self.line.connection.is_some() {
            let _ = self.line.ask(&Request::Release { device }, "releasing");
            self.line.connection = None;
        }
        Handles::Closed
    }
}

/// A connection that is opened when it is needed.
struct Line {
    /// The name in errors.
    name: String,
    socket: PathBuf,
    patience: Duration,
    connection: Option<BufReader<UnixStream>>,
}

impl Line {
    /// Sends a request and waits for its answer.
    fn ask(&mut self, request: &Request, action: &'static str) -> Result<Outcome, PowerError> {
        let mut text =
            serde_json::to_vec(request).map_err(|error| self.driver(action, error.to_string()))?;
        text.push(b'\n');
        let kept = self.connection.is_some();
        let begin = Instant::now();
        let answer = match self.exchange(&text) {
            // A connection from before the stand-in was restarted: it never saw the request.
            Err(error) if kept && is_broken(&error) => self.exchange(&text),
            other => other,
        };
        let answer = answer.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => PowerError::Timeout {
                device: self.name.clone(),
                seconds: begin.elapsed().as_secs_f64(),
            },
            io::ErrorKind::InvalidData => self.driver(action, error.to_string()),
            _ => PowerError::Gone {
                device: self.name.clone(),
                cause: format!("{}: {error}", self.socket.display()),
            },
        })?;
        match answer {
            Answer::Good(outcome) => Ok(outcome),
            Answer::Bad(refusal) => Err(self.refused(request, refusal, action)),
        }
    }

    fn exchange(&mut self, text: &[u8]) -> io::Result<Answer> {
        // Taken out, and put back only after a complete answer: a late answer after an error would be taken for
        // that of the next request.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.socket, self.patience)?,
        };
        connection.get_mut().write_all(text)?;
        let mut line = Vec::new();
        let mut limited = (&mut connection).take(LONGEST_LINE);
        limited.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(if limited.limit() == 0 {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("an answer of more than {LONGEST_LINE} bytes"),
                )
            } else {
                io::ErrorKind::UnexpectedEof.into()
            });
        }
        let answer = serde_json::from_slice(&line)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.connection = Some(connection);
        Ok(answer)
    }

    fn refused(&self, request: &Request, refusal: Refusal, action: &'static str) -> PowerError {
        let device = self.name.clone();
        let Refusal {
            error,
            cause,
            range,
        } = refusal;
        match (error, request, range) {
            (Cause::OutOfRange, &Request::Set { watts, .. }, Some(range)) => {
                PowerError::OutOfRange {
                    device,
                    asked: watts,
                    lowest: range.lowest,
                    highest: range.highest,
                }
            }
            (Cause::Permission, ..) => PowerError::Permission {
                device,
                action,
                hint: cause,
            },
            (Cause::Gone, ..) => PowerError::Gone { device, cause },
            _ => self.driver(action, cause),
        }
    }

    fn surprise(&self, action: &'static str, outcome: &Outcome) -> PowerError {
        self.driver(
            action,
            format!("an answer to another question: {outcome:?}"),
        )
    }

    fn driver(&self, action: &'static str, cause: String) -> PowerError {
        PowerError::Driver {
            device: self.name.clone(),
            action,
            cause,
        }
    }
}

fn connect(socket: &Path, patience: Duration) -> io::Result<BufReader<UnixStream>> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    // Answers are short, and there is one of these per device.
    Ok(BufReader::with_capacity(1024, stream))
}

fn is_broken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::UnexpectedEof
    )
}
