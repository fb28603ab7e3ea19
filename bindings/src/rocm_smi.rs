//! ROCm SMI (`librocm_smi64`): the calls that litd needs, all of scalars and strings.
//!
//! What the calls do is told in `rocm_smi.h`, whose name for each is given here.

#![allow(unsafe_code)]

// bindgen's output. `tests/generated.rs` compares it with the installed header, and makes it.
#[allow(dead_code, missing_docs, non_camel_case_types, clippy::all)]
#[allow(clippy::expect_used)]
#[rustfmt::skip]
mod ffi;

use std::fmt;
use std::os::raw::c_char;
use std::path::Path;

use litd_units::{Celsius, Joules, Watts};

use ffi::{rsmi_init_flags_t, rsmi_status_t, rsmi_sw_component_t};
use ffi::{rsmi_temperature_metric_t, rsmi_temperature_type_t};

use crate::smi::{
    self, Error, Library, Meaning, Range, Sensor, Status, call, joules, load, not_loaded, watts,
};

/// A mutex per process and not one for all users of the node: known from ROCm 6.3 on, ignored
/// before.
const PROCESS_MUTEX: u64 = 0x0400_0000_0000_0000;

/// Give up at once, with [`Meaning::Busy`], where another process holds a GPU's mutex.
const NO_WAITING: u64 = rsmi_init_flags_t::RSMI_INIT_FLAG_RESRV_TEST1;

/// Names and versions are shorter.
const LONGEST_TEXT: usize = 256;

/// `rsmi_dev_current_socket_power_get`, which came with ROCm 6.0: microwatts.
type SocketPower = unsafe extern "C" fn(dv_ind: u32, power: *mut u64) -> rsmi_status_t::Type;

