//! Recordings of nodes: the files that litd's back ends read on a node, with their values, as `litctl doctor --record`
//! writes them. A stand-in (`litd-rig-sysfs`) shows a recording as a node's `/sys`, `/proc` and `/dev`, so that what
//! litd does on that node can be seen and tested elsewhere.
//!
//! - [`take`]: reads a node, each driver for at most so long, and hashes serial numbers;
//! - [`Recording::parse`], [`Recording::to_json`]: the format, whose paths can't leave the tree.

mod format;
mod node;
mod take;

pub use format::{Content, Entry, LONGEST, Mode, Recording, SCHEMA, Unfit};
pub use take::{Roots, take};
