//! Why there is no plan.

use jiff::Timestamp;
use litd_units::Seconds;
use thiserror::Error;

use crate::Configuration;

/// No configuration, nor any sequence of them, meets the deadline: the fastest one does not.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error(
    "infeasible: the fastest configuration, {fastest}, needs {:.2} h in whole windows, and the deadline is \
     {:.2} h after the start; allow more hours or fewer tokens",
    needed.hours(), deadline.hours()
)]
pub struct Infeasible {
    /// The configuration with the highest throughput.
    pub fastest: Configuration,
    /// The time needed, in whole windows.
    pub needed: Seconds,
    /// The time available.
    pub deadline: Seconds,
}

/// The signal has no value for a window that a plan may use. Nothing is wrapped around or made up.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "there is no carbon intensity for {missing}: the signal covers {first} to {end}{}, and a plan that starts at \
     {start} may use windows until {until}; give {}an earlier start or an earlier deadline",
    gap(self).0, gap(self).1
)]
pub struct Uncovered {
    /// The beginning of the first window without a value.
    pub missing: Timestamp,
    /// Where the signal begins.
    pub first: Timestamp,
    /// Where it ends.
    pub end: Timestamp,
    /// Where the plan starts.
    pub start: Timestamp,
    /// Where the last window ends that it may use.
    pub until: Timestamp,
}

/// The gap in the signal, and the remedy.
fn gap(uncovered: &Uncovered) -> (&'static str, &'static str) {
    let is_within = (uncovered.first..uncovered.end).contains(&uncovered.missing);
    match is_within {
        true => (" with a gap there", "a signal without it, "),
        false => ("", "a longer signal, "),
    }
}
