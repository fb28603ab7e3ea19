//! The output of `plan kareus`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use litd_kareus::{Execution, Iteration, Job, Planned};
use litd_units::{Joules, Millis};
use serde::Serialize;

use super::{Frontier, Planning, tried};
use crate::output;
use crate::show::{DIM, HEAD, SIMULATED, or_dash};

/// How many microbatches of a stage and direction are executed in one way.
#[derive(Debug, Serialize)]
pub(super) struct Use<'a> {
    stage: u32,
    instruction: &'a str,
    microbatches: usize,
    clock_mhz: f64,
    time_ms: f64,
    #[serde(rename = "energy_J")]
    energy: f64,
    /// Empty where it is executed sequentially.
    partitions: Vec<Overlap<'a>>,
}

/// How a partition is executed.
#[derive(Debug, Serialize)]
struct Overlap<'a> {
    partition: &'a str,
    sms: u32,
    launch: &'a str,
}

/// The part of each stage in a plan; energies are of one GPU.
pub(super) fn uses<'a>(job: &'a Job, iteration: &'a Iteration, plan: &Planned) -> Vec<Use<'a>> {
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for &operation in &plan.operations {
        *counts.entry(operation).or_default() += 1;
    }
    counts
        .into_iter()
        .map(|((place, choice), microbatches)| {
            let (microbatch, choices) = &iteration.microbatches()[place];
            let choice = &choices[choice];
            let candidates = match &choice.execution {
                Execution::Sequential => &[][..],
                Execution::Overlapped(candidates) => candidates,
            };
            let overlapped = microbatch.overlapped.iter().zip(candidates);
            let partitions = overlapped.map(|(&(at, _), candidate)| {
                let partition = &job.partitions[at];
                let launch = partition.computations.get(candidate.launch);
                Overlap {
                    partition: &partition.name,
                    sms: candidate.sms,
                    launch: launch.map_or("", |it| &it.name),
                }
            });
            Use {
                stage: microbatch.stage,
                instruction: microbatch.instruction,
                microbatches,
                clock_mhz: choice.clock.0 / 1e6,
                time_ms: choice.time.0,
                energy: choice.energy.0,
                partitions: partitions.collect(),
            }
        })
        .collect()
}

pub(super) fn render(planning: &Planning, kareus: &Iteration, planned: &Planned) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, planning, kareus, planned);
    out
}

fn write(out: &mut String, planning: &Planning, kareus: &Iteration, plan: &Planned) -> fmt::Result {
    if planning.explored.simulated {
        writeln!(
            out,
            "{SIMULATED}SIMULATED{SIMULATED:#}: a simulator made the times and energies"
        )?;
    }
    searches(out, planning)?;
    frontiers(out, planning)?;
    writeln!(
        out,
        "\nThe plan takes {:.3} s and uses {:.1}; of one GPU of each stage:",
        plan.time.0 * 1e-3,
        plan.energy * planning.gpus_per_stage
    )?;
    plan_table(out, &uses(&planning.job, kareus, plan))
}

/// How partitions were searched; what was found by chance and by each pass.
fn searches(out: &mut String, planning: &Planning) -> fmt::Result {
    let searches = &planning.explored.searches;
    if searches.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "{HEAD}                     candidates       frontier, found by{HEAD:#}\n\
         {HEAD}partition               all tried  all chance total dynamic static doubt{HEAD:#}"
    )?;
    for it in searches.iter().map(tried) {
        let [chance, total, dynamic, fixed, doubt] = it.by_pass;
        writeln!(
            out,
            "{:<22} {:>4} {:>5} {:>4} {chance:>6} {total:>5} {dynamic:>7} {fixed:>6} {doubt:>5}",
            it.partition, it.candidates, it.tried, it.frontier
        )?;
    }
    writeln!(out)
}

fn frontiers(out: &mut String, planning: &Planning) -> fmt::Result {
    writeln!(
        out,
        "{HEAD}                        fastest             least energy        below Megatron-LM  below + Perseus{HEAD:#}\n\
         {HEAD}method                       s         J         s         J   time % energy %  energy % time %{HEAD:#}"
    )?;
    for it in &planning.frontiers {
        row(out, it)?;
    }
    writeln!(
        out,
        "{DIM}below + Perseus: energy within the time of its fastest plan, time within the energy of its cheapest{DIM:#}"
    )?;
    for it in &planning.frontiers {
        if let Err(why) = &it.iteration {
            for line in output::wrap(
                &format!("{} has no frontier: {why}", it.name),
                output::WIDTH,
            ) {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(())
}

fn row(out: &mut String, it: &Frontier) -> fmt::Result {
    let point = |found: Option<&(Millis, Joules)>| {
        let shown = |it: &(Millis, Joules)| format!("{:>9.3} {:>9.1}", it.0.0 * 1e-3, it.1.0);
        found.map_or_else(|| format!("{:>9} {:>9}", "-", "-"), shown)
    };
    let fastest = it.points.iter().min_by(|a, b| a.0.0.total_cmp(&b.0.0));
    let cheapest = it.points.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0));
    let percent = |value: Option<f64>| or_dash(value, |it| format!("{it:.1}"));
    let of = |pick: fn(&litd_kareus::Reductions) -> Option<f64>| {
        percent(it.reductions.as_ref().and_then(pick))
    };
    writeln!(
        out,
        "{:<22} {} {}  {:>7} {:>8}  {:>8} {:>6}",
        it.name,
        point(fastest),
        point(cheapest),
        of(|it| Some(it.time)),
        of(|it| Some(it.energy)),
        of(|it| it.iso_time_energy),
        of(|it| it.iso_energy_time),
    )
}

fn plan_table(out: &mut String, uses: &[Use]) -> fmt::Result {
    writeln!(
        out,
        "{HEAD}stage instruction  times   MHz       ms        J  SMs and launch of each partition{HEAD:#}"
    )?;
    for it in uses {
        write!(
            out,
            "{:>5} {:<12} {:>5} {:>5} {:>8.2} {:>8.2}  ",
            it.stage, it.instruction, it.microbatches, it.clock_mhz, it.time_ms, it.energy
        )?;
        if it.partitions.is_empty() {
            writeln!(out, "sequential")?;
        }
        for (number, one) in it.partitions.iter().enumerate() {
            let indent = if number == 0 { 0 } else { 50 };
            writeln!(
                out,
                "{:indent$}{} {} at {}",
                "", one.partition, one.sms, one.launch
            )?;
        }
    }
    Ok(())
}
