//! The paper's own cases, from the models' dimensions: Figure 3's partition and Table 1's iteration. What
//! comes out of the GPU here is SIMULATED; what the paper measured stands beside it.

use litd_kareus::{
    Candidate, Collective, CollectiveKind, Communication, Computation, Partition, ProfilerError,
    Sequence, Step, Work,
};
use litd_units::{Hertz, Joules, Millis};

use crate::gpu::{A100, Gpu};
use crate::profiler::{Simulated, Truth};
use crate::window::Method;

/// Bytes of a bf16.
const BF16: f64 = 2.0;
/// Operations of the vector units per element of softmax, activation and the like: assumed.
const VECTOR: f64 = 10.0;

/// A transformer layer as a GPU executes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layer {
    /// Width of the residual stream.
    pub hidden: f64,
    /// Attention heads of the model.
    pub heads: f64,
    /// Heads of keys and values.
    pub kv_heads: f64,
    /// Width of a head.
    pub head: f64,
    /// Width between the MLP's (gated) linears.
    pub ffn: f64,
    /// Tokens of a sequence, before context parallelism.
    pub sequence: f64,
    /// Degree of tensor parallelism.
    pub tp: u32,
    /// Degree of context parallelism.
    pub cp: u32,
}

/// Llama 3.2 3B as in the paper's Figure 3: tensor parallelism 4, here of sequences of 4K.
pub const LLAMA_3B: Layer = Layer {
    hidden: 3_072.0,
    heads: 24.0,
    kv_heads: 8.0,
    head: 128.0,
    ffn: 8_192.0,
    sequence: 4_096.0,
    tp: 4,
    cp: 1,
};

/// Qwen 3 1.7B as in the paper's Table 1.
pub const QWEN_1_7B: Layer = Layer {
    hidden: 2_048.0,
    heads: 16.0,
    kv_heads: 8.0,
    head: 128.0,
    ffn: 6_144.0,
    sequence: 4_096.0,
    tp: 4,
    cp: 2,
};

fn computation(name: &str, work: Work) -> Computation {
    Computation {
        name: name.to_owned(),
        work,
    }
}

fn linear(tokens: f64, from: f64, to: f64) -> Work {
    Work {
        matrix: 2.0 * tokens * from * to,
        vector: 0.0,
        bytes: BF16 * (tokens * (from + to) + from * to),
    }
}

/// Elementwise work: so many elements, each read or written so often.
fn elementwise(elements: f64, accesses: f64) -> Work {
    Work {
        matrix: 0.0,
        vector: VECTOR * elements,
        bytes: BF16 * elements * accesses,
    }
}

impl Layer {
    /// Norm (with the residual's addition before it), linear, RoPE, attention, linear; for so many tokens
    /// of this GPU.
    #[must_use]
    pub fn attention(&self, tokens: f64) -> Vec<Computation> {
        let tp = f64::from(self.tp);
        let queries = self.heads * self.head / tp;
        let keys = self.kv_heads * self.head / tp;
        // Causal: half of all pairs.
        let pairs = tokens * self.sequence / 2.0 * self.heads / tp;
        let attention = Work {
            matrix: 4.0 * pairs * self.head,
            vector: VECTOR * pairs,
            bytes: BF16 * tokens * (2.0 * queries + 2.0 * keys * f64::from(self.cp)),
        };
        vec![
            computation("norm", elementwise(tokens * self.hidden, 5.0)),
            computation(
                "linear_0",
                linear(tokens, self.hidden, queries + 2.0 * keys),
            ),
            computation("rope", elementwise(tokens * (queries + keys), 4.0)),
            computation("attention", attention),
            computation("linear_1", linear(tokens, queries, self.hidden)),
        ]
    }

    /// Norm, linear, activation, linear.
    #[must_use]
    pub fn mlp(&self, tokens: f64) -> Vec<Computation> {
        let ffn = self.ffn / f64::from(self.tp);
        vec![
            computation("norm", elementwise(tokens * self.hidden, 5.0)),
            computation("linear_0", linear(tokens, self.hidden, 2.0 * ffn)),
            computation("activation", elementwise(tokens * ffn, 3.0)),
            computation("linear_1", linear(tokens, ffn, self.hidden)),
        ]
    }

