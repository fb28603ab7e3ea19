//! The audit log: each write to a device, its author and its reason, on disk before the write is made; then its
//! outcome. Without the log no cap is moved, except to restore it.

use std::collections::BTreeMap;

use litd_api::EventKind;
use litd_api::audit::{Ending, Entry, Intent, Line, Outcome, Record, VERSION};
use litd_power::PowerError;
use litd_units::{Nanos, Watts};

use crate::outbox::Outbox;
use crate::record::Note;
use crate::store::{Appended, Store};

/// The author of all writes except overrides.
const LITD: &str = "litd";

/// A write that is under way, or whose effect has not been read yet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    intent: u64,
    cap: Watts,
    /// When the write was done.
    done: Option<Nanos>,
}

/// State of the log.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// The number of the last record.
    last: u64,
    /// Whether this daemon has written its first record.
    started: bool,
    /// Whether the file may end within a line.
    torn: bool,
    /// How many records could not be written and are not accounted for by a later record.
    lost: u64,
    /// Why the log can't be written; `None` while it can.
    trouble: Option<String>,
    pending: BTreeMap<usize, Pending>,
    /// The users who asked for overrides.
    hands: BTreeMap<usize, u32>,
}

/// A write that the log does not confirm: a device may do it late.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Undone {
    /// The device.
    pub address: String,
    /// The cap that was written.
    pub cap: Watts,
    /// Whether no later write to the device was asked for.
    pub is_last: bool,
    /// The cap that was read right after, where it is another one: the driver may have rounded.
    pub read_back: Option<Watts>,
    /// When the write was asked for, or failed, in seconds since 1970.
    pub unix_seconds: f64,
    /// The same in seconds since the node booted.
    pub boot_seconds: Option<f64>,
}

/// Trouble with the log, in words.
pub(super) fn unwritable(why: &str) -> String {
    format!("the audit log can't be written: {why}")
}

/// The records at the end of a log that can be read.
pub(super) fn intact(tail: &[u8]) -> impl DoubleEndedIterator<Item = Record> {
    let lines = tail.split(|&byte| byte == b'\n');
    lines.filter_map(|line| match Record::decode(line)? {
        Line::Intact(record) => Some(record),
        Line::Altered(_) | Line::Unreadable => None,
    })
}

/// The last write to a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Asked {
    seq: u64,
    /// Whether litd decided it, and no user who asked for an override.
    pub is_own: bool,
    /// The cap that was to be restored then.
    pub found: Option<Watts>,
    /// The cap that was written.
    pub cap: Watts,
    /// The cap that was read back, unless the log does not tell the outcome, or the write failed.
    pub read_back: Option<Watts>,
}

/// The last write to each device, by the end of a log.
pub(super) fn asked_last(records: &[Record]) -> BTreeMap<String, Asked> {
    let mut last: BTreeMap<String, Asked> = BTreeMap::new();
    for record in records {
        match &record.entry {
            Entry::Intent(intent) => {
                let asked = Asked {
                    seq: record.seq,
                    is_own: intent.actor == LITD,
                    found: intent.found_watts,
                    cap: intent.new_watts,
                    read_back: None,
                };
                last.insert(intent.device.clone(), asked);
            }
            Entry::Outcome(outcome) => {
                let asked = last.get_mut(&outcome.device);
                if let Some(asked) = asked.filter(|it| it.seq == outcome.intent) {
                    asked.read_back = outcome.read_back_watts;
                }
            }
            _ => {}
        }
    }
    last
}

/// The different caps that each device was told to hold, or held right after, by the end of a log.
pub(super) fn caps(records: &[Record]) -> BTreeMap<String, Vec<Watts>> {
    let mut caps: BTreeMap<String, Vec<Watts>> = BTreeMap::new();
    for record in records {
        let (device, cap) = match &record.entry {
            Entry::Intent(intent) => (&intent.device, Some(intent.new_watts)),
            Entry::Outcome(outcome) => (&outcome.device, outcome.read_back_watts),
            _ => continue,
        };
        let known = caps.entry(device.clone()).or_default();
        known.extend(cap.filter(|cap| !known.iter().any(|it| it.is_same_cap(*cap))));
    }
    caps
}

