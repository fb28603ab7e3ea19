//! The core under whoever may send it anything: numbers at the ends of their ranges, and more names
//! and kernels than there is room for. Debug builds check every sum.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod by_hand;
mod clocks;
mod crowds;
mod divided;
mod events;
mod extremes;
mod leftover;
mod moves;
mod names;
mod neighbours;
mod node;
mod ramp;
mod reserve;
mod rooms;
mod sockets;
mod tenants;
mod unmanaged;
