//! Short traces that processes have recorded on demand: their kernels, and the iterations among these. The daemon reads
//! them, so whatever a file holds, it takes a bounded amount of memory and time.
//!
//! - [`read`]: a file's kernels, and the marks of optimizers' steps;
//! - [`cut`]: the whole iterations that all ranks of a job have recorded, with their boundaries.

mod cut;
mod period;
mod read;

pub use cut::{Cut, Cuts, Uncut, cut};
pub use read::{Demanded, Ran, Unread, read};
