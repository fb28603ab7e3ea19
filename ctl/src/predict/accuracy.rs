//! `litctl predict accuracy`: half of each table is fitted, the other half predicted.

use std::fs;
use std::path::{Path, PathBuf};

use litd_inference::engine;
use litd_inference::evaluate::{Compared, Errors, compare, errors, evaluate, predict};
use litd_inference::fit::{Half, Measured, Sample, constants, corrections, half, hash};
use litd_inference::gpu::Gpu;
use litd_inference::kernel::{Analytic, Constants, Interpolating, Kernel, KernelModel, Routing};
use litd_inference::table::{Kind, Row, Subject, Table};
use serde::Serialize;

use super::files::{self, Fallible};
use crate::{Outcome, output};

/// Fit half of each measured table and predict the other half
///
/// Tables are halved by shape group: (n, k) of matrix products, (heads, KV heads, dimension) of
/// attention, (hidden, inter, experts, top-k) of experts, every second size of collectives, every
/// second number of tokens of layers, every second model of requests. Prints the errors of the
/// shipped constants and of the fitted ones on the half that was not fitted, and the hash of the
/// half that was.
#[derive(clap::Args)]
pub struct Accuracy {
    /// Tables, or folders of tables. A table's GPU is in its name, or is given before the path:
    /// a100=FILE
    #[arg(required = true, value_name = "[GPU=]PATH")]
    paths: Vec<String>,
}

/// The rows of one kind and range, on the half that was not fitted.
#[derive(Serialize)]
struct Line {
    gpu: String,
    table: String,
    rows_of: &'static str,
    fitted_rows: usize,
    fitted_hash: String,
    tested: Errors,
    uncalibrated_mape: f64,
    /// Energy of whole requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    energy_mape: Option<f64>,
}

/// A range of rows that is told apart.
struct Range {
    name: &'static str,
    has: fn(&Row) -> bool,
}

pub fn run(args: &Accuracy, json: bool) -> Outcome {
    let mut lines = Vec::new();
    for (gpu, path) in tables(&args.paths)? {
        // A folder's table of several GPUs may have no rows of one of them.
        let table = files::table(&path, None, &gpu, None)?;
        lines.extend(accuracy(&gpu, &path, &table)?);
    }
    match json {
        true => output::json(&lines),
        false => output::text(&text(&lines)),
    }
}

/// The tables of paths, each with its GPU.
fn tables(paths: &[String]) -> Fallible<Vec<(Gpu, PathBuf)>> {
    let mut tables = Vec::new();
    for path in paths {
        if let Some((gpu, path)) = path.split_once('=') {
            tables.push((files::gpu(gpu)?, PathBuf::from(path)));
            continue;
        }
        let path = Path::new(path);
        let mut files = vec![path.to_owned()];
        if path.is_dir() {
            let entries = fs::read_dir(path).map_err(|it| format!("{}: {it}", path.display()))?;
            let is_table = |it: &PathBuf| {
                let name = it.to_string_lossy();
                name.ends_with(".csv") || name.ends_with(".csv.gz")
            };
            files = entries
                .filter_map(|it| Some(it.ok()?.path()))
                .filter(is_table)
                .collect();
            files.sort();
        }
        for file in files {
            let gpus = gpus_of(&file);
            if gpus.is_empty() {
                let what =
                    "the file's name has no GPU in it: write the GPU before it, such as h100=FILE";
                return Err(format!("{}: {what}", file.display()).into());
            }
            tables.extend(gpus.into_iter().map(|it| (it, file.clone())));
        }
    }
    Ok(tables)
}

/// The GPUs that a file's name names.
fn gpus_of(path: &Path) -> Vec<Gpu> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let words = name.split(['_', '-', '.']);
    words.filter_map(|it| Gpu::named(it).ok()).collect()
}

fn ranges(kind: Kind) -> Vec<Range> {
    let range = |name, has| Range { name, has };
    match kind {
        Kind::Gemm => vec![
            range("GEMM, m >= 256", |it| {
                rows_of(it).is_some_and(|m| m >= 256.0)
            }),
            range("GEMM, 64 < m < 256", |it| {
                rows_of(it).is_some_and(|m| m > 64.0 && m < 256.0)
            }),
            range("GEMM, m <= 64", |it| rows_of(it).is_some_and(|m| m <= 64.0)),
        ],
        Kind::ContextAttention => vec![
            range("attention, prefill", |_| true),
            range("attention, prefill, s >= 1024", |it| {
                rows_of(it).is_some_and(|s| s >= 1024.0)
            }),
        ],
        Kind::GenerationAttention => vec![range("attention, decode", |_| true)],
        Kind::Moe => vec![
            range("MoE, balanced", is_balanced),
            range("MoE, skewed", |it| !is_balanced(it)),
        ],
        Kind::AllReduce => vec![range("collectives", |_| true)],
        Kind::Layer => vec![range("layer without attention", |_| true)],
        Kind::Request => vec![range("requests", |_| true)],
    }
}

