//! AMD GPUs through the driver's files in sysfs (hwmon).
//!
//! No library: the kernel's own error numbers, no mutex that others can hold, nothing that could
//! take its caller down. A GPU is a folder of the PCI bus with an hwmon folder called `amdgpu`
//! (Linux, `drivers/gpu/drm/amd/pm/amdgpu_pm.c`, `Documentation/gpu/amdgpu/thermal.rst`):
//!
//! | file | what | unit |
//! |---|---|---|
//! | `power1_cap`, `_min`, `_max`, `_default` | the cap and its range; the driver drops what is below a watt | µW |
//! | `power1_average`, `power1_input` | power drawn | µW |
//! | `temp*_label`, `_input`, `_crit` | temperatures: `junction`, `mem` | m°C |
//! | `freq1_input` | clock of the compute units | Hz |
//! | `power_dpm_force_performance_level`, `pp_od_clk_voltage`, `pp_dpm_sclk` | clocks to keep to (MI300) | MHz |
//!
//! Caps are per socket: partitions of a GPU share its PCI address and its cap.

pub(crate) mod address;
pub(crate) mod clients;
mod clocks;
mod gpu;
pub(crate) mod holders;
mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::address::Address;
use self::clients::Clients;
use self::gpu::{Files, Gpu, find_hwmon};
use crate::discovery::{Inventory, Notice, PATIENCE, Search, Severity};
use crate::domain::{DeviceKind, Identity, PowerDomain, ReadBack, Sharing};
use crate::late::{self, Ask, Candidate, Look, Outcome};
use crate::node;
use crate::sysfs;

/// AMD's number on the PCI bus.
const VENDOR: u64 = 0x1002;

/// The numbers of models with two dies, MI250X and MI250, each of which is a GPU on the bus. The card has one cap,
/// the first die's; for the second the driver tells 0 W, and accepts none (Linux, `aldebaran_get_power_limit`).
const TWO_DIES: [u64; 2] = [0x7408, 0x740c];

/// A GPU's cap.
const CAP: &str = "power1_cap";

/// Programs that set these GPUs' caps.
pub(crate) const OTHER_TOOLS: [&str; 4] = ["lactd", "corectrl_helper", "geopmd", "zeusd"];

/// Finds all AMD GPUs below `search.sys`.
#[must_use]
pub fn discover(search: &Search) -> Inventory {
    discover_within(search, PATIENCE)
}

/// Like [`discover`], with another time after which a GPU's driver counts as hanging.
#[must_use]
pub fn discover_within(search: &Search, patience: Duration) -> Inventory {
    let mut found = Inventory::default();
    let cards = cards(&search.sys, &mut found.notices);
    let driver = node::driver(&search.sys, &search.proc, "amdgpu");
    // The same clients for all GPUs.
    let clients = Clients::new(&search.proc);
    let candidate = |(address, device): (Address, PathBuf)| Candidate {
        identity: unasked(&device, address, driver.clone()),
        ask: ask(search, &clients, &driver, address, device),
    };
    let candidates = cards.into_iter().map(candidate).collect();
    late::look_at_all(candidates, patience, &mut found);
    keep_one_of_each_socket(&mut found);
    without_driver(&search.sys, &mut found.notices);
    if found.domains.is_empty() && found.notices.is_empty() {
        let notice = Notice::new(Severity::Info, "AMD GPUs", "there are none");
        found.notices.push(notice);
    }
    found.sort();
    found
}

/// The question that identifies a GPU by its driver.
fn ask(search: &Search, clients: &Clients, driver: &str, address: Address, device: PathBuf) -> Ask {
    let (search, clients, driver) = (search.clone(), clients.clone(), driver.to_owned());
    Box::new(move || {
        if is_second_die(&device) {
            return Look {
                outcome: Outcome::NoCap,
                notices: vec![second_die(&address.to_string())],
            };
        }
        let identity = identity(&device, address, unique_id(&device), driver.clone());
        let mut notices = Vec::new();
        let domain = examine(
            &search,
            &clients,
            identity,
            address,
            device.clone(),
            &mut notices,
        );
        Look {
            outcome: domain.map_or(Outcome::NoCap, Outcome::Domain),
            notices,
        }
    })
}

/// The GPU's own number.
pub(crate) fn unique_id(device: &Path) -> Option<u64> {
    sysfs::hexadecimal(device.join("unique_id")).filter(|&id| id != 0)
}

