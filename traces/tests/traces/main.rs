//! Traces as their users have them: files of every profiler, read, aligned and judged; and the same live.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod align;
mod classes;
#[cfg(feature = "formats")]
mod copies;
mod demand;
#[cfg(feature = "formats")]
mod encoded;
#[cfg(feature = "formats")]
mod formats;
mod kineto;
#[cfg(feature = "formats")]
mod launches;
mod live;
#[cfg(feature = "formats")]
mod profilers;
mod shared;
mod skew;
mod waits;
#[cfg(feature = "formats")]
mod wire;
