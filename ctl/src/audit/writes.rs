//! Writes, put together from their records.

use std::collections::BTreeMap;

use litd_api::audit::{Ending, Entry, Intent, Line, Outcome, Record};
use litd_units::Watts;

/// A write of a cap.
#[derive(Debug)]
pub struct Write {
    /// When it was about to be made, in seconds since 1970.
    pub unix_seconds: f64,
    /// The intended cap, its author and its reason.
    pub intent: Intent,
    /// The outcome, once known.
    pub outcome: Option<Outcome>,
    /// The cap in force afterwards, where the driver tells.
    pub enforced: Option<Watts>,
    /// Whether any of its records was altered.
    pub altered: bool,
}

impl Write {
    /// The outcome, in words.
    pub fn became(&self) -> String {
        let Some(outcome) = &self.outcome else {
            return "outcome unknown".to_owned();
        };
        let held = match outcome.read_back_watts {
            Some(held) => format!("holds {held}"),
            None => match &outcome.error {
                Some(error) => format!("FAILED: {}", error.replace('\n', " ")),
                None => outcome.result.name().to_owned(),
            },
        };
        match self
            .enforced
            .filter(|cap| outcome.read_back_watts != Some(*cap))
        {
            Some(enforced) => format!("{held}, {enforced} in force"),
            None => held,
        }
    }

    /// Whether the device does not hold what it was set to, as far as is known.
    pub fn is_failed(&self) -> bool {
        let outcome = self.outcome.as_ref();
        outcome.is_none_or(|outcome| outcome.result != Ending::Confirmed)
    }
}

/// Writes by the number of their first record.
#[derive(Debug, Default)]
pub struct Writes {
    known: BTreeMap<u64, Write>,
    /// Writes up to this number were given out.
    taken: u64,
}

/// So many writes are remembered after they were given out, for records that follow.
const KEPT: usize = 10_000;

impl Writes {
    /// Takes note of a record.
    pub fn add(&mut self, line: &Line) {
        let (record, altered) = match line {
            Line::Intact(record) => (record, false),
            Line::Altered(record) => (record, true),
            Line::Unreadable => return,
        };
        if let Entry::Intent(intent) = &record.entry {
            let write = Write {
                unix_seconds: record.unix_seconds,
                intent: intent.clone(),
                outcome: None,
                enforced: None,
                altered,
            };
            self.known.insert(record.seq, write);
            return;
        }
        let number = number(record);
        let Some(write) = number.and_then(|number| self.known.get_mut(&number)) else {
            return;
        };
        write.altered |= altered;
        match &record.entry {
            Entry::Outcome(outcome) => write.outcome = Some(outcome.clone()),
            Entry::Enforced { enforced_watts, .. } => write.enforced = Some(*enforced_watts),
            _ => {}
        }
    }

    /// The write that a record is about.
    pub fn of(&self, record: &Record) -> Option<&Write> {
        self.known.get(&number(record)?)
    }

    /// Writes that were begun before a moment and not given out yet.
    pub fn take(&mut self, until: f64) -> Vec<&Write> {
        while self.known.len() > KEPT
            && self
                .known
                .first_key_value()
                .is_some_and(|(&number, _)| number <= self.taken)
        {
            self.known.pop_first();
        }
        let from = self.taken + 1;
        let ready = self.known.range(from..);
        let ready = ready.take_while(|(_, write)| write.unix_seconds <= until);
        let (numbers, writes): (Vec<u64>, Vec<&Write>) =
            ready.map(|(&number, write)| (number, write)).unzip();
        self.taken = numbers.last().copied().unwrap_or(self.taken);
        writes
    }
}

/// The number of the first record of the write that a record is about.
fn number(record: &Record) -> Option<u64> {
    match &record.entry {
        Entry::Intent(_) => Some(record.seq),
        Entry::Outcome(Outcome { intent, .. }) | Entry::Enforced { intent, .. } => Some(*intent),
        Entry::Start { .. } | Entry::Lost { .. } => None,
    }
}
