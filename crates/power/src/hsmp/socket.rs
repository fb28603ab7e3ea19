//! An EPYC socket.

use std::fmt;

use litd_units::Watts;
use nix::errno::Errno;

use super::port::Port;
use crate::domain::{CapRange, Handles, Identity, PowerDomain, Reading};
use crate::error::PowerError;
use crate::holder::Holder;
use crate::powercap::{Counter, Meter};
use crate::sysfs::{self, FileError, Step};

/// The firmware's unit, in microwatts: caps found are restored to the milliwatt.
const UNIT: u64 = 1000;

/// The firmware does not tell how it rounds milliwatts; whole watts leave it room.
const RESOLUTION: u64 = 1_000_000;

/// An AMD EPYC socket.
pub(super) struct Socket {
    identity: Identity,
    port: Box<dyn Port>,
    /// The limit at litd's start, in microwatts; 0 if it could not be read.
    default: u64,
    /// The firmware tells the power of a moment only. Where Linux counts the socket's energy as well, whoever draws
    /// little whenever litd looks is not taken for one who draws little.
    energy: Option<Energy>,
}

/// A socket's counter of energy, and what it has counted.
#[derive(Debug)]
struct Energy {
    counter: Counter,
    meter: Meter,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Socket {
    pub fn new(
        identity: Identity,
        port: Box<dyn Port>,
        default: u64,
        counter: Option<Counter>,
    ) -> Self {
        let meter = Meter::default();
        Self {
            identity,
            port,
            default,
            energy: counter.map(|counter| Energy { counter, meter }),
        }
    }

    fn failed(&self, error: FileError, action: &'static str) -> PowerError {
        let device = &self.identity.address;
        let driver = |why: &str| PowerError::Driver {
            device: device.clone(),
            action,
            cause: format!("{error}: {why}"),
        };
        match error.errno() {
            _ if is_busy(&error) => driver("the firmware is busy; it is tried again"),
            Some(Errno::ENOMSG) => driver("this processor's firmware knows no such message"),
            Some(Errno::EIO) => driver("the firmware refuses, and does not say why"),
            _ => error.of(device, action, self.port.home(), sysfs::PERMISSION),
        }
    }

    fn out_of_range(&self, asked: Watts, highest: u64) -> PowerError {
        PowerError::OutOfRange {
            device: self.identity.address.clone(),
            asked,
            lowest: Watts::ZERO,
            highest: sysfs::from_micro(highest),
        }
    }

    fn highest(&mut self, action: &'static str) -> Result<u64, PowerError> {
        match self.port.highest() {
            Ok(0) => Err(PowerError::Driver {
                device: self.identity.address.clone(),
                action,
                cause: "the firmware names 0 W as the highest limit".to_owned(),
            }),
            other => other.map_err(|error| self.failed(error, action)),
        }
    }
}

/// Whether the firmware did not answer in time.
pub(super) fn is_busy(error: &FileError) -> bool {
    matches!(
        error.errno(),
        Some(Errno::ETIMEDOUT | Errno::ETIME | Errno::EBUSY)
    )
}

impl PowerDomain for Socket {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn range(&mut self) -> Result<CapRange, PowerError> {
        let highest = self.highest("reading the range of caps")?;
        let default = match self.default {
            0 => highest,
            default => default,
        };
        let range = CapRange {
            lowest: Watts::ZERO,
            highest: sysfs::from_micro(highest),
            default: sysfs::from_micro(default),
            resolution: sysfs::from_micro(RESOLUTION),
        };
        range.checked(&self.identity.address)
    }

    fn cap(&mut self) -> Result<Watts, PowerError> {
        let limit = self.port.limit();
        limit
            .map(sysfs::from_micro)
            .map_err(|error| self.failed(error, "reading the cap"))
    }

    fn set_cap(&mut self, cap: Watts) -> Result<(), PowerError> {
        const ACTION: &str = "setting the cap";
        let highest = self.highest(ACTION)?;
        // The firmware would clamp it and report success.
        let limit = sysfs::to_micro(cap).filter(|limit| (UNIT..=highest).contains(limit));
        let Some(limit) = limit else {
            return Err(self.out_of_range(cap, highest));
        };
        match self.port.set(limit - limit % UNIT) {
            Err(error) if error.step == Step::Write && error.errno() == Some(Errno::EINVAL) => {
                Err(self.out_of_range(cap, highest))
            }
            other => other.map_err(|error| self.failed(error, ACTION)),
        }
    }

    fn read(&mut self) -> Result<Reading, PowerError> {
        let cap = self.cap()?;
        let counted = self.energy.as_mut().and_then(|it| {
            let is_counted = it.counter.count(&mut it.meter);
            it.meter.energy().filter(|_| is_counted)
        });
        Ok(Reading {
            cap,
            power: self.port.power().ok().map(sysfs::from_micro),
            energy: counted,
            ..Reading::default()
        })
    }

    /// All processes use a CPU; none holds it.
    fn holders(&mut self) -> Result<Vec<Holder>, PowerError> {
        Ok(Vec::new())
    }

    fn release(&mut self) -> Handles {
        self.port.close();
        if let Some(energy) = &mut self.energy {
            energy.counter.close();
        }
        Handles::Closed
    }
}
