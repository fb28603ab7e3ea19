//! Devices on the bus, seen in sysfs without opening any. A released device that was gone from the bus, or whose
//! driver was unloaded, has another directory when it returns. A GPU that litd did not find when it started is
//! unmanaged; one whose driver was seen to come up since is a reason to start anew (`anew`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use litd_core::DeviceId;
use litd_power::Search;

/// How often unmanaged GPUs are looked for.
const LOOK: Duration = Duration::from_secs(5);

/// How long the same GPUs have to be there before litd starts anew for them: a driver that comes up shows one after
/// the other, and needs each for a moment.
const SETTLED: Duration = Duration::from_secs(9);

/// The inode numbers of a device's directory and of its driver's; sysfs never reuses one.
type Marks = (u64, u64);

/// GPUs by address, with their marks.
pub type Up = BTreeMap<String, Marks>;

/// The last look at released devices.
#[derive(Debug)]
pub struct Presence {
    devices: PathBuf,
    seen: BTreeMap<DeviceId, Option<Marks>>,
    /// Where GPUs are looked for; `None` where the hardware is a stand-in.
    search: Option<Search>,
    /// The GPUs, by address, that litd manages or can't use.
    known: BTreeSet<String>,
    next_look: Option<Instant>,
    /// GPUs that may have no cap of their own: a thread has asked the driver of each, or still asks.
    asked: BTreeMap<String, Arc<AtomicBool>>,
    /// The GPUs whose drivers were up when litd looked for devices.
    at_start: Up,
    /// The unmanaged GPUs whose drivers have come up since, and since when these are all.
    come_up: Option<(Up, Instant)>,
    /// Before this litd does not start anew.
    not_before: Option<Instant>,
}

impl Presence {
    /// Looks where devices were searched for; `known` are the GPUs, by address, that litd manages or can't use, and
    /// `at_start` those whose drivers were [up] before it searched.
    #[must_use]
    pub fn new(
        search: Option<Search>,
        known: impl IntoIterator<Item = String>,
        at_start: Up,
    ) -> Self {
        let sys = search.as_ref().map(|search| search.sys.clone());
        let lower = |address: String| address.to_ascii_lowercase();
        Self {
            devices: sys.unwrap_or_else(|| "/sys".into()).join("bus/pci/devices"),
            seen: BTreeMap::new(),
            search,
            known: known.into_iter().map(lower).collect(),
            next_look: None,
            asked: BTreeMap::new(),
            at_start,
            come_up: None,
            not_before: None,
        }
    }

    /// Has litd not start anew for so long.
    pub fn put_off(&mut self, time: Duration) {
        self.not_before = Some(Instant::now() + time);
    }

    /// The unmanaged GPUs whose drivers this process has seen come up, once they have been there for a while.
    #[must_use]
    pub fn come_up(&self) -> Option<impl Iterator<Item = &str>> {
        let (gpus, since) = self.come_up.as_ref()?;
        let is_due =
            since.elapsed() >= SETTLED && self.not_before.is_none_or(|at| Instant::now() >= at);
        is_due.then(|| gpus.keys().map(String::as_str))
    }

    /// Follows which of the unmanaged GPUs have come up.
    fn follow(&mut self, unmanaged: &BTreeSet<String>) {
        let Some(search) = &self.search else { return };
        let marks = unmanaged.iter().filter_map(|gpu| {
            let marks = marks(&self.devices, gpu)?;
            litd_power::is_usable(search, gpu).then(|| (gpu.clone(), marks))
        });
        let new = marks.filter(|(gpu, marks)| self.at_start.get(gpu) != Some(marks));
        let gpus: Up = new.collect();
        match &self.come_up {
            _ if gpus.is_empty() => self.come_up = None,
            Some((before, _)) if *before == gpus => {}
            _ => self.come_up = Some((gpus, Instant::now())),
        }
    }

    /// The unmanaged GPUs on the bus, if it is time to look.
    pub fn unmanaged(&mut self) -> Option<BTreeSet<String>> {
        let search = self.search.as_ref()?;
        let now = Instant::now();
        if self.next_look.is_some_and(|at| now < at) {
            return None;
        }
        self.next_look = Some(now + LOOK);
        let mut all = litd_power::gpus_on_the_bus(search);
        all.retain(|address| !self.known.contains(address));
        // A GPU that is gone may be another part when it comes back.
        self.asked.retain(|address, _| all.contains(address));
        all.retain(|address| {
            !litd_power::may_lack_a_cap(search, address)
                || !lacks_a_cap(search, address, &mut self.asked)
        });
        self.follow(&all);
        Some(all)
    }

    /// The released devices, by address, that have come back since the last look.
    pub fn returned<'a>(
        &mut self,
        let_go: impl IntoIterator<Item = (DeviceId, &'a str)>,
    ) -> Vec<DeviceId> {
        let mut returned = Vec::new();
        let mut seen = BTreeMap::new();
        for (device, address) in let_go {
            let now = marks(&self.devices, address);
            let before = self.seen.get(&device);
            if now.is_some() && before.is_some_and(|before| *before != now) {
                returned.push(device);
            }
            seen.insert(device, now);
        }
        self.seen = seen;
        returned
    }
}

