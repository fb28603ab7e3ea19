//! `litctl plan candidates`: what to measure next, for whoever measures partitions on a GPU.

use std::fmt::Write as _;
use std::path::PathBuf;

use litd_cli::plan::kareus::{gpu, job};
use litd_kareus::search::{Asked, Pass, Settings, next};
use litd_kareus::{Gpu, Job, Partition, Results, Space};
use litd_units::{Hertz, Watts};
use serde::Serialize;

use super::kareus::add;
use crate::{Outcome, output};

/// Print which candidates of a job's partitions to measure next (Kareus)
///
/// Prints rows of name,frequency,sms,launch,pass (frequency in MHz). Measure each, append its time and energy to the
/// results, and run the command again; once it prints no row, plan with `litctl plan kareus`. The
/// same results and seed give the same rows, so only the results have to be kept.
#[derive(clap::Args)]
pub struct Args {
    /// The job: JSON with "model", whose keys are those of Hugging Face's config.json, and
    /// "training" (keys: docs/kareus.md)
    #[arg(long, value_name = "JOB.json")]
    job: PathBuf,
    /// The GPU, as JSON with the keys that `litctl plan kareus --help` names (clocks in Hz) [default:
    /// the paper's A100]
    #[arg(long, value_name = "GPU.json")]
    gpu: Option<PathBuf>,
    /// The results so far, in the format that `litctl plan kareus` reads [default: none]
    #[arg(long, value_name = "RESULTS.csv")]
    results: Option<PathBuf>,
    /// Static power: the power of a GPU that is ready and has no work, in watts
    #[arg(long, value_name = "W", value_parser = litd_cli::plan::positive)]
    static_power: f64,
    /// The seed; give the same one each time
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A candidate to measure.
#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    frequency: f64,
    /// A sequence has neither SMs nor launch nor pass.
    sms: Option<u32>,
    launch: Option<&'a str>,
    pass: Option<Pass>,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let job = job(&args.job)?;
    let gpu = gpu(args.gpu.as_deref())?;
    let mut results = Results::new(Watts(args.static_power));
    if let Some(path) = &args.results {
        add(&mut results, &job, path, None)?;
    }
    let rows = rows(&job, &gpu, &results, args);
    if rows.is_empty() {
        output::note("nothing is left to measure; plan with litctl plan kareus");
    }
    match json {
        true => output::json(&rows),
        false => output::text(&csv(&rows)),
    }
}

fn rows<'a>(job: &'a Job, gpu: &Gpu, results: &Results, args: &Args) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for (place, partition) in job.partitions.iter().enumerate() {
        let candidates: Vec<_> = Space::searched(gpu, partition).candidates().collect();
        let settings = Settings::for_computations(partition.computations.len());
        let seed = Job::seed(args.seed, place);
        let known = results.of_partition(&partition.name);
        let power = Watts(args.static_power);
        if let Err(asked) = next(&candidates, power, &settings, seed, known) {
            rows.extend(asked.iter().map(|it| row(partition, it)));
        }
    }
    for sequence in &job.sequences {
        let known = results.of_sequence(&sequence.name);
        let open = |clock: &Hertz| known.iter().all(|it| it.0 != *clock);
        rows.extend(gpu.clocks(2).into_iter().filter(open).map(|clock| Row {
            name: &sequence.name,
            frequency: clock.0 / 1e6,
            sms: None,
            launch: None,
            pass: None,
        }));
    }
    rows
}

fn row<'a>(partition: &'a Partition, (candidate, pass): &Asked) -> Row<'a> {
    let launch = partition.computations.get(candidate.launch);
    Row {
        name: &partition.name,
        frequency: candidate.clock.0 / 1e6,
        sms: Some(candidate.sms),
        launch: launch.map(|it| it.name.as_str()),
        pass: Some(*pass),
    }
}

fn csv(rows: &[Row]) -> String {
    let mut text = "name,frequency,sms,launch,pass\n".to_owned();
    for it in rows {
        let sms = it.sms.map_or(String::new(), |it| it.to_string());
        let launch = it.launch.unwrap_or_default();
        let pass = it.pass.map_or("", Pass::name);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{},{},{sms},{launch},{pass}", it.name, it.frequency);
    }
    text
}
