//! Kernels, and how long each takes and draws: one trait, and the models behind it.
//!
//! [`Analytic`] knows how kernels are built (tiles, waves, pages); [`Interpolating`] corrects any model by
//! measured rows that lie near; [`Baseline`] holds what the paper compares with (appendices A and J).

mod attention;
mod baseline;
mod cached;
mod collective;
mod constants;
mod defaults;
mod gemm;
mod interpolate;
mod moe;
mod power;

use litd_units::{Joules, Millis, Watts};
use serde::{Deserialize, Serialize};

pub use baseline::{Backend, Baseline};
pub use cached::Cached;
pub use constants::{
    CollectiveConstants, Constants, ContextConstants, EngineConstants, GemmConstants,
    GenerationConstants, MemoryConstants, MoeConstants, PowerConstants,
};
pub use interpolate::{Interpolating, Point, place};
pub use moe::{Routing, loads};
pub use power::Demand;

use crate::gpu::Gpu;

/// Bits per number of a kernel's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Precision {
    /// Of weights (attention: of the KV cache): 16, 8 or 4.
    pub weights: u8,
    /// Of activations: 16, 8 or 4.
    pub activations: u8,
}

impl Precision {
    /// bfloat16 throughout.
    pub const BF16: Self = Self::both(16);

    /// The same number of bits for weights and activations.
    #[must_use]
    pub const fn both(bits: u8) -> Self {
        Self {
            weights: bits,
            activations: bits,
        }
    }

    /// Bytes of a weight. Scales of 4-bit formats (one of 16 bits for each 32 to 128) are counted in.
    #[must_use]
    pub fn weight_bytes(self) -> f64 {
        match self.weights {
            ..=4 => 0.53,
            5..=8 => 1.0,
            _ => 2.0,
        }
    }

    /// Bytes of an activation that is read. What a kernel writes has 16 bits.
    #[must_use]
    pub fn activation_bytes(self) -> f64 {
        match self.activations {
            ..=4 => 0.53,
            5..=8 => 1.0,
            _ => 2.0,
        }
    }

    /// The matrix peak with which both operands can be multiplied, FLOP/s: that of the wider one, as
    /// narrower weights are widened first, and of the next wider format that the GPU has.
    #[must_use]
    pub fn peak(self, gpu: &Gpu) -> f64 {
        let eight = gpu.peak_8.unwrap_or(gpu.peak_16);
        match self.weights.max(self.activations) {
            ..=4 => gpu.peak_4.unwrap_or(eight),
            5..=8 => eight,
            _ => gpu.peak_16,
        }
    }
}

/// The collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets all parts.
    AllGather,
    /// Every rank gets its part of the sum.
    ReduceScatter,
    /// Every rank sends a part to every other.
    AllToAll,
}

/// The library that runs a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Library {
    /// NCCL or RCCL.
    Nccl,
    /// An engine's own all-reduce over peer memory, in a CUDA graph.
    Custom,
    /// The same, launched from Python each time.
    CustomEager,
}

/// A kernel (or the few that an engine launches for one operation) and its shape. Sizes are of one GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kernel {
    /// `groups` products A\[m, k\] x B\[k, n\].
    Gemm {
        /// Products of this shape in one launch.
        groups: f64,
        /// Rows of the result.
        m: f64,
        /// Columns of the result.
        n: f64,
        /// The size that is summed over.
        k: f64,
        /// Of the operands.
        precision: Precision,
    },
    /// Prefill: all queries of `length` new tokens, each sees `prefix` tokens and those before it.
    ContextAttention {
        /// Requests.
        batch: f64,
        /// New tokens of each.
        length: f64,
        /// Tokens of each that are in the cache already.
        prefix: f64,
        /// The heads of queries and keys.
        heads: Heads,
        /// Whether a query sees only what is before it.
        causal: bool,
        /// Of the KV cache and the activations.
        precision: Precision,
    },
    /// Decode: one query each, over `length` tokens of KV cache.
    GenerationAttention {
        /// Requests.
        batch: f64,
        /// Tokens in each one's cache, the new one included.
        length: f64,
        /// The heads of queries and keys.
        heads: Heads,
        /// Of the KV cache and the activations.
        precision: Precision,
    },
    /// The experts of one layer: gate and up, activation, down, with sorting and reducing.
    Moe {
        /// Tokens of the whole expert-parallel group.
        tokens: f64,
        /// Model dimension.
        hidden: f64,
        /// FFN dimension of an expert.
        inter: f64,
        /// Experts per token.
        top_k: f64,
        /// Experts in all.
        experts: f64,
        /// GPUs that share an expert.
        tp: f64,
        /// GPUs that share the set of experts.
        ep: f64,
        /// How tokens choose.
        routing: Routing,
        /// Of the operands.
        precision: Precision,
    },
    /// A collective over a node's GPUs, or over several nodes'.
    Collective {
        /// The collective.
        collective: Collective,
        /// By whom.
        library: Library,
        /// Ranks.
        gpus: f64,
        /// Ranks per node.
        per_node: f64,
        /// The whole buffer: for an all-gather what is gathered, for a reduce-scatter what is reduced.
        bytes: f64,
    },
    /// Moves memory and computes next to nothing: norms, activations, copies, transposes.
    Memory {
        /// Bytes read.
        read: f64,
        /// Bytes written.
        written: f64,
    },
}

/// The heads of an attention kernel on one GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heads {
    /// Query heads.
    pub query: f64,
    /// Key and value heads.
    pub kv: f64,
    /// Numbers per head.
    pub dim: f64,
}

/// The families of kernels: each has constants, power and corrections of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "named as the kernels")]
pub enum Family {
    Gemm,
    ContextAttention,
    GenerationAttention,
    Moe,
    Collective,
    Memory,
}

