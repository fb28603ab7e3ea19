//! GPUs as the bus shows them, without opening any or asking its driver.

use std::collections::BTreeSet;

use crate::discovery::{AmdBackEnd, NvidiaBackEnd, Search};
use crate::{amdgpu, nvml};

/// The PCI addresses of the GPUs whose drivers are up and that [`crate::discover`] would look at: of
/// AMD those with a power cap, of NVIDIA those that the driver `nvidia` has. A few files of sysfs for
/// each.
#[must_use]
pub fn gpus_on_the_bus(search: &Search) -> BTreeSet<String> {
    let mut gpus = BTreeSet::new();
    if search.amd != AmdBackEnd::Off {
        gpus.extend(amdgpu::with_caps(&search.sys));
    }
    if search.nvidia != NvidiaBackEnd::Off {
        gpus.extend(nvml::with_driver(&search.sys));
    }
    gpus
}
