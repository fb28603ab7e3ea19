//! Processes that have a GPU open. Versions 2 and 3 of these functions do not differ in what is used here.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::nvmlProcessInfo_t;

use super::give_list;
use crate::protocol::Sensors;
use crate::session::{self, Handle};

/// The value of an unused instance number.
const NONE: c_uint = c_uint::MAX;

fn processes(
    device: Handle,
    which: fn(Sensors) -> Vec<u32>,
) -> Result<Vec<nvmlProcessInfo_t>, u32> {
    let (gpu, instance) = session::device(device)?;
    let sensors = gpu.sensors()?;
    // With MIG on, each process is on an instance, and only there is it told.
    let pids = match sensors.mig == instance {
        true => which(sensors),
        false => Vec::new(),
    };
    let info = |pid| nvmlProcessInfo_t {
        pid,
        usedGpuMemory: 1 << 30,
        gpuInstanceId: if instance { 1 } else { NONE },
        computeInstanceId: if instance { 0 } else { NONE },
    };
    Ok(pids.into_iter().map(info).collect())
}

macro_rules! lists {
    ($($name:ident = $which:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                device: Handle,
                count: *mut c_uint,
                out: *mut nvmlProcessInfo_t,
            ) -> c_uint {
                // SAFETY: both are as nvml.h says.
                unsafe { give_list(count, out, processes(device, $which)) }
            }
        )*
    };
}

lists! {
    nvmlDeviceGetComputeRunningProcesses_v2 = |sensors| sensors.compute;
    nvmlDeviceGetComputeRunningProcesses_v3 = |sensors| sensors.compute;
    nvmlDeviceGetGraphicsRunningProcesses_v2 = |sensors| sensors.graphics;
    nvmlDeviceGetGraphicsRunningProcesses_v3 = |sensors| sensors.graphics;
    nvmlDeviceGetMPSComputeRunningProcesses_v2 = |sensors| sensors.mps;
    nvmlDeviceGetMPSComputeRunningProcesses_v3 = |sensors| sensors.mps;
}
