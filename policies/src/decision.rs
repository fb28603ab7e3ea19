//! What the loop answers to a sample: where it is, what to write, and why, in words.

use std::fmt;

use litd_units::{Millis, Watts};

use crate::diagnosis::{Diagnosis, behind};
use crate::envelope::CapVector;
use crate::sample::{Mean, SampleError};

/// Where the loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Measures and says what it sees; never writes.
    Observe,
    /// Measures before the first adjustment.
    WarmUp,
    /// One adjustment per window.
    Adjusting,
    /// Caps are held: the node is level, or nothing can be done for it.
    Converged,
    /// The node may no longer be level; one more window will tell.
    Drift,
    /// An adjustment did harm. The last good caps are back and the law pauses.
    Rollback,
}

impl State {
    /// The name as users read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::WarmUp => "warm-up",
            Self::Adjusting => "adjusting",
            Self::Converged => "converged",
            Self::Drift => "drift",
            Self::Rollback => "rollback",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What to do after a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Where the loop is now.
    pub state: State,
    /// The caps to write, where they are to change.
    pub apply: Option<CapVector>,
    /// Why, in words through [`fmt::Display`].
    pub why: Why,
}

/// The reason of a decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// More samples are needed.
    Collecting {
        /// Samples so far.
        have: u32,
        /// Samples needed.
        need: u32,
    },
    /// The sample did not count.
    BadSample(SampleError),
    /// What is seen, where nothing is done about it.
    Seen(Diagnosis),
    /// The caps move by one adjustment of the law.
    Adjusted {
        /// The GPU that the others wait for, and by how much its cap changes.
        straggler: (usize, Watts),
        /// In which share of the window's samples it was last.
        last_in: f64,
        /// By how much its kernels take longer than the fastest GPU's, where that is known.
        behind: Option<f64>,
        /// The GPU that is furthest ahead, and by how much its cap changes.
        leader: (usize, Watts),
    },
    /// First and last are close enough.
    Levelled {
        /// How far first and last are apart, as a share of what it was in warm-up.
        remainder: f64,
    },
    /// The leads no longer shrink.
    LevelledOff {
        /// How far first and last are apart, as a share of what it was in warm-up.
        remainder: f64,
    },
    /// gpu-red has begun to cost speed; the last adjustment is taken back.
    CostsSpeed {
        /// By which share the iteration takes longer than in warm-up.
        slowdown: f64,
    },
    /// No cap can move: the law asks for less than driver units, or limits forbid it.
    NothingMoves,
    /// The caps are held.
    Holding,
    /// Leads have grown again.
    Drifted {
        /// How many times as far apart first and last are as at convergence.
        growth: f64,
    },
    /// The iteration takes longer than before the last adjustments.
    RolledBack {
        /// Iteration time before them.
        before: Millis,
        /// Iteration time over the windows after them.
        after: Millis,
    },
    /// The law pauses after a rollback until it is told to go on.
    Paused,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collecting { have, need } => write!(f, "sample {have} of {need}"),
            Self::BadSample(error) => write!(f, "sample left out: {error}"),
            Self::Seen(diagnosis) => diagnosis.fmt(f),
            Self::Adjusted {
                straggler: (straggler, raise),
                last_in,
                behind,
                leader: (leader, lower),
            } => {
                write!(
                    f,
                    "{}: last in {:.0} % of samples",
                    moved(*straggler, *raise),
                    last_in * 100.0
                )?;
                if let Some(behind) = behind {
                    write!(
                        f,
                        ", kernels {:.1} % slower than the fastest GPU's",
                        behind * 100.0
                    )?;
                }
                write!(f, "; {}: furthest ahead", moved(*leader, *lower))
            }
            Self::Levelled { remainder } => write!(
                f,
                "level: first and last GPU are {:.1} % as far apart as they were",
                remainder * 100.0
            ),
            Self::LevelledOff { remainder } => write!(
                f,
                "the leads no longer shrink: first and last GPU are {:.1} % as far apart as they were",
                remainder * 100.0
            ),
            Self::CostsSpeed { slowdown } => write!(
                f,
                "the iteration takes {:.2} % longer than before: one adjustment back",
                slowdown * 100.0
            ),
            Self::NothingMoves => f.write_str("no cap can move: what the law asks for is less than a driver unit, or limits forbid it"),
            Self::Holding => f.write_str("holding"),
            Self::Drifted { growth } => {
                write!(
                    f,
                    "first and last GPU are {growth:.1} times as far apart as when the node converged"
                )
            }
            Self::RolledBack { before, after } => write!(
                f,
                "rolled back and paused: the iteration took {after:.2} after the last adjustments and {before:.2} before"
            ),
            Self::Paused => f.write_str("paused after a rollback"),
        }
    }
}

fn moved(gpu: usize, change: Watts) -> String {
    if change.abs() < Watts(0.5) {
        format!("gpu{gpu} stays")
    } else {
        format!("gpu{gpu} {:+.0} W", change.0)
    }
}

/// Who gets what in an adjustment, and why.
pub(crate) fn adjusted(mean: &Mean, held: &[Watts], caps: &CapVector) -> Why {
    let change = |gpu: usize| match (caps.watts(gpu), held.get(gpu)) {
        (Some(new), Some(&old)) => (gpu, new - old),
        _ => (gpu, Watts::ZERO),
    };
    let leads = mean.leads.values();
    let by_lead = |a: &usize, b: &usize| leads[*a].0.total_cmp(&leads[*b].0);
    let straggler = mean.leads.latest();
    let leader = (0..leads.len()).max_by(by_lead).unwrap_or(0);
    Why::Adjusted {
        straggler: change(straggler),
        last_in: mean.last_in.get(straggler).copied().unwrap_or(0.0),
        behind: behind(straggler, &mean.pace),
        leader: change(leader),
    }
}
