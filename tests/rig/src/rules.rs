//! The rules that a ledger holds litd to, and what it says when one is broken.

use std::fmt;

use litd_units::{Nanos, Watts};

use crate::ledger::Entry;

/// Sums are compared exactly, as integers: the finest unit that any driver speaks.
pub(crate) type Microwatts = i64;

pub(crate) fn microwatts(power: Watts) -> Microwatts {
    // `as` saturates, and NaN becomes 0.
    (power.0 * 1e6).round() as Microwatts
}

pub(crate) fn watts(power: Microwatts) -> Watts {
    Watts(power as f64 / 1e6)
}

/// The bounds of one device's cap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The lowest.
    pub floor: Watts,
    /// The highest.
    pub ceiling: Watts,
}

impl Bounds {
    pub(crate) fn allow(self, cap: Watts) -> bool {
        let cap = microwatts(cap);
        cap >= microwatts(self.floor) && cap <= microwatts(self.ceiling)
    }
}

/// Sums of caps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sums {
    pub gpus: Microwatts,
    pub cpus: Microwatts,
}

impl Sums {
    pub fn of(gpus: usize, caps: &[Watts]) -> Self {
        let sum = |caps: &[Watts]| caps.iter().map(|&cap| microwatts(cap)).sum();
        let (gpu, cpu) = caps.split_at(gpus.min(caps.len()));
        Self {
            gpus: sum(gpu),
            cpus: sum(cpu),
        }
    }

    pub fn all(self) -> Microwatts {
        self.gpus + self.cpus
    }

    /// The rule that these sums break, if any.
    pub fn broken(self, allowance: Allowance) -> Option<Rule> {
        let node = allowance.gpus + allowance.cpus;
        if self.gpus > allowance.gpus && !allowance.slosh {
            Some(Rule::Gpus {
                sum: watts(self.gpus),
                budget: watts(allowance.gpus),
            })
        } else if self.all() > node {
            Some(Rule::Node {
                sum: watts(self.all()),
                most: watts(node),
            })
        } else {
            None
        }
    }
}

/// Limits of sums of caps: GPUs within the budget, and GPUs and CPU sockets together within the budget and the CPU
/// limits found at start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// The budget.
    pub gpus: Microwatts,
    /// The sum of the CPU limits found.
    pub cpus: Microwatts,
    /// Whether GPUs may have what CPU sockets give: only the second rule counts then.
    pub slosh: bool,
}

/// The rule that was broken, with the figures.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// A cap outside of what is allowed for its device.
    Range {
        /// The device.
        device: usize,
        /// The device's cap.
        held: Watts,
        /// The bounds of the cap.
        bounds: Bounds,
    },
    /// The GPU caps add up to more than the budget.
    Gpus {
        /// The sum of the caps.
        sum: Watts,
        /// The budget.
        budget: Watts,
    },
    /// The caps of GPUs and CPU sockets add up to more than the budget and the CPU limits found
    /// at start.
    Node {
        /// The sum of the caps.
        sum: Watts,
        /// The limit of the sum.
        most: Watts,
    },
    /// A lower budget was not kept by when it had to be.
    Late {
        /// When that was.
        due: Nanos,
        /// The rule that was broken then.
        broken: Box<Rule>,
    },
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range {
                device,
                held,
                bounds: Bounds { floor, ceiling },
            } => write!(
                f,
                "device {device} holds {held}, allowed are {floor} to {ceiling}"
            ),
            Self::Gpus { sum, budget } => {
                write!(
                    f,
                    "the GPU caps add up to {sum}, above the budget of {budget}"
                )
            }
            Self::Node { sum, most } => write!(
                f,
                "the caps of GPUs and CPU sockets add up to {sum}, above the {most} that budget \
                 and CPU limits at start allow"
            ),
            Self::Late { due, broken } => {
                write!(
                    f,
                    "at {:.6} s, when the lower budget was due: {broken}",
                    due.as_secs_f64()
                )
            }
        }
    }
}

/// A broken rule, and all that is needed to see how it came to that.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// The change after which it was found; 0: before any.
    pub sequence: u64,
    /// When it was found, on the ledger's clock.
    pub at: Nanos,
    /// The change that broke the rule.
    pub last: Option<Entry>,
    /// The caps of all devices at that time.
    pub held: Vec<Watts>,
    /// The rule that was broken.
    pub rule: Rule,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s: {}", self.at.as_secs_f64(), self.rule)?;
        if let Some(last) = &self.last {
            let Entry {
                sequence,
                device,
                author,
                asked,
                before,
                after,
                accepted,
                ..
            } = last;
            let outcome = if *accepted { "accepted" } else { "refused" };
            write!(
                f,
                "; last write: number {sequence}, by {author:?}, device {device} from {before} to \
                 {asked}, {outcome}, held after it {after}"
            )?;
        }
        let held: Vec<f64> = self.held.iter().map(|cap| cap.0).collect();
        write!(f, "; all caps (W): {held:?}")
    }
}