fn marks(devices: &Path, address: &str) -> Option<Marks> {
    let directory = devices.join(address);
    let mark = |path: &Path| Some(path.metadata().ok()?.ino());
    Some((mark(&directory)?, mark(&directory.join("driver"))?))
}

/// Those of these GPUs, by address, whose drivers are up.
pub fn up<'a>(search: &Search, gpus: impl IntoIterator<Item = &'a String>) -> Up {
    let devices = search.sys.join("bus/pci/devices");
    let gpus = gpus.into_iter();
    gpus.filter_map(|gpu| Some((gpu.to_ascii_lowercase(), marks(&devices, gpu)?)))
        .collect()
}

/// Whether a GPU's driver has said that it has no cap of its own. A thread asks it, once: until the answer the GPU
/// counts as one with a cap.
fn lacks_a_cap(
    search: &Search,
    address: &str,
    asked: &mut BTreeMap<String, Arc<AtomicBool>>,
) -> bool {
    if let Some(lacks) = asked.get(address) {
        return lacks.load(Ordering::Acquire);
    }
    let lacks = Arc::new(AtomicBool::new(false));
    let (told, search, gpu) = (lacks.clone(), search.clone(), address.to_owned());
    let ask = move || told.store(litd_power::lacks_a_cap(&search, &gpu), Ordering::Release);
    let thread = thread::Builder::new().name("litd-die".to_owned());
    if thread.spawn(ask).is_ok() {
        asked.insert(address.to_owned(), lacks);
    }
    false
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const ADDRESS: &str = "0000:85:00.0";

    fn look(presence: &mut Presence) -> bool {
        !presence.returned([(DeviceId(3), ADDRESS)]).is_empty()
    }

    #[test]
    fn a_device_that_was_gone_or_has_another_driver_has_returned() {
        let sys = tempfile::tempdir().unwrap();
        let device = sys.path().join("bus/pci/devices").join(ADDRESS);
        let driver = sys.path().join("bus/pci/drivers/nvidia");
        fs::create_dir_all(&device).unwrap();
        fs::create_dir_all(&driver).unwrap();
        symlink(&driver, device.join("driver")).unwrap();
        let search = Search {
            sys: sys.path().to_owned(),
            ..Search::default()
        };
        let mut presence = Presence::new(Some(search), [], Up::new());
        for _ in 0..3 {
            assert!(!look(&mut presence));
        }
        // The driver is unloaded and loaded again.
        fs::remove_file(device.join("driver")).unwrap();
        assert!(!look(&mut presence));
        symlink(&driver, device.join("driver")).unwrap();
        assert!(look(&mut presence));
        assert!(!look(&mut presence));
        // Faster than two looks.
        let other = sys.path().join("bus/pci/drivers/other");
        fs::create_dir_all(&other).unwrap();
        fs::remove_file(device.join("driver")).unwrap();
        symlink(&other, device.join("driver")).unwrap();
        assert!(look(&mut presence));
        // A GPU that litd manages meanwhile is looked at afresh later.
        presence.returned([]);
        assert!(!look(&mut presence));
    }

    #[test]
    fn a_gpu_has_come_up_once_its_driver_has_it_ready_and_not_if_it_was_up_before() {
        let root = tempfile::tempdir().unwrap();
        let (sys, proc) = (root.path().join("sys"), root.path().join("proc"));
        let device = sys.join("bus/pci/devices").join(ADDRESS);
        let (driver, listed) = (
            sys.join("bus/pci/drivers/nvidia"),
            proc.join("driver/nvidia/gpus"),
        );
        for directory in [&device, &driver, &listed] {
            fs::create_dir_all(directory).unwrap();
        }
        for (name, text) in [("vendor", "0x10de\n"), ("class", "0x030200\n")] {
            fs::write(device.join(name), text).unwrap();
        }
        let search = Search {
            sys,
            proc,
            ..Search::default()
        };
        let all = [ADDRESS.to_owned()];
        let mut presence = Presence::new(Some(search.clone()), [], up(&search, &all));
        let comes_up = |presence: &mut Presence| {
            presence.next_look = None;
            presence.unmanaged();
            presence.come_up.is_some()
        };
        assert!(!comes_up(&mut presence));
        symlink(&driver, device.join("driver")).unwrap();
        // The driver has not set it up yet.
        assert!(!comes_up(&mut presence));
        fs::create_dir(listed.join(ADDRESS)).unwrap();
        assert!(comes_up(&mut presence));
        // It has to stay so.
        assert!(presence.come_up().is_none());
        let mut later = Presence::new(Some(search.clone()), [], up(&search, &all));
        assert!(!comes_up(&mut later));
        // The driver is loaded anew.
        let other = search.sys.join("bus/pci/drivers/anew/nvidia");
        fs::create_dir_all(&other).unwrap();
        fs::remove_file(device.join("driver")).unwrap();
        symlink(&other, device.join("driver")).unwrap();
        assert!(comes_up(&mut later));
    }
}
