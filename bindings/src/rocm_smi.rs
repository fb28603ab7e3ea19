//! ROCm SMI (`librocm_smi64`): the calls that litd needs, all of scalars and strings.
//!
//! Calls block for as long as the library likes, and it can take its process down: whoever uses
//! this does so in a process that may be lost. What the calls do is told in `rocm_smi.h`, whose
//! name for each is given here.

#![allow(unsafe_code)]

// bindgen's output. `tests/generated.rs` compares it with the installed header, and makes it.
#[allow(dead_code, missing_docs, non_camel_case_types, clippy::all)]
#[allow(clippy::expect_used)]
#[rustfmt::skip]
mod ffi;

use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_char;
use std::path::{Path, PathBuf};

use libloading::Library;
use litd_units::{Celsius, Joules, Watts};
use thiserror::Error;

use ffi::{rsmi_init_flags_t, rsmi_status_t, rsmi_sw_component_t};
use ffi::{rsmi_temperature_metric_t, rsmi_temperature_type_t};

/// A mutex per process and not one for all users of the node: known from ROCm 6.3 on, ignored
/// before.
const PROCESS_MUTEX: u64 = 0x0400_0000_0000_0000;

/// Give up at once, with [`Status::BUSY`], where another process holds a GPU's mutex.
const NO_WAITING: u64 = rsmi_init_flags_t::RSMI_INIT_FLAG_RESRV_TEST1;

/// Names and versions are shorter.
const LONGEST_TEXT: usize = 256;

/// `rsmi_dev_current_socket_power_get`, which came with ROCm 6.0: microwatts.
type SocketPower = unsafe extern "C" fn(dv_ind: u32, power: *mut u64) -> rsmi_status_t::Type;

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The library can't be loaded.
    #[error("{}: {cause}", .library.display())]
    Load {
        /// The library's name or path.
        library: PathBuf,
        /// The dynamic linker's error.
        cause: String,
    },
    /// The function is missing in this release of the library.
    #[error("the library has no {0}")]
    Missing(&'static str),
    /// The library refused.
    #[error("{call}: {status}")]
    Refused {
        /// The function.
        call: &'static str,
        /// The returned status.
        status: Status,
    },
}

impl Error {
    /// The library's status, if it was called.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Load { .. } | Self::Missing(_) => None,
        }
    }
}

/// A status of the library (`rsmi_status_t`) other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    /// An argument is out of range.
    pub const INVALID_ARGUMENTS: Self = Self(rsmi_status_t::RSMI_STATUS_INVALID_ARGS);
    /// The GPU or its driver has no such thing.
    pub const NOT_SUPPORTED: Self = Self(rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED);
    /// Not allowed.
    pub const PERMISSION: Self = Self(rsmi_status_t::RSMI_STATUS_PERMISSION);
    /// The value is beyond what is safe.
    pub const OUT_OF_BOUNDS: Self = Self(rsmi_status_t::RSMI_STATUS_INPUT_OUT_OF_BOUNDS);
    /// The library could not set itself up.
    pub const INIT: Self = Self(rsmi_status_t::RSMI_STATUS_INIT_ERROR);
    /// Another process holds the GPU's mutex.
    pub const BUSY: Self = Self(rsmi_status_t::RSMI_STATUS_BUSY);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            rsmi_status_t::RSMI_STATUS_INVALID_ARGS => "an argument is out of range",
            rsmi_status_t::RSMI_STATUS_NOT_SUPPORTED => "not supported",
            rsmi_status_t::RSMI_STATUS_FILE_ERROR => "a file of the driver can't be used",
            rsmi_status_t::RSMI_STATUS_PERMISSION => "permission denied",
            rsmi_status_t::RSMI_STATUS_OUT_OF_RESOURCES => "out of memory",
            rsmi_status_t::RSMI_STATUS_INTERNAL_EXCEPTION => "an exception in the library",
            rsmi_status_t::RSMI_STATUS_INPUT_OUT_OF_BOUNDS => "the value is out of bounds",
            rsmi_status_t::RSMI_STATUS_INIT_ERROR => "the library could not set itself up",
            rsmi_status_t::RSMI_STATUS_NO_DATA => "no data",
            rsmi_status_t::RSMI_STATUS_UNEXPECTED_DATA => "unexpected data",
            rsmi_status_t::RSMI_STATUS_BUSY => "busy: another process holds the GPU's mutex",
            _ => "failed",
        };
        write!(f, "{text} (status {})", self.0)
    }
}

