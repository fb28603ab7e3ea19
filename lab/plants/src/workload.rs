//! What every GPU of a node executes in one iteration: compute kernels of five classes in stream
//! order, and collectives in stream order on a second stream.

use serde::Serialize;

/// What bounds a kernel. Power, clock and contention differ by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Matrix products: the most power, time follows the clock.
    Gemm,
    /// Fused attention: nearly as much.
    Attention,
    /// Norms, activations, element-wise work: memory bounds most of it.
    Vector,
    /// Optimizer steps and other streaming of memory.
    Memory,
    /// Small kernels between which the GPU waits for its host or for latency.
    Latency,
}

impl Class {
    /// All classes, in the order of every per-class array.
    pub const ALL: [Self; CLASSES] = [
        Self::Gemm,
        Self::Attention,
        Self::Vector,
        Self::Memory,
        Self::Latency,
    ];
}

/// How many classes there are.
pub const CLASSES: usize = 5;

/// One compute kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Name, the same on every GPU.
    pub name: String,
    /// What bounds it.
    pub class: Class,
    /// Time at the highest clock with no collective resident, ms.
    pub work: f64,
    /// The collective that must have ended before the kernel starts.
    pub needs: Option<usize>,
}

/// One collective. It becomes resident on a GPU when that GPU starts `trigger` and the collective
/// before has ended, transfers once it is resident on all, and ends on all at once.
#[derive(Debug, Clone)]
pub struct Collective {
    /// Name, the same on every GPU.
    pub name: String,
    /// From residency on all GPUs to the end, at the highest fabric clock, ms.
    pub transfer: f64,
    /// The kernel whose start makes it resident.
    pub trigger: usize,
}

/// One iteration's work, the same on all GPUs.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Which one.
    pub kind: WorkloadKind,
    /// Compute kernels in stream order.
    pub kernels: Vec<Kernel>,
    /// Collectives in stream order; triggers never decrease.
    pub collectives: Vec<Collective>,
    /// Time at the begin of an iteration in which the host prepares and no kernel runs, ms.
    pub gap: f64,
    /// Whether all GPUs wait for the last one at the end of an iteration.
    pub synchronous: bool,
}

/// The workloads that can be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// Llama 3.1 8B under FSDP (Lit Silicon, Table II): 32 layers.
    LlamaFsdp8b,
    /// Mistral 7B under FSDP (Table II): 32 layers, a smaller share of attention.
    MistralFsdp7b,
    /// Llama 70B-like under FSDP: 80 layers in pairs, long matrix products.
    LlamaFsdp70b,
    /// A GPT under tensor parallelism: all-reduces that nothing overlaps.
    GptTensor,
    /// A GPT under data parallelism: gradients are reduced in buckets during the backward pass.
    GptData,
    /// Short iterations with much memory-bound work, as of a convolutional network.
    ConvolutionData,
    /// Small batches of a small transformer, between whose kernels the GPU waits for its host.
    SmallData,
    /// One matrix product after the other, no collective: the Longhorn launches.
    Sgemm,
    /// Latency-bound single-GPU work: the Longhorn control.
    Pagerank,
}

impl WorkloadKind {
    /// Those that a training node runs, which a draw chooses from.
    pub const TRAINING: [Self; 7] = [
        Self::LlamaFsdp8b,
        Self::MistralFsdp7b,
        Self::LlamaFsdp70b,
        Self::GptTensor,
        Self::GptData,
        Self::ConvolutionData,
        Self::SmallData,
    ];

    /// Name as printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LlamaFsdp8b => "llama-8b-fsdp",
            Self::MistralFsdp7b => "mistral-7b-fsdp",
            Self::LlamaFsdp70b => "llama-70b-fsdp",
            Self::GptTensor => "gpt-tensor",
            Self::GptData => "gpt-data",
            Self::ConvolutionData => "convolution-data",
            Self::SmallData => "small-data",
            Self::Sgemm => "sgemm",
            Self::Pagerank => "pagerank",
        }
    }

    /// Whether GPUs wait for one another in it.
    #[must_use]
    pub fn is_synchronous(self) -> bool {
        !matches!(self, Self::Sgemm | Self::Pagerank)
    }
}

/// How large the parts of a workload are.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Compute of one iteration at the highest clock, ms.
    pub compute: f64,
    /// Time of transfers over time of the compute that can hide them.
    pub transfer_ratio: f64,
    /// Part of the compute that is the optimizer's, which streams memory.
    pub optimizer: f64,
    /// Part of an iteration in which the host prepares and no kernel runs.
    pub gap: f64,
}

/// A layer's kernels: name, class, share of the layer's compute.
type Layer = &'static [(&'static str, Class, f64)];

