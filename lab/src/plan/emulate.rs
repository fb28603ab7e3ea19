//! `litlab plan emulate`: the paper's Table 6 and Figure 8 setting, on SIMULATED profiles.

use std::fmt::{self, Write as _};

use litd_planner::{Job, Pipeline, Scale, Schedule};
use litd_profiles::{Pricing, synthetic};
use serde::Serialize;

use litd_cli::plan::saving;
use litd_cli::show::{HEAD, SIMULATED};
use litd_cli::{Outcome, output};

/// Repeat the paper's large-scale emulation on SIMULATED profiles, beside its numbers
///
/// Eight stages, 1F1B, 12 to 96 microbatches, stragglers from 1.05 to 1.5 times the iteration
/// time. Only the stages' imbalance is the paper's; times and energies are made up, so compare
/// trends: savings fall with more microbatches, and with a straggler they rise, are highest a
/// little before T* and fall again.
#[derive(clap::Args)]
pub struct Args {
    /// The seed of the profiles
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const STAGES: usize = 8;
const MICROBATCHES: [u32; 4] = [12, 24, 48, 96];
const DEGREES: [f64; 8] = [1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0];

/// A model, the ratio of its longest stage (the last) to the others (Table 7a), and the paper's
/// savings on A100 by microbatches (Table 6).
const MODELS: [(&str, f64, [f64; 4]); 2] = [
    ("GPT-3 175B", 1.03, [15.20, 14.19, 13.62, 13.32]),
    ("Bloom 176B", 1.10, [10.47, 7.06, 5.23, 4.28]),
];

#[derive(Serialize)]
struct Row {
    model: &'static str,
    microbatches: u32,
    points: usize,
    /// Intrinsic: without a straggler.
    saving_percent: f64,
    paper_percent: f64,
    /// T* over the time at full clock: where the saving is the most joules.
    longest: Saved,
    /// Where it is the largest percentage, to a hundredth.
    peak: Saved,
    /// Intrinsic and extrinsic, by how late the straggler is.
    stragglers: Vec<[f64; 2]>,
}

/// What is saved beside a straggler.
#[derive(Clone, Copy, Serialize)]
struct Saved {
    /// How late it is.
    degree: f64,
    percent: f64,
    joules: f64,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let mut rows = Vec::new();
    for (model, imbalance, paper) in MODELS {
        for (microbatches, paper_percent) in MICROBATCHES.into_iter().zip(paper) {
            let job = job(imbalance, microbatches, args.seed)?;
            rows.push(row(model, microbatches, paper_percent, &job));
        }
    }
    if json {
        let document = serde_json::json!({"schema": 1, "simulated": true, "rows": rows});
        return output::json(&document);
    }
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut out, &rows);
    output::text(&out)
}

fn job(imbalance: f64, microbatches: u32, seed: u64) -> Result<Job, Box<dyn std::error::Error>> {
    let mut weights = [1.0; STAGES];
    weights[STAGES - 1] = imbalance;
    let pricing = Pricing::default();
    let (spec, _) = synthetic::profile_with_weights(&weights, seed).price(&pricing)?;
    let graph = Schedule::OneForwardOneBackward.graph(STAGES as u32, microbatches)?;
    let scale = Scale {
        unit: pricing.unit,
        blocking: pricing.blocking,
        gpus: STAGES as u32,
    };
    Ok(Pipeline::new(graph, &spec, scale)?.characterise(|_, _| {}))
}

fn row(model: &'static str, microbatches: u32, paper_percent: f64, job: &Job) -> Row {
    let full = job.full_speed(None);
    let late = |degree: f64| {
        let straggler = Some(full.realised * degree);
        let (plan, full) = (job.lookup(straggler), job.full_speed(straggler));
        Saved {
            degree,
            percent: saving(&plan, &full),
            joules: (full.energy - plan.energy).0,
        }
    };
    let longest = late(job.millis(job.frontier().longest()) / full.realised);
    let hundredths = 101..(120.0 * longest.degree) as u32;
    let peak = hundredths
        .map(|degree| late(f64::from(degree) / 100.0))
        .fold(late(1.0), |best, other| {
            match other.percent > best.percent {
                true => other,
                false => best,
            }
        });
    let stragglers = DEGREES.map(|degree| [degree, late(degree).percent]);
    Row {
        model,
        microbatches,
        points: job.frontier().len(),
        saving_percent: saving(&job.lookup(None), &full),
        paper_percent,
        longest,
        peak,
        stragglers: stragglers.into(),
    }
}

fn write_report(out: &mut String, rows: &[Row]) -> fmt::Result {
    writeln!(
        out,
        "{SIMULATED}SIMULATED{SIMULATED:#}: only the imbalance of stages is the paper's"
    )?;
    writeln!(
        out,
        "estimated saving against full clock, %; 8 stages, 1F1B\n"
    )?;
    write!(
        out,
        "{HEAD}model       micro-            no straggler   straggler's degree"
    )?;
    write!(
        out,
        "{HEAD:#}\n{HEAD}           batches  T*/T peak  here   paper "
    )?;
    for degree in DEGREES {
        write!(out, " {degree:>5}")?;
    }
    writeln!(out, "{HEAD:#}")?;
    for row in rows {
        let Row {
            model,
            microbatches,
            saving_percent,
            paper_percent,
            ..
        } = row;
        write!(
            out,
            "{model:<11} {microbatches:>6} {:>5.2} {:>4.2} {saving_percent:>5.2} {paper_percent:>7.2} ",
            row.longest.degree, row.peak.degree,
        )?;
        for [_, saved] in &row.stragglers {
            write!(out, " {saved:>5.2}")?;
        }
        writeln!(out)?;
    }
    ends(out, rows)
}

/// Where savings are the largest, in percent and in joules.
fn ends(out: &mut String, rows: &[Row]) -> fmt::Result {
    writeln!(
        out,
        "\n{HEAD}model       micro-   the largest percentage    the most joules, at T*{HEAD:#}"
    )?;
    writeln!(
        out,
        "{HEAD}           batches  degree            saving  degree            saving{HEAD:#}"
    )?;
    for row in rows {
        write!(out, "{:<11} {:>6} ", row.model, row.microbatches)?;
        for Saved {
            degree,
            percent,
            joules,
        } in [row.peak, row.longest]
        {
            write!(out, " {degree:>6.2} {percent:>6.2} % {joules:>8.1} J")?;
        }
        writeln!(out)?;
    }
    Ok(())
}
