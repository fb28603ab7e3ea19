//! Which ranks are late for the same reason, in which iterations, and what each of them costs.

use serde::Serialize;

use super::{Mended, Part, WhatIf};

/// Ranks are as late as others from this part of it on.
const AS_LATE: f64 = 0.7;
/// For the same reason where names that take this part of the time at most are slow on the one and not on the other.
const ALIKE: f64 = 0.3;
/// Kernels that take longer by less than this share are not slow.
const SLOW: f64 = 0.01;
/// More ranks are named where mending all of them gains so many times what mending the others does, and by this share of
/// the time more.
const MORE: f64 = 1.3;
const WORTH: f64 = 0.005;
/// What is second costs at least this share of the time that is left once what is first is mended.
const SECOND: f64 = 0.01;
/// So many ranks are tried.
const TRIED: usize = 8;

/// In which iterations the kernels of a rank take longer than the median rank's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Course {
    /// In all of them.
    Always,
    /// In these, and not in the others.
    In(Vec<u32>),
    /// More from iteration to iteration: the first and the last, each with by how much.
    Worse([(u32, f64); 2]),
}

impl WhatIf<'_> {
    fn places(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let ranks = self.timelines.iter().enumerate();
        ranks.map(|(at, timeline)| (at, timeline.rank))
    }

    /// How much longer than the median rank a rank takes in all for its kernels, or its host, in nanoseconds. None where
    /// that is little of what it takes.
    fn longer(&self, at: usize, part: Part) -> Option<f64> {
        let kernels = || {
            let each = self.peers.iterations(at).iter();
            let both = each.map(|(_, [own, theirs])| (f64::max(own - theirs, 0.0), *theirs));
            let (more, theirs) = both.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            (more >= SLOW * theirs).then_some(more)
        };
        let host = || {
            let late = self.peers.late(at);
            (late >= SLOW * self.wall.0 as f64).then_some(late)
        };
        match part {
            Part::Kernels | Part::Clock => kernels(),
            Part::Host => host(),
            Part::All => {
                Some(kernels().unwrap_or(0.0) + host().unwrap_or(0.0)).filter(|&more| more > 0.0)
            }
        }
    }

    /// These ranks with all that are as late for the same reason, where mending all of them gains clearly more: the ranks
    /// of a host, or of a replica, may be late together.
    #[must_use]
    pub fn with_alike(&self, ranks: &[u32], part: Part) -> Vec<u32> {
        let own = self.places().filter(|(_, rank)| ranks.contains(rank));
        let least = own
            .filter_map(|(at, _)| self.longer(at, part))
            .reduce(f64::min);
        let Some(least) = least else {
            return ranks.to_vec();
        };
        let own = self.places().filter(|(_, rank)| ranks.contains(rank));
        let spread = own.map(|(at, _)| self.peers.spread(at)).fold(1.0, f64::min);
        let alike = self.places().filter(|&(at, rank)| {
            let as_late = self.longer(at, part) >= Some(AS_LATE * least);
            // What takes longer in a few names alone is late for another reason than what does in all.
            let alike = part == Part::Host || (self.peers.spread(at) - spread).abs() <= ALIKE;
            ranks.contains(&rank) || as_late && alike
        });
        let mut alike = Vec::from_iter(alike.map(|(_, rank)| rank));
        alike.sort_unstable();
        if alike.len() == ranks.len() {
            return ranks.to_vec();
        }
        let gains = |ranks: &[u32]| {
            let ranks = Vec::from_iter(ranks.iter().map(|&rank| (rank, part)));
            self.share(Mended {
                ranks: &ranks,
                links: &[],
            })
        };
        let (few, all) = (gains(ranks), gains(&alike));
        match all > (MORE * few).max(few + WORTH) {
            true => alike,
            false => ranks.to_vec(),
        }
    }

    /// The rank that costs most once these are mended, with what of it, and what mending it as well gains as a share of the
    /// time; none where that is little.
    #[must_use]
    pub fn second(&self, first: Mended<'_>) -> Option<(u32, Part, f64)> {
        let before = self.share(first);
        let others = self
            .places()
            .filter(|(_, rank)| !first.ranks.iter().any(|one| one.0 == *rank));
        let late = others.filter_map(|(at, rank)| Some((self.longer(at, Part::All)?, at, rank)));
        let mut late = Vec::from_iter(late);
        late.sort_by(|a, b| b.0.total_cmp(&a.0));
        let least = SECOND * (1.0 - before);
        let mut most = None::<(u32, Part, f64)>;
        for (_, at, rank) in late.into_iter().take(TRIED) {
            let parts =
                [Part::Kernels, Part::Host].map(|part| self.longer(at, part).unwrap_or(0.0));
            // Gaps of which no launches tell may be of anything.
            let known = self
                .ranks
                .get(at)
                .is_some_and(|rank| !rank.launches.is_empty());
            let part = match known && parts[1] > parts[0] {
                true => Part::Host,
                false if parts[0] > 0.0 => Part::Kernels,
                false => continue,
            };
            // What can't be as much as another one is need not be replayed.
            let needed = most.map_or(least, |most| most.2);
            if self.at_most(at, part) < needed {
                continue;
            }
            let mended = Vec::from_iter(first.ranks.iter().copied().chain([(rank, part)]));
            let all = self.share(Mended {
                ranks: &mended,
                links: first.links,
            });
            if all - before >= needed {
                most = Some((rank, part, all - before));
            }
        }
        most
    }

    /// The most that mending a rank can gain, as a share of the time: all that would be saved of it, and what computation
    /// gains on all ranks as collectives beside it take less.
    fn at_most(&self, at: usize, part: Part) -> f64 {
        let kernels = self.timelines.get(at).map_or(0, |one| one.kernels.len());
        let saved: f64 = (0..kernels)
            .map(|kernel| match part {
                Part::Host => self.peers.host(at, kernel),
                _ => self
                    .peers
                    .kernel(self.timelines, (at, kernel), false)
                    .max(0.0),
            })
            .sum();
        saved / (1.0 - self.beside.loses) / self.wall.0.max(1) as f64
    }

    /// The rank whose host alone costs most, and its share of the time; none where that is little, or where launches are not
    /// known.
    #[must_use]
    pub fn latest_host(&self) -> Option<(u32, f64)> {
        let known = |at: usize| {
            let rank = self.ranks.get(at);
            rank.is_some_and(|rank| !rank.launches.is_empty())
        };
        let places = self.places().filter(|(at, _)| known(*at));
        let late = places.map(|(at, rank)| (self.peers.late(at), rank));
        let (_, rank) = late.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let ranks = &[(rank, Part::Host)];
        let share = self.share(Mended { ranks, links: &[] });
        (share >= SECOND).then_some((rank, share))
    }

    /// The rank whose host launches first in most iterations, with how many those are, and of how many: hosts that follow
    /// another one on the CPU come behind it. None where that may be chance.
    #[must_use]
    pub fn leader(&self) -> Option<(u32, usize, usize)> {
        /// Of fewer iterations nothing is said.
        const FEW: usize = 8;
        /// Who is first so many times as often as chance makes a rank is no chance.
        const OFTEN: usize = 3;
        let (at, count, all) = self.peers.leader()?;
        let often = OFTEN * all <= count * self.timelines.len() && 2 * count >= all;
        let rank = self.timelines.get(at)?.rank;
        (all >= FEW && often).then_some((rank, count, all))
    }

    /// In which iterations the kernels of a rank take longer.
    #[must_use]
    pub fn course(&self, rank: u32) -> Course {
        let at = self.places().find(|one| one.1 == rank).map(|one| one.0);
        let each = at.map_or(&[][..], |at| self.peers.iterations(at));
        let each = each.iter().filter(|(_, [_, theirs])| *theirs > 0.0);
        let each =
            each.filter_map(|(number, [own, theirs])| Some(((*number)?, own / theirs - 1.0)));
        course(&Vec::from_iter(each))
    }
}