fn check(call: &'static str, status: rsmi_status_t::Type) -> Result<(), Error> {
    use rsmi_status_t as it;
    let (meaning, text) = match status {
        it::RSMI_STATUS_SUCCESS => return Ok(()),
        it::RSMI_STATUS_INVALID_ARGS => (Meaning::OutOfRange, "an argument is out of range"),
        it::RSMI_STATUS_NOT_SUPPORTED => (Meaning::NotSupported, "not supported"),
        it::RSMI_STATUS_FILE_ERROR => (Meaning::Other, "a file of the driver can't be used"),
        it::RSMI_STATUS_PERMISSION => (Meaning::Permission, "permission denied"),
        it::RSMI_STATUS_OUT_OF_RESOURCES => (Meaning::Other, "out of memory"),
        it::RSMI_STATUS_INTERNAL_EXCEPTION => (Meaning::Other, "an exception in the library"),
        it::RSMI_STATUS_INPUT_OUT_OF_BOUNDS => (Meaning::OutOfRange, "the value is out of bounds"),
        it::RSMI_STATUS_INIT_ERROR => (Meaning::Other, "the library could not set itself up"),
        it::RSMI_STATUS_NO_DATA => (Meaning::Other, "no data"),
        it::RSMI_STATUS_UNEXPECTED_DATA => (Meaning::Other, "unexpected data"),
        it::RSMI_STATUS_BUSY => (Meaning::Busy, "busy: another process holds the GPU's mutex"),
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
    /// fail.
    ///
    /// # Errors
    /// There is no such library, it is not ROCm SMI, or it finds no GPUs to serve.
    pub fn open(name: &Path) -> Result<Self, Error> {
        let library = load(name)?;
        // SAFETY: the signature is that of all releases that have the function (since 6.0). The
        // pointer is kept beside the library and used as long as that lives.
        let socket_power =
            unsafe { library.get::<SocketPower>(b"rsmi_dev_current_socket_power_get\0") };
        let socket_power = socket_power.ok().map(|function| *function);
        // SAFETY: this only looks functions up, with the signatures of the header.
        let library = unsafe { ffi::RocmSmi::from_library(library) }
            .map_err(|error| not_loaded(name, &error))?;
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
}

impl Library for RocmSmi {
    /// `rsmi_num_monitor_devices`.
    fn gpus(&self) -> Result<Vec<Box<dyn smi::Gpu + '_>>, Error> {
        let mut count = 0;
        call!(self, rsmi_num_monitor_devices(&raw mut count))?;
        let gpu = |index| Box::new(Gpu { smi: self, index }) as Box<dyn smi::Gpu>;
        Ok((0..count).map(gpu).collect())
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
    Ok(smi::text(&buffer))
}

/// A GPU of the library.
struct Gpu<'smi> {
    smi: &'smi RocmSmi,
    // Never beyond what the library counts: there it reads memory that isn't its own.
    index: u32,
}

impl smi::Gpu for Gpu<'_> {
    /// The place on the PCI bus, as the kernel writes it: `0000:85:00.0`; the same for all partitions
    /// (`rsmi_dev_pci_id_get`).
    fn pci_address(&self) -> Result<String, Error> {
        let mut id = 0;
        call!(self.smi, rsmi_dev_pci_id_get(self.index, &raw mut id))?;
        Ok(pci_address(id))
    }

    /// The number that no other GPU has (`rsmi_dev_unique_id_get`).
    fn unique_id(&self) -> Result<u64, Error> {
        let mut id = 0;
        call!(self.smi, rsmi_dev_unique_id_get(self.index, &raw mut id))?;
        Ok(id)
    }

    /// The serial number (`rsmi_dev_serial_number_get`).
    fn serial_number(&self) -> Result<String, Error> {
        text(|buffer, length| {
            let (index, length) = (self.index, length as u32);
            call!(self.smi, rsmi_dev_serial_number_get(index, buffer, length))
        })
    }

    /// The name, or the number of the model where the system has no list of names (`rsmi_dev_name_get`).
    fn name(&self) -> Result<String, Error> {
        text(|buffer, length| call!(self.smi, rsmi_dev_name_get(self.index, buffer, length)))
    }

    /// The cap (`rsmi_dev_power_cap_get`).
    fn cap(&self) -> Result<Watts, Error> {
        let mut cap = 0;
        call!(
            self.smi,
            rsmi_dev_power_cap_get(self.index, 0, &raw mut cap)
        )?;
        Ok(watts(cap))
    }

    /// The cap that the driver started with (`rsmi_dev_power_cap_default_get`).
    fn default_cap(&self) -> Result<Watts, Error> {
        let mut cap = 0;
        call!(
            self.smi,
            rsmi_dev_power_cap_default_get(self.index, &raw mut cap)
        )?;
        Ok(watts(cap))
    }

    /// The range of the cap.
    fn range(&self) -> Result<Range, Error> {
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
    fn set_cap(&self, watts: u32) -> Result<(), Error> {
        let microwatts = u64::from(watts) * 1_000_000;
        call!(self.smi, rsmi_dev_power_cap_set(self.index, 0, microwatts))
    }

    /// The power it draws: the average where its driver tells one (`rsmi_dev_power_ave_get`),
    /// else that of its socket now (`rsmi_dev_current_socket_power_get`), as on MI300X.
    fn power(&self) -> Result<Watts, Error> {
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

    /// The energy it has used since its driver was loaded (`rsmi_dev_energy_count_get`).
    fn energy(&self) -> Result<Joules, Error> {
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
        Ok(joules(count, microjoules))
    }

    /// A temperature (`rsmi_dev_temp_metric_get`).
    fn temperature(&self, sensor: Sensor) -> Result<Celsius, Error> {
        self.temperature_of(sensor, rsmi_temperature_metric_t::RSMI_TEMP_CURRENT)
    }

    /// The temperature at which the GPU slows itself down (`rsmi_dev_temp_metric_get`).
    fn critical_temperature(&self, sensor: Sensor) -> Result<Celsius, Error> {
        self.temperature_of(sensor, rsmi_temperature_metric_t::RSMI_TEMP_CRITICAL)
    }

    /// `rsmi_version_str_get`.
    fn driver_version(&self) -> Result<String, Error> {
        const DRIVER: u32 = rsmi_sw_component_t::RSMI_SW_COMP_DRIVER;
        text(|buffer, length| {
            call!(
                self.smi,
                rsmi_version_str_get(DRIVER, buffer, length as u32)
            )
        })
    }
}

impl Gpu<'_> {
    fn average_power(&self, power: &mut u64) -> Result<(), Error> {
        call!(self.smi, rsmi_dev_power_ave_get(self.index, 0, power))
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

/// The address in a `bdfid`: domain, partition (4 bits from bit 28 on, left out), bus, device,
/// function.
fn pci_address(id: u64) -> String {
    smi::pci_address(id >> 32, (id >> 8) & 0xff, (id >> 3) & 0x1f, id & 0x7)
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
        assert_eq!(error.meaning(), None);
    }

    #[test]
    fn another_library_is_refused() {
        let error = RocmSmi::open(Path::new("libc.so.6")).unwrap_err();
        assert_eq!(error, Error::Missing("rsmi_init"));
    }
}
