//! One plant against what Lit Silicon (Kurzynski, Aga and Wu) measured on a node of eight MI300X.
//!
//! The check is weak, and says so: the plant's own optimum stands for what their controller
//! reached, there are about as many free parameters as targets, and a fit says nothing of other
//! nodes.

use serde::Serialize;

use crate::dimension::Dimension as D;
use crate::plant::Plant;
use crate::{Draw, Policy, corner};
use litd_units::Watts;

/// The dimensions that are not in the middle of their range, all within it. The first three were
/// set by hand (caps between TDP and 80 %, as Table II has them; no other limiter; no outlier), the
/// others by the search in `examples/fit.rs`. Each counts as a free parameter.
pub const FITTED: &[(D, f64)] = &[
    (D::Start, 0.5),
    (D::CurrentLimit, 1.5),
    (D::Outlier, 0.0),
    (D::Silicon, 0.031),
    (D::CoolingSpread, 0.063),
    (D::HotSlow, 0.953),
    (D::GemmActivity, 1.142),
    (D::TransferRatio, 0.421),
    (D::Contention, 0.253),
    (D::WaitContention, 0.417),
    (D::LowestVoltage, 0.718),
    (D::Knee, 0.517),
    (D::Inlet, 27.944),
];

/// Which of a thousand nodes it is, which the search chose as well: one more free parameter.
pub const SIBLING: u64 = 687;

/// One target.
#[derive(Debug, Clone, Serialize)]
pub struct Target {
    /// What it is and where in the paper.
    pub name: &'static str,
    /// The paper's number, and how far off it may be: its own rounding or spread.
    pub paper: (f64, f64),
    /// The plant's.
    pub plant: f64,
}

impl Target {
    /// Whether it is met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        (self.plant - self.paper.0).abs() <= self.paper.1
    }
}

/// The targets, and how many parameters were free to meet them.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// The targets.
    pub targets: Vec<Target>,
    /// Free parameters.
    pub free: usize,
}

/// The paper's table beside the plant of that name.
#[must_use]
pub fn check() -> Check {
    let draw = corner::named("lit-silicon").map_or_else(|| Draw::new(0), |it| it.draw);
    let mut targets = policies(&draw);
    targets.extend(profile(&draw));
    Check {
        targets,
        free: FITTED.len() + 1,
    }
}

fn under(gpus: usize, cap: f64) -> Vec<Watts> {
    vec![Watts(cap); gpus]
}

fn target(name: &'static str, paper: (f64, f64), plant: f64) -> Target {
    Target { name, paper, plant }
}

/// What the policies bring: Table III and section VII-B.
#[must_use]
pub fn policies(draw: &Draw) -> Vec<Target> {
    let node = draw.plant(0);
    let gpus = node.gpu_count();
    let red = node.optimum(Policy::GpuRed, &under(gpus, 750.0));
    let realloc = node.optimum(Policy::GpuRealloc, &under(gpus, 700.0));
    let low = node.optimum(Policy::GpuRealloc, &under(gpus, 550.0));
    // Table II: a budget of 20 W for each GPU.
    let slosh = |cap: f64| {
        let start = node.steady(&under(gpus, cap));
        let richer = under(gpus, cap + 20.0);
        let best = node.optimum(Policy::GpuRealloc, &richer).best;
        let power = best.gpu_power() / start.gpu_power();
        (start.iteration / best.iteration, power)
    };
    let (faster, more) = slosh(700.0);
    vec![
        target(
            "gpu-red: power (Table III: 1/1.04)",
            (0.962, 0.01),
            red.power(),
        ),
        target(
            "gpu-red: throughput (Table III)",
            (1.0, 0.005),
            red.throughput(),
        ),
        target(
            "gpu-realloc, 700 W: throughput (Table III)",
            (1.03, 0.005),
            realloc.throughput(),
        ),
        target(
            "gpu-realloc, 700 W: power (Table III)",
            (1.0, 0.005),
            realloc.power(),
        ),
        target(
            "gpu-realloc, 550 W: throughput (VII-B)",
            (1.03, 0.005),
            low.throughput(),
        ),
        target(
            "cpu-slosh, 700 W: throughput (Table III)",
            (1.04, 0.005),
            faster,
        ),
        target(
            "cpu-slosh, 700 W: power (Table III: 1/0.97)",
            (1.03, 0.01),
            more,
        ),
        target(
            "cpu-slosh, 550 W: throughput (VII-B)",
            (1.06, 0.01),
            slosh(550.0).0,
        ),
    ]
}

/// How unequal the GPUs are: Figure 5 and section III-A.
#[must_use]
pub fn profile(draw: &Draw) -> Vec<Target> {
    let node = draw.plant(0);
    let at = node.steady(&under(node.gpu_count(), 700.0));
    let extremes = |of: &mut dyn Iterator<Item = f64>| {
        of.fold((f64::INFINITY, 0.0_f64), |it, value| {
            (it.0.min(value), it.1.max(value))
        })
    };
    let temperature = extremes(&mut at.temperature.iter().map(|it| it.0));
    let clock = extremes(&mut at.clock.iter().map(|it| it.0));
    let overlap = extremes(&mut at.overlap.iter().copied());
    vec![
        target(
            "hottest over coolest, C (Figure 5)",
            (1.155, 0.05),
            temperature.1 / temperature.0,
        ),
        target(
            "highest over lowest clock (Figure 5)",
            (1.062, 0.02),
            clock.1 / clock.0,
        ),
        target("overlap of the straggler (III-A)", (0.296, 0.03), overlap.0),
        target(
            "largest overlap of a leader (III-A)",
            (0.527, 0.05),
            overlap.1,
        ),
    ]
}

/// What this check can't show.
pub const LIMITS: &str = "The plant's optimum stands for what the authors' controller reached. Tolerances are the \
    rounding of the paper's tables and, for what was read off figures, assumed. The node was chosen \
    among 2,500 candidates, with more free parameters than targets: agreement is no evidence that \
    the family is right, and disagreement is evidence that it is not.";
