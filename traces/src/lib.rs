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

pub mod align;
pub mod analysis;
mod class;
mod collectives;
mod cut;
mod error;
pub mod folder;
#[cfg(feature = "formats")]
pub mod formats;
mod gather;
pub mod groups;
mod idle;
mod job;
mod json;
pub mod kineto;
pub mod leads;
mod limit;
pub mod live;
mod marks;
mod natural;
mod pace;
mod skew;
mod source;
mod spans;
pub mod study;
mod text;
mod time;
pub mod timeline;
pub mod whatif;
mod wild;
mod window;

pub use align::{AlignError, AlignOptions, Alignment, LeftOut, Selection, align};
pub use analysis::{
    AnalysisOptions, GroupReport, LeadValues, RankReport, Report, analyse, analyse_groups,
};
pub use class::{Classes, Suspect, Suspicion, class_of, suspects};
pub use collectives::{CollectiveRow, GroupWaits, Lag};
pub use error::ReadError;
pub use gather::{Choice, Trace};
pub use groups::{Communicator, Exchange, Groups, partition};
pub use job::{common_iterations, join};
pub use leads::{Aggregation, Leads, aggregate, leads, straggler_wave};
pub use limit::{Limit, limit_of};
pub use litd_diagnosis::{Cause, Marks};
pub use live::{Live, LiveError, LiveKernel, LiveReport};
pub use natural::natural;
pub use text::printable;
pub use time::{Gaps, Split, TopKernel};
pub use timeline::{
    Collective, CollectiveId, Iteration, Kernel, KernelClass, Moment, NameId, NameTable, NonMax,
    StreamId, Timeline,
};
