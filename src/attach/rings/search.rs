//! The rings in a directory, and who has written each. A ring is a file of a user's: it may be anything.
//!
//! Which process writes a ring is told by its lock: the plugin keeps its own ring locked for as long as it lives, and
//! the kernel tells of a process's descriptors what they have locked. So rings are searched for among the open files of
//! processes that use GPUs, and no other file in the directory is looked at, whoever has made it and how many there
//! are. litd itself never locks a ring.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use litd_attach::Owner;
use litd_attach::ring::{BEGIN, BYTES, END, Reader};
use litd_core::{Home, Owners};
use litd_files::{Beneath, NotTaken};
use nix::fcntl::OFlag;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use crate::attach::fit;
use crate::attach::looked::owner_of;
use crate::attach::ranks::Candidate;
use crate::lock_holders::{Left, id, id_of, locked_by};
use crate::process::{Processes, Stat};

/// The most open files of the processes of a user, or of a pod, that are looked at, each time; and the most of these
/// that are named as rings are.
const MOST: Left = Left {
    descriptors: 1 << 16,
    files: 256,
};

/// The most names in the directory that are read, each time, to count rings that nobody writes.
const MOST_NAMES: usize = 10_000;

/// A ring has no longer name: the plugin's has two numbers in it.
const LONGEST_NAME: usize = 64;

/// A search, with all that is known before it.
#[derive(Debug)]
pub(super) struct Search {
    pub proc: PathBuf,
    pub directory: PathBuf,
    pub owners: Owners,
    /// The processes that write rings that are known, by the rings' ids.
    pub known: BTreeMap<String, u32>,
    /// The files that are refused for good.
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

/// A process that has a ring locked.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    pub process: Candidate,
    pub parent: i32,
    pub home: Option<Home>,
    /// The user or the pod that it is counted with.
    pub owner: Owner,
}

/// A file that is not read.
#[derive(Debug)]
pub(super) struct Refusal {
    pub id: String,
    pub name: String,
    /// The process that has the file locked.
    pub writer: Writer,
    pub why: String,
    /// Whether the file may be a ring the next time.
    pub may_pass: bool,
}

/// What a search has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The ids of all files that are named as rings are and that processes which use GPUs have locked; `None` where
    /// these were not asked.
    pub locked: Option<BTreeSet<String>>,
    pub rings: Vec<Ring>,
    pub refused: Vec<Refusal>,
    /// Users and pods whose processes have too many files open to look at all of them, each by one such process.
    pub overfull: BTreeMap<Owner, Writer>,
    /// How many files that are named as rings no process is known to write. Rings of processes that have ended stay
    /// for a while.
    pub unclaimed: u64,
    /// When the directory has changed last, if there may be rings of processes that are not known to use GPUs.
    pub changed: Option<(i64, i64)>,
    /// Why the directory can't be looked at, in words.
    pub trouble: Option<String>,
}

/// Files that are locked, each with its name and the processes that have it locked, by their ids.
type Locked = BTreeMap<String, (OsString, Vec<Writer>)>;

fn is_ring(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let ends = name.strip_suffix(END.as_bytes());
    name.len() <= LONGEST_NAME
        && name.starts_with(BEGIN.as_bytes())
        && ends.is_some_and(|it| it.ends_with(b"."))
}

/// The file with this name in the directory, if it is the one with that id; `None` where it is not, as when a process
/// has a file locked elsewhere.
fn open(
    directory: &File,
    name: &OsStr,
    id: &str,
    uid: u32,
) -> Result<Option<Beneath>, (String, bool)> {
    // No link is followed for that.
    let about = fs::symlink_metadata(place(directory).join(name));
    let Some(about) = about.ok().filter(|about| id_of(about) == id) else {
        return Ok(None);
    };
    let bytes = about.len();
    if about.is_file() && bytes != BYTES as u64 {
        let why = format!("has {bytes} bytes, and a ring has {BYTES}");
        return Err((why, false));
    }
    let file = Beneath::open(directory, &Path::new("/").join(name), uid, BYTES as u64);
    let file = file.map_err(|why| (why.to_string(), matches!(why, NotTaken::Leased)))?;
    let is_same = id_of(file.found()) == id && file.found().len() == BYTES as u64;
    match is_same {
        true => Ok(Some(file)),
        false => Err(("has changed while it was looked at".to_owned(), true)),
    }
}

