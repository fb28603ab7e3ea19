//! Ranks that transfers lead to from one to the next, as along the stages of a pipeline.

use std::collections::{BTreeMap, HashMap, HashSet};

/// Two ranks that transfer something to each other, the lower first.
pub(super) type Pair = (u32, u32);

/// The pair of these ranks; none of one rank alone.
pub(super) fn pair(one: u32, other: u32) -> Option<Pair> {
    (one != other).then_some((one.min(other), one.max(other)))
}

/// All chains of some pairs: each has the ranks that pairs lead to from any of its ranks.
pub(super) struct Chains {
    /// How many ranks each has.
    pub(super) lengths: Vec<usize>,
    /// The chain of each rank, and its place among the ranks of that in their order.
    places: HashMap<u32, (usize, usize)>,
}

impl Chains {
    pub(super) fn of(pairs: impl Iterator<Item = Pair>) -> Self {
        let mut next_to = BTreeMap::<u32, Vec<u32>>::new();
        for (one, other) in pairs {
            next_to.entry(one).or_default().push(other);
            next_to.entry(other).or_default().push(one);
        }
        let mut chains = Self {
            lengths: Vec::new(),
            places: HashMap::new(),
        };
        let mut seen = HashSet::new();
        for &first in next_to.keys() {
            let mut chain = Vec::new();
            let mut ahead = Vec::from_iter(seen.insert(first).then_some(first));
            while let Some(rank) = ahead.pop() {
                chain.push(rank);
                let others = next_to.get(&rank).into_iter().flatten();
                ahead.extend(others.filter(|&&other| seen.insert(other)));
            }
            if chain.is_empty() {
                continue;
            }
            chain.sort_unstable();
            let number = chains.lengths.len();
            let places = chain.iter().enumerate();
            let places = places.map(|(place, &rank)| (rank, (number, place)));
            chains.places.extend(places);
            chains.lengths.push(chain.len());
        }
        chains
    }

    /// The place of a rank in its chain, and how long that is; none where it is in no pair.
    pub(super) fn place(&self, rank: u32) -> Option<(usize, usize)> {
        let &(chain, place) = self.places.get(&rank)?;
        Some((place, self.lengths.get(chain).copied()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_found_in_whatever_order_pairs_come() {
        // Each pair alone joins what comes before it: a pass over all of them would be needed for each.
        let pairs = (0..200_000).rev().map(|rank| (rank, rank + 1));
        let chains = Chains::of(pairs.chain([(500_001, 500_007), (500_007, 500_003)]));
        assert_eq!(chains.lengths, [200_001, 3]);
        assert_eq!(chains.place(77), Some((77, 200_001)));
        assert_eq!(chains.place(500_007), Some((2, 3)));
        assert_eq!(chains.place(500_000), None);
    }
}
