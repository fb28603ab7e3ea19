//! Each back end on a tree of made-up files, and the process that asks a library.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod amdgpu;
mod amdgpu_odd;
mod holders;
mod hsmp;
mod powercap;
mod tree;
mod worker;
