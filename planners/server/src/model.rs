//! Jobs that bring their own model: a schedule, and a profile that their ranks measured and posted.

use std::collections::BTreeMap;

use litd_planner::{Pipeline, Scale, Schedule};
use litd_profiles::{Kind, Measurement, Pricing, Profile};
use litd_units::{Hertz, Joules, Millis, Watts};
use serde::{Deserialize, Serialize};

/// A rank that posts more rows has another thing in mind: 32 chunks, 3 instructions, 300 clocks.
const MAX_ROWS: usize = 30_000;
const MAX_NAME: usize = 100;

/// A pipeline's schedule: what `/register_job` may have as `pipeline`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// As `litd-planner --schedule` has it.
    pub schedule: String,
    /// Of an iteration.
    pub microbatches: u32,
    /// Of layers on each GPU, where the schedule is interleaved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u32>,
    /// The unit of time.
    #[serde(default = "unit")]
    pub unit_ms: f64,
    /// The power of a GPU that waits for another.
    #[serde(default = "blocking")]
    pub blocking_w: f64,
}

fn unit() -> f64 {
    Pricing::default().unit.0
}

fn blocking() -> f64 {
    Pricing::default().blocking.0
}

/// A measurement: instruction, MHz, seconds, joules.
pub type Row = (String, f64, f64, f64);

/// `POST /profile/{job_id}`: all that was measured of a stage; it replaces what was posted of it before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageProfile {
    /// The profile's stage: chunk c of GPU g is stage c * GPUs + g.
    pub stage: u32,
    /// The measurements.
    pub rows: Vec<Row>,
}

/// A job's own model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The model's schedule.
    pub shape: Shape,
    /// Measurements, by stage.
    pub stages: BTreeMap<u32, Vec<Row>>,
}

impl StageProfile {
    /// Checks that the numbers can be.
    ///
    /// # Errors
    /// If one can't, in words.
    pub fn check(&self) -> Result<(), String> {
        if self.rows.is_empty() || self.rows.len() > MAX_ROWS {
            return Err(format!("rows: 1 to {MAX_ROWS} are needed"));
        }
        for (at, (name, clock, time, energy)) in self.rows.iter().enumerate() {
            let numbers = [
                ("MHz", *clock, 0.0),
                ("seconds", *time, f64::MIN_POSITIVE),
                ("joules", *energy, 0.0),
            ];
            let odd = numbers
                .iter()
                .find(|(_, it, least)| !(it.is_finite() && it >= least));
            if let Some((what, it, _)) = odd {
                return Err(format!("rows[{at}]: {it} {what} is not possible"));
            }
            if name.is_empty() || name.len() > MAX_NAME {
                return Err(format!(
                    "rows[{at}]: the instruction's name is empty or too long"
                ));
            }
        }
        Ok(())
    }
}

impl Model {
    /// A model of which nothing was measured yet.
    ///
    /// # Errors
    /// If there is no such schedule of so many GPUs in a row, in words.
    pub fn new(shape: Shape, gpus: u32) -> Result<Self, String> {
        let schedule = Schedule::named(&shape.schedule, shape.chunks);
        let schedule = schedule.map_err(|cause| cause.to_string())?;
        schedule
            .graph(gpus, shape.microbatches)
            .map_err(|cause| cause.to_string())?;
        let is_possible = |it: f64, least: f64| it.is_finite() && it >= least;
        if !is_possible(shape.unit_ms, 1e-6) || !is_possible(shape.blocking_w, 0.0) {
            return Err("unit_ms must be more than 0, and blocking_w 0 or more".into());
        }
        let stages = BTreeMap::new();
        Ok(Self { shape, stages })
    }

    /// How many stages the profile has on so many GPUs in a row.
    #[must_use]
    pub fn stages(&self, gpus: u32) -> u32 {
        let schedule = Schedule::named(&self.shape.schedule, self.shape.chunks);
        schedule.map_or(1, Schedule::chunks).saturating_mul(gpus)
    }

    /// The pipeline, once all stages were measured; before that, nothing.
    ///
    /// # Errors
    /// If the profile lacks what the schedule does, or makes no sense; in words.
    pub fn pipeline(&self, gpus: u32) -> Result<Option<Pipeline>, String> {
        if self.stages.len() < self.stages(gpus) as usize {
            return Ok(None);
        }
        let Shape {
            schedule,
            microbatches,
            chunks,
            unit_ms,
            blocking_w,
        } = &self.shape;
        let pricing = Pricing {
            unit: Millis(*unit_ms),
            blocking: Watts(*blocking_w),
            ..Pricing::default()
        };
        let words = |cause: &dyn std::fmt::Display| cause.to_string();
        let (spec, _) = self.profile().price(&pricing).map_err(|it| words(&it))?;
        let schedule = Schedule::named(schedule, *chunks).map_err(|it| words(&it))?;
        let has = |kind: &Kind| spec.entry(kind).is_some();
        let graph = schedule
            .graph_with(gpus, *microbatches, has)
            .map_err(|it| words(&it))?;
        let scale = Scale {
            unit: pricing.unit,
            blocking: pricing.blocking,
            gpus,
        };
        Pipeline::new(graph, &spec, scale)
            .map(Some)
            .map_err(|it| words(&it))
    }

    fn profile(&self) -> Profile {
        let rows = self.stages.iter().flat_map(|(stage, rows)| {
            rows.iter().map(|(instruction, clock, time, energy)| {
                let kind = Kind {
                    stage: *stage,
                    instruction: instruction.clone(),
                };
                let measurement = Measurement {
                    clock: Hertz(clock * 1e6),
                    time: Millis(time * 1e3),
                    energy: Joules(*energy),
                };
                (kind, measurement)
            })
        });
        Profile::new(rows)
    }
}
