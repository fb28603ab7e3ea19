//! Requests that an engine serves side by side: kernels of a decode step, prefills of the requests that come
//! in between, and the host's work, during which GPUs wait.

use litd_units::{Joules, Millis, Watts};
use serde::Serialize;

use crate::fit;
use crate::gpu::Gpu;
use crate::interpret::{Degrees, Program};
use crate::kernel::{Analytic, Constants, EngineConstants, Library, Setting, energy};
use crate::model::Model;
use crate::predict::{Configuration, Deployment};
use crate::spec::{Spec, listings};
use crate::table::{Request, Row, Subject, Table};

/// The predicted time of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Served {
    /// Time per output token.
    pub token: Millis,
    /// Energy, all GPUs together.
    pub energy: Joules,
    /// Mean power, all GPUs together.
    pub power: Watts,
}

/// The time of a step's and of a prefill's kernels, all GPUs together, without the engine's constants.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kernels {
    /// Of one decode step.
    step: (Millis, Joules),
    /// Of the prefill of a thousand tokens.
    thousand: (Millis, Joules),
    /// GPUs that share each layer, and stages of the pipeline.
    gpus: f64,
    stages: f64,
    layers: f64,
    batch: f64,
    output: f64,
    idle: Watts,
    limit: Watts,
}

/// Mean absolute percentage errors over requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RequestErrors {
    /// Requests predicted.
    pub rows: usize,
    /// Of the time per output token.
    pub latency_mape: f64,
    /// Of the power.
    pub power_mape: f64,
    /// Of the energy per request.
    pub energy_mape: f64,
    /// Rows whose model is not shipped, or does not divide among its GPUs.
    pub unknown: usize,
}

/// Cached input of a mean request and half its output: what attention sees, where nobody tells.
const INPUT: f64 = 250.0;

fn kernels(request: &Request, constants: &Constants) -> Option<Kernels> {
    let model = Model::named(&request.model).ok()?;
    let listing = match model.experts {
        Some(_) => listings::FUSED_MOE,
        None => listings::FUSED_DENSE,
    };
    let program = Program::new(&Spec::parse(listing).ok()?).ok()?;
    let analytic = Analytic::new(request.gpu.clone(), *constants);
    let deployment = Deployment {
        library: Library::Custom,
        ..Deployment::of_the_paper(&model, &program, &analytic)
    };
    let tp = request.tp.clamp(1.0, 1024.0) as u32;
    // Stages of a pipeline work on parts of the batch.
    let part = (request.batch / request.pp.max(1.0))
        .round()
        .clamp(1.0, 1e6) as u32;
    let configuration = |batch: u32, input: f64| Configuration {
        batch,
        input: input.round().clamp(1.0, 1e6) as u32,
        output: 1,
        degrees: Degrees {
            tp,
            ep: if model.experts.is_some() { tp } else { 1 },
            cp: 1,
        },
        speculated: 0,
        accepted: 0.0,
        setting: Setting::default(),
    };
    let decode = configuration(part, INPUT + 0.5 * request.output);
    let step = deployment.decode(&decode).ok()?;
    let prefill = deployment.prefill(&configuration(1, 1000.0)).ok()?;
    Some(Kernels {
        step: (step.latency(), step.energy()),
        thousand: (prefill.latency(), prefill.energy()),
        gpus: f64::from(tp),
        stages: request.pp.max(1.0),
        layers: model.layers,
        batch: f64::from(part),
        output: request.output.max(1.0),
        idle: request.gpu.idle,
        limit: request.gpu.power_limit,
    })
}