const LLAMA: Layer = &[
    ("norm", Class::Vector, 0.06),
    ("qkv", Class::Gemm, 0.17),
    ("attention", Class::Attention, 0.21),
    ("mlp_up", Class::Gemm, 0.36),
    ("activation", Class::Vector, 0.04),
    ("mlp_down", Class::Gemm, 0.16),
];
const MISTRAL: Layer = &[
    ("norm", Class::Vector, 0.06),
    ("qkv", Class::Gemm, 0.15),
    ("attention", Class::Attention, 0.15),
    ("mlp_up", Class::Gemm, 0.41),
    ("activation", Class::Vector, 0.05),
    ("mlp_down", Class::Gemm, 0.18),
];
const LARGE: Layer = &[
    ("attention_block", Class::Attention, 0.22),
    ("mlp_up", Class::Gemm, 0.5),
    ("activation", Class::Vector, 0.06),
    ("mlp_down", Class::Gemm, 0.22),
];
const GPT: Layer = &[
    ("norm", Class::Vector, 0.07),
    ("attention_block", Class::Attention, 0.33),
    ("norm2", Class::Vector, 0.05),
    ("mlp", Class::Gemm, 0.55),
];
const CONVOLUTION: Layer = &[
    ("convolution", Class::Gemm, 0.37),
    ("batch_norm", Class::Vector, 0.33),
    ("small", Class::Latency, 0.3),
];
const SMALL: Layer = &[
    ("attention_block", Class::Attention, 0.11),
    ("norm", Class::Vector, 0.14),
    ("mlp", Class::Gemm, 0.22),
    ("small", Class::Latency, 0.53),
];

impl Workload {
    /// The workload of this kind in this shape.
    #[must_use]
    pub fn new(kind: WorkloadKind, shape: &Shape) -> Self {
        match kind {
            WorkloadKind::LlamaFsdp8b => fsdp(kind, 32, LLAMA, shape),
            WorkloadKind::MistralFsdp7b => fsdp(kind, 32, MISTRAL, shape),
            WorkloadKind::LlamaFsdp70b => fsdp(kind, 40, LARGE, shape),
            WorkloadKind::GptTensor => tensor(kind, 36, GPT, shape),
            WorkloadKind::GptData => data(kind, 36, GPT, 9, shape),
            WorkloadKind::ConvolutionData => data(kind, 32, CONVOLUTION, 8, shape),
            WorkloadKind::SmallData => data(kind, 24, SMALL, 6, shape),
            WorkloadKind::Sgemm => alone(kind, Class::Gemm, "sgemm", 0.0, shape),
            WorkloadKind::Pagerank => alone(kind, Class::Latency, "pagerank", 0.0, shape),
        }
    }
}

/// Collects kernels and collectives in stream order.
struct Builder {
    workload: Workload,
}

impl Builder {
    fn new(kind: WorkloadKind, shape: &Shape) -> Self {
        Self {
            workload: Workload {
                kind,
                kernels: Vec::new(),
                collectives: Vec::new(),
                gap: shape.compute * shape.gap,
                synchronous: kind.is_synchronous(),
            },
        }
    }

    fn kernel(&mut self, name: String, class: Class, work: f64, needs: Option<usize>) -> usize {
        self.workload.kernels.push(Kernel {
            name,
            class,
            work,
            needs,
        });
        self.workload.kernels.len() - 1
    }

    fn collective(&mut self, name: String, transfer: f64, trigger: usize) -> usize {
        self.workload.collectives.push(Collective {
            name,
            transfer,
            trigger,
        });
        self.workload.collectives.len() - 1
    }

    /// One layer of so much compute; its first kernel needs a collective. Returns the index of
    /// the first kernel.
    fn layer(&mut self, name: &str, layer: Layer, compute: f64, needs: Option<usize>) -> usize {
        let first = self.workload.kernels.len();
        for (index, (kernel, class, share)) in layer.iter().enumerate() {
            let needs = needs.filter(|_| index == 0);
            self.kernel(format!("{name}.{kernel}"), *class, share * compute, needs);
        }
        first
    }

    /// The optimizer in four pieces, of which the first needs a collective.
    fn optimizer(&mut self, compute: f64, needs: Option<usize>) {
        for piece in 0..4 {
            let needs = needs.filter(|_| piece == 0);
            let name = format!("optimizer.{piece}");
            self.kernel(name, Class::Memory, compute / 4.0, needs);
        }
    }
}

