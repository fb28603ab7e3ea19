//! The loop's answer to a sample: its state, the caps to write, and the reason in words.

use std::fmt;

use litd_units::{Millis, Watts};

use crate::diagnosis::{Diagnosis, behind, clock_below, numbered};
use crate::envelope::CapVector;
use crate::plan::Policy;
use crate::sample::{Mean, SampleError};

/// Where the loop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Measures and says what it sees; never writes.
    Observe,
    /// Measures before the first adjustment.
    WarmUp,
    /// An adjustment per window.
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

/// The action after a sample.
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
    /// A diagnosis without an action.
    Seen(Diagnosis),
    /// The caps move by one adjustment of the law.
    Adjusted {
        /// The GPU that the others wait for, and by how much its cap changes.
        straggler: (usize, Watts),
        /// In which share of the window's samples it was last.
        last_in: f64,
        /// The share of the window's kernels that it started last, where known.
        last_in_kernels: Option<f64>,
        /// By which share its clock is below the median GPU's, where all clocks are known.
        clock_below: Option<f64>,
        /// By how much its kernels take longer than the fastest GPU's, where that is known.
        behind: Option<f64>,
        /// The GPU that is furthest ahead, and by how much its cap changes.
        leader: (usize, Watts),
    },
    /// The caps move to a distribution that was learned earlier, or part of the way to it.
    Recalled {
        /// How far of the way, above 0 and at most 1.
        fraction: f64,
    },
    /// The loop follows another plan, and measures anew.
    Replanned {
        /// The plan's policy.
        policy: Policy,
        /// The present bound on the sum of the GPUs' caps.
        budget: Watts,
    },
    /// After a new plan: all caps rise alike into what it allows, before the node is measured.
    Lifted {
        /// The present sum of the GPUs' caps.
        sum: Watts,
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
    /// Durations no longer fit what was learned: the node is another one.
    Surprised,
    /// Kernels don't follow power: the model law's caps are taken back.
    Contradicted {
        /// By which part kernels became faster per part of power.
        slope: f64,
    },
    /// Power does not follow caps: they are taken back.
    Disobeyed {
        /// The GPU where that is plainest, counted from 0.
        gpu: usize,
        /// By which part its cap has changed since warm-up (as a logarithm).
        cap: f64,
        /// By which part its power has.
        power: f64,
    },
    /// cpu-slosh's watts have bought too little speed: they go back to the CPUs.
    CostsEnergy {
        /// By which part energy times time is more than in warm-up.
        costlier: f64,
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
        self.write(f, &numbered)
    }
}

