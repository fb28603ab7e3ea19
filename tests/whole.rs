//! The whole system: the real daemon as a process, its real sockets and files, simulated hardware
//! with a ledger in another process, and everything that can go wrong at every seam.
//!
//! `LITD_FUZZ`: how many frames the fuzzer sends (4,000 if not set).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "whole/adversaries.rs"]
mod adversaries;
#[path = "whole/audit.rs"]
mod audit;
#[path = "whole/by_hand.rs"]
mod by_hand;
#[path = "whole/clocks.rs"]
mod clocks;
#[path = "whole/control.rs"]
mod control;
#[path = "whole/cpus.rs"]
mod cpus;
#[path = "whole/crowds.rs"]
mod crowds;
#[path = "whole/devices.rs"]
mod devices;
#[path = "whole/diagnosis.rs"]
mod diagnosis;
#[path = "whole/directories.rs"]
mod directories;
#[path = "whole/disk.rs"]
mod disk;
#[path = "whole/elsewhere.rs"]
mod elsewhere;
#[path = "whole/emptied.rs"]
mod emptied;
#[path = "whole/files.rs"]
mod files;
#[path = "whole/fleet.rs"]
mod fleet;
#[path = "whole/floods.rs"]
mod floods;
#[path = "whole/floors.rs"]
mod floors;
#[path = "whole/fuzz.rs"]
mod fuzz;
#[path = "whole/hanging.rs"]
mod hanging;
#[path = "whole/hold.rs"]
mod hold;
#[path = "whole/jobs.rs"]
mod jobs;
#[path = "whole/late.rs"]
mod late;
#[path = "whole/limiters.rs"]
mod limiters;
#[path = "whole/lock.rs"]
mod lock;
#[path = "whole/many_ids.rs"]
mod many_ids;
#[path = "whole/matrix.rs"]
mod matrix;
#[path = "whole/neighbours.rs"]
mod neighbours;
#[path = "whole/node_power.rs"]
mod node_power;
#[path = "whole/nvml.rs"]
mod nvml;
#[path = "whole/operation.rs"]
mod operation;
#[path = "whole/others.rs"]
mod others;
#[path = "whole/passed.rs"]
mod passed;
#[path = "whole/preload.rs"]
mod preload;
#[path = "whole/profilers.rs"]
mod profilers;
mod redfish;
#[path = "whole/release.rs"]
mod release;
#[path = "whole/remembered.rs"]
mod remembered;
#[path = "whole/restore.rs"]
mod restore;
#[path = "whole/rollout.rs"]
mod rollout;
#[path = "whole/room.rs"]
mod room;
#[path = "whole/sampling.rs"]
mod sampling;
#[path = "whole/slow_disk.rs"]
mod slow_disk;
#[path = "whole/slow_log.rs"]
mod slow_log;
#[path = "whole/sockets.rs"]
mod sockets;
#[path = "whole/stages.rs"]
mod stages;
#[path = "whole/stand.rs"]
mod stand;
#[path = "whole/timing.rs"]
mod timing;
#[path = "whole/trial.rs"]
mod trial;
#[path = "whole/unjudged.rs"]
mod unjudged;
#[path = "whole/unmanaged.rs"]
mod unmanaged;
mod users;
#[path = "whole/users.rs"]
mod users_with_rights;
#[path = "whole/wall_clock.rs"]
mod wall_clock;
