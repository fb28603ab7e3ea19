//! Files that outlive the process: the state directory with the journal, the learned distributions, and the lock
//! that keeps a second daemon out.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use litd_core::{Appended, Store};
use thiserror::Error;

use crate::audit::AuditFiles;
use crate::baseline::born;
use crate::lock::{self, Locked};
use crate::locks::{self, DeviceLocks};
use crate::syncer::{PATIENCE, Synced, Syncer};
use crate::undone;
use litd_files as files;

const JOURNAL: &str = "journal";
const DAMAGED: &str = "journal.damaged";
const LEARNED: &str = "learned";
const TRIAL: &str = "trial";
const CONDITION: &str = "condition";
const LOCK: &str = "lock";

/// The largest journal, in bytes. It is rewritten at some tens of kilobytes; where that fails it may grow to this,
/// and a reader accepts twice as much.
const LONGEST_JOURNAL: u64 = files::LONGEST_STATE / 2;

/// A file with a new random id at each reading.
const RANDOM_ID: &str = "/proc/sys/kernel/random/uuid";

/// Why the state directory can't be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// A `litd restore` uses it.
    #[error("{}: `litd restore` runs, as process {pid}: start litd again when that has ended", file.display())]
    Restoring {
        /// The lock's file.
        file: PathBuf,
        /// The process.
        pid: u32,
    },
    /// Another process uses it.
    #[error("{}: litd runs already, as process {holder}", file.display())]
    Held {
        /// The lock's file.
        file: PathBuf,
        /// The process, by its own note; `?` if there is none yet.
        holder: String,
    },
    /// The configured path is no directory.
    #[error("{}: is not a directory; set state.directory to one", .0.display())]
    NoDirectory(PathBuf),
    /// The disk, or a missing permission.
    #[error("{}: {cause}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

/// The right to be the only daemon on this state directory, for as long as it lives. The kernel releases it
/// however the process ends. Undoing only reads, so a directory that can't be written, made or locked keeps nobody
/// from it: the devices have locks of their own.
#[derive(Debug)]
pub struct Lock {
    /// The lock's file, or the directory where the file can't be made.
    _held: Option<File>,
}

impl Lock {
    /// Makes the directory if it is not there, and takes its lock.
    ///
    /// # Errors
    /// Another process has it ([`StateError::Held`]), or it is no directory.
    pub fn take(directory: &Path) -> Result<Self, StateError> {
        if let Err(cause) = make(directory) {
            if directory.exists() && !directory.is_dir() {
                return Err(StateError::NoDirectory(directory.to_owned()));
            }
            return Ok(Self::nothing(directory, &cause));
        }
        Self::take_existing(directory)
    }

    /// Takes the lock of a directory that exists; makes none.
    ///
    /// # Errors
    /// Another process has it ([`StateError::Held`]).
    pub fn take_existing(directory: &Path) -> Result<Self, StateError> {
        let path = directory.join(LOCK);
        match files::keep_others_out(directory) {
            // Where another user may decide what is overwritten, nothing is written.
            Err(cause) if directory.exists() => return Ok(Self::nothing(&path, &cause)),
            _ => {}
        }
        let open = || match files::open_own(&path, private().read(true)) {
            // The file can be locked without being writable.
            Err(cause) if cause.kind() != io::ErrorKind::InvalidInput => {
                files::open_own(&path, OpenOptions::new().read(true)).map_err(|_| cause)
            }
            opened => opened,
        };
        let locked = match lock::lock(&path, open) {
            Err(cause) if cause.kind() != io::ErrorKind::InvalidInput => {
                lock_directory(directory).map_err(|_| cause)
            }
            locked => locked,
        };
        let mut file = match locked {
            Ok(Locked::Ours(file) | Locked::Inherited(file, _)) => file,
            Ok(Locked::Taken(file)) => {
                let holder = holder(file);
                let restores = |pid: &u32| lock::restores(*pid);
                return Err(match holder.parse().ok().filter(restores) {
                    Some(pid) => StateError::Restoring { file: path, pid },
                    None => StateError::Held { file: path, holder },
                });
            }
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { _held: None });
            }
            // Not a regular file: it can't be locked, and was put there on purpose.
            Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => {
                return Err(StateError::Io { file: path, cause });
            }
            Err(cause) => return Ok(Self::nothing(&path, &cause)),
        };
        // The note about the holder and its start is for people and for litd-check; the lock is the kernel's.
        let started = born("self").unwrap_or_default();
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{} {started}", std::process::id()));
        Ok(Self { _held: Some(file) })
    }

    fn nothing(path: &Path, cause: &io::Error) -> Self {
        log::warn!(
            "{}: {cause}: litd could not lock its state directory, and restores the caps all the same",
            path.display()
        );
        Self { _held: None }
    }
}

