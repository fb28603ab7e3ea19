//! The carbon intensity that a zone's electricity had.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use litd_units::{Intensity, Seconds};
use serde::{Deserialize, Serialize};

use crate::Series;
use crate::error::Uncovered;
use crate::table::{MOST, Table, TableError};
use crate::time::{at, moment};

/// The quantity counted for each kilowatt-hour: a kind of emissions, or its price.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Factor {
    /// Emissions of burning fuel, as the mean of all power stations.
    #[default]
    Direct,
    /// Emissions of a power station's whole life, as the mean of all power stations.
    Lifecycle,
    /// Emissions of the power stations that follow demand.
    Marginal,
    /// No emissions: what it costs. It may be negative.
    Price,
}

impl Factor {
    /// The factors that are emissions, in the order in which they are shown.
    pub const EMISSIONS: [Self; 3] = [Self::Direct, Self::Lifecycle, Self::Marginal];

    /// In which unit it is counted.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Direct | Self::Lifecycle | Self::Marginal => "g/kWh",
            Self::Price => "per kWh",
        }
    }

    /// The column of a trace that has it.
    #[must_use]
    pub fn column(self) -> &'static str {
        match self {
            Self::Direct => "ci_direct_g_per_kwh",
            Self::Lifecycle => "ci_lifecycle_g_per_kwh",
            Self::Marginal => "ci_marginal_g_per_kwh",
            Self::Price => "price_per_kwh",
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Lifecycle => "lifecycle",
            Self::Marginal => "marginal",
            Self::Price => "price",
        })
    }
}

impl FromStr for Factor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::EMISSIONS.into_iter().chain([Self::Price]);
        let meant = all.find(|it| it.to_string() == text);
        meant.ok_or("must be direct, lifecycle, marginal or price")
    }
}

/// A zone's recorded signals.
///
/// CSV with `datetime_utc` (where the step begins) and at least one of `ci_direct_g_per_kwh`,
/// `ci_lifecycle_g_per_kwh`, `ci_marginal_g_per_kwh` and `price_per_kwh`; `zone` may be there, and
/// other columns are not looked at. An empty field is a missing value.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    zone: Option<String>,
    /// By factor, in the order of [`Factor::EMISSIONS`].
    intensities: [Option<Series>; 3],
    prices: Option<Series>,
}

impl Trace {
    /// The zone's name, where the file has it.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// The intensity by one factor.
    ///
    /// # Errors
    /// The trace has no such column; the error names it.
    pub fn series(&self, factor: Factor) -> Result<&Series, TableError> {
        let missing = || {
            let column = factor.column();
            TableError::Whole(format!(
                "there is no column {column:?}, which the {factor} factor needs"
            ))
        };
        let at = Factor::EMISSIONS.iter().position(|it| *it == factor);
        let series = match at {
            Some(at) => self.intensities[at].as_ref(),
            None => self.prices.as_ref(),
        };
        series.ok_or_else(missing)
    }

    /// The price of a kilowatt-hour, where the trace has a column `price_per_kwh`.
    #[must_use]
    pub fn prices(&self) -> Option<&Series> {
        self.prices.as_ref()
    }
}

impl Series {
    /// The steps that had begun by a moment and their values, in order of time.
    #[must_use]
    pub fn until(&self, now: Timestamp) -> Vec<(Timestamp, Intensity)> {
        let known = self.known();
        let begun = known.take_while(|(begin, _)| *begin <= now.as_second());
        begun
            .map(|(begin, value)| (at(begin), Intensity(value)))
            .collect()
    }

    /// The windows of the day before a moment, in order of time, as far back as each has a value.
    #[must_use]
    pub fn day_before(&self, start: Timestamp, window: Seconds) -> Vec<Intensity> {
        let (until, length) = (start.as_second(), window.0 as i64);
        let count = (86_400.0 / window.0).ceil() as i64;
        let known = (1..=count).map_while(|number| {
            let begin = until - number * length;
            self.mean(begin, begin + length)
        });
        let mut known: Vec<_> = known.map(Intensity).collect();
        known.reverse();
        known
    }

    /// The values that hold as so many windows from a moment on begin, as far as there are any.
    #[must_use]
    pub fn begun(&self, start: Timestamp, window: Seconds, count: usize) -> Vec<Intensity> {
        let (from, length) = (start.as_second(), window.0 as i64);
        let each = (0..count as i64).map_while(|window| self.at(from + window * length));
        each.map(Intensity).collect()
    }

    /// The mean intensity of so many windows from a moment on.
    ///
    /// # Errors
    /// A window is not covered whole.
    pub fn windows(
        &self,
        start: Timestamp,
        window: Seconds,
        count: usize,
    ) -> Result<Vec<Intensity>, Uncovered> {
        let (from, length) = (start.as_second(), window.0 as i64);
        let each = (0..count as i64).map(|window| {
            let begin = from + window * length;
            self.mean(begin, begin + length).ok_or(begin)
        });
        let values = each.collect::<Result<Vec<_>, i64>>();
        let values = values.map_err(|begin| Uncovered {
            missing: at(self.missing(begin, begin + length)),
            first: self.first(),
            end: self.end(),
            start,
            until: at(from + count as i64 * length),
        })?;
        Ok(values.into_iter().map(Intensity).collect())
    }
}

