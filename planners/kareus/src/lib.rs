//! Kareus: which execution schedules of a training iteration no other beats in both time and energy
//! (Wu, Chung and Chowdhury, "Kareus: Joint Reduction of Dynamic and Static Energy in Large Model
//! Training").
//!
//! A [`Workload`] is divided into a [`Job`]: its partitions, each a sequence of computations beside one
//! communication, and the microbatches that consist of them. A schedule of a [`Partition`] has three parts: the
//! GPU's clock, the number of SMs that the communication has, and the computation with which it starts. Together
//! they are a [`Candidate`], one of a [`Space`]. A [`Profiler`] says how long a partition takes with one, and
//! what energy it uses.

mod block;
mod candidate;
mod compare;
mod compose;
mod contract;
mod explore;
mod iteration;
mod job;
mod judge;
mod partition;
mod partitioning;
pub mod patterns;
mod profile;
mod records;
mod repeating;
mod results;
pub mod search;
mod slack;
mod space;
mod sums;
mod workload;

pub use candidate::Candidate;
pub use compare::{IterationPoint, Reductions, reductions};
pub use compose::{Choice, Clocks, ComposeError, Execution, Method, Overlapped, microbatch};
pub use explore::{Searched, explore, profile_nanobatching, profile_sequences};
pub use iteration::{Iteration, IterationError, Planned};
pub use job::{BACKWARD, FORWARD, Job, Microbatch};
pub use judge::{Judged, judge};
pub use partition::{
    Collective, CollectiveKind, Communication, Computation, Partition, Sequence, Step, Work,
};
pub use partitioning::{Operation, Part, PartitioningError, Repeated, partitions};
pub use profile::{Measurement, Profiler, ProfilerError};
pub use records::{RecordError, Records};
pub use repeating::{Repeating, repeating};
pub use results::Results;
pub use space::{A100, Gpu, GpuError, Space};
pub use sums::{Sum, pareto_sums};
pub use workload::{Model, Training, Workload, WorkloadError};
