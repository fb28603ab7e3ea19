//! The disk: it fills up, fails half way, and dies together with the daemon at any byte.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use litd_core::journal::{Entry, Recovered, read};
use litd_core::{Appended, Store};

use crate::rng::Rng;

/// The files on disk, and the disk's faults.
#[derive(Debug)]
pub struct Platter {
    pub journal: Vec<u8>,
    pub learned: Vec<u8>,
    pub trial: Vec<u8>,
    pub audit: Vec<u8>,
    pub condition: Vec<u8>,
    /// So much of the journal survives a power cut.
    pub durable: usize,
    /// Appends fail, having written some of it.
    pub full: bool,
    /// Replacing fails.
    pub stuck: bool,
    /// Every write fails.
    pub read_only: bool,
    /// How often that was tried.
    pub refusals: u32,
    /// Appends to the audit log fail, having written some of it.
    pub audit_full: bool,
    /// How often they did.
    pub audit_failures: u32,
    /// The daemon dies at the next write to the journal: before, within or after it.
    pub deadly: bool,
    /// The journal can't be read.
    pub unreadable: bool,
    /// Whether the daemon that lives has written the journal.
    pub written: bool,
    /// Since the last start the journal was cut or damaged, or was replaced half way.
    pub meddled: bool,
    /// Whether the disk's daemon has died.
    pub dead: bool,
    /// Whether the write it died at was cut within.
    pub torn: bool,
    /// Whether the write it died at is on the disk, whole.
    pub landed: bool,
    /// Failures that the daemon was told of: of appends, of replacements.
    pub failures: (u32, u32),
    /// Entries that have left the journal.
    pub removed: Vec<Entry>,
    /// The journal as it was read last, and how long it was then; nothing once it has changed.
    understood: Option<(usize, Rc<Recovered>)>,
    rng: Rng,
}

/// A hand on the disk: the daemon has one, the world another.
#[derive(Debug, Clone)]
pub struct Disk(Rc<RefCell<Platter>>);

impl Disk {
    pub fn new(rng: Rng) -> Self {
        Self(Rc::new(RefCell::new(Platter {
            journal: Vec::new(),
            learned: Vec::new(),
            trial: Vec::new(),
            audit: Vec::new(),
            condition: Vec::new(),
            durable: 0,
            full: false,
            stuck: false,
            read_only: false,
            refusals: 0,
            audit_full: false,
            audit_failures: 0,
            deadly: false,
            unreadable: false,
            written: false,
            meddled: false,
            dead: false,
            torn: false,
            landed: false,
            failures: (0, 0),
            removed: Vec::new(),
            understood: None,
            rng,
        })))
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Platter) -> T) -> T {
        look(&mut self.0.borrow_mut())
    }
}

/// The beginning of a record that takes an entry out of the journal.
const RELEASED: &[u8] = b"\"released\"";

fn no_space() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl Platter {
    /// Whether any writing fails.
    pub fn is_failing(&self) -> bool {
        self.full || self.stuck || self.audit_full || self.read_only
    }

    /// Failures that the daemon was told of, of all kinds.
    pub fn all_failures(&self) -> (u32, u32, u32) {
        let other = self.audit_failures + self.refusals;
        (self.failures.0, self.failures.1, other)
    }

    /// Whether the daemon was never told that the journal can't be written.
    pub fn was_sound(&self) -> bool {
        self.failures == (0, 0) && self.refusals == 0
    }

    /// Whether a write is refused because nothing can be written.
    fn refuses(&mut self) -> bool {
        self.refusals += u32::from(self.read_only);
        self.read_only
    }

    /// Ends all faults.
    pub fn heal(&mut self) {
        (self.full, self.stuck, self.audit_full) = (false, false, false);
        self.read_only = false;
        self.unreadable = false;
    }

    /// The journal's contents.
    pub fn recovered(&mut self) -> Rc<Recovered> {
        let length = self.journal.len();
        if let Some((_, known)) = self.understood.as_ref().filter(|it| it.0 == length) {
            return known.clone();
        }
        let nothing = || Recovered {
            entries: Vec::new(),
            clocks: Vec::new(),
            late: Vec::new(),
            boot_id: String::new(),
            damaged: None,
        };
        let read = read(&self.journal).ok().flatten();
        let read = Rc::new(read.unwrap_or_else(nothing));
        self.understood = Some((length, read.clone()));
        read
    }

    /// The journal, to be changed.
    pub fn journal_mut(&mut self) -> &mut Vec<u8> {
        self.understood = None;
        &mut self.journal
    }

    /// Puts something else in the journal's place, and takes note of entries that go.
    fn put(&mut self, journal: Vec<u8>) {
        let before = self.recovered();
        *self.journal_mut() = journal;
        let after = self.recovered();
        let gone = before.entries.iter().filter(|old| {
            let same = |new: &Entry| new.address == old.address;
            !after.entries.iter().any(same)
        });
        self.removed.extend(gone.cloned());
    }

    /// Appends a part, which may be nothing or all.
    fn part(&mut self, bytes: &[u8]) -> usize {
        let length = self.rng.below(bytes.len() + 1);
        self.journal_mut().extend_from_slice(&bytes[..length]);
        length
    }
}

