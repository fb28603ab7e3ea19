//! Processes of earlier daemons that are being killed and can't end, because a call to a driver hangs. Such a call may
//! still be carried out, however late, so whoever comes next has to know of it. There are two kinds, both noted beside
//! the locks of devices:
//!
//! - a daemon itself: `PID.hanging`, with the time at which the process began: noted by the daemon that takes its locks
//!   over;
//! - the process of a back end that was setting a cap for a daemon ([`litd_power::Child`]): noted by that process
//!   itself, before it begins to set the cap.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use litd_power::Child;

use crate::{baseline, lock, locks};
use litd_files as files;

/// The end of a note's name.
const END: &str = ".hanging";

/// How long a back end's process whose daemon is gone has to end, which the kernel sees to at once. One that is left
/// after that hangs.
const ENDS: Duration = Duration::from_secs(1);

/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(5);

/// A process that hangs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hanging {
    /// Its id.
    pub pid: u32,
    note: Note,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Note {
    /// A daemon's, in this file.
    Daemon(PathBuf),
    /// A back end's, in this directory of locks.
    Child(PathBuf, Child),
}

impl Hanging {
    /// Notes that this process hangs.
    ///
    /// # Errors
    /// The directory of locks can't be written.
    pub fn note(directory: &Path, pid: u32) -> io::Result<()> {
        let Some(born) = baseline::born(&pid.to_string()) else {
            return Ok(());
        };
        let path = directory.join(format!("{pid}{END}"));
        let mut file = files::make_anew(&path, OpenOptions::new().mode(0o600))?;
        writeln!(file, "{born}")
    }

    /// The processes noted here that still hang. The notes of all others are removed. Waits for at most [`ENDS`].
    pub fn noted(directory: &Path) -> Vec<Self> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let daemons = entries.filter_map(|entry| {
            let name = entry.file_name();
            let pid = name.to_str()?.strip_suffix(END)?.parse().ok()?;
            let note = Note::Daemon(entry.path());
            Some(Self { pid, note })
        });
        let mut all: Vec<Self> = daemons.filter(Self::still).collect();
        all.extend(orphans(directory));
        all
    }

    /// Whether it still hangs. If not, its note is removed.
    pub fn still(&self) -> bool {
        let path = match &self.note {
            Note::Daemon(path) => path,
            Note::Child(directory, child) => return child.lives() && is_orphan(directory, child),
        };
        let noted = files::text(path, 64).ok();
        let born = baseline::born(&self.pid.to_string());
        let is_it = born.is_some() && born.as_deref() == noted.as_deref().map(str::trim_end);
        let hangs = is_it && lock::is_dying(self.pid) && !has_ended(self.pid);
        if !hangs {
            let _ = fs::remove_file(path);
        }
        hangs
    }
}

/// The processes of back ends whose daemons are gone, and which have not ended in time.
fn orphans(directory: &Path) -> Vec<Hanging> {
    let children = Child::noted(directory).into_iter();
    let mut left: Vec<Hanging> = children
        .map(|child| Hanging {
            pid: child.pid,
            note: Note::Child(directory.to_owned(), child),
        })
        .collect();
    let until = Instant::now() + ENDS;
    loop {
        left.retain(Hanging::still);
        if left.is_empty() || Instant::now() >= until {
            return left;
        }
        thread::sleep(LOOK);
    }
}

/// Whether the daemon that has started a back end's process is gone. While it lives it has the device's lock and has
/// written its id there, unless it is this one, or is only about to take the lock: that counts as gone until it has.
fn is_orphan(directory: &Path, child: &Child) -> bool {
    if child.is_ours() {
        return false;
    }
    let holder = files::text(&locks::file(directory, &child.device), 4096).unwrap_or_default();
    let holder = holder.split_whitespace().next();
    let holder = holder.and_then(|pid| pid.parse().ok());
    // A predecessor in a container may have had this process's own id.
    let is_its = holder == Some(child.parent) && child.parent != std::process::id();
    !is_its || !locks::is_locked(directory, &child.device)
}

/// Whether all of its threads have ended, and nobody has asked for its status yet: then no call is under way.
fn has_ended(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut states = threads.into_iter().flatten().flatten().map(|thread| {
        let status = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = status
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        state.is_none_or(|state| matches!(state, 'Z' | 'X'))
    });
    states.all(|ended| ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_of_a_process_that_does_not_hang_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let own = std::process::id();
        Hanging::note(directory.path(), own).unwrap();
        // An id that was reused since, and one that nobody has.
        fs::write(directory.path().join("1.hanging"), "77\n").unwrap();
        fs::write(directory.path().join("4194999.hanging"), "77\n").unwrap();
        assert_eq!(Hanging::noted(directory.path()), []);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    /// Notes a back end's process of the daemon with this id, as the process itself does: the note, locked.
    fn child_of(directory: &Path, parent: u32) -> fs::File {
        let path = directory.join("0000:85:00.0.4711.child");
        fs::write(&path, format!("{parent} token\n")).unwrap();
        let file = fs::File::open(&path).unwrap();
        file.try_lock().unwrap();
        file
    }

    #[test]
    fn a_back_ends_process_hangs_once_its_daemon_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let note = child_of(directory.path(), 4000);
        let noted = Hanging::noted(directory.path());
        assert_eq!(noted.iter().map(|it| it.pid).collect::<Vec<_>>(), [4711]);
        assert!(noted[0].still());
        drop(note);
        assert!(!noted[0].still());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        // One whose daemon has the device.
        let _note = child_of(directory.path(), 4000);
        let lock = directory.path().join("0000:85:00.0");
        fs::write(&lock, "4000 /var/lib/litd\n").unwrap();
        let lock = fs::File::open(lock).unwrap();
        lock.try_lock().unwrap();
        assert_eq!(Hanging::noted(directory.path()), []);
        drop(lock);
        assert_eq!(Hanging::noted(directory.path()).len(), 1);
    }

    #[test]
    fn whoever_has_the_device_now_is_not_the_one_that_has_started_it() {
        let directory = tempfile::tempdir().unwrap();
        let own = std::process::id();
        for (parent, holder) in [(4000, 4001), (own, own)] {
            let _note = child_of(directory.path(), parent);
            let lock = directory.path().join("0000:85:00.0");
            fs::write(&lock, format!("{holder} /var/lib/litd\n")).unwrap();
            let lock = fs::File::open(lock).unwrap();
            lock.try_lock().unwrap();
            assert_eq!(Hanging::noted(directory.path()).len(), 1, "{parent}");
        }
    }

    /// A killed daemon's process ends at once as a rule, and is waited for.
    #[test]
    fn a_back_ends_process_that_is_about_to_end_does_not_hang() {
        let directory = tempfile::tempdir().unwrap();
        let note = child_of(directory.path(), 4000);
        let ends = thread::spawn(move || {
            thread::sleep(ENDS / 10);
            drop(note);
        });
        assert_eq!(Hanging::noted(directory.path()), []);
        ends.join().unwrap();
    }

    /// A corpse that nobody has buried has no call under way.
    #[test]
    fn a_process_that_has_ended_does_not_hang() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        assert!(lock::is_dying(child.id()));
        Hanging::note(directory.path(), child.id()).unwrap();
        assert_eq!(Hanging::noted(directory.path()), []);
        child.wait().unwrap();
    }
}