impl Why {
    /// The same in words, where `name` tells what each GPU is called: a number here is a place among the GPUs of one
    /// job, which to others is another device's name.
    #[must_use]
    pub fn told(&self, name: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, &name);
        text
    }

    fn write(&self, f: &mut dyn fmt::Write, name: &dyn Fn(usize) -> String) -> fmt::Result {
        match self {
            Self::Collecting { have, need } => write!(f, "sample {have} of {need}"),
            Self::BadSample(error) => write!(f, "sample left out: {}", error.told(name)),
            Self::Seen(diagnosis) => diagnosis.write(f, name),
            Self::Adjusted {
                straggler: (straggler, raise),
                leader: (leader, lower),
                ..
            } => {
                write!(f, "{}: ", moved(&name(*straggler), *raise))?;
                self.reason(f)?;
                write!(f, "; {}: furthest ahead", moved(&name(*leader), *lower))
            }
            Self::Recalled { fraction } => {
                f.write_str("starting from the learned caps")?;
                match *fraction < 1.0 {
                    true => write!(f, ", {:.0} % of the way to it", fraction * 100.0),
                    false => Ok(()),
                }
            }
            Self::Replanned {
                policy: Policy::Observe,
                ..
            } => f.write_str(
                "policy is observe now: litd moves no cap for this job any more, and restores the caps found",
            ),
            Self::Replanned { policy, budget } => write!(
                f,
                "policy is {policy} now, the GPUs' caps may add up to {budget:.0}; measuring anew"
            ),
            Self::Lifted { sum } => write!(
                f,
                "all caps rise alike as far as the budget allows: they add up to {sum:.0}"
            ),
            Self::Levelled { remainder } => write!(
                f,
                "level: the difference between the first and the last GPU's leads is {:.1} % of that in warm-up",
                remainder * 100.0
            ),
            Self::LevelledOff { remainder } => write!(
                f,
                "the leads no longer shrink: the difference between the first and the last GPU's is {:.1} % of that in warm-up",
                remainder * 100.0
            ),
            Self::CostsSpeed { slowdown } => write!(
                f,
                "the iteration takes {:.2} % longer than in warm-up: the last adjustment is taken back",
                slowdown * 100.0
            ),
            Self::NothingMoves => f.write_str("no cap can move: what the law asks for is less than a driver unit, or limits forbid it"),
            Self::Holding => f.write_str("holding"),
            Self::Drifted { growth } => {
                write!(
                    f,
                    "the difference between the first and the last GPU's leads is {growth:.1} times that at convergence"
                )
            }
            Self::Surprised => {
                f.write_str("the GPUs' clocks are no longer what they were at these caps")
            }
            Self::Contradicted { slope } => write!(
                f,
                "rolled back, and paused until `litctl resume`: changing caps does not change kernels' durations (1 % more power makes kernels faster by {slope:.2} %)"
            ),
            Self::Disobeyed { gpu, cap, power } => write!(
                f,
                "rolled back, and paused until `litctl resume`: {}'s cap has changed by {:+.1} % and its power by {:+.1} %; its cap acts on another GPU, or on nothing",
                name(*gpu),
                cap.exp_m1() * 100.0,
                power.exp_m1() * 100.0
            ),
            Self::CostsEnergy { costlier } => write!(
                f,
                "the energy-delay product is {:.1} % higher than in warm-up, before the CPU limits were lowered: they are restored",
                costlier * 100.0
            ),
            Self::RolledBack { before, after } => write!(
                f,
                "rolled back, and paused until `litctl resume`: the iteration took {after:.2} after the last adjustments and {before:.2} before"
            ),
            Self::Paused => f.write_str("paused after a rollback, until `litctl resume`"),
        }
    }
}

impl Why {
    /// Why the straggler of an adjustment is one: in how many kernels it was last, and by how
    /// much its clock is low. Where that is not known, or not so, what is known instead.
    fn reason(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let Self::Adjusted {
            last_in,
            last_in_kernels,
            clock_below,
            behind,
            ..
        } = self
        else {
            return Ok(());
        };
        match last_in_kernels {
            Some(share) => write!(f, "last in {:.0} % of kernels", share * 100.0)?,
            None => write!(f, "last in {:.0} % of samples", last_in * 100.0)?,
        }
        // Less would be printed as nothing.
        match (clock_below.filter(|&below| below >= 0.0005), behind) {
            (Some(below), _) => write!(f, ", clock {:.1} % below the median", below * 100.0),
            (None, Some(behind)) => {
                let slower = behind * 100.0;
                write!(f, ", kernels {slower:.1} % slower than the fastest GPU's")
            }
            (None, None) => Ok(()),
        }
    }
}

fn moved(gpu: &str, change: Watts) -> String {
    if change.abs() < Watts(0.5) {
        format!("{gpu} stays")
    } else {
        format!("{gpu} {:+.0} W", change.0)
    }
}

/// The change of each GPU in an adjustment, and the reason.
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
        last_in_kernels: mean.last_in_kernels.get(straggler).copied().flatten(),
        clock_below: clock_below(straggler, &mean.clock),
        behind: behind(straggler, &mean.marks),
        leader: change(leader),
    }
}
