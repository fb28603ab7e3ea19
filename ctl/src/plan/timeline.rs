//! `litctl plan timeline`: a picture of an iteration before and after.

use std::path::PathBuf;

use super::input::Input;
use super::lookup::Straggler;
use super::{picture, saving, seconds};
use crate::{Outcome, output};

/// Draw an iteration at the full clock and as planned, coloured by power (the paper's Figure 1)
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    straggler: Straggler,
    /// The picture
    #[arg(long, value_name = "OUT.svg")]
    svg: PathBuf,
}

pub fn run(args: &Args, json: bool) -> Outcome {
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
