//! Files that are not read, each of which is one error.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::search::Refusal;

/// So many errors of a user's files are in the log in so long: any user can make any number of files.
const MOST_OF_A_USER: u32 = 10;
const WHILE: Duration = Duration::from_secs(600);

/// So many files are named in answers.
const SHOWN: usize = 20;

/// Files that are not read, by their ids.
#[derive(Debug, Default)]
pub(super) struct Refused {
    files: BTreeMap<String, String>,
    /// Errors that were told of each user's files, and since when.
    told: BTreeMap<u32, (Instant, u32)>,
}

impl Refused {
    /// The ids of these files.
    pub fn ids(&self) -> BTreeSet<String> {
        self.files.keys().cloned().collect()
    }

    /// Files that are not there any more are forgotten.
    pub fn keep(&mut self, there: &BTreeSet<String>, now: Instant) {
        self.files.retain(|id, _| there.contains(id));
        self.told.retain(|_, (since, _)| now < *since + WHILE);
    }

    /// A file is not to be read. Returns what is to be told of it, in words, if anything.
    pub fn add(&mut self, refusal: Refusal, now: Instant) -> Option<String> {
        let Refusal { id, name, uid, why } = refusal;
        let text = format!("{name} of user {uid} {why}");
        if self.files.insert(id, text.clone()).is_some() {
            return None;
        }
        let (_, told) = self.told.entry(uid).or_insert((now, 0));
        *told = told.saturating_add(1);
        match (*told).cmp(&MOST_OF_A_USER) {
            std::cmp::Ordering::Less => Some(format!("no ring is read there: {text}")),
            std::cmp::Ordering::Equal => Some(format!(
                "no ring is read there: {text}; further such files of user {uid} are not told of for {} minutes",
                WHILE.as_secs() / 60
            )),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// Sentences on some of the files.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.files.values().take(SHOWN).cloned().collect();
        if self.files.len() > SHOWN {
            words.push(format!("and {} more", self.files.len() - SHOWN));
        }
        words
    }
}
