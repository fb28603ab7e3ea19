//! Software with which profilers were used on a node: what is known of it, and how it is carried to other nodes.

use serde::{Deserialize, Serialize};

/// The version of [`StacksFile`] that is written, and the only one read.
pub const STACKS_VERSION: u64 = 1;

/// The results of profilers on a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stacks {
    /// Software whose profiler lost nothing and did no harm.
    #[serde(default)]
    pub good: Vec<GoodStack>,
    /// Software whose profiler is not used any more.
    #[serde(default)]
    pub off: Vec<OffStack>,
}

/// Software whose profiler is good: no job has to try it first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoodStack {
    /// Versions of torch, of CUDA or ROCm, and of the profiler's library.
    pub software: String,
    /// So many users and pods have found it good here.
    #[serde(default)]
    pub users: usize,
    /// Whether it is good for everybody: an administrator brought it from another node.
    #[serde(default)]
    pub for_all: bool,
}

/// Software whose profiler is off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OffStack {
    /// Versions of torch, of CUDA or ROCm, and of the profiler's library.
    pub software: String,
    /// The reason, in words.
    pub reason: String,
    /// The user or pod whose words they are; absent if they are an administrator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_by: Option<String>,
    /// Whether it is off for everybody, and not only for the users whose jobs it slowed down.
    #[serde(default)]
    pub for_all: bool,
}

/// A file with [`Stacks`], as `litctl stacks export` writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StacksFile {
    /// The version of the format.
    #[serde(rename = "litd-stacks")]
    pub version: u64,
    /// The results.
    #[serde(flatten)]
    pub stacks: Stacks,
}