/// A directory that can have no such file can be locked itself.
fn lock_directory(directory: &Path) -> io::Result<Locked> {
    let file = File::open(directory)?;
    match file.try_lock() {
        Ok(()) => Ok(Locked::Ours(file)),
        Err(TryLockError::WouldBlock) => Ok(Locked::Taken(file)),
        Err(TryLockError::Error(cause)) => Err(cause),
    }
}

/// The process that has a lock, by its own note. If it could not write one, a dead process's note may be there.
fn holder(file: File) -> String {
    let mut holder = String::new();
    let _ = file.take(40).read_to_string(&mut holder);
    let mut words = holder.split_whitespace();
    let (pid, started) = (words.next().unwrap_or_default(), words.next());
    match born(pid) {
        Some(born) if started.is_none_or(|it| it == born) => pid.to_owned(),
        _ => "?".to_owned(),
    }
}

/// Opens for writing; a new file is for the daemon's user alone.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

/// The state of the journal's file.
#[derive(Debug)]
enum OnDisk {
    /// The file names no device, or does not exist: the next entries replace it.
    Idle,
    /// The file is needed, and is not open.
    Closed,
    /// The file is needed, and is open for appending.
    Open(Kept),
    /// The file was needed, and is gone: a file in its place must not be appended to.
    Lost,
}

/// A file as this process has left it.
#[derive(Debug)]
struct Kept {
    file: File,
    length: u64,
}

impl Kept {
    fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// Whether this file is the one at its path.
    fn is_at(&self, path: &Path) -> bool {
        files::still_at(&self.file, path).is_some_and(|there| there.len() == self.length)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Written, not synced: this has to survive the process. The last replacement has all that has to survive
        // the node.
        let written = self.file.write_all(bytes);
        self.length = self.file.metadata()?.len();
        written
    }
}

/// [`Store`] on the state directory.
#[derive(Debug)]
pub struct FileStore {
    directory: PathBuf,
    journal: OnDisk,
    /// The condition as it was last read or written; none if there was no file.
    condition: Option<Kept>,
    /// The id in the journal's first line, if it has one.
    id: Option<String>,
    audit: AuditFiles,
    /// The locks that remember this directory, while its journal names any device.
    locks: Option<Rc<DeviceLocks>>,
    /// The directory of the locks by whose links devices in the journal may have been another litd's since.
    links: Option<PathBuf>,
    /// Such devices, when the journal was loaded.
    outdated: BTreeSet<String>,
    /// The devices, by the names of their locks' files, of which notes tell that what the file says is undone.
    undone: BTreeSet<String>,
    syncer: Syncer,
    /// Whether the disk did not answer in time at the last sync.
    late: bool,
}

impl FileStore {
    /// The store of a directory, which may be read-only or missing: nothing can be kept then. Touches nothing yet.
    #[must_use]
    pub fn new(directory: &Path, audit: AuditFiles) -> Self {
        Self {
            directory: directory.to_owned(),
            journal: OnDisk::Idle,
            condition: None,
            id: None,
            audit,
            locks: None,
            links: None,
            outdated: BTreeSet::new(),
            undone: BTreeSet::new(),
            syncer: Syncer::new(PATIENCE),
            late: false,
        }
    }

    /// The same without what is out of date in the journal, by the links beside the devices' locks in this directory.
    #[must_use]
    pub fn by_links(mut self, links: PathBuf) -> Self {
        self.links = Some(links);
        self
    }

    /// The same for the daemon that has these devices: no journal names one of them without its
    /// place being remembered.
    #[must_use]
    pub fn of(mut self, locks: Rc<DeviceLocks>) -> Self {
        self.locks = Some(locks);
        self
    }

    /// The id in the journal's first line, if it has one.
    #[must_use]
    pub fn journal_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Checks that the devices are still locked; see [`DeviceLocks::keep`]. If that fails, the next write to the
    /// journal fails.
    pub fn keep_locks(&self) {
        if let Some(locks) = &self.locks {
            let _ = locks.keep();
        }
    }

    /// Runs before a device is written that the journal names.
    fn remember(&self) -> io::Result<()> {
        match &self.locks {
            Some(locks) => locks.remember(&self.directory, self.journal_id()),
            None => Ok(()),
        }
    }

