//! Locks of the node's devices. Each device has a lock file, named by its address, in a directory that all daemons
//! of a node share (`/run/litd/devices`), whatever their state directories are: of two daemons with the same
//! device the second is refused. Beside a device's lock file a link points to the state directory whose undo
//! journal may name the device, for as long as that journal names any: after a crash, a daemon with another state
//! directory finds it. A file beside the link has the id from that journal's first line: another journal in its
//! place, such as one on the disk below a file system that is not mounted, is not taken for it. All these files
//! are gone once the node boots, as caps are.
//!
//! ```text
//! /run/litd/devices/0000:85:00.0              locked by the daemon, whose process and state it names
//! /run/litd/devices/0000:85:00.0.journal      -> /var/lib/litd
//! /run/litd/devices/0000:85:00.0.journal-id   the journal's id
//! /run/litd/devices/0000:85:00.0.ID.undone    what the journal with this id says of the device is undone
//! /run/litd/devices/cpu0.short-term           a CPU socket's two limits, as found and as written
//! /run/litd/devices/4711.hanging              a dead litd's process that still waits for a driver
//! /run/litd/devices/.numbers                  the numbers by which devices are called
//! /run/litd/devices/0000:85:00.0.4712.child   locked by a back end's process while it sets the device's cap for a litd
//! ```
//!
//! At every moment a link that has an id points to a journal with that id: the journal gets another id
//! only after all links to it have lost theirs, and a link gets its id last. So a link that is left over,
//! such as that of a device that was not there when all others were restored, does no harm.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::Uid;
use thiserror::Error;

use crate::hanging::Hanging;
use crate::lock::{self, Locked};
use crate::state::named;
use crate::undone;
use litd_core::journal::Recovered;
use litd_core::only_restores;
use litd_files as files;
use litd_power::powercap;

/// The end of a link's name.
const JOURNAL: &str = ".journal";

/// The end of the name of the link to the state directory of the litd that had the device last. It stays when that
/// litd has ended, until the node boots.
const LAST: &str = ".last";

/// The end of the name of the file with the journal's id.
const ID: &str = ".journal-id";

/// The longest id, in bytes.
const LONGEST_ID: u64 = 64;

/// A device is another daemon's, or a `litd restore` has it.
#[derive(Debug, Error)]
pub struct Taken {
    /// The device.
    pub address: String,
    /// The other process and its state directory, by its own note.
    pub holder: String,
    /// Whether it is a `litd restore`.
    pub restores: bool,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, holder) = (&self.address, &self.holder);
        match self.restores {
            true => write!(
                f,
                "{address}: `litd restore` restores this device, {holder}: start litd again when that has ended"
            ),
            false => write!(
                f,
                "{address}: litd runs already on this device, {holder}: stop that one first, or configure different \
                 devices"
            ),
        }
    }
}

/// The place of an undo journal that may name a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// The device; characters that a file name can't have are replaced.
    pub address: String,
    /// The state directory.
    pub state: PathBuf,
    /// The journal's id, where known.
    pub id: Option<String>,
}

/// The locks of a daemon's devices, for as long as it lives. The kernel releases them however the process ends.
#[derive(Debug)]
pub struct DeviceLocks {
    directory: PathBuf,
    /// The daemon's state directory.
    state: PathBuf,
    /// Two domains may be parts of one device. Sorted, so that of two daemons that start at the same time one gets
    /// all of them.
    addresses: BTreeSet<String>,
    hold: RefCell<Hold>,
    /// Devices whose links stay as they are: they point to journals that are lost.
    left: RefCell<BTreeSet<String>>,
    /// What the links say.
    links: RefCell<Links>,
    /// The state directory in all links that stay when the daemon has ended.
    had_by: RefCell<Option<PathBuf>>,
}

/// What the links beside the devices' locks say of the daemon's own journal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Links {
    /// The journal names no device.
    None,
    /// The links are to be made: somebody has removed them, or making them has failed.
    Wanted(Place),
    /// All of them are there.
    Made(Place),
}

/// A state directory and the id of its journal, if that has one and is not about to get another.
type Place = (PathBuf, Option<String>);

impl Links {
    /// They may be gone.
    fn are_removed(&mut self) {
        if let Self::Made(place) = self {
            *self = Self::Wanted(std::mem::take(place));
        }
    }

