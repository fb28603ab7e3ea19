//! AMD EPYC sockets through HSMP, the way to their power-management firmware.
//!
//! Newer kernels have an hwmon folder called `amd_hsmp_hwmon` for each socket, in µW; where there is none,
//! messages go through `/dev/hsmp`, in mW (Linux, `Documentation/arch/x86/amd_hsmp.rst`,
//! `arch/x86/include/uapi/asm/amd_hsmp.h`). The firmware tells a highest limit and no lowest one, and clamps
//! limits outside of its own range: only the value that is read back counts.

mod ioctl;
mod port;
mod socket;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use self::port::{Device, Hwmon, Port};
use self::socket::{Socket, is_busy};
use crate::discovery::{Inventory, Notice, PATIENCE, Search, Severity};
use crate::domain::Identity;
use crate::late::{self, Candidate, Look, Outcome};
use crate::node;
use crate::powercap::{self, Counter};
use crate::processor::{self, Processor};
use crate::sysfs::{self, FileError, Step};
use crate::worker::STACK;

/// More sockets than any board has.
const SOCKETS: u16 = 8;

const REMEDY: &str = "`modprobe amd_hsmp` (newer boards: `modprobe hsmp_acpi`), and switch on \
                      \"HSMP Support\" in the BIOS's setup";

/// Finds all sockets below `search.sys`, else below `search.dev`.
#[must_use]
pub fn discover(search: &Search) -> Inventory {
    discover_within(search, PATIENCE)
}

/// Like [`discover`], with another time after which a socket's firmware counts as hanging.
#[must_use]
pub fn discover_within(search: &Search, patience: Duration) -> Inventory {
    let mut found = Inventory::default();
    let processor = Processor::read(&search.proc);
    let driver = node::driver(&search.sys, &search.proc, "amd_hsmp");
    let folders = folders(&search.sys);
    let Some(numbers) = numbers(&search.sys, &folders) else {
        // A message names its socket.
        through_messages(search, &processor, &driver, patience, &mut found);
        if found.domains.is_empty() && !folders.is_empty() {
            found.notices.push(nobody_knows(&search.sys, folders.len()));
        }
        return found;
    };
    let mut candidates = Vec::new();
    for (number, folder) in numbers.into_iter().zip(folders) {
        let identity = processor.socket(processor::address(number, None), "hsmp", &driver);
        let told = identity.clone();
        let sys = search.sys.clone();
        let ask = move || {
            let port = Box::new(Hwmon::new(folder.clone()));
            examine(told.clone(), port, powercap::counter(&sys, number))
        };
        candidates.push(Candidate {
            identity,
            ask: Box::new(ask),
        });
    }
    late::look_at_all(candidates, patience, &mut found);
    found.sort();
    found
}

/// The sockets' folders, in the order in which their driver made them: that of the sockets.
fn folders(sys: &Path) -> Vec<PathBuf> {
    let parent = sys.join("class/hwmon");
    port::folders(&parent).map(|(_, path)| path).collect()
}

/// The sockets' numbers: their devices', where there is one for each; else their places, where no socket of the node
/// lacks its folder. None where there are no folders, or nothing says which sockets they are: to guess would be to
/// give one socket another one's cap.
fn numbers(sys: &Path, folders: &[PathBuf]) -> Option<Vec<u32>> {
    let told: Option<Vec<u32>> = folders.iter().map(|folder| number(folder)).collect();
    let is_each = |told: &Vec<u32>| told.iter().collect::<BTreeSet<_>>().len() == told.len();
    if let Some(told) = told.filter(is_each) {
        return (!told.is_empty()).then_some(told);
    }
    let is_whole = processor::sockets(sys) == Some(folders.len());
    is_whole.then(|| (0..).take(folders.len()).collect())
}

/// The number of the socket that a folder's device is of: the firmware's, such as `ID01`, which the driver
/// goes by, else the one in the device's name, such as `AMDI0097:01`.
fn number(folder: &Path) -> Option<u32> {
    let device = folder.join("device");
    let uid = sysfs::line(device.join("firmware_node/uid"));
    let uid = uid.and_then(|uid| uid.strip_prefix("ID")?.parse().ok());
    let named = || {
        let name = match device.canonicalize() {
            Ok(device) => device.file_name()?.to_str()?.to_owned(),
            Err(_) => sysfs::link_name(&device)?,
        };
        u32::from_str_radix(name.rsplit_once(':')?.1, 16).ok()
    };
    uid.or_else(named).filter(|&it| it < SOCKETS.into())
}

/// The notice for a node on which some sockets' folders are missing, and the others do not name their sockets.
fn nobody_knows(sys: &Path, count: usize) -> Notice {
    let all =
        processor::sockets(sys).map_or_else(|| "an unknown number".into(), |it| it.to_string());
    let text = format!(
        "only {count} of {all} CPU sockets {} its driver's folder, which does not name its socket: litd uses none",
        if count == 1 { "has" } else { "have" }
    );
    Notice::new(Severity::Error, "CPU sockets", text)
        .remedy("load their driver anew; `journalctl -k` may say why")
}

/// Where messages go.
pub(crate) fn messages(search: &Search) -> PathBuf {
    search.dev.join("hsmp")
}

