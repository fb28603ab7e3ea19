//! Frontiers and plans against certificates, references and other solvers.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod baselines;
mod certificate;
mod common;
mod optimal;
mod plans;
mod pricing;
mod reference;
mod schedules;
mod scipy;