    /// The journal is about to get another id, so none of them is to have one.
    fn lose_id(&mut self) {
        if let Self::Wanted((state, _)) | Self::Made((state, _)) = self {
            *self = Self::Wanted((std::mem::take(state), None));
        }
    }
}

#[derive(Debug)]
enum Hold {
    /// All devices are locked: each one's file, in the order of their addresses.
    All { files: Vec<File> },
    /// The locks could not be taken: no cap may be changed, except to restore it.
    Nothing { why: String },
}

impl DeviceLocks {
    /// Takes the locks of these devices for a daemon with this state directory. Where the directory of locks can't
    /// be used the result can't remember anything.
    ///
    /// # Errors
    /// Another process has one of them.
    pub fn take<'a>(
        directory: &Path,
        state: &Path,
        addresses: impl Iterator<Item = &'a str>,
    ) -> Result<Self, Taken> {
        let addresses: BTreeSet<String> = addresses.map(str::to_owned).collect();
        let hold = match lock_all(directory, state, &addresses) {
            Ok(files) => Hold::All { files },
            Err(Refusal::Taken(taken)) => return Err(taken),
            Err(Refusal::Io(why)) => {
                let why = format!(
                    "the devices can't be locked: {why}; make that directory writable for root \
                     alone and restart litd"
                );
                log::error!("{}", only_restores(&why));
                Hold::Nothing { why }
            }
        };
        Ok(Self {
            directory: directory.to_owned(),
            state: state.to_owned(),
            addresses,
            hold: RefCell::new(hold),
            left: RefCell::default(),
            links: RefCell::new(Links::None),
            had_by: RefCell::new(None),
        })
    }

    /// Leaves the links of these devices, by their file names, as they are from now on: each points to a journal that
    /// is lost or can't be read, and nothing else tells of it.
    pub fn leave(&self, devices: impl IntoIterator<Item = String>) {
        self.left.borrow_mut().extend(devices);
    }

    /// The devices whose links may change.
    fn others(&self) -> Vec<&String> {
        let left = self.left.borrow();
        let all = self.addresses.iter();
        all.filter(|it| !left.contains(&file_name(it))).collect()
    }

    /// Checks that the devices are still locked: if somebody has emptied `/run/litd`, the locks are gone and
    /// another daemon could take the devices. They are locked again then, and the links are made again.
    ///
    /// # Errors
    /// The devices are not locked: no cap may be changed, except to restore it.
    pub fn keep(&self) -> io::Result<()> {
        let renewed = match &mut *self.hold.borrow_mut() {
            Hold::All { files } => self.renew(files),
            Hold::Nothing { why } => return Err(io::Error::other(why.clone())),
        };
        match renewed {
            Ok(is_renewed) => {
                if is_renewed {
                    self.are_taken_again();
                }
                // Also where that has failed before.
                let links = self.links.borrow().clone();
                match links {
                    Links::Wanted((state, id)) => self.make_links(&state, id.as_deref()),
                    Links::None | Links::Made(_) => Ok(()),
                }
            }
            Err(refusal) => {
                let why = match refusal {
                    Refusal::Taken(taken) => taken.to_string(),
                    Refusal::Io(why) => why,
                };
                let why = format!("the devices are not locked any more: {why}; then restart litd");
                log::error!("{}", only_restores(&why));
                self.hold.replace(Hold::Nothing { why: why.clone() });
                Err(io::Error::other(why))
            }
        }
    }

    /// Locks had been removed: the links may be gone as well.
    fn are_taken_again(&self) {
        let directory = self.directory.display();
        log::warn!("{directory}: somebody has removed locks of devices: they are taken again");
        let had_by = self.had_by.borrow().clone();
        if let Some(Err(error)) = had_by.map(|state| self.point_last(&state)) {
            log::warn!("{error}: which litd had the devices last is not noted");
        }
        self.links.borrow_mut().are_removed();
    }

    /// Locks again each device whose lock file is gone. Returns whether there was one.
    fn renew(&self, files: &mut [File]) -> Result<bool, Refusal> {
        let mut renewed = false;
        for (address, held) in self.addresses.iter().zip(files) {
            if files::still_at(held, &file(&self.directory, address)).is_none() {
                make_private(&self.directory).map_err(|error| Refusal::Io(error.to_string()))?;
                *held = lock(&self.directory, &self.state, address)?;
                renewed = true;
            }
        }
        Ok(renewed)
    }

    /// Makes the links point to a state directory, whose journal has this id. The journal is on disk by then, and
    /// no device that it names is written if this failed.
    ///
    /// # Errors
    /// The devices are not locked, or a link can't be made.
    pub fn remember(&self, state: &Path, id: Option<&str>) -> io::Result<()> {
        self.keep()?;
        let place = (state.to_owned(), id.map(str::to_owned));
        let are_made = *self.links.borrow() == Links::Made(place);
        match are_made {
            true => Ok(()),
            false => self.make_links(state, id),
        }
    }

    fn make_links(&self, state: &Path, id: Option<&str>) -> io::Result<()> {
        let place = (state.to_owned(), id.map(str::to_owned));
        *self.links.borrow_mut() = Links::Wanted(place.clone());
        for address in self.others() {
            let name = file_name(address);
            let there = Remembered::read(&self.directory, &name);
            let there = there.filter(|it| is_same(&it.state, state));
            if there.as_ref().is_some_and(|it| it.id.as_deref() == id) {
                continue;
            }
            remove_id(&self.directory, &name)?;
            if there.is_none() {
                make_link(state, &self.link(address))?;
            }
            if let Some(id) = id {
                let path = self.directory.join(name + ID);
                fs::write(&path, id).map_err(|error| named(&path, &error))?;
            }
        }
        *self.links.borrow_mut() = Links::Made(place);
        Ok(())
    }

    /// Makes links for those of these addresses that have none, to the state directory of another litd, whose journal
    /// has this id: it names them, and whatever told of it was removed.
    ///
    /// # Errors
    /// A link can't be made.
    pub fn point<'a>(
        &self,
        addresses: impl Iterator<Item = &'a str>,
        state: &Path,
        id: Option<&str>,
    ) -> io::Result<()> {
        self.keep()?;
        for address in addresses.filter(|it| self.locks(it)) {
            let link = self.link(address);
            match symlink(state, &link) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(|error| named(&link, &error))?,
            }
            if let Some(id) = id {
                let path = self.directory.join(file_name(address) + ID);
                fs::write(&path, id).map_err(|error| named(&path, &error))?;
            }
        }
        Ok(())
    }

    /// Announces that the journal in this state directory is about to get another id. If it gets none, because it can't
    /// be written, the links go on to name its place.
    ///
    /// # Errors
    /// A link to it still has one.
    pub fn forget_id(&self, state: &Path) -> io::Result<()> {
        self.links.borrow_mut().lose_id();
        forget_id(&self.directory, state)
    }

    /// Announces that the journal in this state directory names no device any more.
    pub fn forget(&self, state: &Path) {
        *self.links.borrow_mut() = Links::None;
        let others = self.others().into_iter();
        for address in others.filter(|it| self.points_to(it, state)) {
            // A link that stays points to a journal without entries.
            let _ = fs::remove_file(self.link(address));
            let _ = remove_id(&self.directory, &file_name(address));
        }
    }

    /// Announces that the litd with this state directory has the devices: it keeps the node's condition there.
    ///
    /// # Errors
    /// A link can't be made.
    pub fn has_them_now(&self, state: &Path) -> io::Result<()> {
        *self.had_by.borrow_mut() = Some(state.to_owned());
        self.point_last(state)
    }

    fn point_last(&self, state: &Path) -> io::Result<()> {
        self.others()
            .into_iter()
            .try_for_each(|address| make_link(state, &self.last(address)))
    }

    /// The state directories of the litds that had these devices last, other than this one; each once.
    #[must_use]
    pub fn had_them_last(&self, than: &Path) -> BTreeSet<PathBuf> {
        let all = self.addresses.iter();
        let states = all.filter_map(|it| self.had_last(it));
        states.filter(|state| !is_same(state, than)).collect()
    }

    /// The state directory of the litd that had a device last, if there was one since the node booted.
    #[must_use]
    pub fn had_last(&self, address: &str) -> Option<PathBuf> {
        fs::read_link(self.last(address)).ok()
    }

    /// The directory that they are in.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The devices' addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(String::as_str)
    }

    /// Whether the device with this address is one of them.
    #[must_use]
    pub fn locks(&self, address: &str) -> bool {
        self.addresses.contains(address)
    }

    /// Whether this is one of the devices, by its file name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.addresses.iter().any(|it| file_name(it) == name)
    }

    /// Whether the journal that may name a device is in this state directory.
    #[must_use]
    pub fn points_to(&self, address: &str, state: &Path) -> bool {
        let link = fs::read_link(self.link(address));
        self.locks(address) && link.is_ok_and(|there| is_same(&there, state))
    }

    /// The places of journals that may name these devices; each state directory once.
    #[must_use]
    pub fn remembered(&self) -> Vec<Remembered> {
        let names = self.addresses.iter().map(|it| file_name(it));
        let all = names.filter_map(|name| Remembered::read(&self.directory, &name));
        let (known, mut all): (Vec<_>, Vec<_>) = all.partition(|it| it.id.is_some());
        // A place with an id is better.
        all.splice(..0, known);
        let mut found: Vec<Remembered> = Vec::new();
        for it in all {
            if found.iter().all(|other| other.state != it.state) {
                found.push(it);
            }
        }
        found
    }

    fn link(&self, address: &str) -> PathBuf {
        self.directory.join(file_name(address) + JOURNAL)
    }

    fn last(&self, address: &str) -> PathBuf {
        self.directory.join(file_name(address) + LAST)
    }
}

