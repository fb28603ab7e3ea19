//! The texts of one trace, and what numbers stand for them.

use std::collections::HashMap;

use crate::gather::Fault;
use crate::timeline::{NameId, NameTable};

/// The most texts that are kept of one file, and their bytes: a compressed file of a few megabytes
/// could fill any memory otherwise.
const TEXTS: usize = 1 << 22;
const BYTES: usize = 128 << 20;
/// Numbers below this one are small.
const NUMBERS: usize = 256;
/// So many numbers may be left out between two of a table that is a list.
const GAP: usize = 16;

/// Texts, each kept once.
#[derive(Default)]
pub(super) struct Texts {
    table: NameTable,
    bytes: usize,
    /// Those of small numbers, such as queues have.
    numbers: Vec<Option<NameId>>,
}

impl Texts {
    pub(super) fn intern(&mut self, text: &str) -> Result<NameId, Fault> {
        let known = self.table.len();
        let id = self.table.intern(text);
        if self.table.len() > known {
            self.bytes += text.len();
            if self.table.len() > TEXTS || self.bytes > BYTES {
                return Err(Fault::Value {
                    event: known as u64,
                    what: format!(
                        "the trace has more than {TEXTS} names, or {} MiB of them, the most that are kept; record less",
                        BYTES >> 20
                    ),
                });
            }
        }
        Ok(id)
    }

    /// A number as text.
    pub(super) fn intern_number(&mut self, number: i64) -> Result<NameId, Fault> {
        let small = usize::try_from(number).ok().filter(|at| *at < NUMBERS);
        let Some(at) = small else {
            return self.intern(&number.to_string());
        };
        self.numbers.resize(NUMBERS, None);
        if let Some(known) = self.numbers.get(at).copied().flatten() {
            return Ok(known);
        }
        let id = self.intern(&number.to_string())?;
        if let Some(slot) = self.numbers.get_mut(at) {
            *slot = Some(id);
        }
        Ok(id)
    }

    pub(super) fn get(&self, id: NameId) -> &str {
        self.table.get(id)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}

/// What numbers stand for: a list as far as they are dense, as encoders count from 1.
pub(super) struct Ids<T> {
    list: Vec<Option<T>>,
    sparse: HashMap<u64, T>,
}

impl<T> Default for Ids<T> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            sparse: HashMap::new(),
        }
    }
}

impl<T: Copy> Ids<T> {
    pub(super) fn get(&self, id: u64) -> Option<T> {
        let listed = usize::try_from(id).ok().and_then(|id| self.list.get(id));
        match listed {
            Some(Some(listed)) => Some(*listed),
            _ => self.sparse.get(&id).copied(),
        }
    }

    pub(super) fn insert(&mut self, id: u64, value: T) {
        let at = usize::try_from(id).ok();
        match at.filter(|at| *at < self.list.len() + GAP) {
            Some(at) => {
                if at >= self.list.len() {
                    self.list.resize_with(at + 1, || None);
                }
                if let Some(slot) = self.list.get_mut(at) {
                    *slot = Some(value);
                }
            }
            None => {
                self.sparse.insert(id, value);
            }
        }
    }

    /// How many there are at most.
    pub(super) fn len(&self) -> usize {
        self.list.len() + self.sparse.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in tests a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn the_last_declaration_counts_whatever_the_order_of_numbers() {
        let mut ids = Ids::default();
        let mut plain = HashMap::new();
        for (value, id) in [1_000, 1, 2, 30, u64::MAX, 1, 17, 30, 0, 33, 40, 1_000]
            .into_iter()
            .enumerate()
        {
            ids.insert(id, value);
            plain.insert(id, value);
            for id in (0..1_100).chain([u64::MAX]) {
                assert_eq!(ids.get(id), plain.get(&id).copied(), "{id}");
            }
        }
    }

    #[test]
    fn texts_have_an_end() {
        let mut texts = Texts::default();
        let long = "x".repeat(1 << 20);
        let kept = (0..).take_while(|i| texts.intern(&format!("{long}{i}")).is_ok());
        assert_eq!(kept.count(), 127);
    }
}
