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

/// A provider's answer for a zone at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The factor counted.
    pub factor: Factor,
    /// When the provider said so, where it tells; else when it was asked.
    pub issued: Timestamp,
    /// The intensity now: from when it holds, and itself.
    pub now: (Timestamp, Intensity),
    /// Whether the provider estimated it.
    pub is_estimated: bool,
    /// The forecast from then on: the beginning of each step, and its intensity.
    pub expected: Vec<(Timestamp, Intensity)>,
}

impl Reading {
    /// The values known for so many windows, of which the first begins now. A window beyond the reading's forecast
    /// counts like the same time of its last day, and without a forecast like now.
    ///
    /// The value counts as observed for two steps, because providers publish late; after that the forecast counts
    /// for the window that begins.
    #[must_use]
    pub fn outlook(&self, now: Timestamp, window: Seconds, count: usize) -> Vec<Known> {
        let issued = self.issued.min(now);
        let expected = Issued::new(issued, &self.expected);
        let Ok(issue) = expected.or_else(|_| Issued::new(issued, &[self.now])) else {
            return Vec::new();
        };
        let (begin, value) = self.now;
        let is_observed = now.duration_since(begin).as_secs_f64() < 2.0 * issue.step().0;
        let mut outlook = match is_observed {
            true => {
                let issues: Forecasts = [issue].into_iter().collect();
                let outlook = issues.outlook(now, value, window, count);
                outlook.unwrap_or_default()
            }
            false => issue.outlook(now, window, count),
        };
        // A negative price counts as zero, because a job must not run longer in order to be paid for it.
        for known in &mut outlook {
            known.intensity = known.intensity.max(Intensity::ZERO);
        }
        outlook
    }
}

/// The values assumed for so many windows without a signal: all are alike.
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
