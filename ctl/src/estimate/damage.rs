//! What is wrong with the telemetry that was read: counted, with the first place where it occurs.

use std::collections::BTreeMap;

use serde::Serialize;

/// Kinds of damage are few; where words of the input make more, these are one kind.
const MOST_KINDS: usize = 200;
/// So much of a value is shown.
const SHOWN: usize = 40;

/// One kind of damage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kind {
    /// What is wrong, and what became of it.
    pub what: String,
    /// How often.
    pub count: u64,
    /// Where first.
    pub first: String,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Damage {
    kinds: BTreeMap<String, (u64, String)>,
}

impl Damage {
    /// Counts one.
    pub fn add(&mut self, what: &str, place: impl FnOnce() -> String) {
        self.count(what, 1, place);
    }

    /// Counts so many, if any.
    pub fn count(&mut self, what: &str, count: u64, place: impl FnOnce() -> String) {
        if count == 0 {
            return;
        }
        if let Some(known) = self.kinds.get_mut(what) {
            known.0 = known.0.saturating_add(count);
            return;
        }
        let what = match self.kinds.len() < MOST_KINDS {
            true => what,
            false => "values of other kinds that can't be read; they are left out",
        };
        let kind = self
            .kinds
            .entry(what.to_owned())
            .or_insert_with(|| (0, place()));
        kind.0 = kind.0.saturating_add(count);
    }

    /// What there is, the most frequent first.
    pub fn kinds(&self) -> Vec<Kind> {
        let kinds = self.kinds.iter().map(|(what, (count, first))| Kind {
            what: what.clone(),
            count: *count,
            first: first.clone(),
        });
        let mut kinds = Vec::from_iter(kinds);
        kinds.sort_by_key(|it| std::cmp::Reverse(it.count));
        kinds
    }
}

/// A value of the input, fit for a terminal.
pub fn shown(text: &str) -> String {
    let plain = text
        .chars()
        .map(|it| if it.is_control() { '\u{FFFD}' } else { it });
    plain.take(SHOWN).collect()
}
