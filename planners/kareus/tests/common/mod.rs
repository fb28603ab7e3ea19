//! Workloads of the paper (section 6.1).
#![allow(dead_code, reason = "each test uses some of them")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use litd_kareus::{Job, Model, Training, Workload};

/// Llama 3.2 3B.
pub fn llama_3b() -> Model {
    Model {
        hidden_size: 3072,
        num_hidden_layers: 28,
        num_attention_heads: 24,
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        intermediate_size: 8192,
        vocab_size: 128_256,
    }
}

/// A job with these degrees of tensor, context and pipeline parallelism.
pub fn training(tensor: u32, context: u32, pipeline: u32, recompute: bool) -> Training {
    Training {
        tensor_parallel: tensor,
        context_parallel: context,
        pipeline_parallel: pipeline,
        microbatch: 8,
        microbatches: 8,
        sequence: 4096,
        recompute,
        layers: None,
    }
}

pub fn job(tensor: u32, context: u32, recompute: bool) -> Job {
    let training = training(tensor, context, 2, recompute);
    Job::new(&Workload::new(llama_3b(), training).unwrap()).unwrap()
}
