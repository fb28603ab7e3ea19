//! What becomes of an event. No pointer comes here.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use litd_attach::ring::Function;
use nix::time::{ClockId, clock_gettime};

pub use crate::communicators::Communicator;
use crate::communicators::Communicators;
use crate::open::{Begun, Open};
use crate::ring::Ring;

/// What this process tells, or why it tells nothing.
static STATE: OnceLock<Result<State, &'static CStr>> = OnceLock::new();

struct State {
    ring: Ring,
    communicators: Communicators,
    open: Open,
}

/// The state if there is one: events come after a communicator's begin, which made it.
fn state() -> Option<&'static State> {
    STATE.get()?.as_ref().ok()
}

/// The handle of an event: a number that names it, and never a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(usize);

/// Handles have a ticket of this many bits above a channel's eight.
const CHANNEL_BITS: u32 = 8;

const _: () = assert!(
    usize::BITS == 64,
    "tickets and channels share a pointer's 64 bits"
);

impl Handle {
    /// Of each group. Tickets begin with 1.
    pub const GROUP: Self = Self(1);

    /// What NCCL hands back.
    pub const fn of(bits: usize) -> Self {
        Self(bits)
    }

    /// What NCCL is told.
    pub const fn bits(self) -> usize {
        self.0
    }

    fn new(ticket: u64, channel: u8) -> Self {
        Self((ticket as usize) << CHANNEL_BITS | usize::from(channel))
    }

    fn ticket(self) -> u64 {
        (self.0 >> CHANNEL_BITS) as u64
    }

    fn channel(self) -> u8 {
        self.0 as u8
    }
}

/// A collective as NCCL describes it.
pub struct Collective<'a> {
    /// How many of this function the communicator ran before.
    pub sequence: u64,
    /// The function's name.
    pub function: &'a [u8],
    /// Elements.
    pub count: u64,
    /// The name of the elements' type.
    pub datatype: &'a [u8],
    /// Channels.
    pub channels: u8,
}

/// A communicator begins: the context by which NCCL names it, or why it is not followed, which is said once.
pub fn enter(communicator: Communicator) -> Result<usize, Option<&'static CStr>> {
    let mut said = None;
    let state = STATE.get_or_init(|| {
        let ring = Ring::from_environment().inspect_err(|why| said = Some(*why))?;
        Ok(State {
            ring,
            communicators: Communicators::new(),
            open: Open::new(),
        })
    });
    let Ok(state) = state else {
        return Err(said);
    };
    state.communicators.enter(communicator).ok_or(None)
}

/// A communicator ends: what is known of its collectives is told.
pub fn leave(context: usize) {
    if let Some(state) = state()
        && let Some(communicator) = state.communicators.leave(context)
    {
        state.open.tell_all(&communicator, &state.ring);
    }
}

/// A collective is handed over.
pub fn begin(context: usize, collective: &Collective) -> Option<Handle> {
    let state = state()?;
    let communicator = state.communicators.get(context)?;
    let begun = Begun {
        communicator,
        function: Function::named(collective.function),
        sequence: collective.sequence,
        bytes: collective
            .count
            .saturating_mul(size_of_named(collective.datatype)),
        enqueued: now(),
        channels: collective.channels,
    };
    match state.open.begin(&begun, &state.ring) {
        Some(ticket) => Some(Handle::new(ticket, 0)),
        None => {
            state.ring.dropped().fetch_add(1, Relaxed);
            None
        }
    }
}

/// A collective's kernel begins on a channel.
pub fn kernel_begins(collective: Handle, channel: u8, timer: u64) -> Option<Handle> {
    let ticket = collective.ticket();
    state()?
        .open
        .kernel_begins(ticket, channel, timer)
        .then(|| Handle::new(ticket, channel))
}

/// A collective's kernel ends on a channel.
pub fn kernel_ends(kernel: Handle, timer: u64) {
    if let Some(state) = state() {
        state
            .open
            .kernel_ends(kernel.ticket(), kernel.channel(), timer, &state.ring);
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which takes no system call.
fn now() -> u64 {
    let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
        return 0;
    };
    let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Bytes of an element of the type that NCCL calls so (`ncclDatatypeToString`); 0 if unknown.
fn size_of_named(datatype: &[u8]) -> u64 {
    match datatype {
        b"ncclInt8" | b"ncclUint8" | b"ncclFloat8e4m3" | b"ncclFloat8e5m2" => 1,
        b"ncclFloat16" | b"ncclBfloat16" => 2,
        b"ncclInt32" | b"ncclUint32" | b"ncclFloat32" => 4,
        b"ncclInt64" | b"ncclUint64" | b"ncclFloat64" => 8,
        _ => 0,
    }
}
