//! What a report says of the node: the board, firmware, and hashes of serial numbers. No host's name.

use std::path::Path;

use litd_core::fnv1a;
use litd_files as files;
use litd_power::DeviceKind;
use litd_qualify::report::Report;

use crate::config::Config;

/// The node's own secret, as machine-id(5) has it.
const MACHINE_ID: &str = "/etc/machine-id";

/// The longest line of a file that is taken.
const LONGEST: u64 = 200;

/// A report with what is known of the node.
pub(super) fn begin(config: &Config) -> Report {
    let mut report = super::empty(config);
    report.kernel = line(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    let dmi = config.shell.hardware.sys.join("class/dmi/id");
    let parts = ["board_vendor", "board_name", "bios_version"].map(|it| line(&dmi.join(it)));
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    report.board = (!parts.is_empty()).then(|| parts.join(" "));
    report
}

/// The names of devices as litd calls them: GPUs are counted, CPU sockets have their addresses.
pub(super) fn names(inventory: &[litd_core::Device]) -> Vec<String> {
    let mut gpus = 0;
    let names = inventory.iter().map(|device| match device.identity.kind {
        DeviceKind::Gpu => {
            gpus += 1;
            format!("gpu{}", gpus - 1)
        }
        DeviceKind::Cpu => device.identity.address.clone(),
    });
    names.collect()
}

/// The version of a GPU's firmware, where its driver has it as a file.
pub(super) fn firmware(config: &Config, address: &str) -> Option<String> {
    let hardware = &config.shell.hardware;
    let device = hardware.sys.join("bus/pci/devices").join(address);
    line(&device.join("vbios_version"))
}

/// A hash that tells two parts of a node apart. Without the node's own secret nobody can try serial numbers; where
/// that can't be read there is no hash.
pub fn hash(serial: &str) -> Option<String> {
    let secret = line(Path::new(MACHINE_ID))?;
    let hash = fnv1a(format!("litd qualify {secret} {serial} {secret}").as_bytes());
    Some(format!("{hash:016x}"))
}

/// The first line of a file, if it says anything.
fn line(path: &Path) -> Option<String> {
    let text = files::head(path, LONGEST).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next()?.trim();
    let line: String = line.chars().filter(|it| !it.is_control()).collect();
    (!line.is_empty()).then_some(line)
}