    /// The directory of the locks, beside which notes are.
    fn beside(&self) -> Option<&Path> {
        let of_locks = self.locks.as_deref().map(DeviceLocks::directory);
        self.links.as_deref().or(of_locks)
    }

    /// Runs before a journal without devices is replaced by one with some, so that an older copy is not taken for
    /// it later; and before one is replaced about which there are notes, which would count for what it says then.
    fn renew_id(&mut self) -> io::Result<()> {
        match (&self.locks, &self.links) {
            (Some(locks), _) => locks.forget_id(&self.directory)?,
            (None, Some(links)) if !self.undone.is_empty() => {
                locks::forget_id(links, &self.directory)?;
            }
            _ if self.id.is_some() => return Ok(()),
            _ => {}
        }
        // Without an id the journal is known by its place alone.
        let id = fs::read_to_string(RANDOM_ID).ok();
        self.id = id.map(|id| id.trim().to_owned());
        Ok(())
    }

    /// Removes the notes about the journal with this id, which has been replaced.
    fn forget_notes(&mut self, id: Option<&str>) {
        let Some((directory, id)) = self.beside().zip(id) else {
            return;
        };
        match undone::forget(directory, id) {
            Ok(()) => self.undone.clear(),
            // Where it still has that id, it gets another before it names a device.
            Err(error) => log::warn!("{error}"),
        }
    }

    /// The journal's file for appending, if it is the one that was last written or read.
    fn opened(&mut self) -> io::Result<Kept> {
        let path = journal(&self.directory);
        match std::mem::replace(&mut self.journal, OnDisk::Lost) {
            OnDisk::Open(kept) if kept.is_at(&path) => Ok(kept),
            OnDisk::Idle | OnDisk::Closed => {
                let opened = files::open_own(&path, OpenOptions::new().append(true));
                let kept = opened.and_then(Kept::new);
                kept.map_err(|error| {
                    if error.kind() != io::ErrorKind::NotFound {
                        self.journal = OnDisk::Closed;
                    }
                    named(&path, &error)
                })
            }
            OnDisk::Open(_) | OnDisk::Lost => {
                let why = "somebody has removed, moved, mounted over or changed the undo journal: litd \
                           writes a new one";
                let why = io::Error::new(io::ErrorKind::NotFound, why);
                Err(named(&path, &why))
            }
        }
    }

    fn load(&self, name: &str) -> io::Result<Vec<u8>> {
        load(&self.directory.join(name))
    }

    /// After a crash at any point there is the old file or the new one. The error names the file.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<File> {
        let path = self.directory.join(name);
        self.try_replace(name, bytes)
            .map_err(|error| named(&path, &error))
    }

    /// Returns the new file, for appending.
    fn try_replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<File> {
        // The directory may have been removed, or moved away, since the start.
        make(&self.directory)?;
        files::keep_others_out(&self.directory)?;
        let new = self.directory.join(format!("{name}.new"));
        let mut file = files::open_own(&new, private().append(true))?;
        file.set_len(0)?;
        file.write_all(bytes)?;
        self.sync(&file)?;
        fs::rename(&new, self.directory.join(name))?;
        let directory = File::open(&self.directory)?;
        self.sync(&directory)?;
        Ok(file)
    }

    /// Where the disk is slow the caps' budgets are kept all the same: written data survives this process, though
    /// perhaps not a power failure of the node, which resets the devices as well.
    fn sync(&mut self, file: &File) -> io::Result<()> {
        let late = match self.syncer.sync(file)? {
            Synced::Done => false,
            Synced::Failed(error) => return Err(error),
            Synced::Late => true,
        };
        if late && !std::mem::replace(&mut self.late, late) {
            log::warn!(
                "{}: the disk has not answered for {} s: litd goes on, and what it has written is synced when \
                 the disk answers",
                self.directory.display(),
                PATIENCE.as_secs_f64()
            );
        }
        self.late = late;
        Ok(())
    }
}

