//! Errors of power domains, worded so that a person can act on them.

use litd_units::Watts;
use thiserror::Error;

/// Why an operation failed. `device` is the domain's address.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PowerError {
    /// The driver refuses the value.
    #[error("{device}: {asked} is outside this device's {lowest} to {highest}")]
    OutOfRange {
        /// The device.
        device: String,
        /// The value that was asked for.
        asked: Watts,
        /// The lowest cap that it accepts.
        lowest: Watts,
        /// The highest.
        highest: Watts,
    },
    /// A missing permission.
    #[error("{device}: no permission for {action}: {hint}")]
    Permission {
        /// The device.
        device: String,
        /// The action that failed: "setting the cap".
        action: &'static str,
        /// The remedy.
        hint: String,
    },
    /// The device is gone.
    #[error(
        "{device}: the device is gone ({cause}); it comes back after a reset or a driver reload"
    )]
    Gone {
        /// The device.
        device: String,
        /// The driver's error.
        cause: String,
    },
    /// No answer within the deadline.
    #[error("{device}: the driver has not answered for {seconds:.1} s")]
    Timeout {
        /// The device.
        device: String,
        /// How long litd has waited.
        seconds: f64,
    },
    /// The cap is not the one of the last reading; nothing was written.
    #[error("{device}: holds {cap}, but held {known} at the last reading: nothing was written")]
    Changed {
        /// The device.
        device: String,
        /// The cap that was read last.
        known: Watts,
        /// The cap that is there.
        cap: Watts,
    },
    /// The device, its driver or its back end does not support this; nothing was changed.
    #[error("{device}: {action} is not possible: {cause}")]
    Unsupported {
        /// The device.
        device: String,
        /// The action that was tried.
        action: &'static str,
        /// Why.
        cause: String,
    },
    /// Any other error of the driver.
    #[error("{device}: {action} failed: {cause}")]
    Driver {
        /// The device.
        device: String,
        /// The action that was tried.
        action: &'static str,
        /// The driver's error.
        cause: String,
    },
}

impl PowerError {
    /// Whether this error means that nothing was changed. After any other error a device may have done the
    /// operation, or may still do it.
    #[must_use]
    pub fn refuses(&self) -> bool {
        match self {
            Self::OutOfRange { .. }
            | Self::Permission { .. }
            | Self::Changed { .. }
            | Self::Unsupported { .. } => true,
            Self::Gone { .. } | Self::Timeout { .. } | Self::Driver { .. } => false,
        }
    }

    /// A short name of the kind, for counters.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::OutOfRange { .. } => "out_of_range",
            Self::Permission { .. } => "permission",
            Self::Gone { .. } => "gone",
            Self::Timeout { .. } => "timeout",
            Self::Changed { .. } => "changed",
            Self::Unsupported { .. } => "unsupported",
            Self::Driver { .. } => "driver",
        }
    }
}
