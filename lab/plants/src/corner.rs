//! Plants with a name: the middle of every range but for what the name says, and the node of the
//! Lit Silicon paper.

use crate::Dimension as D;
use crate::{Draw, Kind, WorkloadKind};

/// A named plant.
#[derive(Debug, Clone)]
pub struct Corner {
    /// Its name.
    pub name: &'static str,
    /// What is special.
    pub meaning: &'static str,
    /// Its draw.
    pub draw: Draw,
}

/// A corner: name, what is special, kind, workload, and the dimensions that are not in the middle.
type Row = (
    &'static str,
    &'static str,
    Kind,
    WorkloadKind,
    &'static [(D, f64)],
);

const LLAMA: WorkloadKind = WorkloadKind::LlamaFsdp8b;

const ROWS: [Row; 15] = [
    (
        "lit-silicon",
        "the node of the paper, as far as its tables tell (see `litlab plants validate`)",
        Kind::Mi300xx8,
        LLAMA,
        crate::paper::FITTED,
    ),
    (
        "middle",
        "the middle of every range",
        Kind::Mi300xx8,
        LLAMA,
        &[],
    ),
    (
        "at-tdp",
        "caps at TDP, where gpu-realloc and cpu-slosh have no room upwards",
        Kind::H100x8,
        LLAMA,
        &[(D::Start, 0.0)],
    ),
    (
        "caps-do-not-bind",
        "a job that never draws its cap",
        Kind::A100x8,
        WorkloadKind::GptData,
        &[
            (D::Start, 0.0),
            (D::GemmActivity, 0.55),
            (D::BurstWeight, 0.0),
        ],
    ),
    (
        "half-bound",
        "current holds some GPUs and their caps the others",
        Kind::H100x8,
        LLAMA,
        &[
            (D::CurrentLimit, 0.94),
            (D::CurrentSpread, 0.03),
            (D::Start, 0.5),
        ],
    ),
    (
        "steep",
        "caps near two fifths of the TDP, where time rises faster than power falls",
        Kind::A100x8,
        LLAMA,
        &[
            (D::Start, 1.0),
            (D::Idle, 1.0),
            (D::Knee, 0.74),
            (D::HbmDraw, 0.22),
            (D::GemmActivity, 1.15),
        ],
    ),
    (
        "flat",
        "work that memory bounds: clocks hardly matter",
        Kind::H100x8,
        WorkloadKind::ConvolutionData,
        &[
            (D::GemmBound, 0.85),
            (D::VectorBound, 0.05),
            (D::Optimizer, 0.15),
        ],
    ),
    (
        "slow-limiter",
        "a limiter that takes five seconds, a mean of one second and a wide dead band",
        Kind::A100x8,
        LLAMA,
        &[
            (D::Lag, 5.0),
            (D::Window, 1.0),
            (D::DeadBand, 0.01),
            (D::Start, 0.5),
        ],
    ),
    (
        "bursts-bind",
        "a window of 10 ms that holds the hungriest kernels to the cap and not the mean",
        Kind::V100x4,
        WorkloadKind::ConvolutionData,
        &[(D::Window, 0.01), (D::BurstWeight, 0.6), (D::Start, 0.7)],
    ),
    (
        "one-outlier",
        "one GPU far behind the others",
        Kind::Mi300xx8,
        LLAMA,
        &[(D::Outlier, 1.0), (D::Silicon, 0.012), (D::Start, 0.5)],
    ),
    (
        "cool-straggler",
        "the slow GPUs are not the hot ones",
        Kind::H100x8,
        LLAMA,
        &[(D::HotSlow, -0.1), (D::Preheat, 9.0), (D::Start, 0.5)],
    ),
    (
        "hot-aisle",
        "warm air, much preheating, fans that follow the hottest: GPUs near slowdown",
        Kind::A100x8,
        LLAMA,
        &[
            (D::Inlet, 32.0),
            (D::Rise, 45.0),
            (D::Preheat, 9.0),
            (D::FanResponse, 0.5),
            (D::Start, 0.0),
        ],
    ),
    (
        "noisy",
        "all noise at its highest",
        Kind::Mi300xx8,
        LLAMA,
        &[
            (D::KernelNoise, 0.03),
            (D::JobNoise, 0.028),
            (D::Memory, 0.6),
            (D::SharedNoise, 0.01),
            (D::Tail, 1.0),
            (D::Pause, 0.01),
            (D::TwoModes, 0.015),
            (D::Drift, 4.0),
            (D::Start, 0.5),
        ],
    ),
    (
        "heavy-fabric",
        "transfers that take power from the cap, slow with the clock and slow all kernels",
        Kind::Mi300xx8,
        WorkloadKind::LlamaFsdp70b,
        &[
            (D::TransferRatio, 0.5),
            (D::FabricDraw, 0.08),
            (D::TransferClock, 0.4),
            (D::Contention, 0.45),
            (D::ContentionClock, 0.6),
            (D::ContentionSpread, 0.12),
            (D::Start, 0.5),
        ],
    ),
    (
        "nothing-to-gain",
        "GPUs that are all but equal",
        Kind::H100x8,
        LLAMA,
        &[
            (D::Silicon, 0.001),
            (D::LeakageSpread, 0.005),
            (D::CurveSpread, 0.0002),
            (D::CoolingSpread, 0.004),
            (D::LimiterBias, 0.0001),
            (D::ShortfallSpread, 0.0001),
            (D::ContentionSpread, 0.0),
            (D::Preheat, 0.0),
            (D::Outlier, 0.0),
            (D::CurrentLimit, 1.5),
            (D::Start, 0.5),
        ],
    ),
];

/// All corners.
#[must_use]
pub fn all() -> Vec<Corner> {
    let corner = |&(name, meaning, kind, workload, values): &Row| Corner {
        name,
        meaning,
        draw: values
            .iter()
            .fold(Draw::middle(kind, workload), |draw, &(dimension, value)| {
                draw.with(dimension, value)
            })
            .sibling(if name == "lit-silicon" {
                crate::paper::SIBLING
            } else {
                0
            }),
    };
    ROWS.iter().map(corner).collect()
}

/// The corner of this name.
#[must_use]
pub fn named(name: &str) -> Option<Corner> {
    all().into_iter().find(|it| it.name == name)
}
