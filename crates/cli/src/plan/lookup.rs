//! `plan lookup`: the plan for a straggler.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use litd_planner::{Graph, Job, Plan, Planned};
use litd_profiles::Kind;
use litd_units::{Hertz, Millis};
use serde::Serialize;

use super::contract::Write;
use super::input::{Costs, Input, Loaded};
use super::{rounding, saving, seconds};
use crate::show::{HEAD, SIMULATED, mhz};
use crate::{Outcome, output};

/// Choose the plan for a given time of the slowest pipeline
///
/// Without --slowdown and --straggler-seconds the plan is as fast as the pipeline can be; only instructions
/// that nothing waits for are slower. With one of them, the pipeline may take as long as the
/// slowest one (T'), but no longer than T*, beyond which a longer time saves nothing: T_opt =
/// min(T*, T'). Every instruction gets the slowest clock at which it takes no longer than planned.
#[derive(clap::Args)]
pub struct Args<C: Costs> {
    #[command(flatten)]
    input: Input<C>,
    #[command(flatten)]
    straggler: Straggler,
    #[command(flatten)]
    write: Write,
}

/// How late another pipeline is.
#[derive(clap::Args)]
pub struct Straggler {
    /// How many times as long the slowest pipeline takes as this one at full clock, such as 1.2
    #[arg(long, value_name = "DEGREE", value_parser = degree)]
    slowdown: Option<f64>,
    /// The same as a time: how long the slowest pipeline takes, in seconds
    #[arg(long, value_name = "S", value_parser = super::positive, conflicts_with = "slowdown")]
    straggler_seconds: Option<f64>,
}

fn degree(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number >= 1.0);
    number.ok_or_else(|| "must be 1 or more: 1.2 is a pipeline that takes 20 % longer".into())
}

impl Straggler {
    /// When the slowest other pipeline is done, if one was named.
    pub fn time(&self, job: &Job) -> Option<Millis> {
        let by_degree = self
            .slowdown
            .map(|degree| job.full_speed(None).realised * degree);
        by_degree.or(self.straggler_seconds.map(|seconds| Millis(1e3 * seconds)))
    }
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    simulated: bool,
    full_speed: &'a Plan,
    plan: &'a Plan,
    saving_percent: f64,
    /// For each stage what it does, in order: instruction, microbatch, MHz, start and end in ms.
    stages: BTreeMap<u32, Vec<Step<'a>>>,
}

#[derive(Serialize)]
struct Step<'a> {
    instruction: &'a str,
    microbatch: u32,
    planned_units: u32,
    clock_mhz: Option<f64>,
    start_ms: f64,
    end_ms: f64,
    energy_j: f64,
}

/// Runs `plan lookup`.
///
/// # Errors
/// What was given is wrong, or a file can't be written; in words.
pub fn run<C: Costs>(args: &Args<C>, json: bool) -> Outcome {
    let loaded = args.input.load(json)?;
    let straggler = args.straggler.time(&loaded.job);
    let plan = loaded.job.lookup(straggler);
    let full = loaded.job.full_speed(straggler);
    args.write.write(&loaded, &plan)?;
    if json {
        output::json(&report(&loaded, &full, &plan))
    } else {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = write_report(&mut out, &loaded, straggler, [&full, &plan]);
        output::text(&out)
    }
}

fn report<'a>(loaded: &'a Loaded, full: &'a Plan, plan: &'a Plan) -> Report<'a> {
    let graph = loaded.job.problem().graph();
    let mut stages: BTreeMap<u32, Vec<Step>> = BTreeMap::new();
    for (number, [start, end]) in plan.moments(graph).into_iter().enumerate() {
        let kind = graph.kind(number);
        let planned = plan.operations[number];
        stages.entry(kind.stage).or_default().push(Step {
            instruction: &kind.instruction,
            microbatch: graph.operations()[number].microbatch,
            planned_units: planned.time.0,
            clock_mhz: planned.clock.map(|clock| clock.0 / 1e6),
            start_ms: start.0,
            end_ms: end.0,
            energy_j: planned.energy.0,
        });
    }
    for steps in stages.values_mut() {
        steps.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
    }
    Report {
        schema: 1,
        simulated: loaded.simulated,
        full_speed: full,
        plan,
        saving_percent: saving(plan, full),
        stages,
    }
}

fn write_report(
    out: &mut String,
    loaded: &Loaded,
    straggler: Option<Millis>,
    [full, plan]: [&Plan; 2],
) -> fmt::Result {
    if loaded.simulated {
        writeln!(
            out,
            "{SIMULATED}SIMULATED{SIMULATED:#}: the measurements are made up"
        )?;
    }
    writeln!(
        out,
        "{HEAD}              planned   realised       until        energy{HEAD:#}"
    )?;
    let planned = |plan: &Plan| seconds(loaded.job.millis(plan.time));
    for (name, plan) in [("full clock", full), ("plan", plan)] {
        let (planned, realised) = (planned(plan), seconds(plan.realised));
        let (until, energy) = (seconds(plan.until), plan.energy.0);
        writeln!(
            out,
            "{name:<10} {planned:>10} {realised:>10} {until:>11} {energy:>11.1} J"
        )?;
    }
    writeln!(
        out,
        "\nThe plan uses {:.2} % less energy.",
        saving(plan, full)
    )?;
    if plan.pays_only_for_straggler {
        writeln!(out, "It pays only while another pipeline is late.")?;
    }
    let longest = loaded.job.frontier().longest();
    match straggler {
        Some(straggler) if straggler < full.realised => writeln!(
            out,
            "A pipeline that takes {} is not late: this one takes {} at full clock. This is the \
             fastest plan.",
            seconds(straggler),
            seconds(full.realised)
        )?,
        Some(straggler) if straggler > plan.realised && plan.time == longest => writeln!(
            out,
            "It is done before the straggler: beyond T*, {}, slower clocks save nothing more.",
            seconds(loaded.job.millis(longest))
        )?,
        _ => {}
    }
    rounding(out, &loaded.job, full, plan)?;
    clocks(out, loaded.job.problem().graph(), plan)
}

/// The planned clocks of each kind of operation.
fn clocks(out: &mut String, graph: &Graph, plan: &Plan) -> fmt::Result {
    let mut of_kind: BTreeMap<&Kind, Vec<&Planned>> = BTreeMap::new();
    for (number, planned) in plan.operations.iter().enumerate() {
        of_kind.entry(graph.kind(number)).or_default().push(planned);
    }
    writeln!(
        out,
        "\n{HEAD}stage instruction    times  slowest clock  fastest clock      energy{HEAD:#}"
    )?;
    for (kind, planned) in of_kind {
        let clocks = planned.iter().filter_map(|planned| planned.clock);
        let slowest = clocks.clone().reduce(Hertz::min);
        let fastest = clocks.reduce(Hertz::max);
        let show = |clock: Option<Hertz>| crate::show::or_dash(clock, mhz);
        let energy: f64 = planned.iter().map(|planned| planned.energy.0).sum();
        writeln!(
            out,
            "{:>5} {:<13} {:>6} {:>14} {:>14} {energy:>9.1} J",
            kind.stage,
            kind.instruction,
            planned.len(),
            show(slowest),
            show(fastest),
        )?;
    }
    Ok(())
}
