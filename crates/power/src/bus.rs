//! GPUs as the bus shows them, without opening any or asking its driver.

use std::collections::BTreeSet;

use crate::discovery::{AmdBackEnd, NvidiaBackEnd, Search};
use crate::{amdgpu, nvml};

/// The PCI addresses of the GPUs whose drivers are up and that [`crate::discover`] would look at: of
/// AMD those with a power cap, of NVIDIA those that the driver `nvidia` has. A few files of the PCI bus's own for
/// each, none of a GPU's driver, which may hang. Of a card with two dies both are among them: only their driver
/// knows which has the cap ([`may_lack_a_cap`]).
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

/// Whether the GPU at a PCI address may be one without a cap of its own, by what the bus says of it.
#[must_use]
pub fn may_lack_a_cap(search: &Search, address: &str) -> bool {
    amdgpu::may_be_second_die(&search.sys.join("bus/pci/devices").join(address))
}

/// Whether it is. Its driver is asked, and may hang: on a thread that has nothing else to do.
#[must_use]
pub fn lacks_a_cap(search: &Search, address: &str) -> bool {
    amdgpu::is_second_die(&search.sys.join("bus/pci/devices").join(address))
}
