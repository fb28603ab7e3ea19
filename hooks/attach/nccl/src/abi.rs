//! NCCL's profiler interface, versions 4 to 7: one table of functions for each, and the part of an event's description
//! that all copies of the interface have at the same place.
//!
//! The copies differ: RCCL's descriptions of version 6 are longer than NCCL's, those of version 7 lack a field that
//! NCCL's have, and NCCL's own example has a third version 7. `tests/nccl/interface.h` has all, with their sources, and
//! `tests/layouts.rs` shows what a C compiler makes of them. What they share is the start of `coll`, `kernelCh` and
//! the stop's time, and the plugin reads no further.
// The C interface is made of pointers.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use crate::plugin::{self, Collective, Communicator, Handle};

/// `ncclSuccess`. The plugin returns nothing else: an error of a profiler must not become one of the job, and NCCL
/// counts down twice for a communicator whose `init` fails, which closes the library under the others.
const SUCCESS: c_int = 0;

/// Event types that the plugin knows, of NVIDIA/nccl `src/include/plugin/nccl_profiler.h`.
const GROUP: u64 = 1 << 0;
const COLLECTIVE: u64 = 1 << 1;
const KERNEL_CHANNEL: u64 = 1 << 6;

/// `ncclProfilerKernelChStop`: the state with which a kernel's stop time comes.
const KERNEL_CHANNEL_STOP: c_int = 22;

/// `NCCL_LOG_INFO`; newer libraries count it as `NCCL_LOG_WARN`.
const INFO: c_int = 3;
/// `NCCL_INIT`.
const INIT: c_ulong = 1;

/// The longest name of a function or a type that is read.
const LONGEST: usize = 32;

/// NCCL's function for its log.
pub type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);

/// The start of an event's description. Version 4 has a byte for the type and seven that it leaves unset.
#[repr(C)]
pub struct Descriptor {
    /// One bit.
    pub kind: u64,
    /// The handle of the event that this one is part of.
    pub parent: *mut c_void,
    /// The rank; not set in a kernel's.
    pub rank: c_int,
    /// What depends on the type.
    pub arm: Arm,
}

/// What depends on the type, as far as it is read.
#[repr(C)]
pub union Arm {
    /// Of a collective.
    pub coll: Coll,
    /// Of a kernel on a channel.
    pub kernel: KernelCh,
}

/// The start of a collective's description.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Coll {
    /// How many of this function the communicator ran before.
    pub sequence: u64,
    /// The function's name.
    pub function: *const c_char,
    send: *const c_void,
    receive: *mut c_void,
    /// Elements.
    pub count: usize,
    root: c_int,
    /// The name of the elements' type.
    pub datatype: *const c_char,
    /// Channels.
    pub channels: u8,
}

/// A kernel's channel and when it began.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelCh {
    /// The channel.
    pub channel: u8,
    /// Ticks of the GPU's clock.
    pub timer: u64,
}

impl Coll {
    /// A collective without buffers.
    #[must_use]
    pub const fn new(
        sequence: u64,
        function: &'static CStr,
        count: usize,
        datatype: &'static CStr,
        channels: u8,
    ) -> Self {
        Self {
            sequence,
            function: function.as_ptr(),
            send: ptr::null(),
            receive: ptr::null_mut(),
            count,
            root: 0,
            datatype: datatype.as_ptr(),
            channels,
        }
    }
}

impl Descriptor {
    /// The description of a collective, of version 5 and later.
    #[must_use]
    pub const fn collective(rank: c_int, coll: Coll) -> Self {
        Self {
            kind: COLLECTIVE,
            parent: ptr::null_mut(),
            rank,
            arm: Arm { coll },
        }
    }

    /// The description of a kernel on a channel, of version 5 and later.
    #[must_use]
    pub const fn kernel(parent: *mut c_void, kernel: KernelCh) -> Self {
        Self {
            kind: KERNEL_CHANNEL,
            parent,
            rank: 0,
            arm: Arm { kernel },
        }
    }
}

/// What comes with a state, as far as it is read.
#[repr(C)]
pub struct StateArgs {
    /// When a kernel ended, in ticks of the GPU's clock.
    pub timer: u64,
}

type Init4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> c_int;
type Init5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> c_int;

/// The functions of one version, in the order of `ncclProfiler_v4_t` to `ncclProfiler_v7_t`.
#[repr(C)]
pub struct Profiler<Init> {
    /// The plugin's name.
    pub name: *const c_char,
    /// A communicator begins.
    pub init: Init,
    /// An event begins.
    pub start_event:
        unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const Descriptor) -> c_int,
    /// An event ends.
    pub stop_event: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// An event comes to a state.
    pub record_event_state: unsafe extern "C" fn(*mut c_void, c_int, *const StateArgs) -> c_int,
    /// A communicator ends.
    pub finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: a table is never written, and its pointers are those of functions and of a static text.