impl Store for FileStore {
    fn load_journal(&mut self) -> io::Result<Vec<u8>> {
        let bytes = load_journal(&self.directory)?;
        self.id = litd_core::journal::id(&bytes);
        self.journal = OnDisk::Idle;
        let recovered = litd_core::journal::read(&bytes);
        let superseded = match (&self.links, &recovered) {
            (Some(links), Ok(Some(recovered))) => {
                locks::superseded(links, recovered, &self.directory)
            }
            _ => BTreeSet::new(),
        };
        self.outdated = superseded;
        let notes = self.beside().zip(self.id.as_deref());
        self.undone = notes.map_or_else(BTreeSet::new, |(directory, id)| {
            undone::noted(directory, id)
        });
        if !matches!(recovered, Ok(None)) {
            self.journal = OnDisk::Closed;
            // Where the file can't be written it can be read. From now on its removal is noticed.
            if let Ok(kept) = self.opened() {
                self.journal = OnDisk::Open(kept);
            }
            // A link to this journal would make what is out of date in it count again: that leaves the file first, with
            // the next write. If this fails, the next write to the journal fails.
            if self.outdated.is_empty() {
                let _ = self.remember();
            }
        }
        Ok(bytes)
    }

    fn is_outdated(&self, address: &str) -> bool {
        self.outdated.contains(address) || self.undone.contains(&locks::file_name(address))
    }

    fn outdate(&mut self, address: &str) -> io::Result<()> {
        let noted = match (self.beside(), journal_id(&self.directory)) {
            (Some(directory), Some(id)) => undone::note(directory, address, &id),
            _ => Err(io::Error::other(
                "the undo journal has no id that can be read",
            )),
        };
        match &noted {
            Ok(()) => drop(self.undone.insert(locks::file_name(address))),
            Err(error) => log::warn!("that {address} is undone can't be noted: {error}"),
        }
        noted
    }

    fn journal_is_there(&mut self) -> bool {
        let path = journal(&self.directory);
        let is_there = match &self.journal {
            OnDisk::Idle => true,
            // A directory that can't be read is assumed to have the file.
            OnDisk::Closed => path.try_exists().unwrap_or(true),
            OnDisk::Open(kept) => kept.is_at(&path),
            OnDisk::Lost => false,
        };
        if !is_there {
            self.journal = OnDisk::Lost;
        }
        is_there
    }

    fn append_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        if matches!(self.journal, OnDisk::Idle) {
            return self.replace_journal(bytes);
        }
        let mut kept = self.opened()?;
        if kept.length.saturating_add(bytes.len() as u64) > LONGEST_JOURNAL {
            self.journal = OnDisk::Open(kept);
            let why = "the undo journal has grown too long, because it could not be rewritten: litd adds nothing to \
                       it before that is possible (is there room for another file, `df -i`?)";
            return Err(named(&journal(&self.directory), &io::Error::other(why)));
        }
        let written = kept.append(bytes);
        self.journal = OnDisk::Open(kept);
        written.map_err(|error| named(&journal(&self.directory), &error))?;
        self.remember()
    }

    fn replace_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        let names = !bytes.is_empty();
        if let (true, Some(locks)) = (names, &self.locks) {
            locks.keep()?;
        }
        // An old file that comes back in its place must not be taken for it either.
        let is_anew = matches!(self.journal, OnDisk::Idle | OnDisk::Lost);
        let is_noted = !self.undone.is_empty();
        let renews = names && (self.id.is_none() || is_anew || is_noted);
        let before = is_noted.then(|| journal_id(&self.directory)).flatten();
        if renews {
            self.renew_id()?;
        }
        let whole = match &self.id {
            Some(id) => litd_core::journal::headed(id, bytes).map_err(io::Error::other)?,
            None => bytes.to_vec(),
        };
        let file = match self.replace(JOURNAL, &whole) {
            Ok(file) => file,
            Err(error) => {
                // The file may have been replaced all the same: its identity is unknown, and it says its id itself.
                if renews {
                    self.id = journal_id(&self.directory);
                }
                if let OnDisk::Open(_) = self.journal {
                    self.journal = OnDisk::Closed;
                }
                return Err(error);
            }
        };
        self.forget_notes(before.as_deref());
        if names {
            self.journal = OnDisk::Closed;
            self.journal = OnDisk::Open(Kept::new(file)?);
            return self.remember();
        }
        self.journal = OnDisk::Idle;
        if let Some(locks) = &self.locks {
            locks.forget(&self.directory);
        }
        Ok(())
    }

    fn load_learned(&mut self) -> io::Result<Vec<u8>> {
        self.load(LEARNED)
    }

    fn replace_learned(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.replace(LEARNED, bytes).map(drop)
    }

    fn load_trial(&mut self) -> io::Result<Vec<u8>> {
        self.load(TRIAL)
    }

    fn replace_trial(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.replace(TRIAL, bytes).map(drop)
    }

    fn load_audit_tail(&mut self) -> io::Result<Vec<u8>> {
        self.audit.tail()
    }

    fn append_audit(&mut self, bytes: &[u8]) -> io::Result<Appended> {
        self.audit.append(bytes)
    }

    fn load_condition(&mut self) -> io::Result<Vec<u8>> {
        let path = self.directory.join(CONDITION);
        let file = files::open_own(&path, OpenOptions::new().read(true));
        self.condition = file.and_then(Kept::new).ok();
        self.load(CONDITION)
    }

    fn replace_condition(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = self.replace(CONDITION, bytes)?;
        self.condition = Some(Kept::new(file)?);
        Ok(())
    }

    fn condition_is_there(&mut self) -> bool {
        let path = self.directory.join(CONDITION);
        let kept = self.condition.as_ref();
        kept.is_none_or(|kept| kept.is_at(&path))
    }
}

