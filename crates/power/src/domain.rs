//! The trait of every back end, and its types.

use litd_units::{Celsius, Hertz, Joules, Watts};
use serde::{Deserialize, Serialize};

use crate::error::PowerError;
use crate::holder::Holder;

/// The kind of a domain's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A GPU (an AMD socket, an NVIDIA board).
    Gpu,
    /// A CPU socket.
    Cpu,
}

/// Whether a device's cap belongs to one user at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// The device is used whole.
    #[default]
    Whole,
    /// NVIDIA Multi-Instance GPU is on: instances of several tenants share one cap.
    Mig,
    /// AMD compute partitions (DPX, QPX, CPX): several logical devices share one cap.
    Partitioned,
    /// NVIDIA Multi-Process Service: processes share the device by time and space.
    Mps,
}

/// How far a cap that is read back can be trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadBack {
    /// The device reports its present cap.
    #[default]
    Device,
    /// The driver may report a cached value (some kernels on MI300X) while firmware holds another one: only
    /// measured power confirms a cap.
    MayBeCached,
}

/// The identity of a device. Its address is unique on the node and stays the same over reboots.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// GPU or CPU socket.
    pub kind: DeviceKind,
    /// PCI address of a GPU, such as `0000:85:00.0`; `cpu0` for the first socket.
    pub address: String,
    /// The vendor's unique name, where there is one (`GPU-…`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Serial number of the part, where the driver tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Marketing or device name.
    pub model: String,
    /// Name and version of the driver.
    pub driver: String,
    /// The back end that serves it: `simulated`, `amdgpu`, `nvml` ...
    pub backend: String,
    /// Whether one job can own its cap.
    #[serde(default)]
    pub sharing: Sharing,
    /// How far its cap can be trusted when it is read back.
    #[serde(default)]
    pub read_back: ReadBack,
}

/// The range of a domain's cap. Read anew after a device reset: a driver may tell another range then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CapRange {
    /// The lowest cap that the driver accepts (0 where it names none).
    pub lowest: Watts,
    /// The highest cap that the driver accepts.
    pub highest: Watts,
    /// The cap that the driver starts with.
    pub default: Watts,
    /// The driver's unit: caps are whole multiples of it.
    pub resolution: Watts,
}

/// No device can be set to so much.
const ABSURD: Watts = Watts(100_000.0);

impl CapRange {
    /// The range as the driver of `device` told it, if it is possible.
    ///
    /// # Errors
    /// The highest cap is no number, 0 or above 100 kW, the lowest is above it or below 0, the
    /// default is no cap that any device has, or the unit is more than the highest cap.
    pub(crate) fn checked(self, device: &str) -> Result<Self, PowerError> {
        let Self {
            lowest,
            highest,
            default,
            resolution,
        } = self;
        let possible = Watts::ZERO..=highest;
        let cause = if !(highest > Watts::ZERO && highest <= ABSURD) {
            format!("the driver names {highest} as the highest cap, which no device has")
        } else if !possible.contains(&lowest) {
            format!("the driver names {lowest} as the lowest cap and {highest} as the highest")
        } else if !(Watts::ZERO..=ABSURD).contains(&default) {
            format!("the driver names {default} as the default cap, which no device has")
        } else if !possible.contains(&resolution) {
            format!("the driver names {resolution} as the unit of caps")
        } else {
            return Ok(self);
        };
        Err(PowerError::Driver {
            device: device.to_owned(),
            action: "reading the range of caps",
            cause,
        })
    }
}

/// All readings of a domain at one moment. A value without a sensor is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// The cap that is set.
    pub cap: Watts,
    /// The cap in force, if something lower (firmware, BMC) rules; absent if the driver can't
    /// tell.
    pub enforced: Option<Watts>,
    /// Power drawn.
    pub power: Option<Watts>,
    /// Energy since some moment in the past; it only grows, but for resets.
    pub energy: Option<Joules>,
    /// Temperature (of the junction, where there is a choice).
    pub temperature: Option<Celsius>,
    /// The temperature at which the device slows itself down.
    pub slowdown: Option<Celsius>,
    /// Clock of the compute units.
    pub clock: Option<Hertz>,
    /// Whether the power limit is the limiter of the clock.
    pub power_limited: Option<bool>,
    /// The share of the time since the last reading in which power was the limiter, where the device counts it;
    /// absent where it tells the present moment only.
    pub power_share: Option<f64>,
    /// Another limiter that slows it down, if any: more power would not help then.
    pub throttle: Option<Throttle>,
    /// Whether its driver sets its default cap once no program has it open any more: an NVIDIA GPU without
    /// persistence mode.
    pub forgetful: bool,
}

impl Reading {
    /// Whether the device was reset since the reading before: its energy counter has begun anew.
    #[must_use]
    pub fn counts_anew(&self, before: &Self) -> bool {
        let counts = self.energy.zip(before.energy);
        counts.is_some_and(|(now, before)| now < before)
    }
}