enum Refusal {
    Taken(Taken),
    Io(String),
}

fn lock_all(
    directory: &Path,
    state: &Path,
    addresses: &BTreeSet<String>,
) -> Result<Vec<File>, Refusal> {
    let mut files = Vec::with_capacity(addresses.len());
    if !addresses.is_empty() {
        make_private(directory).map_err(|error| Refusal::Io(error.to_string()))?;
    }
    for address in addresses {
        files.push(lock(directory, state, address)?);
    }
    Ok(files)
}

fn lock(directory: &Path, state: &Path, address: &str) -> Result<File, Refusal> {
    let path = file(directory, address);
    let failed = |error: io::Error| Refusal::Io(named(&path, &error).to_string());
    let locked = lock::lock(&path, || open(&path)).map_err(failed)?;
    let mut file = match locked {
        Locked::Ours(file) => file,
        Locked::Inherited(file, pid) => {
            Hanging::note(directory, pid).map_err(failed)?;
            file
        }
        Locked::Taken(file) => {
            let address = address.to_owned();
            let (holder, pid) = holder(file);
            return Err(Refusal::Taken(Taken {
                address,
                holder,
                restores: pid.is_some_and(lock::restores),
            }));
        }
    };
    let about = format!("{} {}\n", std::process::id(), state.display());
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(about.as_bytes()))
        .map_err(failed)?;
    Ok(file)
}

