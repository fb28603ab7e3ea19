//! The whole system: the real daemon as a process, its real sockets and files, simulated hardware
//! with a ledger in another process, and everything that can go wrong at every seam.
//!
//! One program, because most of its tests wait: many at a time take little longer than the longest. What changes the
//! process (users, namespaces, limits) is done in a child process or undone at the test's end.
//!
//! `LITD_FUZZ`: how many frames the fuzzer sends (4,000 if not set).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adversaries;
mod attach;
mod audit;
mod bare_node;
mod bmc;
mod booted;
mod built;
mod by_hand;
mod check;
mod clocks;
mod control;
mod cpus;
mod crowds;
mod deploy;
mod devices;
mod diagnosis;
mod directories;
mod disk;
mod elsewhere;
mod emptied;
mod files;
mod fleet;
mod floods;
mod floors;
mod fuzz;
mod hanging;
mod hold;
mod jobs;
mod kill;
mod kubernetes;
mod late;
mod learned;
mod limiters;
mod lock;
mod many_ids;
mod matrix;
mod metrics;
mod neighbours;
mod node_power;
mod nvml;
mod operation;
mod others;
mod package;
mod passed;
mod preload;
mod profilers;
mod qualify;
mod recorded;
mod redfish;
mod release;
mod remembered;
mod restore;
mod rocm_smi;
mod rollout;
mod room;
mod sample;
mod sampling;
mod seeds;
mod shell_daemon;
mod slow_disk;
mod slow_log;
mod sockets;
mod stages;
mod stand;
mod systemd;
mod timing;
mod tools;
mod trial;
mod undone;
mod unjudged;
mod unmanaged;
mod users;
mod users_with_rights;
mod wall_clock;
