//! Kareus: which execution schedules of a training iteration no other beats in both time and energy
//! (Wu, Chung and Chowdhury, "Kareus: Joint Reduction of Dynamic and Static Energy in Large Model
//! Training").
//!
//! A schedule has three parts for each [`Partition`], which is a sequence of computations beside one
//! communication: the GPU's clock, the number of SMs that the communication has, and the computation with
//! which it starts. Together they are a [`Candidate`]. A [`Profiler`] says how long a partition takes with
//! one, and what energy it uses.

mod candidate;
mod partition;
mod profile;

pub use candidate::Candidate;
pub use partition::{
    Collective, CollectiveKind, Communication, Computation, Partition, Sequence, Step, Work,
};
pub use profile::{Measurement, Profiler, ProfilerError};
