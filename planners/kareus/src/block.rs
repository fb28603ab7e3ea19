//! The operations of one Transformer block, with what each asks of a GPU.

use crate::partition::{Collective, CollectiveKind, Computation, Sequence, Step, Work};
use crate::partitioning::{Operation, Part};
use crate::workload::Workload;

/// Numbers are of 16 bits: bf16 activations and weights.
const BYTES: f64 = 2.0;
/// Gradients of weights are added up in 32 bits: each is read and written.
const GRADIENT_BYTES: f64 = 8.0;
/// A causal mask leaves half of the products of queries and keys.
const CAUSAL: f64 = 0.5;

/// Sizes of the work of one GPU, for some number of sequences.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    tokens: f64,
    sequence: f64,
    context: f64,
    tensor_parallel: u32,
    context_parallel: u32,
    hidden: f64,
    heads: f64,
    /// The width of a GPU's query heads together.
    query: f64,
    /// The width of a GPU's heads of keys; that of values is the same.
    key: f64,
    mlp: f64,
    vocabulary: f64,
}

impl Sizes {
    /// Of so many sequences: a microbatch, or the half of one that a nanobatch is.
    pub(crate) fn new(workload: &Workload, sequences: f64) -> Self {
        let (model, training) = (workload.model(), workload.training());
        let tensor = f64::from(training.tensor_parallel);
        let context = f64::from(training.context_parallel);
        let dimension = model.head_dim() as f64;
        let heads = model.num_attention_heads as f64 / tensor;
        Self {
            tokens: sequences * training.sequence as f64 / context,
            sequence: training.sequence as f64,
            context,
            tensor_parallel: training.tensor_parallel,
            context_parallel: training.context_parallel,
            hidden: model.hidden_size as f64,
            heads,
            query: heads * dimension,
            key: (model.key_value_heads() as f64 / tensor).max(1.0) * dimension,
            mlp: model.intermediate_size as f64 / tensor,
            vocabulary: model.vocab_size as f64 / tensor,
        }
    }

    /// The forward pass of a block, from its first addition to its last sum.
    pub(crate) fn forward(&self) -> Vec<Operation> {
        let mut all = vec![
            compute("add", Part::None, self.add()),
            compute("norm", Part::None, self.norm()),
            compute("linear", Part::Qkv, self.qkv(Self::linear)),
            compute("rope", Part::Qkv, self.rope()),
        ];
        all.extend(self.keys_and_values(CollectiveKind::AllGather));
        all.push(compute("attn", Part::Attention, self.attention()));
        let output = self.linear(self.query, self.hidden);
        all.push(compute("linear", Part::Output, output));
        all.extend(self.sum());
        all.push(compute("add", Part::None, self.add()));
        all.push(compute("norm", Part::None, self.norm()));
        let up = self.linear(self.hidden, 2.0 * self.mlp);
        all.push(compute("linear", Part::Mlp, up));
        all.push(compute("activation", Part::Mlp, self.activation(3.0)));
        let down = self.linear(self.mlp, self.hidden);
        all.push(compute("linear", Part::Mlp, down));
        all.extend(self.sum());
        all
    }

    /// The backward pass of a block. Gradients are summed before those of a norm, which so is the first
    /// computation after the communication (figure 10).
    pub(crate) fn backward(&self) -> Vec<Operation> {
        let down = self.linear_backward(self.mlp, self.hidden);
        let up = self.linear_backward(self.hidden, 2.0 * self.mlp);
        let mut all = vec![
            compute("linear", Part::Mlp, down),
            compute("activation", Part::Mlp, self.activation(5.0)),
            compute("linear", Part::Mlp, up),
        ];
        all.extend(self.sum());
        all.push(compute("norm", Part::None, self.norm() * 1.5));
        all.push(compute("add", Part::None, self.add()));
        let output = self.linear_backward(self.query, self.hidden);
        all.push(compute("linear", Part::Output, output));
        all.extend(self.keys_and_values(CollectiveKind::AllGather));
        // Five products instead of two (FlashAttention), softmax once more.
        let attention = self.attention();
        let attention = Work {
            matrix: 2.5 * attention.matrix,
            vector: 2.0 * attention.vector,
            bytes: 2.0 * attention.bytes,
        };
        all.push(compute("attn", Part::Attention, attention));
        all.extend(self.keys_and_values(CollectiveKind::ReduceScatter));
        all.push(compute("rope", Part::Qkv, self.rope()));
        let qkv = self.qkv(Self::linear_backward);
        all.push(compute("linear", Part::Qkv, qkv));
        all.extend(self.sum());
        all.push(compute("norm", Part::None, self.norm() * 1.5));
        all.push(compute("add", Part::None, self.add()));
        all
    }