/// Calls a function of the library that may be missing.
macro_rules! call {
    ($smi:expr, $function:ident($($argument:expr),*)) => {{
        let function = $smi.library.$function.as_ref();
        let function = function.map_err(|_| Error::Missing(stringify!($function)))?;
        // SAFETY: the signature is the header's (tests/generated.rs). The library has been set
        // up and not been shut down, since `$smi` lives. Indices are of GPUs that it counts, and
        // pointers are to locals that outlive the call, of the length that is told.
        let status = unsafe { function($($argument),*) };
        check(stringify!($function), status)
    }};
}

fn check(call: &'static str, status: rsmi_status_t::Type) -> Result<(), Error> {
    match status {
        rsmi_status_t::RSMI_STATUS_SUCCESS => Ok(()),
        status => Err(Error::Refused {
            call,
            status: Status(status),
        }),
    }
}

/// The library, loaded and set up. Dropping it shuts it down.
pub struct RocmSmi {
    library: ffi::RocmSmi,
    socket_power: Option<SocketPower>,
}

impl fmt::Debug for RocmSmi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocmSmi").finish_non_exhaustive()
    }
}

impl RocmSmi {
    /// Loads the library `name` (a path, or what the dynamic linker finds) and sets it up
    /// (`rsmi_init`). Whatever code is in a library of that name runs.
    ///
    /// Where another process holds the mutex of any GPU, releases before 6.3 wait 5 s and then
    /// fail with [`Status::INIT`].
    ///
    /// # Errors
    /// There is no such library, it is not ROCm SMI, or it finds no GPUs to serve.
    pub fn open(name: &Path) -> Result<Self, Error> {
        let failed = |error: libloading::Error| Error::Load {
            library: name.to_owned(),
            cause: error.to_string(),
        };
        // SAFETY: the name comes from the administrator, who answers for what is in it; ROCm SMI
        // does nothing when it is loaded but make its own objects.
        let library = unsafe { Library::new(name) }.map_err(failed)?;
        // SAFETY: the signature is that of all releases that have the function (since 6.0). The
        // pointer is kept beside the library and used as long as that lives.
        let socket_power =
            unsafe { library.get::<SocketPower>(b"rsmi_dev_current_socket_power_get\0") };
        let socket_power = socket_power.ok().map(|function| *function);
        // SAFETY: this only looks functions up, with the signatures of the header.
        let library = unsafe { ffi::RocmSmi::from_library(library) }.map_err(failed)?;
        // Dropped before it is set up, it would be shut down, which the library counts.
        let init = library.rsmi_init.as_ref();
        let init = init.map_err(|_| Error::Missing("rsmi_init"))?;
        // SAFETY: the signature is the header's. Releases ignore flags that they don't know.
        check("rsmi_init", unsafe { init(NO_WAITING | PROCESS_MUTEX) })?;
        Ok(Self {
            library,
            socket_power,
        })
    }

    /// All GPUs that the library serves, in its order (`rsmi_num_monitor_devices`).
    ///
    /// # Errors
    /// The library refuses.
    pub fn gpus(&self) -> Result<impl Iterator<Item = Gpu<'_>>, Error> {
        let mut count = 0;
        call!(self, rsmi_num_monitor_devices(&raw mut count))?;
        Ok((0..count).map(|index| Gpu { smi: self, index }))
    }

    /// The version of the driver, or of the kernel where the driver has none of its own
    /// (`rsmi_version_str_get`).
    ///
    /// # Errors
    /// The library refuses.
    pub fn driver_version(&self) -> Result<String, Error> {
        const DRIVER: u32 = rsmi_sw_component_t::RSMI_SW_COMP_DRIVER;
        text(|buffer, length| call!(self, rsmi_version_str_get(DRIVER, buffer, length as u32)))
    }
}

