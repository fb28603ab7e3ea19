//! Expected values of a signal, and when they were published.

use std::str::FromStr;

use jiff::Timestamp;
use litd_units::{Intensity, Seconds};
use thiserror::Error;

use crate::series;
use crate::table::{MOST, Table, TableError};
use crate::time::{at, moment};
use crate::{Factor, Series};

/// A value of the signal together with the moment from which it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Known {
    /// When the value was issued or observed.
    pub issued: Timestamp,
    /// The beginning of the window that it is for.
    pub window: Timestamp,
    /// The mean of that window.
    pub intensity: Intensity,
}

/// A decision was given a value that was issued after the moment of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a value for {window} that was issued at {issued} can't be used in a decision of {now}: that would be \
     knowledge of the future"
)]
pub struct FromLater {
    /// The moment of the decision.
    pub now: Timestamp,
    /// When the value was issued.
    pub issued: Timestamp,
    /// The window that it is for.
    pub window: Timestamp,
}

/// A forecast published at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Issued {
    /// When it was issued.
    pub at: Timestamp,
    values: Series,
    mean: f64,
}

/// Forecasts by the time of their issue: CSV with `issued_utc`, `lead_h` (the hours from issue to the
/// beginning of the step) and `forecast_g_per_kwh`; columns `zone` and `factor` say whose they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecasts {
    /// In order of time.
    issues: Vec<Issued>,
    zone: Option<String>,
    factor: Option<Factor>,
}

const COLUMNS: [&str; 3] = ["issued_utc", "lead_h", "forecast_g_per_kwh"];
/// An issue of a file may lack the values of all but one of so many steps. There may be many issues, and each step takes
/// memory.
const SPARSEST: usize = 100;
/// Signals repeat by the day.
const DAY: i64 = 86_400;

impl Forecasts {
    /// The newest issue that is known at a moment.
    #[must_use]
    pub fn newest(&self, now: Timestamp) -> Option<&Issued> {
        let known = self.issues.partition_point(|issue| issue.at <= now);
        self.issues[..known].last()
    }

    /// Looks whether they are of this zone, as far as a trace names one, and of this factor. What is left open where the
    /// file does not say whose they are, in words.
    ///
    /// # Errors
    /// They are of another one.
    pub fn are_of(&self, zone: Option<&str>, factor: Factor) -> Result<Option<String>, String> {
        if let (Some(own), Some(zone)) = (self.zone.as_deref(), zone)
            && own != zone
        {
            return Err(format!(
                "the forecasts are of the zone {own}, and the trace is of {zone}"
            ));
        }
        if let Some(own) = self.factor.filter(|own| *own != factor) {
            return Err(format!(
                "the forecasts are of the {own} factor, and the {factor} factor is planned with: give --factor {own}, or \
                 forecasts of the other"
            ));
        }
        let unknown = match (&self.zone, self.factor) {
            (Some(_), Some(_)) => return Ok(None),
            (None, Some(_)) => "zone",
            (Some(_), None) => "factor",
            (None, None) => "zone and factor",
        };
        Ok(Some(format!(
            "the forecasts do not say their {unknown}: they are taken for the trace's (columns zone and factor would say it)"
        )))
    }

    /// When the first one was issued.
    #[must_use]
    pub fn first(&self) -> Option<Timestamp> {
        self.issues.first().map(|issue| issue.at)
    }

    /// The forecasts, in order of time.
    #[must_use]
    pub fn into_issues(self) -> Vec<Issued> {
        self.issues
    }

    /// The values known at a moment for so many windows, of which the first begins then: the observed value of
    /// that window, then the newest forecast. `None` before the first forecast.
    #[must_use]
    pub fn outlook(
        &self,
        now: Timestamp,
        observed: Intensity,
        window: Seconds,
        count: usize,
    ) -> Option<Vec<Known>> {
        let mut known = self.newest(now)?.outlook(now, window, count);
        if let Some(first) = known.first_mut() {
            (first.issued, first.intensity) = (now, observed);
        }
        Some(known)
    }
}

impl Issued {
    /// From an issue's values: where each step begins, and what is expected of it.
    ///
    /// # Errors
    /// There is none, or they are out of order.
    pub fn new(issued: Timestamp, values: &[(Timestamp, Intensity)]) -> Result<Self, String> {
        let points = values.iter().map(|(at, it)| (at.as_second(), Some(it.0)));
        let points: Vec<_> = points.collect();
        if points.is_empty() {
            return Err("the forecast is empty".to_owned());
        }
        let values = Series::new(&points, series::MOST).map_err(|(_, what)| what)?;
        Ok(Self::of(issued, values))
    }

