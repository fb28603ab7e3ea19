//! What a benchmark may print: numbers that come from samples. Code changes, and what a benchmark
//! measures may happen no more; then it ends with a sentence and a status that is not 0, and prints
//! no figure. Every benchmark of the workspace uses this file, each a part of it.
#![allow(dead_code)]

use std::fmt;

/// Why there is nothing to print.
pub struct Nothing(String);

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As `main` prints it.
impl fmt::Debug for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Nothing {}

/// That something was not measured, and why.
pub fn nothing(what: &str, why: impl fmt::Display) -> Nothing {
    Nothing(format!("{what} was not measured: {why}"))
}

/// Samples of one thing, in order.
pub struct Samples(Vec<f64>);

impl Samples {
    /// At least so many samples of what can't be below 0, nor always 0.
    pub fn new(what: &str, least: usize, mut values: Vec<f64>) -> Result<Self, Nothing> {
        if values.len() < least.max(1) {
            let why = format!("{} samples, and it takes {least}", values.len());
            return Err(nothing(what, why));
        }
        if let Some(odd) = values.iter().find(|it| !(it.is_finite() && **it >= 0.0)) {
            return Err(nothing(what, format!("a sample is {odd}")));
        }
        values.sort_by(f64::total_cmp);
        let samples = Self(values);
        amount(what, samples.percentile(50))?;
        Ok(samples)
    }

    /// The value at or below which so many per cent lie.
    pub fn percentile(&self, percent: usize) -> f64 {
        let at = (self.0.len() * percent).div_ceil(100).max(1) - 1;
        self.0.get(at).copied().unwrap_or(f64::NAN)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// A number that is something: finite, and above 0.
pub fn amount(what: &str, found: f64) -> Result<f64, Nothing> {
    match found.is_finite() && found > 0.0 {
        true => Ok(found),
        false => Err(nothing(what, format!("it comes to {found}"))),
    }
}

/// The parts of a benchmark that the command line asks for; all, if it names none.
pub struct Parts(Vec<String>);

impl Parts {
    /// A benchmark with these parts. One that it does not have would measure nothing.
    pub fn asked(known: &[&str]) -> Result<Self, Nothing> {
        // cargo adds `--bench`.
        let words = std::env::args().skip(1).filter(|it| !it.starts_with('-'));
        let asked = Vec::from_iter(words);
        match asked.iter().find(|it| !known.contains(&it.as_str())) {
            Some(other) => {
                let why = format!("there is no such part, but {}", known.join(", "));
                Err(nothing(other, why))
            }
            None => Ok(Self(asked)),
        }
    }

    /// Whether a part is asked for.
    pub fn has(&self, part: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|it| it == part)
    }
}
