//! Which collectives find their ranks in step. Profilers begin on each rank at another moment, so the
//! wait in the first collective that two ranks share tells when they were started, and not who is slow:
//! as far as that explains it. A rank that began with the others and comes late has worked longer.

use litd_units::Nanos;

use super::{Entry, Matched};
use crate::timeline::Timeline;

/// From this part of how far ranks come apart on, when their recordings began explains it.
const EXPLAINS: f64 = 0.5;

/// Ranks that collectives have brought together, as trees of their places.
struct Together {
    above: Vec<usize>,
    /// When the last recording began of all ranks that are together, at the place of the one that stands for them:
    /// the others have waited for it.
    began: Vec<Nanos>,
}

impl Together {
    fn of(timelines: &[Timeline]) -> Self {
        let began = |timeline: &Timeline| timeline.kernels.first().map(|kernel| kernel.start);
        let began = timelines.iter().map(began);
        Self {
            above: Vec::from_iter(0..timelines.len()),
            began: began.map(Option::unwrap_or_default).collect(),
        }
    }

    /// The rank that stands for all that are together with this one.
    fn root(&mut self, mut rank: usize) -> usize {
        while let Some(&above) = self.above.get(rank).filter(|&&above| above != rank) {
            let next = self.above.get(above).copied().unwrap_or(above);
            if let Some(place) = self.above.get_mut(rank) {
                *place = next;
            }
            rank = next;
        }
        rank
    }

    fn began(&mut self, rank: usize) -> Nanos {
        let root = self.root(rank);
        self.began.get(root).copied().unwrap_or_default()
    }

    /// How much of what the ranks of a collective come apart their recordings began apart.
    fn explained(&mut self, row: &[Entry]) -> f64 {
        let first = row.iter().min_by_key(|entry| entry.start);
        let last = row.iter().max_by_key(|entry| entry.start);
        let Some((first, last)) = first.zip(last) else {
            return 0.0;
        };
        let began = self.began(last.rank) - self.began(first.rank);
        began.0 as f64 / (last.start - first.start).0.max(1) as f64
    }

    /// Brings the ranks of a collective together; whether all were in step before.
    fn meet(&mut self, row: &[Entry]) -> bool {
        let Some(first) = row.first() else {
            return true;
        };
        let explained = self.explained(row) >= EXPLAINS;
        let root = self.root(first.rank);
        let mut all = true;
        for entry in row {
            let other = self.root(entry.rank);
            if other != root {
                all = false;
                let began = self.began(root).max(self.began(other));
                if let Some(place) = self.above.get_mut(other) {
                    *place = root;
                }
                if let Some(place) = self.began.get_mut(root) {
                    *place = began;
                }
            }
        }
        all || !explained
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
    let mut together = Together::of(matched.timelines);
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
