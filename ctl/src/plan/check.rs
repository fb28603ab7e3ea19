//! `litctl plan check`: is that a plan that can be followed?

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use litd_cli::show::{SIMULATED, WARNING};
use litd_planner::Schedule;
use litd_profiles::plan::{Check, Contract, Format};
use litd_traces::printable;

use crate::{Outcome, output};

/// Check plans: each stage, the order of instructions, clocks and expected values
///
/// Reads the plan contract (JSON) and both Python literals of Kareus's public artifact
/// (freqs_pipeline_N.py, scheds_pipeline_N.py), which are parsed and never run. With --schedule a
/// plan must have the instructions of that schedule and no others, in the schedule's order.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The plans
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The name of an instruction that the engine runs besides forward, recompute, backward and
    /// weight; may be given more than once
    #[arg(long = "instruction", value_name = "NAME")]
    engine: Vec<String>,
    /// The schedule that the engine runs, such as 1f1b
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,
    /// Chunks of layers on each GPU, for --schedule interleaved [default: 2]
    #[arg(long, value_name = "V", requires = "schedule")]
    chunks: Option<u32>,
}

const EXAMPLES: &str = "\
Examples:
  litctl plan check plan.json
  litctl plan check --schedule 1f1b freqs_pipeline_00324.py

With --json: one object for one FILE, an array of objects for several, in their
order. Each has kind (contract, freqs, scheds, or null if it is unknown),
stages, instructions (of all stages together), microbatches, clocks_mhz (each
once, lowest first), partitions (each name with the number of instructions that
have it), ok, and problems with their places.

The exit status is 2 if a plan has a problem.";

/// So much of a partition's name is shown.
const NAME: usize = 64;

/// No plan is longer.
const LONGEST: u64 = 64 << 20;

pub fn run(args: &Args, json: bool) -> Outcome {
    let named = |name: &String| Schedule::named(name, args.chunks);
    let schedule = args.schedule.as_ref().map(named).transpose()?;
    let checked: Vec<(Check, Option<Contract>)> = args
        .files
        .iter()
        .map(|path| check(path, &args.engine, schedule))
        .collect();
    if json {
        match &checked[..] {
            [(only, _)] => output::json(only)?,
            all => output::json(&all.iter().map(|(check, _)| check).collect::<Vec<_>>())?,
        }
    } else {
        let files = args.files.iter().zip(&checked);
        let texts = files.map(|(path, (check, plan))| text(path, check, plan.as_ref()));
        output::text(&texts.collect::<Vec<_>>().join("\n"))?;
    }
    match checked.iter().filter(|(check, _)| !check.ok).count() {
        0 => Ok(()),
        bad => Err(format!(
            "{bad} of {} can't be followed",
            output::count(checked.len() as f64, "plan")
        )
        .into()),
    }
}

fn check(path: &Path, engine: &[String], schedule: Option<Schedule>) -> (Check, Option<Contract>) {
    let text = litd_files::read(path, LONGEST).map_err(|cause| cause.to_string());
    let text =
        text.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into()));
    let (mut check, mut plan) = match text {
        Ok(text) => Check::of(&text, engine),
        Err(why) => (Check::refused(&why), None),
    };
    if let (Some(plan), Some(schedule)) = (&mut plan, schedule) {
        let stages = u32::try_from(check.stages).unwrap_or(u32::MAX);
        let microbatches = u32::try_from(check.microbatches).unwrap_or(u32::MAX);
        let fits = match schedule.steps(stages, microbatches) {
            Ok(steps) => {
                if check.kind != Some(Format::Contract) {
                    plan.number_as(&steps);
                }
                plan.fits(&steps).map_err(|why| why.to_string())
            }
            Err(why) => Err(why.to_string()),
        };
        check.add(fits.err());
    }
    (check, plan)
}

fn text(path: &Path, check: &Check, plan: Option<&Contract>) -> String {
    let mut out = format!("{}: ", printable(&path.display().to_string()));
    let simulated = plan.is_some_and(|plan| plan.simulated);
    // Writing to a string cannot fail.
    if let Some(kind) = check.kind.filter(|_| check.stages > 0) {
        let kind = match kind {
            Format::Contract => "a plan contract",
            Format::Frequencies => "a Python literal of clocks",
            Format::Schedules => "a Python literal of partitions",
        };
        let count = |number: usize, what| output::count(number as f64, what);
        let microbatches = match check.microbatches {
            1 => "1 microbatch".into(),
            many => format!("{many} microbatches"),
        };
        let _ = writeln!(
            out,
            "{kind}, {}, {microbatches}, {}{}",
            count(check.stages, "stage"),
            count(check.instructions, "instruction"),
            if simulated {
                format!(", {SIMULATED}SIMULATED{SIMULATED:#}")
            } else {
                String::new()
            },
        );
    } else {
        out += "no plan\n";
    }
    if let [first, .., last] = check.clocks_mhz[..] {
        let _ = writeln!(
            out,
            "  {} clocks from {first} to {last} MHz",
            check.clocks_mhz.len()
        );
    } else if let [only] = check.clocks_mhz[..] {
        let _ = writeln!(out, "  one clock, {only} MHz");
    }
    for (name, count) in &check.partitions {
        let name = String::from_iter(printable(name).chars().take(NAME));
        let _ = writeln!(
            out,
            "  partition {name} in {}",
            output::count(*count as f64, "instruction")
        );
    }
    for problem in &check.problems {
        let _ = writeln!(out, "  {WARNING}{problem}{WARNING:#}");
    }
    if check.ok {
        out += "  nothing is wrong with it\n";
    }
    out
}