impl Store for Disk {
    fn load_journal(&mut self) -> io::Result<Vec<u8>> {
        self.with(|it| match it.unreadable {
            true => Err(io::Error::other("input/output error")),
            false => Ok(it.journal.clone()),
        })
    }

    fn append_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with(|it| {
            if it.dead || it.refuses() {
                return Err(no_space());
            }
            if it.deadly {
                (it.deadly, it.dead) = (false, true);
                // Half of the time it is whole, and the daemon dies before it writes a cap.
                if it.rng.chance(0.5) {
                    it.journal_mut().extend_from_slice(bytes);
                    it.landed = true;
                } else {
                    let length = it.part(bytes);
                    it.torn = length > 0 && length < bytes.len();
                    it.meddled = it.torn;
                }
                return Err(no_space());
            }
            if it.full {
                it.part(bytes);
                it.failures.0 += 1;
                return Err(no_space());
            }
            if bytes.windows(RELEASED.len()).any(|part| part == RELEASED) {
                it.put([it.journal.as_slice(), bytes].concat());
            } else {
                it.journal_mut().extend_from_slice(bytes);
            }
            it.written = true;
            Ok(())
        })
    }

    fn replace_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with(|it| {
            if it.dead || it.refuses() {
                return Err(no_space());
            }
            let dies = std::mem::take(&mut it.deadly);
            it.dead |= dies;
            if dies || it.stuck {
                // The old one or the new one, whatever the caller is told.
                if it.rng.chance(0.3) {
                    *it.journal_mut() = bytes.to_vec();
                    it.durable = bytes.len();
                    it.landed = dies;
                }
                it.failures.1 += u32::from(!dies);
                return Err(no_space());
            }
            it.put(bytes.to_vec());
            it.durable = bytes.len();
            it.written = true;
            Ok(())
        })
    }

    fn load_learned(&mut self) -> io::Result<Vec<u8>> {
        self.with(|it| Ok(it.learned.clone()))
    }

    fn replace_learned(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with(|it| {
            if it.dead || it.stuck || it.refuses() {
                return Err(no_space());
            }
            it.learned = bytes.to_vec();
            Ok(())
        })
    }

    fn load_trial(&mut self) -> io::Result<Vec<u8>> {
        self.with(|it| Ok(it.trial.clone()))
    }

    fn replace_trial(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with(|it| {
            if it.dead || it.stuck || it.refuses() {
                return Err(no_space());
            }
            it.trial = bytes.to_vec();
            Ok(())
        })
    }

    fn load_audit_tail(&mut self) -> io::Result<Vec<u8>> {
        // A tail may begin anywhere.
        self.with(|it| Ok(it.audit[it.audit.len().saturating_sub(4000)..].to_vec()))
    }

    fn append_audit(&mut self, bytes: &[u8]) -> io::Result<Appended> {
        self.with(|it| {
            if it.dead {
                return Err(no_space());
            }
            if it.audit_full || it.refuses() {
                let whole = if it.read_only { 0 } else { bytes.len() };
                let length = it.rng.below(whole + 1);
                it.audit.extend_from_slice(&bytes[..length]);
                it.audit_failures += 1;
                return Err(no_space());
            }
            it.audit.extend_from_slice(bytes);
            Ok(Appended::After)
        })
    }

    fn load_condition(&mut self) -> io::Result<Vec<u8>> {
        self.with(|it| Ok(it.condition.clone()))
    }

    fn replace_condition(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with(|it| {
            if it.dead || it.stuck || it.refuses() {
                return Err(no_space());
            }
            it.condition = bytes.to_vec();
            Ok(())
        })
    }
}
