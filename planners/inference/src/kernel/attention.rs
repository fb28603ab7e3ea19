//! Attention. Prefill multiplies tiles of queries with the keys before them (as FlashAttention does);
//! decode reads the KV cache once, page by page, with sequences split so that all multiprocessors read.

use super::constants::{ContextConstants, GenerationConstants};
use super::gemm::sustained;
use super::{Heads, Kernel, Work};
use crate::gpu::Gpu;

/// Queries of a block.
const QUERIES: f64 = 128.0;
/// Heads wider than this fall back to slower kernels.
const WIDEST: f64 = 256.0;
/// Rows that the smallest matrix instruction takes.
const ROWS: f64 = 16.0;
pub(super) const NOTHING: Work = Work {
    latency: 0.0,
    clocked: 0.0,
    flops: 0.0,
    bytes: 0.0,
    peaks: [1.0, 1.0],
};

pub(super) fn context(gpu: &Gpu, constants: &ContextConstants, kernel: &Kernel, sms: u32) -> Work {
    let Kernel::ContextAttention {
        batch,
        length,
        prefix,
        heads,
        causal,
        precision,
    } = *kernel
    else {
        return NOTHING;
    };
    let Heads { query, kv, dim } = heads.at_least_one();
    let (batch, length, prefix) = (batch.max(1.0), length.max(1.0), prefix.max(0.0));
    let sms = f64::from(sms);
    // Short sequences take smaller tiles.
    let queries = QUERIES.min((length / ROWS).ceil() * ROWS);
    let padded = (length / queries).ceil() * queries;
    // Keys that a query sees, those of its own tile counted whole.
    let own = match causal {
        true => 0.5 * (padded + queries),
        false => padded,
    };
    let seen = prefix + own;
    let products = 4.0 * batch * query * dim;
    let wide = if dim > WIDEST { constants.wide } else { 1.0 };
    let efficiency = constants.compute * wide * dim / (dim + constants.dim);
    let peak = precision.peak(gpu);
    let compute = peak * sustained(gpu.architecture) * efficiency * 1e-3;
    let blocks = batch * query * (padded / queries);
    let waves = blocks / sms;
    let whole = waves.max(1.0) + constants.tail.min(1.0) * (waves.ceil() - waves.max(1.0)).max(0.0);
    // A board that is not full is as slow as one that is: unused multiprocessors do not help.
    let computing =
        products * padded * seen / compute * (f64::from(gpu.sms) / sms) * (whole / waves)
            + whole * constants.prologue * 1e-3;
    let tokens = batch * (length * (2.0 * query + 2.0 * kv) * precision.activation_bytes())
        + batch * (length + prefix) * 2.0 * kv * precision.weight_bytes();
    let bytes = tokens * dim;
    let moving = bytes / (gpu.bandwidth * constants.bandwidth * wide) * 1e3;
    let exposed = constants.exposed.min(1.0) * computing.min(moving);
    let useful = match causal {
        true => prefix + 0.5 * (length + 1.0),
        false => prefix + length,
    };
    Work {
        latency: constants.launch * 1e-3 + computing.max(moving) + exposed,
        clocked: if computing > moving {
            computing
        } else {
            exposed
        },
        flops: products * length * useful,
        bytes,
        peaks: [peak, gpu.bandwidth],
    }
}

pub(super) fn generation(
    gpu: &Gpu,
    constants: &GenerationConstants,
    kernel: &Kernel,
    sms: u32,
) -> Work {
    let Kernel::GenerationAttention {
        batch,
        length,
        heads,
        precision,
    } = *kernel
    else {
        return NOTHING;
    };
    let Heads { query, kv, dim } = heads.at_least_one();
    let (batch, length, sms) = (batch.max(1.0), length.max(1.0), f64::from(sms));
    let group = (query / kv).max(1.0);
    let pairs = batch * kv;
    let page = constants.page.max(1.0);
    let pages = (length / page).ceil();
    let token = 2.0 * dim * precision.weight_bytes();
    let bytes = pairs * pages * page * token + 4.0 * batch * query * dim;
    // A sequence is split by pages so that each multiprocessor has something to read.
    let splits = (sms / pairs).ceil().clamp(1.0, pages);
    let splits = match group > 1.0 {
        true => splits,
        false => splits.powf(constants.mha_split.min(1.0)),
    };
    let wide = if dim > WIDEST { constants.wide } else { 1.0 };
    let inflight = pages * page * token / splits * (pairs * splits / sms).min(1.0) / 1024.0;
    let saturated = inflight / (inflight + constants.saturation);
    let reached = match group > 1.0 {
        true => constants.gqa,
        false => constants.mha,
    };
    let moving = bytes / (gpu.bandwidth * reached * wide * saturated) * 1e3;
    let rows = (group / ROWS).ceil() * ROWS;
    let peak = precision.peak(gpu);
    let operations = 4.0 * pairs * rows * pages * page * dim;
    let computing =
        operations / (peak * constants.compute * wide) * 1e3 * (f64::from(gpu.sms) / sms);
    let scheduling = pairs * splits / sms * constants.block * 1e-3;
    let merging = match splits > 1.0 {
        true => constants.merge * 1e-3,
        false => 0.0,
    };
    Work {
        latency: constants.launch * 1e-3 + moving.max(computing) + scheduling + merging,
        clocked: if computing > moving { computing } else { 0.0 } + scheduling,
        flops: 4.0 * batch * query * length * dim,
        bytes,
        peaks: [peak, gpu.bandwidth],
    }
}

impl Heads {
    fn at_least_one(self) -> Self {
        let query = self.query.max(1.0);
        Self {
            query,
            // Zero stands for as many as there are queries.
            kv: if self.kv < 1.0 { query } else { self.kv },
            dim: self.dim.max(1.0),
        }
    }
}
