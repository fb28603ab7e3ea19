//! Devices on the bus, seen in sysfs without opening any. A released device that was gone from the bus, or whose
//! driver was unloaded, has another directory when it returns. A GPU that litd did not find when it started is
//! unmanaged.

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

/// The inode numbers of a device's directory and of its driver's; sysfs never reuses one.
type Marks = (u64, u64);

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
}

impl Presence {
    /// Looks where devices were searched for; `known` are the GPUs, by address, that litd manages or can't use.
    #[must_use]
    pub fn new(search: Option<Search>, known: impl IntoIterator<Item = String>) -> Self {
        let sys = search.as_ref().map(|search| search.sys.clone());
        let lower = |address: String| address.to_ascii_lowercase();
        Self {
            devices: sys.unwrap_or_else(|| "/sys".into()).join("bus/pci/devices"),
            seen: BTreeMap::new(),
            search,
            known: known.into_iter().map(lower).collect(),
            next_look: None,
            asked: BTreeMap::new(),
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
            let now = self.marks(address);
            let before = self.seen.get(&device);
            if now.is_some() && before.is_some_and(|before| *before != now) {
                returned.push(device);
            }
            seen.insert(device, now);
        }
        self.seen = seen;
        returned
    }

    fn marks(&self, address: &str) -> Option<Marks> {
        let directory = self.devices.join(address);
        let mark = |path: &Path| Some(path.metadata().ok()?.ino());
        Some((mark(&directory)?, mark(&directory.join("driver"))?))
    }
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
        let mut presence = Presence::new(Some(search), []);
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
}
