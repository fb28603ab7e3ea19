//! Corrections from measured rows: what the analytic model was off by at near shapes, in logarithms, so
//! that the model carries waves and pages and the table carries a library's choices.

use serde::{Deserialize, Serialize};

use super::power::{self, Demand};
use super::{
    Analytic, Collective, Estimate, Family, Kernel, KernelModel, Library, Routing, Setting,
};
use crate::gpu::Gpu;

/// So many neighbours speak.
const NEIGHBOURS: usize = 8;
/// Distance, in logarithms of sizes, from which on a neighbour says as much as "no correction".
const REACH: f64 = 1.5;
/// A neighbour at no distance at all counts as if it were at this.
const NEAREST: f64 = 0.02;
/// The distance of kernels that differ in kind.
const OTHER_KIND: f64 = 100.0;

/// A measured shape and what the analytic model was off by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The family.
    pub family: Family,
    /// Where it lies: [`place`].
    pub at: Vec<f64>,
    /// ln(measured / predicted latency).
    pub latency: f64,
    /// ln(measured / predicted power), where power was measured for long enough.
    pub power: Option<f64>,
}

/// Where a kernel lies among others of its family: logarithms of its sizes, weighted.
#[must_use]
pub fn place(kernel: &Kernel) -> Vec<f64> {
    let ln = |size: f64| size.clamp(1.0, 1e15).ln();
    match *kernel {
        Kernel::Gemm {
            groups,
            m,
            n,
            k,
            precision,
        } => vec![2.0 * ln(m), ln(n), ln(k), ln(groups), bits(precision)],
        Kernel::ContextAttention {
            batch,
            length,
            prefix,
            heads,
            causal,
            precision,
        } => vec![
            ln(batch),
            2.0 * ln(length),
            ln(prefix + 1.0),
            ln(heads.query),
            0.5 * ln(heads.kv),
            ln(heads.dim),
            bits(precision) + f64::from(u8::from(causal)) * OTHER_KIND,
            grouped(heads),
        ],
        Kernel::GenerationAttention {
            batch,
            length,
            heads,
            precision,
        } => vec![
            ln(batch),
            1.5 * ln(length),
            0.5 * ln(heads.query),
            ln(heads.kv),
            ln(heads.dim),
            bits(precision),
            grouped(heads),
        ],
        Kernel::Moe {
            tokens,
            hidden,
            inter,
            top_k,
            experts,
            tp,
            ep,
            routing,
            precision,
        } => vec![
            1.5 * ln(tokens),
            ln(hidden),
            ln(inter),
            ln(top_k),
            ln(experts),
            ln(tp),
            ln(ep),
            bits(precision) + skew(routing),
        ],
        Kernel::Collective {
            collective,
            library,
            gpus,
            per_node,
            bytes,
        } => vec![
            ln(bytes),
            3.0 * ln(gpus),
            5.0 * ln(per_node),
            OTHER_KIND * which(collective),
            OTHER_KIND * of(library),
        ],
        Kernel::Memory { read, written } => vec![ln(read + written)],
    }
}

fn bits(precision: super::Precision) -> f64 {
    f64::from(precision.weights) * 3.0 + f64::from(precision.activations)
}

/// Kernels for one query head per KV head are others than those for several.
fn grouped(heads: super::Heads) -> f64 {
    match heads.kv >= 1.0 && heads.query > heads.kv {
        true => 3.0,
        false => 0.0,
    }
}

fn skew(routing: Routing) -> f64 {
    match routing {
        Routing::Balanced => 0.0,
        Routing::Uniform => 0.2,
        Routing::PowerLaw(exponent) => 0.5 + exponent,
    }
}

fn which(collective: Collective) -> f64 {
    match collective {
        Collective::AllReduce => 0.0,
        Collective::AllGather => 1.0,
        Collective::ReduceScatter => 2.0,
        Collective::AllToAll => 3.0,
    }
}

fn of(library: Library) -> f64 {
    match library {
        Library::Nccl => 0.0,
        Library::Custom => 1.0,
        Library::CustomEager => 2.0,
    }
}

/// The analytic model, corrected.
#[derive(Debug, Clone)]
pub struct Interpolating {
    analytic: Analytic,
    points: [Vec<Point>; 6],
}

impl Interpolating {
    /// The model, with what measured rows say.
    #[must_use]
    pub fn new(analytic: Analytic, points: Vec<Point>) -> Self {
        let mut of_family: [Vec<Point>; 6] = Default::default();
        for point in points {
            of_family[point.family as usize].push(point);
        }
        Self {
            analytic,
            points: of_family,
        }
    }

    /// The correction by the neighbours, for latency and power, in logarithms.
    fn correction(&self, kernel: &Kernel) -> (f64, f64) {
        let points = &self.points[kernel.family() as usize];
        if points.is_empty() {
            return (0.0, 0.0);
        }
        let here = place(kernel);
        let mut latency = Nearest::default();
        let mut power = Nearest::default();
        for point in points {
            let distance = squared(&here, &point.at);
            latency.take(distance, point.latency);
            if let Some(correction) = point.power {
                power.take(distance, correction);
            }
        }
        (latency.mean(), power.mean())
    }
}

/// The square of the distance; infinite between shapes that have not the same sizes.
fn squared(a: &[f64], b: &[f64]) -> f64 {
    match a.len() == b.len() {
        true => a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum(),
        false => f64::INFINITY,
    }
}

/// The nearest so far, nearest first.
struct Nearest {
    found: [(f64, f64); NEIGHBOURS],
}

impl Default for Nearest {
    fn default() -> Self {
        Self {
            found: [(f64::INFINITY, 0.0); NEIGHBOURS],
        }
    }
}

impl Nearest {
    fn take(&mut self, distance: f64, correction: f64) {
        if !(distance < self.found[NEIGHBOURS - 1].0) {
            return;
        }
        let mut place = NEIGHBOURS - 1;
        while place > 0 && self.found[place - 1].0 > distance {
            self.found[place] = self.found[place - 1];
            place -= 1;
        }
        self.found[place] = (distance, correction);
    }

    /// Nearer ones count more, and all together less the farther they are.
    fn mean(&self) -> f64 {
        let weight = |squared: f64| 1.0 / (squared + NEAREST * NEAREST);
        let near = self.found.iter().filter(|it| it.0.is_finite());
        let (mut sum, mut total) = (0.0, weight(REACH * REACH));
        for &(distance, correction) in near {
            sum += weight(distance) * correction;
            total += weight(distance);
        }
        sum / total
    }
}

impl KernelModel for Interpolating {
    fn gpu(&self) -> &Gpu {
        self.analytic.gpu()
    }

    fn predict(&self, kernel: &Kernel, setting: &Setting) -> Estimate {
        let (latency, power) = self.correction(kernel);
        let mut work = self.analytic.work(kernel, setting);
        // Before the latency is corrected: what was fitted saw the analytic one.
        let constants = self.analytic.constants().power_of(kernel.family());
        let demand = Demand::of(&work, work.latency).power(self.gpu(), constants);
        work.latency *= latency.exp();
        work.clocked *= latency.exp();
        power::at(self.gpu(), demand * power.exp(), &work, setting)
    }
}