/// The writes that were not confirmed, by the end of a log.
pub(super) fn undone(records: &[Record]) -> Vec<Undone> {
    let mut undone = BTreeMap::new();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for record in records {
        let (unix_seconds, boot_seconds) = (record.unix_seconds, record.boot_seconds);
        match &record.entry {
            Entry::Intent(intent) => {
                let (address, cap) = (intent.device.clone(), intent.new_watts);
                last.insert(address.clone(), record.seq);
                let it = Undone {
                    address,
                    cap,
                    is_last: false,
                    read_back: None,
                    unix_seconds,
                    boot_seconds,
                };
                undone.insert(record.seq, it);
            }
            Entry::Outcome(outcome) if outcome.result == Ending::Confirmed => {
                undone.remove(&outcome.intent);
            }
            Entry::Outcome(outcome) => {
                if let Some(failed) = undone.get_mut(&outcome.intent) {
                    (failed.unix_seconds, failed.boot_seconds) = (unix_seconds, boot_seconds);
                    failed.read_back = outcome.read_back_watts;
                }
            }
            _ => {}
        }
    }
    for seq in last.values() {
        if let Some(it) = undone.get_mut(seq) {
            it.is_last = true;
        }
    }
    undone.into_values().collect()
}

impl Audit {
    /// Goes on after the last record that `tail`, the end of the log, holds.
    pub fn open(tail: &[u8]) -> Self {
        // A number so high is damage: no log reaches it.
        let is_number = |seq: &u64| *seq < u64::MAX / 2;
        let mut numbers = intact(tail).rev().map(|record| record.seq);
        Self {
            last: numbers.find(is_number).unwrap_or(0),
            torn: tail.last().is_some_and(|&byte| byte != b'\n'),
            ..Self::default()
        }
    }

    /// Why no cap is moved, if the log is the reason.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// User `uid` asks for an override.
    pub fn asked_by(&mut self, device: usize, uid: u32) {
        self.hands.insert(device, uid);
    }

    /// The author of a write: litd itself, or the user who asked for an override.
    pub fn actor(&self, device: usize, is_by_hand: bool) -> String {
        let uid = self.hands.get(&device).filter(|_| is_by_hand);
        uid.map_or_else(|| LITD.to_owned(), |uid| format!("uid {uid}"))
    }

    /// Records writes that are about to be made. Returns whether that failed.
    pub fn writes(
        &mut self,
        writes: Vec<(usize, Intent)>,
        store: &mut impl Store,
        out: &mut Outbox,
    ) -> bool {
        let caps = writes.iter().map(|(device, it)| (*device, it.new_watts));
        let caps: Vec<(usize, Watts)> = caps.collect();
        for (device, _) in &caps {
            self.pending.remove(device);
        }
        let entries = writes.into_iter().map(|(_, it)| Entry::Intent(it));
        let Some(first) = self.append(entries.collect(), store, out) else {
            return true;
        };
        for (intent, (device, cap)) in (first..).zip(caps) {
            let done = None;
            let pending = Pending { intent, cap, done };
            self.pending.insert(device, pending);
        }
        false
    }

    /// Writes an empty line, to see whether the log can be written.
    pub fn try_out(&mut self, store: &mut impl Store, out: &mut Outbox) {
        self.append(Vec::new(), store, out);
    }

    /// A write to the device of this address and name has ended.
    pub fn outcome(
        &mut self,
        device: usize,
        (address, name): (&str, &str),
        outcome: &Result<Watts, PowerError>,
        store: &mut impl Store,
        out: &mut Outbox,
    ) {
        let Some(pending) = self.pending.get_mut(&device) else {
            return;
        };
        pending.done = Some(out.now());
        let (intent, cap) = (pending.intent, pending.cap);
        let result = match outcome {
            Ok(held) if held.is_same_cap(cap) => Ending::Confirmed,
            Ok(_) => Ending::Differs,
            Err(_) => Ending::Failed,
        };
        let outcome = Entry::Outcome(Outcome {
            intent,
            device: address.to_owned(),
            name: name.to_owned(),
            result,
            read_back_watts: outcome.as_ref().ok().copied(),
            error: outcome.as_ref().err().map(ToString::to_string),
        });
        self.append(vec![outcome], store, out);
    }

