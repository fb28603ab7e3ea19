//! How far predictions are from measured rows.

use litd_units::{Millis, Watts};
use serde::Serialize;

use crate::fit::STEADY;
use crate::kernel::{Estimate, KernelModel};
use crate::table::{Row, Subject, Table};

/// Mean absolute percentage errors over a table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Errors {
    /// Rows predicted.
    pub rows: usize,
    /// Of time, per cent.
    pub latency_mape: f64,
    /// Of power, per cent, over rows whose power is steady (60 us and longer); none where no power was measured.
    pub power_mape: Option<f64>,
    /// How many rows those are.
    pub power_rows: usize,
}

/// A measured row and its prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// Measured and predicted time.
    pub latency: [Millis; 2],
    /// Measured and predicted power, where it was measured and is steady.
    pub power: Option<[Watts; 2]>,
}

/// Predicts a row of kernels. None for requests: they need a model's description.
#[must_use]
pub fn predict(model: &dyn KernelModel, row: &Row) -> Option<Estimate> {
    let setting = row.setting();
    match &row.subject {
        Subject::Kernel(kernel) => Some(model.predict(kernel, &setting)),
        Subject::Layer(kernels) => {
            let parts = kernels.iter().map(|it| model.predict(it, &setting));
            let (time, energy) = parts.fold((0.0, 0.0), |(time, energy), it| {
                (time + it.latency.0, energy + it.energy().0)
            });
            Some(Estimate {
                latency: Millis(time),
                power: Watts(energy / (time * 1e-3)),
            })
        }
        Subject::Request(_) => None,
    }
}

/// A row beside its prediction.
#[must_use]
pub fn compare(row: &Row, predicted: &Estimate) -> Compared {
    let steady = row.power.filter(|_| row.latency >= STEADY);
    Compared {
        latency: [row.latency, predicted.latency],
        power: steady.map(|power| [power, predicted.power]),
    }
}

/// The errors over rows; none if there are no rows.
#[must_use]
pub fn errors(rows: &[Compared]) -> Option<Errors> {
    let mean = |errors: &[f64]| match errors.is_empty() {
        true => None,
        false => Some(100.0 * errors.iter().sum::<f64>() / errors.len() as f64),
    };
    let off = |measured: f64, predicted: f64| ((predicted - measured) / measured).abs();
    let latencies: Vec<f64> = rows
        .iter()
        .map(|it| off(it.latency[0].0, it.latency[1].0))
        .collect();
    let powers: Vec<f64> = rows
        .iter()
        .filter_map(|it| it.power)
        .map(|[measured, predicted]| off(measured.0, predicted.0))
        .collect();
    Some(Errors {
        rows: rows.len(),
        latency_mape: mean(&latencies)?,
        power_mape: mean(&powers),
        power_rows: powers.len(),
    })
}

/// The errors over a table of kernels or layers, without fitting on it.
#[must_use]
pub fn evaluate(model: &dyn KernelModel, table: &Table) -> Option<Errors> {
    let compared = |row: &Row| predict(model, row).map(|it| compare(row, &it));
    let rows: Vec<Compared> = table.rows.iter().filter_map(compared).collect();
    errors(&rows)
}
