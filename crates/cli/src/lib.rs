//! Common parts of the programs at a terminal, litctl and litlab: printing, drawing, and the commands that differ
//! only in whether their input is measured (litctl) or SIMULATED (litlab).

pub mod colours;
pub mod draw;
pub mod output;
#[cfg(feature = "plan")]
pub mod plan;
pub mod show;
pub mod status;
#[cfg(feature = "traces")]
pub mod traces;

#[cfg(test)]
#[allow(dead_code, reason = "litctl's tests need the rest")]
#[path = "../../api/tests/samples/mod.rs"]
mod samples;

use std::str::FromStr;

/// The result of a command; the error's text is all that a user sees.
pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Reads a number of a list, in which people write spaces after commas.
///
/// # Errors
/// It is none.
pub fn spaced<T: FromStr>(text: &str) -> Result<T, T::Err> {
    text.trim().parse()
}
