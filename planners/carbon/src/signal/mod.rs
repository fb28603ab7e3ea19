//! Live signals: what providers are asked and what their answers say. No network is spoken to here.
//!
//! [`Provider`] knows each provider's requests and answers, [`Feed`] when to ask again, what to keep, and
//! when a value is stale.

mod answer;
mod feed;
mod provider;

pub use feed::{Current, Feed, Health, Trouble};
pub use provider::{Auth, Provider, Request};

use jiff::Timestamp;
use litd_units::Intensity;

use crate::Factor;

/// What a provider says of a zone at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Which emissions it counts.
    pub factor: Factor,
    /// When the provider said so, where it tells; else when it was asked.
    pub issued: Timestamp,
    /// The intensity now: from when it holds, and itself.
    pub now: (Timestamp, Intensity),
    /// Whether the provider estimated it.
    pub is_estimated: bool,
    /// What is expected from then on: the beginning of each step, and its intensity.
    pub expected: Vec<(Timestamp, Intensity)>,
}
