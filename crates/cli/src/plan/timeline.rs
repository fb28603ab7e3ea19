//! `plan timeline`: a picture of an iteration before and after.

use std::path::PathBuf;

use super::input::{Costs, Input};
use super::lookup::Straggler;
use super::{picture, saving, seconds};
use crate::{Outcome, output};

/// Draw an iteration at the full clock and as planned, coloured by power (Perseus, Figure 1)
#[derive(clap::Args)]
pub struct Args<C: Costs> {
    #[command(flatten)]
    input: Input<C>,
    #[command(flatten)]
    straggler: Straggler,
    /// The picture to write
    #[arg(long, value_name = "OUT.svg")]
    svg: PathBuf,
}

/// Runs `plan timeline`.
///
/// # Errors
/// What was given is wrong, or a file can't be written; in words.
pub fn run<C: Costs>(args: &Args<C>, json: bool) -> Outcome {
    let loaded = args.input.load(json)?;
    let job = &loaded.job;
    let straggler = args.straggler.time(job);
    let (full, plan) = (job.full_speed(straggler), job.lookup(straggler));
    picture::draw(&args.svg, job, [&full, &plan], loaded.simulated)
        .map_err(|cause| format!("{}: {cause}", args.svg.display()))?;
    if json {
        return output::json(&serde_json::json!({
            "schema": 1,
            "simulated": loaded.simulated,
            "svg": args.svg,
            "full_speed": full,
            "plan": plan,
            "saving_percent": saving(&plan, &full),
        }));
    }
    output::text(&format!(
        "{}: {} at full clock, {} as planned, {:.2} % less energy\n",
        args.svg.display(),
        seconds(full.realised),
        seconds(plan.realised),
        saving(&plan, &full),
    ))
}
