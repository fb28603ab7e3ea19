//! The protocol between litd and the process that has the library: one JSON document per line, an answer to each
//! request, in order.

use litd_units::Watts;
use serde::{Deserialize, Serialize};

use crate::domain::{CapRange, Reading};

/// The longest line, in bytes.
pub(super) const LONGEST_LINE: usize = 16 * 1024;

/// A message with a number, so that no answer is taken for another question's.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Numbered<T> {
    /// The request's number; that of [`Answer::Ready`] is 0.
    pub number: u64,
    /// The message.
    pub body: T,
}

/// A request. Devices are named by their addresses: their indices change when GPUs come and go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// List the GPUs.
    List,
    /// Describe a GPU.
    Describe(String),
    /// Read the range of its cap.
    Range(String),
    /// Read its cap.
    Cap(String),
    /// Read its sensors.
    Read(String),
    /// Set its cap to so many watts, and read it back.
    Set(String, u32),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The library is loaded and set up: sent once, unasked.
    Ready,
    /// The addresses of all GPUs, each once.
    Devices(Vec<String>),
    /// A GPU's description.
    Description(Description),
    /// The range of its cap.
    Range(CapRange),
    /// The cap, read now.
    Cap(Watts),
    /// The sensors.
    Reading(Reading),
    /// The request failed.
    Refused(Refusal),
}

/// A GPU's description; unknown fields are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Description {
    /// The number that is unique to the GPU.
    pub unique_id: Option<u64>,
    /// Serial number.
    pub serial: Option<String>,
    /// Name.
    pub model: Option<String>,
    /// The driver's version.
    pub driver: Option<String>,
}

/// Why a request failed.
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
    /// Any other error.
    Other,
}