/// The engine around the kernels.
fn served(kernels: &Kernels, engine: &EngineConstants) -> Served {
    let Kernels {
        step,
        thousand,
        gpus,
        stages,
        layers,
        batch,
        output,
        idle,
        limit,
    } = *kernels;
    // Requests that come in during a step, as many as leave.
    let arriving = batch / output * engine.input / 1000.0;
    let busy = (step.0 + thousand.0 * arriving) * engine.slower;
    let each_layer = engine.layer + engine.sharing * gpus.log2();
    // The host serves the parts of the batch that are in the pipeline's stages in turn.
    let launching = Millis(each_layer * layers * 1e-3) * stages;
    let resting = Millis(engine.step + engine.request * batch * 1e-3) * stages;
    let host = launching + resting;
    let token = busy + host;
    let drawn = step.1 + thousand.1 * arriving;
    // Kernels that are stretched draw less at each moment.
    let above = (drawn.0 - energy(idle, busy / engine.slower).0 * gpus).max(0.0);
    let working = energy(idle, busy).0 * gpus + above * engine.power;
    let above_idle = |share: f64, time| energy(idle + (limit - idle) * share, time).0 * gpus;
    let waiting = above_idle(engine.waiting, launching) + above_idle(engine.resting, resting);
    let each = working + waiting;
    Served {
        token,
        energy: Joules(each / batch * output),
        power: Watts(each * stages / (token.0 * 1e-3)),
    }
}

fn known(table: &Table, constants: &Constants) -> Vec<(Kernels, Served)> {
    let row = |row: &Row| match &row.subject {
        Subject::Request(request) => Some((
            kernels(request, constants)?,
            Served {
                token: row.latency,
                energy: request.energy,
                power: row.power?,
            },
        )),
        Subject::Kernel(_) | Subject::Layer(_) => None,
    };
    table.rows.iter().filter_map(row).collect()
}

/// The engine's constants that fit a table of requests best.
#[must_use]
pub fn fit(constants: &Constants, table: &Table) -> Constants {
    let rows = known(table, constants);
    if rows.is_empty() {
        return *constants;
    }
    let cost = |values: &[f64]| {
        let engine = constants.engine.with(values);
        let off = |(kernels, measured): &(Kernels, Served)| {
            let predicted = served(kernels, &engine);
            (predicted.energy / measured.energy).ln().abs()
                + 0.2 * (predicted.token / measured.token).ln().abs()
                + 0.2 * (predicted.power / measured.power).ln().abs()
        };
        rows.iter().map(off).sum::<f64>() / rows.len() as f64
    };
    let mut fitted = *constants;
    let best = fit::least(&constants.engine.to_vec(), cost);
    fitted.engine = constants.engine.with(&best);
    fitted
}

/// The errors over a table of requests; none if no model of it is known.
#[must_use]
pub fn evaluate(constants: &Constants, table: &Table) -> Option<RequestErrors> {
    let rows = known(table, constants);
    let mean = |error: fn(&Served, &Served) -> f64| {
        let all = rows.iter().map(|(kernels, measured)| {
            let predicted = served(kernels, &constants.engine);
            error(measured, &predicted).abs()
        });
        100.0 * all.sum::<f64>() / rows.len() as f64
    };
    (!rows.is_empty()).then(|| RequestErrors {
        rows: rows.len(),
        latency_mape: mean(|a, b| b.token / a.token - 1.0),
        power_mape: mean(|a, b| b.power / a.power - 1.0),
        energy_mape: mean(|a, b| b.energy / a.energy - 1.0),
        unknown: table.rows.len() - rows.len(),
    })
}

/// Each row's measured and predicted request.
#[must_use]
pub fn compare(constants: &Constants, table: &Table) -> Vec<(Served, Served)> {
    let rows = known(table, constants);
    let both =
        |(kernels, measured): &(Kernels, Served)| (*measured, served(kernels, &constants.engine));
    rows.iter().map(both).collect()
}

/// The GPU variants of a table's requests, as a report names them.
#[must_use]
pub fn gpus(table: &Table) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for row in &table.rows {
        if let Subject::Request(request) = &row.subject
            && !gpus.contains(&request.gpu)
        {
            gpus.push(request.gpu.clone());
        }
    }
    gpus
}
