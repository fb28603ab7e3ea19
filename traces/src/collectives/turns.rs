//! Whether the same rank comes late to the collectives of its group again and again, or ranks come late in turn.

use std::collections::{BTreeSet, HashMap};

use litd_units::Nanos;

use super::{Entry, waits};
use crate::groups::Group;
use crate::timeline::{NonMax, Timeline};

/// How a rank comes to the collectives of its group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lag {
    /// Of what the others wait for whoever comes last, the share that they wait for this rank.
    pub blame: f64,
    /// The same where each iteration counts as one collective: a rank that is late to one collective because it waited in
    /// another is not to blame.
    pub net: f64,
    /// By how much later than the mean rank it came to all of them together.
    pub later: Nanos,
    /// By how many of its standard errors the rank comes later than the mean rank, where each collective counts as
    /// one trial.
    pub by_collectives: f64,
    /// The same where each iteration counts as one, and how many those are; none of fewer than three.
    pub by_iterations: Option<(f64, usize)>,
}

/// Of fewer iterations nothing is said.
const FEW_ITERATIONS: usize = 3;

/// The collectives of one group, counted one by one.
pub(super) struct Turns {
    first: usize,
    ranks: Vec<Tally>,
}

/// How one rank came to them.
#[derive(Clone, Default)]
struct Tally {
    blame: f64,
    count: usize,
    /// By how much it came later than the mean rank: the sum, and that of the squares.
    sum: f64,
    squares: f64,
    iterations: HashMap<Option<NonMax>, Iteration>,
}

/// How it came to those of one iteration.
#[derive(Clone, Copy, Default)]
struct Iteration {
    /// By how much later than the mean rank.
    later: f64,
    waits: f64,
}

impl Turns {
    pub(super) fn of(group: &Group) -> Self {
        Self {
            first: group.range.start,
            ranks: vec![Tally::default(); group.range.len()],
        }
    }

    /// Takes one collective of ranks of this group.
    pub(super) fn take(&mut self, timelines: &[Timeline], row: &[Entry]) {
        if row.len() < 2 {
            return;
        }
        let count = row.len() as f64;
        let all = waits::in_one(row).sum::<Nanos>().0 as f64;
        let least = waits::in_one(row).min().unwrap_or_default();
        let mut blamed = false;
        for (entry, wait) in row.iter().zip(waits::in_one(row)) {
            let place = entry.rank.checked_sub(self.first);
            let Some(tally) = place.and_then(|place| self.ranks.get_mut(place)) else {
                continue;
            };
            let own = wait.0 as f64;
            let later = all / count - own;
            tally.count += 1;
            tally.sum += later;
            tally.squares += later * later;
            if wait == least && !blamed {
                blamed = true;
                tally.blame += (all - own) / (count - 1.0) - own;
            }
            let kernel = timelines
                .get(entry.rank)
                .and_then(|timeline| timeline.kernels.get(entry.kernel));
            let iteration = kernel.and_then(|kernel| kernel.iteration);
            let iteration = tally.iterations.entry(iteration).or_default();
            iteration.later += later;
            iteration.waits += own;
        }
    }

    /// What they say of each rank; empty where nobody waited.
    pub(super) fn lags(self) -> Vec<Lag> {
        let all: f64 = self.ranks.iter().map(|tally| tally.blame).sum();
        if all <= 0.0 {
            return Vec::new();
        }
        let net = net(&self.ranks);
        let ranks = self.ranks.into_iter().zip(net);
        ranks.map(|(tally, net)| tally.lag(all, net)).collect()
    }
}

/// Of what the others wait in each iteration, the share that they wait for the rank that waits least in it.
fn net(ranks: &[Tally]) -> Vec<f64> {
    let mut blame = vec![0.0; ranks.len()];
    let mut all = 0.0;
    let numbers = ranks.iter().flat_map(|tally| tally.iterations.keys());
    // In their order, so that sums are the same each time.
    for number in BTreeSet::from_iter(numbers) {
        let waits = ranks.iter().enumerate().filter_map(|(rank, tally)| {
            let iteration = tally.iterations.get(number)?;
            Some((rank, iteration.waits))
        });
        let waits = Vec::from_iter(waits);
        let Some(&(least, own)) = waits.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
            continue;
        };
        let others = waits.iter().map(|waits| waits.1).sum::<f64>() - own;
        let others = others / (waits.len() as f64 - 1.0).max(1.0);
        blame[least] += others - own;
        all += others;
    }
    blame.iter().map(|own| own / all.max(1.0)).collect()
}

impl Tally {
    fn lag(self, all: f64, net: f64) -> Lag {
        let iterations = self.iterations.values().map(|iteration| iteration.later);
        let squares = iterations.clone().map(|later| later * later).sum();
        let number = iterations.len();
        Lag {
            blame: self.blame / all,
            net,
            later: Nanos(self.sum as i64),
            by_collectives: errors(self.sum, self.squares, self.count),
            by_iterations: (number >= FEW_ITERATIONS)
                .then(|| (errors(self.sum, squares, number), number)),
        }
    }
}

/// A mean over its standard error, from the sum of so many values and that of their squares. One value alone has no
/// error, and none has no mean: these tell nothing.
fn errors(sum: f64, squares: f64, count: usize) -> f64 {
    if count < 2 || sum == 0.0 {
        return 0.0;
    }
    let count = count as f64;
    let variance = (squares - sum * sum / count).max(0.0) / (count - 1.0).max(1.0);
    match variance > 0.0 {
        true => sum / (variance * count).sqrt(),
        // All of them are the same.
        false => sum.signum() * f64::from(u16::MAX),
    }
}
