//! The simulated node: its files, its physics, its steps, the traces that it writes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in tests a panic is the report"
)]

mod clocks;
mod costs;
mod files;
mod kineto;
mod late;
mod oracle;
mod parallel;
mod plant;
mod stepping;
