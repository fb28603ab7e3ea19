//! Why a device does not do what a driver asks of it. Each stand-in tells it in the language of
//! its driver.

use litd_power::CapRange;
use litd_power::simulated::{Cause, Refusal};
use litd_units::Watts;
use thiserror::Error;

/// Why a device does not take a cap.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Refused {
    /// No device has this number or address.
    #[error("no device has this address")]
    Unknown,
    /// The device is gone.
    #[error("it has fallen off the bus")]
    Gone,
    /// No permission to write.
    #[error("the system lets nobody write (injected)")]
    Permission,
    /// The device is in reset.
    #[error("it is being reset (injected)")]
    Reset,
    /// The cap is locked.
    #[error("the cap is locked (injected)")]
    Locked,
    /// The firmware does not want to.
    #[error("the firmware refuses (injected)")]
    Firmware,
    /// The cap is outside of the device's range.
    #[error("{asked} is not within {} to {}", range.lowest, range.highest)]
    Range {
        /// The requested cap.
        asked: Watts,
        /// The device's range.
        range: CapRange,
    },
    /// The plant has an own opinion.
    #[error("{0}")]
    Plant(String),
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let error = match refused {
            Refused::Unknown | Refused::Gone => Cause::Gone,
            Refused::Permission => Cause::Permission,
            Refused::Range { .. } => Cause::OutOfRange,
            Refused::Reset | Refused::Locked | Refused::Firmware | Refused::Plant(_) => {
                Cause::Driver
            }
        };
        let range = match refused {
            Refused::Range { range, .. } => Some(range),
            _ => None,
        };
        Self {
            error,
            cause: refused.to_string(),
            range,
        }
    }
}
