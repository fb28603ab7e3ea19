//! Reader of Kineto traces: the Chrome-trace JSON of PyTorch's profiler, plain or gzip.

#[cfg(feature = "recorded")]
mod collect;
pub(crate) mod event;
#[cfg(feature = "recorded")]
mod flows;
#[cfg(feature = "recorded")]
mod recorded;

#[cfg(all(feature = "recorded", not(feature = "formats")))]
pub(crate) use recorded::read_chosen;
#[cfg(feature = "formats")]
pub(crate) use recorded::read_source;
#[cfg(feature = "recorded")]
pub use recorded::{read, read_file};
