//! The parts of an iteration: partitions to search, and the microbatches that they make.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::block::{Sizes, sequence};
use crate::partition::{Partition, Sequence};
use crate::partitioning::{PartitioningError, Repeated, partitions};
use crate::workload::Workload;

/// The direction of a microbatch, by the instruction's name.
pub const FORWARD: &str = "forward";
/// The other one. It contains the recomputation where there is one.
pub const BACKWARD: &str = "backward";

/// An iteration's parts: what to profile, and how microbatches are made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Every type of partition.
    pub partitions: Vec<Partition>,
    /// Every sequence: blocks without overlap, and what belongs to no block.
    pub sequences: Vec<Sequence>,
    /// The forward and the backward microbatch of each stage.
    pub microbatches: Vec<Microbatch>,
    /// Microbatches in an iteration.
    pub count: u32,
    /// Pipeline stages.
    pub stages: u32,
}

/// A microbatch of one stage and direction. Numbers are places in the job's lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Microbatch {
    /// The pipeline stage.
    pub stage: u32,
    /// [`FORWARD`] or [`BACKWARD`].
    pub instruction: &'static str,
    /// Partitions, and how often each is executed.
    pub overlapped: Vec<(usize, u32)>,
    /// The sequences that are executed instead of those in the sequential model.
    pub sequential: Vec<(usize, u32)>,
    /// The sequences that are executed either way.
    pub others: Vec<(usize, u32)>,
}

impl Job {
    /// The parts of a workload's iteration.
    ///
    /// # Errors
    /// If blocks have no partitions.
    pub fn new(workload: &Workload) -> Result<Self, PartitioningError> {
        let training = workload.training();
        let whole = Sizes::new(workload, training.microbatch as f64);
        let half = Sizes::new(workload, training.microbatch as f64 / 2.0);
        let forward = partitions(FORWARD, &half.forward())?;
        let backward = partitions(BACKWARD, &half.backward())?;
        let sequences = vec![
            sequence("forward/block", whole.forward()),
            sequence("backward/block", whole.backward()),
            whole.embedding(FORWARD),
            whole.embedding(BACKWARD),
            whole.output(FORWARD),
            whole.output(BACKWARD),
        ];
        let ahead = forward.len();
        let layers = workload.layers();
        let last = layers.len() - 1;
        let times = |all: &[Repeated], first: usize, layers: u32| -> Vec<(usize, u32)> {
            let counts = all.iter().map(|it| it.count * layers);
            (first..).zip(counts).collect()
        };
        let mut microbatches = Vec::with_capacity(2 * layers.len());
        for (stage, &layers) in layers.iter().enumerate() {
            let others = |direction: usize| {
                let embedding = (stage == 0).then_some((2 + direction, 1));
                let output = (stage == last).then_some((4 + direction, 1));
                embedding.into_iter().chain(output).collect()
            };
            microbatches.push(Microbatch {
                stage: stage as u32,
                instruction: FORWARD,
                overlapped: times(&forward, 0, layers),
                sequential: vec![(0, layers)],
                others: others(0),
            });
            let (mut overlapped, mut sequential) = (Vec::new(), Vec::new());
            if training.recompute {
                // The recomputed part of the forward pass has the same partitions.
                overlapped.extend(times(&forward, 0, layers));
                sequential.push((0, layers));
            }
            overlapped.extend(times(&backward, ahead, layers));
            sequential.push((1, layers));
            microbatches.push(Microbatch {
                stage: stage as u32,
                instruction: BACKWARD,
                overlapped,
                sequential,
                others: others(1),
            });
        }
        let all = forward.into_iter().chain(backward);
        Ok(Self {
            partitions: all.map(|it| it.partition).collect(),
            sequences,
            microbatches,
            count: training.microbatches,
            stages: layers.len() as u32,
        })
    }

    /// The seed of the search of the partition at a place: each has its own.
    #[must_use]
    pub fn seed(seed: u64, place: usize) -> u64 {
        seed ^ (place as u64) << 48
    }

    /// A partition's place by its name.
    #[must_use]
    pub fn places(&self) -> BTreeMap<&str, usize> {
        let names = self.partitions.iter().map(|it| it.name.as_str());
        names.zip(0..).collect()
    }
}