impl FromStr for Trace {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        let table = Table::read(text, &["datetime_utc"])?;
        table.check_lengths()?;
        let time = table.column("datetime_utc").unwrap_or_default();
        let mut moments = Vec::new();
        let zone = table.same("zone")?;
        for row in table.rows() {
            let moment = moment(row.text(time));
            let moment = moment.map_err(|what| TableError::line(row.line, what))?;
            moments.push(moment.as_second());
        }
        let column = |name: &str, negative: bool| series(&table, &moments, name, negative);
        let [direct, lifecycle, marginal] = Factor::EMISSIONS.map(|it| column(it.column(), false));
        let intensities = [direct?, lifecycle?, marginal?];
        let prices = column(Factor::Price.column(), true)?;
        if prices.is_none() && intensities.iter().all(Option::is_none) {
            return Err(TableError::Column {
                column: Factor::Direct.column().to_owned(),
                needed: Factor::EMISSIONS.map(Factor::column).join(" or "),
            });
        }
        Ok(Self {
            zone: zone.map(str::to_owned),
            intensities,
            prices,
        })
    }
}

/// A column over time. Prices are negative at times; intensities never are.
fn series(
    table: &Table,
    moments: &[i64],
    name: &str,
    negative: bool,
) -> Result<Option<Series>, TableError> {
    let Some(column) = table.column(name) else {
        return Ok(None);
    };
    let mut points = Vec::with_capacity(moments.len());
    for (row, moment) in table.rows().iter().zip(moments) {
        let value = row.number(column, name)?;
        let least = if negative { -MOST } else { 0.0 };
        if value.is_some_and(|it| !(least..=MOST).contains(&it)) {
            let text = row.text(column);
            let what = format!("{name} {text} must be {least} or more, and at most {MOST}");
            return Err(TableError::line(row.line, what));
        }
        points.push((*moment, value));
    }
    let series = Series::new(&points, crate::series::MOST);
    let series = series.map_err(|(row, what)| TableError::line(table.rows()[row].line, what));
    series.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "datetime_utc,zone,ci_direct_g_per_kwh,ci_lifecycle_g_per_kwh\n";

    fn trace(rows: &str) -> Result<Trace, String> {
        let text = format!("{HEADER}{rows}");
        text.parse().map_err(|error: TableError| error.to_string())
    }

    #[test]
    fn each_factor_has_its_own_values() {
        let trace = trace(
            "2024-05-01T00:00:00Z,Z,60,100\n2024-05-01T01:00:00Z,Z,70,\n2024-05-01T02:00:00Z,Z,80,120\n",
        )
        .unwrap();
        let start = moment("2024-05-01T00:00:00Z").unwrap();
        let windows = |factor, count| {
            let series = trace.series(factor).unwrap();
            series.windows(start, Seconds(3600.0), count)
        };
        let direct = windows(Factor::Direct, 3).unwrap();
        assert_eq!(direct, [60.0, 70.0, 80.0].map(Intensity));
        let error = windows(Factor::Lifecycle, 2).unwrap_err().to_string();
        assert!(
            error.contains("no carbon intensity for 2024-05-01T01:00:00Z")
                && error.contains("T03:00:00Z with a gap there")
                && error.contains("give a signal without it, an earlier start"),
            "{error}"
        );
        let error = windows(Factor::Direct, 4).unwrap_err().to_string();
        assert!(
            error.contains("covers 2024-05-01T00:00:00Z to 2024-05-01T03:00:00Z, and")
                && error.contains("give a longer signal, an earlier start"),
            "{error}"
        );
        // The last window begins within the signal.
        let series = trace.series(Factor::Direct).unwrap();
        let start = moment("2024-05-01T00:30:00Z").unwrap();
        let error = series.windows(start, Seconds(3600.0), 3).unwrap_err();
        assert_eq!(error.missing, series.end());
        let error = trace.series(Factor::Marginal).unwrap_err().to_string();
        assert!(error.contains("ci_marginal_g_per_kwh"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |rows: &str| trace(rows).unwrap_err();
        assert!(error("2024-05-01T00:00:00Z,Z,-1,1\n").contains("line 2: ci_direct_g_per_kwh -1"));
        assert!(error("2024-05-01T00:00:00Z,Z,1,x\n").contains("\"x\" is no number"));
        assert!(error("May,Z,1,1\n").contains("line 2: \"May\" is no time"));
        let two = "2024-05-01T00:00:00Z,A,1,1\n2024-05-01T01:00:00Z,B,1,1\n";
        assert!(error(two).contains("line 3: the zone is \"B\" and was \"A\""));
        assert!(error("2024-05-01T00:00:00Z,Z,1e9,1\n").contains("at most 1000000"));
        assert!(
            error("2024-05-01T00:00:00Z,Z\n")
                .contains("2 fields and the first line names 4: is the file cut")
        );
        assert!(error("2024-05-01T00:00:00Z,Z,\"1,5\",1\n").contains("a comma in a number"));
        let twice = "2024-05-01T00:00:00Z,A,1,1\n2024-05-01T00:00:00Z,A,1,1\n";
        assert!(
            error(twice).contains("line 3: 2024-05-01T00:00:00Z has the time of the row before")
        );
    }
}
