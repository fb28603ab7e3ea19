//! How a partition may be executed.

use std::fmt;

use litd_units::Hertz;
use serde::{Deserialize, Serialize};

/// A way to execute a partition: the three decision variables of section 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The SM clock to which the GPU is locked.
    pub clock: Hertz,
    /// How many SMs the communication has; the computations that run beside it have the others.
    pub sms: u32,
    /// The computation with which the communication starts, by its place in
    /// [`Partition::computations`](crate::Partition::computations), from 0. Both start at the same moment.
    pub launch: usize,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clock, sms, launch } = self;
        let megahertz = clock.0 / 1e6;
        write!(f, "{megahertz} MHz, {sms} SMs, launch at {launch}")
    }
}