/// Another function of the same device with the same number is the same socket: the first stays.
pub(crate) fn keep_one_of_each_socket(found: &mut Inventory) {
    let mut sockets = BTreeSet::new();
    let mut others = BTreeSet::new();
    found.domains.retain(|domain| {
        let identity = domain.identity();
        let address: Result<Address, ()> = identity.address.parse();
        let (Ok(address), Some(uuid)) = (address, &identity.uuid) else {
            return true;
        };
        let is_first = sockets.insert((address.slot(), uuid.clone()));
        if !is_first {
            others.insert(identity.address.clone());
        }
        is_first
    });
    found.notices.retain(|it| !others.contains(&it.subject));
}

/// The folders of AMD GPUs that have a card, by their PCI addresses.
pub(crate) fn cards(sys: &Path, notices: &mut Vec<Notice>) -> BTreeMap<Address, PathBuf> {
    let mut cards = BTreeMap::new();
    for (number, card) in sysfs::numbered(&sys.join("class/drm"), "card") {
        let device = match card.join("device").canonicalize() {
            Ok(device) => device,
            Err(error) => {
                let text = format!("its device can't be found: {error}");
                notices.push(Notice::new(
                    Severity::Warning,
                    format!("card{number}"),
                    text,
                ));
                continue;
            }
        };
        let name = device.file_name().and_then(|name| name.to_str());
        // Further partitions of a GPU have a card too, and no place on the bus.
        let Some(address) = name.and_then(|name| name.parse().ok()) else {
            continue;
        };
        let is_amd = sysfs::hexadecimal(device.join("vendor")) == Some(VENDOR);
        if is_amd || find_hwmon(&device).is_some() {
            cards.insert(address, device);
        }
    }
    cards
}

/// Whether a GPU is a card's second die, which has no cap of its own. Asks the driver.
pub(crate) fn is_second_die(device: &Path) -> bool {
    let hwmon = find_hwmon(device).filter(|_| may_be_second_die(device));
    let says_nothing = |hwmon: &Path| {
        let mut files = [CAP, "power1_cap_default"].into_iter();
        files.all(|name| sysfs::number::<u64>(hwmon.join(name)) == Some(0))
    };
    hwmon.is_some_and(|hwmon| says_nothing(&hwmon))
}

/// The notice about a second die.
pub(crate) fn second_die(address: &str) -> Notice {
    let text = "is the second die of a card that has one cap, its first die's: its power is bounded by that, \
                and jobs with ranks on it are not steered";
    Notice::new(Severity::Info, address, text)
}

/// The addresses of the GPUs that seem to have a cap, because its file exists: a second die's does, too.
pub(crate) fn with_caps(sys: &Path) -> impl Iterator<Item = String> {
    let cards = cards(sys, &mut Vec::new()).into_iter();
    let capped = cards
        .filter(|(_, device)| find_hwmon(device).is_some_and(|hwmon| hwmon.join(CAP).exists()));
    // Another function of the same device is the same socket.
    let mut sockets = BTreeMap::new();
    for (address, _) in capped {
        sockets.entry(address.slot()).or_insert(address);
    }
    sockets.into_values().map(|address| address.to_string())
}

/// Whether the GPU at `address` may be a card's second die: only its driver knows.
pub(crate) fn may_be_second_die(device: &Path) -> bool {
    let number = sysfs::hexadecimal(device.join("device"));
    number.is_some_and(|it| TWO_DIES.contains(&it))
}

