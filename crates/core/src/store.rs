//! The disk, as little of it as the daemon needs: the journal, a file of what was learned, one of the last trial,
//! one of the node's condition, and the log of all writes.

use std::io;

/// Where a record of the audit log was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// After the record before it, or to the next file.
    After,
    /// To a new file, because the one before was moved or removed by another program.
    Anew,
}

/// Where the journal, the learned caps and the audit log are kept. Calls return when the data has
/// reached what survives the death of the process; `replace_*` when it survives a power cut.
pub trait Store {
    /// The whole journal; empty if there is none.
    ///
    /// # Errors
    /// The disk.
    fn load_journal(&mut self) -> io::Result<Vec<u8>>;

    /// Appends to the journal. On an error any part of `bytes` may have been appended.
    ///
    /// # Errors
    /// The disk. [`io::ErrorKind::NotFound`] if the journal is not there any more, or another is in its
    /// place: every append fails so until the journal has been replaced.
    fn append_journal(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Replaces the journal as a whole: after a crash there is the old one or the new one.
    ///
    /// # Errors
    /// The disk.
    fn replace_journal(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Whether the journal is still in its place, unchanged since litd last wrote or read it. If it is not,
    /// [`Store::append_journal`] fails until it has been replaced.
    fn journal_is_there(&mut self) -> bool {
        true
    }

    /// Whether what the journal's file says of a device is out of date: another litd, with another store, has had the
    /// device since, or it is undone ([`Store::outdate`]). Nothing is undone by that.
    fn is_outdated(&self, _address: &str) -> bool {
        false
    }

    /// Notes beside the journal, which can't be written, that what its file says of a device is undone. Whoever loads
    /// it from then on finds that out of date, until the journal has been replaced.
    ///
    /// # Errors
    /// This store has no other place, or that can't be written either.
    fn outdate(&mut self, _address: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The learned caps; empty if there are none.
    ///
    /// # Errors
    /// The disk.
    fn load_learned(&mut self) -> io::Result<Vec<u8>>;

    /// Replaces the learned caps as a whole.
    ///
    /// # Errors
    /// The disk.
    fn replace_learned(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// The last trial's report, and whether steering was stopped for harm; empty if there is none, or where a
    /// store keeps none.
    ///
    /// # Errors
    /// The disk.
    fn load_trial(&mut self) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Replaces that report as a whole.
    ///
    /// # Errors
    /// The disk.
    fn replace_trial(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// The end of the audit log: a few whole lines at least, if there are any; empty if there is
    /// no log.
    ///
    /// # Errors
    /// The disk.
    fn load_audit_tail(&mut self) -> io::Result<Vec<u8>>;

    /// Appends to the audit log, which keeps no more than it is allowed to. On an error any part
    /// of `bytes` may have been appended.
    ///
    /// # Errors
    /// The disk.
    fn append_audit(&mut self, bytes: &[u8]) -> io::Result<Appended>;

    /// The node's condition; empty if nothing is known of it.
    ///
    /// # Errors
    /// The disk.
    fn load_condition(&mut self) -> io::Result<Vec<u8>>;

    /// Replaces the node's condition as a whole.
    ///
    /// # Errors
    /// The disk.
    fn replace_condition(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Whether the node's condition is still in its place as litd has last read or written it. Where nothing was read
    /// and nothing written, there is nothing to miss.
    fn condition_is_there(&mut self) -> bool {
        true
    }
}

/// A store in memory, for tests and dry runs.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    /// The journal.
    pub journal: Vec<u8>,
    /// The learned caps.
    pub learned: Vec<u8>,
    /// The last trial.
    pub trial: Vec<u8>,
    /// The audit log.
    pub audit: Vec<u8>,
    /// The node's condition.
    pub condition: Vec<u8>,
}

impl Store for MemoryStore {
    fn load_journal(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.journal.clone())
    }

    fn append_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.journal.extend_from_slice(bytes);
        Ok(())
    }

    fn replace_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.journal = bytes.to_vec();
        Ok(())
    }

    fn load_learned(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.learned.clone())
    }

    fn replace_learned(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.learned = bytes.to_vec();
        Ok(())
    }

    fn load_trial(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.trial.clone())
    }

    fn replace_trial(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.trial = bytes.to_vec();
        Ok(())
    }

    fn load_audit_tail(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.audit.clone())
    }

    fn append_audit(&mut self, bytes: &[u8]) -> io::Result<Appended> {
        self.audit.extend_from_slice(bytes);
        Ok(Appended::After)
    }

    fn load_condition(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.condition.clone())
    }

    fn replace_condition(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.condition = bytes.to_vec();
        Ok(())
    }
}
