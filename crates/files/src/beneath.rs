//! A file that another user's process has written, in its own mount namespace: read through that process's root,
//! without following a link, without waiting for anybody, and believed only if nobody changed it meanwhile.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::other_kind;

/// Why a process's file was not taken in, or not removed.
#[derive(Debug)]
pub enum NotTaken {
    /// The path is none below a root: it is relative, has `..` in it, or ends in no name.
    NoPath,
    /// A link stands there, or on the way there.
    Link,
    /// The file is of another kind, such as a named pipe.
    Kind(&'static str),
    /// The file belongs to another user.
    Owner {
        /// The owner.
        uid: u32,
    },
    /// The file has further names, under which somebody else may know it.
    Names,
    /// The file is longer than it may be.
    Long {
        /// The file's length in bytes.
        bytes: u64,
    },
    /// The file has changed while it was read, or another one has taken its place.
    Changed,
    /// A process holds a lease on the file (fcntl(2), `F_SETLEASE`), and opening it would wait until that is given up.
    Leased,
    /// The system refuses, as after an unmounting.
    Io(io::Error),
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPath => f.write_str("is no path of a file below a process's root"),
            Self::Link => {
                f.write_str("a link stands there or on the way there, and none is followed")
            }
            Self::Kind(kind) => write!(f, "is {kind}; it must be a regular file"),
            Self::Owner { uid } => write!(f, "belongs to user {uid}, not to the process's user"),
            Self::Names => {
                f.write_str("has a second name (a hard link): whose file it is is unknown")
            }
            Self::Long { bytes } => write!(
                f,
                "has {bytes} bytes, more than are read: ask for a shorter trace"
            ),
            Self::Changed => f.write_str("has changed while it was read"),
            Self::Leased => f.write_str(
                "can't be opened without waiting, because a process holds a lease on it (fcntl, F_SETLEASE)",
            ),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl Error for NotTaken {}

impl From<Errno> for NotTaken {
    fn from(error: Errno) -> Self {
        match error {
            // Of a last component that is a link the kernel says so, too.
            Errno::ELOOP => Self::Link,
            Errno::EXDEV => Self::NoPath,
            // Of a regular file's opening that is told for this alone.
            Errno::EWOULDBLOCK => Self::Leased,
            error => Self::Io(error.into()),
        }
    }
}

/// An open file below a process's root.
#[derive(Debug)]
pub struct Beneath {
    folder: OwnedFd,
    name: OsString,
    file: File,
    found: Metadata,
}

impl Beneath {
    /// Opens the file at a path, which begins with `/`, as a process has it whose root `root` is. The file must be
    /// that user's and have at most so many bytes.
    ///
    /// # Errors
    /// The file is not so, or not there.
    pub fn open(root: &File, path: &Path, uid: u32, most: u64) -> Result<Self, NotTaken> {
        let (folder, name) = parts(path)?;
        let as_place = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let folder = match folder.as_os_str().is_empty() {
            true => openat2(root, ".", how(as_place | OFlag::O_DIRECTORY))?,
            false => openat2(root, &folder, how(as_place | OFlag::O_DIRECTORY))?,
        };
        // Looked at first, because opening a device may do something.
        let place = File::from(openat2(&folder, &*name, how(as_place | OFlag::O_NOFOLLOW))?);
        let found = place.metadata().map_err(NotTaken::Io)?;
        check(&found, uid, most)?;
        // The very file that was looked at: by its name another one might be there by now.
        let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
        // Without waiting for whoever holds a lease on it, which could take 45 s each time.
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = File::from(open(itself.as_str(), flags, Mode::empty())?);
        Ok(Self {
            folder,
            name,
            file,
            found,
        })
    }

    /// Fills a buffer from a place of the file. The process may write at the same time, or shorten it.
    ///
    /// # Errors
    /// The file is shorter, or the system refuses.
    pub fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    /// The file's metadata when it was opened.
    #[must_use]
    pub fn found(&self) -> &Metadata {
        &self.found
    }

    /// The file's bytes: no more than it had when it was opened.
    pub fn bytes(&self) -> impl Read + '_ {
        (&self.file).take(self.found.len())
    }

    /// Whether the file is as it was when it was opened; ask after reading.
    ///
    /// # Errors
    /// [`NotTaken::Changed`], or the system can't tell any more.
    pub fn is_unchanged(&self) -> Result<(), NotTaken> {
        let now = self.file.metadata().map_err(NotTaken::Io)?;
        match same(&now, &self.found) {
            true => Ok(()),
            false => Err(NotTaken::Changed),
        }
    }

    /// Removes the file's name, if it is still this file's.
    ///
    /// # Errors
    /// There is another file by now, or the system refuses.
    pub fn remove(self) -> Result<(), NotTaken> {
        let there = fstatat(&self.folder, &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if (there.st_dev, there.st_ino) != (self.found.dev(), self.found.ino()) {
            return Err(NotTaken::Changed);
        }
        // Only the folder's owner, and the file's own, could put another file there now.
        Ok(unlinkat(
            &self.folder,
            &*self.name,
            UnlinkatFlags::NoRemoveDir,
        )?)
    }
}

/// The folder of a path, relative to its root, and the file's name.
fn parts(path: &Path) -> Result<(PathBuf, OsString), NotTaken> {
    let mut components = path.components();
    let is_whole = components.next() == Some(Component::RootDir);
    let plain = components
        .clone()
        .all(|it| matches!(it, Component::Normal(_)));
    let relative = components.as_path();
    match (relative.parent(), relative.file_name()) {
        (Some(folder), Some(name)) if is_whole && plain => {
            Ok((folder.to_owned(), OsStr::to_owned(name)))
        }
        _ => Err(NotTaken::NoPath),
    }
}

fn how(flags: OFlag) -> OpenHow {
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    OpenHow::new().flags(flags).resolve(resolve)
}

fn check(found: &Metadata, uid: u32, most: u64) -> Result<(), NotTaken> {
    match other_kind(found.file_type()) {
        Some("a link") => return Err(NotTaken::Link),
        Some(kind) => return Err(NotTaken::Kind(kind)),
        None => {}
    }
    if found.uid() != uid {
        return Err(NotTaken::Owner { uid: found.uid() });
    }
    if found.nlink() > 1 {
        return Err(NotTaken::Names);
    }
    match found.len() > most {
        true => Err(NotTaken::Long { bytes: found.len() }),
        false => Ok(()),
    }
}

/// Whether nothing was written to a file in between. Its number of names may have changed: it may be gone.
fn same(now: &Metadata, then: &Metadata) -> bool {
    let of = |it: &Metadata| (it.len(), it.mtime(), it.mtime_nsec(), it.uid());
    of(now) == of(then)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::{Seek as _, Write as _};
    use std::os::unix::fs::{chown, symlink};
    use std::time::Instant;

    use nix::unistd::{Uid, mkfifo};

    use super::*;

    /// A process's root with a folder for traces, and this process's user.
    struct Root {
        folder: tempfile::TempDir,
        uid: u32,
    }

    impl Root {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("tmp")).unwrap();
            let uid = Uid::effective().as_raw();
            Self { folder, uid }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join("tmp").join(name)
        }

        fn open(&self, path: &str) -> Result<Beneath, NotTaken> {
            let root = File::open(self.folder.path()).unwrap();
            Beneath::open(&root, Path::new(path), self.uid, 1 << 20)
        }
    }

