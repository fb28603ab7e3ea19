//! What processes without a hook tell litd, without I/O and without a clock: the datagrams of PyTorch's on-demand
//! client, and the rings of the plugin for NCCL.
//!
//! A process that was started with `KINETO_USE_DAEMON` has a thread of libkineto's that asks a daemon every 5 s, by
//! one datagram, whether it is to record a trace; the daemon that the client knows is dynolog, and litd answers in
//! its place. Sockets, procfs and files are the shell's.
//!
//! - [`Message`]: the datagrams that clients send, checked; [`answer`] and [`registered`]: those that they get;
//! - [`Trace`]: the configuration of one trace, as libkineto reads it;
//! - [`Desk`]: who has asked, which of them is to record a trace, and which has been told; bounded in all its parts;
//! - [`Rounds`]: when a job is asked for its next trace, and what its traces tell of it;
//! - [`Looks`]: when the rings of a job are looked at next;
//! - [`ring`]: the collectives of a process, as the plugin for NCCL and RCCL writes them and litd reads them.

mod desk;
mod looks;
mod message;
pub mod ring;
mod rounds;
mod trace;

pub use desk::{Client, Counts, Desk, Looked, NoWish, Outcome, Owner, Sender, Stage, Ticket};
pub use looks::Looks;
pub use message::{HEAD, LONGEST, Malformed, Message, Poll, Register, answer, registered};
pub use rounds::{Course, Heard, Numbers, Rounds, WhyOver};
pub use trace::{BadTrace, Trace, Window};
