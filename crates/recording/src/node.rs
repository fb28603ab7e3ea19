//! The files of a node that are recorded: those that back ends read, those that tell which driver and which firmware the
//! node has, and no others. (The compute driver's list of processes, for example, is left out.)

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::format::Entry;

/// Files of a GPU's folder on the PCI bus.
const GPU: [&str; 25] = [
    "available_compute_partition",
    "class",
    "current_compute_partition",
    "current_link_speed",
    "current_link_width",
    "current_memory_partition",
    "device",
    "gpu_busy_percent",
    "gpu_metrics",
    "mem_busy_percent",
    "mem_info_vram_total",
    "numa_node",
    "power_dpm_force_performance_level",
    "power_dpm_state",
    "pp_dpm_mclk",
    "pp_dpm_sclk",
    "pp_od_clk_voltage",
    "product_name",
    "product_number",
    "revision",
    "serial_number",
    "subsystem_device",
    "unique_id",
    "vbios_version",
    "vendor",
];

/// Kinds of files in a folder of sensors, by the beginnings of their names.
const SENSORS: [&str; 7] = ["power", "energy", "temp", "freq", "fan", "in", "pwm"];

/// Folders of sensors that belong to GPUs or CPU sockets, by the name that their drivers give.
const HWMON: [&str; 2] = ["amdgpu", "amd_hsmp_hwmon"];

/// Drivers of GPUs and CPU sockets.
const MODULES: [&str; 8] = [
    "amd_hsmp",
    "amdgpu",
    "hsmp_acpi",
    "hsmp_common",
    "intel_rapl_common",
    "intel_rapl_msr",
    "intel_rapl_tpmi",
    "nvidia",
];

/// Files of procfs that say something of the node itself.
const PROC: [&str; 2] = ["sys/kernel/osrelease", "driver/nvidia/version"];

/// Nodes in `/dev` of whose presence a back end makes something.
const DEV: [&str; 4] = ["hsmp", "kfd", "nvidia-uvm", "nvidiactl"];

/// A folder has no more entries that matter: so many processors, or limits, no node has.
const MOST: usize = 4096;

/// The parts that are found without asking a driver: links and directories, and which files to read, those of one folder together
/// because one driver answers for them.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub entries: BTreeMap<String, Entry>,
    /// Files by folders: their names in the recording, and their places.
    pub files: BTreeMap<PathBuf, Vec<(String, PathBuf)>>,
}

/// One tree of the node, such as `/sys`.
struct Tree<'a> {
    /// The tree's name in the recording.
    name: &'static str,
    root: PathBuf,
    found: &'a mut Found,
}

/// Looks through a node's trees.
pub(crate) fn look(sys: &Path, proc: &Path, dev: &Path) -> Found {
    let mut found = Found::default();
    look_at_sys(&mut Tree::new("sys", sys, &mut found));
    look_at_proc(&mut Tree::new("proc", proc, &mut found));
    for name in DEV {
        if dev.join(name).exists() {
            found.entries.insert(format!("dev/{name}"), Entry::Node);
        }
    }
    found
}

impl<'a> Tree<'a> {
    fn new(name: &'static str, root: &Path, found: &'a mut Found) -> Self {
        // Links are followed to where they lead, below this.
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        Self { name, root, found }
    }

    /// A path's name in the recording, if it lies in this tree.
    fn key(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix(&self.root).ok()?.to_str()?;
        Some(format!("{}/{below}", self.name))
    }

    /// Records a link as it is, and says where it leads.
    fn link(&mut self, path: &Path) -> Option<PathBuf> {
        let target = fs::read_link(path).ok()?;
        let place = path.canonicalize().ok()?;
        let key = self.key(path)?;
        // A link out of the tree leads nowhere on another machine.
        self.key(&place)?;
        let entry = Entry::Link(target.to_str()?.to_owned());
        self.found.entries.insert(key, entry);
        Some(place)
    }

    /// Has a folder's file read.
    fn file(&mut self, folder: &Path, name: &str) {
        let path = folder.join(name);
        if let Some(key) = self.key(&path).filter(|_| path.is_file()) {
            let files = self.found.files.entry(folder.to_owned()).or_default();
            files.push((key, path));
        }
    }

    /// Has those of a folder's files read whose names are wanted.
    fn files(&mut self, folder: &Path, is_wanted: impl Fn(&str) -> bool) {
        for path in entries(folder) {
            if let Some(name) = name(&path).filter(|name| is_wanted(name)) {
                self.file(folder, name);
            }
        }
    }
}

/// A folder's entries, in order; none if there is no such folder.
fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).take(MOST).collect()
}

fn name(path: &Path) -> Option<&str> {
    path.file_name().and_then(OsStr::to_str)
}

