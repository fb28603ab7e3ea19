//! The files that carbon commands read, and the numbers that they are given.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::str::FromStr;

use jiff::Timestamp;
use litd_units::{Seconds, Tokens};

/// A century of half-hours has some 100 MB.
const LONGEST: u64 = 256 << 20;

/// Reads and parses a regular file; the error names it.
pub fn parse<T: FromStr<Err: Display>>(path: &Path) -> Result<T, Box<dyn Error>> {
    let text = litd_files::text(path, LONGEST);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    let parsed = text.parse::<T>();
    parsed.map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The text of a regular file, or none where there is no such file. A file that can't be read is an error that names
/// it: taken for an absent one, it would be written over or begun anew.
pub fn text_if_there(path: &Path, longest: u64) -> Result<Option<String>, String> {
    match litd_files::text(path, longest) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// As [`parse`], or none where there is no such file.
pub fn parse_if_there<T: FromStr<Err: Display>>(path: &Path) -> Result<Option<T>, Damaged> {
    let text = text_if_there(path, LONGEST).map_err(Damaged::Unreadable)?;
    let parsed = text.map(|text| text.parse::<T>()).transpose();
    parsed.map_err(|error| Damaged::Wrong(format!("{}: {error}", path.display())))
}

/// Why a file is of no use.
#[derive(Debug)]
pub enum Damaged {
    /// The file can't be read, although its content may be right.
    Unreadable(String),
    /// The content is wrong.
    Wrong(String),
}

/// Reads a moment.
pub fn moment(text: &str) -> Result<Timestamp, String> {
    litd_carbon::moment(text)
}

/// Reads a number of tokens, such as 8e9.
pub fn tokens(text: &str) -> Result<Tokens, &'static str> {
    let tokens = text.replace('_', "").parse().ok();
    let tokens = tokens.filter(|it: &f64| it.is_finite() && *it > 0.0);
    tokens
        .map(Tokens)
        .ok_or("must be a number of tokens above 0, such as 8e9")
}

/// No job or signal is of more hours: that is a century.
const MOST_HOURS: f64 = 876_600.0;

/// Reads hours above 0.
pub fn hours(text: &str) -> Result<Seconds, &'static str> {
    let hours = span(text)?;
    match hours > Seconds::ZERO && hours <= Seconds::from_hours(MOST_HOURS) {
        true => Ok(hours),
        false => Err("must be more than 0 hours, and at most a century"),
    }
}

/// Reads the length of a window in hours: 1.1 of them are 3960 seconds, whatever floats make of it, and five minutes
/// may be written with six digits.
pub fn window(text: &str) -> Result<Seconds, &'static str> {
    let window = text.parse().map_or(Seconds::ZERO, Seconds::from_hours);
    let whole = Seconds(window.0.round());
    match litd_carbon::is_window(whole) && (window - whole).abs() <= Seconds(0.01) {
        true => Ok(whole),
        false => {
            Err("must come to whole seconds, and be at most 24 hours: five minutes are 0.083333")
        }
    }
}

/// Reads hours that may be 0.
pub fn span(text: &str) -> Result<Seconds, &'static str> {
    let hours = text.parse().ok();
    let hours = hours.filter(|it: &f64| it.is_finite() && *it >= 0.0);
    hours
        .map(Seconds::from_hours)
        .ok_or("must be a number of hours that is not negative")
}

/// Reads a share above 0.
pub fn share(text: &str) -> Result<f64, &'static str> {
    let share = text.parse().ok();
    let share = share.filter(|it: &f64| *it > 0.0 && *it <= 1.0);
    share.ok_or("must be a share of more than 0, and at most 1")
}

/// Reads seconds that may be 0.
pub fn seconds(text: &str) -> Result<Seconds, &'static str> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|it: &f64| it.is_finite() && *it >= 0.0);
    seconds
        .map(Seconds)
        .ok_or("must be a number of seconds that is not negative")
}
