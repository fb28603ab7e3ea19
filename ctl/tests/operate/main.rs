//! litctl as operators run it: the whole process, against the daemon, a stand-in for it, and planners.

// In tests a panic is the report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod audit;
mod caps;
mod carbon;
mod closed_loop;
mod control;
mod doctor;
mod job;
mod lease;
mod packaging;
mod plan;
mod plan_check;
mod plan_kareus;
mod plan_report;
mod providers;
mod qualify;
mod recorded;
mod replay;
mod reshard;
#[path = "../../../crates/api/tests/samples/mod.rs"]
mod samples;
#[path = "../../../planners/kareus/tests/kareus/common/mod.rs"]
mod sketch;
mod standin;
mod trace;

/// litctl, as it was built for this test.
const LITCTL: &str = env!("CARGO_BIN_EXE_litctl");
