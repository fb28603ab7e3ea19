//! Writing a plan for whoever follows it.

use std::path::{Path, PathBuf};

use litd_planner::Plan;
use litd_profiles::plan::Format;

use super::input::Loaded;
use crate::Outcome;

/// Where the plan goes.
#[derive(clap::Args)]
pub struct Write {
    /// Write the plan for an engine to follow: JSON, or, where the name ends in .py, a Python literal of
    /// clocks as Zeus and Kareus have it
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
}

impl Write {
    /// Writes the plan if that was asked for.
    pub fn write(&self, loaded: &Loaded, plan: &Plan) -> Outcome {
        let Some(path) = &self.plan else {
            return Ok(());
        };
        let mut contract = loaded.job.contract(plan);
        contract.simulated = loaded.simulated;
        let text = contract.write(format(path));
        Ok(std::fs::write(path, text).map_err(|cause| format!("{}: {cause}", path.display()))?)
    }
}

fn format(path: &Path) -> Format {
    match path.extension().is_some_and(|it| it == "py") {
        true => Format::Frequencies,
        false => Format::Contract,
    }
}
