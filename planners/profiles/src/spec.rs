//! Costs from a file: per "stage,instruction" the fitted function and the measured options.

use std::collections::BTreeMap;
use std::str::FromStr;

use litd_units::{Hertz, Joules, Millis};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::curve::{Curve, CurveError};
use crate::kind::Kind;
use crate::units::Units;

/// Data of each kind of operation, by "stage,instruction".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spec {
    entries: BTreeMap<String, Entry>,
}

/// Data of a kind of operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// With `b` and `c` the fit `a * exp(b * t) + c`, in joules at t units of time. Without them
    /// the curve goes through the options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<f64>,
    /// Per unit of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<f64>,
    /// In joules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub c: Option<f64>,
    /// The shortest time; the options' where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmin: Option<Units>,
    /// The longest time; the options' where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmax: Option<Units>,
    /// Measurements at each clock that is worth having.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<ClockOption>>,
    /// The measurement at the fastest clock, which runs without a plan, be it worth having or not. If absent, the
    /// fastest of the options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_clock: Option<ClockOption>,
}

/// A measurement at one clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, Units, f64, f64)", into = "(f64, Units, f64, f64)")]
pub struct ClockOption {
    /// The clock.
    pub clock: Hertz,
    /// The time in whole units.
    pub time: Units,
    /// The effective cost: energy less what blocking would have used in the same time.
    pub cost: Joules,
    /// The time as measured.
    pub measured: Millis,
}

impl From<(f64, Units, f64, f64)> for ClockOption {
    fn from((megahertz, time, cost, seconds): (f64, Units, f64, f64)) -> Self {
        Self {
            clock: Hertz(megahertz * 1e6),
            time,
            cost: Joules(cost),
            measured: Millis(seconds * 1e3),
        }
    }
}

impl From<ClockOption> for (f64, Units, f64, f64) {
    fn from(option: ClockOption) -> Self {
        let ClockOption {
            clock,
            time,
            cost,
            measured,
        } = option;
        (clock.0 / 1e6, time, cost.0, measured.0 / 1e3)
    }
}

/// Why costs can't be used.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SpecError {
    #[error("it is not the JSON of costs: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0:?} is no \"stage,instruction\", like \"0,forward\"")]
    Key(String),
    #[error("{key}: {cause}")]
    Curve { key: String, cause: CurveError },
    #[error("{key}: {what}")]
    Entry { key: String, what: String },
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let spec: Self = serde_json::from_str(text)?;
        if let Some(key) = spec.entries.keys().find(|key| kind(key).is_none()) {
            return Err(SpecError::Key(key.clone()));
        }
        Ok(spec)
    }
}

fn kind(key: &str) -> Option<Kind> {
    let (stage, instruction) = key.split_once(',')?;
    let instruction = instruction.trim();
    (!instruction.is_empty()).then_some(Kind {
        stage: crate::kind::stage(stage.trim())?,
        instruction: instruction.to_owned(),
    })
}

fn key(kind: &Kind) -> String {
    format!("{},{}", kind.stage, kind.instruction)
}

impl Spec {
    /// Says what is known of a kind of operation.
    pub fn insert(&mut self, kind: &Kind, entry: Entry) {
        self.entries.insert(key(kind), entry);
    }

    /// The data of a kind of operation.
    #[must_use]
    pub fn entry(&self, kind: &Kind) -> Option<&Entry> {
        self.entries.get(&key(kind))
    }

    /// The cost of every kind of operation that the spec knows.
    ///
    /// # Errors
    /// If one has no usable cost: no option, negative or rising costs, times out of order.
    pub fn curves(&self) -> Result<BTreeMap<Kind, Curve>, SpecError> {
        let curves = self.entries.iter().map(|(key, entry)| {
            let kind = kind(key).ok_or_else(|| SpecError::Key(key.clone()))?;
            Ok((kind, entry.curve(key)?))
        });
        curves.collect()
    }
}

impl Entry {
    fn curve(&self, key: &str) -> Result<Curve, SpecError> {
        let wrong = |what: String| SpecError::Entry {
            key: key.into(),
            what,
        };
        let failed = |cause| SpecError::Curve {
            key: key.into(),
            cause,
        };
        let options = self.options.as_deref().unwrap_or_default();
        // Without a choice there is nothing to be wrong about: a GPU that loads data may draw less than one
        // that waits.
        let has_choice = options.len() > 1 || self.a.is_some();
        if self.options.is_some() {
            check(options, has_choice).map_err(wrong)?;
        }
        let points: Vec<_> = options
            .iter()
            .map(|option| (option.time, option.cost))
            .collect();
        let times = || points.iter().map(|point| point.0);
        let curve = match (self.a, self.b, self.c) {
            (Some(a), Some(b), Some(c)) => {
                let missing =
                    || wrong("tmin and tmax are missing, and there are no options".into());
                let shortest = self.tmin.or_else(|| times().min()).ok_or_else(missing)?;
                let longest = self.tmax.or_else(|| times().max()).ok_or_else(missing)?;
                Curve::exponential([a, b, c], shortest, longest).map_err(failed)?
            }
            (None, None, None) => Curve::through(&points).map_err(failed)?,
            _ => return Err(wrong("a, b and c belong together".into())),
        };
        let least = curve.cost(curve.longest());
        if has_choice && least < Joules::ZERO {
            return Err(wrong(format!(
                "its cost is negative at {} units: {least}",
                curve.longest()
            )));
        }
        Ok(curve)
    }
}

/// Options must be worth having: the slower, the cheaper, and nothing for less than nothing.
fn check(options: &[ClockOption], has_choice: bool) -> Result<(), String> {
    if options.is_empty() {
        return Err("it has no option: at least one clock must have been measured".into());
    }
    let mut sorted: Vec<&ClockOption> = options.iter().collect();
    sorted.sort_by(|a, b| a.time.cmp(&b.time).then(a.cost.0.total_cmp(&b.cost.0)));
    for option in &sorted {
        let ClockOption {
            clock,
            cost,
            measured,
            ..
        } = option;
        let megahertz = clock.0 / 1e6;
        let finite = clock.is_finite() && cost.is_finite() && measured.is_finite();
        if !finite || *measured < Millis::ZERO || clock.0 < 0.0 {
            return Err(format!(
                "the option at {megahertz} MHz has a number that is not possible"
            ));
        }
        if has_choice && *cost < Joules::ZERO {
            return Err(format!(
                "the option at {megahertz} MHz has a negative cost, {:e} J: waiting as long would use \
                 more energy (is the blocking power right?)",
                cost.0
            ));
        }
    }
    for pair in sorted.windows(2) {
        if pair[1].time > pair[0].time && pair[1].cost > pair[0].cost {
            return Err(format!(
                "the option at {} MHz takes longer than that at {} MHz and costs more",
                pair[1].clock.0 / 1e6,
                pair[0].clock.0 / 1e6
            ));
        }
    }
    Ok(())
}
