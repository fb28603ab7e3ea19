//! Notes of the processes of back ends that set caps for litd. If such a process hangs in a call to a driver, it
//! outlives a litd that is killed, and the kernel may carry the call out however late. So while it sets a cap it keeps a
//! file locked: `ADDRESS.PID.child`, with the id of the litd that has started it and a token of that litd's, as in another
//! container's namespace a later litd may have the same id. The kernel releases the lock when
//! the call is over and the process is gone, in whatever namespace that is. A process that hangs while it only reads
//! keeps nobody waiting.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

/// The end of a note's name.
const END: &str = ".child";

/// The longest note that is read, in bytes.
const LONGEST: u64 = 128;

/// A file with a new random id at each reading.
const RANDOM_ID: &str = "/proc/sys/kernel/random/uuid";

/// A text that no other process has, for the notes of the processes that this one starts.
pub(crate) fn token() -> &'static str {
    static TOKEN: OnceLock<String> = OnceLock::new();
    TOKEN.get_or_init(|| {
        let token = fs::read_to_string(RANDOM_ID).unwrap_or_default();
        match token.trim() {
            "" => std::process::id().to_string(),
            token => token.to_owned(),
        }
    })
}

/// For whom a process sets a device's cap, and where it says so.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub directory: PathBuf,
    pub device: String,
    pub parent: u32,
    /// The parent's [`token`].
    pub token: String,
}

/// The note of a process that sets a device's cap for litd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// The device's address.
    pub device: String,
    /// The process.
    pub pid: u32,
    /// The litd that has started it.
    pub parent: u32,
    token: String,
    path: PathBuf,
}

impl Child {
    /// The notes in this directory, of processes that live and of others.
    #[must_use]
    pub fn noted(directory: &Path) -> Vec<Self> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut noted: Vec<Self> = entries.filter_map(|it| Self::read(it.path())).collect();
        noted.sort_by_key(|it| it.pid);
        noted
    }

    fn read(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(END)?;
        let (device, pid) = name.rsplit_once('.')?;
        let (device, pid) = (device.to_owned(), pid.parse().ok()?);
        let mut text = String::new();
        let file = open(&path).ok()?;
        file.take(LONGEST).read_to_string(&mut text).ok()?;
        let (parent, token) = text.trim_end().split_once(' ')?;
        Some(Self {
            device,
            pid,
            parent: parent.parse().ok()?,
            token: token.to_owned(),
            path,
        })
    }

    /// Whether this very process has started it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.token == token()
    }

    /// Whether the process lives, or a call of its is under way. If not, its note is removed.
    #[must_use]
    pub fn lives(&self) -> bool {
        // If the note is there and can't be opened, nobody knows: the process counts as living.
        let file = match open(&self.path) {
            Ok(file) => file,
            Err(error) => return error.kind() != io::ErrorKind::NotFound,
        };
        match file.try_lock() {
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => true,
            Ok(()) => {
                // Another process with the same id may have put its own note there.
                let id = |about: fs::Metadata| (about.dev(), about.ino());
                let there = fs::metadata(&self.path).map(id).ok();
                if file.metadata().map(id).ok() == there {
                    let _ = fs::remove_file(&self.path);
                }
                false
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    options.open(path)
}

/// Notes that this process sets a device's cap, until the result is dropped.
///
/// # Errors
/// The directory is not there or can't be written.
pub(crate) fn note(place: &Place) -> io::Result<Note> {
    let path = path(&place.directory, &place.device, std::process::id());
    // The note gets its name once it is locked: no other process sees it unlocked.
    let new = path.with_extension("child.new");
    let _ = fs::remove_file(&new);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.try_lock()?;
    writeln!(file, "{} {}", place.parent, place.token)?;
    fs::rename(&new, &path)?;
    Ok(Note { path, _file: file })
}

/// The note of this process.
#[derive(Debug)]
pub(crate) struct Note {
    path: PathBuf,
    _file: File,
}

impl Drop for Note {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Where such a process's note is.
pub(crate) fn path(directory: &Path, device: &str, pid: u32) -> PathBuf {
    directory.join(format!("{device}.{pid}{END}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_note_until_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place {
            directory: directory.path().to_owned(),
            device: "0000:85:00.0".to_owned(),
            parent: 4711,
            token: "another's".to_owned(),
        };
        let held = note(&place).unwrap();
        let [child] = &*Child::noted(directory.path()) else {
            panic!("no note, or several");
        };
        let known = (&*child.device, child.pid, child.parent);
        assert_eq!(known, ("0000:85:00.0", std::process::id(), 4711));
        assert!(child.lives() && !child.is_ours());
        drop(held);
        assert!(!child.lives());
        assert_eq!(Child::noted(directory.path()), []);
        let token = token().to_owned();
        let _held = note(&Place { token, ..place }).unwrap();
        assert!(Child::noted(directory.path()).remove(0).is_ours());
    }

    #[test]
    fn the_note_of_a_process_that_was_killed_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = path(directory.path(), "0000:85:00.0", 12);
        fs::write(&path, "4711 token\n").unwrap();
        let child = Child::noted(directory.path()).remove(0);
        // Another process of the same id has written its own note meanwhile.
        let there = open(&path).unwrap();
        there.try_lock().unwrap();
        assert!(child.lives());
        drop(there);
        assert!(!child.lives() && !path.exists());
    }

    #[test]
    fn what_is_no_note_is_none() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("0000:85:00.0", "4711 token\n"),
            ("0000:85:00.0.x.child", "4711 token\n"),
            ("0000:85:00.0.12.child", "nobody token\n"),
            ("0000:85:00.0.13.child", "4711\n"),
            ("12.child", "4711 token\n"),
            ("0000:85:00.0.12.child.new", "4711 token\n"),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("/proc/self/stat", directory.path().join("a.12.child")).unwrap();
        assert_eq!(Child::noted(directory.path()), []);
    }
}
