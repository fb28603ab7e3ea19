//! Does balancing pay? The experiment that answers, and its statistics. No I/O, no clock.
//!
//! Two arms alternate on one running job: A holds the caps that litd found, B those that it
//! balanced; budget, policy and sampling are the same. Four blocks in the order ABBA or BAAB make
//! a *quad*. The difference within a quad is free of any linear drift, and the order of each quad
//! is drawn by itself: whatever the noise, and however it is correlated over time, it enters each
//! quad's difference with a sign of its own, so that the differences are uncorrelated. Student's
//! interval over the quads is therefore one that autocorrelation does not make too narrow.
//!
//! - [`design`]: arms, quads and their order;
//! - [`block`]: what one block measures, and which iterations it leaves out;
//! - [`estimate`]: differences with their intervals;
//! - [`power`]: how many blocks a precision needs;
//! - [`report`]: what a trial comes to;
//! - [`holdout`]: the small experiment that goes on in production.

pub mod block;
pub mod design;
pub mod estimate;
pub mod holdout;
pub mod power;
pub mod report;
mod student;

pub use block::{Block, Iterations, RULE, Times};
pub use design::{Arm, Design, order};
pub use estimate::Estimate;
pub use holdout::HoldOut;
pub use litd_units::Prices;
pub use report::{Report, State, Verdict};

/// The confidence of a finished trial's intervals.
pub const CONFIDENCE: f64 = 0.95;

/// The confidence that every look on the way needs to stop a trial, or steering, for harm. At
/// 99.9 % a harmless trial is stopped in less than 1 of 100 cases however often it is looked at
/// on the way, and the final interval needs no correction worth its name (Haybittle and Peto).
pub const LOOK: f64 = 0.999;

/// Steering that makes a job slower by more than this share is harm: the interval lies wholly
/// below minus this.
pub const HARM: f64 = 0.001;

/// Without prices, the throughput that may be lost: the interval must lie above minus this.
pub const FREE: f64 = 0.0005;
