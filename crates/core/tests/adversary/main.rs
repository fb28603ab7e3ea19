//! A second model of a node with faults, written by somebody who had not read the laws that the
//! history test checks: GPUs that are reset, fall silent, fail a write and do it later. Attacks are
//! single tests, by subject; fuzzing asks what somebody would who looks at the node from outside.
//!
//! ```text
//! cargo test -p litd-core --test adversary                           a thousand seeds of each kind
//! LITD_FIRST_SEED=5000 cargo test -p litd-core --test adversary      a thousand from there on
//! LITD_SEED=4711 cargo test -p litd-core --test adversary -- anything --nocapture
//!                            one of anything, edges or smooth, with its log
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod anything;
mod audit;
mod bound;
mod budget;
mod calm;
mod counted;
mod disk;
mod disk_full;
mod edges;
mod failed;
mod forgetful;
mod given_up;
mod gpu;
mod hard;
mod landing;
mod leaving;
mod new_default;
mod node;
mod nonsense;
mod opted_out;
mod promised;
mod recalled;
mod refused;
mod reserve;
mod reset;
#[path = "../history/rng.rs"]
mod rng;
mod seeds;
mod silence;
mod smooth;
mod socket;
mod unread;
mod waits;
