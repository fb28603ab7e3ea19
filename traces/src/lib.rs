//! Kernel traces of GPU nodes: readers that turn a profiler's files into a [`Timeline`] per
//! GPU, the alignment of those timelines, and what is computed from aligned timelines: lead
//! values (Algorithm 1 of the Lit Silicon paper), overlap ratios and busy fractions.

pub mod align;
pub mod analysis;
mod class;
mod cut;
mod error;
mod job;
pub mod kineto;
pub mod leads;
pub mod live;
mod pace;
mod spans;
mod text;
pub mod timeline;

pub use align::{AlignError, AlignOptions, Alignment, LeftOut, Selection, align};
pub use analysis::{AnalysisOptions, LeadValues, RankReport, Report, analyse};
pub use class::class_of;
pub use error::ReadError;
pub use job::join;
pub use kineto::Trace;
pub use leads::{Aggregation, Leads, aggregate, leads, straggler_wave};
pub use live::{Live, LiveError, LiveKernel, LiveReport};
pub use timeline::{
    Collective, CollectiveId, Iteration, Kernel, KernelClass, NameId, NameTable, StreamId, Timeline,
};
