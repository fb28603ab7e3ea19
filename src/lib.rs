//! litd, the daemon: everything around the pure core ([`litd_core`]) that needs a system. One thread runs the
//! loop; each device has one of its own, because drivers block.
//!
//! - [`daemon`]: its life, from the configuration to the last cap that is restored;
//! - [`hub`]: events in, effects out; `session`, `ingest`, `control`, `metrics_server`: its sockets; [`devices`]:
//!   its drivers' threads;
//! - `qualify`: what `litd qualify` does;
//! - [`config`], [`state`], [`audit`]: its configuration, state and log on disk; [`locks`]: which daemon has which
//!   device, and [`lock_holders`]: who has a lock;
//! - [`attach`]: processes whose scripts know nothing of litd;
//! - [`passed`]: descriptors that peers pass along, which litd refuses;
//! - [`ports`]: who has the metrics' address, where litd does not;
//! - [`clock`], `rig`: its time, or a test rig's.

mod anew;
pub mod announcements;
mod answers;
pub mod attach;
pub mod audit;
pub mod baseline;
mod boot_note;
mod cli;
pub mod clock;
pub mod config;
mod control;
pub mod daemon;
pub mod devices;
mod hanging;
mod hold;
mod home;
pub mod hub;
mod ingest;
mod kill_switch;
mod listening;
mod lock;
pub mod lock_holders;
pub mod locks;
mod logging;
pub mod metrics;
mod metrics_server;
pub mod node_power;
mod notify;
pub mod numbers;
mod owners;
pub mod passed;
pub mod ports;
pub mod presence;
pub mod process;
mod qualify;
mod restore;
mod rig;
mod rights;
mod seats;
mod server;
pub mod session;
mod signals;
pub mod state;
mod syncer;
mod takeover;
mod tolerated;
mod undone;
mod unread;

pub use cli::{command, main};
pub use qualify::hash_of_serial;
