//! Intel CPU sockets through powercap (RAPL).
//!
//! A socket is a zone `class/powercap/intel-rapl:<n>` called `package-<socket>` with two limits over two windows
//! of time: the long-term one is the cap, the short-term one is kept in its proportion to it. Sub-zones (cores,
//! memory) are left alone. Files are in µW and µJ (Linux, `Documentation/power/powercap/powercap.rst`,
//! `drivers/powercap/intel_rapl_common.c`). There is no lowest limit and no default: the default here is the limit
//! found.
//!
//! On AMD these zones only count energy: limits go through HSMP ([`crate::hsmp`]).

mod energy;
mod kept;
mod socket;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use self::energy::{Counter, Meter};
use self::kept::Kept;
use self::socket::{Files, Socket};
use crate::discovery::{Inventory, Notice, PATIENCE, Search, Severity};
use crate::domain::Identity;
use crate::late::{self, Ask, Candidate, Look, Outcome};
use crate::node;
use crate::processor::{self, Processor};
use crate::sysfs;

/// The end of the name of the file that keeps a socket's limits found, for a litd after a crash.
pub const KEPT: &str = ".short-term";

/// Programs that set these limits.
pub(crate) const OTHER_TOOLS: [&str; 3] = ["thermald", "geopmd", "eard"];

/// A socket, and its die where dies have limits of their own.
type Package = (u32, Option<u32>);

/// Finds all sockets below `search.sys` that have limits.
#[must_use]
pub fn discover(search: &Search) -> Inventory {
    discover_within(search, PATIENCE)
}

/// Like [`discover`], with another time after which a socket's driver counts as hanging.
#[must_use]
pub fn discover_within(search: &Search, patience: Duration) -> Inventory {
    let mut found = Inventory::default();
    let folder = search.sys.join("class/powercap");
    let mut zones = zones(&folder, "intel-rapl:");
    let written = |package: &Package| {
        let directory = search.kept.as_ref()?;
        Kept::written(directory, &processor::address(package.0, package.1))
    };
    let mut others = zones_of_memory(&folder, &mut zones, written, &mut found.notices);
    leave_unwritten(&mut zones, written, &mut found.notices);
    let processor = Processor::read(&search.proc);
    let driver = node::driver(&search.sys, &search.proc, "intel_rapl");
    let mut candidates = Vec::new();
    for (package, zone) in zones {
        let address = processor::address(package.0, package.1);
        let identity = processor.socket(address, "powercap", &driver);
        let ask = ask(
            identity.clone(),
            zone,
            others.remove(&package),
            search.kept.clone(),
        );
        candidates.push(Candidate { identity, ask });
    }
    late::look_at_all(candidates, patience, &mut found);
    if found.domains.is_empty() && processor.is_intel() {
        found.notices.push(
            Notice::new(
                Severity::Warning,
                "CPU sockets",
                format!("{} has no power limits", folder.display()),
            )
            .remedy("`modprobe intel_rapl_msr`; a virtual machine has none"),
        );
    }
    found.sort();
    found
}

/// The question that identifies a socket by its driver.
fn ask(identity: Identity, zone: PathBuf, other: Option<PathBuf>, kept: Option<PathBuf>) -> Ask {
    Box::new(move || {
        let mut notices = Vec::new();
        let Some(mut files) = Files::find(&zone, other.as_deref()) else {
            let text = format!("{} only counts energy", zone.display());
            notices.push(Notice::new(Severity::Info, &identity.address, text));
            return Look {
                outcome: Outcome::NoCap,
                notices,
            };
        };
        let default = examine(&identity.address, &mut files, &mut notices);
        let (zone, other) = (zone.clone(), other.clone());
        let socket = Socket::new(identity.clone(), zone, other, default, kept.as_deref());
        Look {
            outcome: Outcome::Domain(Box::new(socket)),
            notices,
        }
    })
}

/// The zones of sockets, by their names.
fn zones(folder: &Path, prefix: &str) -> BTreeMap<Package, PathBuf> {
    let zones = sysfs::numbered(folder, prefix).into_iter();
    let mut found = BTreeMap::new();
    for (_, zone) in zones {
        if let Some(package) = sysfs::line(zone.join("name")).and_then(|name| package(&name)) {
            found.entry(package).or_insert(zone);
        }
    }
    found
}

/// The files of all sockets' limits.
pub(crate) fn limits(sys: &Path) -> BTreeSet<PathBuf> {
    let zones = zones(&sys.join("class/powercap"), "intel-rapl:");
    let limits = zones
        .values()
        .map(|zone| zone.join("constraint_0_power_limit_uw"));
    limits.filter(|it| it.exists()).collect()
}

