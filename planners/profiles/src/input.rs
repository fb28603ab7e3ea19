//! Graphs, costs and profiles from whatever they are read from.

use std::fmt::Display;
use std::io::{self, Read};
use std::str::FromStr;

use thiserror::Error;

/// The longest file that is read; a longer one, such as a device that never ends, is a mistake.
const LONGEST: u64 = 256 << 20;

/// Why something is no graph, costs or profile.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ReadError<E: Display> {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("more than {} MiB: that is no graph, costs or profile", LONGEST >> 20)]
    TooLong,
    #[error("{0}")]
    Content(E),
}

/// Reads a [`Spec`](crate::Spec), a [`Profile`](crate::Profile) or what else a planner is given to
/// its end, 256 MiB at most.
///
/// # Errors
/// If it can't be read, is too long or is none.
pub fn read<T: FromStr<Err: Display>>(source: impl Read) -> Result<T, ReadError<T::Err>> {
    let mut text = String::new();
    let length = source.take(LONGEST + 1).read_to_string(&mut text)?;
    if length as u64 > LONGEST {
        return Err(ReadError::TooLong);
    }
    text.parse().map_err(ReadError::Content)
}
