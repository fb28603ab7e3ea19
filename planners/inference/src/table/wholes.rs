//! Rows that measure more than a kernel: a layer's operations but for attention (Vidur), and requests to an
//! engine in steady state (ML.ENERGY).

use litd_units::{Joules, Millis, Watts};

use super::columns::Record;
use super::{Row, Subject, TableError};
use crate::gpu::Gpu;
use crate::kernel::{Kernel, Precision};

/// Requests that an engine serves side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The model, as its publisher names it.
    pub model: String,
    /// The GPU, which may be a variant of the one that was asked for.
    pub gpu: Gpu,
    /// GPUs that share each layer.
    pub tp: f64,
    /// Pipeline stages.
    pub pp: f64,
    /// Requests in a step, on average.
    pub batch: f64,
    /// Output tokens of a request, on average.
    pub output: f64,
    /// Energy of a request, all GPUs together.
    pub energy: Joules,
}

/// The operations of a layer. Times that a table lacks are not asked for.
pub(super) fn layer(record: &Record) -> Result<Option<Row>, TableError> {
    let size = |name: &str| record.size(&[name], 1.0);
    let (tokens, tp) = (size("num_tokens")?, size("num_tensor_parallel_workers")?);
    let (hidden, inter) = (size("n_embd")?, size("n_expanded_embd")?);
    let (heads, kv_heads) = (size("n_head")?, size("n_kv_head")?);
    let gated = match record.text(&["use_gated_mlp"]) {
        None => true,
        Some(text) => text.eq_ignore_ascii_case("true") || text == "1",
    };
    let dim = hidden / heads;
    // A KV head is on one GPU at least.
    let kv = (kv_heads / tp).max(1.0);
    let (query, inter) = ((heads / tp).max(1.0), inter / tp);
    let gemm = |n: f64, k: f64| Kernel::Gemm {
        groups: 1.0,
        m: tokens,
        n,
        k,
        precision: Precision::BF16,
    };
    let moved = |read: f64, written: f64| Kernel::Memory {
        read: 2.0 * tokens * read,
        written: 2.0 * tokens * written,
    };
    let up = if gated { 2.0 * inter } else { inter };
    let operations = [
        ("emb", moved(hidden, hidden)),
        ("input_layernorm", moved(hidden, hidden)),
        ("attn_pre_proj", gemm((query + 2.0 * kv) * dim, hidden)),
        ("attn_rope", moved((query + kv) * dim, (query + kv) * dim)),
        ("attn_post_proj", gemm(hidden, query * dim)),
        ("post_attention_layernorm", moved(hidden, hidden)),
        ("mlp_up_proj", gemm(up, hidden)),
        ("mlp_act", moved(up, inter)),
        ("mlp_down_proj", gemm(hidden, inter)),
        ("add", moved(2.0 * hidden, hidden)),
    ];
    let mut latency = 0.0;
    let mut kernels = Vec::new();
    for (name, kernel) in operations {
        let column = format!("time_stats.{name}.median");
        if let Some(time) = record.positive(&[&column])? {
            latency += time;
            kernels.push(kernel);
        }
    }
    Ok((latency > 0.0).then(|| Row {
        line: record.line,
        subject: Subject::Layer(kernels),
        latency: Millis(latency),
        power: None,
        limit: None,
        sms: None,
        group: format!("tokens={tokens}"),
    }))
}

/// Requests on this GPU; none where they ran on another or nothing was measured.
pub(super) fn request(record: &Record, gpu: &Gpu) -> Result<Option<Row>, TableError> {
    let on = record.needed(&["gpu"])?;
    // An A100 with 40 GB counts as an A100.
    let variant = |it: &Gpu| it.name == gpu.name || it.name.starts_with(&format!("{}-", gpu.name));
    let Some(on) = Gpu::named(on).ok().filter(variant) else {
        return Ok(None);
    };
    let model = record.needed(&["model"])?.to_owned();
    let (Some(energy), Some(time), Some(output)) = (
        record.positive(&["energy/req (j)"])?,
        record.positive(&["avg tpot (s)"])?,
        record.positive(&["avg output tokens"])?,
    ) else {
        return Ok(None);
    };
    let batch = record.size(&["avg bs (reqs)"], 0.0)?.max(1.0);
    let rate = record.positive(&["token tput (tok/s)"])?;
    // Requests per second times energy per request.
    let power = energy * rate.unwrap_or(batch / time) / output;
    Ok(Some(Row {
        line: record.line,
        subject: Subject::Request(Request {
            model: model.clone(),
            gpu: on,
            tp: record.size(&["tp"], 1.0)?,
            pp: record.size_or(&["pp"], 1.0)?,
            batch,
            output,
            energy: Joules(energy),
        }),
        latency: Millis(time * 1e3),
        power: Some(Watts(power)),
        limit: None,
        sms: None,
        group: model,
    }))
}
