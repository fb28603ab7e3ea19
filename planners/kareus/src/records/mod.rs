//! Recorded results: CSV, or a JSON object for each line.
//!
//! As CSV the columns are `name,frequency,sms,launch,time,energy` (MHz, s, J; in any order), of one GPU and one
//! execution, and where they are known `clock` (MHz), `temperature` (°C) and `noise` (a part of the energy). `name`
//! is a partition's or a sequence's, such as `forward/attention`; `launch` is the name of the computation with which
//! the communication starts. A sequence leaves `sms` and `launch` empty.
//!
//! As JSON lines the keys are the same. What Kareus's artifact logs for a partition (`eval_results.jsonl`, with
//! `freq`, `overlap_start`, `sm`, `time_s` and `energy_j`) is read too; it has no name, so the reader is given one.
//! Other keys and columns are not read.
//!
//! A line that begins with `#` is a comment. `# SIMULATED` says that a simulator made the numbers.

mod line;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;

use litd_units::{Celsius, Hertz, Joules, Millis, Watts};
use thiserror::Error;

use crate::candidate::Candidate;
use crate::job::Job;
use crate::partition::Partition;
use crate::profile::{Measurement, Profiler as _};
use crate::results::Results;
use line::{Columns, Line};

/// Recorded results, line by line; not yet compared with a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records {
    lines: Vec<(usize, Line)>,
    simulated: bool,
}

/// Why records can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum RecordError {
    #[error("the first line has no column {0:?}; needed are name,frequency,sms,launch,time,energy")]
    Column(&'static str),
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("there is no result in it")]
    Empty,
    #[error("{0} can't be the static power: 0 W or more is needed")]
    StaticPower(String),
}

/// The subject of a line: a name, a clock in bits, and a partition's SMs and launch.
type Key<'a> = (&'a str, u64, Option<(u32, usize)>);

/// The first line of what a simulator made.
const SIMULATED: &str = "# SIMULATED";

/// Repeated results may differ by so much, as a part of the first; beyond that one of them is wrong.
const CONTRADICTION: f64 = 0.1;

impl Records {
    /// Reads records; lines without a name are of `name`.
    ///
    /// # Errors
    /// If a column is missing, or a line has a number that can't be.
    pub fn read(text: &str, name: Option<&str>) -> Result<Self, RecordError> {
        // Spreadsheets begin their files with a mark of the byte order.
        let text = text.trim_start_matches('\u{feff}');
        let mut records = Self::default();
        let mut columns = None;
        for (number, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                records.simulated |= text.starts_with(SIMULATED);
                continue;
            }
            let line = if text.starts_with('{') {
                Line::json(text)
            } else if let Some(columns) = &columns {
                Line::csv(text, columns)
            } else {
                columns = Some(Columns::find(text).map_err(RecordError::Column)?);
                continue;
            };
            let line = line.and_then(|line| line.named(name));
            let wrong = |what| RecordError::Line { line: number, what };
            records.lines.push((number, line.map_err(wrong)?));
        }
        match records.lines.is_empty() {
            true => Err(RecordError::Empty),
            false => Ok(records),
        }
    }

    /// Whether a simulator made them.
    #[must_use]
    pub fn simulated(&self) -> bool {
        self.simulated
    }

    /// Adds what these lines say to results. What is recorded more than once counts with its mean.
    ///
    /// # Errors
    /// If a line names something that the job does not have, contradicts an earlier one, is about something of which
    /// there are results already, or has less energy than the static power alone.
    pub fn add_to(&self, results: &mut Results, job: &Job) -> Result<(), RecordError> {
        let mut groups: BTreeMap<Key, Vec<(usize, Measurement)>> = BTreeMap::new();
        for (number, line) in &self.lines {
            let wrong = |what| RecordError::Line {
                line: *number,
                what,
            };
            let placement = placement(line, job).map_err(wrong)?;
            let measured = measurement(line);
            let least = results.static_power().0 * line.time;
            if line.energy < least {
                let what = format!(
                    "{} J in {} s is less than the static power of {} uses in that time; is that power right?",
                    line.energy,
                    line.time,
                    results.static_power()
                );
                return Err(wrong(what));
            }
            let key = (line.name(), (line.frequency * 1e6).to_bits(), placement);
            let group = groups.entry(key).or_default();
            if let Some((first, other)) = group.first() {
                agree(&measured, other)
                    .map_err(|what| wrong(format!("{what} than line {first} says of the same")))?;
            }
            group.push((*number, measured));
        }
        for ((name, clock, placement), group) in groups {
            let clock = Hertz(f64::from_bits(clock));
            let mean = mean(&group);
            let candidate = placement.map(|(sms, launch)| Candidate { clock, sms, launch });
            let known = match candidate {
                Some(it) => results
                    .of_partition(name)
                    .iter()
                    .any(|(other, _)| *other == it),
                None => results
                    .of_sequence(name)
                    .iter()
                    .any(|(other, _)| *other == clock),
            };
            if known {
                let line = group.first().map_or(0, |it| it.0);
                let what = format!("another file has a result for the same part of {name}");
                return Err(RecordError::Line { line, what });
            }
            match candidate {
                Some(it) => results.add_partition(name, it, mean),
                None => results.add_sequence(name, clock, mean),
            }
        }
        Ok(())
    }

    /// The results of a job with these records alone.
    ///
    /// # Errors
    /// As [`Self::add_to`], and if the static power is none.
    pub fn results(&self, job: &Job, static_power: Watts) -> Result<Results, RecordError> {
        if !(static_power.is_finite() && static_power >= Watts::ZERO) {
            return Err(RecordError::StaticPower(static_power.to_string()));
        }
        let mut results = Results::new(static_power);
        self.add_to(&mut results, job)?;
        Ok(results)
    }

    /// Results as CSV.
    #[must_use]
    pub fn write(results: &Results, job: &Job, simulated: bool) -> String {
        let mut text = String::new();
        if simulated {
            text += SIMULATED;
            text.push('\n');
        }
        text += "name,frequency,sms,launch,time,energy,clock,temperature,noise\n";
        // Writing to a string cannot fail.
        let mut row = |name: &str, clock: Hertz, place: String, it: &Measurement| {
            let _ = writeln!(
                text,
                "{name},{},{place},{},{},{},{},{}",
                clock.0 / 1e6,
                it.time.0 * 1e-3,
                it.energy.0,
                it.clock.0 / 1e6,
                it.temperature.map_or(String::new(), |it| it.0.to_string()),
                it.noise.map_or(String::new(), |it| it.to_string()),
            );
        };
        for partition in &job.partitions {
            for (candidate, measured) in results.of_partition(&partition.name) {
                let launch = partition.computations.get(candidate.launch);
                let launch = launch.map_or("", |it| it.name.as_str());
                let place = format!("{},{launch}", candidate.sms);
                row(&partition.name, candidate.clock, place, measured);
            }
        }
        for sequence in &job.sequences {
            for (clock, measured) in results.of_sequence(&sequence.name) {
                row(&sequence.name, *clock, ",".to_owned(), measured);
            }
        }
        text
    }
}

