//! Kinds of work, each on one stage.

use std::fmt;

use serde::Serialize;

/// The kind of an operation. Operations of the same work on the same stage have the same cost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Kind {
    /// The pipeline stage, from 0.
    pub stage: u32,
    /// The work: forward, backward, ...
    pub instruction: String,
}

/// Stages are numbered below this: no pipeline is as long, and what has a row per stage must fit.
pub const MAX_STAGES: u32 = 65_536;

/// A stage's number in a file; `None` where that is none.
#[must_use]
pub fn stage(text: &str) -> Option<u32> {
    text.parse().ok().filter(|stage| *stage < MAX_STAGES)
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of stage {}", self.instruction, self.stage)
    }
}
