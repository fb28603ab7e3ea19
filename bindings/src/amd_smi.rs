//! AMD SMI (`libamd_smi`), which succeeds ROCm SMI. What the calls do is told in `amdsmi.h`, whose name for each is
//! given here.
//!
//! Structures change between its major versions, which [`AmdSmi::open`] asks for. Of 26 and 27 those that are used here
//! begin alike, and 27's are the larger.

#![allow(unsafe_code)]

// bindgen's output. `tests/generated.rs` compares it with the unpacked header, and makes it.
#[allow(dead_code, missing_docs, non_camel_case_types, clippy::all)]
#[allow(clippy::expect_used)]
#[rustfmt::skip]
mod ffi;

use std::fmt;
use std::mem;
use std::os::raw::c_char;
use std::path::Path;
use std::ptr;

use litd_units::{Celsius, Joules, Watts};

use ffi::{amdsmi_init_flags_t, amdsmi_status_t};
use ffi::{amdsmi_temperature_metric_t, amdsmi_temperature_type_t};

use crate::smi::{
    self, Error, Library, Meaning, Range, Sensor, Status, call, joules, load, not_loaded, watts,
};

/// Major versions whose structures begin as those of the header do.
const KNOWN: (std::ops::RangeInclusive<u32>, &str) = (26..=27, "26 and 27");

/// A version has fewer words. Before 26 its first one is the year, which then stands for the major version.
const WORDS_OF_VERSION: usize = 16;

/// Members of structures that a GPU does not tell.
const UNTOLD: u64 = u32::MAX as u64;

fn check(call: &'static str, status: amdsmi_status_t::Type) -> Result<(), Error> {
    use amdsmi_status_t as it;
    let (meaning, text) = match status {
        it::AMDSMI_STATUS_SUCCESS => return Ok(()),
        it::AMDSMI_STATUS_INVAL => (Meaning::OutOfRange, "an argument is out of range"),
        it::AMDSMI_STATUS_INPUT_OUT_OF_BOUNDS => {
            (Meaning::OutOfRange, "the value is out of bounds")
        }
        it::AMDSMI_STATUS_NOT_SUPPORTED => (Meaning::NotSupported, "not supported"),
        it::AMDSMI_STATUS_NOT_YET_IMPLEMENTED => (Meaning::NotSupported, "not implemented"),
        it::AMDSMI_STATUS_NO_PERM => (Meaning::Permission, "permission denied"),
        it::AMDSMI_STATUS_BUSY => (Meaning::Busy, "busy: another process holds the GPU's mutex"),
        it::AMDSMI_STATUS_DRM_ERROR => (Meaning::Other, "libdrm failed"),
        it::AMDSMI_STATUS_API_FAILED => (Meaning::Other, "the call failed"),
        it::AMDSMI_STATUS_IO => (Meaning::Other, "input or output failed"),
        it::AMDSMI_STATUS_FILE_ERROR => (Meaning::Other, "a file of the driver can't be used"),
        it::AMDSMI_STATUS_FILE_NOT_FOUND => (Meaning::Other, "a file of the driver is missing"),
        it::AMDSMI_STATUS_OUT_OF_RESOURCES => (Meaning::Other, "out of memory"),
        it::AMDSMI_STATUS_INTERNAL_EXCEPTION => (Meaning::Other, "an exception in the library"),
        it::AMDSMI_STATUS_INIT_ERROR => (Meaning::Other, "the library could not set itself up"),
        it::AMDSMI_STATUS_NOT_FOUND => (Meaning::Other, "no such GPU"),
        it::AMDSMI_STATUS_DRIVER_NOT_LOADED => (Meaning::Other, "the driver is not loaded"),
        it::AMDSMI_STATUS_NO_DATA => (Meaning::Other, "no data"),
        it::AMDSMI_STATUS_UNEXPECTED_DATA => (Meaning::Other, "unexpected data"),
        _ => (Meaning::Other, "failed"),
    };
    Err(Error::Refused {
        call,
        status: Status {
            number: status,
            meaning,
            text,
        },
    })
}

/// The error of a value that a structure has a place for and that this GPU does not tell.
fn untold(call: &'static str) -> Error {
    let call = check(call, amdsmi_status_t::AMDSMI_STATUS_NOT_SUPPORTED);
    call.err().unwrap_or(Error::Missing("value"))
}

/// The library, loaded and set up. Dropping it shuts it down.
pub struct AmdSmi {
    library: ffi::AmdSmi,
}

impl fmt::Debug for AmdSmi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmdSmi").finish_non_exhaustive()
    }
}