impl Family {
    /// The families.
    pub const ALL: [Self; 6] = [
        Self::Gemm,
        Self::ContextAttention,
        Self::GenerationAttention,
        Self::Moe,
        Self::Collective,
        Self::Memory,
    ];
}

impl Kernel {
    /// The family.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::Gemm { .. } => Family::Gemm,
            Self::ContextAttention { .. } => Family::ContextAttention,
            Self::GenerationAttention { .. } => Family::GenerationAttention,
            Self::Moe { .. } => Family::Moe,
            Self::Collective { .. } => Family::Collective,
            Self::Memory { .. } => Family::Memory,
        }
    }
}

/// Under which conditions a kernel runs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Setting {
    /// The board's power limit; none: the data sheet's.
    pub power_limit: Option<Watts>,
    /// Multiprocessors that the kernel may use; none: all, or for a collective what the library takes.
    pub sms: Option<u32>,
    /// The clock as a share of the boost clock; none: as high as power allows.
    pub clock: Option<f64>,
}

/// The prediction for a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// From its launch to its end.
    pub latency: Millis,
    /// Mean power of the board meanwhile.
    pub power: Watts,
}

impl Estimate {
    /// Energy of one GPU.
    #[must_use]
    pub fn energy(self) -> Joules {
        energy(self.power, self.latency)
    }
}

/// Power over a time.
#[must_use]
pub fn energy(power: Watts, time: Millis) -> Joules {
    Joules(power.0 * time.0 * 1e-3)
}

/// Predicts kernels of one GPU.
pub trait KernelModel: Send + Sync {
    /// The GPU.
    fn gpu(&self) -> &Gpu;

    /// Latency and power of a kernel. Finite and positive whatever its shape is.
    fn predict(&self, kernel: &Kernel, setting: &Setting) -> Estimate;
}

/// A kernel's work, and the time of each part of it at the data sheet's power limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// The whole, ms.
    pub latency: f64,
    /// The part of the time that depends on the clock, ms: the rest is launch, latencies and memory.
    pub clocked: f64,
    /// Useful operations.
    pub flops: f64,
    /// Bytes of device memory (collective: on the wire).
    pub bytes: f64,
    /// FLOP/s and bytes/s at which both would be fully used.
    pub peaks: [f64; 2],
}

/// No kernel is shorter, ms: what an empty one takes.
const SHORTEST: f64 = 1e-3;
/// The longest prediction, ms: eleven days. Sizes beyond all sense get this time.
const LONGEST: f64 = 1e9;

impl Work {
    /// Of what is not positive or no number at all, the shortest kernel is made.
    fn sane(self) -> Self {
        let within = |time: f64| match time.is_nan() {
            true => SHORTEST,
            false => time.clamp(SHORTEST, LONGEST),
        };
        let latency = within(self.latency);
        let clocked = match self.clocked.is_nan() {
            true => 0.0,
            false => self.clocked.clamp(0.0, latency),
        };
        Self {
            latency,
            clocked,
            ..self
        }
    }
}

/// The model that knows how kernels are built, with constants of a few per family.
#[derive(Debug, Clone, PartialEq)]
pub struct Analytic {
    gpu: Gpu,
    constants: Constants,
}

impl Analytic {
    /// A model with the shipped constants, which no measurement of this very GPU need have set.
    #[must_use]
    pub fn uncalibrated(gpu: Gpu) -> Self {
        let constants = Constants::shipped(gpu.architecture);
        Self { gpu, constants }
    }

    /// A model with constants from a fit.
    #[must_use]
    pub fn new(gpu: Gpu, constants: Constants) -> Self {
        Self { gpu, constants }
    }

    /// The constants.
    #[must_use]
    pub fn constants(&self) -> &Constants {
        &self.constants
    }

    /// A kernel's work and the time of its parts, at the data sheet's power limit.
    #[must_use]
    pub fn work(&self, kernel: &Kernel, setting: &Setting) -> Work {
        let (gpu, constants) = (&self.gpu, &self.constants);
        let sms = setting.sms.unwrap_or(gpu.sms).clamp(1, gpu.sms);
        let work = match *kernel {
            Kernel::Gemm {
                groups,
                m,
                n,
                k,
                precision,
            } => {
                let shape = gemm::Shape { groups, m, n, k };
                gemm::work(gpu, &constants.gemm, shape, precision, sms)
            }
            Kernel::ContextAttention { .. } => {
                attention::context(gpu, &constants.context, kernel, sms)
            }
            Kernel::GenerationAttention { .. } => {
                attention::generation(gpu, &constants.generation, kernel, sms)
            }
            Kernel::Moe { .. } => moe::work(gpu, &constants.moe, kernel, sms),
            Kernel::Collective { .. } => {
                collective::work(gpu, &constants.collective, kernel, setting.sms)
            }
            Kernel::Memory { read, written } => {
                memory(gpu, &constants.memory, read.max(0.0) + written.max(0.0))
            }
        };
        work.sane()
    }
}

fn memory(gpu: &Gpu, constants: &MemoryConstants, bytes: f64) -> Work {
    let moved = bytes / (gpu.bandwidth * constants.bandwidth) * 1e3;
    Work {
        latency: constants.launch * 1e-3 + moved,
        clocked: 0.0,
        flops: 0.0,
        bytes,
        peaks: [gpu.peak_16, gpu.bandwidth],
    }
}

impl KernelModel for Analytic {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn predict(&self, kernel: &Kernel, setting: &Setting) -> Estimate {
        let work = self.work(kernel, setting);
        let constants = self.constants.power_of(kernel.family());
        power::estimate(&self.gpu, constants, &work, setting)
    }
}
