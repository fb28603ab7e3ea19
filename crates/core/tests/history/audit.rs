//! The audit log, as somebody reads it who has nothing else: every write has its record before
//! it, with what was set, and its outcome after it, with what the device held.

use std::collections::BTreeMap;

use litd_api::audit::{Ending, Entry, Line, Outcome, Record};

use crate::hardware::micro;
use crate::world::World;

/// The part of the log that was read so far.
#[derive(Debug, Default)]
pub struct Log {
    /// So many bytes.
    read: usize,
    last: u64,
    /// Intents whose write has not been seen yet, by address: number and cap.
    intents: BTreeMap<String, (u64, i64)>,
    outcomes: BTreeMap<u64, Outcome>,
    /// The record of the write that each device was told last.
    issued: BTreeMap<usize, u64>,
}

impl World {
    /// Reads what was appended since.
    fn read_audit(&mut self) {
        let from = self.ledger.log.read;
        let (text, failed) = self
            .disk
            .with(|disk| (disk.audit[from..].to_vec(), disk.audit_failures > 0));
        let whole = text.iter().rposition(|&byte| byte == b'\n');
        let text = &text[..whole.map_or(0, |at| at + 1)];
        self.ledger.log.read += text.len();
        for line in text.split(|&byte| byte == b'\n') {
            match Record::decode(line) {
                None => {}
                Some(Line::Intact(record)) => self.recorded(record),
                // Half a line of an append that failed.
                Some(_) if failed => {}
                Some(other) => self.broke("12 audit", format!("{other:?}")),
            }
        }
    }

    fn recorded(&mut self, record: Record) {
        let log = &mut self.ledger.log;
        if record.seq <= log.last {
            let text = format!("record {} after {}", record.seq, log.last);
            return self.broke("12 audit", text);
        }
        log.last = record.seq;
        match record.entry {
            Entry::Intent(it) => {
                let asked = (record.seq, micro(it.new_watts));
                log.intents.insert(it.device, asked);
            }
            Entry::Outcome(it) => {
                log.outcomes.insert(it.intent, it);
            }
            Entry::Start { .. } | Entry::Enforced { .. } | Entry::Lost { .. } => {}
        }
    }

    /// The daemon is dead: what it meant to write it will not.
    pub fn audit_ends(&mut self) {
        self.read_audit();
        self.ledger.log.intents.clear();
        self.ledger.log.issued.clear();
    }

    /// A device is about to be set.
    pub fn check_recorded(&mut self, device: usize, cap: i64, give_back: bool) {
        self.read_audit();
        let address = &self.hw[device].identity.address;
        let log = &mut self.ledger.log;
        log.issued.remove(&device);
        match log.intents.remove(address) {
            Some((seq, asked)) if asked == cap => {
                log.issued.insert(device, seq);
            }
            // A full disk never stops giving back; what it holds may be of a write that was put off.
            _ if give_back && self.disk.with(|disk| disk.audit_full) => {}
            other => {
                let text = format!("device {device} is set to {cap} µW, recorded is {other:?}");
                self.broke("12 audit", text);
            }
        }
    }

    /// The record of the write that a device does now.
    pub fn record_of(&self, device: usize) -> Option<u64> {
        self.ledger.log.issued.get(&device).copied()
    }

    /// A write has ended and the daemon was told.
    pub fn check_outcome(&mut self, intent: Option<u64>, held: Option<i64>) {
        self.read_audit();
        let Some(intent) = intent else { return };
        let outcome = self.ledger.log.outcomes.remove(&intent);
        let excused = self.disk.with(|disk| disk.audit_full || disk.dead);
        match outcome {
            None if excused => {}
            Some(it) if it.read_back_watts.map(micro) == held => {
                let ended = (it.result == Ending::Failed) == held.is_none();
                if !ended {
                    self.broke("12 audit", format!("{it:?}"));
                }
            }
            other => self.broke(
                "12 audit",
                format!("outcome of {intent}: {other:?}, {held:?}"),
            ),
        }
    }
}