/// The same error, naming the file.
pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Makes a state directory that is not there.
fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

fn load(path: &Path) -> io::Result<Vec<u8>> {
    match files::read_own(path, files::LONGEST_STATE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|error| named(path, &error)),
    }
}

/// The undo journal in a state directory; empty if there is none.
///
/// # Errors
/// The disk, or a user other than root and the daemon's could have written it. The error names the
/// file.
pub fn load_journal(directory: &Path) -> io::Result<Vec<u8>> {
    let path = journal(directory);
    let bytes = load(&path)?;
    for it in [directory, &path] {
        let Ok(uid) = fs::metadata(it).map(|there| there.uid()) else {
            continue;
        };
        if files::is_others(uid) && !bytes.is_empty() {
            let why = format!(
                "{}: belongs to user {uid}, who could have changed the caps found in it: compare \
                 the journal with the caps, then give it to the daemon's user (chown)",
                it.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
    }
    Ok(bytes)
}

/// The id of the undo journal in a state directory, if it has one.
#[must_use]
pub fn journal_id(directory: &Path) -> Option<String> {
    litd_core::journal::id(&load_journal(directory).ok()?)
}

/// Copies the undo journal in a state directory if it is damaged: what can't be read in it is lost once it is written
/// anew. The copy stays until an administrator has compared the caps and removes it; what is damaged before that is
/// added to it. Returns whether nothing would be lost.
pub fn keep_damaged(directory: &Path) -> bool {
    let copy = directory.join(DAMAGED);
    let bytes = load_journal(directory).unwrap_or_default();
    let recovered = litd_core::journal::read(&bytes).ok().flatten();
    if recovered.is_none_or(|it| it.damaged.is_none()) {
        return true;
    }
    let made = load(&copy).and_then(|mut kept| {
        if kept.ends_with(&bytes) {
            return Ok(());
        }
        kept.extend_from_slice(&bytes);
        let new = copy.with_extension("damaged.new");
        let mut file = files::make_anew(&new, OpenOptions::new().mode(0o600))?;
        file.write_all(&kept)?;
        file.sync_all()?;
        fs::rename(&new, &copy)
    });
    if let Err(error) = &made {
        log::error!(
            "{}: the damaged undo journal can't be copied: {error}",
            copy.display()
        );
    }
    made.is_ok()
}

/// The copy of a damaged undo journal in a state directory, if there is one.
#[must_use]
pub fn copy_of_damaged(directory: &Path) -> Option<PathBuf> {
    let copy = directory.join(DAMAGED);
    copy.exists().then_some(copy)
}

/// The warning for as long as the copy of a damaged undo journal is there.
#[must_use]
pub fn was_damaged(copy: &Path) -> String {
    let copy = copy.display();
    format!(
        "{copy}: this undo journal was damaged, so caps that litd had lowered may still be so, and may count as the caps \
         found: compare all caps with what they should be by hand, then remove {copy}"
    )
}

/// The path of the undo journal in a state directory.
#[must_use]
pub fn journal(directory: &Path) -> PathBuf {
    directory.join(JOURNAL)
}

/// The path of the daemon's lock in a state directory.
#[must_use]
pub fn lock(directory: &Path) -> PathBuf {
    directory.join(LOCK)
}

/// The path of the learned distributions in a state directory.
#[must_use]
pub fn learned(directory: &Path) -> PathBuf {
    directory.join(LEARNED)
}

/// The id of this boot of the node.
///
/// # Errors
/// The kernel does not say.
pub fn boot_id() -> Result<String, StateError> {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    match fs::read_to_string(FILE) {
        Ok(id) => Ok(id.trim().to_owned()),
        Err(cause) => Err(StateError::Io {
            file: FILE.into(),
            cause,
        }),
    }
}

#[cfg(test)]
mod tests;
