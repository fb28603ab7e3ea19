//! The daemon without its shell: events go in, effects come out. No clock, socket, thread or file is used here, so
//! that tests can drive it through any history from one seed.
//!
//! - [`event`]: inputs and outputs of the daemon;
//! - [`config`]: decisions of the administrator;
//! - [`store`]: the operations on files that the core needs;
//! - [`journal`] and [`learned`]: files in the store.
//!
//! Inside, [`Core`] routes events to these parts:
//!
//! - `authority`: who decides (mode, budget, lease, kill switch, commands), whom steering has harmed, and what litd
//!   leaves behind;
//! - `devices`: what each holds, how it answers, whose its cap is, what limits it, whether it is failing;
//! - `hooks`: who may connect and send what, whose processes use a GPU, what is known of profilers;
//! - `job`: all jobs and what was learned from them; of each its ranks, samples, loop, share of a budget, and what the
//!   scheduler says;
//! - `clocks`: those that jobs ask for, and the caps that these need;
//! - `node`: its power by its BMC, and other programs that set caps here;
//! - `view`, `plan`, `reason`: the plain value that a pure function computes targets from, and why;
//! - `facts`: what follows from the state of these, for all that decide or tell;
//! - `caps`, `ramp`, `writer`: when targets are computed and written, how fast they rise, the journal and the audit
//!   log, which know of every write before it happens;
//! - `budget`, `sockets`, `baseline`: which budgets the GPUs can keep, CPU sockets that lend watts, and the caps found
//!   as litd publishes them;
//! - `records`: the same records of writes, for `litd qualify`;
//! - `rate`, `room`: how often peers may send, and how many bytes each may fill;
//! - `undo`: caps that a predecessor left, that are released, that an administrator sets, or that stay;
//! - `trial`: the A/B experiment, the hold-out;
//! - `condition`: what outlives litd besides the journal, the log and what was learned;
//! - `rounds`: what is done once a second;
//! - `status`, `record`, `outbox`: what people and the shell are told;
//! - `invariants`: what is true of the state after every event.

mod authority;
pub mod baseline;
pub mod budget;
mod caps;
mod clocks;
mod condition;
pub mod config;
mod core;
mod devices;
pub mod event;
mod facts;
mod hooks;
mod invariants;
mod job;
pub mod journal;
pub mod learned;
mod node;
mod outbox;
mod plan;
mod ramp;
mod rate;
mod reason;
mod record;
mod records;
pub mod room;
mod rounds;
mod sockets;
#[cfg(test)]
mod stand;
mod status;
pub mod store;
mod trial;
mod undo;
mod view;
mod writer;

pub use crate::authority::{canary_place, fnv1a};
pub use crate::condition::{HadLast, adopt_conditions};
pub use crate::core::Core;
pub use crate::devices::range::Range;
pub use crate::hooks::Crowd;
pub use crate::hooks::cgroup::Home;
pub use crate::hooks::owners::Owners;
pub use crate::records::{Records, Target};
pub use crate::undo::predecessor::Unclaimed;
pub use crate::undo::progress::{Progress, Stage};
pub use authority::exit::AboveSafe;
pub use baseline::Baseline;
pub use config::Config;
pub use event::{
    Device, DeviceId, Doubt, Effect, Event, NodeReading, Operation, Peer, Reply, SessionId,
};
pub use hooks::profilers;
pub use hooks::tenant::Tenant;
pub use room::{Full, Room, Table};
pub use store::{Appended, MemoryStore, Store};
pub use writer::only_restores;
