//! What litd and the process that has the library in it say to each other: one JSON document
//! per line, an answer to each request, in order.

use litd_units::Watts;
use serde::{Deserialize, Serialize};

use crate::domain::{CapRange, Reading};

/// No line is longer.
pub(super) const LONGEST_LINE: usize = 16 * 1024;

/// With a number, so that no answer is taken for another question's.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Numbered<T> {
    /// The request's number; that of [`Answer::Ready`] is 0.
    pub number: u64,
    /// What is said.
    pub body: T,
}

/// What is asked. Devices go by their addresses: their indices change when GPUs come and go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Which GPUs are there?
    List,
    /// What is it called?
    Describe(String),
    /// What may its cap be?
    Range(String),
    /// What is its cap?
    Cap(String),
    /// What do its sensors say?
    Read(String),
    /// Set its cap to so many watts, and read it back.
    Set(String, u32),
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The library is loaded and set up: sent once, unasked.
    Ready,
    /// The addresses of all GPUs, each once.
    Devices(Vec<String>),
    /// What a GPU is called.
    Description(Description),
    /// What its cap may be.
    Range(CapRange),
    /// Its cap, as it was read now.
    Cap(Watts),
    /// Its sensors.
    Reading(Reading),
    /// It came to nothing.
    Refused(Refusal),
}

/// What a GPU is called; what the library doesn't know is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Description {
    /// The number that no other GPU has.
    pub unique_id: Option<u64>,
    /// Serial number.
    pub serial: Option<String>,
    /// Name.
    pub model: Option<String>,
    /// The driver's version.
    pub driver: Option<String>,
}

/// Why it came to nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Refusal {
    /// The kind.
    pub cause: Cause,
    /// In words.
    pub text: String,
}

/// Kinds of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cause {
    /// The library can't be loaded.
    Load,
    /// The library could not set itself up.
    Init,
    /// The library has no such GPU.
    Gone,
    /// The cap is out of range.
    OutOfRange,
    /// Not allowed.
    Permission,
    /// Another process holds the library's mutex.
    Busy,
    /// Anything else.
    Other,
}
