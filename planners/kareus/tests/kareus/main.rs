//! Kareus's partitions, search, composition and records, against the paper's numbers and independent computations.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod common;
mod compose;
mod judge;
mod partitions;
mod records;
mod search;
