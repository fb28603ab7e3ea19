//! The baseline for programs that check the node without litd (`deploy/check/litd-check`): the caps
//! that were found, and which process answers for them. Everybody may read it.
//!
//! ```text
//! litd-baseline 1
//! boot 1f0c...                 the kernel's boot id
//! pid 4711 90210               litd, and when it started, in clock ticks since boot
//! budget                       only if a budget lowers caps: while litd runs, devices may hold less than below
//! hold 4000000000              instead of that line, with caps.on_exit = "hold": GPUs may hold less after litd's end,
//!                              too; the sum of their caps is within this safe budget, in microwatts
//! device gpu 0000:85:00.0 750000000
//! device cpu cpu0 350000000    kind, address, cap found in microwatts
//! ```
//!
//! It is touched every few seconds while the loop turns, and written again if somebody removes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use litd_core::Baseline;
use litd_core::baseline::{Found, Lower};
use litd_power::DeviceKind;
use litd_units::Watts;

use crate::process::Stat;
use crate::state;
use litd_files as files;

/// How often it is touched.
const TOUCH: Duration = Duration::from_secs(10);

/// The file.
#[derive(Debug)]
pub struct BaselineFile {
    path: PathBuf,
    touched: Instant,
    failed: bool,
    /// The caps that a daemon before this one has found, by address, of the devices that this one has not published
    /// yet: it comes to know one after the other.
    before: BTreeMap<String, Watts>,
    told: Option<Told>,
}

/// The baseline that this daemon has published.
#[derive(Debug)]
struct Told {
    text: String,
    /// The file that was written, if it could be.
    file: Option<File>,
}

impl BaselineFile {
    /// A file that is created with the first baseline.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            touched: Instant::now(),
            failed: false,
            before: found_before(&files::text(path, files::LONGEST_STATE).unwrap_or_default()),
            told: None,
        }
    }

    /// Publishes a baseline. A failure to write is logged once, and stops nothing.
    pub fn write(&mut self, baseline: &Baseline) {
        let path = self.path.display();
        for other in otherwise(&mut self.before, baseline) {
            log::warn!("{path}: {other}");
        }
        self.tell(text(baseline));
    }

    /// Touches the file, because the loop turns.
    pub fn alive(&mut self) {
        let Some(Told { text, file }) = &self.told else {
            return;
        };
        match file {
            Some(file) if files::still_at(file, &self.path).is_some() => {
                if self.touched.elapsed() >= TOUCH {
                    let touched = file.set_modified(SystemTime::now());
                    self.touched = Instant::now();
                    self.said(touched);
                }
            }
            // Of two daemons with different devices the later one owns the file.
            Some(_) if is_another_daemons(&self.path) => {}
            file => {
                if file.is_some() {
                    let path = self.path.display();
                    log::warn!("{path}: somebody has removed or replaced it: it is written again");
                }
                let text = text.clone();
                self.tell(text);
            }
        }
    }

    fn tell(&mut self, text: String) {
        let written = self.try_write(&text);
        let (file, outcome) = match written {
            Ok(file) => (Some(file), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.told = Some(Told { text, file });
        self.said(outcome);
    }

    /// At any moment the old file or the new one is there.
    fn try_write(&self, text: &str) -> io::Result<File> {
        if let Some(directory) = self.path.parent() {
            files::make_open(directory)?;
        }
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = files::open(&new, options.write(true).create(true).truncate(true))?;
        file.write_all(text.as_bytes())?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
        fs::rename(&new, &self.path)?;
        Ok(file)
    }

    fn said(&mut self, outcome: io::Result<()>) {
        if let (Err(error), false) = (&outcome, self.failed) {
            let path = self.path.display();
            log::warn!("{path}: {error}: programs that check the caps have no baseline");
        }
        self.failed = outcome.is_err();
    }
}

fn text(baseline: &Baseline) -> String {
    let boot = state::boot_id().unwrap_or_default();
    let pid = std::process::id();
    let born = born("self").unwrap_or_default();
    let mut text = format!("litd-baseline 1\nboot {boot}\npid {pid} {born}\n");
    match baseline.lower {
        Lower::No => {}
        Lower::ForBudget => text.push_str("budget\n"),
        Lower::ForGood(safe) => {
            let _ = writeln!(text, "budget\nhold {:.0}", safe.0 * 1e6);
        }
    }
    for device in &baseline.devices {
        let kind = match device.kind {
            DeviceKind::Gpu => "gpu",
            DeviceKind::Cpu => "cpu",
        };
        let microwatts = device.cap.0 * 1e6;
        let _ = writeln!(text, "device {kind} {} {microwatts:.0}", device.address);
    }
    text
}

/// The caps found in the baseline of an earlier daemon in this boot, by address.
fn found_before(text: &str) -> BTreeMap<String, Watts> {
    let boot = state::boot_id().unwrap_or_default();
    let told = text.lines().nth(1).and_then(|it| it.strip_prefix("boot "));
    if told != Some(&boot) {
        return BTreeMap::new();
    }
    let found = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("device ")?.split(' ').skip(1);
        let address = words.next()?.to_owned();
        let microwatts: f64 = words.next()?.parse().ok()?;
        Some((address, Watts(microwatts / 1e6)))
    });
    found.collect()
}

