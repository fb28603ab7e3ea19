//! The C interface.
//!
//! Every function is called as `nvml.h` says: pointers are null or point to what it says they
//! point to, for as long as the call lasts; a length beside a pointer is no more than there is
//! room for. What is called `SAFETY` below relies on that and on nothing else.
#![allow(non_snake_case, reason = "the names are NVML's")]

mod clocks;
mod devices;
mod library;
mod power;
mod processes;

use std::ffi::{CStr, c_char, c_uint};
use std::sync::Arc;

use crate::code;
use crate::protocol::{Answer, Request, Sensors};
use crate::session::{self, Gpu, Handle};

/// `nvmlReturn_t` of what was done.
fn returned(result: Result<(), u32>) -> c_uint {
    match result {
        Ok(()) => code::SUCCESS,
        Err(code) => code,
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `out` is null or may be written.
unsafe fn give<T>(out: *mut T, result: Result<T, u32>) -> c_uint {
    returned(result.and_then(|value| {
        if out.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: the caller's promise; it is not null.
        unsafe { out.write(value) };
        Ok(())
    }))
}

/// Writes a string and the zero at its end where the caller wants it.
///
/// # Safety
/// `out` is null or has room for `length` bytes.
unsafe fn give_text(
    out: *mut c_char,
    length: c_uint,
    result: Result<Option<String>, u32>,
) -> c_uint {
    returned(result.and_then(|text| {
        let text = text.ok_or(code::NOT_SUPPORTED)?;
        if out.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        if text.len() >= length as usize {
            return Err(code::INSUFFICIENT_SIZE);
        }
        // SAFETY: the caller's promise; text and zero are no more than `length` bytes.
        unsafe {
            out.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
            out.add(text.len()).write(0);
        }
        Ok(())
    }))
}

/// Writes a list the way NVML does: `count` says for how many there is room and then how many
/// there are.
///
/// # Safety
/// `count` is null or may be read and written; `out` is null or has room for `*count`.
unsafe fn give_list<T>(count: *mut c_uint, out: *mut T, result: Result<Vec<T>, u32>) -> c_uint {
    returned(result.and_then(|list| {
        if count.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        let length = u32::try_from(list.len()).map_err(|_| code::UNKNOWN)?;
        // SAFETY: the caller's promise; it is not null.
        let room = unsafe { count.replace(length) };
        if length == 0 {
            return Ok(());
        }
        if room < length || out.is_null() {
            return Err(code::INSUFFICIENT_SIZE);
        }
        // SAFETY: there is room for the whole list, and it is not null.
        unsafe { out.copy_from_nonoverlapping(list.as_ptr(), list.len()) };
        Ok(())
    }))
}

/// A string that the caller gave.
///
/// # Safety
/// `text` is null or ends with a zero, and lives while the result is used.
unsafe fn given<'a>(text: *const c_char) -> Result<&'a str, u32> {
    if text.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise; it is not null.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| code::INVALID_ARGUMENT)
}

/// A whole GPU. Its instances have no sensors and settings of their own.
fn gpu(handle: Handle) -> Result<Arc<Gpu>, u32> {
    match session::device(handle)? {
        (_, true) => Err(code::NOT_SUPPORTED),
        (gpu, false) => Ok(gpu),
    }
}

fn sensors(handle: Handle) -> Result<Sensors, u32> {
    gpu(handle)?.sensors()
}

/// Has the node change something about a GPU.
fn change(handle: Handle, request: impl FnOnce(String) -> Request) -> c_uint {
    returned((|| {
        let gpu = gpu(handle)?;
        match gpu.ask(&request(gpu.board.address.clone()))? {
            Answer::Done => Ok(()),
            _ => Err(code::UNKNOWN),
        }
    })())
}

/// Functions that tell one thing about a device; some are asked for one of several.
macro_rules! getters {
    ($($name:ident($($kind:ident)?): $type:ty = $read:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                device: crate::session::Handle,
                $($kind: std::ffi::c_uint,)?
                out: *mut $type,
            ) -> std::ffi::c_uint {
                let result: Result<$type, u32> = $read(device $(, $kind)?);
                // SAFETY: `out` is as nvml.h says.
                unsafe { super::give(out, result) }
            }
        )*
    };
}
use getters;
