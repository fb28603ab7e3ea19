//! The daemon without its shell: events go in, effects come out. No clock, socket, thread or file is used here, so
//! that tests can drive it through any history from one seed.
//!
//! - [`event`]: inputs and outputs of the daemon;
//! - [`config`]: decisions of the administrator;
//! - [`store`]: the disk, as little of it as is needed;
//! - [`journal`] and [`learned`]: files in the store.
//!
//! Inside, [`Core`] is one state with a module for each concern: `hooks` (who may send what), `job` (samples and
//! loop of one job), `steering` (plans and decisions), `view` (the plain value that targets are worked out from),
//! `plan` (the targets, by a pure function), `caps` (budget shares, writes), `limits` (what limits each GPU),
//! `clocks` (those that jobs ask for), `planned` (the caps that those need), `hardware` (answers of devices,
//! faults, foreign changes), `settling` (whether power follows), `settle` and `thermal` (when samples count
//! again), `rivals` and `identity` (others who set caps, devices that were reset), `range` and `unjudged` (ranges
//! of caps, and devices whose driver does not tell them), `ailing` (parts that fail), `node` (the node's power, by
//! its BMC), `undo` (restoring caps), `ramp` (how fast caps rise), `writer` (journal and audit log: every write is on disk before it happens),
//! `trial` (the A/B experiment, the hold-out, harm), `authority` (who decides: mode, budget, lease, kill switch),
//! `admin` (commands), `status`. `invariants` has what is true of the state after every event.

mod admin;
mod ailing;
mod answering;
mod authority;
pub mod baseline;
pub mod budget;
mod by_hand;
mod caps;
mod cgroup;
mod clocks;
pub mod config;
mod core;
mod devices;
mod elsewhere;
pub mod event;
mod exit;
mod hardware;
mod holders;
mod hooks;
mod identity;
mod invariants;
mod job;
pub mod journal;
mod last_minute;
pub mod learned;
mod left_alone;
mod lifecycle;
mod limits;
mod mending;
mod names;
mod node;
mod outbox;
mod over_budget;
mod overhead;
mod owners;
mod plan;
mod planned;
pub mod profilers;
mod progress;
mod ramp;
mod range;
mod rate;
mod reason;
mod record;
mod records;
mod release;
mod resets;
mod rivals;
mod rollout;
pub mod room;
mod settle;
mod settling;
mod shares;
mod sockets;
mod standing;
mod status;
mod steering;
pub mod store;
mod tenant;
mod thermal;
mod ticks;
mod trial;
mod unbelieved;
mod undo;
mod unjudged;
mod unmanaged;
mod view;
mod writer;

pub use crate::ailing::adopt_condition;
pub use crate::authority::{canary_place, fnv1a};
pub use crate::cgroup::Home;
pub use crate::core::Core;
pub use crate::hooks::Crowd;
pub use crate::owners::Owners;
pub use crate::progress::{Progress, Stage};
pub use crate::range::Range;
pub use crate::records::{Records, Target};
pub use baseline::Baseline;
pub use config::Config;
pub use event::{
    Device, DeviceId, Doubt, Effect, Event, NodeReading, Operation, Peer, Reply, SessionId,
};
pub use exit::AboveSafe;
pub use room::{Full, Room, Table};
pub use store::{Appended, MemoryStore, Store};
pub use tenant::Tenant;
