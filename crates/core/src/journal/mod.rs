//! The undo journal: the caps found, and the values that litd may have written since.
//!
//! Three rules make every change undoable, whenever the process dies:
//! - the cap found at a device is durably on disk before the device is written for the first time
//!   ([`Journal::begin_all`]);
//! - the value is on disk before it is written ([`Journal::intend`]); if that fails, the caller does not write;
//! - a device leaves the journal only once its cap found is restored, or a foreign cap is there and no write of
//!   litd's can follow ([`Journal::released`]).
//!
//! After a crash [`Entry::undo`] says how to undo each device. The journal goes on with the entries it recovered,
//! so that a crash while undoing is undone as well, and the caps found by the first start are kept over any number
//! of crashes.

mod codec;

use std::collections::BTreeSet;
use std::io;

use litd_units::{Nanos, Watts};
use thiserror::Error;

use crate::store::Store;
use codec::{Record, checked};

pub use codec::{headed, id, may_have_id, read};

/// A longer file is rewritten with the entries that still matter.
const LONG: usize = 64 * 1024;

/// A device that litd may have written and has not restored.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The device's address, such as `0000:85:00.0` or `cpu0`.
    pub address: String,
    /// The part's serial number, where the driver tells.
    pub serial: Option<String>,
    /// The boot in which litd last wrote it: later boots began with the driver's own cap.
    pub boot_id: String,
    /// The cap found before litd's first write, which is to be restored.
    pub found: Watts,
    /// Every cap that litd may have left there, the latest last.
    pub ours: Vec<Watts>,
}

/// The undo of a device after a crash.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Undo {
    /// The device holds its cap found.
    Nothing,
    /// The device holds one of litd's caps: this cap, the one found, has to be written.
    Write(Watts),
    /// The device holds a foreign cap: it is left alone and reported.
    Foreign,
}

impl Entry {
    /// The most that the device may hold of the caps that litd wrote or found.
    #[must_use]
    pub fn most(&self) -> Watts {
        self.ours.iter().copied().fold(self.found, Watts::max)
    }

    /// The undo of the device, which holds `current` now.
    #[must_use]
    pub fn undo(&self, current: Watts) -> Undo {
        if current.is_same_cap(self.found) {
            Undo::Nothing
        } else if self.ours.iter().any(|&ours| ours.is_same_cap(current)) {
            Undo::Write(self.found)
        } else {
            Undo::Foreign
        }
    }

    fn intend(&mut self, cap: Watts, boot_id: &str) {
        self.ours.retain(|&ours| !ours.is_same_cap(cap));
        self.ours.push(cap);
        boot_id.clone_into(&mut self.boot_id);
    }

    /// Whether a device with this serial number may be the same part. A serial number alone does not prove that it
    /// is another one: a driver in trouble may tell another device's. Another part holds its driver's cap, and
    /// neither the one found nor one of litd's.
    #[must_use]
    pub fn is_part(&self, serial: Option<&str>) -> bool {
        match (self.serial.as_deref(), serial) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        }
    }
}

/// A failed write: its driver called it failed, but it may be done late.
#[derive(Debug, Clone, PartialEq)]
pub struct Late {
    /// The device's address.
    pub address: String,
    /// The cap that was written.
    pub cap: Watts,
    /// After this time the write can't be done any more, on the kernel's clock that starts with each boot.
    pub until: Nanos,
}

impl Late {
    /// A write of this cap to the device with this address.
    #[must_use]
    pub fn of(address: &str, cap: Watts, until: Nanos) -> Self {
        Self {
            address: address.to_owned(),
            cap,
            until,
        }
    }

    /// Whether both are about the same write.
    fn is_like(&self, other: &Self) -> bool {
        self.address == other.address && self.cap.is_same_cap(other.cap)
    }

    /// Records the late write in place of an earlier one like it.
    fn keep_in(self, late: &mut Vec<Self>) {
        late.retain(|it| !it.is_like(&self));
        late.push(self);
    }

    /// Whether its device is one of these entries.
    fn is_named(&self, entries: &[Entry]) -> bool {
        entries.iter().any(|it| it.address == self.address)
    }
}

