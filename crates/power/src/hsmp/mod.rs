//! AMD EPYC sockets through HSMP, the way to their power-management firmware.
//!
//! Newer kernels have an hwmon folder called `amd_hsmp_hwmon` for each socket, in µW; where there
//! is none, messages go through `/dev/hsmp`, in mW (Linux, `Documentation/arch/x86/amd_hsmp.rst`,
//! `arch/x86/include/uapi/asm/amd_hsmp.h`). The firmware names a highest limit and no lowest one,
//! and clamps what is outside of its own: what is read back is what holds.

mod ioctl;
mod port;
mod socket;

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use self::port::{Device, Hwmon, Port};
use self::socket::{Socket, is_busy};
use crate::discovery::{Inventory, Notice, Search, Severity};
use crate::domain::Identity;
use crate::node;
use crate::processor::Processor;
use crate::sysfs::{self, FileError, Step};

/// No board has more.
const SOCKETS: u16 = 8;

const REMEDY: &str = "`modprobe amd_hsmp` (newer boards: `modprobe hsmp_acpi`), and switch on \
                      \"HSMP Support\" in the BIOS's setup";

/// Finds all sockets below `search.sys`, else below `search.dev`.
#[must_use]
pub fn discover(search: &Search) -> Inventory {
    let mut found = Inventory::default();
    let processor = Processor::read(&search.proc);
    let driver = node::driver(&search.sys, &search.proc, "amd_hsmp");
    let folders = folders(&search.sys);
    if folders.is_empty() {
        through_messages(&search.dev.join("hsmp"), &processor, &driver, &mut found);
    }
    for (number, folder) in (0..).zip(folders) {
        let identity = processor.socket(number, "hsmp", &driver);
        add(identity, Box::new(Hwmon::new(folder)), &mut found);
    }
    found
}

/// Each socket's folder. They are made in the order of the sockets: on one device, or on one
/// device per socket.
fn folders(sys: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<(Option<String>, u32, PathBuf)> = port::folders(&sys.join("class/hwmon"))
        .map(|(number, path)| (sysfs::link_name(&path.join("device")), number, path))
        .collect();
    folders.sort();
    folders.into_iter().map(|(_, _, path)| path).collect()
}

fn through_messages(path: &Path, processor: &Processor, driver: &str, found: &mut Inventory) {
    for number in 0..SOCKETS {
        let mut device = Device::new(path.to_owned(), number);
        match device.test() {
            Ok(()) => {}
            // It is there.
            Err(error) if is_busy(&error) => {}
            // The one before was the last.
            Err(error) if number > 0 && error.errno() == Some(Errno::ENODEV) => return,
            Err(error) => {
                let subject = format!("cpu{number}");
                return found.notices.extend(missing(&error, subject, processor));
            }
        }
        let driver = match device.protocol() {
            Ok(version) => format!("{driver} (HSMP protocol {version})"),
            Err(_) => driver.to_owned(),
        };
        let identity = processor.socket(number.into(), "hsmp", &driver);
        add(identity, Box::new(device), found);
    }
}

fn add(identity: Identity, mut port: Box<dyn Port>, found: &mut Inventory) {
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
    found.notices.extend(notice);
    let socket = Socket::new(identity, port, default.unwrap_or(0));
    found.domains.push(Box::new(socket));
}

/// What is to be said of a socket that does not answer.
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
        _ if absent && processor.is_epyc() => Notice::new(
            Severity::Warning,
            "CPU sockets",
            format!("their limits can't be reached: {error}"),
        )
        .remedy(REMEDY),
        // Their limits are powercap's matter.
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