/// Whether a name is this beginning and a number.
fn is_numbered(name: &str, begin: &str) -> bool {
    let number = name.strip_prefix(begin);
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The first line of a file that the bus or the kernel's core has, which no driver has to answer for.
fn line(path: &Path) -> Option<String> {
    let text = litd_files::head(path, 256).ok()?;
    let text = String::from_utf8(text).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

fn look_at_sys(sys: &mut Tree<'_>) {
    let root = sys.root.clone();
    for entry in entries(&root.join("class/drm")) {
        let is_gpus = |name: &str| is_numbered(name, "card") || is_numbered(name, "renderD");
        if name(&entry).is_some_and(is_gpus)
            && let Some(node) = sys.link(&entry)
        {
            sys.file(&node, "dev");
            if let Some(device) = sys.link(&node.join("device")) {
                look_at_gpu(sys, &device);
            }
        }
    }
    for entry in entries(&root.join("bus/pci/devices")) {
        if is_gpu(&entry)
            && let Some(device) = sys.link(&entry)
        {
            look_at_gpu(sys, &device);
        }
    }
    for entry in entries(&root.join("class/hwmon")) {
        if let Some(folder) = sys.link(&entry) {
            look_at_sensors(sys, &folder);
        }
    }
    for entry in entries(&root.join("class/powercap")) {
        if name(&entry).is_some_and(|name| name.starts_with("intel-rapl"))
            && let Some(zone) = sys.link(&entry)
        {
            sys.files(&zone, |name| {
                matches!(
                    name,
                    "name" | "enabled" | "energy_uj" | "max_energy_range_uj"
                ) || name.starts_with("constraint_")
            });
        }
    }
    look_at_topology(sys, &root.join("class/kfd/kfd"));
    for processor in entries(&root.join("devices/system/cpu")) {
        if name(&processor).is_some_and(|name| is_numbered(name, "cpu")) {
            sys.file(&processor.join("topology"), "physical_package_id");
        }
    }
    for module in MODULES {
        sys.file(&root.join("module").join(module), "version");
    }
}

/// Whether a PCI device is a display controller or a processing accelerator.
fn is_gpu(device: &Path) -> bool {
    let class = line(&device.join("class"));
    let is = |class: String| class.starts_with("0x03") || class.starts_with("0x12");
    class.is_some_and(is)
}

/// A GPU's folder on the bus. The link to its driver may lead nowhere that is recorded: its last name is what counts.
fn look_at_gpu(sys: &mut Tree<'_>, device: &Path) {
    if sys.found.files.contains_key(device) {
        return;
    }
    for name in GPU {
        sys.file(device, name);
    }
    if let (Ok(target), Some(key)) = (
        fs::read_link(device.join("driver")),
        sys.key(&device.join("driver")),
    ) && let Some(target) = target.to_str()
    {
        let link = Entry::Link(target.to_owned());
        sys.found.entries.insert(key, link);
    }
    for folder in entries(&device.join("hwmon")) {
        look_at_sensors(sys, &folder);
    }
}

/// A folder of sensors: all of it if it is a GPU's or a CPU socket's, and otherwise its name alone.
fn look_at_sensors(sys: &mut Tree<'_>, folder: &Path) {
    if sys.found.files.contains_key(folder) {
        return;
    }
    sys.file(folder, "name");
    let is_ours = line(&folder.join("name")).is_some_and(|name| HWMON.contains(&name.as_str()));
    if !is_ours {
        return;
    }
    sys.files(folder, |name| {
        SENSORS.iter().any(|kind| is_sensor(name, kind))
    });
    if let Some(device) = sys.link(&folder.join("device")) {
        let firmware = device.join("firmware_node");
        if let Some(node) = sys.link(&firmware) {
            sys.file(&node, "uid");
        }
    }
}

/// Whether a file's name is that of a sensor of this kind: `power1_cap`.
fn is_sensor(name: &str, kind: &str) -> bool {
    let rest = name.strip_prefix(kind).unwrap_or_default();
    rest.starts_with(|first: char| first.is_ascii_digit())
}

/// The compute driver's list of the node's GPUs.
fn look_at_topology(sys: &mut Tree<'_>, driver: &Path) {
    let Some(place) = sys.link(driver).or_else(|| driver.canonicalize().ok()) else {
        return;
    };
    for node in entries(&place.join("topology/nodes")) {
        for name in ["gpu_id", "name", "properties"] {
            sys.file(&node, name);
        }
    }
}

fn look_at_proc(proc: &mut Tree<'_>) {
    let root = proc.root.clone();
    for path in PROC {
        if let Some((folder, name)) = path.rsplit_once('/') {
            proc.file(&root.join(folder), name);
        }
    }
    proc.file(&root, "cpuinfo");
    for gpu in entries(&root.join("driver/nvidia/gpus")) {
        if let Some(key) = proc.key(&gpu) {
            proc.found.entries.insert(key, Entry::Directory);
        }
    }
}