/// A device whose clocks litd may have locked and has not freed.
#[derive(Debug, Clone, PartialEq)]
pub struct Locked {
    /// The device's address.
    pub address: String,
    /// The state of the last lock that was asked for.
    pub lock: Lock,
}

impl Locked {
    /// Records the lock in place of an earlier one of the same device.
    fn keep_in(self, clocks: &mut Vec<Self>) {
        match clocks.iter_mut().find(|it| it.address == self.address) {
            Some(known) => *known = self,
            None => clocks.push(self),
        }
    }
}

/// The state of a lock of a device's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// The lock was to be asked for: whether it was, and when it is done, is unknown.
    Asked,
    /// The lock was done, and nothing comes later.
    Done,
    /// The lock failed, or an earlier one did: until then one may be done late, on the kernel's clock that starts
    /// with each boot.
    Late(Nanos),
}

/// What a journal says of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Its cap.
    Cap,
    /// Its clocks.
    Clocks,
}

/// The undo that a journal asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovered {
    /// The devices that were not restored.
    pub entries: Vec<Entry>,
    /// The boot in which the journal was last written; empty if that is unreadable.
    pub boot_id: String,
    /// The devices whose clocks may be locked.
    pub clocks: Vec<Locked>,
    /// The caps that these devices may still take.
    pub late: Vec<Late>,
    /// The part that was cut off or unreadable, in words.
    pub damaged: Option<String>,
}

impl Recovered {
    /// Whether a device's clocks may be locked.
    #[must_use]
    pub fn may_be_locked(&self, address: &str) -> bool {
        self.clocks.iter().any(|it| it.address == address)
    }

    /// The devices that it names.
    #[must_use]
    pub fn addresses(&self) -> BTreeSet<String> {
        let clocks = self.clocks.iter().map(|it| it.address.clone());
        let entries = self.entries.iter().map(|it| it.address.clone());
        entries.chain(clocks).collect()
    }

    /// The rest of it, without what is out of date; `None`: nothing is left.
    #[must_use]
    pub fn without(mut self, outdated: &BTreeSet<String>) -> Option<Self> {
        self.entries.retain(|it| !outdated.contains(&it.address));
        self.clocks.retain(|it| !outdated.contains(&it.address));
        self.late.retain(|it| !outdated.contains(&it.address));
        let any = self.damaged.is_some() || !self.entries.is_empty() || !self.clocks.is_empty();
        any.then_some(self)
    }
}

/// Why the journal can't be used.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The disk failed.
    #[error(
        "the undo journal can't be read or written: {source}; make room on its file system, or make it writable"
    )]
    Disk {
        /// The operating system's error.
        #[from]
        source: io::Error,
    },
    /// The file is of a format that this litd does not know. It was left as it is.
    #[error(
        "the undo journal is of version {found}, and this litd knows version {known} only: run \
         `litd restore` of the litd that wrote it, or remove the journal if all caps are right",
        known = codec::VERSION
    )]
    Version {
        /// The file's version.
        found: u64,
    },
    /// The value can't be a cap.
    #[error(
        "{address}: a cap of {cap} is not possible: litd does not write to this device; check its driver"
    )]
    Cap {
        /// The device.
        address: String,
        /// The value.
        cap: Watts,
    },
    /// The device's found cap is not in the journal, so the device must not be written.
    #[error("{address} is not in the undo journal: it must not be written")]
    Unknown {
        /// The device.
        address: String,
    },
}

/// A device with its cap found, before litd's first write.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The device's address.
    pub address: String,
    /// The part's serial number, where the driver tells.
    pub serial: Option<String>,
    /// The cap found.
    pub cap: Watts,
}

/// The state of the file, beyond its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum File {
    /// The file says the same as memory, and ends with a whole line.
    Whole,
    /// The file may end within a line.
    Torn,
    /// The file may end within a line, and may lack a device that is still held, or call one released that is not; or
    /// it names devices that another litd has had since, or that are undone.
    Lacking,
}