    fn of(at: Timestamp, values: Series) -> Self {
        let (mut sum, mut count) = (0.0, 0.0);
        for (_, value) in values.known() {
            sum += value;
            count += 1.0;
        }
        let mean = sum / f64::max(count, 1.0);
        Self { at, values, mean }
    }

    /// The beginning of each step, and what is expected of it.
    #[must_use]
    pub fn values(&self) -> Vec<(Timestamp, Intensity)> {
        let known = self.values.known();
        known
            .map(|(begin, value)| (at(begin), Intensity(value)))
            .collect()
    }

    /// The length of its steps.
    #[must_use]
    pub fn step(&self) -> Seconds {
        self.values.step()
    }

    /// Where its last step ends.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.values.end()
    }

    /// The forecast of so many windows from a moment on.
    #[must_use]
    pub fn outlook(&self, now: Timestamp, window: Seconds, count: usize) -> Vec<Known> {
        let length = window.0 as i64;
        let begins = (0..count as i64).map(|number| now.as_second() + number * length);
        let known = begins.map(|begin| Known {
            issued: self.at,
            window: at(begin),
            intensity: Intensity(self.expected(begin, begin + length)),
        });
        known.collect()
    }

    /// The forecast of a window. A window beyond the forecast's end counts like the same time of its last day, or,
    /// without such a day, like its mean.
    pub(crate) fn expected(&self, from: i64, to: i64) -> f64 {
        let behind = to - self.values.end().as_second();
        let days = if behind > 0 {
            (behind + DAY - 1) / DAY
        } else {
            0
        };
        let same = self.values.mean(from - days * DAY, to - days * DAY);
        same.unwrap_or(self.mean)
    }
}

impl FromIterator<Issued> for Forecasts {
    fn from_iter<I: IntoIterator<Item = Issued>>(issues: I) -> Self {
        let mut issues: Vec<Issued> = issues.into_iter().collect();
        issues.sort_by_key(|issue| issue.at);
        Self {
            issues,
            zone: None,
            factor: None,
        }
    }
}

