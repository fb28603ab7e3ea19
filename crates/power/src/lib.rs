//! Power domains: the GPUs and CPU sockets of a node, whatever driver caps them.
//!
//! One trait, [`PowerDomain`]; one file per back end. A domain is driven by one thread at a time
//! and may block: whoever calls it does so on a thread of its own ([`Worker`]) and with a
//! deadline.
//!
//! - [`amdgpu`]: AMD GPUs through sysfs, the default;
//! - [`rocm_smi`]: AMD GPUs through ROCm SMI or AMD SMI;
//! - [`nvml`]: NVIDIA GPUs;
//! - [`powercap`]: Intel CPU sockets;
//! - [`hsmp`]: AMD EPYC sockets;
//! - [`simulated`]: stand-in hardware behind a unix socket.

pub mod amdgpu;
mod bus;
mod child;
mod discovery;
mod domain;
mod error;
mod holder;
pub mod hsmp;
mod late;
mod node;
pub mod nvml;
mod operation;
pub mod powercap;
mod processor;
pub mod rocm_smi;
pub mod simulated;
mod sysfs;
mod worker;

pub use bus::{
    gpus_on_the_bus, is_usable, lacks_a_cap, library_file, may_lack_a_cap, socket_files,
};
pub use child::Child;
pub use discovery::{
    AmdBackEnd, Inventory, Notice, NvidiaBackEnd, Search, Severity, Source, discover,
    discover_in_parts, discover_within,
};
pub use domain::{
    CapRange, ClockRange, DeviceKind, Handles, Identity, PowerDomain, ReadBack, Reading, Sharing,
    Throttle,
};
pub use error::PowerError;
pub use holder::Holder;
pub use node::other_tools;
pub use operation::{Operation, Reply};
pub use worker::{Stopped, Worker};