/// m of a product, new tokens of a prefill.
fn rows_of(row: &Row) -> Option<f64> {
    match row.subject {
        Subject::Kernel(Kernel::Gemm { m, .. }) => Some(m),
        Subject::Kernel(Kernel::ContextAttention { length, .. }) => Some(length),
        _ => None,
    }
}

fn is_balanced(row: &Row) -> bool {
    let balanced = |routing| matches!(routing, Routing::Balanced);
    matches!(row.subject, Subject::Kernel(Kernel::Moe { routing, .. }) if balanced(routing))
}

fn accuracy(gpu: &Gpu, path: &Path, table: &Table) -> Fallible<Vec<Line>> {
    let (train, test) = (half(table, Half::Train), half(table, Half::Test));
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let shipped = Constants::shipped(gpu.architecture);
    let line = |rows_of, tested, uncalibrated_mape, energy_mape| Line {
        gpu: gpu.name.clone(),
        table: name.clone(),
        rows_of,
        fitted_rows: train.rows.len(),
        fitted_hash: hash(&train),
        tested,
        uncalibrated_mape,
        energy_mape,
    };
    if table.kind == Kind::Request {
        let before = engine::evaluate(&shipped, &test);
        let after = engine::evaluate(&engine::fit(&shipped, &train), &test);
        let (Some(before), Some(after)) = (before, after) else {
            return Err(format!("{}: no row is of a model that is known", path.display()).into());
        };
        let tested = Errors {
            rows: after.rows,
            latency_mape: after.latency_mape,
            power_mape: Some(after.power_mape),
            power_rows: after.rows,
        };
        return Ok(vec![line(
            "requests",
            tested,
            before.latency_mape,
            Some(after.energy_mape),
        )]);
    }
    let samples: Vec<Sample> = train.rows.iter().filter_map(Sample::of).collect();
    let uncalibrated = Analytic::uncalibrated(gpu.clone());
    let model: Box<dyn KernelModel> = match samples.is_empty() {
        // Layers are several kernels: nothing is fitted.
        true => Box::new(uncalibrated.clone()),
        false => {
            let measured = Measured {
                gpu,
                samples: &samples,
            };
            let analytic = Analytic::new(gpu.clone(), constants(&shipped, &[measured]));
            let points = corrections(&analytic, &samples);
            Box::new(Interpolating::new(analytic, points))
        }
    };
    let mut lines = Vec::new();
    for range in ranges(table.kind) {
        let rows = test.rows.iter().filter(|it| (range.has)(it));
        let rows = Table {
            kind: table.kind,
            rows: rows.cloned().collect(),
            skipped: 0,
        };
        let compared = |row: &Row| predict(model.as_ref(), row).map(|it| compare(row, &it));
        let compared: Vec<Compared> = rows.rows.iter().filter_map(compared).collect();
        if let (Some(tested), Some(before)) = (errors(&compared), evaluate(&uncalibrated, &rows)) {
            lines.push(line(range.name, tested, before.latency_mape, None));
        }
    }
    Ok(lines)
}

fn text(lines: &[Line]) -> String {
    let mut text = "Errors in per cent on the half of each table that was not fitted\n\
                    gpu        rows of                         fitted  tested  shipped  fitted   power  table\n"
        .to_owned();
    for it in lines {
        let power = it
            .tested
            .power_mape
            .map_or_else(|| "-".into(), |it| format!("{it:.1}"));
        text += &format!(
            "{:10} {:30} {:7} {:7} {:8.1} {:7.1} {power:>7}  {}\n",
            it.gpu,
            it.rows_of,
            it.fitted_rows,
            it.tested.rows,
            it.uncalibrated_mape,
            it.tested.latency_mape,
            it.table
        );
        if let Some(energy) = it.energy_mape {
            text += &format!(
                "{:10} {:30} {:>40.1}  energy of a request\n",
                "", "", energy
            );
        }
    }
    text
}