/// Differences from the caps that an earlier daemon in this boot has found: if that daemon died and its undo journal is
/// gone, its caps would be taken for caps found. Each device is compared once.
fn otherwise(before: &mut BTreeMap<String, Watts>, baseline: &Baseline) -> Vec<String> {
    let differs = |device: &Found| {
        let address = &device.address;
        let was = before.remove(address)?;
        (!was.is_same_cap(device.cap)).then(|| {
            format!(
                "{address} holds {}, where the litd before this one found {was}: if nobody has set \
                 that since, `litctl caps set {address} {:.0}` undoes it",
                device.cap, was.0
            )
        })
    };
    baseline.devices.iter().filter_map(differs).collect()
}

/// Whether the file is another daemon's that still runs.
fn is_another_daemons(path: &Path) -> bool {
    let whose = || {
        let text = files::text(path, files::LONGEST_STATE).ok()?;
        let (pid, at) = text.lines().nth(2)?.strip_prefix("pid ")?.split_once(' ')?;
        Some((pid.parse::<u32>().ok()?, at.to_owned()))
    };
    whose().is_some_and(|(pid, at)| {
        pid != std::process::id() && born(&pid.to_string()).is_some_and(|born| born == at)
    })
}

/// Whether the litd that wrote this baseline, since the node was booted, left caps within a safe budget.
pub(crate) fn was_held(path: &Path) -> bool {
    let text = litd_files::read(path, 1 << 20).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let says = |what: &str| {
        text.lines()
            .any(|line| line == what || line.starts_with(&format!("{what} ")))
    };
    let boot = crate::state::boot_id().map(|boot| format!("boot {boot}"));
    says("hold") && boot.is_ok_and(|boot| says(&boot))
}

/// When a process started, in clock ticks since boot: its id may be reused one day.
pub(crate) fn born(pid: &str) -> Option<String> {
    Stat::of(pid).map(|it| it.began.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_whole_and_everybodys_to_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("baseline");
        let mut file = BaselineFile::new(&path);
        let found = |kind, address: &str, cap| Found {
            kind,
            address: address.to_owned(),
            cap: Watts(cap),
        };
        file.write(&Baseline {
            lower: Lower::ForBudget,
            devices: vec![
                found(DeviceKind::Gpu, "0000:85:00.0", 699.999_999),
                found(DeviceKind::Cpu, "cpu0", 350.0),
            ],
        });
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "litd-baseline 1");
        assert!(lines[2].starts_with(&format!("pid {} ", std::process::id())));
        assert_eq!(
            lines[3..],
            [
                "budget",
                "device gpu 0000:85:00.0 699999999",
                "device cpu cpu0 350000000"
            ]
        );
        // A daemon that starts without its predecessor's journal reports the differences.
        let now = Baseline {
            lower: Lower::No,
            devices: vec![
                found(DeviceKind::Gpu, "0000:85:00.0", 495.0),
                found(DeviceKind::Cpu, "cpu0", 350.0),
                found(DeviceKind::Gpu, "0000:95:00.0", 700.0),
            ],
        };
        let said = otherwise(&mut found_before(&text), &now);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("`litctl caps set 0000:85:00.0 700`"),
            "{said:?}"
        );
        // It comes to know its devices one after the other.
        let mut before = found_before(&text);
        for device in now.devices.iter().rev() {
            let devices = vec![device.clone()];
            let lower = Lower::No;
            let alone = otherwise(&mut before, &Baseline { lower, devices });
            let is_it = device.address == "0000:85:00.0";
            assert_eq!(alone.len(), usize::from(is_it), "{alone:?}");
        }
        assert_eq!(otherwise(&mut before, &now), [""; 0]);
        let before = found_before(&text.replace("boot ", "boot x"));
        assert!(before.is_empty(), "{before:?}");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
    }

    #[test]
    fn one_that_somebody_removes_or_replaces_is_written_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run/baseline");
        let mut file = BaselineFile::new(&path);
        // No file is written before the first baseline.
        file.alive();
        assert!(!path.exists());
        file.write(&Baseline {
            lower: Lower::ForBudget,
            devices: Vec::new(),
        });
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        file.alive();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        // A process that has ended, and no process at all.
        for other in ["litd-baseline 1\nboot x\npid 1 0\n", ""] {
            fs::remove_file(&path).unwrap();
            fs::write(&path, other).unwrap();
            file.alive();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let other = format!("litd-baseline 1\nboot x\npid 1 {}\n", born("1").unwrap());
        fs::remove_file(&path).unwrap();
        fs::write(&path, &other).unwrap();
        file.alive();
        assert_eq!(fs::read_to_string(&path).unwrap(), other);
    }
}
