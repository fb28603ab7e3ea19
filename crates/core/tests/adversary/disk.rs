//! A disk that fails.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;

use litd_api::audit::{Line, Record};
use litd_core::{Appended, MemoryStore, Store};

/// The audit log is cut here: nobody reads it.
const AUDIT_BYTES: usize = 100_000;

/// Present faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Half of what is appended to the journal is written.
    pub append: bool,
    /// Replacing a file fails.
    pub replace: bool,
    /// The journal is replaced, and that is said to have failed.
    pub replaced_is_told_failed: bool,
    pub audit: bool,
    /// Notes can't be made either.
    pub notes: bool,
    /// The room in the last block of the audit log; 0: unlimited.
    pub audit_room: usize,
    /// Likewise the journal's.
    pub journal_room: usize,
}

#[derive(Debug, Default)]
struct Platter {
    kept: MemoryStore,
    faults: Faults,
    gone: bool,
    /// The devices of which notes beside the journal say that they are undone.
    undone: BTreeSet<String>,
}

/// litd's files; they outlive the core.
#[derive(Debug, Clone, Default)]
pub struct Disk(Rc<RefCell<Platter>>);

impl Disk {
    pub fn fail(&self, faults: Faults) {
        self.0.borrow_mut().faults = faults;
    }

    /// Removes the journal.
    pub fn remove(&self) {
        let mut platter = self.0.borrow_mut();
        platter.gone = !platter.kept.journal.is_empty();
        platter.kept.journal.clear();
    }

    /// The contents of the journal's file.
    pub fn journal(&self) -> Vec<u8> {
        self.0.borrow().kept.journal.clone()
    }

    /// Puts another file in the journal's place.
    pub fn put_journal(&self, bytes: Vec<u8>) {
        self.0.borrow_mut().kept.journal = bytes;
    }

    /// The audit log is lost.
    pub fn lose_log(&self) {
        self.0.borrow_mut().kept.audit.clear();
    }

    /// The addresses of GPUs that the undo journal has something to give back to.
    pub fn journal_keeps(&self) -> Vec<String> {
        let journal = litd_core::journal::read(&self.0.borrow().kept.journal).unwrap();
        let entries = journal.map_or_else(Vec::new, |it| it.entries);
        entries.into_iter().map(|it| it.address).collect()
    }

    /// Whether a budget that was set by command is in force again after a crash.
    pub fn keeps_a_budget(&self) -> bool {
        let condition = self.0.borrow().kept.condition.clone();
        let condition: serde_json::Value = serde_json::from_slice(&condition).unwrap_or_default();
        condition["orders"]["budget"].is_number()
    }

    /// The records of the audit log that can be read.
    pub fn audited(&self) -> Vec<Record> {
        let platter = self.0.borrow();
        let lines = platter.kept.audit.split(|&byte| byte == b'\n');
        let intact = lines.filter_map(|line| match Record::decode(line)? {
            Line::Intact(record) => Some(record),
            Line::Altered(_) | Line::Unreadable => None,
        });
        intact.collect()
    }
}

fn unless(fails: bool) -> io::Result<()> {
    match fails {
        true => Err(io::Error::other("disk full")),
        false => Ok(()),
    }
}

impl Store for Disk {
    fn load_journal(&mut self) -> io::Result<Vec<u8>> {
        self.0.borrow_mut().kept.load_journal()
    }

    fn append_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut platter = self.0.borrow_mut();
        if platter.gone {
            return Err(io::Error::new(io::ErrorKind::NotFound, "gone"));
        }
        let mut fails = platter.faults.append;
        let mut written = if fails { bytes.len() / 2 } else { bytes.len() };
        if platter.faults.journal_room > 0 {
            let room = platter.faults.journal_room - 1;
            fails = bytes.len() > room;
            written = bytes.len().min(room);
            platter.faults.journal_room -= written;
        }
        platter.kept.append_journal(&bytes[..written])?;
        unless(fails)
    }

    fn replace_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut platter = self.0.borrow_mut();
        unless(platter.faults.replace)?;
        platter.gone = false;
        platter.undone.clear();
        platter.kept.replace_journal(bytes)?;
        unless(platter.faults.replaced_is_told_failed)
    }

    fn journal_is_there(&mut self) -> bool {
        !self.0.borrow().gone
    }

    fn is_outdated(&self, address: &str) -> bool {
        self.0.borrow().undone.contains(address)
    }

    fn outdate(&mut self, address: &str) -> io::Result<()> {
        let mut platter = self.0.borrow_mut();
        unless(platter.faults.notes)?;
        platter.undone.insert(address.to_owned());
        Ok(())
    }

    fn load_learned(&mut self) -> io::Result<Vec<u8>> {
        self.0.borrow_mut().kept.load_learned()
    }

    fn replace_learned(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().kept.replace_learned(bytes)
    }

    fn load_audit_tail(&mut self) -> io::Result<Vec<u8>> {
        self.0.borrow_mut().kept.load_audit_tail()
    }

    fn append_audit(&mut self, bytes: &[u8]) -> io::Result<Appended> {
        let mut platter = self.0.borrow_mut();
        unless(platter.faults.audit)?;
        if platter.faults.audit_room > 0 {
            let room = platter.faults.audit_room - 1;
            let written = bytes.len().min(room);
            platter.faults.audit_room -= written;
            platter.kept.append_audit(&bytes[..written])?;
            unless(bytes.len() > room)?;
            return Ok(Appended::After);
        }
        if platter.kept.audit.len() > AUDIT_BYTES {
            platter.kept.audit.clear();
        }
        platter.kept.append_audit(bytes)
    }

    fn load_condition(&mut self) -> io::Result<Vec<u8>> {
        self.0.borrow_mut().kept.load_condition()
    }

    fn replace_condition(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut platter = self.0.borrow_mut();
        unless(platter.faults.replace)?;
        platter.kept.replace_condition(bytes)
    }
}
