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
    /// When each rank was brought together with others last, and what `began` said of it before: collectives that it had
    /// come to by then did not find it in step with these.
    joined: Vec<Option<(Nanos, Nanos)>>,
}

impl Together {
    fn of(timelines: &[Timeline]) -> Self {
        let began = |timeline: &Timeline| timeline.kernels.first().map(|kernel| kernel.start);
        let began = timelines.iter().map(began);
        Self {
            above: Vec::from_iter(0..timelines.len()),
            began: began.map(Option::unwrap_or_default).collect(),
            joined: vec![None; timelines.len()],
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

    /// What is known of when the recordings of a rank and of those that are together with it began, at a time when it may not
    /// have been together with all of them; and whether it was.
    fn began_at(&mut self, rank: usize, time: Nanos) -> (Nanos, bool) {
        match self.joined.get(rank).copied().flatten() {
            Some((joined, before)) if joined > time => (before, false),
            _ => (self.began(rank), true),
        }
    }

    /// Whether when their recordings began explains how far the ranks of a collective come apart.
    fn is_explained(&mut self, [first, last]: [&Entry; 2]) -> bool {
        let [early, late] = [first, last].map(|entry| self.began_at(entry.rank, first.start).0);
        let apart = (last.start - first.start).0.max(1) as f64;
        (late - early).0 as f64 / apart >= EXPLAINS
    }

    /// Brings the ranks of a collective together; whether all were in step before.
    fn meet(&mut self, row: &[Entry]) -> bool {
        let first = row.iter().min_by_key(|entry| entry.start);
        let last = row.iter().max_by_key(|entry| entry.start);
        let Some((first, last)) = first.zip(last) else {
            return true;
        };
        let explained = self.is_explained([first, last]);
        let root = self.root(first.rank);
        let mut all = true;
        for entry in row {
            all &= self.began_at(entry.rank, first.start).1;
            let other = self.root(entry.rank);
            if other != root {
                all = false;
                self.join([root, other], last.start);
            }
        }
        all || !explained
    }

    /// Brings all ranks that are together with one of two together at this time; the first stands for them.
    fn join(&mut self, [root, other]: [usize; 2], time: Nanos) {
        for rank in 0..self.above.len() {
            if [root, other].contains(&self.root(rank)) {
                let before = self.began(rank);
                if let Some(joined) = self.joined.get_mut(rank) {
                    *joined = Some((time, before));
                }
            }
        }
        let began = self.began(root).max(self.began(other));
        if let Some(place) = self.above.get_mut(other) {
            *place = root;
        }
        if let Some(place) = self.began.get_mut(root) {
            *place = began;
        }
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
