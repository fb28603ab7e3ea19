//! The control interface of litd: HTTP with JSON on a unix socket. `litctl` and site tools speak
//! it; the daemon answers with these types. Fields are only ever added.
//!
//! | request | body | answer | right |
//! |---|---|---|---|
//! | `GET /v1/status` | | [`Status`] | read |
//! | `GET /v1/events?after=SEQ` | | [`Events`] | read |
//! | `GET /v1/trial` | | [`Trials`] | read |
//! | `GET /v1/trace` | | [`Traceable`] | read |
//! | `POST /v1/trace` | [`TraceWish`] | [`WishedTraces`] | write |
//! | `GET /v1/stacks` | | [`Stacks`] | read |
//! | `PUT /v1/lease` | [`Lease`] | [`Done`] | write |
//! | `DELETE /v1/lease` | | [`Done`] | write |
//! | `POST /v1/command` | [`Command`] | [`Done`] | write |
//!
//! Errors come with status 4xx or 5xx and a [`Problem`].
//!
//! [`audit`] is the log of all writes, which is on disk and needs no daemon to be read.

pub mod audit;
mod command;
mod crc;
mod event;
mod stacks;
mod status;
mod trace;
mod trial;

pub use command::{Command, Done, Lease, Problem, STOPPING};
pub use crc::crc32;
pub use event::{Event, EventKind, Events};
pub use stacks::{GoodStack, OffStack, STACKS_VERSION, Stacks, StacksFile};
pub use status::{
    AnnouncedJob, BuildInfo, Counter, DeviceRole, DeviceState, DeviceStatus, GpusStatus, JobState,
    JobStatus, LeaseStatus, Limiter, Mode, NodePeaks, NodePower, NodeStatus, PlanStatus,
    RankStatus, Status, Totals,
};
pub use trace::{
    Datagrams, RingsSeen, SampledJob, TraceStage, TraceWish, Traceable, TraceableProcess,
    WishedTrace, WishedTraces,
};
pub use trial::{HoldOutStatus, Trials};

/// The version of this interface; the path begins with it.
pub const VERSION: u32 = 1;

/// Where the daemon listens unless configured otherwise.
pub const DEFAULT_CONTROL_SOCKET: &str = "/run/litd/control.sock";
