//! NVIDIA GPUs through NVML (`libnvidia-ml.so.1`, opened at run time).
//!
//! Functions, units and return codes are those of `nvml.h`: power in milliwatts, energy in
//! millijoules, clocks in MHz, temperatures in °C. The lists of processes need a driver of 2022
//! or later (510).

mod gpu;
mod session;
mod trial;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::discovery::{Inventory, Notice, Search, Severity};
use crate::domain::{DeviceKind, Identity, PowerDomain, ReadBack, Sharing};
use crate::{node, sysfs};
use gpu::Gpu;
use session::{Client, Session};

/// A library that is not loaded after so long never will be; less than what the daemon allows for
/// finding devices.
const PATIENCE: Duration = Duration::from_secs(3);

/// What NVIDIA's devices have in their sysfs file `vendor`.
const VENDOR: &str = "0x10de";

/// Programs that may set power limits as well, as `/proc/PID/comm` has them; the first is DCGM's.
const OTHER_TOOLS: [&str; 5] = ["nv-hostengine", "nvidia-powerd", "zeusd", "lactd", "geopmd"];

/// `NVML_ERROR_GPU_NOT_FOUND`, which the wrapper does not know.
const GPU_NOT_FOUND: u32 = 28;

/// Finds them.
#[must_use]
pub fn discover(search: &Search) -> Inventory {
    discover_within(search, PATIENCE)
}

/// Like [`discover`], with another time after which loading the library counts as hanging.
/// Initialising it may take as long as the driver likes all the same.
#[must_use]
pub fn discover_within(search: &Search, patience: Duration) -> Inventory {
    let mut found = Inventory::default();
    let library = search.nvml_library.display().to_string();
    if let Err(cause) = trial::load(&search.nvml_library, patience) {
        found.notices.push(
            Notice::new(Severity::Error, library, cause)
                .remedy("reinstall the NVIDIA driver, or name another library"),
        );
        return found;
    }
    let session = Session::new(&search.nvml_library);
    let mut client = Client::new(session.clone());
    let listed = client.open().and_then(|nvml| {
        let count = nvml.device_count()?;
        Ok((nvml, count))
    });
    let (nvml, count) = match listed {
        Ok(listed) => listed,
        Err(error) => {
            found.notices.push(unusable(search, &error));
            return found;
        }
    };
    for index in 0..count {
        if let Err(error) = add(&mut found, search, &session, &nvml, index) {
            let subject = format!("NVIDIA GPU {index}");
            let text = format!("can't be identified: {}", in_words(&error));
            found.notices.push(
                Notice::new(Severity::Error, subject, text)
                    .remedy("see what `nvidia-smi` and `journalctl -k` say of it"),
            );
        }
    }
    if !found.domains.is_empty() {
        let tools = node::other_tools(&search.proc, &OTHER_TOOLS);
        found.notices.extend(tools);
    } else if found.notices.is_empty() {
        let notice = Notice::new(Severity::Info, library, "the driver has no GPU");
        found.notices.push(notice);
    }
    found
}

/// Adds one GPU and what is to be said about it.
fn add(
    found: &mut Inventory,
    search: &Search,
    session: &Arc<Session>,
    nvml: &Nvml,
    index: u32,
) -> Result<(), NvmlError> {
    let device = nvml.device_by_index(index)?;
    let bus_id = device.pci_info()?.bus_id;
    let identity = identify(nvml, &device, &bus_id, &search.proc)?;
    let subject = identity.address.clone();
    if matches!(device.is_in_persistent_mode(), Ok(false)) {
        found.notices.push(
            Notice::new(
                Severity::Warning,
                &subject,
                "persistence mode is off: its cap is lost when the last program closes it",
            )
            .remedy("nvidia-smi -pm 1, or enable nvidia-persistenced"),
        );
    }
    let mut client = Client::new(session.clone());
    client.open()?;
    let mut gpu = Gpu::new(identity, bus_id, client, search.proc.clone());
    if let Err(error) = gpu.cap().and_then(|_| gpu.range()) {
        found.notices.push(Notice::new(
            Severity::Error,
            subject,
            format!("its cap can't be read: {error}"),
        ));
    }
    found.domains.push(Box::new(gpu));
    Ok(())
}

fn identify(
    nvml: &Nvml,
    device: &Device<'_>,
    bus_id: &str,
    proc: &Path,
) -> Result<Identity, NvmlError> {
    let mig = matches!(device.mig_mode(), Ok(mode) if mode.current != 0);
    let sharing = if mig {
        Sharing::Mig
    } else if gpu::has_mps(device, proc) {
        Sharing::Mps
    } else {
        Sharing::Whole
    };
    let version = nvml.sys_driver_version();
    Ok(Identity {
        kind: DeviceKind::Gpu,
        address: address(bus_id),
        uuid: device.uuid().ok(),
        // Boards without one say that it is not supported, or "0".
        serial: device.serial().ok().filter(|serial| serial != "0"),
        model: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
        driver: version.map_or_else(
            |_| "nvidia".to_owned(),
            |version| format!("nvidia {version}"),
        ),
        backend: "nvml".to_owned(),
        sharing,
        read_back: ReadBack::Device,
    })
}

