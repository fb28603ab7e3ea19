//! Parties: who is charged for the room that tables take. A pod's processes can be of any number of user ids, and all
//! of them together are one party; otherwise a crowd of made-up users would push other users' entries out.

use std::collections::{BTreeMap, BTreeSet};

/// A user of the node, or a pod with all its users. Of parties that have as much as each other the first in this order
/// makes room: most pods that have told something have ended since.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A pod or container.
    Pod(String),
    /// A user id as directory services give them out, and as rootless containers have them: several may be one user's.
    Unnamed(u32),
    /// A user of the node's own.
    User(u32),
}

impl Party {
    /// All parties that may be one user.
    fn crowd(&self) -> Self {
        match self {
            Self::Unnamed(_) => Self::Unnamed(0),
            other => other.clone(),
        }
    }
}

/// An entry of a table that several parties may have told.
pub trait Told {
    /// The parties whose word it is; empty if it is not theirs to lose, but an administrator's.
    fn parties(&self) -> BTreeSet<Party>;

    /// Drops this party's word. Returns whether nobody's is left.
    fn forget(&mut self, party: &Party) -> bool;
}

/// The party that has most, if any has something; of equal ones the first. Parties that may be one user count as one,
/// and of these the one that has most is meant.
pub fn largest(parties: impl Iterator<Item = Party>) -> Option<Party> {
    let parties: Vec<Party> = parties.collect();
    let crowd = most_of(parties.iter().map(Party::crowd))?;
    most_of(parties.into_iter().filter(|it| it.crowd() == crowd))
}

fn most_of(parties: impl Iterator<Item = Party>) -> Option<Party> {
    let mut counts: BTreeMap<Party, usize> = BTreeMap::new();
    for party in parties {
        *counts.entry(party).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    counts
        .into_iter()
        .find_map(|(party, count)| (count == most).then_some(party))
}

/// Takes words from the parties that have most, the oldest first, until no more than `most` entries are left. What is
/// an administrator's goes last, the oldest first. The oldest entry is the first one.
pub fn make_room<T: Told>(entries: &mut Vec<T>, most: usize) {
    while entries.len() > most {
        match largest(entries.iter().flat_map(Told::parties)) {
            Some(party) => forget_oldest_of(entries, &party),
            None => drop(entries.remove(0)),
        }
    }
}

/// Drops this party's word from the oldest entry that has it, and the entry if it was nobody else's.
fn forget_oldest_of<T: Told>(entries: &mut Vec<T>, party: &Party) {
    let oldest = entries.iter().position(|it| it.parties().contains(party));
    if let Some(at) = oldest
        && entries.get_mut(at).is_none_or(|it| it.forget(party))
    {
        entries.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Told for BTreeSet<Party> {
        fn parties(&self) -> BTreeSet<Party> {
            self.clone()
        }

        fn forget(&mut self, party: &Party) -> bool {
            self.remove(party);
            self.is_empty()
        }
    }

    fn told_by(users: &[u32]) -> BTreeSet<Party> {
        users.iter().copied().map(Party::User).collect()
    }

    #[test]
    fn who_has_most_pays_and_with_the_oldest() {
        let mut entries: Vec<_> = [&[1][..], &[2], &[3], &[2], &[]].map(told_by).into();
        make_room(&mut entries, 4);
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
        let pod = |name: &str| BTreeSet::from([Party::Pod(name.to_owned())]);
        let mut entries = vec![told_by(&[1]), pod("a"), pod("b"), told_by(&[2])];
        make_room(&mut entries, 2);
        assert_eq!(entries, [told_by(&[1]), told_by(&[2])]);
    }

    #[test]
    fn a_crowd_of_ids_that_may_be_one_user_makes_room_and_in_it_the_id_that_has_most() {
        let unnamed = |uid| BTreeSet::from([Party::Unnamed(uid)]);
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
    fn an_administrators_go_last() {
        let mut entries: Vec<_> = [&[][..], &[], &[1], &[2]].map(told_by).into();
        make_room(&mut entries, 2);
        assert_eq!(entries, [&[][..], &[]].map(told_by));
        make_room(&mut entries, 1);
        assert_eq!(entries.len(), 1);
    }
}
