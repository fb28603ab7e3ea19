//! Operations of a domain, as values that can be sent to its thread and back.

use litd_units::{Hertz, Watts};

use crate::domain::{CapRange, ClockRange, Handles, Identity, PowerDomain, Reading};
use crate::error::PowerError;
use crate::holder::Holder;

/// An operation of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operation {
    /// Read all sensors and the cap.
    Read,
    /// Set the cap, then read it back.
    Set(Watts),
    /// Read the range of the cap.
    Range,
    /// Read identity and range anew (after a reset).
    Identify,
    /// Tell which processes use it.
    Holders,
    /// Tell the highest clock that it can be locked to.
    HighestClock,
    /// Lock the clocks of the compute units to this range; `None`: let the driver choose.
    Clocks(Option<ClockRange>),
    /// Close all handles.
    Release,
}

/// The outcome of an [`Operation`].
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// All sensors.
    Read(Result<Reading, PowerError>),
    /// The cap as read back after it was set.
    Set(Result<Watts, PowerError>),
    /// The range of the cap.
    Range(Result<CapRange, PowerError>),
    /// The identity and the range, read anew.
    Identity(Result<(Identity, CapRange), PowerError>),
    /// The processes that use the device.
    Holders(Result<Vec<Holder>, PowerError>),
    /// The highest clock that it can be locked to.
    HighestClock(Result<Hertz, PowerError>),
    /// Clocks were locked, or unlocked; no driver tells their present state.
    Clocks(Result<(), PowerError>),
    /// Handles were closed.
    Released(Handles),
}

impl Operation {
    /// Performs the operation, for as long as the driver takes.
    pub fn perform(self, domain: &mut dyn PowerDomain) -> Reply {
        match self {
            Self::Read => Reply::Read(domain.read()),
            // The requested value is no proof: drivers round, and some report success and change nothing.
            Self::Set(cap) => Reply::Set(domain.set_cap(cap).and_then(|()| domain.cap())),
            Self::Range => Reply::Range(domain.range()),
            Self::Identify => Reply::Identity(
                domain
                    .identify()
                    .and_then(|identity| Ok((identity, domain.range()?))),
            ),
            Self::Holders => Reply::Holders(domain.holders()),
            Self::HighestClock => Reply::HighestClock(domain.highest_clock()),
            Self::Clocks(Some(range)) => Reply::Clocks(domain.lock_clocks(range)),
            Self::Clocks(None) => Reply::Clocks(domain.unlock_clocks()),
            Self::Release => Reply::Released(domain.release()),
        }
    }
}
