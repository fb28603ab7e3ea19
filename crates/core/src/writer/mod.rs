//! The only way to a device's cap: the account says when a write may go out, the undo journal and the audit log have
//! it on disk before, and then it goes out. Only this module writes to either file. A disk that fails is reported
//! once, counted each time, and stops caps from being moved, except to restore them.

mod audit;
mod writes;

use std::collections::BTreeMap;

use litd_api::EventKind;
use litd_api::audit::{Intent, Record};
use litd_policies::Actuator;
use litd_power::{Operation, PowerError};
use litd_units::{Nanos, Watts};

use crate::devices::Devices;
use crate::journal::{Entry, Found, Journal, JournalError, Late, Lock, Locked, Part, Recovered};
use crate::outbox::Outbox;
use crate::record::Note;
use crate::store::Store;

pub(crate) use audit::Undone;
use audit::{Asked, Audit};

/// The account of writes, the journal and the log, and the disk that has them.
#[derive(Debug)]
pub(crate) struct Writer<S> {
    account: Actuator,
    /// The devices' addresses, under which the journal knows them.
    addresses: Vec<String>,
    journal: Journal,
    /// Why the journal can't be written; `None` while it can.
    trouble: Option<String>,
    audit: Audit,
    /// The last write to each device, by a predecessor's log.
    asked: BTreeMap<String, Asked>,
    /// The different caps of each device in that log.
    logged: BTreeMap<String, Vec<Watts>>,
    /// The devices whose entries were to leave the journal in this round.
    crossed_out: Vec<usize>,
    store: S,
}

/// The records of a predecessor.
#[derive(Debug)]
pub(crate) struct Left {
    /// The entries of its journal.
    pub recovered: Option<Recovered>,
    /// Writes that its log does not confirm.
    pub undone: Vec<Undone>,
}

/// What litd does about caps while one of its records can't be written, and why it can't be, in words.
#[must_use]
pub fn only_restores(why: &str) -> String {
    format!("litd changes no cap except to restore one, until this is mended: {why}")
}

impl<S: Store> Writer<S> {
    /// Reads journal and log; nothing is written. The account is of the devices with these addresses.
    ///
    /// # Errors
    /// The journal can't be read, or is one of a newer version.
    pub fn open(
        mut store: S,
        boot_id: &str,
        addresses: Vec<String>,
    ) -> Result<(Self, Left), JournalError> {
        let (journal, recovered) = Journal::open(&mut store, boot_id)?;
        // An unreadable audit log is not continued; the next append reports the error.
        let log = store.load_audit_tail().unwrap_or_default();
        let records: Vec<Record> = audit::intact(&log).collect();
        // Until a device has been read twice, `judge_devices` says what it could hold.
        let unread = vec![(None, Watts::ZERO); addresses.len()];
        let writer = Self {
            account: Actuator::new(&unread, Watts::ZERO),
            addresses,
            journal,
            trouble: None,
            audit: Audit::open(&log),
            asked: audit::asked_last(&records),
            logged: audit::caps(&records),
            crossed_out: Vec::new(),
            store,
        };
        let left = Left {
            recovered,
            undone: audit::undone(&records),
        };
        Ok((writer, left))
    }

    /// What each device may hold, by litd's writes and readings.
    pub fn account(&self) -> &Actuator {
        &self.account
    }

    /// The account, to put into it what devices have answered and what is planned for them. Writes come out of it by
    /// [`Writer::due`] alone.
    pub fn account_mut(&mut self) -> &mut Actuator {
        &mut self.account
    }

    /// The writes that may go out now. Each is either [sent](Writer::send) or [withheld](Writer::withhold).
    pub fn due(&mut self, devices: &Devices) -> Vec<(usize, Watts)> {
        self.account.due(|device| devices.is_free(device))
    }

    /// A write that is on record goes out.
    pub fn send(&self, device: usize, cap: Watts, devices: &mut Devices, out: &mut Outbox) {
        devices.begin(device, Operation::Set(cap), out.now(), out);
    }

    /// A write that can't be put on record does not go out.
    pub fn withhold(&mut self, device: usize) {
        self.account.not_written(device);
    }

    /// The storage of all that has to outlive litd.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The storage, for files other than journal and log.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The devices that litd may have written and has not restored.
    pub fn entries(&self) -> &[Entry] {
        self.journal.entries()
    }

    /// The same, without those of an earlier boot: drivers began with their own caps since.
    pub fn entries_of_this_boot(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.journal.entries().iter();
        entries.filter(|entry| self.is_of_this_boot(entry))
    }

