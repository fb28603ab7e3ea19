//! `plan kareus --compare-searches`: searches of what is known completely, against that.

use std::fmt::{self, Write as _};

use litd_kareus::search::{Pass, Settings};
use litd_kareus::{Job, Judged, Results, judge};
use litd_trial::Estimate;
use litd_units::Watts;
use serde::Serialize;

use crate::output;
use crate::plan::Fallible;
use crate::show::{DIM, HEAD, SIMULATED, or_dash};

/// Seeds on which nothing was tuned.
const FIRST_SEED: u64 = 1000;

/// The paper's percentages of frontiers' points (section 6.6): by chance, and by each pass.
const PAPER: [f64; 5] = [35.0, 25.0, 22.0, 12.0, 6.0];

const CONFIDENCE: f64 = 0.95;

/// The searches of all partitions.
#[derive(Debug, Serialize)]
pub(super) struct Judgement {
    schema: u32,
    simulated: bool,
    seeds: Vec<u64>,
    partitions: Vec<(String, Judged)>,
    /// For each pass what it adds to the hypervolume, in percent of that of everything: the paired difference, of
    /// every seed the mean over partitions.
    passes: Vec<(Pass, Option<Estimate>)>,
    /// Of the points of all frontiers that were found, the part that each pass found, in percent.
    shares: [f64; 5],
}

/// Judges the search of every partition with so many seeds.
pub(super) fn judged(
    job: &Job,
    results: &Results,
    static_power: Watts,
    count: u32,
    simulated: bool,
) -> Fallible<Judgement> {
    let seeds: Vec<u64> = (FIRST_SEED..).take(count as usize).collect();
    let mut partitions = Vec::with_capacity(job.partitions.len());
    for partition in &job.partitions {
        let known = results.of_partition(&partition.name);
        let settings = Settings::for_computations(partition.computations.len());
        let judged = judge(known, static_power, &settings, &seeds);
        let judged = judged.ok_or_else(|| format!("{}: there is no result", partition.name))?;
        partitions.push((partition.name.clone(), judged));
    }
    let passes = Pass::OF_A_BATCH.into_iter().enumerate();
    let passes = passes.map(|(place, pass)| (pass, pooled(&partitions, place)));
    let count = partitions.len() as f64;
    let share = |at: usize| partitions.iter().map(|it| it.1.shares[at]).sum::<f64>();
    Ok(Judgement {
        schema: 1,
        simulated,
        passes: passes.collect(),
        shares: std::array::from_fn(|at| 100.0 * share(at) / count),
        seeds,
        partitions,
    })
}

/// The gain of a pass in one partition, for each seed, in percent.
fn differences(judged: &Judged, pass: usize) -> impl Iterator<Item = f64> + '_ {
    let pairs = judged.parts.iter().zip(&judged.without[pass]);
    pairs.map(|(whole, without)| 100.0 * (whole - without))
}

fn pooled(partitions: &[(String, Judged)], pass: usize) -> Option<Estimate> {
    let each: Vec<Vec<f64>> = partitions
        .iter()
        .map(|it| differences(&it.1, pass).collect())
        .collect();
    let seeds = each.first()?.len();
    let mean = |seed: usize| each.iter().map(|it| it[seed]).sum::<f64>() / each.len() as f64;
    let means: Vec<f64> = (0..seeds).map(mean).collect();
    Estimate::of(&means, CONFIDENCE)
}

pub(super) fn render(judgement: &Judgement) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, judgement);
    out
}

fn write(out: &mut String, it: &Judgement) -> fmt::Result {
    if it.simulated {
        writeln!(
            out,
            "{SIMULATED}SIMULATED{SIMULATED:#}: a simulator made the times and energies"
        )?;
    }
    writeln!(
        out,
        "{} from {FIRST_SEED}; hypervolumes in percent of that of all candidates\n",
        output::count(it.seeds.len() as f64, "seed"),
    )?;
    writeln!(
        out,
        "{HEAD}                                      hypervolume      near the frontier{HEAD:#}\n\
         {HEAD}partition              candidates tried median   worst  median   worst{HEAD:#}"
    )?;
    for (name, judged) in &it.partitions {
        let [median, worst] = ends(&judged.parts);
        let [near, nearest] = ends(&judged.strict);
        writeln!(
            out,
            "{name:<22} {:>10} {:>5.0} {median:>6.2} {worst:>7.2} {near:>7.2} {nearest:>7.2}",
            judged.candidates, judged.tried
        )?;
    }
    writeln!(
        out,
        "{DIM}near the frontier: hypervolume up to a reference point a tenth beyond the frontier's ends,\n\
         not beyond the worst candidate{DIM:#}\n"
    )?;
    passes(out, it)
}

/// Passes, with what each adds.
fn passes(out: &mut String, it: &Judgement) -> fmt::Result {
    writeln!(
        out,
        "{HEAD}pass         adds, points of %   95 % interval     of frontiers %  paper %{HEAD:#}"
    )?;
    writeln!(
        out,
        "{:<52} {:>14.1} {:>8.0}",
        "beginning", it.shares[0], PAPER[0]
    )?;
    for (place, (pass, estimate)) in it.passes.iter().enumerate() {
        let name = pass.name();
        let mean = or_dash(*estimate, |it| format!("{:+.3}", it.mean));
        let interval = or_dash(*estimate, |it| format!("{:+.3} to {:+.3}", it.low, it.high));
        let pays = match estimate {
            Some(it) if it.low > 0.0 => "",
            Some(it) if it.high < 0.0 => "  it costs more than it finds",
            _ => "  it does not show that it pays",
        };
        writeln!(
            out,
            "{name:<12} {mean:>18}  {interval:>18} {:>14.1} {:>8.0}{pays}",
            it.shares[place + 1],
            PAPER[place + 1]
        )?;
    }
    writeln!(
        out,
        "{DIM}adds: by how much the hypervolume falls if the pass is left out and its share of the\n\
         candidates goes to the other passes (same first candidates){DIM:#}"
    )
}

/// Median and worst, in percent.
fn ends(parts: &[f64]) -> [f64; 2] {
    let mut sorted = parts.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    };
    [100.0 * median, 100.0 * sorted[0]]
}
