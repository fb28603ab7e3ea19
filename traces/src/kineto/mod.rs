//! Reader of Kineto traces: the Chrome-trace JSON of PyTorch's profiler, plain or gzip.

#[cfg(feature = "recorded")]
mod collect;
pub(crate) mod event;
#[cfg(feature = "recorded")]
mod flows;
#[cfg(feature = "recorded")]
mod recorded;

#[cfg(feature = "recorded")]
pub use recorded::{read, read_file};
#[cfg(feature = "recorded")]
pub(crate) use recorded::{read_chosen, read_source};
