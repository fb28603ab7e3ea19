//! Live signals: what providers are asked and what their answers say. No network is spoken to here.
//!
//! [`Provider`] knows each provider's requests and answers, [`Feed`] when to ask again, what to keep, and
//! when a value is stale.

mod answer;
mod feed;
mod history;
mod price;
mod provider;

pub use feed::{Current, Feed, Health, Trouble};
pub use history::History;
pub use provider::{Auth, Provider, Request};

use jiff::Timestamp;
use litd_units::{Intensity, Seconds};

use crate::{Factor, Forecasts, Issued, Known};

/// What a provider says of a zone at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// What it counts.
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

impl Reading {
    /// What is known of so many windows, the first of which begins now. Windows that the reading does not
    /// reach are as the same time of its last day, and where it expects nothing as now.
    #[must_use]
    pub fn outlook(&self, now: Timestamp, window: Seconds, count: usize) -> Vec<Known> {
        let issued = self.issued.min(now);
        let expected = Issued::new(issued, &self.expected);
        let issue = expected.or_else(|_| Issued::new(issued, &[self.now]));
        let issues: Forecasts = issue.into_iter().collect();
        let outlook = issues.outlook(now, self.now.1, window, count);
        let mut outlook = outlook.unwrap_or_default();
        // Nobody runs longer to be paid for it: a price below nothing counts as nothing.
        for known in &mut outlook {
            known.intensity = known.intensity.max(Intensity::ZERO);
        }
        outlook
    }
}

/// What is assumed of so many windows where nothing is known: that all are alike.
#[must_use]
pub fn level(now: Timestamp, window: Seconds, count: usize) -> Vec<Known> {
    let reading = Reading {
        factor: Factor::default(),
        issued: now,
        now: (now, Intensity(1.0)),
        is_estimated: true,
        expected: Vec::new(),
    };
    reading.outlook(now, window, count)
}