unsafe impl<Init: Sync> Sync for Profiler<Init> {}

const NAME: &CStr = c"litd";

macro_rules! table {
    ($symbol:ident, $type:ty, $init:ident, $start:ident, $source:literal) => {
        #[doc = $source]
        #[allow(non_upper_case_globals, reason = "NCCL looks it up by this name")]
        #[unsafe(no_mangle)]
        pub static $symbol: Profiler<$type> = Profiler {
            name: NAME.as_ptr(),
            init: $init,
            start_event: $start,
            stop_event,
            record_event_state,
            finalize,
        };
    };
}

table!(
    ncclProfiler_v4,
    Init4,
    init_4,
    start_event_4,
    "NVIDIA/nccl `profiler_v4.h` (51c58fd6)."
);
table!(
    ncclProfiler_v5,
    Init5,
    init_5,
    start_event,
    "NVIDIA/nccl `profiler_v5.h` (f1308997)."
);
table!(
    ncclProfiler_v6,
    Init5,
    init_6,
    start_event,
    "NVIDIA/nccl `profiler_v6.h` (e5d9a7ae), and RCCL's (ROCm/rocm-systems, 1a905b50)."
);
table!(
    ncclProfiler_v7,
    Init5,
    init_7,
    start_event,
    "NVIDIA/nccl `profiler_v7.h` (88980683), and RCCL's (ROCm/rocm-systems, 716db255)."
);

/// Calls what no panic leaves: unwinding into C would end the job.
fn guarded(call: impl FnOnce()) -> c_int {
    // An event that panics is lost; it leaves a record that fails its check, or a collective that never ends.
    let _ = catch_unwind(AssertUnwindSafe(call));
    SUCCESS
}

/// What NCCL hands over with a new communicator, in the order of version 5.
struct Newcomer {
    context: *mut *mut c_void,
    mask: *mut c_int,
    logger: Option<Logger>,
    communicator: Communicator,
}

impl Newcomer {
    /// # Safety
    /// `context` and `mask` are null or may be written, and `logger` is NCCL's.
    unsafe fn enter(self) {
        let entered = plugin::enter(self.communicator);
        if let Ok(context) = entered
            && !self.context.is_null()
        {
            // SAFETY: the caller says so.
            unsafe { self.context.write(ptr::without_provenance_mut(context)) };
            if !self.mask.is_null() {
                // The mask is of the whole process, and NCCL's threads read it: what is on stays on. It is never turned
                // off: from 2.31 on the host counts only kernels that are timed and the GPU counts all, so that NCCL
                // would wait for the wrong ones afterwards (`src/plugin/profiler.cc`, `src/device/common.h`).
                // SAFETY: the caller says so.
                let mask = unsafe { AtomicI32::from_ptr(self.mask) };
                mask.fetch_or((COLLECTIVE | KERNEL_CHANNEL) as i32, Relaxed);
            }
        }
        if let (Err(Some(why)), Some(logger)) = (entered, self.logger) {
            // SAFETY: NCCL's logger takes these and, for `%s`, a text.
            unsafe {
                logger(
                    INFO,
                    INIT,
                    NAME.as_ptr(),
                    0,
                    c"litd's plugin does nothing: %s".as_ptr(),
                    why.as_ptr(),
                )
            };
        }
    }
}

/// What NCCL says of a communicator.
fn communicator(interface: u8, hash: u64, nodes: c_int, ranks: c_int, rank: c_int) -> Communicator {
    Communicator {
        interface,
        hash,
        nodes: u16::try_from(nodes).unwrap_or(u16::MAX),
        ranks: u32::try_from(ranks).unwrap_or(0),
        rank: u32::try_from(rank).unwrap_or(u32::MAX),
    }
}

/// # Safety
/// As NCCL calls it.
unsafe extern "C" fn init_4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    _name: *const c_char,
    hash: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    logger: Option<Logger>,
) -> c_int {
    let communicator = communicator(4, hash, nodes, ranks, rank);
    let newcomer = Newcomer {
        context,
        mask,
        logger,
        communicator,
    };
    // SAFETY: NCCL's pointers are good while it calls.
    guarded(|| unsafe { newcomer.enter() })
}

macro_rules! init {
    ($name:ident, $interface:literal) => {
        /// # Safety
        /// As NCCL calls it.
        unsafe extern "C" fn $name(
            context: *mut *mut c_void,
            hash: u64,
            mask: *mut c_int,
            _name: *const c_char,
            nodes: c_int,
            ranks: c_int,
            rank: c_int,
            logger: Option<Logger>,
        ) -> c_int {
            let communicator = communicator($interface, hash, nodes, ranks, rank);
            let newcomer = Newcomer {
                context,
                mask,
                logger,
                communicator,
            };
            // SAFETY: NCCL's pointers are good while it calls.
            guarded(|| unsafe { newcomer.enter() })
        }
    };
}

