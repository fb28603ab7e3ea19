//! Holders of litd's locks, as the kernel tells. No file is opened or locked to see that: trying a lock, if only
//! for a moment, would keep a daemon from starting in that moment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::stat::{major, minor};

use crate::locks;
use crate::state;

/// A process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The lock's file.
    pub file: PathBuf,
    /// The process.
    pub pid: u32,
    /// The process's name, where procfs tells it.
    pub name: Option<String>,
    /// The state directory in its note, if it is a daemon that has locked a device.
    pub state: Option<PathBuf>,
}

impl Holder {
    /// The process in words.
    #[must_use]
    pub fn process(&self) -> String {
        let name = self.name.as_ref();
        let name = name.map_or_else(String::new, |name| format!(" ({name})"));
        format!("process {}{name}", self.pid)
    }
}

/// Any user can make the kernel's list of locks so long that it takes the kernel minutes to tell it. After this time it
/// counts as empty.
const PATIENCE: Duration = Duration::from_secs(1);

/// All locks that are held on this node.
#[derive(Debug)]
pub struct Held {
    proc: PathBuf,
    /// The kernel's list: one lock a line.
    list: String,
}

impl Held {
    /// Reads the list of the procfs at `proc`. The result is empty where there is none, or where it is so long that
    /// it can't be read in time.
    #[must_use]
    pub fn now(proc: &Path) -> Self {
        let (list, (told, answer)) = (proc.join("locks"), mpsc::channel());
        // The caller may have given up.
        let read = move || drop(told.send(fs::read_to_string(list)));
        let reads = thread::Builder::new().spawn(read);
        let list = reads.and_then(|_| {
            let late = |_| io::Error::from(io::ErrorKind::TimedOut);
            answer.recv_timeout(PATIENCE).map_err(late)?
        });
        Self {
            proc: proc.to_owned(),
            list: list.unwrap_or_default(),
        }
    }

    /// The holder of a device's lock in this directory of locks; `None` if there is none, or none that may be
    /// seen.
    #[must_use]
    pub fn of_device(&self, directory: &Path, address: &str) -> Option<Holder> {
        let mut holder = self.of_file(locks::file(directory, address))?;
        let about = litd_files::read(&holder.file, 4096).unwrap_or_default();
        let about = String::from_utf8_lossy(&about);
        // A dead daemon's note says nothing of the present holder.
        let written = about.trim_end().split_once(' ');
        let written = written.filter(|(pid, _)| *pid == holder.pid.to_string());
        holder.state = written.map(|(_, state)| PathBuf::from(state));
        Some(holder)
    }

    /// The holder of a state directory's lock.
    #[must_use]
    pub fn of_state(&self, directory: &Path) -> Option<Holder> {
        self.of_file(state::lock(directory))
    }

    /// The process that has a file locked.
    #[must_use]
    pub fn pid_of(&self, file: &Metadata) -> Option<u32> {
        let id = id_of(file);
        let mut lines = self.list.lines();
        lines.find_map(|line| pid_in(line, &id))
    }

    fn of_file(&self, file: PathBuf) -> Option<Holder> {
        let pid = self.pid_of(&fs::symlink_metadata(&file).ok()?)?;
        let name = fs::read_to_string(self.proc.join(format!("{pid}/comm"))).ok();
        let name = name.map(|name| name.trim_end().escape_debug().to_string());
        let state = None;
        Some(Holder {
            file,
            pid,
            name,
            state,
        })
    }
}

/// A file as the kernel's lists of locks name it.
#[must_use]
pub fn id_of(file: &Metadata) -> String {
    id(file.dev(), file.ino())
}

/// The same by its file system's device and its inode.
#[must_use]
pub fn id(device: u64, inode: u64) -> String {
    format!("{:02x}:{:02x}:{inode}", major(device), minor(device))
}

/// How much of processes' descriptors may still be looked at.
#[derive(Debug, Clone, Copy)]
pub struct Left {
    /// Descriptors.
    pub descriptors: usize,
    /// Of these, files with names that are asked for.
    pub files: usize,
}

/// The process that has this file locked by a line of the kernel's, if the line is about that.
fn pid_in(line: &str, id: &str) -> Option<u32> {
    let (pid, place) = lock_in(line)?;
    (place == id).then_some(pid)
}

/// The process that has a file locked, and the file, by a line of the kernel's.
fn lock_in(line: &str) -> Option<(u32, &str)> {
    // 7: FLOCK ADVISORY WRITE 4711 00:1a:815 0 EOF; a waiting one: 7: -> FLOCK ...
    let mut words = line.split_whitespace().skip(1);
    let is_lock = words.next() == Some("FLOCK");
    let (pid, place) = (words.nth(2)?, words.next()?);
    is_lock.then(|| Some((pid.parse().ok()?, place)))?
}

/// The locks of one descriptor, as the kernel tells of it.
fn locks(about: &str) -> impl Iterator<Item = &str> {
    let lines = about.lines().filter_map(|line| line.strip_prefix("lock:"));
    lines.map(str::trim_start)
}

