//! The programs of a job's ranks for one iteration.

use super::{Parallel, Place};

/// A step of a rank's program.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Op {
    /// A kernel.
    Compute {
        name: &'static str,
        work: f64,
        clock_bound: f64,
    },
    /// A collective, which the rank waits for.
    Collective(Exchange),
    /// A send to another rank, which the rank does not wait for.
    Send { to: usize, pair: Exchange },
    /// A receive from another rank, which the rank waits for.
    Receive { from: usize, pair: Exchange },
}

impl Op {
    /// Whether its work depends on how tokens are divided.
    pub(super) fn is_expert(&self) -> bool {
        matches!(self, Self::Compute { name, .. } if name.contains("expert"))
    }
}

/// A transfer between ranks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exchange {
    /// The name in the framework, and that of NCCL's kernel.
    pub(super) name: &'static str,
    pub(super) kernel: &'static str,
    /// The process group: what it is for, and its ranks.
    pub(super) description: &'static str,
    pub(super) ranks: Vec<usize>,
    /// Time from the last arrival to the end, in milliseconds.
    pub(super) transfer: f64,
    /// Elements of two bytes.
    pub(super) elements: u64,
}

const SEND_RECV: &str = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
const ALL_REDUCE: &str =
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

/// Name, work in milliseconds and clock-bound part of what comes before and after the exchange of
/// a layer's attention.
const ATTENTION: [&[(&str, f64, f64)]; 2] = [
    &[("attn_norm", 0.05, 0.1), ("qkv_proj_gemm", 0.4, 0.95)],
    &[("flash_attention", 0.4, 0.9), ("out_proj_gemm", 0.3, 0.95)],
];
const DENSE: &[(&str, f64, f64)] = &[
    ("mlp_norm", 0.05, 0.1),
    ("up_proj_gemm", 0.6, 0.95),
    ("silu_mul", 0.06, 0.1),
    ("down_proj_gemm", 0.6, 0.95),
];
/// Before tokens are sent to experts, and there.
const EXPERTS: [&[(&str, f64, f64)]; 2] = [
    &[("mlp_norm", 0.05, 0.1), ("router_gemm", 0.1, 0.95)],
    &[
        ("grouped_gemm_expert_up", 0.6, 0.95),
        ("silu_mul", 0.06, 0.1),
        ("grouped_gemm_expert_down", 0.6, 0.95),
    ],
];

/// Writes one rank's program.
struct Writer<'a> {
    job: &'a Parallel,
    place: Place,
    ops: Vec<Op>,
}

/// The program of a rank: 1F1B, then the gradients of replicas.
pub(super) fn of(job: &Parallel, rank: usize) -> Vec<Op> {
    let place = job.place(rank);
    let mut writer = Writer {
        job,
        place,
        ops: Vec::new(),
    };
    let ahead = (job.pipeline - 1 - place.stage).min(job.microbatches);
    for _ in 0..ahead {
        writer.forward();
    }
    for _ in ahead..job.microbatches {
        writer.forward();
        writer.backward();
    }
    for _ in 0..ahead {
        writer.backward();
    }
    writer.gradients();
    writer.ops
}

