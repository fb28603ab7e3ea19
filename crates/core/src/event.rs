//! The daemon's inputs and outputs. The shell turns system calls into [`Event`]s and [`Effect`]s into system
//! calls; tests make both up.

use std::collections::BTreeSet;

use litd_power::{Identity, Reading};
pub use litd_power::{Operation, Reply};
use litd_units::{Celsius, Watts};

use crate::config::Config;
use crate::devices::range::Range;
use crate::hooks::cgroup::Home;

/// A connected hook, for as long as the daemon runs; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// A device by its position in the inventory: GPUs first, then CPU sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub usize);

/// The process at the other end of a socket, as the kernel tells (`SO_PEERCRED`).
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
    /// The process that connected has ended.
    Ended,
    /// The process with this id began so shortly before it was looked at that it may have replaced the one that
    /// connected. Only on kernels that can't tell.
    Unsure,
}

/// A device as the shell found it.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// Its number among the node's devices of its kind, by which it is called (`gpu3`). It stays the same until the
    /// node boots.
    pub number: usize,
    /// Identity of the device.
    pub identity: Identity,
    /// Range of its cap, as far as the driver tells.
    pub range: Range,
    /// The first reading, with the cap to restore at the end. `None`: the device did not answer, and is not
    /// touched before it has.
    pub reading: Option<Reading>,
}

/// Power of the node as a whole, as its BMC tells. Any field may be absent, and any may be wrong.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeReading {
    /// The source: `redfish`, `ipmi`, `acpi`; empty if none answered.
    pub source: String,
    /// The node's power.
    pub power: Option<Watts>,
    /// The BMC's limit on it.
    pub cap: Option<Watts>,
    /// Inlet temperature.
    pub inlet: Option<Celsius>,
    /// Power supplies that are there.
    pub supplies: Option<u32>,
    /// The number of supplies that have failed.
    pub failed: Option<u32>,
    /// Why the node is short of power, if it is.
    pub alarm: Option<String>,
}

/// An input of the daemon.
#[derive(Debug)]
pub enum Event<'a> {
    /// A hook connected.
    Connected {
        /// The new session.
        session: SessionId,
        /// The hook's process.
        peer: Peer,
        /// The job that a scheduler has put it into.
        home: Option<Home>,
    },
    /// The process that made a hook's connection has ended, or can't be told from a later one with the same id.
    /// The shell says so before it hands on a driver's answer about holders: while a process lives, no other has
    /// its id.
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
        /// The frame's bytes.
        bytes: &'a [u8],
    },
    /// A hook announced a frame of an impossible length. Nothing that follows can be read.
    NoFrame {
        /// The hook.
        session: SessionId,
        /// Why the length is impossible, in words.
        why: &'a str,
    },
    /// A hook's connection ended, from its side or because [`Effect::Close`] was asked for.
    Disconnected {
        /// The hook.
        session: SessionId,
    },
    /// A device has done, or failed to do, the operation that [`Effect::Device`] asked for. At most one operation
    /// per device is under way.
    Device {
        /// The device.
        device: DeviceId,
        /// The outcome.
        reply: Reply,
    },
    /// A device has returned after it was gone, or was bound to another driver; seen without opening it.
    Returned(DeviceId),
    /// A process of an earlier litd that is being killed still waits for a driver, and what it has asked for may still
    /// be done. The shell says so once a second for as long as it is so.
    PredecessorHangs,
    /// GPUs on the bus, by address, that were not there when litd looked for devices.
    Unmanaged(BTreeSet<String>),
    /// A kill switch has appeared, and why, in words; `None`: it is gone.
    KillSwitch(Option<String>),
    /// The node's power was read anew.
    NodePower(NodeReading),
    /// The new configuration, after a reload.
    Reloaded(Box<Config>),
    /// The configuration could not be reloaded; why, in words.
    ReloadRefused(&'a str),
    /// Another program has changed litd's files, such as its sockets; how, in words.
    Outside(&'a str),
    /// Something is wrong with what a user's process has left for litd, or with how it is measured. As an event it is
    /// that user's, or his pod's, and takes no room from the node's own.
    Theirs {
        /// The process's user.
        uid: u32,
        /// The job that a scheduler has put the process into.
        home: Option<&'a Home>,
        /// What is wrong, in words.
        what: &'a str,
    },
    /// An administrator has asked for something that the shell does by itself; for what, in words.
    Asked(&'a str),
    /// The daemon is to stop: restore everything.
    Stop,
    /// Time has passed.
    Time,
}

/// An output of the daemon; the shell carries outputs out in this order.
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
    /// Have a device do an operation; [`Event::Device`] follows, however long it takes.
    Device {
        /// The device.
        device: DeviceId,
        /// The operation.
        operation: Operation,
    },
    /// Publish the caps that devices have when nobody steers them.
    Baseline(crate::baseline::Baseline),
    /// Log this event.
    Log(litd_api::Event),
    /// The loop has done its round: feed the watchdog.
    Alive,
    /// All caps are restored, as far as devices answer. The shell may exit.
    Stopped,
}
