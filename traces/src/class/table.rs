//! The table of kernel names: what kind of work a kernel does whose name has this in it, and where
//! that name comes from. The first row that fits counts, so exceptions stand before what they are
//! excepted from. `class/mod.rs` says how a pattern is written.

use super::Row;
use crate::timeline::KernelClass::{self, Communication, Computation, Copy, Fused};

const fn row(pattern: &'static str, class: KernelClass, source: &'static str) -> Row<'static> {
    Row {
        pattern,
        class,
        source,
    }
}

/// The rows.
pub(super) const TABLE: &[Row<'static>] = &[
    // Names that belong to communication libraries and wait for nobody.
    row(
        "get_dispatch_layout",
        Computation,
        "DeepEP, csrc/kernels/layout.cu: counts its own tokens",
    ),
    row(
        "moea2asanitizeexpertids",
        Computation,
        "TensorRT-LLM, moeAlltoAllKernels.cu: local",
    ),
    row(
        "moea2aprepare",
        Computation,
        "TensorRT-LLM, moeAlltoAllKernels.cu: local",
    ),
    row(
        "local_device_load_rmsnorm",
        Computation,
        "AITER, custom_all_reduce.cuh: the second half, from own memory",
    ),
    // A collective and a computation in one kernel.
    row(
        "*allreducefusionpattern)0,",
        Communication,
        "FlashInfer and TensorRT-LLM: kAllReduce, nothing fused",
    ),
    row(
        "*allreduce_fusion",
        Fused,
        "FlashInfer, TensorRT-LLM (trtllm_allreduce_fusion, moefinalize_ and moereduce_ too), AITER: with RMSNorm",
    ),
    row(
        "*allreducefusion",
        Fused,
        "TensorRT-LLM, mnnvlAllreduceKernels.cu: oneshotAllreduceFusionKernel",
    ),
    row(
        "*rmsnormlamport",
        Fused,
        "TensorRT-LLM, mnnvlAllreduceKernels.cu: spins on what the peers write",
    ),
    row(
        "*all_reduce_norm_kernel",
        Fused,
        "TensorRT-LLM, customAllReduceKernels.cu: with RMSNorm",
    ),
    row(
        "*userbuffers_*rmsnorm",
        Fused,
        "TensorRT-LLM, userbuffers: sum and RMSNorm",
    ),
    row(
        "*gemm*all_reduce",
        Fused,
        "Helion, Triton-distributed, vLLM: a matrix product that is reduced across GPUs",
    ),
    row(
        "*gemm*allreduce",
        Fused,
        "TensorRT-LLM, gemmAllReduce: a matrix product that is reduced across GPUs",
    ),
    row(
        "*gemm*reduce_scatter",
        Fused,
        "Flux, Triton-distributed: a matrix product that is scattered",
    ),
    row("*matmul*all_reduce", Fused, "Helion's and torch's examples"),
    row(
        "*matmul*reduce_scatter",
        Fused,
        "torch, symmetric memory: fused_matmul_reduce_scatter",
    ),
    row(
        "*all_gather*gemm",
        Fused,
        "Triton-distributed, Flux: gathers what it multiplies",
    ),
    row(
        "*all_gather*matmul",
        Fused,
        "torch, symmetric memory: fused_all_gather_matmul",
    ),
    row("ag_gemm", Fused, "Flux, Triton-distributed"),
    row("gemm_rs", Fused, "Flux, Triton-distributed"),
    // Collectives.
    row(
        "*nccl",
        Communication,
        "NCCL (ncclDevKernel_, ncclKernel_, ncclSymk)",
    ),
    row("*rccl", Communication, "RCCL"),
    row("*msccl", Communication, "MSCCL (mscclKernel_) and MSCCL++"),
    row(
        "*cross_device_reduce",
        Communication,
        "vLLM, SGLang, AITER: custom_all_reduce.cuh",
    ),
    row(
        "*cross_device_store",
        Communication,
        "AITER, custom_all_reduce.cuh: reduce_scatter_cross_device_store",
    ),
    row(
        "multimem_",
        Communication,
        "torch, CUDASymmetricMemoryOps.cu",
    ),
    row(
        "*one_shot_all_reduce",
        Communication,
        "torch, CUDASymmetricMemoryOps.cu; SGLang's Triton",
    ),
    row(
        "*two_shot_all_reduce",
        Communication,
        "torch, CUDASymmetricMemoryOps.cu",
    ),
    row(
        "put_signal_kernel",
        Communication,
        "torch, CUDASymmetricMemory.cu",
    ),
    row(
        "wait_signal_kernel",
        Communication,
        "torch, CUDASymmetricMemory.cu",
    ),
    row(
        "barrier_kernel",
        Communication,
        "torch, CUDASymmetricMemory.cu: spins until all ranks have come",
    ),
    row(
        "*oneshotallreduce",
        Communication,
        "torch, intra_node_comm.cu; TensorRT-LLM; XLA",
    ),
    row(
        "*twoshotallreduce",
        Communication,
        "torch, intra_node_comm.cu; TensorRT-LLM; XLA",
    ),
    row(
        "*hybridcubemeshallreduce",
        Communication,
        "torch, intra_node_comm.cu",
    ),
    row(
        "*gpu::allreducekernelimpl",
        Communication,
        "XLA, stream_executor/gpu/all_reduce_kernel.h",
    ),
    row(
        "*allreduce_prototype_",
        Communication,
        "vLLM, quickreduce (ROCm)",
    ),
    row("quickreduce::", Communication, "vLLM, quickreduce (ROCm)"),
    row(
        "*userbuffers_",
        Communication,
        "Transformer Engine, userbuffers.cu (kuserbuffers_ too)",
    ),
    // Expert parallelism.
    row("deep_ep", Communication, "DeepEP"),
    row(
        "dpsk::ep::",
        Communication,
        "DeepEP in DeepSeek's published profiles",
    ),
    row("dpsk2ep", Communication, "the same, mangled"),
    row("hybrid_ep::", Communication, "DeepEP, hybrid-ep"),
    row("mori::", Communication, "AMD MORI"),
    row(
        "epdispatch",
        Communication,
        "AMD MORI: EpDispatchIntraNodeKernel and its like",
    ),
    row(
        "epcombine",
        Communication,
        "AMD MORI: EpCombineIntraNodeKernel and its like",
    ),
    row(
        "moea2a",
        Communication,
        "TensorRT-LLM, moeAlltoAllKernels.cu: moeA2ADispatchKernel, moeA2ACombineKernel",
    ),
    row("*pplx", Communication, "Perplexity's kernels"),
    row("a2a_dispatch_", Communication, "Perplexity, pplx-garden"),
    row("a2a_combine_", Communication, "Perplexity, pplx-garden"),
    row("uccl::", Communication, "UCCL"),
    // One-sided.
    row("*nvshmem", Communication, "NVSHMEM"),
    row(
        "exchangesplitandoffset",
        Communication,
        "torch, nvshmem_extension.cu",
    ),
    row("alltoallv", Communication, "torch, nvshmem_extension.cu"),
    row("*rocshmem", Communication, "rocSHMEM"),
    row("*roc_shmem", Communication, "rocSHMEM before its renaming"),
    row(
        "__amd_rocclr_streamops",
        Communication,
        "ROCm, rocclr: hipStreamWaitValue spins until somebody else writes, with hipStreamWriteValue",
    ),
    row(
        "__amd_rocclr_batchmemop",
        Communication,
        "ROCm, rocclr: hipStreamBatchMemOp, the same",
    ),
    // Copies and fills that ROCm before 7.2 lists as kernels.
    row(
        "__amd_rocclr_copy",
        Copy,
        "ROCm, rocclr: device/rocm/rocblit.cpp",
    ),
    row(
        "__amd_rocclr_fill",
        Copy,
        "ROCm, rocclr: device/rocm/rocblit.cpp",
    ),
    row("memory_copy_", Copy, "rocprofiler-sdk: names of its copies"),
];
