//! Parts of core by themselves: its files, and whose process a rank is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod cgroup;
mod journal;
mod journal_length;
mod learned;