    /// Whether litd wrote a device last in this boot.
    pub fn is_of_this_boot(&self, entry: &Entry) -> bool {
        entry.boot_id == self.journal.boot_id()
    }

    /// The last write to a device by a predecessor, if its log has it, and that cap was found before.
    pub fn asked_last(&self, entry: &Entry) -> Option<Asked> {
        let is_found = |found: Watts| found.is_same_cap(entry.found);
        let asked = self.asked.get(&entry.address).copied();
        asked.filter(|it| it.found.is_some_and(is_found))
    }

    /// Whether the log has the last write that the journal names of a device, so that its outcome would be in the log
    /// as well. If the log was lost, or is kept in another directory now, it has not.
    pub fn has_logged(&self, entry: &Entry) -> bool {
        let mut logged = self.logged.get(&entry.address).into_iter().flatten();
        let last = entry.ours.last();
        last.is_none_or(|last| logged.any(|it| it.is_same_cap(*last)))
    }

    /// The journal's entry of a device.
    pub fn entry(&self, address: &str) -> Option<&Entry> {
        let mut entries = self.journal.entries().iter();
        entries.find(|entry| entry.address == address)
    }

    /// The devices whose clocks litd may have locked.
    pub fn clocks(&self) -> &[Locked] {
        self.journal.clocks()
    }

    /// The state of the last lock of a device's clocks, if litd may have locked them.
    pub fn lock(&self, address: &str) -> Option<Lock> {
        let mut clocks = self.journal.clocks().iter();
        clocks.find(|it| it.address == address).map(|it| it.lock)
    }

    /// Whether the journal was only read so far, so that all its entries are a predecessor's.
    pub fn is_only_read(&self) -> bool {
        self.journal.is_only_read()
    }

    /// Why the journal can't be written; `None` while it can.
    pub fn journal_trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Why the log can't be written; `None` while it can.
    pub fn log_trouble(&self) -> Option<&str> {
        self.audit.trouble()
    }

    /// Why litd changes no cap except to restore one, in words; `None` while both records can be written.
    pub fn why_only_restores(&self) -> Option<String> {
        let of_log = || self.log_trouble().map(audit::unwritable);
        let why = self.journal_trouble().map(str::to_owned).or_else(of_log)?;
        Some(only_restores(&why))
    }

    /// Records in the journal the caps that are about to be written to devices, and the caps found of those that
    /// it does not name yet. Returns whether that failed.
    pub fn journal(
        &mut self,
        found: &[Found],
        intents: &[(&str, Watts)],
        out: &mut Outbox,
    ) -> bool {
        let begun = match found.is_empty() {
            true => Ok(()),
            false => self.journal.begin_all(&mut self.store, found),
        };
        let written = begun.and_then(|()| self.journal.intend(&mut self.store, intents));
        self.said(written, out)
    }

    /// Records caps found, to see whether the journal can be written.
    pub fn try_journal(&mut self, found: &[Found], out: &mut Outbox) {
        let outcome = self.journal.try_out(&mut self.store, found);
        self.said(outcome, out);
    }

    /// A device holds this cap, and no other write of litd's can follow.
    pub fn confirmed(&mut self, address: &str, held: Watts) {
        self.journal.confirmed(address, held);
    }

    /// Removes a device from the journal. Returns whether that could be written.
    pub fn cross_out(&mut self, address: &str, out: &mut Outbox) -> bool {
        let outcome = self.journal.released(&mut self.store, address);
        !self.said(outcome, out)
    }

    /// Removes a device from the journal: nothing of litd's is there, or can come. Where the journal can't be written,
    /// that is noted beside it. Returns whether the device has left the journal.
    pub fn close(&mut self, address: &str, out: &mut Outbox) -> bool {
        self.cross_out(address, out) || self.journal.outdate(&mut self.store, address, Part::Cap)
    }

    /// The entries of these devices are to leave the journal. Returns whether that is to be tried now: entries that
    /// could not be removed are tried again in the next round, or together with another device's.
    pub fn begins_to_cross_out(&mut self, devices: &[usize]) -> bool {
        let is_new = self.crossed_out != devices;
        if is_new {
            self.crossed_out = devices.to_vec();
        }
        is_new
    }

    /// A round begins: entries that could not be removed are tried again.
    pub fn crosses_out_anew(&mut self) {
        self.crossed_out.clear();
    }

    /// Records that a device's clocks are about to be locked. Returns whether that failed.
    pub fn lock_clocks(&mut self, address: &str, out: &mut Outbox) -> bool {
        let outcome = self.journal.lock_clocks(&mut self.store, address);
        self.said(outcome, out)
    }

