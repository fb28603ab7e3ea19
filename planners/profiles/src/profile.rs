//! From measured times and energies to costs.

use std::collections::BTreeMap;
use std::str::FromStr;

use litd_units::{Hertz, Joules, Millis, Watts};
use serde::Serialize;
use thiserror::Error;

use crate::fit::{Fit, Quality};
use crate::kind::{Kind, MAX_STAGES, stage};
use crate::spec::{ClockOption, Entry, Spec};
use crate::units::Units;

/// A measurement at one clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measurement {
    /// The clock that was locked; 0 where there is no choice.
    pub clock: Hertz,
    /// How long the operation took.
    pub time: Millis,
    /// Energy used.
    pub energy: Joules,
}

/// The measurements of each kind of operation: Zeus's CSV, whose columns are stage, instruction,
/// frequency (MHz), time (s) and energy (J), in any order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    measurements: BTreeMap<Kind, Vec<Measurement>>,
}

/// Why a profile can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ProfileError {
    #[error(
        "the first line has no column {0:?}; needed are stage,instruction,frequency,time,energy"
    )]
    Column(&'static str),
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("the profile has no measurement")]
    Empty,
    #[error("{0} can't be the unit of time: more than 0 ms is needed")]
    Unit(String),
    #[error("{0} can't be the power of blocking: 0 W or more is needed")]
    Blocking(String),
    #[error("{kind}: it takes {time}, too many units of {unit}")]
    TooLong {
        kind: Kind,
        time: String,
        unit: String,
    },
}

/// How times become whole units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// The planned time is never shorter than the measured one, so it can be kept.
    #[default]
    Up,
    /// As the public solver does: what is planned is missed by up to a unit per operation.
    Down,
}

/// The curve through the measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// The exponential function where it fits well, straight lines where not.
    #[default]
    Best,
    /// The exponential function wherever there is one.
    Exponential,
    /// Straight lines from measured point to measured point.
    Lines,
}

/// How measurements become costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pricing {
    /// The length of a unit of time, tau.
    pub unit: Millis,
    /// The power of a GPU that waits for another: it is subtracted from every operation.
    pub blocking: Watts,
    /// How times become whole units.
    pub rounding: Rounding,
    /// The curve through the measurements.
    pub shape: Shape,
    /// The largest relative error at a measured point with which an exponential fits well.
    pub tolerance: f64,
}

impl Default for Pricing {
    /// A unit of 1 ms, the paper's, and the reference data's 75 W.
    fn default() -> Self {
        Self {
            unit: Millis(1.0),
            blocking: Watts(75.0),
            rounding: Rounding::default(),
            shape: Shape::default(),
            tolerance: 0.03,
        }
    }
}

/// How one kind of operation was priced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Priced {
    /// Of what.
    #[serde(flatten)]
    pub kind: Kind,
    /// How many clocks were measured, and how many are worth having.
    pub measured: usize,
    /// Clocks that no other clock beats in both time and cost.
    pub kept: usize,
    /// How well the exponential fits; nothing where there is none.
    pub quality: Option<Quality>,
    /// Whether it is used; otherwise straight lines are.
    pub exponential: bool,
}

impl Profile {
    /// The profile of these measurements.
    pub fn new(measurements: impl IntoIterator<Item = (Kind, Measurement)>) -> Self {
        let mut profile = Self::default();
        for (kind, measurement) in measurements {
            profile
                .measurements
                .entry(kind)
                .or_default()
                .push(measurement);
        }
        profile
    }

    /// The measurements of each kind of operation.
    pub fn measurements(&self) -> impl Iterator<Item = (&Kind, &[Measurement])> {
        let all = self.measurements.iter();
        all.map(|(kind, measurements)| (kind, measurements.as_slice()))
    }

    /// Costs from these measurements: the effective ones (equation 4), at the clocks that no
    /// other beats, with the curve through them.
    ///
    /// # Errors
    /// If the unit of time or the power of blocking is none.
    pub fn price(&self, pricing: &Pricing) -> Result<(Spec, Vec<Priced>), ProfileError> {
        if !(pricing.unit.is_finite() && pricing.unit > Millis::ZERO) {
            return Err(ProfileError::Unit(pricing.unit.to_string()));
        }
        if !(pricing.blocking.is_finite() && pricing.blocking >= Watts::ZERO) {
            return Err(ProfileError::Blocking(pricing.blocking.to_string()));
        }
        if self.measurements.is_empty() {
            return Err(ProfileError::Empty);
        }
        let mut spec = Spec::default();
        let mut report = Vec::new();
        for (kind, measurements) in &self.measurements {
            let options = options(kind, measurements, pricing)?;
            let full_clock = options.iter().copied();
            let full_clock = full_clock.min_by(|a, b| a.measured.0.total_cmp(&b.measured.0));
            let options = worth_having(options, pricing.rounding);
            let (mut entry, priced) = price(kind, measurements.len(), options, pricing);
            entry.full_clock = full_clock;
            spec.insert(kind, entry);
            report.push(priced);
        }
        Ok((spec, report))
    }
}

