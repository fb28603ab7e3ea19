//! Upper bounds of a fleet's gains from moving power between GPUs, from telemetry that the owner already has. No
//! I/O, no clock: samples go in one by one, an [`Estimate`] comes out.
//!
//! - [`Sample`]: one reading of one GPU; impossible values are dropped ([`Quantity`]).
//! - [`Fleet`]: statistics of the samples, a few kilobytes for each GPU however many samples there are.
//! - [`Estimate`]: per node and for the fleet the limiters of the GPUs, how far apart they are, whether that
//!   persists, an upper bound of each policy's gain, and questions that the data can't answer.
//!
//! docs/estimate.md derives the bounds and names their assumptions.

#![forbid(unsafe_code)]

mod bins;
mod bound;
mod channel;
mod compare;
mod estimate;
mod fleet;
mod gpu;
mod node;
mod sample;
mod sketch;

pub use bins::{BINS, TimeBins};
pub use bound::{Bound, LARGEST_SLOPE, SMALLEST_SLOPE};
pub use compare::{LEAST_SLOWER, PERSISTS, REPAIR_SIGMAS};
pub use estimate::{Estimate, FleetEstimate, Gap, Slow, Triple};
pub use fleet::{Fleet, Refused, Seen};
pub use gpu::{Gpu, MOST_GPUS};
pub use node::{HIGHEST_CAP_UNKNOWN, Intervals, LEAST_SAMPLES, NodeEstimate, PerPolicy, Range};
pub use sample::{BURSTS, NEAR_CAP, Quantity, Sample};
pub use sketch::{BUCKETS, Sketch};
