//! Predictions against the listings that the paper prints, and what holds for any of them.
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod listings;
mod properties;