    #[test]
    fn a_file_is_read_and_removed() {
        let root = Root::new();
        fs::write(root.at("a.json"), "trace").unwrap();
        let file = root.open("/tmp/a.json").unwrap();
        let mut text = String::new();
        file.bytes().read_to_string(&mut text).unwrap();
        assert_eq!(text, "trace");
        file.is_unchanged().unwrap();
        file.remove().unwrap();
        assert!(!root.at("a.json").exists());
        assert!(matches!(root.open("/tmp/a.json"), Err(NotTaken::Io(_))));
    }

    #[test]
    fn no_link_is_followed_wherever_it_stands() {
        let root = Root::new();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "theirs").unwrap();
        symlink(outside.path().join("secret"), root.at("a.json")).unwrap();
        symlink(outside.path(), root.folder.path().join("elsewhere")).unwrap();
        symlink("/", root.at("up")).unwrap();
        for path in ["/tmp/a.json", "/elsewhere/secret", "/tmp/up/etc/passwd"] {
            let error = root.open(path).unwrap_err();
            assert!(matches!(error, NotTaken::Link), "{path}: {error}");
        }
        for path in ["tmp/a.json", "/tmp/../../etc/passwd", "/", "/tmp/.."] {
            let error = root.open(path).unwrap_err();
            assert!(matches!(error, NotTaken::NoPath), "{path}: {error}");
        }
        assert_eq!(
            fs::read_to_string(outside.path().join("secret")).unwrap(),
            "theirs"
        );
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let root = Root::new();
        mkfifo(&root.at("pipe"), Mode::S_IRWXU).unwrap();
        let began = Instant::now();
        let error = root.open("/tmp/pipe").unwrap_err();
        assert_eq!(
            error.to_string(),
            "is a named pipe; it must be a regular file"
        );
        assert!(matches!(
            root.open("/tmp"),
            Err(NotTaken::Kind("a directory"))
        ));
        assert!(began.elapsed().as_secs() < 1);
    }

    #[test]
    fn a_file_of_ten_gigabytes_is_not_read() {
        let root = Root::new();
        let file = File::create(root.at("long.json")).unwrap();
        file.set_len(10 << 30).unwrap();
        let error = root.open("/tmp/long.json").unwrap_err();
        assert!(matches!(error, NotTaken::Long { bytes } if bytes == 10 << 30));
        assert!(root.at("long.json").exists());
    }

    #[test]
    fn a_file_of_another_user_or_with_another_name_is_left_alone() {
        let root = Root::new();
        fs::write(root.at("a.json"), "trace").unwrap();
        fs::hard_link(root.at("a.json"), root.at("b.json")).unwrap();
        assert!(matches!(root.open("/tmp/b.json"), Err(NotTaken::Names)));
        fs::remove_file(root.at("b.json")).unwrap();
        if !Uid::effective().is_root() {
            eprintln!("SKIPPED: only root can give a file to another user");
            return;
        }
        chown(root.at("a.json"), Some(65_000), None).unwrap();
        let error = root.open("/tmp/a.json").unwrap_err();
        assert!(matches!(error, NotTaken::Owner { uid: 65_000 }), "{error}");
        assert!(root.at("a.json").exists());
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_not_believed() {
        let root = Root::new();
        fs::write(root.at("a.json"), "trace").unwrap();
        let file = root.open("/tmp/a.json").unwrap();
        let mut first = [0; 2];
        file.bytes().read_exact(&mut first).unwrap();
        let mut theirs = OpenOptions::new()
            .append(true)
            .open(root.at("a.json"))
            .unwrap();
        theirs.write_all(b" and more").unwrap();
        let mut all = Vec::new();
        (&file.file).rewind().unwrap();
        file.bytes().read_to_end(&mut all).unwrap();
        // No more than there was.
        assert_eq!(all, b"trace");
        assert!(matches!(file.is_unchanged(), Err(NotTaken::Changed)));
    }

    #[test]
    fn a_file_that_has_taken_the_place_is_not_removed() {
        let root = Root::new();
        fs::write(root.at("a.json"), "trace").unwrap();
        let file = root.open("/tmp/a.json").unwrap();
        fs::write(root.at("b.json"), "another").unwrap();
        fs::rename(root.at("b.json"), root.at("a.json")).unwrap();
        assert!(matches!(file.remove(), Err(NotTaken::Changed)));
        assert_eq!(fs::read_to_string(root.at("a.json")).unwrap(), "another");
    }

    /// A file system that is unmounted while a trace on it is read.
    #[test]
    fn a_mount_that_vanishes_is_one_error() {
        use std::process::Command;
        let root = Root::new();
        let mount = |arguments: &[&str], path: &Path| {
            let status = Command::new(arguments[0])
                .args(&arguments[1..])
                .arg(path)
                .status();
            status.is_ok_and(|it| it.success())
        };
        let place = root.folder.path().join("tmp");
        if !mount(&["mount", "-t", "tmpfs", "-o", "size=1m", "none"], &place) {
            eprintln!("SKIPPED: nothing can be mounted here");
            return;
        }
        fs::write(root.at("a.json"), "trace").unwrap();
        let file = root.open("/tmp/a.json").unwrap();
        assert!(mount(&["umount", "--lazy"], &place));
        assert!(matches!(root.open("/tmp/a.json"), Err(NotTaken::Io(_))));
        // The open file is the process's still, and what stands in its place now is not touched.
        fs::write(root.at("a.json"), "below the mount").unwrap();
        file.is_unchanged().unwrap();
        file.remove().unwrap();
        assert_eq!(
            fs::read_to_string(root.at("a.json")).unwrap(),
            "below the mount"
        );
    }
}
