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

macro_rules! locks {
    ($($request:ident: $lock:ident, $unlock:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $lock(device: Handle, lowest: c_uint, highest: c_uint) -> c_uint {
                if lowest > highest {
                    return code::INVALID_ARGUMENT;
                }
                let range = Some((lowest, highest));
                change(device, |device| Request::$request { device, range })
            }

            #[unsafe(no_mangle)]
            extern "C" fn $unlock(device: Handle) -> c_uint {
                let range = None;
                change(device, |device| Request::$request { device, range })
            }
        )*
    };
}

locks! {
    LockClocks: nvmlDeviceSetGpuLockedClocks, nvmlDeviceResetGpuLockedClocks;
    LockMemory: nvmlDeviceSetMemoryLockedClocks, nvmlDeviceResetMemoryLockedClocks;
}