/// The note of the process that has a lock, about itself, and its id.
fn holder(file: File) -> (String, Option<u32>) {
    let mut about = String::new();
    let _ = file.take(4096).read_to_string(&mut about);
    match about.trim_end().split_once(' ') {
        Some((pid, state)) => (
            format!("as process {pid} with the state directory {state}"),
            pid.parse().ok(),
        ),
        None => ("as a process that has not said yet which".to_owned(), None),
    }
}

/// Makes a directory in which no other user can put, replace or lock a file.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    let failed = |error| named(directory, &error);
    if let Some(parent) = directory.parent() {
        // The parent may contain sockets for others as well.
        files::make_open(parent).map_err(failed)?;
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    match is_private(directory) {
        true => Ok(()),
        false => Err(failed(io::Error::other(
            "is not a directory that only litd's user can write to",
        ))),
    }
}

/// Whether this is a directory in which no other user can put, replace or lock a file.
pub(crate) fn is_private(directory: &Path) -> bool {
    fs::symlink_metadata(directory).is_ok_and(|there| {
        let ours = there.uid() == Uid::effective().as_raw();
        there.is_dir() && ours && there.mode() & 0o022 == 0
    })
}

/// Opens a lock's file, or a note. A link or a pipe is refused.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is not a regular file")),
    }
}

/// An address as a file name: characters that can't be in one are replaced by their numbers.
pub(crate) fn file_name(address: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || ":.-_".contains(c);
    let mut name = String::new();
    for (index, c) in address.chars().enumerate() {
        match harmless(c) && !(c == '.' && index == 0) {
            true => name.push(c),
            false => name.push_str(&format!("%{:x}.", u32::from(c))),
        }
    }
    name
}