    /// The first stage's work before its blocks, and after them in the backward pass.
    pub(crate) fn embedding(&self, pass: &str) -> Sequence {
        let backward = pass == "backward";
        let bytes = if backward {
            BYTES + GRADIENT_BYTES
        } else {
            2.0 * BYTES
        };
        let work = memory(0.0, bytes * self.tokens * self.hidden);
        let mut all = vec![compute("embedding", Part::None, work)];
        all.extend(self.sum().filter(|_| !backward));
        sequence(&format!("{pass}/embedding"), all)
    }

    /// The last stage's work after its blocks: norm, output layer and loss.
    pub(crate) fn output(&self, pass: &str) -> Sequence {
        let backward = pass == "backward";
        let logits = self.tokens * self.vocabulary;
        let loss = compute("loss", Part::None, memory(5.0 * logits, 3.0 * 4.0 * logits));
        let norm = compute("norm", Part::None, self.norm());
        let all = if backward {
            let linear = self.linear_backward(self.hidden, self.vocabulary);
            let linear = compute("linear", Part::None, linear);
            let sum = self.sum().into_iter();
            [loss, linear]
                .into_iter()
                .chain(sum)
                .chain([norm])
                .collect()
        } else {
            let linear = self.linear(self.hidden, self.vocabulary);
            vec![norm, compute("linear", Part::None, linear), loss]
        };
        sequence(&format!("{pass}/output"), all)
    }

    fn linear(&self, from: f64, to: f64) -> Work {
        Work {
            matrix: 2.0 * self.tokens * from * to,
            vector: 0.0,
            bytes: BYTES * (self.tokens * (from + to) + from * to),
        }
    }

    /// Gradients of inputs and of weights.
    fn linear_backward(&self, from: f64, to: f64) -> Work {
        Work {
            matrix: 4.0 * self.tokens * from * to,
            vector: 0.0,
            bytes: 2.0 * BYTES * self.tokens * (from + to) + (BYTES + GRADIENT_BYTES) * from * to,
        }
    }

    fn qkv(&self, linear: impl Fn(&Self, f64, f64) -> Work) -> Work {
        linear(self, self.hidden, self.query + 2.0 * self.key)
    }

    fn add(&self) -> Work {
        memory(
            self.tokens * self.hidden,
            3.0 * BYTES * self.tokens * self.hidden,
        )
    }

    fn norm(&self) -> Work {
        memory(
            6.0 * self.tokens * self.hidden,
            2.0 * BYTES * self.tokens * self.hidden,
        )
    }

    fn rope(&self) -> Work {
        let turned = self.tokens * (self.query + self.key);
        memory(6.0 * turned, 2.0 * BYTES * turned)
    }

    /// So many values are read or written for each value of the MLP's width.
    fn activation(&self, values: f64) -> Work {
        let all = self.tokens * self.mlp;
        memory(8.0 * all, values * BYTES * all)
    }

    /// A GPU has the queries of its part of the sequence, and all keys and values.
    fn attention(&self) -> Work {
        let pairs = CAUSAL * self.tokens * self.sequence;
        let keys = self.tokens * self.context * self.key;
        Work {
            matrix: 4.0 * pairs * self.query,
            vector: 5.0 * pairs * self.heads,
            bytes: BYTES * 2.0 * (self.tokens * self.query + keys),
        }
    }

    /// The sum over the GPUs that share tensors.
    fn sum(&self) -> Option<Operation> {
        let one = Operation::Collective(Collective {
            kind: CollectiveKind::AllReduce,
            bytes: BYTES * self.tokens * self.hidden,
            group: self.tensor_parallel,
        });
        (self.tensor_parallel > 1).then_some(one)
    }

    /// The collectives of keys and of values, between the GPUs that share sequences.
    fn keys_and_values(&self, kind: CollectiveKind) -> impl Iterator<Item = Operation> + use<> {
        let one = Operation::Collective(Collective {
            kind,
            bytes: BYTES * self.tokens * self.context * self.key,
            group: self.context_parallel,
        });
        let count = if self.context_parallel > 1 { 2 } else { 0 };
        std::iter::repeat_n(one, count)
    }
}

/// The same operations without overlap.
pub(crate) fn sequence(name: &str, operations: Vec<Operation>) -> Sequence {
    let step = |operation| match operation {
        Operation::Computation { name, work, .. } => Step::Computation(Computation { name, work }),
        Operation::Collective(one) => Step::Communication(crate::partition::Communication {
            collectives: vec![one],
        }),
    };
    Sequence {
        name: name.to_owned(),
        steps: operations.into_iter().map(step).collect(),
    }
}

fn compute(name: &str, part: Part, work: Work) -> Operation {
    Operation::Computation {
        name: name.to_owned(),
        part,
        work,
    }
}

fn memory(vector: f64, bytes: f64) -> Work {
    Work {
        matrix: 0.0,
        vector,
        bytes,
    }
}
