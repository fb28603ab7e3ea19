//! Limits, power, energy, heat, and what holds a GPU back.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{field_id, nvmlFieldValue_t, nvmlValue_t};

use super::{change, getters, give, gpu, returned, sensors};
use crate::code;
use crate::protocol::{Request, Sensors};
use crate::session::Handle;

/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED_INT: c_uint = 1;

/// `NVML_TEMPERATURE_GPU`.
const GPU_SENSOR: c_uint = 0;

/// `NVML_TEMPERATURE_THRESHOLD_SHUTDOWN`, some degrees above `..._SLOWDOWN`.
const SHUTDOWN: c_uint = 0;
const SLOWDOWN: c_uint = 1;
const MARGIN: c_uint = 5;

/// All reasons that are told: idle, power limit, slowdown, heat, power brake.
const REASONS: c_ulonglong = 0x1 | 0x4 | 0x8 | 0x20 | 0x40 | 0x80;

getters! {
    nvmlDeviceGetPowerManagementLimit(): c_uint = |device: Handle| Ok(sensors(device)?.limit);
    nvmlDeviceGetPowerManagementDefaultLimit(): c_uint = |device: Handle| Ok(sensors(device)?.default);
    nvmlDeviceGetEnforcedPowerLimit(): c_uint = |device: Handle| Ok(sensors(device)?.enforced);
    nvmlDeviceGetPowerUsage(): c_uint = |device: Handle| Ok(sensors(device)?.power);
    nvmlDeviceGetTotalEnergyConsumption(): c_ulonglong = |device: Handle| Ok(sensors(device)?.energy);
    nvmlDeviceGetCurrentClocksThrottleReasons(): c_ulonglong = |device: Handle| Ok(sensors(device)?.reasons);
    nvmlDeviceGetCurrentClocksEventReasons(): c_ulonglong = |device: Handle| Ok(sensors(device)?.reasons);
    nvmlDeviceGetSupportedClocksThrottleReasons(): c_ulonglong = |device: Handle| gpu(device).map(|_| REASONS);
    nvmlDeviceGetSupportedClocksEventReasons(): c_ulonglong = |device: Handle| gpu(device).map(|_| REASONS);
    nvmlDeviceGetTemperature(sensor): c_uint = |device, sensor| match sensor {
        GPU_SENSOR => Ok(sensors(device)?.temperature),
        _ => Err(code::INVALID_ARGUMENT),
    };
    nvmlDeviceGetTemperatureThreshold(kind): c_uint = |device, kind| match kind {
        SHUTDOWN => Ok(sensors(device)?.slowdown + MARGIN),
        SLOWDOWN => Ok(sensors(device)?.slowdown),
        _ => Err(code::NOT_SUPPORTED),
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerManagementLimitConstraints(
    device: Handle,
    lowest: *mut c_uint,
    highest: *mut c_uint,
) -> c_uint {
    let range = sensors(device).map(|sensors| (sensors.lowest, sensors.highest));
    // SAFETY: both are as nvml.h says.
    unsafe {
        give(lowest, range.map(|range| range.0)).max(give(highest, range.map(|range| range.1)))
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetPowerManagementLimit(device: Handle, milliwatts: c_uint) -> c_uint {
    change(device, |device| Request::SetLimit { device, milliwatts })
}

/// The call succeeds also if no field does: each has a code of its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: Handle,
    count: c_int,
    values: *mut nvmlFieldValue_t,
) -> c_uint {
    returned(sensors(device).and_then(|sensors| {
        let count = usize::try_from(count).map_err(|_| code::INVALID_ARGUMENT)?;
        if values.is_null() || count == 0 {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: `values` are `count` initialised ones as nvml.h says, and not null.
        let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
        for value in values {
            match field(&sensors, value.fieldId) {
                Some(milliwatts) => {
                    value.nvmlReturn = code::SUCCESS;
                    value.valueType = UNSIGNED_INT;
                    value.value = nvmlValue_t { uiVal: milliwatts };
                }
                None => value.nvmlReturn = code::NOT_SUPPORTED,
            }
        }
        Ok(())
    }))
}

fn field(sensors: &Sensors, id: c_uint) -> Option<c_uint> {
    match id {
        field_id::NVML_FI_DEV_POWER_AVERAGE => Some(sensors.power),
        field_id::NVML_FI_DEV_POWER_INSTANT => sensors.instant,
        _ => None,
    }
}
