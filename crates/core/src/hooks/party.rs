//! Parties: who is charged for the room that tables take. A pod's processes can be of any number of user ids, and all
//! of them together are one party; otherwise a crowd of made-up users would push other users' entries out.
//!
//! Tables have the latest last, in memory and on disk, so the place of an entry is its age.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A user of the node, or a pod with all its users.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A pod or container.
    Pod(String),
    /// A user id as directory services give them out, and as rootless containers have them: several may be one user's.
    Unnamed(u32),
    /// A user of the node's own.
    User(u32),
}

/// Of kinds of parties that have as much as each other the first makes room: most pods that have told something have
/// ended since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pod,
    Unnamed,
    User,
}

/// An entry of a table that several parties may have told.
pub trait Told {
    /// The parties whose word it is, each once, the latest last; none if it is not theirs to lose, but an
    /// administrator's.
    fn parties(&self) -> Vec<Party>;

    /// Drops this party's word. Returns whether nobody's is left.
    fn forget(&mut self, party: &Party) -> bool;
}

/// Each party once, where it is first.
pub fn distinct(parties: impl Iterator<Item = Party>) -> Vec<Party> {
    let mut seen = BTreeSet::new();
    parties.filter(|it| seen.insert(it.clone())).collect()
}

/// Takes words from the parties that have most, the oldest first, until no more than `most` entries are left that are
/// parties' own. An administrator's entries have as much room besides, and of these the oldest goes. The last entry is
/// the one that is to be kept: it stays as it is, so nobody's word is lost when it has just been told.
pub fn make_room<T: Told>(entries: &mut Vec<T>, most: usize) {
    if entries.len() <= most {
        return;
    }
    let mut words = Words::of(entries);
    loop {
        let own = words.told.iter().filter(|it| !it.is_empty()).count();
        let emptied = if entries.len() - own > most {
            words.told.iter().position(Vec::is_empty)
        } else if own > most
            && let Some((at, party)) = words.oldest_of_most()
        {
            let party = words.drop(at, party);
            let is_nobodys = entries.get_mut(at).is_some_and(|it| it.forget(party));
            is_nobodys.then_some(at)
        } else {
            return;
        };
        if let Some(at) = emptied {
            entries.remove(at);
            words.told.remove(at);
        }
    }
}

/// The words of a table. Parties are numbers here: there may be thousands of words to go through, as often.
struct Words {
    parties: Vec<Party>,
    /// How many words each party has.
    counts: Vec<usize>,
    /// How many those have together that may be one user.
    unnamed: usize,
    /// Whose word each entry is, in the order of [`Told::parties`].
    told: Vec<Vec<usize>>,
}

impl Words {
    fn of<T: Told>(entries: &[T]) -> Self {
        let mut words = Self {
            parties: Vec::new(),
            counts: Vec::new(),
            unnamed: 0,
            told: Vec::new(),
        };
        let mut numbers = BTreeMap::new();
        for entry in entries {
            let parties = entry.parties().into_iter();
            let told = parties.map(|party| match numbers.entry(party) {
                Entry::Occupied(known) => words.count(*known.get()),
                Entry::Vacant(new) => {
                    words.parties.push(new.key().clone());
                    words.counts.push(0);
                    words.count(*new.insert(words.parties.len() - 1))
                }
            });
            let told = told.collect();
            words.told.push(told);
        }
        words
    }

    /// Counts a word of this party.
    fn count(&mut self, party: usize) -> usize {
        self.counts[party] += 1;
        self.unnamed += usize::from(self.is_unnamed(party));
        party
    }

    /// Drops this party's word in this entry.
    fn drop(&mut self, at: usize, party: usize) -> &Party {
        self.told[at].retain(|&it| it != party);
        self.counts[party] -= 1;
        self.unnamed -= usize::from(self.is_unnamed(party));
        &self.parties[party]
    }

    fn is_unnamed(&self, party: usize) -> bool {
        matches!(self.parties[party], Party::Unnamed(_))
    }

