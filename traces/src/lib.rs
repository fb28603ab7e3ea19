//! Kernel traces of GPU nodes: readers that turn a profiler's files into a [`Timeline`] per
//! GPU, the alignment of those timelines, and what is computed from aligned timelines: lead
//! values (Algorithm 1 of the Lit Silicon paper), overlap ratios and busy fractions.

pub mod align;
pub mod analysis;
mod class;
mod cut;
mod error;
#[cfg(feature = "formats")]
pub mod formats;
mod gather;
mod job;
mod json;
pub mod kineto;
pub mod leads;
pub mod live;
mod pace;
mod source;
mod spans;
pub mod study;
mod text;
pub mod timeline;

pub use align::{AlignError, AlignOptions, Alignment, LeftOut, Selection, align};
pub use analysis::{AnalysisOptions, LeadValues, RankReport, Report, analyse};
pub use class::class_of;
pub use error::ReadError;
pub use gather::Trace;
pub use job::join;
pub use leads::{Aggregation, Leads, aggregate, leads, straggler_wave};
pub use live::{Live, LiveError, LiveKernel, LiveReport};
pub use timeline::{
    Collective, CollectiveId, Iteration, Kernel, KernelClass, NameId, NameTable, StreamId, Timeline,
};