    /// Records that the driver chooses a device's clocks again. Returns whether that failed.
    pub fn freed_clocks(&mut self, address: &str, out: &mut Outbox) -> bool {
        let outcome = self.journal.freed_clocks(&mut self.store, address);
        self.said(outcome, out)
    }

    /// The same where no lock can follow: if the journal can't be written, that is noted beside it.
    pub fn close_clocks(&mut self, address: &str, out: &mut Outbox) -> bool {
        self.freed_clocks(address, out)
            && !self.journal.outdate(&mut self.store, address, Part::Clocks)
    }

    /// Records the outcome of a lock of a device's clocks.
    pub fn lock_became(&mut self, address: &str, lock: Lock, out: &mut Outbox) {
        let outcome = self.journal.lock_became(&mut self.store, address, lock);
        self.said(outcome, out);
    }

    /// Records that a device may do a failed write late, until then. Where that fails the log has it, too.
    pub fn expect(&mut self, address: &str, cap: Watts, until: Nanos, out: &mut Outbox) {
        let late = Late::of(address, cap, until);
        let outcome = self.journal.expect(&mut self.store, late, out.now());
        self.said(outcome, out);
    }

    /// Records that nobody knows whether a predecessor's write was done, and that it may be until then.
    pub fn suspect(&mut self, address: &str, cap: Watts, until: Nanos, out: &mut Outbox) {
        let late = Late::of(address, cap, until);
        let outcome = self.journal.suspect(&mut self.store, late, out.now());
        self.said(outcome, out);
    }

    /// The caps that a device may still take late.
    pub fn late(&self, address: &str) -> impl Iterator<Item = &Late> {
        let late = self.journal.late().iter();
        late.filter(move |it| it.address == address)
    }

    /// Once a second: notices when another program has removed the journal while nothing is written, which
    /// otherwise only a litd after a crash would miss. Where a write waits for the disk anyway nothing is tried.
    pub fn check_journal(&mut self, is_waited_for: bool, out: &mut Outbox) {
        if let Some(outcome) = self.journal.empty(&mut self.store) {
            self.said(outcome, out);
        }
        if self.trouble.is_some() && !self.journal.entries().is_empty() && !is_waited_for {
            // Trouble that is over must not stay in status.
            self.try_journal(&[], out);
        }
        let Some(outcome) = self.journal.keep(&mut self.store) else {
            return;
        };
        if outcome.is_ok() {
            let text = "somebody has removed, moved, mounted over or changed the undo journal: litd has written a \
                        new one";
            out.note(Note::warning(EventKind::Fault, text));
        }
        self.said(outcome, out);
    }

    /// Once a second: tries a log that could not be written, so that trouble that is over does not stay in status.
    pub fn check_log(&mut self, is_waited_for: bool, out: &mut Outbox) {
        if self.audit.trouble().is_some() && !is_waited_for {
            self.try_log(out);
        }
    }

    /// Writes an empty line to the log, to see whether it can be written.
    pub fn try_log(&mut self, out: &mut Outbox) {
        self.audit.try_out(&mut self.store, out);
    }

    /// User `uid` wants a device's cap set by hand.
    pub fn asked_by(&mut self, device: usize, uid: u32) {
        self.audit.asked_by(device, uid);
    }

    /// The author of a write to a device.
    pub fn actor(&self, device: usize, is_by_hand: bool) -> String {
        self.audit.actor(device, is_by_hand)
    }

    /// Records in the log the writes that are about to be made. Returns whether that failed.
    pub fn log(&mut self, writes: Vec<(usize, Intent)>, out: &mut Outbox) -> bool {
        self.audit.writes(writes, &mut self.store, out)
    }

    /// A write to the device of this address and name has ended.
    pub fn log_outcome(
        &mut self,
        device: usize,
        called: (&str, &str),
        outcome: &Result<Watts, PowerError>,
        out: &mut Outbox,
    ) {
        let store = &mut self.store;
        self.audit.outcome(device, called, outcome, store, out);
    }

    /// The device of this address and name was read, by a question asked at that time.
    pub fn log_reading(
        &mut self,
        device: usize,
        called: (&str, &str),
        asked_and_enforced: (Nanos, Option<Watts>),
        out: &mut Outbox,
    ) {
        let store = &mut self.store;
        self.audit
            .reading(device, called, asked_and_enforced, store, out);
    }

