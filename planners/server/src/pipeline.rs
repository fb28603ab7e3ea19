//! The pipeline that the options describe.

use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use litd_planner::{Pipeline, Scale, Schedule};
use litd_profiles::{Kind, Pricing, Profile};
use litd_units::{Millis, Watts};
use serde_json::{Map, Value, json};

/// The inputs of plans.
#[derive(Args)]
pub struct Wanted {
    /// Measurements: CSV with stage,instruction,frequency,time,energy (MHz, s, J)
    #[arg(long, value_name = "PROFILE.csv")]
    profile: PathBuf,
    /// The pipeline's schedule
    #[arg(long, default_value = "1f1b", value_parser = schedules())]
    schedule: String,
    /// Microbatches of an iteration
    #[arg(long, value_name = "M")]
    microbatches: u32,
    /// Chunks of layers on each GPU, for --schedule interleaved [default: 2]
    #[arg(long, value_name = "V")]
    chunks: Option<u32>,
    /// Times are rounded to multiples of this, in ms
    #[arg(long, value_name = "MS", default_value_t = 1.0)]
    unit: f64,
    /// Power of a GPU that waits for another, in watts
    #[arg(long, value_name = "W", default_value_t = 75.0)]
    blocking: f64,
}

fn schedules() -> PossibleValuesParser {
    let value = |(name, help): (&'static str, &'static str)| PossibleValue::new(name).help(help);
    PossibleValuesParser::new(Schedule::NAMES.map(value))
}

impl Wanted {
    /// The pipeline, and all that its plans depend on, by name.
    ///
    /// # Errors
    /// If there is no such pipeline, or the profile lacks what it does; the text names the file.
    pub fn pipeline(&self) -> Result<(Pipeline, Map<String, Value>), String> {
        let named = |cause: &dyn Display| format!("{}: {cause}", self.profile.display());
        let pricing = Pricing {
            unit: Millis(self.unit),
            blocking: Watts(self.blocking),
            ..Pricing::default()
        };
        let profile = open(&self.profile)?;
        let (spec, priced) = profile.price(&pricing).map_err(|cause| named(&cause))?;
        let stages = priced.iter().map(|priced| priced.kind.stage + 1).max();
        let schedule = Schedule::named(&self.schedule, self.chunks);
        let schedule = schedule.map_err(|cause| cause.to_string())?;
        let gpus = schedule.gpus(stages.unwrap_or(0));
        let gpus = gpus.map_err(|cause| named(&cause))?;
        let has = |kind: &Kind| spec.entry(kind).is_some();
        let graph = schedule.graph_with(gpus, self.microbatches, has);
        let scale = Scale {
            unit: pricing.unit,
            blocking: pricing.blocking,
            gpus,
        };
        let pipeline = Pipeline::new(graph.map_err(|cause| cause.to_string())?, &spec, scale);
        let pipeline = pipeline
            .map_err(|cause| named(&format_args!("{cause} (--schedule {})", self.schedule)))?;
        let basis = [
            ("litd", json!(env!("CARGO_PKG_VERSION"))),
            ("schedule", json!(self.schedule)),
            ("chunks", json!(schedule.chunks())),
            ("microbatches", json!(self.microbatches)),
            ("unit", json!(self.unit)),
            ("blocking", json!(self.blocking)),
            ("profile", json!(spec)),
        ];
        let basis = basis.map(|(name, value)| (name.to_owned(), value));
        Ok((pipeline, basis.into_iter().collect()))
    }
}

fn open(path: &Path) -> Result<Profile, String> {
    let named = |cause: &dyn Display| format!("{}: {cause}", path.display());
    let missing = "give the CSV that litd.perseus.Profiler or Zeus's profiler wrote";
    let file = File::open(path).map_err(|cause| named(&format_args!("{cause}: {missing}")))?;
    litd_profiles::read(file).map_err(|cause| named(&cause))
}