/// The time and cost at each clock.
fn options(
    kind: &Kind,
    measurements: &[Measurement],
    pricing: &Pricing,
) -> Result<Vec<ClockOption>, ProfileError> {
    let mut options: Vec<ClockOption> = Vec::with_capacity(measurements.len());
    for Measurement {
        clock,
        time,
        energy,
    } in means(measurements)
    {
        // A number of units that is whole but for floating-point error is taken as whole.
        let units = match (pricing.rounding, time / pricing.unit) {
            (Rounding::Up, units) => (units - 1e-9).ceil(),
            (Rounding::Down, units) => (units + 1e-9).floor(),
        };
        if units > f64::from(u32::MAX) {
            return Err(ProfileError::TooLong {
                kind: kind.clone(),
                time: format!("{:e} ms", time.0),
                unit: pricing.unit.to_string(),
            });
        }
        let blocked = pricing.blocking.0 * units * pricing.unit.0 * 1e-3;
        options.push(ClockOption {
            clock,
            time: Units(units as u32),
            cost: energy - Joules(blocked),
            measured: time,
        });
    }
    Ok(options)
}

/// The options at distinct whole times that no other beats, slowest first.
fn worth_having(mut options: Vec<ClockOption>, rounding: Rounding) -> Vec<ClockOption> {
    // Of one whole time, the one that keeps to it best: rounded down, the fastest.
    options.sort_by(|a, b| {
        let second = match rounding {
            Rounding::Up => a.cost.0.total_cmp(&b.cost.0),
            Rounding::Down => a.measured.0.total_cmp(&b.measured.0),
        };
        a.time.cmp(&b.time).then(second)
    });
    options.dedup_by_key(|option| option.time);
    let mut least = Joules(f64::INFINITY);
    options.retain(|option| {
        let beats = option.cost < least;
        least = least.min(option.cost);
        beats
    });
    options.reverse();
    options
}

/// A measurement per clock: the mean of repeated ones.
fn means(measurements: &[Measurement]) -> Vec<Measurement> {
    let mut sorted = measurements.to_vec();
    sorted.sort_by(|a, b| a.clock.0.total_cmp(&b.clock.0));
    let of_one_clock = sorted.chunk_by(|a, b| a.clock == b.clock);
    let mean = |same: &[Measurement]| Measurement {
        clock: same[0].clock,
        time: same.iter().map(|one| one.time).sum::<Millis>() / same.len() as f64,
        energy: same.iter().map(|one| one.energy).sum::<Joules>() / same.len() as f64,
    };
    of_one_clock.map(mean).collect()
}

fn price(
    kind: &Kind,
    measured: usize,
    options: Vec<ClockOption>,
    pricing: &Pricing,
) -> (Entry, Priced) {
    let points: Vec<(f64, f64)> = options
        .iter()
        .map(|option| (f64::from(option.time.0), option.cost.0))
        .collect();
    let fit = match pricing.shape {
        Shape::Lines => None,
        _ => Fit::exponential(&points),
    };
    let good = |fit: &&Fit| {
        pricing.shape == Shape::Exponential || fit.quality.largest_error <= pricing.tolerance
    };
    let used = fit.as_ref().filter(good);
    let priced = Priced {
        kind: kind.clone(),
        measured,
        kept: options.len(),
        quality: fit.as_ref().map(|fit| fit.quality),
        exponential: used.is_some(),
    };
    let entry = Entry {
        a: used.map(|fit| fit.a),
        b: used.map(|fit| fit.b),
        c: used.map(|fit| fit.c),
        tmin: options.last().map(|option| option.time),
        tmax: options.first().map(|option| option.time),
        options: Some(options),
        full_clock: None,
    };
    (entry, priced)
}

const COLUMNS: [&str; 5] = ["stage", "instruction", "frequency", "time", "energy"];

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        // Spreadsheets begin their files with a mark of the byte order.
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = text.lines().enumerate();
        let header: Vec<&str> = match lines.next() {
            Some((_, header)) => header.split(',').map(str::trim).collect(),
            None => return Err(ProfileError::Empty),
        };
        let mut places = [0; COLUMNS.len()];
        for (place, column) in places.iter_mut().zip(COLUMNS) {
            let found = header.iter().position(|name| *name == column);
            *place = found.ok_or(ProfileError::Column(column))?;
        }
        let mut measurements = Vec::new();
        for (number, line) in lines {
            if !line.trim().is_empty() {
                let wrong = |what| ProfileError::Line {
                    line: number + 1,
                    what,
                };
                measurements.push(measurement(line, places).map_err(wrong)?);
            }
        }
        if measurements.is_empty() {
            return Err(ProfileError::Empty);
        }
        Ok(Self::new(measurements))
    }
}

