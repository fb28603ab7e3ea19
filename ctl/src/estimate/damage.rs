//! Damage to the telemetry: counted, with the first place where it occurs.

use std::collections::BTreeMap;

use litd_traces::printable;
use serde::Serialize;

/// Kinds of damage are few; where words of the input make more, these are one kind.
const MOST_KINDS: usize = 200;
/// So much of a value is shown; a GPU's UUID is as long.
const SHOWN: usize = 40;
/// So many names are listed.
const LISTED: usize = 40;

/// A kind of damage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kind {
    /// The damage, and its consequence.
    pub what: String,
    /// How often.
    pub count: u64,
    /// Where first.
    pub first: String,
}

/// All damage.
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

    /// The kinds of damage, the most frequent first.
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

/// A value or a name of the input, fit for a terminal: cut where it is long.
pub fn shown(text: &str) -> String {
    let cut = text.char_indices().nth(SHOWN);
    match cut.and_then(|it| text.get(..it.0)) {
        None => printable(text),
        Some(begin) => format!("{}…", printable(begin)),
    }
}

/// Names of columns in a row, not too many.
pub fn listed(names: &[String]) -> String {
    let first = names.iter().take(LISTED).map(|it| shown(it.trim()));
    let rest = names.len().saturating_sub(LISTED);
    let rest = (rest > 0).then(|| format!("and {rest} more"));
    Vec::from_iter(first.chain(rest)).join(", ")
}