/// The journal while the daemon runs. The disk is passed to each call.
#[derive(Debug, Clone)]
pub struct Journal {
    boot_id: String,
    entries: Vec<Entry>,
    /// Devices whose clocks litd may have locked.
    clocks: Vec<Locked>,
    late: Vec<Late>,
    file: File,
    /// Length of the file, or more.
    size: usize,
    /// A longer file is rewritten before the next append.
    longest: usize,
    /// The least value of `longest` after a rewrite.
    limit: usize,
    /// Why the last rewrite of a file that had grown too long failed.
    grows: Option<String>,
    /// Whether the file says that its next records are of this boot.
    started: bool,
    /// Whether anything was written.
    written: bool,
    /// Devices of which the file has earlier caps that are forgotten here.
    outdated: BTreeSet<String>,
    /// Devices that the file names although another litd has had them since, or although they are undone: they are
    /// left out here.
    superseded: BTreeSet<String>,
    /// What is undone and could not be removed from the file, as long as the file names more of the same device.
    undone: BTreeSet<(String, Part)>,
}

impl Journal {
    /// Reads the journal and goes on with what it holds, except what is out of date ([`Store::is_outdated`]); nothing
    /// is written. `boot_id` is the kernel's, and tells a restart of the daemon from a restart of the node.
    ///
    /// # Errors
    /// [`JournalError::Disk`]; [`JournalError::Version`] if another litd wrote it. No device may
    /// be written then: what an earlier daemon left could no longer be undone.
    pub fn open(
        store: &mut impl Store,
        boot_id: &str,
    ) -> Result<(Self, Option<Recovered>), JournalError> {
        let bytes = store.load_journal()?;
        let recovered = read(&bytes)?;
        let named = recovered.iter().flat_map(Recovered::addresses);
        let superseded: BTreeSet<String> = named.filter(|it| store.is_outdated(it)).collect();
        let recovered = recovered.and_then(|it| it.without(&superseded));
        let damaged = recovered.as_ref().is_some_and(|it| it.damaged.is_some());
        let sound = !damaged && bytes.last().is_none_or(|&byte| byte == b'\n');
        // Neither locks nor late writes outlive a boot.
        let of_this_boot = recovered.as_ref().filter(|it| it.boot_id == boot_id);
        let journal = Self {
            boot_id: boot_id.to_owned(),
            entries: recovered
                .as_ref()
                .map_or_else(Vec::new, |it| it.entries.clone()),
            clocks: of_this_boot.map_or_else(Vec::new, |it| it.clocks.clone()),
            late: of_this_boot.map_or_else(Vec::new, |it| it.late.clone()),
            file: match (superseded.is_empty(), sound) {
                (false, _) => File::Lacking,
                (true, true) => File::Whole,
                (true, false) => File::Torn,
            },
            size: bytes.len(),
            longest: LONG,
            limit: LONG,
            grows: None,
            started: false,
            written: false,
            outdated: BTreeSet::new(),
            superseded,
            undone: BTreeSet::new(),
        };
        Ok((journal, recovered))
    }

    /// The same journal, rewritten when its file is longer than so many bytes (default: 64 KiB).
    #[must_use]
    pub fn rewritten_beyond(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self.longest = bytes;
        self
    }

    /// The id of this boot of the node.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// The devices that litd may have written and has not restored.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether it has entries and has not been written yet: then all of them are a predecessor's.
    #[must_use]
    pub fn is_only_read(&self) -> bool {
        !self.written && !self.entries.is_empty()
    }

    /// Why the file could not be rewritten, if it has grown for that since the last call.
    pub fn takes_growth(&mut self) -> Option<String> {
        self.grows.take()
    }

    /// Checks that the file that names devices is still there, and writes it anew if it is gone or replaced.
    /// `None`: it is there, or none is needed.
    pub fn keep(&mut self, store: &mut impl Store) -> Option<Result<(), JournalError>> {
        let names_none = self.entries.is_empty() && self.clocks.is_empty();
        if names_none || store.journal_is_there() {
            return None;
        }
        self.file = File::Lacking;
        Some(self.tidy(store))
    }

    /// The devices that the file names although another litd has had them since, or although they are undone.
    #[must_use]
    pub fn superseded(&self) -> &BTreeSet<String> {
        &self.superseded
    }