fn measurement(line: &str, places: [usize; 5]) -> Result<(Kind, Measurement), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let field = |column: usize| {
        let text = fields.get(places[column]).copied().unwrap_or_default();
        if text.is_empty() {
            Err(format!("{} is missing", COLUMNS[column]))
        } else {
            Ok(text)
        }
    };
    let number = |column: usize, zero: bool| {
        let text = field(column)?;
        let possible =
            |number: &f64| number.is_finite() && (*number > 0.0 || zero && *number == 0.0);
        let number = text.parse().ok().filter(possible);
        let wanted = if zero { "not negative" } else { "more than 0" };
        number.ok_or_else(|| format!("{} {text:?} is no number that is {wanted}", COLUMNS[column]))
    };
    let text = field(0)?;
    let not_one = || format!("{text:?} is not a stage: 0, 1, ... below {MAX_STAGES}");
    let stage = stage(text).ok_or_else(not_one)?;
    let kind = Kind {
        stage,
        instruction: field(1)?.to_owned(),
    };
    let measurement = Measurement {
        clock: Hertz(number(2, true)? * 1e6),
        time: Millis(number(3, false)? * 1e3),
        energy: Joules(number(4, false)?),
    };
    Ok((kind, measurement))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "stage,instruction,frequency,time,energy\n";

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let error = |rows: &str| {
            format!("{HEADER}{rows}")
                .parse::<Profile>()
                .unwrap_err()
                .to_string()
        };
        assert_eq!(error(""), "the profile has no measurement");
        assert!(
            error("0,forward,1410,0.03,-1\n")
                .contains("line 2: energy \"-1\" is no number that is more than 0")
        );
        assert!(error("0,forward,1410,0,1\n").contains("time \"0\""));
        assert!(error("0,forward,1410,nan,1\n").contains("time \"nan\""));
        assert!(error("0,forward,1410,0.03\n").contains("energy is missing"));
        assert!(error("-1,forward,1410,0.03,1\n").contains("not a stage"));
        assert!(error("4294967295,forward,1410,0.03,1\n").contains("not a stage"));
        let marked = format!("\u{feff}{HEADER}0,forward,1410,0.03,1\n");
        assert!(marked.parse::<Profile>().is_ok());
        let error = "stage,frequency\n".parse::<Profile>().unwrap_err();
        assert!(error.to_string().contains("\"instruction\""));
    }

    fn options(rows: &str, pricing: Pricing) -> Vec<(f64, u32)> {
        let profile: Profile = format!("{HEADER}{rows}").parse().unwrap();
        let (spec, _) = profile.price(&pricing).unwrap();
        let kind = Kind {
            stage: 0,
            instruction: "forward".into(),
        };
        let options = spec.entry(&kind).unwrap().options.clone().unwrap();
        options
            .iter()
            .map(|option| (option.clock.0 / 1e6, option.time.0))
            .collect()
    }

    #[test]
    fn a_clock_that_another_beats_is_left_out() {
        let rows = "0,forward,1400,0.030,10\n0,forward,1200,0.0342,9\n0,forward,800,0.050,12\n";
        let up = options(rows, Pricing::default());
        assert_eq!(up, [(1200.0, 35), (1400.0, 30)]);
        let down = options(
            rows,
            Pricing {
                rounding: Rounding::Down,
                ..Pricing::default()
            },
        );
        assert_eq!(down, [(1200.0, 34), (1400.0, 30)]);
    }

    #[test]
    fn repeated_measurements_count_with_their_mean() {
        let rows = "0,forward,1400,0.030,10\n0,forward,1400,0.032,10\n";
        assert_eq!(options(rows, Pricing::default()), [(1400.0, 31)]);
    }

    #[test]
    fn a_single_choice_is_one_time_and_one_cost() {
        let profile: Profile = format!("{HEADER}0,load,0,0.0123,2\n").parse().unwrap();
        let (spec, report) = profile.price(&Pricing::default()).unwrap();
        let curves = spec.curves().unwrap();
        let curve = curves.values().next().unwrap();
        assert_eq!((curve.shortest(), curve.longest()), (Units(13), Units(13)));
        assert!(!report[0].exponential);
    }
}