impl FromStr for Forecasts {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        let table = Table::read(text, &COLUMNS)?;
        table.check_lengths()?;
        let [issued, lead, value] = COLUMNS.map(|name| table.column(name).unwrap_or_default());
        // By issue: the line of each value, with its moment and itself.
        type Values = Vec<(usize, (i64, Option<f64>))>;
        let mut issues: Vec<(Timestamp, Values)> = Vec::new();
        for row in table.rows() {
            let wrong = |what: String| TableError::line(row.line, what);
            let moment = moment(row.text(issued)).map_err(wrong)?;
            let hours = row.number(lead, COLUMNS[1])?;
            let hours = hours.filter(|it| (0.0..=100_000.0).contains(it));
            let hours = hours.ok_or_else(|| {
                wrong(format!(
                    "lead_h {:?} must be 0 or more hours",
                    row.text(lead)
                ))
            })?;
            let number = row.number(value, table.name(value))?;
            if number.is_some_and(|it| !(0.0..=MOST).contains(&it)) {
                let text = row.text(value);
                let what = format!(
                    "{} {text} must be 0 or more, and at most {MOST}",
                    COLUMNS[2]
                );
                return Err(wrong(what));
            }
            // A forecast that is issued half a second before a step begins has leads of half seconds, and steps begin
            // on whole ones.
            let within = f64::from(moment.subsec_nanosecond()) / 1e9;
            let at = moment.as_second() + (within + hours * 3600.0).round() as i64;
            let value = (row.line, (at, number));
            // The search goes from the end, because the last one is wanted nearly always.
            let known = issues.iter().rposition(|(other, _)| *other == moment);
            match known {
                None => issues.push((moment, vec![value])),
                Some(issue) if issue + 1 == issues.len() => issues[issue].1.push(value),
                Some(_) => {
                    let what = format!("the issue of {moment} continues after another one");
                    return Err(wrong(what));
                }
            }
        }
        // Without the end that has no values a forecast ends earlier; without any it is none, and the one before holds.
        let issues = issues.into_iter().filter_map(|(at, mut values)| {
            let last = values.iter().rposition(|(_, (_, value))| value.is_some())?;
            values.truncate(last + 1);
            Some((at, values))
        });
        let issues = issues.map(|(at, values)| {
            let points: Vec<_> = values.iter().map(|(_, point)| *point).collect();
            let series = Series::new(&points, SPARSEST * points.len());
            let values = series.map_err(|(row, what)| TableError::line(values[row].0, what))?;
            Ok(Issued::of(at, values))
        });
        let zone = table.same("zone")?.map(str::to_owned);
        let factor = table.same("factor")?.map(str::parse::<Factor>).transpose();
        Ok(Self {
            zone,
            factor: factor.map_err(|what| TableError::Whole(format!("the factor {what}")))?,
            ..issues.collect::<Result<Self, TableError>>()?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issue_within_a_second_keeps_the_steps_of_its_values() {
        for fraction in 0..100 {
            let issued = format!("2026-11-30T04:59:59.{fraction:02}Z");
            let until = 1.0 - f64::from(fraction) / 100.0;
            let mut text = "issued_utc,lead_h,forecast_g_per_kwh\n".to_owned();
            for hour in 0..48 {
                let lead = (until + 3600.0 * f64::from(hour)) / 3600.0;
                text.push_str(&format!("{issued},{lead},{hour}\n"));
            }
            let forecasts: Forecasts = text.parse().unwrap();
            let issue = &forecasts.into_issues()[0];
            let mut begins = issue.values().into_iter().map(|it| it.0);
            let first: Timestamp = "2026-11-30T05:00:00Z".parse().unwrap();
            assert_eq!(begins.next(), Some(first), "{issued}");
            assert_eq!(begins.count(), 47);
        }
    }

    const TEXT: &str = "issued_utc,lead_h,forecast_g_per_kwh\n\
        2024-05-01T00:00:00Z,0,10\n2024-05-01T00:00:00Z,1,20\n2024-05-01T00:00:00Z,2,30\n\
        2024-05-02T00:00:00Z,0,40\n2024-05-02T00:00:00Z,1,50\n";

    #[test]
    fn an_issue_without_values_is_none_and_ends_where_its_values_do() {
        let empty = format!("{TEXT}2024-05-02T06:00:00Z,0,\n2024-05-02T06:00:00Z,1,\n");
        let parsed: Forecasts = empty.parse().unwrap();
        assert_eq!(parsed, TEXT.parse().unwrap());
        let cut = format!("{TEXT}2024-05-02T06:00:00Z,0,60\n2024-05-02T06:00:00Z,1,\n");
        let parsed: Forecasts = cut.parse().unwrap();
        let end = parsed.into_issues().last().map(Issued::end);
        assert_eq!(end, moment("2024-05-02T07:00:00Z").ok());
        let nothing = "issued_utc,lead_h,forecast_g_per_kwh\n2024-05-02T06:00:00Z,0,\n";
        let none: Forecasts = nothing.parse().unwrap();
        assert_eq!(none.first(), None);
    }

    #[test]
    fn only_what_was_issued_by_now_is_seen() {
        let forecasts: Forecasts = TEXT.parse().unwrap();
        let at = |text: &str| moment(text).unwrap();
        let values = |now: &str, count| {
            let outlook = forecasts.outlook(at(now), Intensity(7.0), Seconds(3600.0), count);
            let outlook = outlook.unwrap();
            assert!(outlook.iter().all(|known| known.issued <= at(now)));
            let values = outlook.iter().map(|known| known.intensity.0);
            values.collect::<Vec<_>>()
        };
        assert_eq!(values("2024-05-01T00:00:00Z", 3), [7.0, 20.0, 30.0]);
        assert_eq!(values("2024-05-01T01:00:00Z", 3), [7.0, 30.0, 20.0]);
        // The same hour of the day before, where the forecast ends.
        assert_eq!(values("2024-05-01T23:00:00Z", 3), [7.0, 10.0, 20.0]);
        assert_eq!(values("2024-05-02T00:00:00Z", 2), [7.0, 50.0]);
        let before = at("2024-04-30T23:00:00Z");
        assert!(
            forecasts
                .outlook(before, Intensity(7.0), Seconds(3600.0), 1)
                .is_none()
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |rows: &str| {
            let text = format!("issued_utc,lead_h,forecast_g_per_kwh\n{rows}");
            text.parse::<Forecasts>().unwrap_err().to_string()
        };
        assert!(error("2024-05-01T00:00:00Z,-1,10\n").contains("line 2: lead_h \"-1\""));
        assert!(error("2024-05-01T00:00:00Z,0,-10\n").contains("must be 0 or more"));
        let disorder = "2024-05-01T00:00:00Z,1,1\n2024-05-01T00:00:00Z,0,1\n";
        assert!(error(disorder).contains("line 3: "));
        let sparse =
            "2024-05-01T00:00:00Z,0,1\n2024-05-01T00:00:00Z,0.0003,1\n2024-05-01T00:00:00Z,48,1\n";
        let said = error(sparse);
        assert!(
            said.contains("line 4: ") && said.contains("more than 300 steps of 1 s"),
            "{said}"
        );
    }
}
