//! Schedules against other solvers, replays over years that nobody knew, zones and live signals.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod common;
mod exact;
mod future;
mod milp;
#[path = "../../../perseus/tests/perseus/scipy.rs"]
mod scipy;
mod signal;
mod skill;
mod wrong;
mod zones;
