//! Writing a plan for whoever follows it.

use std::path::{Path, PathBuf};

use litd_planner::Plan;
use litd_profiles::plan::{Contract, Format};

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
        write(path, &contract)
    }
}

/// Writes a plan in the format that the file's name asks for.
///
/// # Errors
/// The file can't be written; in words, with its name.
pub(super) fn write(path: &Path, contract: &Contract) -> Outcome {
    let text = contract.write(format(path));
    Ok(std::fs::write(path, text).map_err(|cause| format!("{}: {cause}", path.display()))?)
}

/// Kareus's artifact calls its files `freqs_pipeline_N.py` and `scheds_pipeline_N.py`.
fn format(path: &Path) -> Format {
    let begins = |name: &str| name.starts_with("scheds");
    let schedules = path
        .file_name()
        .and_then(|it| it.to_str())
        .is_some_and(begins);
    match (path.extension().is_some_and(|it| it == "py"), schedules) {
        (true, true) => Format::Schedules,
        (true, false) => Format::Frequencies,
        (false, _) => Format::Contract,
    }
}
