//! NVIDIA GPUs through NVML (`libnvidia-ml.so.1`, opened at run time).
//!
//! Functions, units and return codes are those of `nvml.h`: power in milliwatts, energy in
//! millijoules, clocks in MHz, temperatures in °C. The lists of processes need a driver of 2022
//! or later (510).

mod gpu;
mod keep;
mod look;
mod session;
mod trial;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::discovery::{Inventory, Notice, PATIENCE, Search, Severity};
use crate::domain::{DeviceKind, Identity, PowerDomain, ReadBack, Sharing};
use crate::late::{self, Candidate, Look, Outcome};
use crate::sysfs;
use crate::worker::STACK;
use gpu::Gpu;
pub use keep::{COMMAND as KEEP, keep};
pub use look::{COMMAND as LOOK, look};
use session::{Client, Session};
use trial::Trial;

/// A library is waited for so long before other devices are looked at without it; less than the time that the daemon
/// allows for finding devices.
const LOADING: Duration = Duration::from_secs(3);

const REINSTALL: &str = "reinstall the NVIDIA driver, or name another library";

/// The vendor number in NVIDIA devices' sysfs file `vendor`.
const VENDOR: &str = "0x10de";

/// The back end's name in identities.
const BACK_END: &str = "nvml";

/// Programs that may set power limits as well, as `/proc/PID/comm` has them; the first is DCGM's.
pub(crate) const OTHER_TOOLS: [&str; 5] =
    ["nv-hostengine", "nvidia-powerd", "zeusd", "lactd", "geopmd"];

/// `NVML_ERROR_GPU_NOT_FOUND`, which the wrapper does not have.
const GPU_NOT_FOUND: u32 = 28;

/// Finds all NVIDIA GPUs.
#[must_use]
pub fn discover(search: &Search) -> Inventory {
    discover_within(search, PATIENCE)
}

/// Like [`discover`], with another time after which a driver counts as hanging. GPUs that the bus shows with
/// their driver are found all the same: they join when it answers.
#[must_use]
pub fn discover_within(search: &Search, patience: Duration) -> Inventory {
    let deadline = Instant::now() + patience;
    let left = || deadline.saturating_duration_since(Instant::now());
    let mut found = Inventory::default();
    let library = search.nvml_library.display().to_string();
    match trial::load(&search.nvml_library, patience.min(LOADING)) {
        Trial::Passed => {}
        Trial::Hangs => {
            found.notices.push(hangs(&library, patience.min(LOADING)));
            wait_for_library(search, left(), &mut found);
            return found;
        }
        Trial::Crashes(signal) => {
            let text = format!("crashes when it is loaded (signal {signal})");
            let notice = Notice::new(Severity::Error, library, text);
            found.notices.push(notice.remedy(REINSTALL));
            return found;
        }
    }
    let session = Session::new(search);
    // The driver as a whole has most of the time, and each GPU the rest, at the same time.
    let mut keeper = None;
    let listed = list(
        search,
        &session,
        left() * 2 / 3,
        &mut keeper,
        &mut found.notices,
    );
    match listed {
        Ok(Some(addresses)) => {
            let candidates = addresses.into_iter();
            let candidates = candidates.map(|address| candidate(search, &session, address));
            late::look_at_all(candidates.collect(), left(), &mut found);
        }
        Ok(None) => {
            for address in with_driver(&search.sys) {
                let identity = unasked(&address);
                found.notices.push(late::silent(&identity, patience));
                let gpu = Gpu::new(identity, address, Client::new(session.clone()), search);
                found.domains.push(Box::new(gpu));
            }
            if found.domains.is_empty() {
                found.notices.push(nobody_answers(&library, patience));
            }
        }
        Err(error) => {
            found.notices.push(unusable(search, &error));
            return found;
        }
    }
    if found.domains.is_empty() && found.notices.is_empty() {
        let notice = Notice::new(Severity::Info, library, "the driver has no GPU");
        found.notices.push(notice);
    }
    found
}

/// The notice about a library that was still loading after so long.
fn hangs(library: &str, patience: Duration) -> Notice {
    let text = format!("does not load within {} s", patience.as_secs_f64());
    Notice::new(Severity::Error, library, text).remedy(
        "the GPUs that the bus shows join once it loads; if it never does, reinstall the NVIDIA driver, or name \
         another library",
    )
}

