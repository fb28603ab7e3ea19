//! Processes that use a GPU: those that have queues or memory on it by the account of the compute driver (kfd),
//! and those that have worked or have memory on it by the account of the graphics driver (DRM).
//!
//! `class/kfd/kfd/proc/<pid>/` has `vram_<gpu_id>` for every GPU that the process could use, and
//! `queues/<n>/gpuid` for those that it does use (Linux, `drivers/gpu/drm/amd/amdkfd/kfd_process.c`).
//! `class/kfd/kfd/topology/nodes/<n>/properties` has each partition's place on the PCI bus: `location_id` is bus,
//! device and function in its low 16 bits, with the partition's number above (`kfd_topology.c`).
//!
//! For DRM's part see [`super::clients`].

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::address::Address;
use super::clients::{Clients, Number};
use crate::holder::{Holder, Processes};
use crate::sysfs::{self, Attribute};

/// DRM's number among character devices (`include/uapi/linux/major.h`).
const DRM: u64 = 226;

/// A GPU as other parts of the kernel number it, with its partitions, if it has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nodes {
    address: Address,
    /// kfd's numbers.
    ids: BTreeSet<u64>,
    /// Device nodes.
    nodes: BTreeSet<Number>,
}

impl Nodes {
    /// The numbers and nodes of the GPU at `address`, whose folder is `device`.
    pub fn find(sys: &Path, device: &Path, address: &Address) -> Self {
        let mut found = Self {
            address: *address,
            ids: BTreeSet::new(),
            nodes: BTreeSet::new(),
        };
        for entry in sysfs::entries(&device.join("drm")) {
            if let Some(name) = entry.file_name().and_then(OsStr::to_str)
                && (name.starts_with("card") || name.starts_with("renderD"))
                && let Some(number) = sysfs::line(entry.join("dev")).and_then(number)
            {
                found.nodes.insert(number);
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
                found.ids.insert(id);
                if let Some(minor) = property("drm_render_minor").filter(|&minor| minor > 0) {
                    found.nodes.insert(Number { major: DRM, minor });
                }
            }
        }
        found
    }

    /// The processes that use any part of it, in order. Processes that may not be examined, and those that end
    /// meanwhile, are left out.
    ///
    /// # Errors
    /// There is no list of processes, or what it lists is not what drivers mean; or descriptors of GPUs were
    /// not found among all others yet.
    pub fn holders(&self, sys: &Path, clients: &Clients) -> io::Result<Vec<Holder>> {
        let proc = clients.proc();
        let users = sysfs::numbered(&kfd(sys).join("proc"), "");
        let users = users.into_iter().filter(|(_, path)| self.is_used(path));
        let mut pids: BTreeSet<u32> = users.map(|(pid, _)| pid).collect();
        proc.read_dir()
            .map_err(|error| io::Error::other(format!("{}: {error}", proc.display())))?;
        let all = clients.now()?;
        let own = all
            .iter()
            .filter(|client| client.is_of(&self.address) && self.nodes.contains(&client.number))
            .filter(|client| client.is_alive(proc));
        pids.extend(own.map(|client| client.pid));
        Processes::new(proc).of_host(pids)
    }

    /// Whether kfd's account shows a process to use it.
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
}

/// A device's number as sysfs has it: `226:128`.
fn number(text: String) -> Option<Number> {
    let (major, minor) = text.split_once(':')?;
    Some(Number {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
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
