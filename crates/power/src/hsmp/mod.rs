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
use crate::processor::Processor;
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
    let mut candidates = Vec::new();
    for (number, folder) in &folders {
        let identity = processor.socket(*number, "hsmp", &driver);
        let (told, folder) = (identity.clone(), folder.clone());
        let ask = move || examine(told.clone(), Box::new(Hwmon::new(folder.clone())));
        candidates.push(Candidate {
            identity,
            ask: Box::new(ask),
        });
    }
    late::look_at_all(candidates, patience, &mut found);
    if folders.is_empty() {
        through_messages(search, &processor, &driver, patience, &mut found);
    }
    found
}

/// Each socket's number and folder. Folders are made in the order of the sockets: on one device, or on one device
/// per socket, which has the socket's number also where another socket's driver did not come up.
fn folders(sys: &Path) -> Vec<(u32, PathBuf)> {
    let mut folders: Vec<(Option<String>, u32, PathBuf)> = port::folders(&sys.join("class/hwmon"))
        .map(|(number, path)| (sysfs::link_name(&path.join("device")), number, path))
        .collect();
    folders.sort();
    let numbers: Option<BTreeSet<u32>> = folders
        .iter()
        .map(|(device, ..)| number(device.as_deref()?))
        .collect();
    let told = numbers.filter(|it| it.len() == folders.len());
    let numbers = told.unwrap_or_else(|| (0..).take(folders.len()).collect());
    let paths = folders.into_iter().map(|(_, _, path)| path);
    numbers.into_iter().zip(paths).collect()
}

/// The number in a device's name, such as `AMDI0097:01`.
fn number(device: &str) -> Option<u32> {
    let (_, number) = device.rsplit_once(':')?;
    u32::from_str_radix(number, 16)
        .ok()
        .filter(|&it| it < SOCKETS.into())
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
    let path = search.dev.join("hsmp");
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
                candidates.push(by_messages(&path, processor, driver, number));
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

fn by_messages(path: &Path, processor: &Processor, driver: &str, number: u16) -> Candidate {
    let identity = processor.socket(number.into(), "hsmp", driver);
    let (path, told) = (path.to_owned(), identity.clone());
    let ask = move || {
        let mut device = Device::new(path.clone(), number);
        let mut identity = told.clone();
        if let Ok(version) = device.protocol() {
            identity.driver = format!("{} (HSMP protocol {version})", told.driver);
        }
        examine(identity, Box::new(device))
    };
    Candidate {
        identity,
        ask: Box::new(ask),
    }
}

fn examine(identity: Identity, mut port: Box<dyn Port>) -> Look {
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
    let socket = Socket::new(identity, port, default.unwrap_or(0));
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