impl AmdSmi {
    /// Loads the library `name` (a path, or what the dynamic linker finds) and sets it up for GPUs
    /// (`amdsmi_init`). Whatever code is in a library of that name runs.
    ///
    /// # Errors
    /// There is no such library, it is not AMD SMI, its version is unknown, or it finds no GPUs to serve.
    pub fn open(name: &Path) -> Result<Self, Error> {
        let library = load(name)?;
        // SAFETY: this only looks functions up, with the signatures of the header.
        let library = unsafe { ffi::AmdSmi::from_library(library) }
            .map_err(|error| not_loaded(name, &error))?;
        let version = library.amdsmi_get_lib_version.as_ref();
        let version = version.map_err(|_| Error::Missing("amdsmi_get_lib_version"))?;
        let mut words = [0_u32; WORDS_OF_VERSION];
        // SAFETY: all versions write four or five words and a pointer, for which there is room, and
        // answer also before they are set up.
        let status = unsafe { version(words.as_mut_ptr().cast()) };
        check("amdsmi_get_lib_version", status)?;
        let (known, in_words) = KNOWN;
        if !known.contains(&words[0]) {
            return Err(Error::Version {
                found: words[0],
                known: in_words,
            });
        }
        // Dropped before it is set up, it would be shut down, which the library counts.
        let init = library.amdsmi_init.as_ref();
        let init = init.map_err(|_| Error::Missing("amdsmi_init"))?;
        let gpus = amdsmi_init_flags_t::AMDSMI_INIT_AMD_GPUS;
        // SAFETY: the signature is the header's.
        check("amdsmi_init", unsafe { init(gpus.into()) })?;
        Ok(Self { library })
    }

    /// All handles that `list` gives: it is asked for their number, then for the handles.
    fn handles(
        &self,
        list: impl Fn(*mut u32, *mut ffi::amdsmi_processor_handle) -> Result<(), Error>,
    ) -> Result<Vec<ffi::amdsmi_processor_handle>, Error> {
        let mut count = 0;
        list(&raw mut count, ptr::null_mut())?;
        let mut handles = vec![ptr::null_mut(); count as usize];
        // The library writes no more of them than it is told that there is room for.
        list(&raw mut count, handles.as_mut_ptr())?;
        handles.truncate(count as usize);
        handles.retain(|handle| !handle.is_null());
        Ok(handles)
    }
}

impl Library for AmdSmi {
    /// The first processor of each socket (`amdsmi_get_socket_handles`, `amdsmi_get_processor_handles`): the others
    /// are partitions of it, which share its cap.
    fn gpus(&self) -> Result<Vec<Box<dyn smi::Gpu + '_>>, Error> {
        let sockets =
            self.handles(|count, handles| call!(self, amdsmi_get_socket_handles(count, handles)))?;
        let mut gpus: Vec<Box<dyn smi::Gpu>> = Vec::with_capacity(sockets.len());
        let mut failed = None;
        for socket in sockets {
            let processors = self.handles(|count, handles| {
                call!(self, amdsmi_get_processor_handles(socket, count, handles))
            });
            match processors.as_ref().map(|all| all.first()) {
                Ok(Some(&handle)) => gpus.push(Box::new(Gpu { smi: self, handle })),
                Ok(None) => {}
                // Each GPU's own process asks for all of them: one that fails costs no other one.
                Err(_) => failed = processors.err(),
            }
        }
        match failed.filter(|_| gpus.is_empty()) {
            Some(error) => Err(error),
            None => Ok(gpus),
        }
    }
}

impl Drop for AmdSmi {
    fn drop(&mut self) {
        if let Ok(shut_down) = &self.library.amdsmi_shut_down {
            // SAFETY: the signature is the header's; this ends what `open` began.
            let _ = unsafe { shut_down() };
        }
    }
}

/// A GPU of the library.
struct Gpu<'smi> {
    smi: &'smi AmdSmi,
    /// The library's, valid until it is shut down.
    handle: ffi::amdsmi_processor_handle,
}

/// A structure for the library to fill, with room for one that a later version of the same layout has extended.
#[repr(C)]
struct Room<T> {
    value: T,
    more: [u64; 64],
}

impl Gpu<'_> {
    /// Has `fill` write a structure.
    fn filled<T: Copy>(fill: impl FnOnce(*mut T) -> Result<(), Error>) -> Result<T, Error> {
        // SAFETY: only structures of numbers and arrays of numbers are asked for, to which all zeros are values.
        let mut room: Room<T> = unsafe { mem::zeroed() };
        fill((&raw mut room).cast())?;
        Ok(room.value)
    }

    fn caps(&self) -> Result<ffi::amdsmi_power_cap_info_t, Error> {
        Self::filled(|it| call!(self.smi, amdsmi_get_power_cap_info(self.handle, 0, it)))
    }

    fn board(&self) -> Result<ffi::amdsmi_board_info_t, Error> {
        Self::filled(|it| call!(self.smi, amdsmi_get_gpu_board_info(self.handle, it)))
    }

    fn temperature_of(
        &self,
        sensor: Sensor,
        metric: amdsmi_temperature_metric_t::Type,
    ) -> Result<Celsius, Error> {
        let sensor = match sensor {
            Sensor::Edge => amdsmi_temperature_type_t::AMDSMI_TEMPERATURE_TYPE_EDGE,
            Sensor::Junction => amdsmi_temperature_type_t::AMDSMI_TEMPERATURE_TYPE_JUNCTION,
            Sensor::Memory => amdsmi_temperature_type_t::AMDSMI_TEMPERATURE_TYPE_VRAM,
        };
        let mut degrees = 0;
        call!(
            self.smi,
            amdsmi_get_temp_metric(self.handle, sensor, metric, &raw mut degrees)
        )?;
        Ok(Celsius(degrees as f64))
    }
}

