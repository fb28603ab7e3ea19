//! `litctl predict calibrate`: models of kernels from measured tables.

use std::fs;
use std::path::PathBuf;

use litd_inference::engine;
use litd_inference::evaluate::evaluate;
use litd_inference::fit::{Fitted, Half, Measured, Sample, Training, constants, corrections, hash};
use litd_inference::gpu::Gpu;
use litd_inference::kernel::{Analytic, Constants};
use litd_inference::table::{Kind, Table};
use serde::Serialize;

use super::files;
use crate::{Outcome, output};

/// Fit the models of kernels to measured tables of one GPU
///
/// Fits the constants of each kernel family, and keeps the remaining errors as corrections by shape
/// (--analytic: constants only). The output has the hash of the rows that were fitted.
#[derive(clap::Args)]
pub struct Args {
    /// The GPU on which the tables were measured
    #[arg(long, value_parser = files::gpu)]
    gpu: Gpu,
    /// Tables of kernels: CSV, gzipped or not
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    table: Vec<PathBuf>,
    /// The kind of the rows, if neither columns nor names tell it: gemm, context-attention,
    /// generation-attention, moe, all-reduce, layer or request
    #[arg(long, value_parser = files::kind)]
    kind: Option<Kind>,
    /// Fit one half of the rows only, by shape group; `evaluate --half test` predicts the other
    #[arg(long, value_name = "train|test", value_parser = files::half_named)]
    half: Option<Half>,
    /// Fit constants only, without corrections: the file is smaller, predictions near measured
    /// shapes are worse, and those far from them are the same
    #[arg(long)]
    analytic: bool,
    /// Where the calibration is written
    #[arg(long, short, value_name = "FITTED.json")]
    output: PathBuf,
}

/// How well one table is fitted.
#[derive(Serialize)]
struct Seen {
    #[serde(flatten)]
    training: Training,
    latency_mape: Option<f64>,
    power_mape: Option<f64>,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let mut tables = Vec::new();
    for path in &args.table {
        tables.push((path, files::table(path, args.kind, &args.gpu, args.half)?));
    }
    let rows = tables.iter().flat_map(|it| &it.1.rows);
    let samples: Vec<Sample> = rows.filter_map(Sample::of).collect();
    let requests = tables
        .iter()
        .map(|it| &it.1)
        .filter(|it| it.kind == Kind::Request);
    let requests: Vec<&Table> = requests.collect();
    if samples.is_empty() && requests.is_empty() {
        let what =
            "the tables have no rows of single kernels or requests, and only those can be fitted";
        return Err(what.into());
    }
    let measured = Measured {
        gpu: &args.gpu,
        samples: &samples,
    };
    let shipped = Constants::shipped(args.gpu.architecture);
    let mut constants = constants(&shipped, &[measured]);
    for table in requests {
        constants = engine::fit(&constants, table);
    }
    let analytic = Analytic::new(args.gpu.clone(), constants);
    let points = match args.analytic {
        true => Vec::new(),
        false => corrections(&analytic, &samples),
    };
    let training = tables.iter().map(|(path, table)| Training {
        table: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        kind: table.kind.to_string(),
        rows: table.rows.len(),
        hash: hash(table),
    });
    let fitted = Fitted::new(args.gpu.clone(), training.collect(), constants, points);
    let text = serde_json::to_string(&fitted)?;
    fs::write(&args.output, text).map_err(|it| format!("{}: {it}", args.output.display()))?;
    let seen = tables
        .iter()
        .zip(&fitted.training)
        .map(|((_, table), training)| {
            let errors = evaluate(&analytic, table);
            Seen {
                training: training.clone(),
                latency_mape: errors.map(|it| it.latency_mape),
                power_mape: errors.and_then(|it| it.power_mape),
            }
        });
    let seen: Vec<Seen> = seen.collect();
    match json {
        true => output::json(&seen),
        false => output::text(&table_of(&seen)),
    }
}

fn table_of(seen: &[Seen]) -> String {
    let mut text = "errors of the fitted constants on the rows that were fitted, %\n".to_owned();
    for it in seen {
        let shown = |value: Option<f64>| value.map_or_else(|| "-".into(), |it| format!("{it:.1}"));
        text += &format!(
            "{:20} {:>7} rows  latency {:>6}  power {:>6}  {}\n",
            it.training.kind,
            it.training.rows,
            shown(it.latency_mape),
            shown(it.power_mape),
            it.training.table
        );
    }
    text
}
