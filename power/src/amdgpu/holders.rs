//! Which processes use a GPU: those that have queues or memory on it by the account of the compute
//! driver (kfd), and those that have worked or have memory on it by the account of the graphics
//! driver (DRM).
//!
//! `class/kfd/kfd/proc/<pid>/` has `vram_<gpu_id>` for every GPU that the process could use, and
//! `queues/<n>/gpuid` for what it does use (Linux, `drivers/gpu/drm/amd/amdkfd/kfd_process.c`).
//! `class/kfd/kfd/topology/nodes/<n>/properties` has each partition's place on the PCI bus:
//! `location_id` is bus, device and function in its low 16 bits, with the partition's number
//! above (`kfd_topology.c`).
//!
//! What DRM knows of a client stands in `/proc/<pid>/fdinfo/<fd>` of its descriptor
//! (`Documentation/gpu/drm-usage-stats.rst`). No name proves anything: any file may be called
//! `dri/renderD128`. What a descriptor is of is its device number, and a descriptor that was opened
//! with `O_PATH` needed no right to the device and is no client of its driver.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::libc::O_PATH;
use nix::sys::stat::{major, minor};

use super::address::Address;
use crate::holder::{Holder, Processes};
use crate::sysfs::{self, Attribute};

/// DRM's number among character devices (`include/uapi/linux/major.h`).
const DRM: u64 = 226;

/// A client with so much memory on a GPU uses it. Page tables of one that only has its node open
/// take some tens of KiB.
const USED: u64 = 1 << 20;

/// So many descriptors of a process are looked at: a process with a hundred thousand would keep the
/// device's thread busy. Those that compute are in kfd's account besides.
const DESCRIPTORS: usize = 4096;

/// A character device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Number {
    major: u64,
    minor: u64,
}

/// A device node of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    /// Its name in `/dev/dri`: `card0`, `renderD128`.
    name: String,
    number: Number,
}

/// A GPU as other parts of the kernel know it: its partitions, if it has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nodes {
    address: Address,
    /// kfd's numbers.
    ids: BTreeSet<u64>,
    nodes: BTreeSet<Node>,
}

impl Nodes {
    /// All that belongs to the GPU at `address`, whose folder is `device`.
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
                let name = name.to_owned();
                found.nodes.insert(Node { name, number });
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
                    let number = Number { major: DRM, minor };
                    let name = format!("renderD{minor}");
                    found.nodes.insert(Node { name, number });
                }
            }
        }
        found
    }

    /// The processes that use any of it, in order. Those that may not be looked into, and those
    /// that end meanwhile, are left out.
    ///
    /// # Errors
    /// There is no list of processes, or what it lists is not what drivers mean.
    pub fn holders(&self, sys: &Path, proc: &Path) -> io::Result<Vec<Holder>> {
        let users = sysfs::numbered(&kfd(sys).join("proc"), "");
        let users = users.into_iter().filter(|(_, path)| self.is_used(path));
        let mut pids: BTreeSet<u32> = users.map(|(pid, _)| pid).collect();
        proc.read_dir()
            .map_err(|error| io::Error::other(format!("{}: {error}", proc.display())))?;
        let processes = sysfs::numbered(proc, "").into_iter();
        let clients = processes.filter(|(_, path)| self.has_client(path));
        pids.extend(clients.map(|(pid, _)| pid));
        Processes::new(proc).of_host(pids)
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

    /// Whether a process has a descriptor through which it uses the GPU.
    fn has_client(&self, process: &Path) -> bool {
        let mut open = sysfs::entries(&process.join("fd")).take(DESCRIPTORS);
        open.any(|link| self.is_client(process, &link))
    }

    fn is_client(&self, process: &Path, link: &Path) -> bool {
        // The name says which are worth a look; in a container the nodes have the same names.
        let named = |node: &&Node| {
            link.read_link()
                .is_ok_and(|path| is_called(&path, &node.name))
        };
        let Some(descriptor) = link.file_name() else {
            return false;
        };
        let mut nodes = self.nodes.iter().filter(named).peekable();
        if nodes.peek().is_none() {
            return false;
        }
        // The driver's own words before the file's number: only DRM's files have such, and asking
        // for the number of a file in a file system of the process's own may take for ever.
        let told = sysfs::head(process.join("fdinfo").join(descriptor));
        let client = Client::parse(&told);
        if !client.uses(&self.address) {
            return false;
        }
        fs::metadata(link).is_ok_and(|file| {
            let number = Number {
                major: major(file.rdev()),
                minor: minor(file.rdev()),
            };
            let same = client.inode.is_none_or(|inode| inode == file.ino());
            let mut of = nodes.map(|node| node.number);
            file.file_type().is_char_device() && same && of.any(|node| node == number)
        })
    }
}

/// What the kernel tells of a descriptor.
#[derive(Debug, Default, PartialEq)]
struct Client<'a> {
    /// It was opened without any right to the device.
    is_path: bool,
    inode: Option<u64>,
    /// DRM's number of the client.
    id: Option<u64>,
    address: Option<&'a str>,
    /// It has had the GPU do something.
    has_worked: bool,
    /// Bytes on the GPU.
    memory: u64,
}

impl<'a> Client<'a> {
    fn parse(fdinfo: &'a str) -> Self {
        let mut client = Self::default();
        for (key, value) in fdinfo.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            let amount = || value.split(' ').next().unwrap_or_default().parse().ok();
            match key {
                "flags" => {
                    // Flags that can't be read are not believed.
                    let flags = i32::from_str_radix(value, 8).ok();
                    client.is_path = flags.is_none_or(|flags| flags & O_PATH != 0);
                }
                "ino" => client.inode = amount(),
                "drm-client-id" => client.id = amount(),
                "drm-pdev" => client.address = Some(value),
                "drm-memory-vram" | "drm-total-vram" | "drm-resident-vram" => {
                    client.memory = client.memory.max(bytes(value).unwrap_or(0));
                }
                _ if key.starts_with("drm-engine-") && !key.starts_with("drm-engine-capacity-") => {
                    client.has_worked |= amount().is_some_and(|spent: u64| spent > 0);
                }
                _ => {}
            }
        }
        client
    }

    /// Whether it uses the GPU at `address`. Partitions have no place on the bus of their own.
    fn uses(&self, address: &Address) -> bool {
        let here = |at: &str| at.parse() == Ok(*address);
        let works = self.has_worked || self.memory >= USED;
        !self.is_path && self.id.is_some() && self.address.is_none_or(here) && works
    }
}

/// A number and its unit.
fn bytes(value: &str) -> Option<u64> {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let unit: u64 = match unit.trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Whether a path ends in `dri` and this name.
fn is_called(path: &Path, name: &str) -> bool {
    let folder = path.parent().and_then(Path::file_name);
    folder == Some(OsStr::new("dri")) && path.file_name() == Some(OsStr::new(name))
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
