//! A profiler plugin for NCCL and RCCL: when each rank comes to its collectives, by its GPU's clock, for litd on the
//! same node. A job loads it by `NCCL_PROFILER_PLUGIN=/path/to/liblitd_nccl.so`, and names the directory for its rings
//! in `LITD_NCCL_DIRECTORY`.
//!
//! - `abi`: what NCCL calls, in versions 4 to 7 of its profiler interface;
//! - `plugin`: what becomes of an event;
//! - `communicators`, `open`: the communicators, and the collectives whose kernels have not ended yet;
//! - `ring`: the shared memory that tells of those that have ([`litd_attach::ring`] reads it).
//!
//! NCCL calls from the user's threads, between a launch and the next, and from a thread that must keep up with the GPU.
//! So an event takes no lock, no memory and no system call, and whatever has no room is counted and dropped. Nothing
//! that NCCL hands over is taken for a pointer but the event's description: handles are numbers that are looked up,
//! because NCCL calls with handles of events, and of communicators, that have ended (NVIDIA/nccl#1992,
//! NVIDIA/nccl#2000).

pub mod abi;
mod communicators;
mod open;
mod plugin;
pub mod ring;
