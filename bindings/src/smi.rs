//! What AMD's management libraries have in common: the calls that litd needs of each, and how they fail.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fmt;
use std::path::{Path, PathBuf};

use litd_units::{Celsius, Joules, Watts};
use thiserror::Error;

/// A library that is loaded and set up. Calls block for as long as it likes, and it can take its process down:
/// whoever uses one does so in a process that may be lost.
pub trait Library {
    /// All GPUs that the library serves, in its order.
    ///
    /// # Errors
    /// The library refuses.
    fn gpus(&self) -> Result<Vec<Box<dyn Gpu + '_>>, Error>;
}

/// A GPU of the library.
#[allow(
    clippy::missing_errors_doc,
    reason = "each has an error where the library refuses"
)]
pub trait Gpu {
    /// The place on the PCI bus, as the kernel writes it: `0000:85:00.0`; the same for all partitions.
    fn pci_address(&self) -> Result<String, Error>;
    /// The number that no other GPU has.
    fn unique_id(&self) -> Result<u64, Error>;
    /// The serial number.
    fn serial_number(&self) -> Result<String, Error>;
    /// The name, or the number of the model where the system has no list of names.
    fn name(&self) -> Result<String, Error>;
    /// The version of the driver, or of the kernel where the driver has none of its own.
    fn driver_version(&self) -> Result<String, Error>;
    /// The cap.
    fn cap(&self) -> Result<Watts, Error>;
    /// The cap that the driver started with.
    fn default_cap(&self) -> Result<Watts, Error>;
    /// The range of the cap.
    fn range(&self) -> Result<Range, Error>;
    /// Sets its cap to whole watts. Success is no evidence: libraries report it also where the driver has refused.
    fn set_cap(&self, watts: u32) -> Result<(), Error>;
    /// The power it draws.
    fn power(&self) -> Result<Watts, Error>;
    /// The energy it has used since its driver was loaded.
    fn energy(&self) -> Result<Joules, Error>;
    /// A temperature; most GPUs lack some sensor.
    fn temperature(&self, sensor: Sensor) -> Result<Celsius, Error>;
    /// The temperature at which the GPU slows itself down; most GPUs lack some sensor.
    fn critical_temperature(&self, sensor: Sensor) -> Result<Celsius, Error>;
}

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
    /// The library is of a version whose structures are unknown here.
    #[error(
        "the library is version {found}; litd knows {known}, and structures change between such versions"
    )]
    Version {
        /// The library's version.
        found: u32,
        /// The versions that litd knows.
        known: &'static str,
    },
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
    /// What the library's status means, if it was called.
    #[must_use]
    pub fn meaning(&self) -> Option<Meaning> {
        match self {
            Self::Refused { status, .. } => Some(status.meaning),
            Self::Load { .. } | Self::Missing(_) | Self::Version { .. } => None,
        }
    }
}

/// A status of a library other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The library's number.
    pub number: u32,
    /// As far as it matters to litd.
    pub meaning: Meaning,
    /// In words.
    pub text: &'static str,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {})", self.text, self.number)
    }
}

/// The meaning of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// An argument is out of range.
    OutOfRange,
    /// The GPU or its driver has no such thing.
    NotSupported,
    /// Not allowed.
    Permission,
    /// Another process holds the GPU's mutex.
    Busy,
    /// Any other.
    Other,
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

/// The range of a cap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The lowest.
    pub lowest: Watts,
    /// The highest.
    pub highest: Watts,
}

pub(crate) fn watts(microwatts: u64) -> Watts {
    Watts(microwatts as f64 / 1e6)
}

/// Energy that a library counts in units of so many microjoules.
pub(crate) fn joules(count: u64, microjoules: f32) -> Joules {
    Joules(count as f64 * f64::from(microjoules) / 1e6)
}

/// Loads a library.
pub(crate) fn load(name: &Path) -> Result<libloading::Library, Error> {
    // SAFETY: the name comes from the administrator, who answers for what is in it; AMD's libraries do nothing when
    // they are loaded but make their own objects.
    unsafe { libloading::Library::new(name) }.map_err(|error| not_loaded(name, &error))
}

pub(crate) fn not_loaded(name: &Path, error: &libloading::Error) -> Error {
    Error::Load {
        library: name.to_owned(),
        cause: error.to_string(),
    }
}

/// The text in a buffer that a library has filled.
pub(crate) fn text(buffer: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(buffer).unwrap_or_default();
    text.to_string_lossy().trim().to_owned()
}

/// The place on the PCI bus as the kernel writes it.
pub(crate) fn pci_address(domain: u64, bus: u64, device: u64, function: u64) -> String {
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
}

/// Calls a function of the library of `$smi` that may be missing; `check`, of whoever calls this, reads its status.
macro_rules! call {
    ($smi:expr, $function:ident($($argument:expr),*)) => {{
        let function = $smi.library.$function.as_ref();
        let function = function.map_err(|_| Error::Missing(stringify!($function)))?;
        // SAFETY: the signature is the header's (tests/generated.rs). The library has been set
        // up and not been shut down, since `$smi` lives. Indices and handles are of GPUs that it
        // counts, and pointers are to locals that outlive the call, of the length that is told.
        let status = unsafe { function($($argument),*) };
        check(stringify!($function), status)
    }};
}
pub(crate) use call;