    /// Records whether the journal can be written. Returns whether it can't.
    fn said(&mut self, outcome: Result<(), JournalError>, out: &mut Outbox) -> bool {
        let trouble = outcome.err().map(|error| error.to_string());
        if let Some(why) = self.journal.takes_growth() {
            out.error("journal", "");
            let text = format!("the undo journal grows, because it can't be rewritten: {why}");
            out.note(Note::warning(EventKind::Fault, text));
        }
        let failed = trouble.is_some();
        if failed {
            out.error("journal", "");
        }
        match (&self.trouble, &trouble) {
            (None, Some(why)) => {
                out.note(Note::warning(EventKind::Fault, only_restores(why)));
            }
            (Some(_), None) => {
                let text = "the undo journal can be written again";
                out.note(Note::info(EventKind::Fault, text));
            }
            _ => {}
        }
        self.trouble = trouble;
        failed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io;

    use super::*;
    use crate::event::Effect;
    use crate::store::{Appended, MemoryStore};

    /// A disk that can be full, and a place for notes beside it.
    #[derive(Debug, Default)]
    struct Disk {
        store: MemoryStore,
        is_full: bool,
        undone: BTreeSet<String>,
    }

    impl Disk {
        fn store(&mut self) -> io::Result<&mut MemoryStore> {
            match self.is_full {
                true => Err(io::Error::other("the disk is full")),
                false => Ok(&mut self.store),
            }
        }
    }

    impl Store for Disk {
        fn load_journal(&mut self) -> io::Result<Vec<u8>> {
            self.store.load_journal()
        }

        fn append_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.store()?.append_journal(bytes)
        }

        fn replace_journal(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.store()?.replace_journal(bytes)?;
            self.undone.clear();
            Ok(())
        }

        fn is_outdated(&self, address: &str) -> bool {
            self.undone.contains(address)
        }

        fn outdate(&mut self, address: &str) -> io::Result<()> {
            self.undone.insert(address.to_owned());
            Ok(())
        }

        fn load_learned(&mut self) -> io::Result<Vec<u8>> {
            self.store.load_learned()
        }

        fn replace_learned(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.store()?.replace_learned(bytes)
        }

        fn load_audit_tail(&mut self) -> io::Result<Vec<u8>> {
            self.store.load_audit_tail()
        }

        fn append_audit(&mut self, bytes: &[u8]) -> io::Result<Appended> {
            self.store()?.append_audit(bytes)
        }

        fn load_condition(&mut self) -> io::Result<Vec<u8>> {
            self.store.load_condition()
        }

        fn replace_condition(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.store()?.replace_condition(bytes)
        }
    }

    fn open(disk: Disk) -> (Writer<Disk>, Left, Outbox) {
        let (writer, left) = Writer::open(disk, "boot", vec!["a".to_owned()]).unwrap();
        (writer, left, Outbox::new(Nanos(0), 0.0))
    }

    fn found() -> Found {
        Found {
            address: "a".to_owned(),
            serial: None,
            cap: Watts(700.0),
        }
    }

    /// Records that the device is about to be set to this. Returns whether that failed.
    fn intends(writer: &mut Writer<Disk>, cap: f64, out: &mut Outbox) -> bool {
        let begun = match writer.entry("a") {
            Some(_) => Vec::new(),
            None => vec![found()],
        };
        writer.journal(&begun, &[("a", Watts(cap))], out)
    }