fn each(folder: PathBuf) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// The files that a process has locked and whose names, as it has opened them, `named` takes: their names, by the ids
/// that [`id_of`] tells. `None` if `left`, from which all that is looked at is taken, is too little. No file is looked
/// at itself, because its file system may be the process's own and hang.
#[must_use]
pub fn locked_by(
    proc: &Path,
    pid: u32,
    named: impl Fn(&OsStr) -> bool,
    left: &mut Left,
) -> Option<BTreeMap<String, OsString>> {
    let place = proc.join(pid.to_string());
    let mut found = BTreeMap::new();
    for descriptor in each(place.join("fd")) {
        left.descriptors = left.descriptors.checked_sub(1)?;
        let file = fs::read_link(descriptor.path()).unwrap_or_default();
        let Some(name) = file.file_name().filter(|name| named(name)) else {
            continue;
        };
        left.files = left.files.checked_sub(1)?;
        let about = fs::read_to_string(place.join("fdinfo").join(descriptor.file_name()));
        let about = about.unwrap_or_default();
        let ids = locks(&about).filter_map(|line| Some(lock_in(line)?.1.to_owned()));
        found.extend(ids.map(|id| (id, name.to_owned())));
    }
    Some(found)
}

/// Whether this process has a file locked, by what the kernel tells of its descriptors. The list of all locks would
/// tell too, but any user can make that so long that reading it takes minutes.
#[must_use]
pub fn has_locked(proc: &Path, pid: u32, file: &Metadata) -> bool {
    let id = id_of(file);
    let is_it = |descriptor: &Path| {
        let there = fs::metadata(descriptor);
        there.is_ok_and(|it| (it.dev(), it.ino()) == (file.dev(), file.ino()))
    };
    // Of a process whose first thread has ended the others still have the descriptors.
    let threads = each(proc.join(format!("{pid}/task")));
    let mut descriptors = threads.flat_map(|thread| {
        let (files, about) = (thread.path().join("fd"), thread.path().join("fdinfo"));
        // fdinfo of a driver's file may hang with the driver: only that of lock files is read.
        let locks = each(files).filter(|it| is_it(&it.path()));
        locks
            .map(move |it| about.join(it.file_name()))
            .collect::<Vec<_>>()
    });
    descriptors.any(|descriptor| {
        let about = fs::read_to_string(descriptor).unwrap_or_default();
        locks(&about).any(|line| pid_in(line, &id).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_its_files_and_one_that_waits_for_it_holds_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (proc, state) = (root.path().join("proc"), root.path().join("state"));
        fs::create_dir_all(proc.join("42")).unwrap();
        fs::create_dir(&state).unwrap();
        fs::write(state.join("lock"), "1\n").unwrap();
        fs::write(proc.join("42/comm"), "backup\n").unwrap();
        let it = fs::metadata(state.join("lock")).unwrap();
        let id = format!(
            "{:02x}:{:02x}:{}",
            major(it.dev()),
            minor(it.dev()),
            it.ino()
        );
        let said = |lines: &str| {
            fs::write(proc.join("locks"), lines).unwrap();
            let holder = Held::now(&proc).of_state(&state);
            holder.map(|holder| holder.process())
        };
        for line in [
            String::new(),
            "1:".to_owned(),
            format!("1: -> FLOCK ADVISORY WRITE 42 {id} 0 EOF"),
            format!("1: POSIX ADVISORY WRITE 42 {id} 0 EOF"),
            format!("1: FLOCK ADVISORY WRITE 42 {id}1 0 EOF"),
        ] {
            assert_eq!(said(&line), None, "{line}");
        }
        let line = format!(
            "1: FLOCK ADVISORY WRITE 42 {id} 0 EOF\n1: -> FLOCK ADVISORY WRITE 7 {id} 0 EOF\n"
        );
        assert_eq!(said(&line).unwrap(), "process 42 (backup)");
    }

    /// A pipe that nobody writes to stands for a list that the kernel needs minutes for.
    #[test]
    fn a_list_that_can_not_be_read_in_time_is_empty() {
        let proc = tempfile::tempdir().unwrap();
        let file = proc.path().join("lock");
        fs::write(&file, "").unwrap();
        nix::unistd::mkfifo(&proc.path().join("locks"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let held = Held::now(proc.path());
        assert_eq!(held.pid_of(&file.metadata().unwrap()), None);
    }

    #[test]
    fn a_process_is_asked_for_its_own_locks() {
        let directory = tempfile::tempdir().unwrap();
        let proc = Path::new("/proc");
        let file = fs::File::create(directory.path().join("lock-of-one-test")).unwrap();
        let about = file.metadata().unwrap();
        let own = std::process::id();
        assert!(!has_locked(proc, own, &about));
        file.try_lock().unwrap();
        // On some file systems the kernel's numbers differ.
        let told = Held::now(proc).pid_of(&about).is_some();
        assert_eq!(has_locked(proc, own, &about), told);
        assert!(!has_locked(proc, u32::MAX, &about));
        let locked = |name: &str, descriptors, files| {
            let mut left = Left { descriptors, files };
            locked_by(proc, own, |it| it == name, &mut left)
        };
        let name = "lock-of-one-test";
        let ids = BTreeMap::from_iter(told.then(|| (id_of(&about), name.into())));
        assert_eq!(locked(name, 10_000, 1), Some(ids));
        assert_eq!(locked("other", 10_000, 0), Some(BTreeMap::new()));
        assert_eq!(locked(name, 1, 1), None, "too few descriptors");
        assert_eq!(locked(name, 10_000, 0), None, "too few files");
    }
}
