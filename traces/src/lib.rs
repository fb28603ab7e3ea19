//! Kernel traces of GPU nodes: readers that turn a profiler's files into a [`Timeline`] per
//! GPU, the alignment of those timelines, and what is computed from aligned timelines: lead
//! values (Algorithm 1 of the Lit Silicon paper), overlap ratios, busy fractions, and the paper's
//! whole analysis with a diagnosis ([`study`]).
//!
//! The feature `formats` (on by default) reads every format; without it only Kineto's JSON is.
#![cfg_attr(
    feature = "formats",
    doc = r#"
```no_run
use litd_traces::{AlignOptions, formats, join, study};

fn diagnose(files: &[std::path::PathBuf]) -> Result<(), Box<dyn std::error::Error>> {
    let traces = files.iter().map(|file| formats::read_file(file, None));
    let (mut timelines, _notes) = join(traces.collect::<Result<_, _>>()?)?;
    let skew = study::remove_skew(&mut timelines);
    let options = study::ModelOptions::default();
    let study = study::study(&timelines, skew, &AlignOptions::default(), &options)?;
    println!("{:?}: {:?}", study.diagnosis.cause, study.diagnosis.evidence);
    Ok(())
}
```
"#
)]
// Parts of what judges one iteration serve recorded traces only.
#![cfg_attr(not(feature = "recorded"), allow(dead_code, unused_imports))]

pub mod align;
#[cfg(feature = "recorded")]
pub mod analysis;
pub mod arrivals;
mod class;
#[cfg(feature = "recorded")]
mod collectives;
mod cut;
#[cfg(feature = "demand")]
pub mod demand;
#[cfg(feature = "recorded")]
mod error;
#[cfg(feature = "recorded")]
pub mod folder;
#[cfg(feature = "formats")]
pub mod formats;
#[cfg(feature = "recorded")]
mod gather;
#[cfg(feature = "recorded")]
pub mod groups;
mod idle;
#[cfg(feature = "recorded")]
mod job;
#[cfg(feature = "demand")]
mod json;
#[cfg(feature = "demand")]
pub mod kineto;
pub mod leads;
mod limit;
pub mod live;
mod marks;
#[cfg(feature = "recorded")]
mod natural;
mod pace;
mod skew;
#[cfg(feature = "recorded")]
mod source;
mod spans;
#[cfg(feature = "recorded")]
pub mod study;
mod text;
#[cfg(feature = "recorded")]
mod time;
pub mod timeline;
#[cfg(feature = "recorded")]
pub mod whatif;
#[cfg(feature = "recorded")]
mod wild;
mod window;

pub use align::{AlignError, AlignOptions, Alignment, LeftOut, Selection, align};
#[cfg(feature = "recorded")]
pub use analysis::{AnalysisOptions, GroupReport, RankReport, Report, analyse, analyse_groups};
pub use class::{Classes, Suspect, Suspicion, class_of, suspects};
#[cfg(feature = "recorded")]
pub use collectives::{CollectiveRow, GroupWaits, Lag};
#[cfg(feature = "recorded")]
pub use error::ReadError;
#[cfg(feature = "recorded")]
pub use gather::{Choice, Trace};
#[cfg(feature = "recorded")]
pub use groups::{Communicator, Exchange, Groups, partition};
#[cfg(feature = "recorded")]
pub use job::{common_iterations, join};
pub use leads::{Aggregation, LeadValues, Leads, aggregate, leads, straggler_wave};
pub use limit::{Limit, limit_of};
pub use litd_diagnosis::{Cause, Marks};
pub use live::{Live, LiveError, LiveKernel, LiveReport, Shows};
#[cfg(feature = "recorded")]
pub use natural::natural;
pub use text::printable;
#[cfg(feature = "recorded")]
pub use time::{Gaps, Split, Standstill, TopKernel};
pub use timeline::{
    Collective, CollectiveId, Iteration, Kernel, KernelClass, Moment, NameId, NameTable, NonMax,
    StreamId, Timeline,
};
