//! A simulated node around the real daemon: stand-in hardware behind a socket, a ledger that
//! checks every write on what the hardware holds, faults, training jobs on the real ingest
//! socket, and the daemon's clock. Tests, benchmarks and `litlab demo` are made of it; nothing
//! of it is in litd.
//!
//! - [`Hardware`] and [`Node`]: the devices, and the socket that litd finds them behind;
//! - [`install_nvml`]: a `libnvidia-ml.so.1` over the same devices;
//! - [`Ledger`]: every change of a cap, and every rule that one broke;
//! - [`Fault`]: what can be wrong with a device;
//! - [`Clock`]: the daemon's time;
//! - [`Job`]: training ranks that report to the daemon;
//! - [`Daemon`]: litd as a process, and [`program`] where it and its like are;
//! - [`Rig`]: all of it in a temporary directory.

mod clock;
mod daemon;
mod delay;
mod fault;
mod hardware;
mod job;
mod ledger;
mod node;
mod nvidia;
mod program;
mod refused;
mod rig;
mod rules;
mod terminal;
mod timing;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use clock::{Clock, ClockError, Frames};
pub use daemon::{Daemon, DaemonError, Killer, Layout, default_config};
pub use delay::delayed;
pub use fault::Fault;
pub use hardware::{Hardware, Residency, SharedHardware, gpu_address};
pub use job::{Job, JobError, JobSpec, OtherNodes, RankState, Told};
pub use ledger::{Author, Entry, Ledger};
pub use node::Node;
pub use nvidia::{NvidiaDriver, NvidiaGpu, install_nvidia_bus, install_nvml};
pub use program::{is_built, program};
pub use refused::Refused;
pub use rig::{Rig, RigError};
pub use rules::{Bounds, Rule, Violation};
pub use terminal::on_a_terminal;
pub use timing::Timing;

/// Locks, also after a thread has panicked with the lock held: in a rig that thread's test has
/// failed already, and the others want to end.
#[doc(hidden)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
