//! Clocks in MHz: those that there are, those that run, those that are locked.

use std::ffi::c_uint;

use super::{change, give, give_list, gpu, sensors};
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

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetClockInfo(
    device: Handle,
    kind: c_uint,
    out: *mut c_uint,
) -> c_uint {
    let clock = sensors(device).and_then(|sensors| match kind {
        GRAPHICS | SM => Ok(sensors.clock),
        MEMORY => Ok(MEMORY_CLOCK),
        _ => Err(code::NOT_SUPPORTED),
    });
    // SAFETY: `out` is as nvml.h says.
    unsafe { give(out, clock) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(
    device: Handle,
    kind: c_uint,
    out: *mut c_uint,
) -> c_uint {
    let clock = gpu(device).and(match kind {
        GRAPHICS | SM => Ok(HIGHEST),
        MEMORY => Ok(MEMORY_CLOCK),
        _ => Err(code::NOT_SUPPORTED),
    });
    // SAFETY: `out` is as nvml.h says.
    unsafe { give(out, clock) }
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

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetGpuLockedClocks(
    device: Handle,
    lowest: c_uint,
    highest: c_uint,
) -> c_uint {
    if lowest > highest {
        return code::INVALID_ARGUMENT;
    }
    let range = Some((lowest, highest));
    change(device, |device| Request::LockClocks { device, range })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceResetGpuLockedClocks(device: Handle) -> c_uint {
    let range = None;
    change(device, |device| Request::LockClocks { device, range })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetMemoryLockedClocks(
    device: Handle,
    lowest: c_uint,
    highest: c_uint,
) -> c_uint {
    if lowest > highest {
        return code::INVALID_ARGUMENT;
    }
    let range = Some((lowest, highest));
    change(device, |device| Request::LockMemory { device, range })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceResetMemoryLockedClocks(device: Handle) -> c_uint {
    let range = None;
    change(device, |device| Request::LockMemory { device, range })
}
