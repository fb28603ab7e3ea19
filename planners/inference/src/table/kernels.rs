//! Rows of one kernel each.

use litd_units::{Millis, Watts};

use super::columns::{BATCH, BYTES, ELEMENTS, HEADS, KV_HEADS, LATENCY, LIMIT, POWER, Record};
use super::{Kind, Row, Subject, TableError};
use crate::kernel::{Collective, Heads, Kernel, Library, Precision, Routing};

/// The row of a table of kernels; none where no time was measured.
pub(super) fn row(kind: Kind, record: &Record) -> Result<Option<Row>, TableError> {
    let (kernel, group) = match kind {
        Kind::ContextAttention | Kind::GenerationAttention => attention(kind, record)?,
        Kind::Moe => moe(record)?,
        Kind::AllReduce => collective(record)?,
        Kind::Gemm | Kind::Layer | Kind::Request => gemm(record)?,
    };
    let time = match record.text(&["time_stats.all_reduce.median"]) {
        Some(_) => record.positive(&["time_stats.all_reduce.median"])?,
        None => record.positive(LATENCY)?,
    };
    let Some(latency) = time else { return Ok(None) };
    Ok(Some(Row {
        line: record.line,
        subject: Subject::Kernel(kernel),
        latency: Millis(latency),
        power: record.positive(POWER)?.map(Watts),
        limit: record.positive(LIMIT)?.map(Watts),
        // Files of litd's own profiler have 0 where a collective took what it wanted.
        sms: record.positive(&["sms"])?.map(|it| it.min(1e6) as u32),
        group,
    }))
}

fn gemm(record: &Record) -> Result<(Kernel, String), TableError> {
    let (n, k) = (record.size(&["n"], 1.0)?, record.size(&["k"], 1.0)?);
    let kernel = Kernel::Gemm {
        groups: 1.0,
        m: record.size(&["m"], 1.0)?,
        n,
        k,
        precision: record.precision(&["gemm_dtype", "quant_dtype", "dtype"])?,
    };
    Ok((kernel, format!("n={n},k={k}")))
}

fn attention(kind: Kind, record: &Record) -> Result<(Kernel, String), TableError> {
    let heads = Heads {
        query: record.size(HEADS, 1.0)?,
        kv: record.size(KV_HEADS, 0.0)?,
        dim: record.size(&["head_dim"], 1.0)?,
    };
    let batch = record.size(BATCH, 1.0)?;
    let isl = record.size(&["isl"], 0.0)?;
    // Tables of whole prefills leave the cached tokens out.
    let step = match record.text(&["step"]) {
        Some(_) => record.size(&["step"], 0.0)?,
        None => 0.0,
    };
    let precision = Precision {
        weights: record.precision(&["kv_cache_dtype", "kv_dtype"])?.weights,
        activations: record.precision(&["attn_dtype", "dtype"])?.activations,
    };
    let kernel = match kind {
        Kind::ContextAttention => Kernel::ContextAttention {
            batch,
            length: isl,
            prefix: step,
            heads,
            causal: true,
            precision,
        },
        _ => Kernel::GenerationAttention {
            batch,
            length: isl + step,
            heads,
            precision,
        },
    };
    let Heads { query, kv, dim } = heads;
    Ok((kernel, format!("heads={query},kv={kv},dim={dim}")))
}

fn moe(record: &Record) -> Result<(Kernel, String), TableError> {
    let hidden = record.size(&["hidden_size"], 1.0)?;
    let inter = record.size(&["inter_size"], 1.0)?;
    let top_k = record.size(&["topk"], 1.0)?;
    let experts = record.size(&["num_experts"], 1.0)?;
    let distribution = record.text(&["distribution"]).unwrap_or_default();
    let routing = Routing::parse(distribution).ok_or_else(|| {
        let what = format!("{distribution:?} is none of balanced, uniform and power_law_EXPONENT");
        record.wrong(&["distribution"], &what)
    })?;
    let kernel = Kernel::Moe {
        tokens: record.size(&["num_tokens"], 1.0)?,
        hidden,
        inter,
        top_k,
        experts,
        tp: record.size_or(&["moe_tp_size"], 1.0)?,
        ep: record.size_or(&["moe_ep_size"], 1.0)?,
        routing,
        precision: record.precision(&["moe_dtype", "dtype"])?,
    };
    let group = format!("hidden={hidden},inter={inter},experts={experts},topk={top_k}");
    Ok((kernel, group))
}

fn collective(record: &Record) -> Result<(Kernel, String), TableError> {
    let dtype = record.precision(&["allreduce_dtype", "nccl_dtype", "dtype"])?;
    let vidur = record.text(&["size"]).is_some();
    let bytes = match (record.text(BYTES), vidur) {
        (Some(_), _) => record.size(BYTES, 1.0)?,
        (None, true) => record.size(&["size"], 1.0)?,
        // Engines' own tables count elements.
        (None, false) => record.size(ELEMENTS, 1.0)? * dtype.activation_bytes(),
    };
    let gpus = record.size(&["num_gpus", "num_workers"], 1.0)?;
    let name = record.text(&["op_name", "operation", "nccl_op"]);
    let collective = match name.unwrap_or("all_reduce") {
        "all_reduce" | "allreduce" => Collective::AllReduce,
        "all_gather" | "allgather" => Collective::AllGather,
        "reduce_scatter" | "reducescatter" => Collective::ReduceScatter,
        "alltoall" | "all_to_all" | "all2all" => Collective::AllToAll,
        other => {
            let what =
                format!("{other:?} is none of all_reduce, all_gather, reduce_scatter and alltoall");
            return Err(record.wrong(&["op_name"], &what));
        }
    };
    // An engine's own all-reduce has a data type of its own, or counts elements and names no operation.
    let elements = record.text(ELEMENTS).is_some() && record.text(BYTES).is_none();
    let own = record.text(&["allreduce_dtype"]).is_some() || (elements && name.is_none());
    let library = match record.text(&["backend", "kernel_source"]) {
        Some(backend) if backend.contains("eager") => Library::CustomEager,
        Some(backend) if backend.to_lowercase().contains("nccl") => Library::Nccl,
        _ if own => Library::Custom,
        _ => Library::Nccl,
    };
    let kernel = Kernel::Collective {
        collective,
        library,
        gpus,
        per_node: record
            .size_or(&["devices_per_node"], gpus.min(8.0))?
            .min(gpus),
        bytes,
    };
    Ok((kernel, format!("bytes={bytes}")))
}