/// The energy counter of a socket whose limits are set in another way ([`crate::hsmp`]), if it has one.
pub(crate) fn counter(sys: &Path, socket: u32) -> Option<Counter> {
    let zones = zones(&sys.join("class/powercap"), "intel-rapl:");
    zones.get(&(socket, None)).map(|zone| Counter::of(zone))
}

/// The zones in the same numbering as this one.
fn zones_beside(zone: &Path) -> BTreeMap<Package, PathBuf> {
    let folder = zone.parent();
    folder.map_or_else(BTreeMap::new, |folder| {
        zones(folder, &format!("{}:", kind(zone)))
    })
}

/// What powercap calls zones of this kind: `intel-rapl`, `intel-rapl-mmio`.
fn kind(zone: &Path) -> String {
    let name = zone.file_name().and_then(|it| it.to_str());
    let kind = name.and_then(|it| it.split_once(':'));
    kind.map_or_else(String::new, |(kind, _)| kind.to_owned())
}

/// `package-0`, or `package-0-die-1`.
fn package(name: &str) -> Option<Package> {
    let name = name.strip_prefix("package-")?;
    match name.split_once("-die-") {
        Some((package, die)) => Some((package.parse().ok()?, Some(die.parse().ok()?))),
        None => Some((name.parse().ok()?, None)),
    }
}

/// Zones in memory-mapped registers: sockets that have no other are added to `known`; the rest
/// limit sockets that have one a second time. Of a socket's two zones the one that litd has `written` is it, until
/// what was found is back there: a journal entry of the socket is of that zone's limits.
fn zones_of_memory(
    folder: &Path,
    known: &mut BTreeMap<Package, PathBuf>,
    written: impl Fn(&Package) -> Option<String>,
    notices: &mut Vec<Notice>,
) -> BTreeMap<Package, PathBuf> {
    let mut others = BTreeMap::new();
    for (package, mut zone) in zones(folder, "intel-rapl-mmio:") {
        match known.entry(package) {
            Entry::Vacant(free) => {
                free.insert(zone);
                continue;
            }
            Entry::Occupied(mut first) if written(&package) == Some(kind(&zone)) => {
                std::mem::swap(first.get_mut(), &mut zone);
            }
            Entry::Occupied(_) => {}
        }
        let text = "limits this socket as well; the lower limit applies, and litd does not set it";
        notices.push(Notice::new(
            Severity::Info,
            zone.display().to_string(),
            text,
        ));
        others.insert(package, zone);
    }
    others
}

/// Takes sockets away that litd has `written` through a zone which is not there: the limits in their other zone say
/// nothing of what is owed to the first, and would be taken for it.
fn leave_unwritten(
    known: &mut BTreeMap<Package, PathBuf>,
    written: impl Fn(&Package) -> Option<String>,
    notices: &mut Vec<Notice>,
) {
    known.retain(|package, zone| {
        let written = written(package).filter(|written| *written != kind(zone));
        if let Some(written) = &written {
            let text = format!(
                "litd has changed its limits in {written}, which is not there; {} is left alone until they are back",
                zone.display()
            );
            let address = processor::address(package.0, package.1);
            let notice = Notice::new(Severity::Error, address, text);
            notices.push(notice.remedy("load the driver that was there, and restart litd"));
        }
        written.is_none()
    });
}

/// The cap that is there, in microwatts (0 if that can't be read), and what is to be said of it.
fn examine(subject: &str, files: &mut Files, notices: &mut Vec<Notice>) -> u64 {
    let mut notice = |severity, text: String, remedy: &str| {
        notices.push(Notice::new(severity, subject, text).remedy(remedy));
    };
    let cap = match files.cap().number() {
        Ok(cap) => cap,
        Err(error) => {
            notice(
                Severity::Error,
                format!("its limit can't be read: {error}"),
                "litd leaves it alone until it can be; look for intel_rapl in the kernel's log",
            );
            return 0;
        }
    };
    if let Err(error) = files.cap().open_writer() {
        let text = format!("its limit may not be set: {error}");
        notice(Severity::Error, text, sysfs::PERMISSION);
    }
    if !files.is_enabled() {
        notice(
            Severity::Error,
            "its limits are switched off and can't be set".into(),
            "write 1 to `enabled` in its folder",
        );
    }
    if let Err(error) = files.energy().read() {
        let text = format!("its power can't be measured: {error}");
        notice(Severity::Warning, text, sysfs::PERMISSION);
    }
    let highest = files.highest();
    if highest > 0 && cap > 2 * highest {
        notice(
            Severity::Warning,
            format!(
                "its limit of {} does not limit it: the highest of this model is {}",
                sysfs::from_micro(cap),
                sysfs::from_micro(highest)
            ),
            "set a real one before litd starts: it counts with this one",
        );
    }
    cap
}
