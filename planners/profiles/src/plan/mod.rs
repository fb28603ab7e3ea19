//! The plan contract: what a planner hands to whoever runs an iteration.
//!
//! A [`Contract`] says for each GPU of a pipeline, in its order of execution, at which clock each
//! instruction runs, and where a planner knows more: on how many multiprocessors the communication beside
//! each partition runs and when it is launched, and the time, energy, power and slack to expect.
//! `litctl plan` and `litd-planner` write it for Perseus; a planner of kernels (Kareus) adds partitions.
//!
//! It is JSON with a version (`docs/planner.md` describes every key), or one of the two Python literals of
//! Kareus's public artifact: `freqs_pipeline_N.py` has the clocks, `scheds_pipeline_N.py` the partitions.
//! All three are read by [`Contract::read`] and written by [`Contract::write`], and [`Check`] says what is
//! wrong with one.

mod artifact;
mod check;
mod literal;
mod totals;
mod wire;

use std::fmt;

use litd_units::{Hertz, Joules, Millis, Watts};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use check::{Check, INSTRUCTIONS, Step};

/// The version of the JSON that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// A longer text is no plan: 128 stages with 1024 microbatches have a third of it.
const LONGEST: usize = 64 << 20;

/// An iteration of one pipeline as planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// [`VERSION`].
    pub version: u32,
    /// The planner: "perseus", "kareus", ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planner: Option<String>,
    /// Whether it rests on made-up measurements.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// The power of a GPU that waits for another, to which costs are relative.
    #[serde(
        default,
        rename = "blocking_w",
        skip_serializing_if = "Option::is_none"
    )]
    pub blocking: Option<Watts>,
    /// The expected time and energy of the iteration.
    #[serde(default, skip_serializing_if = "Totals::is_empty")]
    pub totals: Totals,
    /// Where the plan comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontier: Option<Origin>,
    /// The instructions of each GPU in a row, from stage 0 on.
    pub stages: Vec<Stage>,
}

/// The expected time and energy of an iteration, of one GPU in each stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Totals {
    /// The number that the planner gave this point of its frontier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u64>,
    /// From the iteration's beginning to its end.
    #[serde(rename = "time_ms", skip_serializing_if = "Option::is_none")]
    pub time: Option<Millis>,
    /// When all pipelines are done, which is later where another is late.
    #[serde(rename = "until_ms", skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// The energy of the GPUs until then, waiting included.
    #[serde(rename = "energy_j", skip_serializing_if = "Option::is_none")]
    pub energy: Option<Joules>,
    /// The energy less what waiting would have used in the same time (Perseus, equation 4).
    #[serde(rename = "effective_j", skip_serializing_if = "Option::is_none")]
    pub effective: Option<Joules>,
    /// How much more of that than at the point before.
    #[serde(rename = "cost_change_j", skip_serializing_if = "Option::is_none")]
    pub cost_change: Option<Joules>,
}

impl Totals {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The frontier that a plan is a point of. Times are planned ones, of whole units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The unit of time.
    #[serde(rename = "unit_ms")]
    pub unit: Millis,
    /// The time of the point that was chosen.
    #[serde(rename = "time_ms")]
    pub time: Millis,
    /// The shortest time of the frontier.
    #[serde(rename = "shortest_ms")]
    pub shortest: Millis,
    /// The longest, T*: from there on nothing is saved.
    #[serde(rename = "longest_ms")]
    pub longest: Millis,
    /// The time of the least energy while no other pipeline is late.
    #[serde(rename = "cheapest_ms")]
    pub cheapest: Millis,
    /// An iteration's time with everything at the full clock: what a straggler's degree is relative to.
    #[serde(rename = "full_clock_ms")]
    pub full_clock: Millis,
    /// Points of the frontier, from the shortest time on: time, and energy while no other pipeline is late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<(Millis, Joules)>,
}

/// The instructions of a GPU of a row in an iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// The GPU's place in the row, from 0.
    pub stage: u32,
    /// In the order of execution.
    pub instructions: Vec<Instruction>,
}

/// A computation, or another operation that takes time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instruction {
    /// The work: one of [`INSTRUCTIONS`], or the engine's own name.
    pub instruction: String,
    /// Of which microbatch, from 0.
    pub microbatch: u32,
    /// Of which chunk of the GPU's layers, where these are interleaved.
    #[serde(default, skip_serializing_if = "wire::is_zero")]
    pub chunk: u32,
    /// The clock to lock; absent where the clock stays as it is.
    #[serde(
        default,
        rename = "clock_mhz",
        with = "wire::megahertz",
        skip_serializing_if = "Option::is_none"
    )]
    pub clock: Option<Hertz>,
    /// How the communication beside each partition runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<Partition>,
    /// How long it is expected to take.
    #[serde(default, rename = "time_ms", skip_serializing_if = "Option::is_none")]
    pub time: Option<Millis>,
    /// The expected energy.
    #[serde(default, rename = "energy_j", skip_serializing_if = "Option::is_none")]
    pub energy: Option<Joules>,
    /// The expected power of the GPU meanwhile.
    #[serde(default, rename = "power_w", skip_serializing_if = "Option::is_none")]
    pub power: Option<Watts>,
    /// How much later it may end without anything else beginning later. All instructions may use theirs at
    /// the same time.
    #[serde(default, rename = "slack_ms", skip_serializing_if = "Option::is_none")]
    pub slack: Option<Millis>,
}

