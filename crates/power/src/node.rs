//! Facts about a node: its drivers, and other programs that set caps.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::discovery::{Notice, Severity};
use crate::{amdgpu, nvml, powercap, sysfs};

/// A driver's name and version: the module's own where it has one, else the kernel's.
pub(crate) fn driver(sys: &Path, proc: &Path, module: &str) -> String {
    let version = sysfs::line(sys.join("module").join(module).join("version"));
    let release = || sysfs::line(proc.join("sys/kernel/osrelease")).map(|r| format!("Linux {r}"));
    match version.or_else(release) {
        Some(version) => format!("{module} {version}"),
        None => module.to_owned(),
    }
}

/// So many processes are looked at: the real procfs lists the oldest numbers first, which services of the boot have.
const PROCESSES: usize = 32_768;

/// So long at most: users decide how many processes there are.
const LONGEST: Duration = Duration::from_millis(300);

/// Programs that run now and set power limits of these back ends' devices. It reads the name of every process, and so
/// has bounds of its own; whoever finds devices asks this once they are found, so that it costs none of them.
#[must_use]
pub fn other_tools<'a>(proc: &Path, back_ends: impl Iterator<Item = &'a str>) -> Vec<Notice> {
    let names: BTreeSet<&str> = back_ends.flat_map(tools_beside).copied().collect();
    match names.is_empty() {
        true => Vec::new(),
        false => running(proc, &names, PROCESSES, Instant::now() + LONGEST),
    }
}

/// The programs that set the limits of a back end's devices, as `/proc/PID/comm` has them.
fn tools_beside(back_end: &str) -> &'static [&'static str] {
    match back_end {
        "amdgpu" | "rocm_smi" => &amdgpu::OTHER_TOOLS,
        "nvml" => &nvml::OTHER_TOOLS,
        "powercap" => &powercap::OTHER_TOOLS,
        _ => &[],
    }
}

/// Notices on the programs among `names` that run: at most `most` processes are looked at, and none after the
/// deadline.
fn running(proc: &Path, names: &BTreeSet<&str>, most: usize, deadline: Instant) -> Vec<Notice> {
    let mut running = BTreeSet::new();
    let mut processes = sysfs::each_numbered(proc, "");
    let mut is_whole = false;
    for _ in 0..most {
        if Instant::now() >= deadline {
            break;
        }
        let Some((_, process)) = processes.next() else {
            is_whole = true;
            break;
        };
        let name = sysfs::line(process.join("comm"));
        running.extend(name.filter(|name| names.contains(name.as_str())));
    }
    let notice = |name: String| {
        Notice::new(
            Severity::Warning,
            name,
            "is running and may set power limits of its own; litd leaves alone what others set",
        )
        .remedy("stop it, or have it leave power limits alone")
    };
    let mut notices: Vec<Notice> = running.into_iter().map(notice).collect();
    if !is_whole && processes.next().is_some() {
        let text =
            "has so many processes that not all were looked at for programs that set power limits";
        notices.push(Notice::new(
            Severity::Info,
            proc.display().to_string(),
            text,
        ));
    }
    notices
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Any user can have very many processes.
    #[test]
    fn very_many_processes_are_looked_at_up_to_a_number_and_a_moment() {
        let proc = tempfile::tempdir().unwrap();
        for pid in 1..=40 {
            let process = proc.path().join(pid.to_string());
            fs::create_dir(&process).unwrap();
            fs::write(process.join("comm"), "thermald\n").unwrap();
        }
        fs::create_dir(proc.path().join("sys")).unwrap();
        let names = BTreeSet::from(["thermald"]);
        let look = |most, deadline| {
            let notices = running(proc.path(), &names, most, deadline);
            let severities = notices.iter().map(|it| it.severity);
            severities.collect::<Vec<_>>()
        };
        let later = Instant::now() + Duration::from_secs(3600);
        assert_eq!(look(40, later), [Severity::Warning]);
        assert_eq!(look(39, later), [Severity::Warning, Severity::Info]);
        assert_eq!(look(40, Instant::now()), [Severity::Info]);
    }
}