    /// Removes these devices from the file: without the other litd's links, which a boot removes, they would count.
    ///
    /// # Errors
    /// [`JournalError::Disk`]: they are still in the file.
    pub fn drop_superseded(&mut self, store: &mut impl Store) -> Result<(), JournalError> {
        if self.superseded.is_empty() {
            return Ok(());
        }
        let entries = self.entries.clone();
        let record = |address: &String| {
            let (released, freed) = (address.clone(), address.clone());
            [
                Record::Released { address: released },
                Record::Freed { address: freed },
            ]
        };
        let records: Vec<Record> = self.superseded.iter().flat_map(record).collect();
        // Both ways record it; a full disk may allow one of them.
        self.replace(store, &entries)
            .or_else(|_| self.append(store, &records))?;
        self.superseded.clear();
        self.file = File::Whole;
        Ok(())
    }

    /// Empties the file if it should name no device any more, but could not be replaced when the last one was
    /// removed: a later litd would undo what it names. `None`: it is empty, or names devices on purpose.
    pub fn empty(&mut self, store: &mut impl Store) -> Option<Result<(), JournalError>> {
        let names_none = self.entries.is_empty() && self.clocks.is_empty();
        (names_none && self.size > 0).then(|| self.replace(store, &[]))
    }

    /// Adds one device; see [`Journal::begin_all`].
    ///
    /// # Errors
    /// As [`Journal::begin_all`].
    pub fn begin(
        &mut self,
        store: &mut impl Store,
        address: &str,
        serial: Option<&str>,
        found: Watts,
    ) -> Result<(), JournalError> {
        let found = Found {
            address: address.to_owned(),
            serial: serial.map(str::to_owned),
            cap: found,
        };
        self.begin_all(store, &[found])
    }

    /// Adds devices, durably, with one write: from now on they may be written. A device that is
    /// in the journal already keeps the cap found first, unless its serial number tells that it
    /// is another part.
    ///
    /// # Errors
    /// [`JournalError::Disk`], [`JournalError::Cap`]: none of them was added.
    pub fn begin_all(
        &mut self,
        store: &mut impl Store,
        devices: &[Found],
    ) -> Result<(), JournalError> {
        let mut entries = self.entries.clone();
        for device in devices {
            let found = checked(&device.address, device.cap)?.watts();
            let known = entries.iter_mut().find(|it| it.address == device.address);
            match known {
                Some(entry) if entry.is_part(device.serial.as_deref()) => {
                    entry.boot_id.clone_from(&self.boot_id);
                    entry.serial = entry.serial.take().or_else(|| device.serial.clone());
                }
                Some(other) => *other = self.entry(device, found),
                None => entries.push(self.entry(device, found)),
            }
        }
        if entries != self.entries || self.file != File::Whole {
            self.replace(store, &entries)?;
            self.entries = entries;
        }
        Ok(())
    }

    /// Adds devices as [`Journal::begin_all`] does, and writes in any case, to see whether the disk takes the data
    /// before something depends on it.
    ///
    /// # Errors
    /// As [`Journal::begin_all`].
    pub fn try_out(
        &mut self,
        store: &mut impl Store,
        devices: &[Found],
    ) -> Result<(), JournalError> {
        let before = self.entries.len();
        self.begin_all(store, devices)?;
        match self.entries.len() > before || self.entries.is_empty() {
            true => Ok(()),
            false => self.append(store, &[]),
        }
    }

    /// Adds entries from the journal of another litd of this boot, durably, with one write. They are newer than
    /// this journal's own entries of the same devices, which the other litd had taken over in turn and could not
    /// remove.
    ///
    /// # Errors
    /// [`JournalError::Disk`], [`JournalError::Cap`]: none of them was added.
    pub fn adopt(&mut self, store: &mut impl Store, other: &Recovered) -> Result<(), JournalError> {
        let before = self.clone();
        for entry in &other.entries {
            let mut known = self.entries.iter_mut();
            match known.find(|it| it.address == entry.address) {
                Some(outdated) => outdated.clone_from(entry),
                None => self.entries.push(entry.clone()),
            }
        }
        for locked in &other.clocks {
            locked.clone().keep_in(&mut self.clocks);
        }
        for late in &other.late {
            late.clone().keep_in(&mut self.late);
        }
        let said = |it: &Self| (it.entries.clone(), it.clocks.clone(), it.late.clone());
        if said(self) == said(&before) {
            return Ok(());
        }
        let entries = self.entries.clone();
        let outcome = self.replace(store, &entries);
        if outcome.is_err() {
            (self.entries, self.clocks, self.late) = said(&before);
        }
        outcome
    }

