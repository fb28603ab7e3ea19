//! `plan frontier`: the least energy for every iteration time.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use litd_planner::{Frontier, Job, Point, certificate};
use litd_profiles::Priced;
use serde::Serialize;

use super::contract::Write;
use super::input::{Costs, Input, Loaded};
use super::{rounding, saving, seconds};
use crate::show::{DIM, HEAD, SIMULATED, WARNING};
use crate::{Outcome, output};

/// Find the least energy for every iteration time, from the shortest to the longest that saves
/// energy
///
/// Finds the exact optimum at every whole unit of time, with clocks as a continuous choice. It
/// minimises the effective cost: for each instruction its energy less the energy that a GPU uses if
/// it only waits for as long (the power of --blocking times the instruction's duration). At the
/// longest time the effective cost is least. The energy of the whole pipeline, waiting included, may
/// be least at a shorter time. Longer iterations than that pay only if the GPUs would wait anyway,
/// for another pipeline.
#[derive(clap::Args)]
#[command(after_help = C::EXAMPLES)]
pub struct Args<C: Costs> {
    #[command(flatten)]
    input: Input<C>,
    /// Write every point: quant_time,cost_effective_J (units of --unit, J)
    #[arg(long, value_name = "OUT.csv")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    write: Write,
    /// Prove that every point is optimal, with an independent check of its certificate
    #[arg(long)]
    check: bool,
}

/// How many rows the table has at most.
const ROWS: usize = 12;

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    simulated: bool,
    operations: usize,
    unit_ms: f64,
    blocking_w: f64,
    gpus: u32,
    shortest: u32,
    longest: u32,
    /// The time of the least energy when nobody else is late.
    cheapest_alone: u32,
    checked: bool,
    kinds: &'a [Priced],
    points: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    quant_time: u32,
    #[serde(rename = "cost_effective_J")]
    cost: f64,
    #[serde(rename = "energy_alone_J")]
    alone: f64,
    pays_only_for_straggler: bool,
}

/// Runs `plan frontier`.
///
/// # Errors
/// What was given is wrong, or a file can't be written; in words.
pub fn run<C: Costs>(args: &Args<C>, json: bool) -> Outcome {
    let loaded = args.input.load(json)?;
    let job = &loaded.job;
    if args.check {
        check(job)?;
    }
    if let Some(path) = &args.csv {
        write_csv(job.frontier(), path).map_err(|cause| format!("{}: {cause}", path.display()))?;
    }
    args.write.write(&loaded, &job.lookup(None))?;
    if json {
        output::json(&report(&loaded, args.check))
    } else {
        output::text(&render(&loaded, args.check))
    }
}

fn check(job: &Job) -> Result<(), String> {
    let mut fault = None;
    Frontier::observed(job.problem(), |state| {
        if fault.is_none() {
            let checked = certificate::check(job.problem(), &state.certificate());
            fault = checked.err().map(|fault| (state.point.time, fault));
        }
    });
    match fault {
        Some((time, fault)) => Err(format!("the certificate at {time} units of time: {fault}")),
        None => Ok(()),
    }
}

fn write_csv(frontier: &Frontier, path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "quant_time,cost_effective_J")?;
    for Point { time, cost } in frontier.points() {
        writeln!(file, "{time},{}", cost.0)?;
    }
    file.flush()
}

fn report(loaded: &Loaded, checked: bool) -> Report<'_> {
    let job = &loaded.job;
    let cheapest = job.cheapest_alone();
    let row = |point: Point| Row {
        quant_time: point.time.0,
        cost: point.cost.0,
        alone: job.alone(point).0,
        pays_only_for_straggler: point.time > cheapest,
    };
    Report {
        schema: 1,
        simulated: loaded.simulated,
        operations: job.problem().graph().operations().len(),
        unit_ms: job.scale().unit.0,
        blocking_w: job.scale().blocking.0,
        gpus: job.scale().gpus,
        shortest: job.frontier().shortest().0,
        longest: job.frontier().longest().0,
        cheapest_alone: cheapest.0,
        checked,
        kinds: &loaded.priced,
        points: job.frontier().points().map(row).collect(),
    }
}

fn render(loaded: &Loaded, checked: bool) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut out, loaded, checked);
    out
}

fn write_report(out: &mut String, loaded: &Loaded, checked: bool) -> fmt::Result {
    let Loaded { job, .. } = loaded;
    let frontier = job.frontier();
    if loaded.simulated {
        writeln!(
            out,
            "{SIMULATED}SIMULATED{SIMULATED:#}: the measurements are made up"
        )?;
    }
    kinds(out, &loaded.priced)?;
    let operations = job.problem().graph().operations().len();
    writeln!(
        out,
        "{}, {} from {} to {} units of {}{}\n",
        output::count(operations as f64, "operation"),
        output::count(frontier.len() as f64, "point"),
        frontier.longest(),
        frontier.shortest(),
        job.scale().unit,
        if checked { ", each proved optimal" } else { "" },
    )?;
    table(out, job)?;
    let full = job.full_speed(None);
    let plan = job.lookup(None);
    writeln!(
        out,
        "\nEverything at the full clock takes {} and uses {:.1}.\n\
         The fastest plan takes {} and uses {:.1}: {:.2} % less.",
        seconds(full.realised),
        full.energy,
        seconds(plan.realised),
        plan.energy,
        saving(&plan, &full),
    )?;
    rounding(out, job, &full, &plan)
}

/// How the costs were made, where they were.
fn kinds(out: &mut String, priced: &[Priced]) -> fmt::Result {
    if priced.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "{HEAD}stage instruction   clocks kept  explained  largest error  curve{HEAD:#}"
    )?;
    for Priced {
        kind,
        measured,
        kept,
        quality,
        exponential,
    } in priced
    {
        let curve = if *exponential { "exponential" } else { "lines" };
        write!(
            out,
            "{:>5} {:<13} {measured:>6} {kept:>4}",
            kind.stage, kind.instruction
        )?;
        match quality {
            Some(quality) => {
                let poor = if *exponential { DIM } else { WARNING };
                let (explained, error) = (quality.explained, 100.0 * quality.largest_error);
                writeln!(
                    out,
                    "  {explained:>9.5} {poor}{error:>11.2} %{poor:#}  {curve}"
                )?;
            }
            None => writeln!(out, "  {:>9} {:>13}  {curve}", "-", "-")?,
        }
    }
    writeln!(out)
}

/// Points at equal distances, both ends and the cheapest among them.
fn table(out: &mut String, job: &Job) -> fmt::Result {
    let frontier = job.frontier();
    let cheapest = job.cheapest_alone();
    let last = frontier.len() - 1;
    let rows = ROWS.min(last.max(1));
    let mut less: Vec<usize> = (0..=rows).map(|row| row * last / rows).collect();
    less.push((frontier.longest().0 - cheapest.0) as usize);
    less.sort_unstable();
    less.dedup();
    writeln!(
        out,
        "{HEAD}    time  iteration  effective cost    energy alone{HEAD:#}"
    )?;
    for less in less {
        let point = frontier.at(litd_profiles::Units(frontier.longest().0 - less as u32));
        let mark = match point.time.cmp(&cheapest) {
            std::cmp::Ordering::Greater => "  pays only for a straggler",
            std::cmp::Ordering::Equal => "  the least energy",
            std::cmp::Ordering::Less => "",
        };
        writeln!(
            out,
            "{:>8} {:>10} {:>13.3} J {:>13.3} J{mark}",
            point.time,
            seconds(job.millis(point.time)),
            point.cost.0,
            job.alone(point).0,
        )?;
    }
    Ok(())
}