/// Why a device is slower than its power limit would let it be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// The chip is too hot (NVML: software or hardware thermal slowdown; AMD: socket thermal).
    Heat,
    /// The memory is too hot (AMD: HBM thermal).
    Memory,
    /// The voltage regulators are at their limit (AMD: VR thermal).
    Regulator,
    /// The system pulled the power brake (NVML: hardware power brake slowdown).
    PowerBrake,
    /// Hardware slows it down and gives no reason (NVML: hardware slowdown).
    Hardware,
}

/// Clocks that a device is locked to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockRange {
    /// The lowest.
    pub lowest: Hertz,
    /// The highest.
    pub highest: Hertz,
}

/// A device whose power can be capped.
///
/// Every call may block for as long as a driver likes, and may fail. `set_cap` of a driver may
/// report success and change nothing: callers read back.
pub trait PowerDomain: Send {
    /// The identity, as last read.
    fn identity(&self) -> &Identity;

    /// The identity, asked anew: a reset, a rebind of its driver or a change of its partitions may have changed
    /// it. [`PowerDomain::identity`] returns the same from then on.
    ///
    /// # Errors
    /// The driver does not answer.
    fn identify(&mut self) -> Result<Identity, PowerError> {
        Ok(self.identity().clone())
    }

    /// The range of its cap, read from the driver now.
    ///
    /// # Errors
    /// The driver does not answer.
    fn range(&mut self) -> Result<CapRange, PowerError>;

    /// The cap that is set now.
    ///
    /// # Errors
    /// The driver does not answer.
    fn cap(&mut self) -> Result<Watts, PowerError> {
        Ok(self.read()?.cap)
    }

    /// Sets the cap.
    ///
    /// # Errors
    /// The driver refuses, or does not answer; the cap may or may not have changed.
    fn set_cap(&mut self, cap: Watts) -> Result<(), PowerError>;

    /// All sensors.
    ///
    /// # Errors
    /// The cap can't be read; a sensor that can't be read is merely absent.
    fn read(&mut self) -> Result<Reading, PowerError>;

    /// The processes that use the device, in order and each once, in the daemon's process-id
    /// namespace.
    ///
    /// # Errors
    /// The driver does not answer, or can't tell.
    fn holders(&mut self) -> Result<Vec<Holder>, PowerError>;

    /// The highest clock that the compute units can be locked to.
    ///
    /// # Errors
    /// The driver does not answer, or knows no such thing.
    fn highest_clock(&mut self) -> Result<Hertz, PowerError> {
        Err(self.no_clocks())
    }

    /// Keeps the clock of the compute units within a range, whatever the cap leaves of it.
    ///
    /// # Errors
    /// The driver refuses, does not answer, or knows no such thing.
    fn lock_clocks(&mut self, range: ClockRange) -> Result<(), PowerError> {
        let _ = range;
        Err(self.no_clocks())
    }

    /// Lets the driver choose clocks again.
    ///
    /// # Errors
    /// The driver refuses, does not answer, or knows no such thing.
    fn unlock_clocks(&mut self) -> Result<(), PowerError> {
        Err(self.no_clocks())
    }

    /// The error of a domain whose clocks can't be locked.
    #[doc(hidden)]
    fn no_clocks(&self) -> PowerError {
        let Identity {
            address, backend, ..
        } = self.identity();
        PowerError::Unsupported {
            device: address.clone(),
            action: "locking clocks",
            cause: format!("the back end {backend} can't"),
        }
    }

    /// Closes whatever handles are open, so that the device can be reset or its driver upgraded.
    /// The next call opens them again.
    fn release(&mut self) -> Handles {
        Handles::Closed
    }
}

/// Open handles of a device's driver after a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handles {
    /// No handle is open.
    Closed,
    /// The driver's library has one session for all GPUs, which stays open because another GPU's call hangs in it.
    HeldByAnother,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_can_not_be_is_the_drivers_error_and_names_the_value() {
        let range = |lowest, highest| {
            let range = CapRange {
                lowest: Watts(lowest),
                highest: Watts(highest),
                default: Watts(highest),
                resolution: Watts(1.0),
            };
            range.checked("cpu0").map(|_| ()).map_err(|error| {
                assert_eq!(error.kind(), "driver");
                error.to_string()
            })
        };
        assert_eq!(range(0.0, 750.0), Ok(()));
        assert_eq!(range(750.0, 750.0), Ok(()));
        assert_eq!(range(0.0, 100_000.0), Ok(()));
        assert!(range(0.0, 100_001.0).unwrap_err().contains("100001 W"));
        assert!(range(751.0, 750.0).unwrap_err().contains("751 W"));
        for highest in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            range(0.0, highest).unwrap_err();
        }
        for lowest in [f64::NAN, f64::NEG_INFINITY, -1.0] {
            range(lowest, 750.0).unwrap_err();
        }
    }
}
