//! What happens to the daemon, and what it wants done about it. The shell turns system calls
//! into [`Event`]s and [`Effect`]s into system calls; tests make both up.

use std::collections::BTreeSet;

use litd_power::{Identity, Reading};
pub use litd_power::{Operation, Reply};
use litd_units::{Celsius, Watts};

use crate::cgroup::Home;
use crate::config::Config;
use crate::range::Range;

/// A connected hook, for as long as the daemon runs; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// A device by its position in the inventory: GPUs first, then CPU sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub usize);

/// Who is at the other end of a socket, as the kernel tells (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Process id, in the daemon's namespace.
    pub pid: u32,
    /// User id.
    pub uid: u32,
}

/// Why a connection's process can't be believed to be the one that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// That one has ended.
    Ended,
    /// It began so shortly before it was looked at that it may have come after that one. Only on
    /// kernels that know no better.
    Unsure,
}

/// A device as the shell found it.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Which it is.
    pub identity: Identity,
    /// What its cap may be, as far as the driver says.
    pub range: Range,
    /// The first reading; with the cap that is put back at the end. `None`: the device did not
    /// answer, and is not touched before it has.
    pub reading: Option<Reading>,
}

/// What the node as a whole draws, as its BMC tells. Any of it may be absent, and any of it wrong.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeReading {
    /// Who told: `redfish`, `ipmi`, `acpi`; empty if nobody did.
    pub source: String,
    /// The node's power.
    pub power: Option<Watts>,
    /// The BMC's limit on it.
    pub cap: Option<Watts>,
    /// Inlet temperature.
    pub inlet: Option<Celsius>,
    /// Power supplies that are there.
    pub supplies: Option<u32>,
    /// Of those, the ones that are not well.
    pub failed: Option<u32>,
    /// Why the node is short of power, if it is.
    pub alarm: Option<String>,
}

/// What happens to the daemon.
#[derive(Debug)]
pub enum Event<'a> {
    /// A hook connected.
    Connected {
        /// It, from now on.
        session: SessionId,
        /// Who it is.
        peer: Peer,
        /// The job that a scheduler has put it into.
        home: Option<Home>,
    },
    /// The process that made a hook's connection is not, or can't be told to be, the one that has its
    /// id now. The shell says so before it hands on what a driver says of holders: as long as a
    /// process lives, its id is no other's.
    Doubted {
        /// The hook.
        session: SessionId,
        /// Why.
        doubt: Doubt,
    },
    /// A hook sent one whole frame (without its length prefix), which may be anything.
    Frame {
        /// The hook.
        session: SessionId,
        /// What it sent.
        bytes: &'a [u8],
    },
    /// A hook announced a frame that can't be. Nothing that follows can be read.
    NoFrame {
        /// The hook.
        session: SessionId,
        /// Why it can't be, in words.
        why: &'a str,
    },
    /// A hook's connection ended, from its side or because [`Effect::Close`] was asked for.
    Disconnected {
        /// The hook.
        session: SessionId,
    },
    /// A device has done, or failed to do, what [`Effect::Device`] asked for. There is at most
    /// one operation under way per device.
    Device {
        /// The device.
        device: DeviceId,
        /// The outcome.
        reply: Reply,
    },
    /// A device is there again after it was gone, or was bound to another driver: as it was seen
    /// without opening it.
    Returned(DeviceId),
    /// These GPUs, by address, are on the bus and none of the devices that litd was started with.
    Unmanaged(BTreeSet<String>),
    /// A kill switch is there, and why, in words; or none is.
    KillSwitch(Option<String>),
    /// The node's power was read anew.
    NodePower(NodeReading),
    /// The configuration was read anew.
    Reloaded(Box<Config>),
    /// The configuration was to be read anew, and is none; why, in words.
    ReloadRefused(&'a str),
    /// Somebody has meddled with what litd has outside, such as its sockets; how, in words.
    Outside(&'a str),
    /// The daemon is to stop: give everything back.
    Stop,
    /// Nothing but that time has passed.
    Time,
}

/// What the daemon wants done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send one frame (without its length prefix) to a hook. If its socket is full, drop it.
    Send {
        /// The hook.
        session: SessionId,
        /// The frame.
        bytes: Vec<u8>,
    },
    /// Close a hook's connection. [`Event::Disconnected`] follows.
    Close {
        /// The hook.
        session: SessionId,
    },
    /// Have a device do something; [`Event::Device`] follows, however long it takes.
    Device {
        /// The device.
        device: DeviceId,
        /// What it is to do.
        operation: Operation,
    },
    /// Publish what every device is to hold when nobody steers it.
    Baseline(crate::baseline::Baseline),
    /// Log this.
    Log(litd_api::Event),
    /// The loop has done its round: feed the watchdog.
    Alive,
    /// Everything is back, as far as devices answer. The shell may exit.
    Stopped,
}
