//! Devices on the bus, seen in sysfs without opening any. A released device that was gone from the bus, or whose
//! driver was unloaded, has another directory when it returns. A GPU that litd did not find when it started is
//! unmanaged; one whose driver, or the library to ask it through, was seen to come up since is a reason to start anew
//! (`anew`), and so are CPU sockets if litd has none.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use litd_core::DeviceId;
use litd_power::Search;

use crate::locks::file_name;

/// How often unmanaged GPUs are looked for.
const LOOK: Duration = Duration::from_secs(5);

/// How long the same GPUs have to be there before litd starts anew for them: a driver that comes up shows one after
/// the other, and needs each for a moment.
const SETTLED: Duration = Duration::from_secs(9);

/// The inode numbers of a device's directory and of its driver's; sysfs never reuses one.
type Marks = (u64, u64);

/// What tells whether a GPU's driver has come up since: its marks, and the size and time of the library's file.
type GpuMarks = (Marks, Option<(u64, SystemTime)>);

/// What drivers show without being asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Up {
    /// GPUs by address.
    gpus: BTreeMap<String, GpuMarks>,
    /// The files through which CPU sockets' limits are set.
    sockets: BTreeSet<PathBuf>,
}

impl Up {
    /// Looks whether the drivers of these GPUs are up, and those of CPU sockets.
    pub fn look<'a>(search: &Search, gpus: impl IntoIterator<Item = &'a String>) -> Self {
        let devices = search.sys.join("bus/pci/devices");
        let gpus = gpus.into_iter().filter_map(|gpu| {
            let library = litd_power::library_file(search, gpu);
            let library = library.and_then(|it| it.metadata().ok());
            let library = library.and_then(|it| Some((it.len(), it.modified().ok()?)));
            Some((gpu.to_ascii_lowercase(), (marks(&devices, gpu)?, library)))
        });
        Self {
            gpus: gpus.collect(),
            sockets: litd_power::socket_files(search),
        }
    }

    /// What is here and was not there before.
    fn beyond(mut self, before: &Self) -> Self {
        self.gpus
            .retain(|gpu, marks| before.gpus.get(gpu) != Some(marks));
        self.sockets.retain(|file| !before.sockets.contains(file));
        self
    }

    fn is_empty(&self) -> bool {
        self.gpus.is_empty() && self.sockets.is_empty()
    }

    /// What has come up, in words.
    fn names(&self) -> String {
        let mut names: Vec<&str> = self.gpus.keys().map(String::as_str).collect();
        if !self.sockets.is_empty() {
            names.push("the CPU sockets");
        }
        names.join(", ")
    }
}

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
    /// What was up when litd looked for devices.
    at_start: Up,
    /// The unmanaged devices whose drivers have come up since, and since when these are all.
    come_up: Option<(Up, Instant)>,
    /// Before this litd does not start anew.
    not_before: Option<Instant>,
}

impl Presence {
    /// Looks where devices were searched for; `known` are the devices, by address, that litd manages or can't use, and
    /// `at_start` is what was up before it searched.
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

    /// The unmanaged devices whose drivers this process has seen come up, in words, once they have been there for a
    /// while.
    #[must_use]
    pub fn come_up(&self) -> Option<String> {
        let (up, since) = self.come_up.as_ref()?;
        let is_due =
            since.elapsed() >= SETTLED && self.not_before.is_none_or(|at| Instant::now() >= at);
        is_due.then(|| up.names())
    }

    /// Whether a device, by the name of its lock's file, is one of those that have come up.
    #[must_use]
    pub fn is_coming(&self, name: &str) -> bool {
        let Some((up, _)) = &self.come_up else {
            return false;
        };
        let mut gpus = up.gpus.keys().map(|gpu| file_name(gpu));
        gpus.any(|gpu| gpu.eq_ignore_ascii_case(name)) || !up.sockets.is_empty() && is_socket(name)
    }

