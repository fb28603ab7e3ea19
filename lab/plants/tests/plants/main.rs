//! Plants: what must hold of each, their data, their page.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod docs;
mod physics;
mod recorded;