/// How the communication beside one part of an instruction runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// The partition: "attention", "mlp", "recompute_attention", ... ([`partitions`]).
    pub name: String,
    /// The kernel beside which the communication is launched, such as "norm_0".
    pub launch: String,
    /// The kernel before which it must have ended; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// On how many multiprocessors it runs.
    pub sms: u32,
    /// How many threads each of its blocks has.
    pub threads: u32,
}

pub use artifact::partitions;

/// How a plan is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Format {
    /// The contract's own JSON.
    #[serde(rename = "contract")]
    Contract,
    /// `freqs_pipeline_N.py`: a list per stage of `('forward', 1410)`.
    #[serde(rename = "freqs")]
    Frequencies,
    /// `scheds_pipeline_N.py`: a list per stage of `('forward', 'norm_0-none-12-1024', ...)`.
    #[serde(rename = "scheds")]
    Schedules,
}

/// A place in a text, from line 1 and column 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a text is no plan, with the place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what}")]
pub struct PlanError {
    what: String,
    format: Option<Format>,
}

impl PlanError {
    fn new(what: impl Into<String>) -> Self {
        let what = escaped(&what.into(), LONGEST_MESSAGE);
        Self { what, format: None }
    }

    fn at(at: Position, what: impl Into<String>) -> Self {
        Self::new(format!("{at}: {}", what.into()))
    }

    fn of(self, format: Format) -> Self {
        let format = Some(format);
        Self { format, ..self }
    }

    /// The format that the text has otherwise, where that can be told.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.format
    }
}

impl Contract {
    /// A plan without anything but what each stage does.
    #[must_use]
    pub fn new(stages: Vec<Stage>) -> Self {
        Self {
            version: VERSION,
            planner: None,
            simulated: false,
            blocking: None,
            totals: Totals::default(),
            frontier: None,
            stages,
        }
    }

    /// Reads a plan in any of the formats; its content tells which it is.
    ///
    /// # Errors
    /// If it is none, with the line and the column. What a plan of the right form says may still be wrong:
    /// see [`Check`].
    pub fn read(text: &str) -> Result<(Format, Self), PlanError> {
        if text.len() > LONGEST {
            return Err(PlanError::new(format!(
                "more than {} MiB are no plan",
                LONGEST >> 20
            )));
        }
        let begins = text.trim_start_matches('\u{feff}').trim_start();
        match begins.starts_with('{') {
            true => Ok((Format::Contract, wire::read(text)?)),
            false => artifact::read(text),
        }
    }

    /// The plan as text. The Python literals leave out what they have no place for.
    #[must_use]
    pub fn write(&self, format: Format) -> String {
        match format {
            Format::Contract => wire::write(self),
            Format::Frequencies => artifact::frequencies(self),
            Format::Schedules => artifact::schedules(self),
        }
    }

    /// The same plan with another one's partitions: the public artifact has clocks in one file and
    /// partitions in another.
    ///
    /// # Errors
    /// If an instruction of either has no counterpart in the other; with its place.
    pub fn with_partitions(mut self, of: &Self) -> Result<Self, PlanError> {
        if self.stages.len() != of.stages.len() {
            return Err(PlanError::new(format!(
                "{} stages with clocks, and {} with partitions",
                self.stages.len(),
                of.stages.len()
            )));
        }
        for (at, (stage, other)) in self.stages.iter_mut().zip(&of.stages).enumerate() {
            let mut theirs: std::collections::HashMap<_, _> = other
                .instructions
                .iter()
                .map(|it| ((it.instruction.as_str(), it.microbatch, it.chunk), it))
                .collect();
            for own in &mut stage.instructions {
                let key = (own.instruction.as_str(), own.microbatch, own.chunk);
                let found = theirs.remove(&key).ok_or_else(|| {
                    PlanError::new(format!("stage {at}: no partitions for {}", own.label()))
                })?;
                own.partitions.clone_from(&found.partitions);
            }
            if let Some(left) = theirs.values().next() {
                return Err(PlanError::new(format!(
                    "stage {at}: no clock for {}",
                    left.label()
                )));
            }
        }
        Ok(self)
    }

    /// All instructions with the stage that has them, stage by stage.
    pub fn instructions(&self) -> impl Iterator<Item = (u32, &Instruction)> {
        let of_stage = |stage: &'_ Stage| stage.stage;
        self.stages
            .iter()
            .flat_map(move |it| it.instructions.iter().map(move |own| (of_stage(it), own)))
    }
}

/// So much of a name is shown in messages.
const SHOWN: usize = 64;
/// A message is no longer.
const LONGEST_MESSAGE: usize = 400;

/// A name of a plan as messages have it: escaped, because a file must not be able to forge lines of a message or
/// to send a terminal escape sequences, and cut where it is long.
fn shown(name: &str) -> String {
    escaped(name, SHOWN)
}

fn escaped(text: &str, longest: usize) -> String {
    let mut plain = String::new();
    for (at, letter) in text.chars().enumerate() {
        match letter {
            _ if at >= longest => {
                plain.push('…');
                break;
            }
            '"' | '\'' | '\\' => plain.push(letter),
            _ => plain.extend(letter.escape_debug()),
        }
    }
    plain
}

impl Instruction {
    /// The instruction's name in messages.
    fn label(&self) -> String {
        let Self {
            instruction,
            microbatch,
            chunk,
            ..
        } = self;
        let instruction = shown(instruction);
        match chunk {
            0 => format!("{instruction} of microbatch {microbatch}"),
            _ => format!("{instruction} of microbatch {microbatch}, chunk {chunk}"),
        }
    }
}
