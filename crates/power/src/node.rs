//! Facts about a node: its drivers, and other programs that set caps.

use std::path::Path;

use crate::discovery::{Notice, Severity};
use crate::sysfs;

/// A driver's name and version: the module's own where it has one, else the kernel's.
pub(crate) fn driver(sys: &Path, proc: &Path, module: &str) -> String {
    let version = sysfs::line(sys.join("module").join(module).join("version"));
    let release = || sysfs::line(proc.join("sys/kernel/osrelease")).map(|r| format!("Linux {r}"));
    match version.or_else(release) {
        Some(version) => format!("{module} {version}"),
        None => module.to_owned(),
    }
}

/// Programs among `names` that run now and set power limits themselves.
pub(crate) fn other_tools(proc: &Path, names: &[&str]) -> Vec<Notice> {
    let mut running: Vec<String> = sysfs::numbered(proc, "")
        .into_iter()
        .filter_map(|(_, process)| sysfs::line(process.join("comm")))
        .filter(|name| names.contains(&name.as_str()))
        .collect();
    running.sort();
    running.dedup();
    let notice = |name: String| {
        Notice::new(
            Severity::Warning,
            name,
            "is running and may set power limits of its own; litd leaves alone what others set",
        )
        .remedy("stop it, or have it leave power limits alone")
    };
    running.into_iter().map(notice).collect()
}
