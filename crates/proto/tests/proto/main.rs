//! The protocol between hooks and the daemon: its bytes, its limits, its properties.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod client;
mod conformance;
mod messages;
mod properties;