/// The places of undo journals that may name devices of this node, whichever daemon's they are. Empty where no
/// device was ever locked.
///
/// # Errors
/// The directory is there and can't be read.
pub fn remembered(directory: &Path) -> io::Result<Vec<Remembered>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| named(directory, &error))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| named(directory, &error))?;
        let name = entry.file_name();
        let address = name.to_str().and_then(|it| it.strip_suffix(JOURNAL));
        found.extend(address.and_then(|it| Remembered::read(directory, it)));
    }
    found.sort_by(|one, other| one.address.cmp(&other.address));
    Ok(found)
}

/// Takes the id of the journal in this state directory out of all links to it.
///
/// # Errors
/// A link to it still has one.
pub(crate) fn forget_id(directory: &Path, state: &Path) -> io::Result<()> {
    for it in remembered(directory)? {
        if it.id.is_some() && is_same(&it.state, state) {
            remove_id(directory, &it.address)?;
        }
    }
    Ok(())
}

/// Whether the journal in this state directory is out of date about a device, by the links in this directory: the
/// device's link points to another journal, or no link is left and a litd with another state directory had the device
/// last. That one took the entry over, could not remove it here, and has restored the cap since.
#[must_use]
pub fn is_outdated(directory: &Path, address: &str, state: &Path) -> bool {
    let to = |end: &str| fs::read_link(directory.join(file_name(address) + end));
    let link = to(JOURNAL).or_else(|_| to(LAST));
    link.is_ok_and(|there| !is_same(&there, state))
}

/// The devices about which a journal is out of date, although it names them.
#[derive(Debug, Clone, Default)]
pub struct Outdated {
    /// Those that a litd with another state directory has had since.
    pub superseded: BTreeSet<String>,
    /// Those whose caps and clocks are undone, by notes.
    pub undone: BTreeSet<String>,
}

impl Outdated {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> BTreeSet<String> {
        self.superseded.union(&self.undone).cloned().collect()
    }

    /// Whether the journal is up to date.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.superseded.is_empty() && self.undone.is_empty()
    }
}

/// The devices of these about which the journal in this state directory, with this id, is out of date.
#[must_use]
pub fn outdated(directory: &Path, named: &Recovered, state: &Path, id: Option<&str>) -> Outdated {
    let notes = id.map_or_else(BTreeSet::new, |id| undone::noted(directory, id));
    let superseded = superseded(directory, named, state);
    let mut undone = named.addresses();
    undone.retain(|it| notes.contains(&file_name(it)) && !superseded.contains(it));
    Outdated { superseded, undone }
}

/// Those of these devices that a litd with another state directory than this journal's has had since.
#[must_use]
pub fn superseded(directory: &Path, named: &Recovered, state: &Path) -> BTreeSet<String> {
    let mut named = named.addresses();
    named.retain(|address| is_outdated(directory, address, state));
    named
}

/// The CPU sockets whose limits a litd that has died has left on record here: reading a socket gives back what is left
/// of its own.
#[must_use]
pub fn limits_of_the_dead(directory: &Path) -> Vec<String> {
    let mut dead = limits_on_record(directory);
    dead.retain(|address| !is_locked(directory, address));
    dead
}

/// The CPU sockets whose limits are on record here, whoever runs.
#[must_use]
pub fn limits_on_record(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sockets = entries.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?
            .strip_suffix(powercap::KEPT)
            .map(str::to_owned)
    });
    let mut sockets: Vec<String> = sockets.collect();
    sockets.sort();
    sockets
}

/// Whether a running process has a device's lock in this directory.
pub(crate) fn is_locked(directory: &Path, address: &str) -> bool {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(directory.join(address));
    file.is_ok_and(|file| {
        let locked = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        locked && lock::dying_holder(&file).is_none()
    })
}

/// Makes a link to a state directory, in the place of one that is there.
fn make_link(state: &Path, link: &Path) -> io::Result<()> {
    let new = link.with_extension("new");
    let _ = fs::remove_file(&new);
    symlink(state, &new)
        .and_then(|()| fs::rename(&new, link))
        .map_err(|error| named(link, &error))
}

/// Removes the id of the journal that may name a device: afterwards only its place is known.
fn remove_id(directory: &Path, name: &str) -> io::Result<()> {
    let path = directory.join(format!("{name}{ID}"));
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(&path, &error)),
        _ => Ok(()),
    }
}

