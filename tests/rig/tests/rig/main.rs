//! The rig itself: its node, its ledger, its jobs and its clock.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod clock;
#[path = "../common/mod.rs"]
mod common;
mod job;
mod ledger;
mod node;