impl smi::Gpu for Gpu<'_> {
    /// `amdsmi_get_gpu_device_bdf`.
    fn pci_address(&self) -> Result<String, Error> {
        let mut id = 0_u64;
        call!(
            self.smi,
            amdsmi_get_gpu_device_bdf(self.handle, &raw mut id)
        )?;
        Ok(pci_address(id))
    }

    /// `asic_serial` of `amdsmi_get_gpu_asic_info`: in hexadecimal digits.
    fn unique_id(&self) -> Result<u64, Error> {
        const CALL: &str = "amdsmi_get_gpu_asic_info";
        let asic: ffi::amdsmi_asic_info_t =
            Self::filled(|it| call!(self.smi, amdsmi_get_gpu_asic_info(self.handle, it)))?;
        let digits = text(&asic.asic_serial);
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).map_err(|_| untold(CALL))
    }

    /// `product_serial` of `amdsmi_get_gpu_board_info`.
    fn serial_number(&self) -> Result<String, Error> {
        Ok(text(&self.board()?.product_serial))
    }

    /// `product_name` of `amdsmi_get_gpu_board_info`.
    fn name(&self) -> Result<String, Error> {
        Ok(text(&self.board()?.product_name))
    }

    /// `amdsmi_get_gpu_driver_info`.
    fn driver_version(&self) -> Result<String, Error> {
        let driver: ffi::amdsmi_driver_info_t =
            Self::filled(|it| call!(self.smi, amdsmi_get_gpu_driver_info(self.handle, it)))?;
        Ok(text(&driver.driver_version))
    }

    /// `amdsmi_get_power_cap_info`, as the next two.
    fn cap(&self) -> Result<Watts, Error> {
        Ok(watts(self.caps()?.power_cap))
    }

    fn default_cap(&self) -> Result<Watts, Error> {
        match self.caps()?.default_power_cap {
            0 => Err(untold("amdsmi_get_power_cap_info")),
            cap => Ok(watts(cap)),
        }
    }

    fn range(&self) -> Result<Range, Error> {
        let caps = self.caps()?;
        Ok(Range {
            lowest: watts(caps.min_power_cap),
            highest: watts(caps.max_power_cap),
        })
    }

    /// `amdsmi_set_power_cap`, in microwatts as ROCm SMI takes them.
    fn set_cap(&self, watts: u32) -> Result<(), Error> {
        let microwatts = u64::from(watts) * 1_000_000;
        call!(self.smi, amdsmi_set_power_cap(self.handle, 0, microwatts))
    }

    /// `socket_power` of `amdsmi_get_power_info`: of this moment on MI300, an average before; in whole watts.
    fn power(&self) -> Result<Watts, Error> {
        let power: ffi::amdsmi_power_info_t =
            Self::filled(|it| call!(self.smi, amdsmi_get_power_info(self.handle, it)))?;
        match power.socket_power {
            UNTOLD.. => Err(untold("amdsmi_get_power_info")),
            watts => Ok(Watts(watts as f64)),
        }
    }

    /// `amdsmi_get_energy_count`.
    fn energy(&self) -> Result<Joules, Error> {
        let (mut count, mut microjoules, mut time) = (0, 0.0_f32, 0);
        call!(
            self.smi,
            amdsmi_get_energy_count(
                self.handle,
                &raw mut count,
                &raw mut microjoules,
                &raw mut time
            )
        )?;
        Ok(joules(count, microjoules))
    }

    /// `amdsmi_get_temp_metric`, in whole degrees.
    fn temperature(&self, sensor: Sensor) -> Result<Celsius, Error> {
        self.temperature_of(sensor, amdsmi_temperature_metric_t::AMDSMI_TEMP_CURRENT)
    }

    fn critical_temperature(&self, sensor: Sensor) -> Result<Celsius, Error> {
        self.temperature_of(sensor, amdsmi_temperature_metric_t::AMDSMI_TEMP_CRITICAL)
    }
}

/// A text in a structure.
fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&byte| byte as u8).collect();
    smi::text(&bytes)
}

/// The address in an `amdsmi_bdf_t`: function (3 bits), device (5), bus (8), domain.
fn pci_address(id: u64) -> String {
    smi::pci_address(id >> 16, (id >> 8) & 0xff, (id >> 3) & 0x1f, id & 0x7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_domain_above_the_bus() {
        assert_eq!(pci_address(0x8500), "0000:85:00.0");
        assert_eq!(pci_address(0x1_c619), "0001:c6:03.1");
    }

    #[test]
    fn another_library_is_refused() {
        let error = AmdSmi::open(Path::new("libc.so.6")).unwrap_err();
        assert_eq!(error, Error::Missing("amdsmi_get_lib_version"));
    }

    #[test]
    fn a_value_that_is_not_told_is_not_supported() {
        let error = untold("amdsmi_get_power_info");
        assert_eq!(error.meaning(), Some(Meaning::NotSupported));
    }
}
