//! Kernel traces of GPU nodes: readers that turn a profiler's files into a [`Timeline`] per
//! GPU, the alignment of those timelines, and what is computed from aligned timelines: lead
//! values (Algorithm 1 of the Lit Silicon paper), overlap ratios and busy fractions.

pub mod leads;
pub mod timeline;

pub use leads::{Aggregation, aggregate, straggler_wave};
pub use timeline::{
    Collective, CollectiveId, Iteration, Kernel, KernelClass, NameId, NameTable, StreamId, Timeline,
};
