//! The library and the system.

use std::ffi::{c_char, c_int, c_uint};

use super::{give, give_text, returned};
use crate::{code, session};

/// CUDA 12.4.
const CUDA: c_int = 12_040;

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_uint {
    returned(session::init())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> c_uint {
    returned(session::init())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    returned(session::init())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_uint {
    returned(session::shutdown())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: c_uint) -> *const c_char {
    let text = match result {
        code::SUCCESS => c"The operation was successful",
        code::UNINITIALIZED => c"Uninitialized",
        code::INVALID_ARGUMENT => c"Invalid Argument",
        code::NOT_SUPPORTED => c"Not Supported",
        code::NO_PERMISSION => c"Insufficient Permissions",
        code::NOT_FOUND => c"Not Found",
        code::INSUFFICIENT_SIZE => c"Insufficient Size",
        code::DRIVER_NOT_LOADED => c"Driver Not Loaded",
        code::GPU_IS_LOST => c"GPU is lost",
        code::RESET_REQUIRED => c"GPU requires reset",
        code::LIB_RM_VERSION_MISMATCH => c"Driver/library version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) -> c_uint {
    let version = session::gpus().map(|gpus| {
        let driver = gpus.first().map(|gpu| gpu.board.driver.clone());
        Some(driver.unwrap_or_else(|| "0".to_owned()))
    });
    // SAFETY: `out` and `length` are as nvml.h says.
    unsafe { give_text(out, length, version) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetNVMLVersion(out: *mut c_char, length: c_uint) -> c_uint {
    let version = Ok(Some(env!("CARGO_PKG_VERSION").to_owned()));
    // SAFETY: `out` and `length` are as nvml.h says.
    unsafe { give_text(out, length, version) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) -> c_uint {
    // SAFETY: `out` is as nvml.h says.
    unsafe { give(out, Ok(CUDA)) }
}
