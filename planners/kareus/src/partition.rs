//! The work of a GPU: computations, communications, and the partitions that they form.

use std::ops::{Add, Mul};

use serde::{Deserialize, Serialize};

/// The work of one execution on one GPU. Works add up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Floating-point operations of the matrix units (tensor cores), two for each multiply-add.
    pub matrix: f64,
    /// Floating-point operations of the vector units.
    pub vector: f64,
    /// Bytes read from the GPU's memory or written to it.
    pub bytes: f64,
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            matrix: self.matrix + other.matrix,
            vector: self.vector + other.vector,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl Mul<f64> for Work {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self {
            matrix: self.matrix * factor,
            vector: self.vector * factor,
            bytes: self.bytes * factor,
        }
    }
}

/// A computation, or several short memory-bound ones in a row that count as one (section 4.5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Computation {
    /// The computation's name, unique within its partition: norm, linear_0, rope, attention, ...
    pub name: String,
    /// The computation's work on a GPU with all of that GPU's SMs.
    pub work: Work,
}

/// A collective operation of a group of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveKind {
    /// Every GPU ends with the sum of all buffers: 2 (n - 1) / n of the buffer leave each of n GPUs.
    AllReduce,
    /// Every GPU ends with the buffer of which each had a part: (n - 1) / n of it reach each GPU.
    AllGather,
    /// Every GPU ends with its part of the sum of all buffers: (n - 1) / n of one leave each GPU.
    ReduceScatter,
}

/// A collective.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Collective {
    /// The kind.
    pub kind: CollectiveKind,
    /// The size of the whole buffer: of what is summed, or of what is there once all is gathered.
    pub bytes: f64,
    /// How many GPUs take part.
    pub group: u32,
}

/// A communication: one collective, or consecutive ones that are fused into one kernel, which share their
/// SMs (section 4.5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Communication {
    /// The collectives, one after another; at least one.
    pub collectives: Vec<Collective>,
}

/// Computations of one nanobatch beside a communication of the other: neither needs the other's result, so
/// the communication may start with any computation (section 4.2). A partition has ended once both have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// The partition's type, by which results are recorded: forward/attention, backward/mlp, ...
    pub name: String,
    /// In order, one after another; at least one. The work is a nanobatch's.
    pub computations: Vec<Computation>,
    /// The communication that runs beside them.
    pub communication: Communication,
}

/// Operations executed one after another, without overlap: a microbatch's block in the sequential model, or
/// operations of no partition (embedding, output layer, loss).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    /// By which results are recorded: forward/sequential, forward/embedding, ...
    pub name: String,
    /// In order.
    pub steps: Vec<Step>,
}

/// A part of a [`Sequence`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// On all SMs.
    Computation(Computation),
    /// Alone, with the communication library's default number of SMs.
    Communication(Communication),
}