    /// The reverse of computations: two products for each of them, and half a product more in attention,
    /// which computes its scores again; and the gradients of the weights are added to.
    fn reverse(&self, forward: &[Computation]) -> Vec<Computation> {
        let weights = (self.hidden * 4.0 * self.head * self.heads / 2.0
            + 3.0 * self.hidden * self.ffn)
            / f64::from(self.tp);
        let back = |it: &Computation| {
            let factor = if it.name == "attention" { 2.5 } else { 2.0 };
            let mut work = it.work * factor;
            if it.name.starts_with("linear") {
                // Read and written in fp32; two of the layer's four linears are in each half of it.
                work.bytes += 8.0 * weights / 4.0;
            }
            computation(&it.name, work)
        };
        forward.iter().rev().map(back).collect()
    }

    /// The sum of all GPUs' parts of a layer's output.
    #[must_use]
    pub fn all_reduce(&self, tokens: f64) -> Collective {
        Collective {
            kind: CollectiveKind::AllReduce,
            bytes: BF16 * tokens * self.hidden,
            group: self.tp,
        }
    }

    /// Keys and values of all parts of the context.
    fn gather(&self, tokens: f64) -> Option<Collective> {
        let keys = self.kv_heads * self.head / f64::from(self.tp);
        let all = tokens * f64::from(self.cp);
        (self.cp > 1).then_some(Collective {
            kind: CollectiveKind::AllGather,
            bytes: BF16 * all * 2.0 * keys,
            group: self.cp,
        })
    }

    /// A layer's half beside the other nanobatch's communication. The gathering of keys and values is fused
    /// with the AllReduce that is beside the MLP.
    #[must_use]
    pub fn partitions(&self, tokens: f64, backward: bool) -> [Partition; 2] {
        let direction = if backward { "backward" } else { "forward" };
        let half = |name: &str, forward: Vec<Computation>, gather: Option<Collective>| {
            let computations = match backward {
                true => self.reverse(&forward),
                false => forward,
            };
            let reduce = [self.all_reduce(tokens)].into_iter();
            Partition {
                name: format!("{direction}/{name}"),
                computations,
                communication: Communication {
                    collectives: reduce.chain(gather).collect(),
                },
            }
        };
        [
            half("attention", self.attention(tokens), None),
            half("mlp", self.mlp(tokens), self.gather(tokens)),
        ]
    }

    /// A layer without overlap.
    #[must_use]
    pub fn sequence(&self, tokens: f64, backward: bool) -> Sequence {
        let [attention, mlp] = self.partitions(tokens, backward);
        let mut steps = Vec::new();
        for half in [attention, mlp] {
            steps.extend(half.computations.into_iter().map(Step::Computation));
            steps.push(Step::Communication(half.communication));
        }
        let direction = if backward { "backward" } else { "forward" };
        Sequence {
            name: format!("{direction}/sequential"),
            steps,
        }
    }
}

/// Figure 3's partition: one nanobatch of Llama 3.2 3B's attention, forward. The paper does not say how large
/// the nanobatch is; here it has four sequences.
#[must_use]
pub fn figure_3() -> Partition {
    let [attention, _] = LLAMA_3B.partitions(4.0 * LLAMA_3B.sequence, false);
    attention
}

/// A row of Table 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// The system.
    pub system: &'static str,
    /// The iteration.
    pub time: Millis,
    /// Static energy of all 16 GPUs.
    pub resting: Joules,
    /// Dynamic energy of all 16 GPUs.
    pub dynamic: Joules,
}

const fn row(system: &'static str, seconds: f64, resting: f64, dynamic: f64) -> Row {
    Row {
        system,
        time: Millis(seconds * 1e3),
        resting: Joules(resting),
        dynamic: Joules(dynamic),
    }
}

/// Table 1 as the paper has it.
pub const TABLE_1: [Row; 4] = [
    row("Megatron-LM", 5.60, 5_372.0, 21_374.0),
    row("Megatron-LM + Perseus", 5.60, 5_374.0, 19_531.0),
    row("Nanobatching", 5.31, 5_096.0, 21_445.0),
    row("Nanobatching + Perseus", 5.37, 5_160.0, 19_729.0),
];

/// Microbatches of an iteration, and sequences in one (the paper's footnote 3).
const MICROBATCHES: f64 = 8.0;
const SEQUENCES: f64 = 16.0;
/// GPUs of a pipeline stage.
const STAGE: f64 = 8.0;
/// Qwen 3 1.7B's 28 layers on two stages: the second has the output layer as well, which is worth five of
/// them forward. The paper balances by hand and does not say how; this is what balances forward. It was chosen
/// with Perseus's row in view: 16 and 12 would leave neither stage time to be slower in.
const LAYERS: [f64; 2] = [17.0, 11.0];
const VOCABULARY: f64 = 151_936.0;

