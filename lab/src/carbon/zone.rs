//! A zone's signal and its forecasts, from files.

use std::error::Error;
use std::path::Path;
use std::str::FromStr;

use jiff::Timestamp;
use litd_carbon::{Factor, Forecasts, Series, Skill, Trace};
use litd_cli::output;
use litd_cli::plan::parse;
use litd_units::Seconds;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// What is known of a zone.
pub struct Zone {
    pub name: String,
    pub intensity: Series,
    pub marginal: Option<Series>,
    pub prices: Option<Series>,
    pub forecasts: Option<Forecasts>,
    /// How much of the forecasts to believe, by the moment at which it was known.
    pub skill: Skill,
}

impl Zone {
    /// Reads a zone; one whose file does not name it has the file's name. Forecasts of another zone or factor are refused;
    /// of those that do not say whose they are, that is said.
    pub fn read(trace: &Path, forecasts: Option<&Path>, factor: Factor) -> Fallible<Self> {
        let read = parse::<Trace>(trace)?;
        let series = read.series(factor);
        let series = series.map_err(|error| format!("{}: {error}", trace.display()))?;
        let forecasts = forecasts.map(|path| forecasts_of(path, &read, factor));
        let forecasts = forecasts.transpose()?;
        let skill = forecasts
            .as_ref()
            .map(|forecasts| Skill::learn(series, Some(forecasts), series.first(), series.end()));
        let stem = trace.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: read.zone().map_or_else(|| stem.into_owned(), str::to_owned),
            intensity: series.clone(),
            marginal: read.series(Factor::Marginal).ok().cloned(),
            prices: read.prices().cloned(),
            forecasts,
            skill: skill.unwrap_or_default(),
        })
    }
}

fn forecasts_of(path: &Path, trace: &Trace, factor: Factor) -> Fallible<Forecasts> {
    let forecasts = parse::<Forecasts>(path)?;
    let belong = forecasts.are_of(trace.zone(), factor);
    let unknown = belong.map_err(|error| format!("{}: {error}", path.display()))?;
    if let Some(unknown) = unknown {
        output::note("litlab", &format!("{}: {unknown}", path.display()));
    }
    Ok(forecasts)
}

impl Zone {
    /// Whether a job that arrives then and has so long can be played: each signal has its hours, and a forecast had
    /// been issued.
    pub fn covers(&self, arrival: Timestamp, deadline: Seconds) -> bool {
        let hours = deadline.hours().ceil() as usize;
        let known = |it: &Series| it.windows(arrival, Seconds(3600.0), hours).is_ok();
        let signals = [
            Some(&self.intensity),
            self.marginal.as_ref(),
            self.prices.as_ref(),
        ];
        let issued = |it: &Forecasts| it.newest(arrival).is_some();
        signals.into_iter().flatten().all(known) && self.forecasts.as_ref().is_none_or(issued)
    }
}

/// A month: where it begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Month {
    pub begin: Timestamp,
    pub end: Timestamp,
}

impl Month {
    pub fn hours(self) -> u64 {
        let seconds = self.end.as_second() - self.begin.as_second();
        u64::try_from(seconds / 3600).unwrap_or_default()
    }
}

impl FromStr for Month {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no month: write it as 2024-05");
        let (year, month) = text.split_once('-').ok_or_else(wrong)?;
        let year: i32 = year.parse().map_err(|_| wrong())?;
        let month: u32 = month.parse().map_err(|_| wrong())?;
        let next = match month {
            1..=11 => (year, month + 1),
            12 => (year + 1, 1),
            _ => return Err(wrong()),
        };
        let first = |(year, month): (i32, u32)| {
            litd_carbon::moment(&format!("{year:04}-{month:02}-01T00:00:00Z"))
        };
        Ok(Self {
            begin: first((year, month)).map_err(|_| wrong())?,
            end: first(next).map_err(|_| wrong())?,
        })
    }
}
