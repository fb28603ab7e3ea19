//! A made-up `/sys` and `/dev` over the rig's hardware: a FUSE file system whose files are those
//! of the drivers amdgpu, kfd, intel_rapl and amd_hsmp, as far as a power back end reads them.
//! What is written there is written to the plant and its ledger; what the drivers refuse is
//! refused with their error numbers, and every [`litd_rig::Fault`] looks as it would there.
//!
//! - [`Board`]: which drivers the node has;
//! - [`Mount`]: the file system, mounted below a directory until it is dropped; [`Mount::recorded`] shows a node that
//!   `litctl doctor --record` has recorded;
//! - [`with_sys_covered`]: for libraries that read `/sys` itself.
//!
//! It takes root and `/dev/fuse`: see [`obstacle`].

mod amdgpu;
mod board;
mod cpu;
mod filesystem;
mod hsmp;
mod kfd;
mod levels;
mod metrics;
mod mount;
mod namespace;
mod recorded;
mod tree;

pub use board::{Board, Cpus, MI210, MI250, MI300X, Metrics};
pub use mount::{Mount, obstacle};
pub use namespace::with_sys_covered;
