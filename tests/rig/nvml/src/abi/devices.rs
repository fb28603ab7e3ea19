//! The GPUs of the node, and their properties that never change.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::{nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlUtilization_t};

use super::{change, getters, give, give_text, given, gpu, sensors};
use crate::code;
use crate::protocol::{MIG_INSTANCES, Request};
use crate::session::{self, Gpu, Handle};

/// H100: what the stand-in has of memory.
const MEMORY: u64 = 80 << 30;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> c_uint {
    let count = session::gpus().map(|gpus| gpus.len() as c_uint);
    // SAFETY: `out` is as nvml.h says.
    unsafe { give(out, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Handle) -> c_uint {
    let handle = session::find(|gpu| gpu.index == index as usize);
    let handle = handle.map_err(|error| match error {
        code::NOT_FOUND => code::INVALID_ARGUMENT,
        other => other,
    });
    // SAFETY: `out` is as nvml.h says.
    unsafe { give(out, handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut Handle) -> c_uint {
    // SAFETY: both are as nvml.h says.
    unsafe {
        let handle = given(uuid)
            .and_then(|uuid| session::find(|gpu| gpu.board.uuid.as_deref() == Some(uuid)));
        give(out, handle)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    bus_id: *const c_char,
    out: *mut Handle,
) -> c_uint {
    // With four digits of domain or with eight.
    let is = |gpu: &Gpu, bus_id: &str| {
        bus_id.eq_ignore_ascii_case(&gpu.board.address)
            || bus_id.eq_ignore_ascii_case(&gpu.bus_id())
    };
    // SAFETY: both are as nvml.h says.
    unsafe {
        let handle = given(bus_id).and_then(|bus_id| session::find(|gpu| is(gpu, bus_id)));
        give(out, handle)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: Handle, out: *mut c_char, length: c_uint) -> c_uint {
    let name = gpu(device).map(|gpu| Some(gpu.board.name.clone()));
    // SAFETY: `out` and `length` are as nvml.h says.
    unsafe { give_text(out, length, name) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: Handle, out: *mut c_char, length: c_uint) -> c_uint {
    let uuid = gpu(device).map(|gpu| gpu.board.uuid.clone());
    // SAFETY: `out` and `length` are as nvml.h says.
    unsafe { give_text(out, length, uuid) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSerial(
    device: Handle,
    out: *mut c_char,
    length: c_uint,
) -> c_uint {
    let serial = gpu(device).map(|gpu| gpu.board.serial.clone());
    // SAFETY: `out` and `length` are as nvml.h says.
    unsafe { give_text(out, length, serial) }
}

fn pci_info(gpu: &Gpu) -> Result<nvmlPciInfo_t, u32> {
    // domain:bus:device.function
    let mut numbers = gpu.board.address.split([':', '.']);
    let mut number = || {
        let digits = numbers.next().ok_or(code::UNKNOWN)?;
        u32::from_str_radix(digits, 16).map_err(|_| code::UNKNOWN)
    };
    let mut info = nvmlPciInfo_t {
        busIdLegacy: [0; 16],
        domain: number()?,
        bus: number()?,
        device: number()?,
        pciDeviceId: 0x2330_10de,
        pciSubSystemId: 0,
        busId: [0; 32],
    };
    write(
        &mut info.busIdLegacy,
        &gpu.board.address.to_ascii_uppercase(),
    );
    write(&mut info.busId, &gpu.bus_id());
    Ok(info)
}

/// Fills all but the last byte, which stays zero.
fn write(field: &mut [c_char], text: &str) {
    let Some((_, room)) = field.split_last_mut() else {
        return;
    };
    for (byte, letter) in room.iter_mut().zip(text.bytes()) {
        *byte = letter as c_char;
    }
}

getters! {
    nvmlDeviceGetPciInfo_v3(): nvmlPciInfo_t = |device: Handle| pci_info(&*gpu(device)?);
    nvmlDeviceGetIndex(): c_uint = |device: Handle| Ok(gpu(device)?.index as c_uint);
    nvmlDeviceGetMinorNumber(): c_uint = |device: Handle| Ok(gpu(device)?.index as c_uint);
    nvmlDeviceGetComputeMode(): c_uint = |device: Handle| gpu(device).map(|_| 0);
    nvmlDeviceGetPerformanceState(): c_uint = |device: Handle| gpu(device).map(|_| 0);
    nvmlDeviceGetPersistenceMode(): c_uint = |device: Handle| Ok(sensors(device)?.persistence.into());
    nvmlDeviceGetMemoryInfo(): nvmlMemory_t = |device: Handle| gpu(device).map(|_| nvmlMemory_t {
        total: MEMORY,
        free: MEMORY / 2,
        used: MEMORY / 2,
    });
    nvmlDeviceGetMemoryInfo_v2(): nvmlMemory_v2_t = |device: Handle| {
        gpu(device).map(|_| nvmlMemory_v2_t {
            version: size_of::<nvmlMemory_v2_t>() as c_uint | (2 << 24),
            total: MEMORY,
            reserved: 0,
            free: MEMORY / 2,
            used: MEMORY / 2,
        })
    };
    nvmlDeviceGetUtilizationRates(): nvmlUtilization_t = |device: Handle| {
        let busy = !sensors(device)?.compute.is_empty();
        Ok(nvmlUtilization_t {
            gpu: c_uint::from(busy) * 100,
            memory: c_uint::from(busy) * 50,
        })
    };
    nvmlDeviceGetMaxMigDeviceCount(): c_uint = |device: Handle| Ok(match sensors(device)?.mig {
        true => MIG_INSTANCES,
        false => 0,
    });
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetPersistenceMode(device: Handle, mode: c_uint) -> c_uint {
    change(device, |device| Request::SetPersistence {
        device,
        on: mode != 0,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: Handle,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> c_uint {
    let mode = sensors(device).map(|sensors| c_uint::from(sensors.mig));
    // SAFETY: both are as nvml.h says.
    unsafe { give(current, mode).max(give(pending, mode)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Handle,
    index: c_uint,
    out: *mut Handle,
) -> c_uint {
    let handle = sensors(device).and_then(|sensors| match (sensors.mig, index) {
        (true, 0) => Ok(session::instance(device)),
        _ => Err(code::NOT_FOUND),
    });
    // SAFETY: `out` is as nvml.h says.
    unsafe { give(out, handle) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Handle,
    major: *mut c_int,
    minor: *mut c_int,
) -> c_uint {
    let version = gpu(device).map(|_| (9, 0));
    // SAFETY: both are as nvml.h says.
    unsafe {
        give(major, version.map(|version| version.0))
            .max(give(minor, version.map(|(_, minor)| minor)))
    }
}