/// A domain, if the GPU has a cap, and notices about it.
fn examine(
    search: &Search,
    clients: &Clients,
    identity: Identity,
    address: Address,
    device: PathBuf,
    notices: &mut Vec<Notice>,
) -> Option<Box<dyn PowerDomain>> {
    let subject = identity.address.clone();
    let mut notice = |severity, text: String, remedy: &str| {
        notices.push(Notice::new(severity, &subject, text).remedy(remedy));
    };
    let Some(hwmon) = find_hwmon(&device) else {
        let text = "has no power sensors: the driver has not come up, or is not amdgpu";
        notice(
            Severity::Error,
            text.into(),
            "look for amdgpu in the kernel's log; load it with `modprobe amdgpu`",
        );
        return None;
    };
    let mut files = Files::find(&device, &hwmon);
    let cap = files.cap();
    if !cap.path().exists() {
        notice(
            Severity::Error,
            format!("has no power cap: {} is missing", cap.path().display()),
            "a virtual machine's GPU is capped by its host; others need a newer amdgpu",
        );
        return None;
    }
    if let Err(error) = cap.watts() {
        notice(
            Severity::Error,
            format!("its cap can't be read: {error}"),
            "litd leaves it alone until it can be; look for amdgpu in the kernel's log",
        );
    } else if cap.is_read_only() {
        notice(
            Severity::Error,
            "its cap can't be set: the driver offers it for reading only".into(),
            "a virtual machine's GPU is capped by its host: run litd there",
        );
    } else if let Err(error) = cap.open_writer() {
        notice(
            Severity::Error,
            format!("its cap may not be set: {error}"),
            sysfs::PERMISSION,
        );
    }
    if let Some(table) = files.unknown_metrics() {
        notice(
            Severity::Warning,
            format!(
                "its gpu_metrics is {table}, which this litd does not know: it takes nothing from it, and the \
                 GPU's limiter from its power"
            ),
            "look for a newer litd",
        );
    }
    if identity.sharing == Sharing::Partitioned {
        notice(
            Severity::Info,
            "is partitioned: its cap is shared by all partitions, and jobs on them are not steered"
                .into(),
            "`echo SPX > current_compute_partition` in its folder makes it whole",
        );
    }
    let (sys, clients) = (search.sys.clone(), clients.clone());
    Some(Box::new(Gpu::new(identity, address, device, sys, clients)))
}

/// A GPU as the bus shows it; no file of its driver is opened.
pub(crate) fn unasked(device: &Path, address: Address, driver: String) -> Identity {
    let number = sysfs::hexadecimal(device.join("device"));
    Identity {
        kind: DeviceKind::Gpu,
        address: address.to_string(),
        uuid: None,
        serial: None,
        model: match number {
            Some(number) => format!("AMD GPU {VENDOR:04x}:{number:04x}"),
            None => "AMD GPU".to_owned(),
        },
        driver,
        backend: "amdgpu".to_owned(),
        sharing: Sharing::Whole,
        // Kernels don't tell whether they ask the firmware each time.
        read_back: ReadBack::MayBeCached,
    }
}

/// A GPU as its driver's files describe it.
pub(crate) fn identity(
    device: &Path,
    address: Address,
    unique_id: Option<u64>,
    driver: String,
) -> Identity {
    let line = |name: &str| sysfs::line(device.join(name));
    let partition = line("current_compute_partition");
    let unasked = unasked(device, address, driver);
    Identity {
        // As rocminfo and ROCR_VISIBLE_DEVICES write it.
        uuid: unique_id.map(|id| format!("GPU-{id:016x}")),
        serial: line("serial_number"),
        model: line("product_name").unwrap_or_else(|| unasked.model.clone()),
        sharing: match partition.as_deref() {
            None | Some("SPX") => Sharing::Whole,
            Some(_) => Sharing::Partitioned,
        },
        ..unasked
    }
}

/// Notes AMD's graphics and compute devices that no driver or another one serves.
fn without_driver(sys: &Path, notices: &mut Vec<Notice>) {
    let mut devices: Vec<(Address, PathBuf)> = sysfs::entries(&sys.join("bus/pci/devices"))
        .filter_map(|device| Some((device.file_name()?.to_str()?.parse().ok()?, device)))
        .collect();
    devices.sort();
    for (address, device) in devices {
        let number = |name: &str| sysfs::hexadecimal(device.join(name));
        // Display controllers and processing accelerators.
        let is_gpu = number("class").is_some_and(|class| matches!(class >> 16, 0x03 | 0x12));
        if number("vendor") != Some(VENDOR) || !is_gpu {
            continue;
        }
        let notice = match sysfs::link_name(&device.join("driver")).as_deref() {
            Some("amdgpu") => continue,
            Some(driver) => Notice::new(
                Severity::Info,
                address.to_string(),
                format!("an AMD GPU whose driver is {driver}: litd does not use it"),
            ),
            None => Notice::new(
                Severity::Warning,
                address.to_string(),
                "an AMD GPU without a driver",
            )
            .remedy("`modprobe amdgpu`"),
        };
        notices.push(notice);
    }
}