/// The course of what is longer by these shares in iterations of these numbers, in order.
fn course(each: &[(u32, f64)]) -> Course {
    /// Between these parts of the most it is neither much nor little.
    const PARTS: [f64; 2] = [0.25, 0.5];
    /// Of fewer iterations no course is told.
    const FEW: usize = 4;
    /// What gets worse does so by more than this share, and is on a line by more than this.
    const WORSE: f64 = 0.02;
    const LINE: f64 = 0.9;
    let most = each.iter().map(|one| one.1).fold(0.0, f64::max);
    if most < SLOW || each.len() < 2 {
        return Course::Always;
    }
    let (Some(first), Some(last)) = (each.first(), each.last()) else {
        return Course::Always;
    };
    let grows = last.1 - first.1 >= WORSE.max(most / 2.0) && line(each) >= LINE.max(step(each));
    if each.len() >= FEW && grows {
        return Course::Worse([*first, *last]);
    }
    let [less, more] = PARTS.map(|part| part * most);
    let slow = Vec::from_iter(each.iter().filter(|one| one.1 >= more).map(|one| one.0));
    match slow.len() < each.len() && each.iter().all(|one| one.1 < less || one.1 >= more) {
        true => Course::In(slow),
        false => Course::Always,
    }
}

/// How well these are on a line: the correlation with their places.
fn line(each: &[(u32, f64)]) -> f64 {
    along(each, (0..each.len()).map(|place| place as f64))
}

/// The correlation of these with as many others.
fn along(each: &[(u32, f64)], others: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = each.len() as f64;
    let middle = others.clone().sum::<f64>() / count;
    let mean = each.iter().map(|one| one.1).sum::<f64>() / count;
    let (mut both, mut places, mut values) = (0.0, 0.0, 0.0);
    for (place, one) in others.zip(each) {
        let (place, value) = (place - middle, one.1 - mean);
        both += place * value;
        places += place * place;
        values += value * value;
    }
    match places * values > 0.0 {
        true => both / (places * values).sqrt(),
        false => 0.0,
    }
}

/// How well these are one level up to some place and another one from there on: the greatest correlation with such a step.
fn step(each: &[(u32, f64)]) -> f64 {
    let steps = (1..each.len()).map(|at| {
        let places = (0..each.len()).map(|place| f64::from(u8::from(place >= at)));
        along(each, places)
    });
    steps.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gets_worse_is_told_from_what_is_slow_now_and_then() {
        let of = |shares: &[f64]| {
            let each = (3..).zip(shares.iter().copied());
            course(&Vec::from_iter(each))
        };
        assert_eq!(of(&[0.06, 0.061, 0.059, 0.06]), Course::Always);
        assert_eq!(of(&[0.001, 0.0, 0.25, 0.0]), Course::In(vec![5]));
        assert_eq!(of(&[0.15, 0.0, 0.15, 0.0]), Course::In(vec![3, 5]));
        assert_eq!(
            of(&[0.0, 0.02, 0.041, 0.06, 0.081]),
            Course::Worse([(3, 0.0), (7, 0.081)])
        );
        // One iteration that is slow at the end is no course.
        assert_eq!(of(&[0.0, 0.0, 0.0, 0.2]), Course::In(vec![6]));
        // What is slow from some iteration on does not get worse.
        assert_eq!(of(&[0.0, 0.001, 0.055, 0.057]), Course::In(vec![5, 6]));
        assert_eq!(of(&[0.001, 0.002, 0.0, 0.001]), Course::Always);
        assert_eq!(of(&[]), Course::Always);
    }
}
