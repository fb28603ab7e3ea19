//! The A/B experiment: what `litctl trial` prints.

use litd_trial::{Estimate, Report};
use serde::{Deserialize, Serialize};

/// The answer to `GET /v1/trial`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trials {
    /// The trial under way, or the last one; it outlives the daemon.
    pub report: Option<Report>,
    /// The permanent hold-out's results for each job that is steered.
    pub hold_outs: Vec<HoldOutStatus>,
    /// To whose jobs steering has done harm: those users' jobs are not steered until `litctl resume`.
    pub harm: Option<String>,
}

/// The permanent hold-out's results for one job. Differences are balanced minus found, as shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldOutStatus {
    /// The job.
    pub job: String,
    /// The share of the time for which the caps found are held.
    pub share: f64,
    /// Comparisons so far, each of three blocks.
    pub comparisons: u32,
    /// Throughput, at 95 %; absent while there are too few.
    pub throughput: Option<Estimate>,
    /// Power of the job's GPUs, at 95 %.
    pub power: Option<Estimate>,
    /// Comparisons within which a loss of 0.5 % of throughput is found and stopped.
    pub to_find: Option<u32>,
    /// The present activity, in words.
    pub now: String,
}
