//! Which processes use a GPU: those that have queues or memory on it by the account of the
//! compute driver (kfd), and those that have one of its device nodes open.
//!
//! `class/kfd/kfd/proc/<pid>/` has `vram_<gpu_id>` for every GPU that the process could use, and
//! `queues/<n>/gpuid` for what it does use (Linux, `drivers/gpu/drm/amd/amdkfd/kfd_process.c`).
//! `class/kfd/kfd/topology/nodes/<n>/properties` has each partition's place on the PCI bus:
//! `location_id` is bus, device and function in its low 16 bits, with the partition's number
//! above (`kfd_topology.c`).

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::address::Address;
use crate::sysfs::{self, Attribute};

/// A GPU as other parts of the kernel know it: its partitions, if it has several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// kfd's numbers.
    pub ids: BTreeSet<u64>,
    /// Names of device nodes in `/dev/dri`: `card0`, `renderD128`.
    pub files: BTreeSet<String>,
}

impl Nodes {
    /// All that belongs to the GPU at `address`, whose folder is `device`.
    pub fn find(sys: &Path, device: &Path, address: &Address) -> Self {
        let mut nodes = Self::default();
        for entry in sysfs::entries(&device.join("drm")) {
            if let Some(name) = entry.file_name().and_then(OsStr::to_str)
                && (name.starts_with("card") || name.starts_with("renderD"))
            {
                nodes.files.insert(name.to_owned());
            }
        }
        for (_, node) in sysfs::numbered(&kfd(sys).join("topology/nodes"), "") {
            let id = sysfs::number(node.join("gpu_id")).filter(|&id: &u64| id != 0);
            let (Some(id), Some(properties)) = (id, properties(node.join("properties"))) else {
                continue;
            };
            let property = |name: &str| properties.get(name).copied();
            let place = property("location_id").map(|id| (id & 0xffff) as u16);
            let domain = property("domain").unwrap_or(0);
            if place == Some(address.place()) && domain == u64::from(address.domain()) {
                nodes.ids.insert(id);
                if let Some(minor) = property("drm_render_minor").filter(|&minor| minor > 0) {
                    nodes.files.insert(format!("renderD{minor}"));
                }
            }
        }
        nodes
    }

    /// The processes that use any of it, in order. Those that may not be looked into, and those
    /// that end meanwhile, are left out.
    ///
    /// # Errors
    /// There is no list of processes at all.
    pub fn holders(&self, sys: &Path, proc: &Path) -> io::Result<Vec<u32>> {
        let users = sysfs::numbered(&kfd(sys).join("proc"), "");
        let users = users.into_iter().filter(|(_, path)| self.is_used(path));
        let mut pids: BTreeSet<u32> = users.map(|(pid, _)| pid).collect();
        proc.read_dir()?;
        let processes = sysfs::numbered(proc, "").into_iter();
        pids.extend(
            processes
                .filter(|(_, path)| self.is_open(path))
                .map(|(pid, _)| pid),
        );
        Ok(pids.into_iter().collect())
    }

    /// Whether kfd says so of a process.
    fn is_used(&self, process: &Path) -> bool {
        let has_memory = |id: &u64| {
            let bytes: Option<u64> = sysfs::number(process.join(format!("vram_{id}")));
            bytes.is_some_and(|bytes| bytes > 0)
        };
        let has_queue = || {
            let queues = sysfs::numbered(&process.join("queues"), "").into_iter();
            let mut ids = queues.filter_map(|(_, queue)| sysfs::number(queue.join("gpuid")));
            ids.any(|id: u64| self.ids.contains(&id))
        };
        self.ids.iter().any(has_memory) || has_queue()
    }

    /// Whether a process has a device node open. In a container the nodes have the same names.
    fn is_open(&self, process: &Path) -> bool {
        let is_node = |target: PathBuf| {
            let folder = target.parent().and_then(Path::file_name);
            let name = target.file_name().and_then(OsStr::to_str);
            folder == Some(OsStr::new("dri")) && name.is_some_and(|name| self.files.contains(name))
        };
        let mut open = sysfs::entries(&process.join("fd"));
        open.any(|link| link.read_link().is_ok_and(is_node))
    }
}

fn kfd(sys: &Path) -> PathBuf {
    sys.join("class/kfd/kfd")
}

/// Lines of a name and a number.
fn properties(path: PathBuf) -> Option<HashMap<String, u64>> {
    let mut buffer = [0; sysfs::PAGE];
    let mut file = Attribute::new(path);
    let text = std::str::from_utf8(file.read(&mut buffer).ok()?).ok()?;
    let property = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    Some(text.lines().filter_map(property).collect())
}
