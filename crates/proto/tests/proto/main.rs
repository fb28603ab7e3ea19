//! What hooks and the daemon say to each other: its bytes, its limits, its properties.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod client;
mod conformance;
mod messages;
mod properties;
