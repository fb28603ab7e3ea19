//! The rings in a directory, and who has written each. A ring is a file of a user's: it may be anything.
//!
//! Which process writes a ring is told by its lock: the plugin keeps its own ring locked for as long as it lives, and
//! the kernel tells of a process's descriptors what they have locked. litd itself never locks a ring.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use litd_attach::ring::{BEGIN, BYTES, END, Reader};
use litd_core::Home;
use litd_files::Beneath;
use nix::fcntl::OFlag;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use crate::attach::fit;
use crate::attach::ranks::Candidate;
use crate::lock_holders::{id_of, locked_by};
use crate::process::{Process, Processes, Stat};

/// The most files of the directory that are looked at.
const MOST_FILES: usize = 10_000;

/// The most open files of a user's processes that are looked at, each time.
const MOST_DESCRIPTORS: usize = 1 << 16;

/// A search, with all that is known before it.
#[derive(Debug)]
pub(super) struct Search {
    pub proc: PathBuf,
    pub directory: PathBuf,
    /// The processes that write rings that are known, by the rings' ids.
    pub known: BTreeMap<String, u32>,
    /// The files that are refused.
    pub refused: BTreeSet<String>,
    /// Processes that hold GPUs, with their users, where these are to be asked for their rings.
    pub holders: Option<BTreeSet<(u32, u32)>>,
}

/// A ring, and the process that writes it.
#[derive(Debug)]
pub(super) struct Ring {
    pub id: String,
    pub name: String,
    pub file: Arc<Beneath>,
    pub reader: Reader,
    pub writer: Writer,
}

/// The process that writes a ring.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    pub process: Candidate,
    pub parent: i32,
    pub home: Option<Home>,
}

/// A file that is not read.
#[derive(Debug)]
pub(super) struct Refusal {
    pub id: String,
    pub name: String,
    pub uid: u32,
    pub why: String,
}

/// The content of the directory.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The ids of all files that are named as rings are.
    pub there: BTreeSet<String>,
    /// Of these, those that no process is known to write. Rings of processes that have ended stay for a while.
    pub unclaimed: BTreeSet<String>,
    pub rings: Vec<Ring>,
    pub refused: Vec<Refusal>,
    /// Why the directory can't be looked at, in words.
    pub trouble: Option<String>,
}

/// A file of the directory.
struct Entry {
    id: String,
    name: String,
    /// Below the directory.
    path: PathBuf,
    about: Metadata,
}

fn is_ring(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let ends = name.strip_suffix(END.as_bytes());
    name.starts_with(BEGIN.as_bytes()) && ends.is_some_and(|it| it.ends_with(b"."))
}

impl Entry {
    fn of(entry: &DirEntry) -> Option<Self> {
        let name = entry.file_name();
        if !is_ring(&name) {
            return None;
        }
        // No link is followed for that.
        let about = entry.metadata().ok()?;
        Some(Self {
            id: id_of(&about),
            name: name.to_string_lossy().escape_debug().to_string(),
            path: Path::new("/").join(name),
            about,
        })
    }

    /// Why it is no ring, whoever writes it.
    fn flaw(&self, directory: &File) -> Option<String> {
        let about = &self.about;
        if about.is_file() && about.len() != BYTES as u64 {
            let bytes = about.len();
            return Some(format!("has {bytes} bytes, and a ring has {BYTES}"));
        }
        if about.is_file() && about.nlink() == 1 {
            return None;
        }
        self.open(directory).err()
    }

    fn open(&self, directory: &File) -> Result<Beneath, String> {
        let file = Beneath::open(directory, &self.path, self.about.uid(), BYTES as u64);
        let file = file.map_err(|why| why.to_string())?;
        let is_same = id_of(file.found()) == self.id && file.found().len() == BYTES as u64;
        is_same
            .then_some(file)
            .ok_or_else(|| "has changed while it was looked at".to_owned())
    }

    fn refused(self, why: String) -> Refusal {
        Refusal {
            uid: self.about.uid(),
            id: self.id,
            name: self.name,
            why,
        }
    }
}

/// The directory, if nobody else can put files in each other's place there, and reading waits for no disk.
fn opened(directory: &Path) -> Result<File, String> {
    fit(directory)?;
    let name = directory.display();
    let mut how = OpenOptions::new();
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let opened = how.read(true).custom_flags(flags.bits()).open(directory);
    let opened = opened.map_err(|error| format!("{name}: {error}"))?;
    let is_tmpfs = fstatfs(&opened).is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC);
    is_tmpfs.then_some(opened).ok_or_else(|| {
        format!("{name}: is not in shared memory (tmpfs), and the plugin writes nowhere else")
    })
}

