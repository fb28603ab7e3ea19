//! Locks of a daemon that is being killed and can't end, because a call to a driver that hangs keeps one of its
//! threads in the kernel. Its locks stay until that driver answers, perhaps until the node boots, and meanwhile
//! the other devices' caps would not be restored. Such a process runs no instruction of its own any more: it can
//! only finish that call, and the undo journal names what the call may write. So a new daemon that meets such a
//! lock puts a file of its own, locked, in the lock's place.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc::SIGKILL;

use crate::lock_holders::has_locked;
use litd_files as files;

/// A lock's file, locked, or why it can't be.
#[derive(Debug)]
pub enum Locked {
    /// The lock is ours.
    Ours(File),
    /// The lock is ours, in the place of the one of this process, which is being killed and can't end.
    Inherited(File, u32),
    /// Another process has the lock: the file, to read that process's note about itself.
    Taken(File),
}

/// How often to open a lock's file anew because another process has replaced it meanwhile.
const TRIES: usize = 8;

/// How long a lock is waited for: a process that has just died may have begun another one, which has the lock until it
/// executes its program.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// Locks a file, which `open` opens; replaces the lock of a process that is being killed and can't end. A lock that
/// another process has is waited for, for a moment: at the start, and also where a daemon takes a lock again.
///
/// # Errors
/// What `open` says, or what the system says of locking it.
pub fn lock(path: &Path, open: impl Fn() -> io::Result<File>) -> io::Result<Locked> {
    let until = Instant::now() + PATIENCE;
    loop {
        match lock_now(path, &open)? {
            Locked::Taken(_) if Instant::now() < until => thread::sleep(PAUSE),
            locked => return Ok(locked),
        }
    }
}

fn lock_now(path: &Path, open: &impl Fn() -> io::Result<File>) -> io::Result<Locked> {
    let mut file = open()?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) if files::still_at(&file, path).is_some() => return Ok(Locked::Ours(file)),
            // Another daemon has replaced this file.
            Ok(()) => file = open()?,
            Err(TryLockError::WouldBlock) => {
                let new = match dying_holder(&file) {
                    Some(pid) => take_place(path, pid, open)?,
                    None => None,
                };
                return Ok(new.unwrap_or(Locked::Taken(file)));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(Locked::Taken(file))
}

/// Replaces a lock whose holder is being killed by a locked file. If several processes do that, the first one
/// wins, and the others find its lock.
fn take_place(
    path: &Path,
    pid: u32,
    open: impl Fn() -> io::Result<File>,
) -> io::Result<Option<Locked>> {
    let Some(directory) = path.parent() else {
        return Ok(None);
    };
    // A lock on the directory: processes that would do the same wait here.
    let turn = File::open(directory)?;
    if turn.try_lock().is_err() {
        return Ok(None);
    }
    let there = open()?;
    match there.try_lock() {
        Ok(()) => return Ok(Some(Locked::Ours(there))),
        Err(TryLockError::WouldBlock) if dying_holder(&there) == Some(pid) => {}
        Err(_) => return Ok(None),
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Ok(None);
    };
    let beside = path.with_file_name(format!("{name}.new"));
    let new = files::make_anew(&beside, OpenOptions::new().mode(0o600))?;
    new.try_lock().map_err(io::Error::from)?;
    fs::rename(&beside, path)?;
    log::warn!(
        "{}: the process that has this lock was killed but hangs in a driver: this process takes the lock over",
        path.display()
    );
    Ok(Some(Locked::Inherited(new, pid)))
}

/// The process that has a file locked, if it is being killed and does not run any more.
pub fn dying_holder(file: &File) -> Option<u32> {
    // A process's note in its lock may be old: the kernel's word counts.
    let mut note = [0; 16];
    let length = file.read_at(&mut note, 0).unwrap_or_default();
    let noted = note[..length].split(u8::is_ascii_whitespace).next();
    let noted = noted.and_then(|pid| std::str::from_utf8(pid).ok()?.parse().ok());
    let about = file.metadata().ok()?;
    let has_it = |&pid: &u32| is_dying(pid) && has_locked(Path::new("/proc"), pid, &about);
    let noted = noted.filter(has_it);
    // Where the disk was full or read-only there is no note.
    noted.or_else(|| own_processes().find(has_it))
}

/// The processes of this process's user.
fn own_processes() -> impl Iterator<Item = u32> {
    let own = nix::unistd::geteuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(move |it| it.metadata().is_ok_and(|about| about.uid() == own))
        .filter_map(|it| it.file_name().to_str()?.parse().ok())
}

/// Whether a process is a `litd restore`, which ends by itself.
pub fn restores(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0)
        .skip(1)
        .any(|it| it == b"restore")
}

/// Whether every thread of a process has ended or will end as soon as its system call returns.
pub fn is_dying(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let mut any = false;
    for thread in threads {
        let status = thread.and_then(|thread| fs::read_to_string(thread.path().join("status")));
        match status {
            Ok(status) if ends(&status) => any = true,
            // The thread has ended since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => any = true,
            _ => return false,
        }
    }
    any
}

/// Whether a thread has ended or has SIGKILL pending, by its `status` in procfs.
fn ends(status: &str) -> bool {
    let field = |name: &str| {
        let mut lines = status.lines();
        lines
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    let has_ended = field("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    let is_killed = ["SigPnd:", "ShdPnd:"].iter().any(|name| {
        let pending = field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        pending.is_some_and(|mask| mask & 1 << (SIGKILL - 1) != 0)
    });
    has_ended || is_killed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_killed_and_hangs_is_told_from_who_runs() {
        let status = |state: &str, own: &str, shared: &str| {
            format!("Name:\tlitd\nState:\t{state}\nSigPnd:\t{own}\nShdPnd:\t{shared}\n")
        };
        let none = "0000000000000000";
        let killed = "0000000000000100";
        assert!(ends(&status("D (disk sleep)", killed, none)));
        assert!(ends(&status("D (disk sleep)", none, killed)));
        assert!(ends(&status("Z (zombie)", none, none)));
        // A thread that hangs may go on; so may one that is stopped, or that has other signals pending.
        assert!(!ends(&status("D (disk sleep)", none, none)));
        assert!(!ends(&status("T (stopped)", "0000000000004000", none)));
        assert!(!ends(""));
        assert!(!is_dying(std::process::id()));
    }

    #[test]
    fn a_lock_is_its_holders_until_that_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let open = || options.open(&path);
        let held = open().unwrap();
        held.try_lock().unwrap();
        assert_eq!(dying_holder(&held), None);
        assert!(matches!(lock(&path, open), Ok(Locked::Taken(_))));
        drop(held);
        assert!(matches!(lock(&path, open), Ok(Locked::Ours(_))));
    }

    /// Another daemon has put its own file in place of the opened one.
    #[test]
    fn a_lock_that_lies_nowhere_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let old = File::create(&path).unwrap();
        let opened = std::cell::Cell::new(Some(old));
        let open = || opened.take().map_or_else(|| File::open(&path), Ok);
        fs::rename(&path, directory.path().join("old")).unwrap();
        let new = File::create(&path).unwrap();
        new.try_lock().unwrap();
        assert!(matches!(lock(&path, open), Ok(Locked::Taken(_))));
    }
}
