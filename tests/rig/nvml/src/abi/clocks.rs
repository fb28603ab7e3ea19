//! Clocks in MHz: those that there are, those that run, those that are locked.

use std::ffi::c_uint;

use super::{change, getters, give_list, gpu, sensors};
use crate::code;
use crate::protocol::Request;
use crate::session::Handle;

/// `NVML_CLOCK_GRAPHICS`, `NVML_CLOCK_SM`, `NVML_CLOCK_MEM`.
const GRAPHICS: c_uint = 0;
const SM: c_uint = 1;
const MEMORY: c_uint = 2;

/// H100: the only clock of its memory, and the range and step of its multiprocessors.
const MEMORY_CLOCK: c_uint = 2619;
const LOWEST: c_uint = 345;
const HIGHEST: c_uint = 1980;
const STEP: usize = 15;

getters! {
    nvmlDeviceGetClockInfo(kind): c_uint = |device, kind| match kind {
        GRAPHICS | SM => Ok(sensors(device)?.clock),
        MEMORY => Ok(MEMORY_CLOCK),
        _ => Err(code::NOT_SUPPORTED),
    };
    nvmlDeviceGetMaxClockInfo(kind): c_uint = |_: Handle, kind| match kind {
        GRAPHICS | SM => Ok(HIGHEST),
        MEMORY => Ok(MEMORY_CLOCK),
        _ => Err(code::NOT_SUPPORTED),
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedMemoryClocks(
    device: Handle,
    count: *mut c_uint,
    out: *mut c_uint,
) -> c_uint {
    let clocks = gpu(device).map(|_| vec![MEMORY_CLOCK]);
    // SAFETY: both are as nvml.h says.
    unsafe { give_list(count, out, clocks) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedGraphicsClocks(
    device: Handle,
    memory: c_uint,
    count: *mut c_uint,
    out: *mut c_uint,
) -> c_uint {
    let clocks = gpu(device).and_then(|_| match memory {
        MEMORY_CLOCK => Ok((LOWEST..=HIGHEST).rev().step_by(STEP).collect()),
        _ => Err(code::NOT_FOUND),
    });
    // SAFETY: both are as nvml.h says.
    unsafe { give_list(count, out, clocks) }
}

type Range = Option<(c_uint, c_uint)>;

fn lock(
    device: Handle,
    range: Range,
    request: impl FnOnce(String, Range, u64) -> Request,
) -> c_uint {
    let called = now();
    change(device, |device| request(device, range, called))
}

/// The kernel's monotonic clock, ns.
fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: clock_gettime(2) fills `time`, which outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

macro_rules! locks {
    ($($request:ident: $lock:ident, $unlock:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $lock(device: Handle, lowest: c_uint, highest: c_uint) -> c_uint {
                if lowest > highest {
                    return code::INVALID_ARGUMENT;
                }
                lock(device, Some((lowest, highest)), |device, range, called| {
                    Request::$request { device, range, called }
                })
            }

            #[unsafe(no_mangle)]
            extern "C" fn $unlock(device: Handle) -> c_uint {
                lock(device, None, |device, range, called| {
                    Request::$request { device, range, called }
                })
            }
        )*
    };
}

locks! {
    LockClocks: nvmlDeviceSetGpuLockedClocks, nvmlDeviceResetGpuLockedClocks;
    LockMemory: nvmlDeviceSetMemoryLockedClocks, nvmlDeviceResetMemoryLockedClocks;
}