    fn entry(&self, device: &Found, found: Watts) -> Entry {
        Entry {
            address: device.address.clone(),
            serial: device.serial.clone(),
            boot_id: self.boot_id.clone(),
            found,
            ours: Vec::new(),
        }
    }

    /// Records the caps that are about to be written, by address. The caller writes them after this has returned,
    /// and none of them if it failed. A device is named once, and not before its last write is done and
    /// [`Journal::confirmed`], or has failed. Caps that were forgotten then are forgotten by the file now, too: after
    /// a crash a cap is foreign that litd set long ago and somebody else has set since.
    ///
    /// # Errors
    /// [`JournalError::Disk`], [`JournalError::Cap`]; [`JournalError::Unknown`] for a device that
    /// was not begun.
    pub fn intend(
        &mut self,
        store: &mut impl Store,
        writes: &[(&str, Watts)],
    ) -> Result<(), JournalError> {
        let mut records = Vec::with_capacity(writes.len());
        let mut changes = Vec::with_capacity(writes.len());
        for &(address, cap) in writes {
            let microwatts = checked(address, cap)?;
            let index = self.position(address)?;
            self.undone.remove(&(address.to_owned(), Part::Cap));
            changes.push((index, microwatts.watts()));
            if self.outdated.contains(address)
                && let Some(entry) = self.entries.get(index)
            {
                records.push(Record::device_with(entry, &self.late)?);
            }
            records.push(Record::Intent {
                address: address.to_owned(),
                microwatts,
            });
        }
        self.tidy(store)?;
        self.append(store, &records)?;
        for (index, cap) in changes {
            if let Some(entry) = self.entries.get_mut(index) {
                self.outdated.remove(&entry.address);
                entry.intend(cap, &self.boot_id);
            }
        }
        Ok(())
    }

    /// Records that a device was read after its last intended write was done, and holds `held`. If that is the cap
    /// intended last, earlier ones are forgotten: by the file with the next [`Journal::intend`].
    ///
    /// Returns whether the cap is litd's or the one found; any other is foreign, and this does not make it litd's.
    pub fn confirmed(&mut self, address: &str, held: Watts) -> bool {
        let Some(entry) = self.entries.iter_mut().find(|it| it.address == address) else {
            return false;
        };
        match entry.ours.last() {
            Some(&last) if last.is_same_cap(held) => {
                if entry.ours.len() > 1 {
                    self.outdated.insert(address.to_owned());
                }
                entry.ours = vec![last];
                true
            }
            // The device has ignored the write; as it might still obey, nothing is forgotten.
            _ => entry.undo(held) != Undo::Foreign,
        }
    }

    /// Records that a device may take a cap that its driver called failed. For a device that the journal does not
    /// name there is nothing to undo, and the cap is written to the file once the journal does name it. Caps whose
    /// time is over by `now` are forgotten: a device may fail for as long as it is steered.
    ///
    /// # Errors
    /// [`JournalError::Disk`], [`JournalError::Cap`]: whoever comes after a crash does not know of it.
    pub fn expect(
        &mut self,
        store: &mut impl Store,
        late: Late,
        now: Nanos,
    ) -> Result<(), JournalError> {
        self.late.retain(|it| it.until > now);
        let is_named = late.is_named(&self.entries);
        let record = Record::late(&late)?;
        late.keep_in(&mut self.late);
        if !is_named {
            return Ok(());
        }
        self.tidy(store)?;
        self.append(store, &[record])
    }