    /// Follows which of the unmanaged devices have come up.
    fn follow(&mut self, unmanaged: &BTreeSet<String>) {
        let Some(search) = &self.search else { return };
        let usable = unmanaged
            .iter()
            .filter(|gpu| litd_power::is_usable(search, gpu));
        let mut up = Up::look(search, usable).beyond(&self.at_start);
        // litd manages CPU sockets already, by one driver: the files of another driver are of the same sockets.
        if self.known.iter().any(|it| is_socket(it)) {
            up.sockets.clear();
        }
        match &self.come_up {
            _ if up.is_empty() => self.come_up = None,
            Some((before, _)) if *before == up => {}
            _ => self.come_up = Some((up, Instant::now())),
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

/// Whether the address is a CPU socket's, such as `cpu0`.
fn is_socket(address: &str) -> bool {
    address.starts_with("cpu")
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

    /// A GPU of NVIDIA's on the bus, whose driver has not come up, and the driver's folder.
    fn gpu_on_the_bus(sys: &Path) -> (PathBuf, PathBuf) {
        let device = sys.join("bus/pci/devices").join(ADDRESS);
        let driver = sys.join("bus/pci/drivers/nvidia");
        for directory in [&device, &driver] {
            fs::create_dir_all(directory).unwrap();
        }
        for (name, text) in [("vendor", "0x10de\n"), ("class", "0x030200\n")] {
            fs::write(device.join(name), text).unwrap();
        }
        (device, driver)
    }

    /// What has come up by the next look, in words.
    fn comes_up(presence: &mut Presence) -> Option<String> {
        presence.next_look = None;
        presence.unmanaged();
        presence.come_up.as_ref().map(|(up, _)| up.names())
    }

    fn look(presence: &mut Presence) -> bool {
        !presence.returned([(DeviceId(3), ADDRESS)]).is_empty()
    }

    #[test]
    fn a_device_that_was_gone_or_has_another_driver_has_returned() {
        let sys = tempfile::tempdir().unwrap();
        let (device, driver) = gpu_on_the_bus(sys.path());
        symlink(&driver, device.join("driver")).unwrap();
        let search = Search {
            sys: sys.path().to_owned(),
            ..Search::default()
        };
        let mut presence = Presence::new(Some(search), [], Up::default());
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
        let (device, driver) = gpu_on_the_bus(&sys);
        let listed = proc.join("driver/nvidia/gpus");
        fs::create_dir_all(&listed).unwrap();
        let search = Search {
            sys,
            proc,
            ..Search::default()
        };
        let all = [ADDRESS.to_owned()];
        let mut presence = Presence::new(Some(search.clone()), [], Up::look(&search, &all));
        assert_eq!(comes_up(&mut presence), None);
        symlink(&driver, device.join("driver")).unwrap();
        // The driver has not set it up yet.
        assert_eq!(comes_up(&mut presence), None);
        fs::create_dir(listed.join(ADDRESS)).unwrap();
        assert_eq!(comes_up(&mut presence).as_deref(), Some(ADDRESS));
        // It has to stay so.
        assert!(presence.come_up().is_none());
        let mut later = Presence::new(Some(search.clone()), [], Up::look(&search, &all));
        assert_eq!(comes_up(&mut later), None);
        // The driver is loaded anew.
        let other = search.sys.join("bus/pci/drivers/anew/nvidia");
        fs::create_dir_all(&other).unwrap();
        fs::remove_file(device.join("driver")).unwrap();
        symlink(&other, device.join("driver")).unwrap();
        assert_eq!(comes_up(&mut later).as_deref(), Some(ADDRESS));
    }

    #[test]
    fn a_gpu_has_come_up_once_the_library_is_there_through_which_its_driver_is_asked() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path().join("sys");
        let (device, driver) = gpu_on_the_bus(&sys);
        symlink(&driver, device.join("driver")).unwrap();
        let search = Search {
            sys,
            proc: root.path().join("proc"),
            nvml_library: root.path().join("libnvidia-ml.so.1"),
            cpus: false,
            ..Search::default()
        };
        let all = [ADDRESS.to_owned()];
        let mut presence = Presence::new(Some(search.clone()), [], Up::look(&search, &all));
        assert_eq!(comes_up(&mut presence), None);
        fs::write(&search.nvml_library, "a").unwrap();
        assert_eq!(comes_up(&mut presence).as_deref(), Some(ADDRESS));
        // A litd that could not use it either does not start anew for it, until another version is there.
        let mut later = Presence::new(Some(search.clone()), [], Up::look(&search, &all));
        assert_eq!(comes_up(&mut later), None);
        fs::write(&search.nvml_library, "another").unwrap();
        assert_eq!(comes_up(&mut later).as_deref(), Some(ADDRESS));
    }

    #[test]
    fn cpu_sockets_have_come_up_once_their_limits_can_be_set_unless_litd_has_sockets() {
        let root = tempfile::tempdir().unwrap();
        let search = Search {
            sys: root.path().join("sys"),
            dev: root.path().join("dev"),
            ..Search::default()
        };
        let known = || Presence::new(Some(search.clone()), ["cpu0".to_owned()], Up::default());
        let mut presence = Presence::new(Some(search.clone()), [], Up::look(&search, []));
        // The kernel counts a socket's energy, and has no limit for it.
        let zone = search.sys.join("class/powercap/intel-rapl:0");
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("name"), "package-0\n").unwrap();
        assert_eq!(comes_up(&mut presence), None);
        fs::create_dir_all(&search.dev).unwrap();
        fs::write(search.dev.join("hsmp"), "").unwrap();
        let found = Some("the CPU sockets".to_owned());
        assert_eq!(comes_up(&mut presence), found);
        assert_eq!(comes_up(&mut known()), None);
        fs::remove_file(search.dev.join("hsmp")).unwrap();
        assert_eq!(comes_up(&mut presence), None);
        fs::write(zone.join("constraint_0_power_limit_uw"), "1\n").unwrap();
        assert_eq!(comes_up(&mut presence), found);
        let off = Search {
            cpus: false,
            ..search.clone()
        };
        assert_eq!(
            comes_up(&mut Presence::new(Some(off), [], Up::default())),
            None
        );
    }
}