/// Lists the GPUs that the bus shows with their driver, though the library does not load yet. Each asks its driver
/// once it does.
fn wait_for_library(search: &Search, patience: Duration, found: &mut Inventory) {
    let slow = Arc::new(trial::Slow::new(&search.nvml_library));
    let session = Session::new(search);
    let waiting = |address: String| {
        let Candidate { identity, mut ask } = candidate(search, &session, address);
        let slow = slow.clone();
        let ask = move || {
            slow.wait();
            ask()
        };
        Candidate {
            identity,
            ask: Box::new(ask),
        }
    };
    let candidates = with_driver(&search.sys).map(waiting).collect();
    late::look_at_all(candidates, patience, found);
}

/// The notice where neither the driver nor the bus tells which GPUs there are.
fn nobody_answers(library: &str, patience: Duration) -> Notice {
    let seconds = patience.as_secs_f64();
    let text =
        format!("the driver has not answered for {seconds:.1} s, and the bus shows no NVIDIA GPU");
    Notice::new(Severity::Error, library, text)
        .remedy("let litd see /sys/bus/pci, or restart it once the driver answers")
}

/// The addresses of all GPUs, in the kernel's notation: the bus's, where it shows as many as the driver has; else
/// the driver's. `None` if the driver does not answer. `keeper` keeps the session open for the looks that follow.
fn list(
    search: &Search,
    session: &Arc<Session>,
    patience: Duration,
    keeper: &mut Option<Client>,
    notices: &mut Vec<Notice>,
) -> Result<Option<Vec<String>>, NvmlError> {
    let mut client = Client::new(session.clone());
    let asked = late::within(patience, move || {
        let call = client.open_within(patience)?;
        let count = call.nvml()?.device_count()?;
        Ok((count, client))
    });
    let count = match asked {
        // While this client exists the session is open.
        Some(Ok((count, client))) => {
            *keeper = Some(client);
            count
        }
        None | Some(Err(NvmlError::Timeout)) => return Ok(None),
        Some(Err(error)) => return Err(error),
    };
    let on_the_bus: Vec<String> = with_driver(&search.sys).collect();
    if on_the_bus.len() >= count as usize {
        return Ok(Some(on_the_bus));
    }
    // For example a container, in which the bus is not fully visible. A handle comes from the GPU itself.
    let (told, answers) = mpsc::channel();
    for index in 0..count {
        let (told, session) = (told.clone(), session.clone());
        let ask = move || told.send((index, bus_id(&session, index)));
        // A GPU whose thread can't start counts as silent.
        let _ = thread::Builder::new().stack_size(STACK).spawn(ask);
    }
    drop(told);
    let deadline = Instant::now() + patience / 2;
    let mut addresses = BTreeSet::from_iter(on_the_bus);
    let mut silent = BTreeSet::from_iter(0..count);
    while let Ok((index, answer)) =
        answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        silent.remove(&index);
        match answer {
            Ok(bus_id) => drop(addresses.insert(address(&bus_id))),
            Err(error) => {
                let subject = format!("NVIDIA GPU {index}");
                let text = format!("can't be identified: {}", in_words(&error));
                notices.push(
                    Notice::new(Severity::Error, subject, text)
                        .remedy("see what `nvidia-smi` and `journalctl -k` say of it"),
                );
            }
        }
    }
    let missing = (count as usize).saturating_sub(addresses.len());
    for index in silent.into_iter().take(missing) {
        let subject = format!("NVIDIA GPU {index}");
        let text = "does not answer, and the bus does not show its address: litd does not know of it, and it counts \
                    for nothing in any budget";
        notices.push(
            Notice::new(Severity::Error, subject, text)
                .remedy("let litd see /sys/bus/pci whole, or restart it once the GPU answers"),
        );
    }
    Ok(Some(addresses.into_iter().collect()))
}

fn bus_id(session: &Arc<Session>, index: u32) -> Result<String, NvmlError> {
    let call = Client::new(session.clone()).open()?;
    let device = call.nvml()?.device_by_index(index)?;
    Ok(device.pci_info()?.bus_id)
}

/// A GPU as the bus shows it.
fn unasked(address: &str) -> Identity {
    Identity {
        kind: DeviceKind::Gpu,
        address: address.to_owned(),
        uuid: None,
        serial: None,
        model: "NVIDIA GPU".to_owned(),
        driver: "nvidia".to_owned(),
        backend: BACK_END.to_owned(),
        sharing: Sharing::Whole,
        read_back: ReadBack::Device,
    }
}