    /// The same of a write that nobody knows to have failed: it is remembered on disk, or else not at all. In memory alone
    /// each litd that comes would wait for it anew.
    ///
    /// # Errors
    /// As [`Journal::expect`].
    pub fn suspect(
        &mut self,
        store: &mut impl Store,
        late: Late,
        now: Nanos,
    ) -> Result<(), JournalError> {
        let outcome = self.expect(store, late.clone(), now);
        if outcome.is_err() {
            self.late.retain(|it| !it.is_like(&late));
        }
        outcome
    }

    /// The caps that may still be taken, by the latest time.
    #[must_use]
    pub fn late(&self) -> &[Late] {
        &self.late
    }

    /// Removes a device from the journal: it is restored, or holds a foreign cap. Once none is left, the file is
    /// empty. A device that is not in it is ignored.
    ///
    /// # Errors
    /// [`JournalError::Disk`]: it is still in the journal. That does no harm to a device that
    /// holds the cap found, or a foreign one.
    pub fn released(&mut self, store: &mut impl Store, address: &str) -> Result<(), JournalError> {
        let Ok(index) = self.position(address) else {
            return Ok(());
        };
        let mut rest = self.entries.clone();
        rest.remove(index);
        let record = [Record::Released {
            address: address.to_owned(),
        }];
        // Both ways record it; a full disk may allow one of them.
        let outcome = if rest.is_empty() && self.clocks.is_empty() {
            self.replace(store, &rest)
                .or_else(|_| self.append(store, &record))
        } else {
            self.append(store, &record)
                .or_else(|_| self.replace(store, &rest))
        };
        match outcome {
            Ok(()) => self.entries = rest,
            // The disk may have done it and not said so.
            Err(_) => self.file = File::Lacking,
        }
        outcome
    }

    /// A device's cap or clocks are undone for good, which could not be removed from the file. Once all is that the
    /// file says of the device, the store notes it beside the file. Returns whether it has: the device has left the
    /// journal then, whatever its file says.
    pub(crate) fn outdate(&mut self, store: &mut impl Store, address: &str, part: Part) -> bool {
        self.undone.insert((address.to_owned(), part));
        let is_undone = |part| self.undone.contains(&(address.to_owned(), part));
        let has_cap = self.position(address).is_ok();
        let has_clocks = self.clocks.iter().any(|it| it.address == address);
        let is_owed = has_cap && !is_undone(Part::Cap) || has_clocks && !is_undone(Part::Clocks);
        if is_owed || store.outdate(address).is_err() {
            return false;
        }
        self.entries.retain(|it| it.address != address);
        self.clocks.retain(|it| it.address != address);
        self.undone.retain(|(it, _)| it != address);
        self.superseded.insert(address.to_owned());
        self.file = File::Lacking;
        true
    }

    /// The devices whose clocks litd may have locked and has not unlocked.
    #[must_use]
    pub fn clocks(&self) -> &[Locked] {
        &self.clocks
    }

    /// Records that a device's clocks are about to be locked. The caller locks them after this has returned, and
    /// not at all if it failed. Until [`Journal::lock_became`] tells the outcome it is unknown.
    ///
    /// # Errors
    /// [`JournalError::Disk`].
    pub fn lock_clocks(
        &mut self,
        store: &mut impl Store,
        address: &str,
    ) -> Result<(), JournalError> {
        let locked = Locked {
            address: address.to_owned(),
            lock: Lock::Asked,
        };
        self.undone.remove(&(address.to_owned(), Part::Clocks));
        let is_said = self.clocks.contains(&locked);
        let is_named = self.position(address).is_ok();
        let is_named = is_named || self.clocks.iter().any(|it| it.address == address);
        if !is_named && store.is_outdated(address) {
            // What is appended to this file would be out of date as well.
            self.file = File::Lacking;
        }
        if is_said && self.file != File::Lacking {
            return Ok(());
        }
        self.tidy(store)?;
        if is_said {
            return Ok(());
        }
        self.append(store, &[Record::locked(&locked)])?;
        locked.keep_in(&mut self.clocks);
        Ok(())
    }