/// Why no rings could be read in this directory, in words; `None` if they could.
pub(in crate::attach) fn trouble(directory: &Path) -> Option<String> {
    opened(directory).err()
}

impl Search {
    /// Searches. Files of the directory may be anything, and so nothing of theirs is read.
    pub fn found(&self) -> Found {
        let mut found = Found::default();
        match opened(&self.directory) {
            Ok(directory) => {
                if let Err(error) = self.look(&directory, &mut found) {
                    found.trouble = Some(format!("{}: {error}", self.directory.display()));
                }
            }
            Err(why) => found.trouble = Some(why),
        }
        found
    }

    fn look(&self, directory: &File, found: &mut Found) -> io::Result<()> {
        let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let mut whole = Vec::new();
        for entry in fs::read_dir(place)?.take(MOST_FILES).flatten() {
            let Some(entry) = Entry::of(&entry) else {
                continue;
            };
            found.there.insert(entry.id.clone());
            if self.refused.contains(&entry.id) {
                continue;
            }
            // A ring that is known already is read as far as it is there.
            let is_new = !self.known.contains_key(&entry.id);
            match is_new.then(|| entry.flaw(directory)).flatten() {
                Some(why) => found.refused.push(entry.refused(why)),
                None => whole.push(entry),
            }
        }
        let mut writers = self.writers(&whole);
        for entry in whole {
            let writers = writers.remove(&entry.id).unwrap_or_default();
            self.judge(directory, entry, &writers, found);
        }
        Ok(())
    }

    /// The processes that have these files locked, as far as they hold GPUs.
    fn writers(&self, whole: &[Entry]) -> BTreeMap<String, Vec<(Candidate, i32)>> {
        let mut writers: BTreeMap<String, Vec<(Candidate, i32)>> = BTreeMap::new();
        let mut left: BTreeMap<u32, usize> = whole
            .iter()
            .map(|it| (it.about.uid(), MOST_DESCRIPTORS))
            .collect();
        let processes = Processes::new(&self.proc);
        for &(pid, uid) in self.holders.iter().flatten() {
            // Only a user's own processes write his rings.
            let Some(left) = left.get_mut(&uid) else {
                continue;
            };
            let stat = Stat::read(&self.proc.join(pid.to_string()).join("stat"));
            let Some(stat) = stat.filter(|it| !it.has_ended) else {
                continue;
            };
            let Some(locked) = locked_by(&self.proc, pid, is_ring, left) else {
                continue;
            };
            let own = processes.own_id(pid);
            let process = Process::since(&self.proc, pid, stat.began);
            // A process that lives now lived while procfs was read.
            let (Some(own), None) = (own, process.doubt()) else {
                continue;
            };
            let process = Candidate {
                pid,
                uid,
                began: stat.began,
                own,
            };
            for id in locked {
                writers.entry(id).or_default().push((process, stat.parent));
            }
        }
        writers
    }

    /// A file without a flaw, and those that have it locked.
    fn judge(
        &self,
        directory: &File,
        entry: Entry,
        writers: &[(Candidate, i32)],
        found: &mut Found,
    ) {
        let known = self.known.get(&entry.id).copied();
        let others = writers.iter().map(|(it, _)| it.pid);
        let pids: BTreeSet<u32> = others.chain(known).collect();
        if pids.len() > 1 {
            // A process that was forked from the writer has the same lock, and may write as well.
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            let why = format!(
                "is locked by several processes that use GPUs, {}: which of them writes it is unknown",
                pids.join(" and ")
            );
            return found.refused.push(entry.refused(why));
        }
        if known.is_some() {
            return;
        }
        let Some(&(process, parent)) = writers.first() else {
            found.unclaimed.insert(entry.id);
            return;
        };
        if process.uid != entry.about.uid() {
            let why = format!(
                "is locked by process {} of user {}",
                process.pid, process.uid
            );
            return found.refused.push(entry.refused(why));
        }
        let file = match entry.open(directory) {
            Ok(file) => file,
            Err(why) => return found.refused.push(entry.refused(why)),
        };
        let processes = Processes::new(&self.proc);
        // Else the process has just ended.
        if let Some(home) = processes.home_since(process.pid, process.began) {
            found.rings.push(Ring {
                id: entry.id,
                name: entry.name,
                file: Arc::new(file),
                reader: Reader::default(),
                writer: Writer {
                    process,
                    parent,
                    home,
                },
            });
        }
    }
}
