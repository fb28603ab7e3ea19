//! Matrix products: the least over tile shapes and splits of the sum, in waves of blocks, against a
//! memory bandwidth that grows with the number of blocks. All tiles are tried whatever the shape is, so that
//! more rows never take less time.

use super::constants::GemmConstants;
use super::{Precision, Work};
use crate::gpu::{Architecture, Gpu};

/// `groups` products A\[m, k\] x B\[k, n\].
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub groups: f64,
    pub m: f64,
    pub n: f64,
    pub k: f64,
}

/// Rows and columns of the tiles that libraries have, largest first.
const TILES: [[f64; 2]; 10] = [
    [256.0, 128.0],
    [128.0, 256.0],
    [128.0, 128.0],
    [128.0, 64.0],
    [64.0, 256.0],
    [64.0, 128.0],
    [64.0, 64.0],
    [32.0, 128.0],
    [16.0, 128.0],
    [16.0, 64.0],
];
/// Parts into which a sum is split.
const SPLITS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];
/// No part of a sum is shorter.
const SHORTEST_SUM: f64 = 256.0;

/// Share of the peak at which a generation's best kernels run for long: power and issue rates limit it.
/// From published measurements of square products of 8192: 270 of 312 TFLOP/s (A100), 690 of 989
/// (H200); the others by analogy, AMD's as its own documentation reports.
pub(super) fn sustained(architecture: Architecture) -> f64 {
    match architecture {
        Architecture::Ampere => 0.86,
        Architecture::Ada => 0.75,
        Architecture::Hopper | Architecture::Blackwell => 0.70,
        Architecture::Cdna => 0.52,
    }
}

pub(super) fn work(
    gpu: &Gpu,
    constants: &GemmConstants,
    shape: Shape,
    precision: Precision,
    sms: u32,
) -> Work {
    let positive = |size: f64| size.clamp(1.0, 1e12);
    let Shape { groups, m, n, k } = shape;
    let shape = Shape {
        groups: groups.clamp(1e-6, 1e9),
        m: positive(m),
        n: positive(n),
        k: positive(k),
    };
    let sms_all = f64::from(gpu.sms);
    let sms = f64::from(sms);
    let peak = precision.peak(gpu);
    let limits = Limits {
        sms,
        // Of one multiprocessor, FLOP/ms.
        compute: peak * sustained(gpu.architecture) * constants.compute / sms_all * 1e-3,
        // Of the board, bytes/ms.
        memory: gpu.bandwidth * constants.bandwidth * 1e-3,
        // Of one multiprocessor, bytes/ms.
        stream: gpu.bandwidth * constants.stream / sms_all * 1e-3,
        bytes: shape.bytes(precision),
        precision,
    };
    let mut best = (f64::INFINITY, 0.0);
    for tile in TILES {
        let tiles = shape.groups * (shape.m / tile[0]).ceil() * (shape.n / tile[1]).ceil();
        let efficiency = limits.efficiency(constants, tile);
        for split in SPLITS {
            if split > 1.0 && (shape.k / split < SHORTEST_SUM || tiles * split > 2.0 * sms) {
                break;
            }
            let timed = limits.time(constants, shape, tile, tiles, split, efficiency);
            if timed.0 < best.0 {
                best = timed;
            }
        }
    }
    Work {
        latency: best.0,
        clocked: best.1,
        flops: 2.0 * shape.groups * shape.m * shape.n * shape.k,
        bytes: limits.bytes,
        peaks: [peak, gpu.bandwidth],
    }
}

impl Shape {
    /// The bytes that move at least once: both operands and the result, which has 16 bits.
    fn bytes(self, precision: Precision) -> f64 {
        let Self { groups, m, n, k } = self;
        let weights = n * k * precision.weight_bytes();
        groups * (weights + m * k * precision.activation_bytes() + 2.0 * m * n)
    }
}

struct Limits {
    sms: f64,
    compute: f64,
    memory: f64,
    stream: f64,
    bytes: f64,
    precision: Precision,
}

impl Limits {
    /// Share of the peak that a tile of this intensity reaches, times the peak.
    fn efficiency(&self, constants: &GemmConstants, [rows, columns]: [f64; 2]) -> f64 {
        let intensity = rows * columns / (rows + columns);
        self.compute * intensity / (intensity + constants.intensity)
    }

    /// The latency with these tiles, ms, and what of it the clock sets.
    fn time(
        &self,
        constants: &GemmConstants,
        shape: Shape,
        tile: [f64; 2],
        tiles: f64,
        split: f64,
        efficiency: f64,
    ) -> (f64, f64) {
        let blocks = tiles * split;
        let waves = blocks / self.sms;
        let tail = constants.tail.min(1.0);
        let waves = waves.max(1.0) + tail * (waves.ceil() - waves.max(1.0)).max(0.0);
        let [rows, columns] = tile;
        // The innermost loop takes 32 at a time.
        let sum = (shape.k / split / 32.0).ceil() * 32.0;
        let block = 2.0 * rows * columns * sum / efficiency;
        let computing = waves * (block + constants.prologue * 1e-3);
        // Partial sums are written and read in 32 bits.
        let partial = match split > 1.0 {
            true => 8.0 * split * shape.groups * shape.m * shape.n,
            false => 0.0,
        };
        // Each block reads its own panels, through the cache where others read them too.
        let panels = rows.min(shape.m) * self.precision.activation_bytes()
            + columns.min(shape.n) * self.precision.weight_bytes();
        let streaming = waves * panels * sum / self.stream;
        let moving = (self.bytes + partial) / self.memory + streaming;
        let (longer, shorter) = match computing > moving {
            true => (computing, moving),
            false => (moving, computing),
        };
        let splitting = (split - 1.0).min(4.0) * constants.split * 1e-3;
        let latency = constants.launch * 1e-3 + longer + constants.exposed * shorter + splitting;
        let clocked = match computing > moving {
            true => computing,
            false => constants.exposed * computing,
        };
        (latency, clocked)
    }
}