impl Writer<'_> {
    fn is_last(&self) -> bool {
        self.place.stage + 1 == self.job.pipeline
    }

    fn forward(&mut self) {
        let Place { stage, .. } = self.place;
        match stage {
            0 => self.compute(&[("embedding", 0.1, 0.1)], 1.0),
            _ => self.neighbour(stage - 1, false),
        }
        for _ in 0..self.job.layers {
            self.layer(1.0);
        }
        match self.is_last() {
            true => self.compute(
                &[("lm_head_gemm", 0.3, 0.95), ("softmax_loss", 0.1, 0.1)],
                1.0,
            ),
            false => self.neighbour(stage + 1, true),
        }
    }

    fn backward(&mut self) {
        let Place { stage, .. } = self.place;
        match self.is_last() {
            true => self.compute(&[("lm_head_dgrad_gemm", 0.6, 0.95)], 1.0),
            false => self.neighbour(stage + 1, false),
        }
        for _ in 0..self.job.layers {
            self.layer(2.0);
        }
        match stage {
            0 => self.compute(&[("embedding_backward", 0.2, 0.1)], 1.0),
            _ => self.neighbour(stage - 1, true),
        }
    }

    fn compute(&mut self, kernels: &[(&'static str, f64, f64)], times: f64) {
        for &(name, work, clock_bound) in kernels {
            self.ops.push(Op::Compute {
                name,
                work: work * times,
                clock_bound,
            });
        }
    }

    fn layer(&mut self, times: f64) {
        self.compute(ATTENTION[0], times);
        self.ring();
        self.compute(ATTENTION[1], times);
        self.tensors();
        if self.job.expert > 1 {
            self.compute(EXPERTS[0], times);
            self.tokens();
            self.compute(EXPERTS[1], times);
            self.tokens();
        } else {
            self.compute(DENSE, times);
        }
        self.tensors();
    }

    fn collective(&mut self, exchange: Exchange) {
        if exchange.ranks.len() > 1 {
            self.ops.push(Op::Collective(exchange));
        }
    }

    /// The ranks whose places are this rank's but for one of its numbers, in order.
    fn along(&self, number: fn(&mut Place) -> &mut usize) -> Vec<usize> {
        let without = |mut place: Place| {
            *number(&mut place) = 0;
            place
        };
        let own = without(self.place);
        self.job.picked(|other| without(*other) == own)
    }

    /// The sum over the ranks that share tensors.
    fn tensors(&mut self) {
        let ranks = self.along(|place| &mut place.tensor);
        self.collective(Exchange {
            name: "allreduce",
            kernel: ALL_REDUCE,
            description: "mesh_tp",
            ranks,
            transfer: 0.05,
            elements: 4 << 20,
        });
    }

    /// Keys and values, handed round the ranks that share a sequence.
    fn ring(&mut self) {
        let ranks = self.along(|place| &mut place.context);
        self.collective(Exchange {
            name: "coalesced",
            kernel: SEND_RECV,
            description: "mesh_cp",
            ranks,
            transfer: 0.08,
            elements: 2 << 20,
        });
    }

    /// Tokens, to the ranks that have their experts or back.
    fn tokens(&mut self) {
        let (own, expert) = (self.place, self.job.expert);
        let ranks = self.job.picked(|other| {
            let same = Place {
                data: own.data,
                ..*other
            } == own;
            same && other.data / expert == own.data / expert
        });
        self.collective(Exchange {
            name: "all_to_allv",
            kernel: SEND_RECV,
            description: "mesh_ep",
            ranks,
            transfer: 0.1,
            elements: 1 << 20,
        });
    }

    /// The sum of gradients over replicas.
    fn gradients(&mut self) {
        let ranks = self.along(|place| &mut place.data);
        self.collective(Exchange {
            name: "allreduce",
            kernel: ALL_REDUCE,
            description: "mesh_dp",
            ranks,
            transfer: 2.0,
            elements: 100 << 20,
        });
        self.compute(&[("multi_tensor_apply_adam", 0.5, 0.1)], 1.0);
    }

    /// Activations or gradients to the same place in another stage, or from there.
    fn neighbour(&mut self, stage: usize, sends: bool) {
        let ranks = self.along(|place| &mut place.stage);
        let Some(&peer) = ranks.get(stage) else {
            return;
        };
        let pair = Exchange {
            name: if sends { "send" } else { "recv" },
            kernel: SEND_RECV,
            description: "mesh_pp",
            ranks,
            transfer: 0.05,
            elements: 4 << 20,
        };
        self.ops.push(match sends {
            true => Op::Send { to: peer, pair },
            false => Op::Receive { from: peer, pair },
        });
    }
}