init!(init_5, 5);
init!(init_6, 6);
init!(init_7, 7);

/// # Safety
/// As NCCL calls it.
unsafe extern "C" fn start_event_4(
    context: *mut c_void,
    handle: *mut *mut c_void,
    event: *const Descriptor,
) -> c_int {
    // SAFETY: NCCL's description is there while it calls, and begins with the type, which is one byte in version 4.
    let kind = |event: *const Descriptor| u64::from(unsafe { event.cast::<u8>().read() });
    // SAFETY: as above.
    guarded(|| unsafe { start(context, handle, event, kind) })
}

/// # Safety
/// As NCCL calls it.
unsafe extern "C" fn start_event(
    context: *mut c_void,
    handle: *mut *mut c_void,
    event: *const Descriptor,
) -> c_int {
    // SAFETY: NCCL's description is there while it calls, and begins with the type.
    let kind = |event: *const Descriptor| unsafe { (&raw const (*event).kind).read() };
    // SAFETY: as above.
    guarded(|| unsafe { start(context, handle, event, kind) })
}

/// Begins an event and says its handle, null for one that is not followed.
///
/// # Safety
/// `handle` is null or may be written; `event` is null or a description of the type that `kind` reads from it.
unsafe fn start(
    context: *mut c_void,
    handle: *mut *mut c_void,
    event: *const Descriptor,
    kind: impl Fn(*const Descriptor) -> u64,
) {
    if handle.is_null() || event.is_null() {
        return;
    }
    // NCCL takes what is there for the handle, and need not have cleared it.
    // SAFETY: the caller says so.
    unsafe { handle.write(ptr::null_mut()) };
    let context = context.addr();
    let begun = match kind(event) {
        // NCCL counts graphs' collectives only if their group has a handle.
        GROUP => Some(Handle::GROUP),
        COLLECTIVE => {
            // SAFETY: this type's description has this arm. A description is shorter than `Descriptor` nowhere: 104
            // bytes in version 4, more in the others. Only these bytes are read, and no reference is made.
            let coll = unsafe { (&raw const (*event).arm.coll).read() };
            let collective = Collective {
                sequence: coll.sequence,
                // SAFETY: NCCL's names are static texts.
                function: unsafe { text(&coll.function) },
                count: coll.count as u64,
                // SAFETY: as above.
                datatype: unsafe { text(&coll.datatype) },
                channels: coll.channels,
            };
            plugin::begin(context, &collective)
        }
        KERNEL_CHANNEL => {
            // SAFETY: this type's description has this arm.
            let (parent, kernel) = unsafe {
                (
                    (&raw const (*event).parent).read(),
                    (&raw const (*event).arm.kernel).read(),
                )
            };
            plugin::kernel_begins(Handle::of(parent.addr()), kernel.channel, kernel.timer)
        }
        _ => None,
    };
    if let Some(begun) = begun {
        // SAFETY: the caller says so.
        unsafe { handle.write(ptr::without_provenance_mut(begun.bits())) };
    }
}

/// A text of NCCL's without its end, as far as it is read; empty if there is none.
///
/// # Safety
/// The pointer is null or that of a text with a zero at its end, which lives as long as the reference to it.
unsafe fn text(pointer: &*const c_char) -> &[u8] {
    if pointer.is_null() {
        return &[];
    }
    let mut length = 0;
    // SAFETY: no byte behind the first zero is read.
    while length < LONGEST && unsafe { pointer.add(length).read() } != 0 {
        length += 1;
    }
    // SAFETY: these bytes were just read.
    unsafe { std::slice::from_raw_parts(pointer.cast(), length) }
}

/// # Safety
/// As NCCL calls it.
unsafe extern "C" fn stop_event(_handle: *mut c_void) -> c_int {
    // A collective's event ends when it is handed over, long before its kernels; a kernel's when its stop was recorded.
    SUCCESS
}

/// # Safety
/// As NCCL calls it.
unsafe extern "C" fn record_event_state(
    handle: *mut c_void,
    state: c_int,
    args: *const StateArgs,
) -> c_int {
    if state != KERNEL_CHANNEL_STOP || args.is_null() {
        return SUCCESS;
    }
    guarded(|| {
        // SAFETY: with this state NCCL hands over a kernel's time.
        let timer = unsafe { (&raw const (*args).timer).read() };
        plugin::kernel_ends(Handle::of(handle.addr()), timer);
    })
}

/// # Safety
/// As NCCL calls it.
unsafe extern "C" fn finalize(context: *mut c_void) -> c_int {
    guarded(|| plugin::leave(context.addr()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_reaches_nccl() {
        assert_eq!(guarded(|| panic!("a bug of the plugin's")), SUCCESS);
    }
}