impl FromStr for Records {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        Self::read(text, None)
    }
}

/// SMs and launch of a partition's line; nothing for a sequence's.
fn placement(line: &Line, job: &Job) -> Result<Option<(u32, usize)>, String> {
    let name = line.name();
    let Some(partition) = job.partitions.iter().find(|it| it.name == name) else {
        let known = job.sequences.iter().any(|it| it.name == name);
        return match (known, &line.launch) {
            (true, None) if line.sms.is_none() => Ok(None),
            (true, _) => Err(format!(
                "{name} is a sequence, which has neither sms nor launch"
            )),
            (false, _) => Err(unknown(name, job)),
        };
    };
    match (line.sms, &line.launch) {
        (Some(sms), Some(launch)) => Ok(Some((sms, place(partition, launch)?))),
        _ => Err(format!(
            "{name} is a partition, so sms and launch are needed"
        )),
    }
}

fn unknown(name: &str, job: &Job) -> String {
    let partitions = job.partitions.iter().map(|it| it.name.as_str());
    let sequences = job.sequences.iter().map(|it| it.name.as_str());
    let all: Vec<&str> = partitions.chain(sequences).collect();
    format!(
        "{name:?} is no partition or sequence of this job, which has {}",
        all.join(", ")
    )
}

fn place(partition: &Partition, launch: &str) -> Result<usize, String> {
    let computations = &partition.computations;
    let found = computations.iter().position(|it| it.name == launch);
    found.ok_or_else(|| {
        let all: Vec<&str> = computations.iter().map(|it| it.name.as_str()).collect();
        format!(
            "{launch:?} is no computation of {}, which has {}",
            partition.name,
            all.join(", ")
        )
    })
}

fn measurement(line: &Line) -> Measurement {
    Measurement {
        time: Millis(line.time * 1e3),
        energy: Joules(line.energy),
        clock: Hertz(line.clock.unwrap_or(line.frequency) * 1e6),
        temperature: line.temperature.map(Celsius),
        noise: line.noise,
    }
}

fn agree(one: &Measurement, other: &Measurement) -> Result<(), String> {
    let pairs = [
        ("time", one.time.0, other.time.0),
        ("energy", one.energy.0, other.energy.0),
    ];
    for (what, one, other) in pairs {
        let difference = one / other - 1.0;
        if difference.abs() > CONTRADICTION {
            return Err(format!(
                "contradicting results: {:+.0} % {what}",
                100.0 * difference
            ));
        }
    }
    Ok(())
}

fn mean(group: &[(usize, Measurement)]) -> Measurement {
    let count = group.len() as f64;
    let mean =
        |of: &dyn Fn(&Measurement) -> f64| group.iter().map(|(_, it)| of(it)).sum::<f64>() / count;
    let known = |of: &dyn Fn(&Measurement) -> Option<f64>| {
        let values: Option<Vec<f64>> = group.iter().map(|(_, it)| of(it)).collect();
        values.map(|it| it.iter().sum::<f64>() / count)
    };
    Measurement {
        time: Millis(mean(&|it| it.time.0)),
        energy: Joules(mean(&|it| it.energy.0)),
        clock: Hertz(mean(&|it| it.clock.0)),
        temperature: known(&|it| it.temperature.map(|it| it.0)).map(Celsius),
        noise: known(&|it| it.noise),
    }
}
