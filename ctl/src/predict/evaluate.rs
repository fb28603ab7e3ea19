//! `litctl predict evaluate`: a measured table, predicted row by row.

use std::path::PathBuf;

use litd_inference::engine;
use litd_inference::evaluate::{Errors, evaluate};
use litd_inference::fit::Half;
use litd_inference::gpu::Gpu;
use litd_inference::kernel::{Analytic, Backend, Baseline, Constants, KernelModel};
use litd_inference::table::{Kind, Table};
use serde::Serialize;

use super::files;
use crate::{Outcome, output};

/// Predict every row of a measured table and print the mean absolute percentage errors
///
/// Nothing is fitted to the table. Its columns tell its kind; if two kinds of attention have the
/// same columns, the file's name does. Power is compared only on rows of 60 µs and longer,
/// because a board's power reading, an average over time, does not show a shorter kernel.
#[derive(clap::Args)]
pub struct Args {
    /// The GPU on which the table was measured, such as a100, h100, h200, mi300x
    #[arg(long, value_parser = files::gpu)]
    gpu: Gpu,
    /// The table: CSV, gzipped or not
    #[arg(long, value_name = "FILE")]
    table: PathBuf,
    /// The kind of the rows, if neither columns nor name tell it: gemm, context-attention,
    /// generation-attention, moe, all-reduce, layer or request
    #[arg(long, value_parser = files::kind)]
    kind: Option<Kind>,
    /// The file of a calibration, written by `litctl predict calibrate` [default: none; predictions rest
    /// on public specifications]
    #[arg(long, value_name = "FITTED.json")]
    fitted: Option<PathBuf>,
    /// The model of kernels
    #[arg(long, value_enum, default_value_t = Way::Analytic, conflicts_with = "fitted")]
    backend: Way,
    /// Use one half of the rows only, by shape group: test is the half that `calibrate --half
    /// train` has not seen
    #[arg(long, value_name = "train|test", value_parser = files::half_named)]
    half: Option<Half>,
}

/// A model of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// From how kernels are built: tiles, waves, pages
    Analytic,
    /// The longer of computing and moving data, both at their peaks
    Roofline,
    /// A constant plus a time proportional to the number of operations
    Linear,
    /// Analytic latency, and the power limit as power
    Tdp,
}

impl Way {
    /// The same, as the library names it.
    pub fn backend(self) -> Backend {
        match self {
            Self::Analytic => Backend::Analytic,
            Self::Roofline => Backend::Roofline,
            Self::Linear => Backend::Linear,
            Self::Tdp => Backend::Tdp,
        }
    }
}

/// The output.
#[derive(Serialize)]
struct Report {
    rows: usize,
    latency_mape: f64,
    power_mape: Option<f64>,
    power_rows: usize,
    /// Of requests only.
    #[serde(skip_serializing_if = "Option::is_none")]
    energy_mape: Option<f64>,
    gpu: String,
    kind: Kind,
    model: String,
    skipped: usize,
    notes: Vec<String>,
}

pub fn run(args: &Args, json: bool) -> Outcome {
    let table = files::table(&args.table, args.kind, &args.gpu, args.half)?;
    let mut notes = Vec::new();
    let report = match table.kind {
        Kind::Request => requests(args, &table, notes)?,
        _ => {
            let (model, name) = chosen(args, &table, &mut notes)?;
            let errors = evaluate(model.as_ref(), &table);
            let errors = errors.ok_or("no row of the table can be predicted")?;
            report(args, &table, &errors, name, notes)
        }
    };
    match json {
        true => output::json(&report),
        false => output::text(&text(&report)),
    }
}

/// Whole requests: kernels, and the engine around them.
fn requests(args: &Args, table: &Table, mut notes: Vec<String>) -> files::Fallible<Report> {
    if args.backend != Way::Analytic {
        return Err("requests are predicted with the analytic model only".into());
    }
    let (constants, name) = match &args.fitted {
        None => (
            Constants::shipped(args.gpu.architecture),
            "uncalibrated".to_owned(),
        ),
        Some(path) => (
            files::fitted(path, &args.gpu)?.constants,
            path.display().to_string(),
        ),
    };
    let errors = engine::evaluate(&constants, table);
    let errors = errors
        .ok_or("no row is of a model that is known: `litctl predict run --help` tells which are")?;
    if errors.unknown > 0 {
        notes.push(format!(
            "{} of models that are not shipped, or that their GPUs do not divide, left out",
            output::count(errors.unknown as u32, "row")
        ));
    }
    let variants: Vec<String> = engine::gpus(table).into_iter().map(|it| it.name).collect();
    notes.push(format!("measured on {}", variants.join(", ")));
    let common = Errors {
        rows: errors.rows,
        latency_mape: errors.latency_mape,
        power_mape: Some(errors.power_mape),
        power_rows: errors.rows,
    };
    let mut report = report(args, table, &common, name, notes);
    report.energy_mape = Some(errors.energy_mape);
    Ok(report)
}

fn chosen(
    args: &Args,
    table: &Table,
    notes: &mut Vec<String>,
) -> files::Fallible<(Box<dyn KernelModel>, String)> {
    let Some(path) = &args.fitted else {
        let analytic = Analytic::uncalibrated(args.gpu.clone());
        let model: Box<dyn KernelModel> = match args.backend.backend() {
            Backend::Analytic => Box::new(analytic),
            other => Box::new(Baseline::new(analytic, other)),
        };
        return Ok((model, "uncalibrated".to_owned()));
    };
    let fitted = files::fitted(path, &args.gpu)?;
    if let Some(training) = fitted.saw(table) {
        notes.push(format!(
            "the model was fitted on these very rows ({}): its errors say nothing about others",
            training.table
        ));
    }
    Ok((fitted.model(), path.display().to_string()))
}

fn report(
    args: &Args,
    table: &Table,
    errors: &Errors,
    model: String,
    notes: Vec<String>,
) -> Report {
    Report {
        rows: errors.rows,
        latency_mape: errors.latency_mape,
        power_mape: errors.power_mape,
        power_rows: errors.power_rows,
        energy_mape: None,
        gpu: args.gpu.name.clone(),
        kind: table.kind,
        model,
        skipped: table.skipped,
        notes,
    }
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "{} {}, {}: {}\n  latency  {:6.1} %  mean absolute percentage error\n",
        report.gpu,
        report.kind,
        report.model,
        output::count(report.rows as u32, "row"),
        report.latency_mape,
    );
    text += &match report.power_mape {
        Some(power) => format!(
            "  power    {power:6.1} %  over {} of 60 us and longer\n",
            output::count(report.power_rows as u32, "row")
        ),
        None => "  power         -    not measured, or no row is long enough\n".to_owned(),
    };
    if let Some(energy) = report.energy_mape {
        text += &format!("  energy   {energy:6.1} %  per request\n");
    }
    if report.skipped > 0 {
        text += &format!(
            "  {} without a time or of another GPU left out\n",
            output::count(report.skipped as u32, "row")
        );
    }
    for note in &report.notes {
        text += &format!("  note: {note}\n");
    }
    text
}
