//! What the drivers of GPUs and CPU sockets show of themselves, without opening any device or asking a driver.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::discovery::{AmdBackEnd, NvidiaBackEnd, Search};
use crate::{amdgpu, hsmp, nvml, powercap};

/// The PCI addresses of the GPUs whose drivers are up and that [`crate::discover`] would examine: AMD GPUs with a
/// power cap, NVIDIA GPUs that the driver `nvidia` has. Reads a few files of the PCI bus's own for each, none of a
/// GPU's driver, which may hang. A card with two dies counts as two: only its driver knows which die has the cap
/// ([`may_lack_a_cap`]).
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

/// Whether the GPU at a PCI address may have no cap of its own, as far as the bus shows.
#[must_use]
pub fn may_lack_a_cap(search: &Search, address: &str) -> bool {
    amdgpu::may_be_second_die(&search.sys.join("bus/pci/devices").join(address))
}

/// Whether the driver of a GPU on the bus may have it ready, as far as files tell that no driver has to answer for:
/// NVIDIA's lists each GPU that it has set up.
#[must_use]
pub fn is_usable(search: &Search, address: &str) -> bool {
    let listed = search.proc.join("driver/nvidia/gpus");
    let is_nvidias = nvml::has_driver(&search.sys, address);
    !is_nvidias || !listed.exists() || listed.join(address.to_ascii_lowercase()).exists()
}

/// The file of NVML where the driver `nvidia` has the GPU at this address: without the library litd can't ask that
/// driver. The dynamic linker's usual folders are looked through, and the library is not loaded. `None` where it is in
/// none of them, or another driver has the GPU.
#[must_use]
pub fn library_file(search: &Search, address: &str) -> Option<PathBuf> {
    let is_nvidias = nvml::has_driver(&search.sys, address);
    is_nvidias
        .then(|| nvml::file(&search.nvml_library))
        .flatten()
}

/// The files through which the limits of CPU sockets are set, as far as their drivers have made them.
#[must_use]
pub fn socket_files(search: &Search) -> BTreeSet<PathBuf> {
    if !search.cpus {
        return BTreeSet::new();
    }
    let mut files = powercap::limits(&search.sys);
    files.extend(Some(hsmp::messages(search)).filter(|it| it.exists()));
    files
}

/// Whether the GPU has no cap of its own. This asks its driver, which may hang: call it on a thread with no other
/// work.
#[must_use]
pub fn lacks_a_cap(search: &Search, address: &str) -> bool {
    amdgpu::is_second_die(&search.sys.join("bus/pci/devices").join(address))
}
