//! Messages of clients: the HTTP protocol of Zeus's client for pipeline frequencies, and `set_straggler`, which
//! the paper describes (Table 2).

use serde::{Deserialize, Serialize};

use crate::model::Shape;

/// `POST /register_job`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Empty: the server chooses it.
    pub job_id: String,
    /// How many stages a pipeline has.
    pub pp_degree: u32,
    /// How many pipelines there are.
    pub dp_degree: u32,
    /// How many GPUs share a stage.
    pub tp_degree: u32,
    /// The product of the three.
    pub world_size: u32,
    /// A free text of the user's for the job's name.
    pub job_metadata: Option<String>,
    /// The job's own schedule, whose profile is posted to `/profile/{job_id}`; without it, the server's
    /// profile and schedule count. Zeus's client has no such thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Shape>,
}

/// `POST /register_rank/{job_id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankInfo {
    /// Of all GPUs of the job.
    pub rank: u32,
    /// The pipeline's number.
    pub dp_rank: u32,
    /// The stage's number.
    pub pp_rank: u32,
    /// The GPU's number within the stage.
    pub tp_rank: u32,
    /// The clocks that its GPU has, in MHz.
    pub available_frequencies: Vec<u32>,
}

/// `GET /schedule/{job_id}?rank=R`: one iteration in the order of execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrequencySchedule {
    /// The rank that sends it.
    pub rank: u32,
    /// Instruction and clock in MHz; 0 leaves the clock as it is.
    pub frequencies: Vec<(String, u32)>,
}

/// `POST /result/{job_id}`. Kept as it is; only its shape is checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfilingResult {
    /// The rank that sends it.
    pub rank: u32,
    /// Seconds per iteration.
    pub iter_time: Vec<f64>,
    /// Joules per iteration.
    pub iter_energy: Vec<f64>,
    /// Seconds of each instruction, per iteration.
    pub time_breakdown: std::collections::BTreeMap<String, Vec<Vec<f64>>>,
    /// Joules of each instruction, per iteration.
    pub energy_breakdown: std::collections::BTreeMap<String, Vec<Vec<f64>>>,
}

/// `POST /set_straggler/{job_id}`: a GPU will slow its pipeline down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Straggler {
    /// The GPU's rank.
    pub id: u32,
    /// In how many seconds.
    pub delay: f64,
    /// How many times longer its pipeline takes; 1 when it is as fast as the others again.
    pub degree: f64,
}
