//! Which collectives find their ranks in step. Profilers begin on each rank at another moment, so the
//! wait in the first collective that two ranks share tells when they were started, and not who is slow.

use litd_units::Nanos;

use super::{Entry, Matched};

/// Ranks that collectives have brought together, as trees of their places.
struct Together(Vec<usize>);

impl Together {
    fn of(ranks: usize) -> Self {
        Self(Vec::from_iter(0..ranks))
    }

    /// The rank that stands for all that are together with this one.
    fn root(&mut self, mut rank: usize) -> usize {
        while let Some(&above) = self.0.get(rank).filter(|&&above| above != rank) {
            let next = self.0.get(above).copied().unwrap_or(above);
            if let Some(place) = self.0.get_mut(rank) {
                *place = next;
            }
            rank = next;
        }
        rank
    }

    /// Brings the ranks of a collective together; whether all were before.
    fn meet(&mut self, row: &[Entry]) -> bool {
        let Some(first) = row.first() else {
            return true;
        };
        let root = self.root(first.rank);
        let mut all = true;
        for entry in row {
            let other = self.root(entry.rank);
            if other != root {
                all = false;
                if let Some(place) = self.0.get_mut(other) {
                    *place = root;
                }
            }
        }
        all
    }
}

/// The places of all collectives in the order in which the last of their ranks come to them.
pub(super) fn in_order(matched: &Matched<'_>) -> Vec<u32> {
    let mut arrivals = Vec::<(Nanos, u32)>::with_capacity(matched.len());
    let mut at = 0;
    matched.each(|row| {
        let last = row.iter().map(|entry| entry.start).max();
        arrivals.push((last.unwrap_or_default(), at));
        at += 1;
    });
    arrivals.sort_unstable();
    arrivals.into_iter().map(|(_, at)| at).collect()
}

/// Whether each collective finds its ranks in step: others have brought them together before.
pub(super) fn in_step(matched: &Matched<'_>) -> Vec<bool> {
    let mut together = Together::of(matched.timelines.len());
    let mut found = vec![false; matched.len()];
    let mut row = Vec::new();
    for at in in_order(matched) {
        matched.row(at as usize, &mut row);
        if let Some(found) = found.get_mut(at as usize) {
            *found = together.meet(&row);
        }
    }
    found
}