    /// A device was read, by a question asked at `asked`: the first reading after a write tells the limit in
    /// force.
    pub fn reading(
        &mut self,
        device: usize,
        (address, name): (&str, &str),
        (asked, enforced): (Nanos, Option<Watts>),
        store: &mut impl Store,
        out: &mut Outbox,
    ) {
        let Some(pending) = self.pending.get(&device).copied() else {
            return;
        };
        if pending.done.is_none_or(|done| asked < done) {
            return;
        }
        self.pending.remove(&device);
        let Some(enforced_watts) = enforced.filter(|cap| cap.is_finite()) else {
            return;
        };
        let entry = Entry::Enforced {
            intent: pending.intent,
            device: address.to_owned(),
            name: name.to_owned(),
            enforced_watts,
        };
        self.append(vec![entry], store, out);
    }

    /// Appends records, or an empty line. Returns the number of the first of them, or nothing if that failed.
    fn append(
        &mut self,
        entries: Vec<Entry>,
        store: &mut impl Store,
        out: &mut Outbox,
    ) -> Option<u64> {
        let mut preface = Vec::new();
        // An empty line takes no number: it may be tried every second for as long as the log can't be written.
        let is_try = entries.is_empty();
        if !self.started && !is_try {
            preface.push(Entry::Start {
                version: VERSION,
                litd: env!("CARGO_PKG_VERSION").to_owned(),
            });
        }
        if self.lost > 0 && !is_try {
            let count = self.lost;
            preface.push(Entry::Lost { count });
        }
        let first = self.last + 1 + preface.len() as u64;
        let mut bytes = Vec::new();
        if self.torn || is_try {
            bytes.push(b'\n');
        }
        let (unix_seconds, boot_seconds) = (out.unix_seconds(), Some(out.now().as_secs_f64()));
        let mut encoded = Ok(());
        let mut last = self.last;
        for entry in preface.into_iter().chain(entries) {
            last += 1;
            let record = Record {
                seq: last,
                unix_seconds,
                boot_seconds,
                entry,
            };
            encoded = encoded.and_then(|()| record.encode(&mut bytes));
        }
        let written = encoded.map_err(std::io::Error::from);
        let written = written.and_then(|()| store.append_audit(&bytes));
        if let Ok(Appended::Anew) = written {
            let text = "somebody has moved or removed the audit log: litd has begun a new one";
            out.note(Note::warning(EventKind::Fault, text));
        }
        let why = written.err().map(|error| error.to_string());
        // A half-written record can't be read, and no number is given twice.
        let numbers = last - std::mem::replace(&mut self.last, last);
        self.torn = why.is_some();
        match why {
            None if is_try => {}
            None => (self.started, self.lost) = (true, 0),
            Some(_) => self.lost += numbers,
        }
        self.said(why, out).then_some(first)
    }

    /// Records whether the log can be written. Returns whether it can.
    fn said(&mut self, trouble: Option<String>, out: &mut Outbox) -> bool {
        let written = trouble.is_none();
        if !written {
            out.error("audit", "");
        }
        match (&self.trouble, &trouble) {
            (None, Some(why)) => {
                let text = super::only_restores(&unwritable(why));
                out.note(Note::warning(EventKind::Fault, text));
            }
            (Some(_), None) => {
                let text = "the audit log can be written again";
                out.note(Note::info(EventKind::Fault, text));
            }
            _ => {}
        }
        self.trouble = trouble;
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_after_the_last_line_that_is_whole() {
        let mut log = Vec::new();
        for seq in 1..=3 {
            let entry = Entry::Lost { count: 1 };
            let unix_seconds = 0.0;
            let record = Record {
                seq,
                unix_seconds,
                boot_seconds: None,
                entry,
            };
            record.encode(&mut log).unwrap();
        }
        let whole = Audit::open(&log);
        assert_eq!((whole.last, whole.torn), (3, false));
        let torn = Audit::open(&log[..log.len() - 5]);
        assert_eq!((torn.last, torn.torn), (2, true));
        // The tail may begin anywhere.
        let tail = Audit::open(&log[10..]);
        assert_eq!((tail.last, tail.torn), (3, false));
        assert_eq!(Audit::open(b"").last, 0);
        let (entry, unix_seconds) = (Entry::Lost { count: u64::MAX }, 0.0);
        let last = Record {
            seq: u64::MAX,
            unix_seconds,
            boot_seconds: None,
            entry,
        };
        last.encode(&mut log).unwrap();
        assert_eq!(Audit::open(&log).last, 3);
        assert_eq!(Audit::open(b"\xff\n\n{}\n").last, 0);
    }
}