/// A possible socket's answer to a test.
enum Tested {
    /// The socket exists.
    There,
    /// There is no such socket, or no way to it.
    Missing(FileError),
    /// The firmware does not answer.
    Silent,
}

/// All possible sockets are tested at the same time. A socket whose firmware hangs exists, because for a missing
/// one the driver returns an error at once.
fn through_messages(
    search: &Search,
    processor: &Processor,
    driver: &str,
    patience: Duration,
    found: &mut Inventory,
) {
    let path = messages(search);
    let deadline = Instant::now() + patience / 2;
    let begin = |number: u16| {
        let (path, (told, answer)) = (path.clone(), mpsc::channel());
        let test = move || told.send(Device::new(path, number).test());
        // A socket whose thread can't start counts as silent.
        let _ = thread::Builder::new().stack_size(STACK).spawn(test);
        answer
    };
    let answers: Vec<_> = (0..SOCKETS).map(begin).collect();
    let tested = answers.into_iter().map(|answer| {
        match answer.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Ok(())) => Tested::There,
            Ok(Err(error)) if is_busy(&error) => Tested::There,
            Ok(Err(error)) => Tested::Missing(error),
            Err(_) => Tested::Silent,
        }
    });
    let tested: Vec<_> = tested.collect();
    if tested.iter().all(|it| matches!(it, Tested::Silent)) {
        let text = "their driver does not answer, and how many there are is not known";
        let notice = Notice::new(Severity::Error, "CPU sockets", text);
        found
            .notices
            .push(notice.remedy("restart litd once it does"));
        return;
    }
    let mut candidates = Vec::new();
    for (number, tested) in (0..).zip(tested) {
        match tested {
            Tested::There | Tested::Silent => {
                candidates.push(by_messages(search, processor, driver, number));
            }
            // The socket before was the last.
            Tested::Missing(error) if number > 0 && error.errno() == Some(Errno::ENODEV) => break,
            Tested::Missing(error) => {
                let subject = format!("cpu{number}");
                found.notices.extend(missing(&error, subject, processor));
                break;
            }
        }
    }
    late::look_at_all(candidates, patience / 2, found);
}

fn by_messages(search: &Search, processor: &Processor, driver: &str, number: u16) -> Candidate {
    let address = processor::address(number.into(), None);
    let identity = processor.socket(address, "hsmp", driver);
    let (path, sys, told) = (messages(search), search.sys.clone(), identity.clone());
    let ask = move || {
        let mut device = Device::new(path.clone(), number);
        let mut identity = told.clone();
        if let Ok(version) = device.protocol() {
            identity.driver = format!("{} (HSMP protocol {version})", told.driver);
        }
        let counter = powercap::counter(&sys, number.into());
        examine(identity, Box::new(device), counter)
    };
    Candidate {
        identity,
        ask: Box::new(ask),
    }
}

fn examine(identity: Identity, mut port: Box<dyn Port>, counter: Option<Counter>) -> Look {
    let default = port.limit();
    let notice = match &default {
        Err(error) => Some(
            Notice::new(
                Severity::Error,
                &identity.address,
                format!("its limit can't be read: {error}"),
            )
            .remedy("litd leaves it alone until it can be; look for hsmp in the kernel's log"),
        ),
        Ok(_) => port.check().err().map(|error| {
            let text = format!("its limit may not be set: {error}");
            Notice::new(Severity::Error, &identity.address, text).remedy(sysfs::PERMISSION)
        }),
    };
    let socket = Socket::new(identity, port, default.unwrap_or(0), counter);
    Look {
        outcome: Outcome::Domain(Box::new(socket)),
        notices: notice.into_iter().collect(),
    }
}

/// The notice about a socket that does not answer.
fn missing(error: &FileError, subject: String, processor: &Processor) -> Option<Notice> {
    let absent = matches!(
        error.errno(),
        Some(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO)
    );
    let notice = match error.errno() {
        _ if absent && processor.is_before_hsmp() => {
            let text = "their limits can't be set: this processor is older than HSMP";
            Notice::new(Severity::Info, "CPU sockets", text)
        }
        _ if absent && processor.is_guest => {
            let text = "their limits can't be set from within a virtual machine";
            Notice::new(Severity::Info, "CPU sockets", text)
        }
        _ if absent && processor.is_epyc() => Notice::new(
            Severity::Warning,
            "CPU sockets",
            format!("their limits can't be reached: {error}"),
        )
        .remedy(REMEDY),
        // Limits of Intel's sockets are powercap's matter.
        _ if absent && processor.is_intel() => return None,
        _ if absent => {
            let text = "this processor has no power limits that litd can set";
            Notice::new(Severity::Info, "CPU sockets", text)
        }
        Some(Errno::EACCES | Errno::EPERM) if error.step == Step::Open => Notice::new(
            Severity::Warning,
            "CPU sockets",
            format!("their limits may not be read: {error}"),
        )
        .remedy(sysfs::PERMISSION),
        _ => Notice::new(
            Severity::Error,
            subject,
            format!("its firmware does not answer: {error}"),
        )
        .remedy(REMEDY),
    };
    Some(notice)
}