/// A microbatch of a stage, forward and backward with everything computed again before (footnote 3's
/// activation checkpointing).
#[derive(Debug, Clone, Copy, PartialEq)]
struct Microbatch {
    seconds: f64,
    joules: f64,
}

impl Microbatch {
    fn new(parts: &[(f64, Truth)]) -> Self {
        let sum = |of: &dyn Fn(&Truth) -> f64| parts.iter().map(|(n, it)| n * of(it)).sum();
        Self {
            seconds: sum(&|it| it.time.0 * 1e-3),
            joules: sum(&|it| it.energy.0),
        }
    }
}

/// The output layer with its loss, forward and backward.
fn output(tokens: f64) -> Sequence {
    let tp = f64::from(QWEN_1_7B.tp);
    let forward = linear(tokens, QWEN_1_7B.hidden, VOCABULARY / tp);
    let logits = tokens * VOCABULARY / tp;
    let steps = [
        computation("linear", forward),
        // Maximum, exponentials, sum, in fp32; backward, the gradient is written.
        computation("loss", elementwise(logits, 8.0)),
        computation("linear_gradients", forward * 2.0),
    ];
    Sequence {
        name: "output".to_owned(),
        steps: steps.into_iter().map(Step::Computation).collect(),
    }
}

/// A microbatch of a stage at a clock.
fn microbatch(
    simulated: &Simulated,
    nanobatches: bool,
    stage: usize,
    clock: Hertz,
) -> Result<Microbatch, ProfilerError> {
    let layer = QWEN_1_7B;
    let tokens = SEQUENCES * layer.sequence / f64::from(layer.cp);
    // Forward, and forward again before backward.
    let directions = [(2.0, false), (1.0, true)];
    let mut parts = Vec::new();
    for (times, backward) in directions {
        if nanobatches {
            for partition in layer.partitions(tokens / 2.0, backward) {
                // Nanobatching launches as soon as it can, with the library's SMs (section 3.2).
                let candidate = Candidate {
                    clock,
                    sms: A100.default_sms,
                    launch: 0,
                };
                let truth = simulated.truth(&partition, candidate)?;
                parts.push((2.0 * times * LAYERS[stage], truth));
            }
        } else {
            let truth = simulated.truth_of_sequence(&layer.sequence(tokens, backward), clock)?;
            parts.push((times * LAYERS[stage], truth));
        }
    }
    if stage == 1 {
        parts.push((1.0, simulated.truth_of_sequence(&output(tokens), clock)?));
    }
    Ok(Microbatch::new(&parts))
}

/// Table 1, SIMULATED. The pipeline is 1F1B: the slower stage is busy but for one microbatch of the faster.
/// Perseus is what it comes to with two stages: the faster one is slowed until it is no longer faster, but
/// for the first microbatch, for which the other waits.
///
/// # Errors
/// If the GPU can't do that, which [`A100`] can.
pub fn table_1(gpu: Gpu) -> Result<Vec<Row>, ProfilerError> {
    let simulated = Simulated::new(gpu, Method::default(), 0);
    let mut rows = Vec::new();
    for (paper, (nanobatches, perseus)) in
        TABLE_1
            .iter()
            .zip([(false, false), (false, true), (true, false), (true, true)])
    {
        let at = |stage, clock| microbatch(&simulated, nanobatches, stage, clock);
        let stages = [at(0, gpu.highest)?, at(1, gpu.highest)?];
        let slow = usize::from(stages[1].seconds > stages[0].seconds);
        let (bound, other) = (stages[slow], stages[1 - slow]);
        let mut relaxed = other;
        let mut clock = gpu.highest - gpu.step;
        while perseus && clock >= gpu.knee {
            let it = at(1 - slow, clock)?;
            if it.seconds <= bound.seconds && it.joules < relaxed.joules {
                relaxed = it;
            }
            clock -= gpu.step;
        }
        let seconds = MICROBATCHES * bound.seconds + other.seconds;
        let busy = [
            MICROBATCHES * bound.seconds,
            other.seconds + (MICROBATCHES - 1.0) * relaxed.seconds,
        ];
        let joules =
            MICROBATCHES * bound.joules + other.joules + (MICROBATCHES - 1.0) * relaxed.joules;
        let dynamic = joules - gpu.ready.0 * (busy[0] + busy[1]);
        rows.push(Row {
            system: paper.system,
            time: Millis(seconds * 1e3),
            resting: Joules(2.0 * STAGE * gpu.ready.0 * seconds),
            dynamic: Joules(STAGE * dynamic),
        });
    }
    Ok(rows)
}
