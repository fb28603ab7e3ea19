//! NVIDIA GPUs as litd sees them: the real nvml-wrapper, loading a `libnvidia-ml.so.1` at run
//! time. That stands in for NVIDIA's where there is no driver, and is NVIDIA's own where it can
//! be had.

mod clients;
mod domain;
mod faults;
mod library;
mod session;

use std::path::Path;

use litd_power::{Inventory, PowerDomain, Search, nvml};
use litd_rig::{NvidiaGpu, Rig};

/// Where the back end looks on a node whose NVIDIA library is `library`, and which has nothing
/// else.
fn search(rig: &Rig, library: &Path) -> Search {
    let nowhere = rig.layout().directory.join("empty");
    Search {
        sys: nowhere.clone(),
        dev: nowhere.clone(),
        proc: nowhere,
        nvml_library: library.to_owned(),
        own_program: env!("CARGO_BIN_EXE_litd-rig-node").into(),
        ..Search::default()
    }
}

/// The devices found on a node that has the stand-in library.
fn discover(rig: &Rig) -> Inventory {
    let library = rig.install_nvml().unwrap();
    nvml::discover(&search(rig, &library))
}

/// The node's GPUs, found without complaints.
fn gpus(rig: &Rig) -> Vec<Box<dyn PowerDomain>> {
    let found = discover(rig);
    assert_eq!(found.notices, []);
    found.domains
}

/// Changes what is special about an NVIDIA GPU.
fn set(rig: &Rig, gpu: usize, change: impl FnOnce(&mut NvidiaGpu)) {
    change(&mut rig.hardware().nvidia_mut().gpus[gpu]);
}