/// An open directory's path.
fn place(directory: &File) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
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
                self.ask(&directory, &mut found);
                if let Err(error) = self.count(&directory, &mut found) {
                    found.trouble = Some(format!("{}: {error}", self.directory.display()));
                }
            }
            Err(why) => found.trouble = Some(why),
        }
        found
    }

    /// Asks the processes that use GPUs for their rings.
    fn ask(&self, directory: &File, found: &mut Found) {
        let Some(holders) = &self.holders else {
            return;
        };
        let locked = self.locked(holders, found);
        found.locked = Some(locked.keys().cloned().collect());
        for (id, (name, writers)) in locked {
            if !self.refused.contains(&id) {
                self.judge(directory, id, &name, &writers, found);
            }
        }
    }

    fn locked(&self, holders: &BTreeSet<(u32, u32)>, found: &mut Found) -> Locked {
        let processes = Processes::new(&self.proc);
        let mut left: BTreeMap<Owner, Left> = BTreeMap::new();
        let mut all = Locked::new();
        for &(pid, uid) in holders {
            let Some(writer) = self.writer(&processes, pid, uid) else {
                continue;
            };
            let left = left.entry(writer.owner.clone()).or_insert(MOST);
            let Some(locked) = locked_by(&self.proc, pid, is_ring, left) else {
                let owner = writer.owner.clone();
                found.overfull.entry(owner).or_insert(writer);
                continue;
            };
            // A process that lives now lived while procfs was read.
            if processes.home_since(pid, writer.process.began).is_none() {
                continue;
            }
            for (id, name) in locked {
                let (_, writers) = all.entry(id).or_insert((name, Vec::new()));
                writers.push(writer.clone());
            }
        }
        all
    }

    /// A process that uses a GPU; `None` where it has ended.
    fn writer(&self, processes: &Processes, pid: u32, uid: u32) -> Option<Writer> {
        let stat = Stat::read(&self.proc.join(pid.to_string()).join("stat"));
        let stat = stat.filter(|it| !it.has_ended)?;
        let own = processes.own_id(pid)?;
        let home = processes.home_since(pid, stat.began)?;
        Some(Writer {
            process: Candidate {
                pid,
                uid,
                began: stat.began,
                own,
            },
            parent: stat.parent,
            owner: owner_of(home.as_ref(), &self.owners, uid),
            home,
        })
    }

    /// A file that these have locked.
    fn judge(
        &self,
        directory: &File,
        id: String,
        name: &OsStr,
        writers: &[Writer],
        found: &mut Found,
    ) {
        let Some(writer) = writers.first().cloned() else {
            return;
        };
        let known = self.known.get(&id).copied();
        let others = writers.iter().map(|it| it.process.pid);
        let pids: BTreeSet<u32> = others.chain(known).collect();
        let name_in_words = || name.to_string_lossy().escape_debug().to_string();
        let mut refuse = |id: String, writer: Writer, why: String, may_pass: bool| {
            found.refused.push(Refusal {
                id,
                name: name_in_words(),
                writer,
                why,
                may_pass,
            });
        };
        // A ring that is known already is read as far as it is there.
        let file = match known {
            Some(_) => None,
            None => match open(directory, name, &id, writer.process.uid) {
                Ok(Some(file)) => Some(file),
                Ok(None) => return,
                Err((why, may_pass)) => return refuse(id, writer, why, may_pass),
            },
        };
        if pids.len() > 1 {
            // A process that was forked from the writer has the same lock, and may write as well.
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            let why = format!(
                "is locked by several processes that use GPUs, {}: which of them writes it is unknown",
                pids.join(" and ")
            );
            return refuse(id, writer, why, false);
        }
        if let Some(file) = file {
            found.rings.push(Ring {
                id,
                name: name_in_words(),
                file: Arc::new(file),
                reader: Reader::default(),
                writer,
            });
        }
    }

    /// Counts what is named as rings are and nobody is known to write. No file is looked at for that.
    fn count(&self, directory: &File, found: &mut Found) -> io::Result<()> {
        let about = directory.metadata()?;
        let mut names = fs::read_dir(place(directory))?;
        let mut inodes = BTreeSet::new();
        for entry in names.by_ref().take(MOST_NAMES).flatten() {
            if is_ring(&entry.file_name()) {
                inodes.insert(entry.ino());
            }
        }
        let of_now = found.rings.iter().map(|it| &it.id);
        let refused = found.refused.iter().filter(|it| !it.may_pass);
        let of_now = of_now.chain(refused.map(|it| &it.id));
        let of_now: BTreeSet<&String> = of_now.collect();
        let is_nobodys = |&inode: &u64| {
            let id = id(about.dev(), inode);
            !self.known.contains_key(&id) && !self.refused.contains(&id) && !of_now.contains(&id)
        };
        found.unclaimed = inodes.into_iter().filter(is_nobodys).count() as u64;
        let may_be_more = found.unclaimed > 0 || names.next().is_some();
        found.changed = may_be_more.then(|| (about.mtime(), about.mtime_nsec()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use nix::unistd::Uid;
    use tempfile::TempDir;

    use super::*;

    /// A directory for rings, and a procfs with the processes that use GPUs. All is root's, unless it is said.
    struct Node {
        directory: TempDir,
        proc: TempDir,
        holders: BTreeSet<(u32, u32)>,
    }

    impl Node {
        /// `None` where no file can be another user's.
        fn new() -> Option<Self> {
            if !Uid::effective().is_root() {
                return None;
            }
            let shared = || tempfile::tempdir_in("/dev/shm").unwrap();
            let directory = shared();
            fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
            Some(Self {
                directory,
                proc: shared(),
                holders: BTreeSet::new(),
            })
        }

        /// A file of this user's in the directory.
        fn file(&self, name: &str, uid: u32, bytes: usize) -> PathBuf {
            let path = self.directory.path().join(name);
            File::create(&path).unwrap().set_len(bytes as u64).unwrap();
            chown(&path, Some(uid), None).unwrap();
            path
        }

        /// A process of a pod, or of none, that uses a GPU.
        fn process(&mut self, pid: u32, uid: u32, pod: Option<u32>) {
            let place = self.proc.path().join(pid.to_string());
            for folder in ["fd", "fdinfo"] {
                fs::create_dir_all(place.join(folder)).unwrap();
            }
            let write = |name: &str, text: String| fs::write(place.join(name), text).unwrap();
            write("stat", format!("{pid} (a) S 1 {}55 0", "0 ".repeat(17)));
            write("status", format!("NSpid:\t{pid}\n"));
            if let Some(pod) = pod {
                let pod = format!("0::/kubepods/pod{pod:08x}-aaaa-4bbb-8ccc-0123456789ab\n");
                write("cgroup", pod);
            }
            self.holders.insert((pid, uid));
        }

        fn opens(&self, pid: u32, number: usize, file: &Path) {
            let place = self.proc.path().join(pid.to_string());
            symlink(file, place.join(format!("fd/{number}"))).unwrap();
        }

        /// It opens a file and locks it.
        fn locks(&self, pid: u32, number: usize, file: &Path) {
            self.opens(pid, number, file);
            let id = id_of(&fs::symlink_metadata(file).unwrap());
            let lock = format!("pos:\t0\nlock:\t1: FLOCK  ADVISORY  WRITE {pid} {id} 0 EOF\n");
            let place = self.proc.path().join(pid.to_string());
            fs::write(place.join(format!("fdinfo/{number}")), lock).unwrap();
        }

        fn found(&self) -> Found {
            let search = Search {
                proc: self.proc.path().to_owned(),
                directory: self.directory.path().to_owned(),
                owners: Owners::default(),
                known: BTreeMap::new(),
                refused: BTreeSet::new(),
                holders: Some(self.holders.clone()),
            };
            let found = search.found();
            assert_eq!(found.trouble, None);
            found
        }
    }

    fn names(found: &Found) -> Vec<&str> {
        found.rings.iter().map(|it| it.name.as_str()).collect()
    }

    #[test]
    fn no_number_of_others_files_hides_a_ring() {
        let Some(mut node) = Node::new() else {
            return;
        };
        node.process(7, 1000, None);
        let ring = node.file("nccl-7-1.ring", 1000, BYTES);
        node.locks(7, 3, &ring);
        // A tmpfs lists the newest first.
        for at in 0..MOST_NAMES {
            node.file(&format!("x{at}"), 1001, 0);
            node.file(&format!("nccl-{at}.ring"), 1001, 1);
        }
        let found = node.found();
        assert_eq!(names(&found), ["nccl-7-1.ring"]);
        // Nobody has locked the others: they are looked at no further than by their names.
        assert!(found.refused.is_empty() && found.overfull.is_empty());
        assert!((1..=MOST_NAMES as u64).contains(&found.unclaimed));
        assert!(found.changed.is_some(), "there may be more rings");
    }

    #[test]
    fn a_pods_open_files_hide_no_ring_of_another_pods_with_the_same_user() {
        let Some(mut node) = Node::new() else {
            return;
        };
        for pid in [5, 6] {
            node.process(pid, 0, Some(1));
        }
        for number in 0..=MOST.descriptors / 2 {
            for pid in [5, 6] {
                node.opens(pid, number, Path::new("/dev/null"));
            }
        }
        for (pid, pod) in [(7, Some(2)), (8, None)] {
            node.process(pid, 0, pod);
            let ring = node.file(&format!("nccl-{pid}-1.ring"), 0, BYTES);
            node.locks(pid, 3, &ring);
        }
        let found = node.found();
        assert_eq!(names(&found), ["nccl-7-1.ring", "nccl-8-1.ring"]);
        let [(Owner::Pod(pod), _)] = &Vec::from_iter(found.overfull)[..] else {
            panic!("the first pod");
        };
        assert!(pod.contains("00000001"), "{pod}");
    }

    #[test]
    fn who_locks_too_many_files_hides_nobody_elses() {
        let Some(mut node) = Node::new() else {
            return;
        };
        node.process(6, 1001, None);
        for number in 0..=MOST.files {
            let file = node.file(&format!("nccl-6-{number}.ring"), 1001, 1);
            node.locks(6, number, &file);
        }
        node.process(7, 1000, None);
        let ring = node.file("nccl-7-1.ring", 1000, BYTES);
        node.locks(7, 3, &ring);
        let found = node.found();
        assert_eq!(names(&found), ["nccl-7-1.ring"]);
        let overfull: Vec<&Owner> = found.overfull.keys().collect();
        assert_eq!(overfull, [&Owner::User(1001)]);
        assert!(found.refused.is_empty());
    }

    #[test]
    fn a_file_that_is_locked_elsewhere_is_none_of_the_directory() {
        let Some(mut node) = Node::new() else {
            return;
        };
        // Another user has a ring of the same name in the directory.
        node.process(6, 1001, None);
        let elsewhere = node.proc.path().join("nccl-7-1.ring");
        File::create(&elsewhere).unwrap();
        node.locks(6, 3, &elsewhere);
        node.process(7, 1000, None);
        let ring = node.file("nccl-7-1.ring", 1000, BYTES);
        node.locks(7, 3, &ring);
        let found = node.found();
        assert_eq!(names(&found), ["nccl-7-1.ring"]);
        assert!(found.refused.is_empty(), "{:?}", found.refused);
    }

    #[test]
    fn a_ring_has_no_long_name() {
        let named = |length: usize| {
            let name = format!(
                "{BEGIN}{}.{END}",
                "1".repeat(length - BEGIN.len() - 1 - END.len())
            );
            assert_eq!(name.len(), length);
            is_ring(OsStr::new(&name))
        };
        assert!(named(LONGEST_NAME));
        assert!(!named(LONGEST_NAME + 1));
    }
}