/// A device's lock file in this directory.
#[must_use]
pub fn file(directory: &Path, address: &str) -> PathBuf {
    directory.join(file_name(address))
}

/// Whether two paths are the same directory.
#[must_use]
pub fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    one == other || of(one).is_some_and(|it| of(other) == Some(it))
}

impl Remembered {
    /// The place remembered for the device with this file name, if there is one.
    fn read(directory: &Path, name: &str) -> Option<Self> {
        let state = fs::read_link(directory.join(format!("{name}{JOURNAL}"))).ok()?;
        let id = files::text(&directory.join(format!("{name}{ID}")), LONGEST_ID).ok();
        Some(Self {
            address: name.to_owned(),
            state,
            // An empty id was being written when its daemon died.
            id: id.filter(|id| !id.is_empty()),
        })
    }

    /// The link that remembers it.
    #[must_use]
    pub fn link(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}{JOURNAL}", self.address))
    }

    /// Whether a running process has the device's lock in this directory.
    #[must_use]
    pub fn is_locked(&self, directory: &Path) -> bool {
        is_locked(directory, &self.address)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const GPU: &str = "0000:85:00.0";

    fn take(directory: &Path, state: &str, addresses: &[&str]) -> Result<DeviceLocks, Taken> {
        DeviceLocks::take(directory, Path::new(state), addresses.iter().copied())
    }

    #[test]
    fn a_device_has_one_daemon_whatever_their_state_directories_are() {
        let root = tempfile::tempdir().unwrap();
        let locks = root.path().join("run/litd/devices");
        let first = take(&locks, "/var/lib/one", &[GPU, "cpu0", GPU]).unwrap();
        let refused = take(&locks, "/var/lib/two", &["0000:05:00.0", GPU]).unwrap_err();
        let pid = std::process::id();
        assert_eq!(
            refused.to_string().split(": stop").next().unwrap(),
            format!(
                "{GPU}: litd runs already on this device, as process {pid} with the state directory /var/lib/one"
            )
        );
        // Devices of no other daemon are free, also after a refusal.
        let other = take(&locks, "/var/lib/two", &["0000:05:00.0"]).unwrap();
        drop((first, other));
        take(&locks, "/var/lib/two", &[GPU]).unwrap();
    }

    /// A lock's file that is locked by a process which has inherited that, for a moment.
    fn inherited(path: &Path, seconds: &str) -> std::process::Child {
        let locked = open(path).unwrap();
        locked.try_lock().unwrap();
        let mut child = std::process::Command::new("sleep");
        child.arg(seconds).stdin(std::process::Stdio::from(locked));
        child.spawn().unwrap()
    }

    #[test]
    fn a_lock_that_a_process_has_inherited_is_waited_for_at_the_start_and_later() {
        let root = tempfile::tempdir().unwrap();
        let locks = root.path().join("devices");
        drop(take(&locks, "/var/lib/one", &[GPU]).unwrap());
        let path = file(&locks, GPU);
        let mut child = inherited(&path, "0.1");
        let held = take(&locks, "/var/lib/one", &[GPU]).unwrap();
        child.wait().unwrap();
        // Somebody has removed it, and a daemon that had taken it is gone.
        fs::remove_file(&path).unwrap();
        let mut child = inherited(&path, "0.1");
        held.keep().unwrap();
        child.wait().unwrap();
        assert!(is_locked(&locks, GPU));
    }

    #[test]
    fn who_had_a_device_last_is_noted_again_when_somebody_has_removed_that() {
        let root = tempfile::tempdir().unwrap();
        let locks = root.path().join("devices");
        let held = take(&locks, "/var/lib/two", &[GPU]).unwrap();
        held.has_them_now(Path::new("/var/lib/two")).unwrap();
        fs::remove_dir_all(&locks).unwrap();
        held.keep().unwrap();
        assert!(is_outdated(&locks, GPU, Path::new("/var/lib/one")));
    }

    /// The journal was to get another id, and could not be written: whoever comes is to look for it all the same.
    #[test]
    fn a_journals_place_is_noted_again_while_its_id_is_not_known() {
        let root = tempfile::tempdir().unwrap();
        let locks = root.path().join("devices");
        let state = Path::new("/var/lib/one");
        let held = take(&locks, "/var/lib/one", &[GPU]).unwrap();
        held.remember(state, Some("1")).unwrap();
        held.forget_id(state).unwrap();
        fs::remove_dir_all(&locks).unwrap();
        held.keep().unwrap();
        let place = |id: Option<&str>| Remembered {
            address: GPU.to_owned(),
            state: state.to_owned(),
            id: id.map(str::to_owned),
        };
        assert_eq!(remembered(&locks).unwrap(), [place(None)]);
        held.remember(state, Some("2")).unwrap();
        assert_eq!(remembered(&locks).unwrap(), [place(Some("2"))]);
        // Nor does what can't be made at first stay away.
        let obstacle = locks.join(format!("{GPU}.new"));
        fs::remove_file(locks.join(GPU)).unwrap();
        fs::remove_file(held.link(GPU)).unwrap();
        fs::create_dir_all(obstacle.join("full")).unwrap();
        held.keep().unwrap_err();
        fs::remove_dir_all(obstacle).unwrap();
        held.keep().unwrap();
        assert_eq!(remembered(&locks).unwrap(), [place(Some("2"))]);
    }

    #[test]
    fn a_journals_place_is_remembered_until_it_is_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let locks = root.path().join("devices");
        assert_eq!(remembered(&locks).unwrap(), []);
        let first = take(&locks, "/var/lib/one", &[GPU, "cpu0"]).unwrap();
        assert_eq!(remembered(&locks).unwrap(), []);
        first
            .remember(Path::new("/var/lib/one"), Some("1"))
            .unwrap();
        let left = remembered(&locks).unwrap();
        assert_eq!(left.len(), 2);
        assert!(left[0].is_locked(&locks));
        drop(first);
        assert!(!left[0].is_locked(&locks));
        assert_eq!(left[0].address, GPU);
        assert_eq!(left[0].state, Path::new("/var/lib/one"));
        assert_eq!(left[0].id.as_deref(), Some("1"));
        // A later daemon without this device leaves its link alone.
        let next = take(&locks, "/var/lib/two", &[GPU]).unwrap();
        assert_eq!(next.remembered(), left[..1]);
        let two = Path::new("/var/lib/two");
        let told = |id: Option<&str>| {
            let there = next.remembered();
            assert_eq!(there.len(), 1);
            assert_eq!((&*there[0].state, there[0].id.as_deref()), (two, id));
        };
        next.remember(two, Some("2")).unwrap();
        told(Some("2"));
        next.forget_id(two).unwrap();
        told(None);
        next.remember(two, Some("3")).unwrap();
        told(Some("3"));
        next.forget(two);
        let left = remembered(&locks).unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].address, "cpu0");
    }

    #[test]
    fn a_state_directory_is_the_same_by_any_path() {
        let root = tempfile::tempdir().unwrap();
        let (locks, state) = (root.path().join("devices"), root.path().join("state"));
        let other = root.path().join("other");
        fs::create_dir(&state).unwrap();
        symlink(&state, &other).unwrap();
        let first = take(&locks, "/var/lib/one", &[GPU]).unwrap();
        first.remember(&state, None).unwrap();
        assert!(!is_outdated(&locks, GPU, &other));
        first.forget(&other);
        assert_eq!(remembered(&locks).unwrap(), []);
    }

    #[test]
    fn what_others_could_have_put_there_is_not_trusted() {
        let root = tempfile::tempdir().unwrap();
        let open = root.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let elsewhere = root.path().join("link");
        symlink(&open, &elsewhere).unwrap();
        let linked = root.path().join("linked");
        DirBuilder::new().mode(0o700).create(&linked).unwrap();
        symlink(root.path().join("victim"), linked.join(GPU)).unwrap();
        for directory in [open, elsewhere, linked] {
            // No cap is changed, and a predecessor's caps can be restored.
            let locks = take(&directory, "/var/lib/one", &[GPU]).unwrap();
            let refused = locks.remember(Path::new("/var/lib/one"), None).unwrap_err();
            assert!(
                refused.to_string().contains("the devices can't be locked"),
                "{refused}"
            );
        }
        assert!(!root.path().join("victim").exists());
    }

    #[test]
    fn an_address_is_never_a_way_out() {
        assert_eq!(file_name(GPU), GPU);
        for odd in ["../etc", "a/b", "..", ".", "ä"] {
            let name = file_name(odd);
            assert!(!name.contains('/') && !name.starts_with('.'), "{name}");
        }
    }
}