    fn said(out: &mut Outbox) -> Vec<String> {
        let effects = out.take().into_iter();
        let texts = effects.filter_map(|effect| match effect {
            Effect::Log(event) => Some(event.text),
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn the_next_writer_finds_what_was_not_crossed_out() {
        let (mut writer, left, mut out) = open(Disk::default());
        assert!(left.recovered.is_none() && writer.entries().is_empty());
        assert!(!intends(&mut writer, 600.0, &mut out) && !intends(&mut writer, 500.0, &mut out));
        assert_eq!(writer.entry("a").map(|it| it.found), Some(Watts(700.0)));
        let (mut writer, left, mut out) = open(writer.store);
        let entries = left.recovered.unwrap().entries;
        assert_eq!(entries[0].ours, [Watts(600.0), Watts(500.0)]);
        assert!(writer.cross_out("a", &mut out));
        let (writer, _, _) = open(writer.store);
        assert!(writer.entries().is_empty());
    }

    #[test]
    fn what_a_full_disk_does_not_let_out_is_closed_once_cap_and_clocks_are_undone() {
        for clocks_first in [false, true] {
            let (mut writer, _, mut out) = open(Disk::default());
            intends(&mut writer, 600.0, &mut out);
            assert!(!writer.lock_clocks("a", &mut out));
            writer.store.is_full = true;
            match clocks_first {
                true => assert!(writer.close_clocks("a", &mut out)),
                false => assert!(!writer.close("a", &mut out)),
            }
            // It could still come after a crash, so both are as they were.
            assert!(writer.entry("a").is_some() && writer.lock("a").is_some());
            match clocks_first {
                true => assert!(writer.close("a", &mut out)),
                false => assert!(!writer.close_clocks("a", &mut out)),
            }
            assert!(writer.entry("a").is_none() && writer.lock("a").is_none());
            assert!(writer.journal_trouble().is_some());
            let (mut writer, left, mut out) = open(writer.store);
            assert!(left.recovered.is_none() && writer.entries().is_empty());
            // Nothing is asked for that the next one would not know of.
            assert!(writer.lock_clocks("a", &mut out));
            writer.store.is_full = false;
            assert!(!writer.lock_clocks("a", &mut out));
            let (writer, _, _) = open(writer.store);
            assert!(writer.entry("a").is_none() && writer.lock("a").is_some());
        }
    }

    #[test]
    fn what_is_asked_for_after_an_undo_is_not_closed_with_it() {
        let (mut writer, _, mut out) = open(Disk::default());
        intends(&mut writer, 600.0, &mut out);
        assert!(!writer.lock_clocks("a", &mut out));
        writer.store.is_full = true;
        assert!(!writer.close("a", &mut out));
        writer.store.is_full = false;
        assert!(!intends(&mut writer, 500.0, &mut out));
        writer.store.is_full = true;
        assert!(writer.close_clocks("a", &mut out));
        assert!(writer.entry("a").is_some());
    }

    #[test]
    fn a_full_disk_is_reported_once_counted_each_time_and_its_end_is_reported() {
        let (mut writer, _, mut out) = open(Disk::default());
        writer.store.is_full = true;
        for _ in 0..3 {
            assert!(intends(&mut writer, 600.0, &mut out));
        }
        assert!(
            writer
                .journal_trouble()
                .is_some_and(|why| why.contains("full"))
        );
        let told = said(&mut out);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(
            "litd changes no cap except to restore one, until this is mended: the undo"
        ));
        assert_eq!(out.totals(0).errors[0].count, 3);
        writer.store.is_full = false;
        assert!(!intends(&mut writer, 600.0, &mut out));
        assert_eq!(writer.journal_trouble(), None);
        assert_eq!(said(&mut out), ["the undo journal can be written again"]);
    }

    #[test]
    fn trouble_with_either_record_is_looked_at_again_unless_a_write_waits_for_that_anyway() {
        let (mut writer, _, mut out) = open(Disk::default());
        intends(&mut writer, 600.0, &mut out);
        writer.store.is_full = true;
        intends(&mut writer, 500.0, &mut out);
        writer.try_log(&mut out);
        assert!(writer.log_trouble().is_some());
        writer.store.is_full = false;
        writer.check_journal(true, &mut out);
        writer.check_log(true, &mut out);
        assert!(writer.journal_trouble().is_some() && writer.log_trouble().is_some());
        writer.check_journal(false, &mut out);
        writer.check_log(false, &mut out);
        assert!(writer.journal_trouble().is_none() && writer.log_trouble().is_none());
    }

    #[test]
    fn the_same_entries_are_tried_to_be_dropped_once_in_a_round() {
        let (mut writer, _, _) = open(Disk::default());
        assert!(!writer.begins_to_cross_out(&[]));
        assert!(writer.begins_to_cross_out(&[1]) && !writer.begins_to_cross_out(&[1]));
        assert!(writer.begins_to_cross_out(&[1, 2]));
        writer.crosses_out_anew();
        assert!(writer.begins_to_cross_out(&[1, 2]));
    }

    #[test]
    fn late_writes_and_locks_are_on_record_for_the_next_writer() {
        let (mut writer, _, mut out) = open(Disk::default());
        intends(&mut writer, 600.0, &mut out);
        writer.expect("a", Watts(600.0), Nanos(30), &mut out);
        assert!(!writer.lock_clocks("a", &mut out));
        let (writer, _, _) = open(writer.store);
        assert_eq!(
            writer.late("a").map(|it| it.cap).collect::<Vec<_>>(),
            [Watts(600.0)]
        );
        assert_eq!(writer.late("b").count(), 0);
        assert!(writer.lock("a").is_some() && writer.lock("b").is_none());
        assert_eq!(writer.clocks().len(), 1);
    }
}
