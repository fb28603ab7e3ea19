//! Power domains: the GPUs and CPU sockets of a node, whatever driver caps them.
//!
//! One trait, [`PowerDomain`]; one file per back end. A domain is driven by one thread at a time
//! and may block: whoever calls it does so on a thread of its own ([`Worker`]) and with a
//! deadline.
//!
//! - [`simulated`]: stand-in hardware behind a unix socket.

mod domain;
mod error;
mod operation;
pub mod simulated;
mod worker;

pub use domain::{CapRange, DeviceKind, Identity, PowerDomain, Reading, Sharing};
pub use error::PowerError;
pub use operation::{Operation, Reply};
pub use worker::{Stopped, Worker};
