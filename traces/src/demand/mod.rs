//! Evidence of processes without a hook: short traces that they have recorded on demand, and collectives that a plugin
//! has noted; and the iterations among these. The daemon reads them, so whatever they hold, it takes a bounded amount
//! of memory and time.
//!
//! - [`read`]: a file's kernels, and the marks of optimizers' steps;
//! - [`cut`]: the whole iterations that all ranks of a job have recorded, with their boundaries;
//! - [`repeats`]: the same of the collectives of one communicator, which have no kernels around them.

mod cut;
mod period;
mod read;
mod repeats;

pub use cut::{Cut, Cuts, Uncut, cut};
pub use read::{Demanded, Ran, Unread, read};
pub use repeats::{Called, NoRepeats, Repeats, repeats};