/// The same, with the question that its driver answers.
fn candidate(search: &Search, session: &Arc<Session>, address: String) -> Candidate {
    let identity = unasked(&address);
    let (search, session) = (search.clone(), session.clone());
    let ask = move || ask(&search, &session, &address);
    Candidate {
        identity,
        ask: Box::new(ask),
    }
}

/// Asks a GPU's driver to identify it.
fn ask(search: &Search, session: &Arc<Session>, address: &str) -> Look {
    let mut client = Client::new(session.clone());
    let mut notices = Vec::new();
    let identified = client.open().and_then(|call| {
        let nvml = call.nvml()?;
        let device = nvml.device_by_pci_bus_id(address)?;
        let bus_id = device.pci_info()?.bus_id;
        let identity = identify(nvml, &device, &bus_id, &search.proc)?;
        let persists = device.is_in_persistent_mode();
        if let Ok(false) = persists {
            let text = "persistence mode is off: its cap is lost when the last program closes it";
            notices.push(
                Notice::new(Severity::Warning, address, text)
                    .remedy("nvidia-smi -pm 1, or enable nvidia-persistenced"),
            );
        }
        Ok((identity, bus_id, persists.unwrap_or(false)))
    });
    let (identity, bus_id, persists) = match identified {
        Ok(identified) => identified,
        Err(NvmlError::NotFound | NvmlError::UnexpectedVariant(GPU_NOT_FOUND)) => {
            return Look {
                outcome: Outcome::Unknown,
                notices,
            };
        }
        // The GPU's own calls look for it from now on.
        Err(error) => {
            let text = match error {
                NvmlError::Timeout => gpu::OPENING.to_owned(),
                error => format!("can't be identified: {}", in_words(&error)),
            };
            notices.push(
                Notice::new(Severity::Error, address, text)
                    .remedy("see what `nvidia-smi` and `journalctl -k` say of it"),
            );
            let gpu = Gpu::new(unasked(address), address.to_owned(), client, search);
            return Look {
                outcome: Outcome::Domain(Box::new(gpu)),
                notices,
            };
        }
    };
    client.persists(persists);
    let mut gpu = Gpu::new(identity, bus_id, client, search);
    if let Err(error) = gpu.cap().and_then(|_| gpu.range()) {
        let text = format!("its cap can't be read: {error}");
        notices.push(Notice::new(Severity::Error, address, text));
    }
    let outcome = Outcome::Domain(Box::new(gpu));
    Look { outcome, notices }
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
        // For boards without one the driver returns "not supported", or "0".
        serial: device.serial().ok().filter(|serial| serial != "0"),
        model: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
        driver: version.map_or_else(
            |_| "nvidia".to_owned(),
            |version| format!("nvidia {version}"),
        ),
        backend: BACK_END.to_owned(),
        sharing,
        read_back: ReadBack::Device,
    })
}

/// The kernel's notation of NVML's `00000000:85:00.0`: four digits of domain, more only where needed, lower case.
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
                .remedy(REINSTALL)
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

/// The dynamic linker has no number for this error, only words.
fn is_missing(cause: &dyn std::error::Error) -> bool {
    cause.to_string().contains("No such file or directory")
}

/// No reason to warn where there is no NVIDIA GPU either.
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
    let has = {
        let sys = sys.to_owned();
        move |gpu: &String| has_driver(&sys, gpu)
    };
    pci_gpus(sys).into_iter().filter(has)
}

/// Whether the driver `nvidia` has the GPU at this PCI address.
pub(crate) fn has_driver(sys: &Path, gpu: &str) -> bool {
    let device = sys.join("bus/pci/devices").join(gpu);
    sysfs::link_name(&device.join("driver")).as_deref() == Some("nvidia")
}

/// Where the dynamic linker finds a library that has no path, on the distributions and in the containers that litd
/// runs on.
const FOLDERS: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
];

/// The library's file, if it is there: [`Path::join`] leaves a whole path as it is.
pub(crate) fn file(library: &Path) -> Option<PathBuf> {
    let places = FOLDERS.iter().map(|folder| Path::new(folder).join(library));
    places.into_iter().find(|it| it.exists())
}

/// The wrapper's words, except for those that operators search for.
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