    /// Whose word makes room, and in which entry. It is one of the party that has most, where parties that may be one
    /// user count together, and of these the one that has most is meant. Of equal ones a pod comes before a user, and
    /// then whoever told the oldest word. The words of the last entry count, but none of them is meant.
    fn oldest_of_most(&self) -> Option<(usize, usize)> {
        let (_, older) = self.told.split_last()?;
        let older = older.iter().enumerate();
        let words = older.flat_map(|(at, told)| told.iter().map(move |&party| (at, party)));
        // Of several the first is the minimum.
        words.min_by_key(|&(_, party)| {
            let own = self.counts[party];
            let (kind, crowd) = match self.parties[party] {
                Party::Pod(_) => (Kind::Pod, own),
                Party::Unnamed(_) => (Kind::Unnamed, self.unnamed),
                Party::User(_) => (Kind::User, own),
            };
            (Reverse(crowd), kind, Reverse(own))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Told for Vec<Party> {
        fn parties(&self) -> Vec<Party> {
            self.clone()
        }

        fn forget(&mut self, party: &Party) -> bool {
            self.retain(|it| it != party);
            self.is_empty()
        }
    }

    fn told_by(users: &[u32]) -> Vec<Party> {
        users.iter().copied().map(Party::User).collect()
    }

    fn pod(name: &str) -> Vec<Party> {
        vec![Party::Pod(name.to_owned())]
    }

    fn unnamed(uid: u32) -> Vec<Party> {
        vec![Party::Unnamed(uid)]
    }

    #[test]
    fn who_has_most_pays_and_with_the_oldest() {
        let mut entries: Vec<_> = [&[1][..], &[2], &[3], &[2], &[]].map(told_by).into();
        make_room(&mut entries, 3);
        assert_eq!(entries, [&[1][..], &[3], &[2], &[]].map(told_by));
    }

    #[test]
    fn what_several_have_told_stays_for_the_others() {
        let mut entries: Vec<_> = [&[1, 2][..], &[2], &[2], &[3]].map(told_by).into();
        make_room(&mut entries, 3);
        assert_eq!(entries, [&[1][..], &[2], &[3]].map(told_by));
    }

    #[test]
    fn of_equal_ones_a_pod_makes_room_before_a_user() {
        let mut entries = vec![told_by(&[1]), pod("a"), unnamed(7), pod("b"), told_by(&[2])];
        for left in [
            vec![told_by(&[1]), unnamed(7), pod("b"), told_by(&[2])],
            vec![told_by(&[1]), unnamed(7), told_by(&[2])],
            vec![told_by(&[1]), told_by(&[2])],
        ] {
            make_room(&mut entries, left.len());
            assert_eq!(entries, left);
        }
    }

    #[test]
    fn of_equal_ones_the_oldest_goes_whatever_its_name_is() {
        for make in [pod as fn(&str) -> _, |name| unnamed(name.len() as u32)] {
            let mut entries = ["ccc", "a", "bb", "dddd"].map(make).to_vec();
            make_room(&mut entries, 2);
            assert_eq!(entries, ["bb", "dddd"].map(make));
        }
        let mut entries: Vec<_> = [&[3][..], &[1], &[2]].map(told_by).into();
        make_room(&mut entries, 2);
        assert_eq!(entries, [&[1][..], &[2]].map(told_by));
    }

    #[test]
    fn what_has_just_been_told_stays_whosever_it_is() {
        for latest in [pod("a"), unnamed(7)] {
            let mut entries = vec![told_by(&[2]), told_by(&[1]), latest.clone()];
            make_room(&mut entries, 2);
            assert_eq!(entries, [told_by(&[1]), latest.clone()]);
            // It costs the users one entry, and not one for each that comes after it.
            entries.push(latest.clone());
            make_room(&mut entries, 2);
            assert_eq!(entries, [told_by(&[1]), latest]);
        }
    }

    #[test]
    fn a_crowd_of_ids_that_may_be_one_user_makes_room_and_in_it_the_id_that_has_most() {
        let mut entries = vec![
            unnamed(7),
            told_by(&[1]),
            unnamed(8),
            unnamed(8),
            told_by(&[1]),
        ];
        make_room(&mut entries, 4);
        let left = [unnamed(7), told_by(&[1]), unnamed(8), told_by(&[1])];
        assert_eq!(entries, left);
    }

    #[test]
    fn administrators_and_others_take_no_room_of_each_other() {
        let mut entries: Vec<_> = [&[][..], &[], &[1], &[2], &[]].map(told_by).into();
        make_room(&mut entries, 2);
        assert_eq!(entries, [&[][..], &[1], &[2], &[]].map(told_by));
        make_room(&mut entries, 1);
        assert_eq!(entries, [&[2][..], &[]].map(told_by));
    }
}