impl Drop for RocmSmi {
    fn drop(&mut self) {
        if let Ok(shut_down) = &self.library.rsmi_shut_down {
            // SAFETY: the signature is the header's; this ends what `open` began.
            let _ = unsafe { shut_down() };
        }
    }
}

/// Has `fill` write a text.
fn text(fill: impl FnOnce(*mut c_char, usize) -> Result<(), Error>) -> Result<String, Error> {
    let mut buffer = [0_u8; LONGEST_TEXT];
    fill(buffer.as_mut_ptr().cast(), LONGEST_TEXT)?;
    let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
    Ok(text.to_string_lossy().trim().to_owned())
}

/// The temperature sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sensor {
    /// Of the chip's edge; MI300X has none.
    Edge,
    /// Of the chip's hottest spot.
    Junction,
    /// Of its memory.
    Memory,
}

/// The range of a cap (`rsmi_dev_power_cap_range_get`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The lowest.
    pub lowest: Watts,
    /// The highest.
    pub highest: Watts,
}

/// A GPU of the library.
#[derive(Debug, Clone, Copy)]
pub struct Gpu<'smi> {
    smi: &'smi RocmSmi,
    // Never beyond what the library counts: there it reads memory that isn't its own.
    index: u32,
}

impl Gpu<'_> {
    /// The place on the PCI bus, as the kernel writes it: `0000:85:00.0`; the same for all partitions
    /// (`rsmi_dev_pci_id_get`).
    ///
    /// # Errors
    /// The library refuses.
    pub fn pci_address(&self) -> Result<String, Error> {
        let mut id = 0;
        call!(self.smi, rsmi_dev_pci_id_get(self.index, &raw mut id))?;
        Ok(pci_address(id))
    }

    /// The number that no other GPU has (`rsmi_dev_unique_id_get`).
    ///
    /// # Errors
    /// The library refuses.
    pub fn unique_id(&self) -> Result<u64, Error> {
        let mut id = 0;
        call!(self.smi, rsmi_dev_unique_id_get(self.index, &raw mut id))?;
        Ok(id)
    }

    /// The serial number (`rsmi_dev_serial_number_get`).
    ///
    /// # Errors
    /// The library refuses.
    pub fn serial_number(&self) -> Result<String, Error> {
        text(|buffer, length| {
            let (index, length) = (self.index, length as u32);
            call!(self.smi, rsmi_dev_serial_number_get(index, buffer, length))
        })
    }

    /// The name, or the number of the model where the system has no list of names (`rsmi_dev_name_get`).
    ///
    /// # Errors
    /// The library refuses.
    pub fn name(&self) -> Result<String, Error> {
        text(|buffer, length| call!(self.smi, rsmi_dev_name_get(self.index, buffer, length)))
    }

    /// The cap (`rsmi_dev_power_cap_get`).
    ///
    /// # Errors
    /// The library refuses.
    pub fn cap(&self) -> Result<Watts, Error> {
        let mut cap = 0;
        call!(
            self.smi,
            rsmi_dev_power_cap_get(self.index, 0, &raw mut cap)
        )?;
        Ok(watts(cap))
    }

    /// The cap that the driver started with (`rsmi_dev_power_cap_default_get`).
    ///
    /// # Errors
    /// The library refuses.
    pub fn default_cap(&self) -> Result<Watts, Error> {
        let mut cap = 0;
        call!(
            self.smi,
            rsmi_dev_power_cap_default_get(self.index, &raw mut cap)
        )?;
        Ok(watts(cap))
    }

    /// The range of the cap.
    ///
    /// # Errors
    /// The library refuses.
    pub fn range(&self) -> Result<Range, Error> {
        let (mut highest, mut lowest) = (0, 0);
        call!(
            self.smi,
            rsmi_dev_power_cap_range_get(self.index, 0, &raw mut highest, &raw mut lowest)
        )?;
        Ok(Range {
            lowest: watts(lowest),
            highest: watts(highest),
        })
    }

    /// Sets its cap to whole watts (`rsmi_dev_power_cap_set`). Success is no evidence: the
    /// library reports it also where the driver has refused.
    ///
    /// # Errors
    /// The library refuses.
    pub fn set_cap(&self, watts: u32) -> Result<(), Error> {
        let microwatts = u64::from(watts) * 1_000_000;
        call!(self.smi, rsmi_dev_power_cap_set(self.index, 0, microwatts))
    }

    /// The power it draws: the average where its driver tells one (`rsmi_dev_power_ave_get`),
    /// else that of its socket now (`rsmi_dev_current_socket_power_get`), as on MI300X.
    ///
    /// # Errors
    /// The library refuses both.
    pub fn power(&self) -> Result<Watts, Error> {
        let mut power = 0;
        let average = self.average_power(&mut power);
        if let (Err(_), Some(function)) = (&average, self.smi.socket_power) {
            // SAFETY: as in `call!`.
            let status = unsafe { function(self.index, &raw mut power) };
            check("rsmi_dev_current_socket_power_get", status)?;
        } else {
            average?;
        }
        Ok(watts(power))
    }

    fn average_power(&self, power: &mut u64) -> Result<(), Error> {
        call!(self.smi, rsmi_dev_power_ave_get(self.index, 0, power))
    }

    /// The energy it has used since its driver was loaded (`rsmi_dev_energy_count_get`).
    ///
    /// # Errors
    /// The library refuses.
    pub fn energy(&self) -> Result<Joules, Error> {
        let (mut count, mut microjoules, mut time) = (0, 0.0_f32, 0);
        call!(
            self.smi,
            rsmi_dev_energy_count_get(
                self.index,
                &raw mut count,
                &raw mut microjoules,
                &raw mut time
            )
        )?;
        Ok(Joules(count as f64 * f64::from(microjoules) / 1e6))
    }

    /// A temperature (`rsmi_dev_temp_metric_get`).
    ///
    /// # Errors
    /// The library refuses; most GPUs lack some sensor.
    pub fn temperature(&self, sensor: Sensor) -> Result<Celsius, Error> {
        self.temperature_of(sensor, rsmi_temperature_metric_t::RSMI_TEMP_CURRENT)
    }

    /// The temperature at which the GPU slows itself down (`rsmi_dev_temp_metric_get`).
    ///
    /// # Errors
    /// The library refuses; most GPUs lack some sensor.
    pub fn critical_temperature(&self, sensor: Sensor) -> Result<Celsius, Error> {
        self.temperature_of(sensor, rsmi_temperature_metric_t::RSMI_TEMP_CRITICAL)
    }

    fn temperature_of(
        &self,
        sensor: Sensor,
        metric: rsmi_temperature_metric_t::Type,
    ) -> Result<Celsius, Error> {
        let sensor = match sensor {
            Sensor::Edge => rsmi_temperature_type_t::RSMI_TEMP_TYPE_EDGE,
            Sensor::Junction => rsmi_temperature_type_t::RSMI_TEMP_TYPE_JUNCTION,
            Sensor::Memory => rsmi_temperature_type_t::RSMI_TEMP_TYPE_MEMORY,
        };
        let mut millidegrees = 0;
        call!(
            self.smi,
            rsmi_dev_temp_metric_get(self.index, sensor, metric, &raw mut millidegrees)
        )?;
        Ok(Celsius(millidegrees as f64 / 1e3))
    }
}

fn watts(microwatts: u64) -> Watts {
    Watts(microwatts as f64 / 1e6)
}

/// The address in a `bdfid`: domain, partition (4 bits from bit 28 on, left out), bus, device,
/// function.
fn pci_address(id: u64) -> String {
    let (domain, bus, device, function) = (id >> 32, (id >> 8) & 0xff, (id >> 3) & 0x1f, id & 0x7);
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_gpu_have_one_address() {
        assert_eq!(pci_address(0x8500), "0000:85:00.0");
        assert_eq!(pci_address(0x3000_8500), "0000:85:00.0");
        assert_eq!(pci_address(0x1_0000_c619), "0001:c6:03.1");
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = RocmSmi::open(Path::new("/no/such/librocm_smi64.so")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/no/such/librocm_smi64.so"), "{text}");
        assert_eq!(error.status(), None);
    }

    #[test]
    fn another_library_is_refused() {
        let error = RocmSmi::open(Path::new("libc.so.6")).unwrap_err();
        assert_eq!(error, Error::Missing("rsmi_init"));
    }
}