/// Fully sharded: weights of the next layer are gathered while a layer computes, gradients of the
/// layer before are scattered while the next backward computes. A backward takes twice as long.
fn fsdp(kind: WorkloadKind, layers: usize, layer: Layer, shape: &Shape) -> Workload {
    let mut it = Builder::new(kind, shape);
    let body = shape.compute * (1.0 - shape.optimizer);
    let forward = body / 3.0 / layers as f64;
    let gather = forward * shape.transfer_ratio;
    let embed = it.kernel("embed".into(), Class::Vector, forward * 0.2, None);
    let mut needs = Some(it.collective("gather.0".into(), gather, embed));
    for index in 0..layers {
        let first = it.layer(&format!("f{index}"), layer, forward, needs);
        needs = (index + 1 < layers)
            .then(|| it.collective(format!("gather.{}", index + 1), gather, first));
    }
    let mut gathered = None;
    for index in (0..layers).rev() {
        let first = it.layer(&format!("b{index}"), layer, forward * 2.0, gathered);
        if index + 1 < layers {
            it.collective(format!("scatter.{}", index + 1), gather, first);
        }
        // The next weights are asked for one kernel later, behind the gradients on the stream.
        gathered = (index > 0)
            .then(|| it.collective(format!("regather.{}", index - 1), gather, first + 1));
    }
    let last = it.kernel("head".into(), Class::Vector, forward * 0.1, None);
    let scattered = it.collective("scatter.0".into(), gather, last);
    it.optimizer(shape.compute * shape.optimizer, Some(scattered));
    it.workload
}

/// Tensor parallel: two all-reduces per layer and pass that the next kernel needs.
fn tensor(kind: WorkloadKind, layers: usize, layer: Layer, shape: &Shape) -> Workload {
    let mut it = Builder::new(kind, shape);
    let body = shape.compute * (1.0 - shape.optimizer);
    let forward = body / 3.0 / layers as f64;
    let mut needs = None;
    for (pass, weight) in [("f", 1.0), ("b", 2.0)] {
        for index in 0..layers {
            it.layer(&format!("{pass}{index}"), layer, forward * weight, needs);
            // The reduce starts when a tiny kernel behind the layer does, so nothing hides it.
            let tail = it.kernel(
                format!("{pass}{index}.pack"),
                Class::Vector,
                forward * 0.01,
                None,
            );
            let transfer = forward * weight * shape.transfer_ratio * 0.3;
            needs = Some(it.collective(format!("reduce.{pass}{index}"), transfer, tail));
        }
    }
    it.optimizer(shape.compute * shape.optimizer, needs);
    it.workload
}

/// Data parallel: gradients are reduced in buckets while the backward goes on.
fn data(
    kind: WorkloadKind,
    layers: usize,
    layer: Layer,
    buckets: usize,
    shape: &Shape,
) -> Workload {
    let mut it = Builder::new(kind, shape);
    let body = shape.compute * (1.0 - shape.optimizer);
    let forward = body / 3.0 / layers as f64;
    for index in 0..layers {
        it.layer(&format!("f{index}"), layer, forward, None);
    }
    let per_bucket = layers.div_ceil(buckets);
    let transfer = forward * 2.0 * per_bucket as f64 * shape.transfer_ratio;
    for index in 0..layers {
        let first = it.layer(&format!("b{index}"), layer, forward * 2.0, None);
        if index > 0 && index % per_bucket == 0 {
            it.collective(format!("reduce.{}", index / per_bucket), transfer, first);
        }
    }
    let tail = it.kernel("tail".into(), Class::Vector, forward * 0.1, None);
    let last = it.collective("reduce.last".into(), transfer, tail);
    it.optimizer(shape.compute * shape.optimizer, Some(last));
    it.workload
}

/// A hundred equal kernels of one class and no collective.
fn alone(kind: WorkloadKind, class: Class, name: &str, gap: f64, shape: &Shape) -> Workload {
    let mut it = Builder::new(kind, shape);
    it.workload.gap = gap;
    for index in 0..100 {
        it.kernel(
            format!("{name}.{index}"),
            class,
            shape.compute / 100.0,
            None,
        );
    }
    it.workload
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        compute: 600.0,
        transfer_ratio: 0.4,
        optimizer: 0.05,
        gap: 0.01,
    };

    /// A kernel that needs a collective whose trigger comes later would wait for ever.
    #[test]
    fn no_kernel_needs_a_collective_that_starts_later() {
        for kind in WorkloadKind::TRAINING {
            let it = Workload::new(kind, &SHAPE);
            for (index, kernel) in it.kernels.iter().enumerate() {
                let trigger = kernel.needs.map(|needs| it.collectives[needs].trigger);
                assert!(
                    trigger.is_none_or(|trigger| trigger < index),
                    "{kind:?} {index}"
                );
            }
            assert!(it.collectives.is_sorted_by_key(|it| it.trigger), "{kind:?}");
        }
    }

    #[test]
    fn compute_is_what_was_asked_for() {
        for kind in WorkloadKind::TRAINING {
            let it = Workload::new(kind, &SHAPE);
            let total: f64 = it.kernels.iter().map(|it| it.work).sum();
            assert!(
                (total / SHAPE.compute - 1.0).abs() < 0.03,
                "{kind:?} {total}"
            );
        }
    }
}
