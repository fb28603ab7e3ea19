//! What can go wrong with a power domain, said so that a person can act on it.

use litd_units::Watts;
use thiserror::Error;

/// Why a domain did not do what it was told. `device` is its address.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PowerError {
    /// The driver refuses the value.
    #[error("{device}: {asked} is outside this device's {lowest} to {highest}")]
    OutOfRange {
        /// The device.
        device: String,
        /// What was asked for.
        asked: Watts,
        /// The lowest cap that it accepts.
        lowest: Watts,
        /// The highest.
        highest: Watts,
    },
    /// The daemon lacks a right.
    #[error("{device}: no permission for {action}: {hint}")]
    Permission {
        /// The device.
        device: String,
        /// What it was about to do: "setting the cap".
        action: &'static str,
        /// What to do about it.
        hint: String,
    },
    /// The device is not there any more.
    #[error(
        "{device}: the device is gone ({cause}); it comes back after a reset or a driver reload"
    )]
    Gone {
        /// The device.
        device: String,
        /// What the driver said.
        cause: String,
    },
    /// No answer within the deadline.
    #[error("{device}: the driver has not answered for {seconds:.1} s")]
    Timeout {
        /// The device.
        device: String,
        /// How long it was waited for.
        seconds: f64,
    },
    /// The cap is not the one that was there when the device was read last; nothing was written.
    #[error("{device}: holds {cap}, not {known} as it was read to hold: nothing was written")]
    Changed {
        /// The device.
        device: String,
        /// The cap that was read last.
        known: Watts,
        /// The cap that is there.
        cap: Watts,
    },
    /// The device, its driver or its back end knows no such thing; nothing was changed.
    #[error("{device}: {action} is not possible: {cause}")]
    Unsupported {
        /// The device.
        device: String,
        /// What was tried.
        action: &'static str,
        /// Why.
        cause: String,
    },
    /// Whatever else the driver said.
    #[error("{device}: {action} failed: {cause}")]
    Driver {
        /// The device.
        device: String,
        /// What was tried.
        action: &'static str,
        /// What the driver said.
        cause: String,
    },
}

impl PowerError {
    /// Whether it says that nothing was changed. After any other one a device may have done what it was
    /// asked, or may still do it.
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