/// The kernel's way to write what NVML writes as `00000000:85:00.0`: four digits of domain, more
/// only where there are more, lower case.
fn address(bus_id: &str) -> String {
    let lower = bus_id.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) => format!("{:0>4}:{rest}", domain.trim_start_matches('0')),
        None => lower,
    }
}

/// Why NVML as a whole can't be used.
fn unusable(search: &Search, error: &NvmlError) -> Notice {
    let library = search.nvml_library.display().to_string();
    let said = in_words(error);
    match error {
        NvmlError::LibloadingError(cause) if is_missing(cause) => missing(search, library),
        NvmlError::LibloadingError(_) | NvmlError::FailedToLoadSymbol(_) => {
            Notice::new(Severity::Error, library, said)
                .remedy("reinstall the NVIDIA driver, or name another library")
        }
        NvmlError::DriverNotLoaded => Notice::new(Severity::Error, library, said).remedy(
            "install the NVIDIA driver or load it (modprobe nvidia); `journalctl -k` says why it did not load",
        ),
        NvmlError::LibRmVersionMismatch => Notice::new(Severity::Error, library, said)
            .remedy("reboot, or unload the old kernel module and load the new one"),
        NvmlError::NoPermission | NvmlError::OperatingSystem => {
            Notice::new(Severity::Error, library, said)
                .remedy("let litd open /dev/nvidiactl and /dev/nvidia* (unit, cgroup, container)")
        }
        _ => Notice::new(Severity::Error, library, format!("does not start: {said}"))
            .remedy("see what `nvidia-smi` and `journalctl -k` say"),
    }
}

/// The dynamic linker has no number for it, only words.
fn is_missing(cause: &dyn std::error::Error) -> bool {
    cause.to_string().contains("No such file or directory")
}

/// Nothing to worry about where there is no NVIDIA GPU either.
fn missing(search: &Search, library: String) -> Notice {
    let gpus = pci_gpus(&search.sys);
    if gpus.is_empty() {
        return Notice::new(
            Severity::Info,
            library,
            "not installed, and no NVIDIA GPU is there",
        );
    }
    let text = format!("not installed, and NVIDIA GPUs are: {}", gpus.join(", "));
    Notice::new(Severity::Error, library, text)
        .remedy("install the NVIDIA driver; in a container, run it with NVIDIA's runtime")
}

/// NVIDIA's display and compute controllers (PCI classes 0x0300 and 0x0302) by address.
fn pci_gpus(sys: &Path) -> Vec<String> {
    let mut gpus = Vec::new();
    for entry in fs::read_dir(sys.join("bus/pci/devices"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let says = |file: &str, what: &[&str]| {
            let text = sysfs::line(entry.path().join(file)).unwrap_or_default();
            what.iter().any(|what| text.starts_with(what))
        };
        if says("vendor", &[VENDOR]) && says("class", &["0x0300", "0x0302"]) {
            gpus.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    gpus.sort();
    gpus
}

/// The addresses of the GPUs that the driver `nvidia` has.
pub(crate) fn with_driver(sys: &Path) -> impl Iterator<Item = String> {
    let devices = sys.join("bus/pci/devices");
    let has = move |gpu: &String| {
        let driver = sysfs::link_name(&devices.join(gpu).join("driver"));
        driver.as_deref() == Some("nvidia")
    };
    pci_gpus(sys).into_iter().filter(has)
}

/// The wrapper's words, but for what operators search for.
fn in_words(error: &NvmlError) -> String {
    match error {
        NvmlError::DriverNotLoaded => "driver not loaded".to_owned(),
        NvmlError::LibRmVersionMismatch => {
            "the library's version is not that of the loaded driver".to_owned()
        }
        NvmlError::OperatingSystem => "the system or its cgroup denies the device".to_owned(),
        NvmlError::InUse => "the GPU is in use, or being reset".to_owned(),
        NvmlError::NotSupported => "this GPU does not support it".to_owned(),
        NvmlError::UnexpectedVariant(GPU_NOT_FOUND) => "there is no such GPU".to_owned(),
        NvmlError::UnexpectedVariant(code) => format!("NVML error {code}"),
        NvmlError::LibloadingError(cause) => cause.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_kernel_writes_them() {
        for (nvml, kernel) in [
            ("00000000:85:00.0", "0000:85:00.0"),
            ("00000000:C1:00.0", "0000:c1:00.0"),
            ("0000000A:03:00.0", "000a:03:00.0"),
            ("00010000:03:00.0", "10000:03:00.0"),
            ("0009:01:00.0", "0009:01:00.0"),
        ] {
            assert_eq!(address(nvml), kernel);
        }
    }
}
