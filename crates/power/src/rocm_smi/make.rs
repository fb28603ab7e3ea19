//! The two libraries of AMD's, as far as they differ for litd.

use std::path::{Path, PathBuf};

use litd_bindings::amd_smi::AmdSmi;
use litd_bindings::rocm_smi::RocmSmi;
use litd_bindings::{Error, Library};

use crate::discovery::{AmdBackEnd, Search};

/// One of the libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Make {
    RocmSmi,
    AmdSmi,
}

impl Make {
    const ALL: [Self; 2] = [Self::RocmSmi, Self::AmdSmi];

    /// The one that is configured; ROCm SMI where none of both is.
    pub fn of(search: &Search) -> Self {
        match search.amd {
            AmdBackEnd::AmdSmi => Self::AmdSmi,
            AmdBackEnd::RocmSmi | AmdBackEnd::Amdgpu | AmdBackEnd::Off => Self::RocmSmi,
        }
    }

    /// The one whose back end is called so.
    pub fn called(back_end: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.back_end() == back_end)
    }

    /// The back end's name in identities.
    pub fn back_end(self) -> &'static str {
        match self {
            Self::RocmSmi => "rocm_smi",
            Self::AmdSmi => "amd_smi",
        }
    }

    /// What the vendor calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RocmSmi => "ROCm SMI",
            Self::AmdSmi => "AMD SMI",
        }
    }

    /// Where the configuration says that it is.
    pub fn library(self, search: &Search) -> PathBuf {
        match self {
            Self::RocmSmi => search.rocm_smi_library.clone(),
            Self::AmdSmi => search.amd_smi_library.clone(),
        }
    }

    /// The package of Debian's that has it.
    pub fn package(self) -> &'static str {
        match self {
            Self::RocmSmi => "librocm-smi64-1",
            Self::AmdSmi => "libamd-smi27",
        }
    }

    /// Where ROCm's own packages have it, unknown to the dynamic linker.
    fn elsewhere(self) -> &'static Path {
        Path::new(match self {
            Self::RocmSmi => "/opt/rocm/lib/librocm_smi64.so",
            Self::AmdSmi => "/opt/rocm/lib/libamd_smi.so",
        })
    }

    /// Loads it and has it set itself up: the one at `path`, or of that name.
    pub fn open(self, path: &Path) -> Result<Box<dyn Library>, Error> {
        let is_name = path.components().count() == 1 && !path.is_absolute();
        match self.open_at(path) {
            Err(Error::Load { library, cause }) if is_name => {
                match self.open_at(self.elsewhere()) {
                    Err(Error::Load { .. }) => Err(Error::Load { library, cause }),
                    other => other,
                }
            }
            other => other,
        }
    }

    fn open_at(self, path: &Path) -> Result<Box<dyn Library>, Error> {
        Ok(match self {
            Self::RocmSmi => Box::new(RocmSmi::open(path)?),
            Self::AmdSmi => Box::new(AmdSmi::open(path)?),
        })
    }
}
