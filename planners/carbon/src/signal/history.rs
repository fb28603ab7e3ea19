//! Observed and forecast values of a signal, kept so that forecasts can be corrected by their past errors.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use litd_units::{Intensity, Seconds};

use super::Reading;
use crate::time::at;
use crate::{Factor, Forecasts, Issued, Known, Series, Skill, Trace};

/// Older values and issues are let go of.
const KEPT: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Between two issues that are kept lies so much time at least.
const BETWEEN: SignedDuration = SignedDuration::from_hours(6);

/// Values and issues of the last weeks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// By the moment from which they held, in seconds since 1970.
    observed: BTreeMap<i64, f64>,
    /// In order of time.
    issues: Vec<Issued>,
}

impl History {
    /// From what was kept in files.
    ///
    /// # Errors
    /// The trace has no values of this factor.
    pub fn of(trace: &Trace, forecasts: Option<Forecasts>, factor: Factor) -> Result<Self, String> {
        let series = trace.series(factor).map_err(|error| error.to_string())?;
        Ok(Self {
            observed: series.known().collect(),
            issues: forecasts.map(Forecasts::into_issues).unwrap_or_default(),
        })
    }

    /// Takes a reading; whether anything in it is to be kept.
    pub fn take(&mut self, reading: &Reading) -> bool {
        let (begin, value) = reading.now;
        let mut is_new = self.observed.insert(begin.as_second(), value.0) != Some(value.0);
        let last = self.issues.last().map(|issue| issue.at);
        // Prices of the day ahead are agreed: nothing is to be learned from them.
        let is_due = reading.factor != Factor::Price
            && last.is_none_or(|last| reading.issued.duration_since(last) >= BETWEEN);
        if is_due && let Ok(issue) = Issued::new(reading.issued, &reading.expected) {
            self.issues.push(issue);
            is_new = true;
        }
        let oldest = begin.saturating_sub(KEPT).unwrap_or(Timestamp::MIN);
        self.observed = self.observed.split_off(&oldest.as_second());
        self.issues.retain(|issue| issue.at >= oldest);
        is_new
    }

    /// The last value that was observed.
    #[must_use]
    pub fn last(&self) -> Option<(Timestamp, Intensity)> {
        let (begin, value) = self.observed.last_key_value()?;
        Some((at(*begin), Intensity(*value)))
    }

    /// The values known through a reading for so many windows, with its forecast corrected by earlier errors in
    /// the history. If the history allows no correction, the reading's own forecast.
    #[must_use]
    pub fn outlook(
        &self,
        reading: &Reading,
        now: Timestamp,
        window: Seconds,
        count: usize,
    ) -> Vec<Known> {
        let plain = || reading.outlook(now, window, count);
        // Prices of the day ahead are agreed, and nothing that has to be corrected.
        if reading.factor == Factor::Price {
            return plain();
        }
        let points: Vec<_> = self
            .observed
            .iter()
            .map(|(at, it)| (*at, Some(*it)))
            .collect();
        let Ok(signal) = Series::new(&points, crate::series::MOST) else {
            return plain();
        };
        let newest = Issued::new(reading.issued.min(now), &reading.expected);
        let issues = self.issues.iter().filter(|issue| issue.at <= now).cloned();
        let issues: Forecasts = issues.chain(newest).collect();
        let forecasts = issues.first().map(|_| &issues);
        let skill = Skill::learn(&signal, forecasts, now, now);
        let issue = skill.issue(&signal, forecasts, now);
        issue.map_or_else(plain, |issue| issue.outlook(now, window, count))
    }

    /// The same as the CSV of a trace and, where there are any, of its forecasts.
    #[must_use]
    pub fn to_csv(&self, factor: Factor) -> (String, Option<String>) {
        let mut trace = format!("datetime_utc,{}\n", factor.column());
        for (begin, value) in &self.observed {
            let _ = writeln!(trace, "{},{value}", at(*begin));
        }
        let mut forecasts = "issued_utc,lead_h,forecast_g_per_kwh\n".to_owned();
        for issue in &self.issues {
            for (begin, value) in issue.values() {
                let lead = begin.duration_since(issue.at).as_secs_f64() / 3600.0;
                // The step that had begun when the forecast was issued has been observed.
                if lead >= 0.0 {
                    let _ = writeln!(forecasts, "{},{lead},{}", issue.at, value.0);
                }
            }
        }
        (trace, (!self.issues.is_empty()).then_some(forecasts))
    }
}