    /// Records the outcome of a lock of a device's clocks. A device that the journal does not name has no lock.
    ///
    /// # Errors
    /// [`JournalError::Disk`]: whoever comes after a crash does not know of it.
    pub fn lock_became(
        &mut self,
        store: &mut impl Store,
        address: &str,
        lock: Lock,
    ) -> Result<(), JournalError> {
        let Some(known) = self.clocks.iter_mut().find(|it| it.address == address) else {
            return Ok(());
        };
        known.lock = lock;
        let record = Record::locked(known);
        self.undone.remove(&(address.to_owned(), Part::Clocks));
        self.tidy(store)?;
        self.append(store, &[record])
    }

    /// Records that the driver chooses a device's clocks again.
    ///
    /// # Errors
    /// [`JournalError::Disk`]: the journal may still say that they are locked.
    pub fn freed_clocks(
        &mut self,
        store: &mut impl Store,
        address: &str,
    ) -> Result<(), JournalError> {
        let Some(index) = self.clocks.iter().position(|it| it.address == address) else {
            return Ok(());
        };
        let locked = self.clocks.remove(index);
        let record = [Record::Freed {
            address: address.to_owned(),
        }];
        let entries = self.entries.clone();
        let last = entries.is_empty() && self.clocks.is_empty();
        let outcome = match last {
            true => self
                .replace(store, &entries)
                .or_else(|_| self.append(store, &record)),
            false => self
                .append(store, &record)
                .or_else(|_| self.replace(store, &entries)),
        };
        if outcome.is_err() {
            self.clocks.push(locked);
            // The disk may have done it and not said so.
            self.file = File::Lacking;
        }
        outcome
    }

    fn position(&self, address: &str) -> Result<usize, JournalError> {
        self.entries
            .iter()
            .position(|entry| entry.address == address)
            .ok_or_else(|| JournalError::Unknown {
                address: address.to_owned(),
            })
    }

    /// Rewrites a file that is too long or not whole. That may fail, unless a held device might
    /// be missing from the file.
    fn tidy(&mut self, store: &mut impl Store) -> Result<(), JournalError> {
        if self.file == File::Whole && self.size <= self.longest {
            return Ok(());
        }
        let entries = std::mem::take(&mut self.entries);
        let outcome = self.replace(store, &entries);
        self.entries = entries;
        match outcome {
            Err(error) if self.file == File::Lacking => Err(error),
            Err(error) => {
                if self.size > self.longest {
                    self.grows = Some(error.to_string());
                }
                // Not at every append from now on: a failing disk is slow.
                self.longest = self.longest.max(self.size.saturating_mul(2));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn replace(&mut self, store: &mut impl Store, entries: &[Entry]) -> Result<(), JournalError> {
        let bytes = codec::whole(&self.boot_id, entries, &self.clocks, &self.late)?;
        if let Err(error) = store.replace_journal(&bytes) {
            // The write may have been done all the same, and the file may be empty by now: the next append names
            // the boot again.
            self.started = false;
            return Err(error.into());
        }
        self.written = true;
        self.outdated.clear();
        self.superseded.clear();
        self.file = File::Whole;
        self.size = bytes.len();
        self.longest = self.limit.max(bytes.len().saturating_mul(2));
        self.started = !bytes.is_empty();
        Ok(())
    }

    fn append(&mut self, store: &mut impl Store, records: &[Record]) -> Result<(), JournalError> {
        let mut bytes = Vec::new();
        if self.file != File::Whole || records.is_empty() {
            // Ends a half-written line of the file; an empty line means nothing.
            bytes.push(b'\n');
        }
        if !self.started {
            codec::encode(&mut bytes, &Record::start(&self.boot_id))?;
        }
        for record in records {
            codec::encode(&mut bytes, record)?;
        }
        self.size = self.size.saturating_add(bytes.len());
        let outcome = store.append_journal(&bytes);
        self.file = match (&outcome, self.file) {
            (_, File::Lacking) => File::Lacking,
            (Ok(()), _) => File::Whole,
            // The file is another one than before, or gone.
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => File::Lacking,
            (Err(_), _) => File::Torn,
        };
        self.started |= outcome.is_ok();
        self.written |= outcome.is_ok();
        Ok(outcome?)
    }
}
