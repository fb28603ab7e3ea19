//! The period of a sequence of kernels: after how many of them the same ones come again. Without a mark of iterations
//! that is the iteration (a training step, or the computation of a token); layers come again too, but not all the way.

use std::collections::{BTreeMap, BTreeSet};

/// So many kernels in a row tell one place of an iteration from others.
const PRINT: usize = 8;

/// At least so much of a sequence comes again after its period.
const LEAST: f64 = 0.95;

/// Periods that explain the sequence as well as the best one, but for so much, are as good.
const ALIKE: f64 = 0.002;

/// How many of the rarest places are looked at, how many of their occurrences, and how many periods are tried.
const PLACES: usize = 32;
const OCCURRENCES: usize = 9;
const TRIED: usize = 128;

/// A number for each place of the sequence that is the same where the same kernels follow.
pub(super) fn prints(names: &[u64]) -> Vec<u64> {
    let mix =
        |print: u64, name: &u64| (print.rotate_left(7) ^ name).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let windows = names.windows(PRINT);
    windows.map(|it| it.iter().fold(0, mix)).collect()
}

/// Where each print occurs.
#[derive(Debug)]
pub(super) struct Places(Vec<(u64, u32)>);

impl Places {
    pub(super) fn of(prints: &[u64]) -> Self {
        let mut all: Vec<(u64, u32)> = prints.iter().copied().zip(0..).collect();
        all.sort_unstable();
        Self(all)
    }

    /// The places of one print, ascending.
    pub(super) fn of_print(&self, print: u64) -> &[(u64, u32)] {
        let from = self.0.partition_point(|it| it.0 < print);
        let to = self.0.partition_point(|it| it.0 <= print);
        self.0.get(from..to).unwrap_or_default()
    }

    /// The places of each print.
    fn each(&self) -> impl Iterator<Item = &[(u64, u32)]> {
        self.0.chunk_by(|a, b| a.0 == b.0)
    }
}

/// The shortest period, of `least` kernels or more, that explains the sequence as well as any does; the sequence has at
/// least two of it.
pub(super) fn period(names: &[u64], places: &Places, least: usize) -> Option<usize> {
    let candidates = candidates(places, least, names.len() / 2);
    let scored = candidates.into_iter().map(|lag| (lag, score(names, lag)));
    let scored: Vec<(usize, f64)> = scored.collect();
    let best = scored.iter().map(|&(_, score)| score).fold(0.0, f64::max);
    if best < LEAST {
        return None;
    }
    let mut alike = scored.iter().filter(|&&(_, score)| score >= best - ALIKE);
    alike.next().map(|&(lag, _)| lag)
}

/// Distances between occurrences of the rarest places that occur twice, ascending.
fn candidates(places: &Places, least: usize, most: usize) -> BTreeSet<usize> {
    let key = |it: &&[(u64, u32)]| (it.len(), it.first().map(|place| place.1));
    let mut rarest = BTreeMap::new();
    for of_one in places.each().filter(|it| it.len() > 1) {
        rarest.insert(key(&of_one), of_one);
        if rarest.len() > PLACES {
            rarest.pop_last();
        }
    }
    let mut candidates = BTreeSet::new();
    for of_one in rarest.values() {
        let some = of_one
            .iter()
            .take(OCCURRENCES)
            .map(|place| place.1 as usize);
        for (at, from) in some.clone().enumerate() {
            let later = some.clone().skip(at + 1).map(|to| to - from);
            candidates.extend(later.filter(|lag| (least.max(1)..=most).contains(lag)));
            if candidates.len() >= TRIED {
                return candidates;
            }
        }
    }
    candidates
}

/// The share of kernels that come again after so many.
fn score(names: &[u64], lag: usize) -> f64 {
    let pairs = names.iter().zip(names.iter().skip(lag));
    let (mut same, mut all) = (0_usize, 0_usize);
    for (a, b) in pairs {
        same += usize::from(a == b);
        all += 1;
    }
    same as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Iterations of layers: forward, backward, one step at the end.
    fn training(layers: u64, iterations: u64) -> Vec<u64> {
        let layer = |from: u64, kernels: u64| (0..layers).flat_map(move |_| from..from + kernels);
        let one = || layer(100, 12).chain(layer(200, 25)).chain(300..340);
        (0..iterations).flat_map(|_| one()).collect()
    }

    fn found(names: &[u64], least: usize) -> Option<usize> {
        period(names, &Places::of(&prints(names)), least)
    }

    #[test]
    fn an_iteration_is_found_and_not_a_layer_of_it() {
        for layers in [2, 12, 80] {
            let length = layers as usize * 37 + 40;
            for iterations in [2, 3, 7] {
                let names = training(layers, iterations);
                assert_eq!(found(&names, 1), Some(length), "{layers} layers");
                // Wherever the recording began.
                let late = &names[length / 3..];
                let wanted = (iterations > 2).then_some(length);
                assert_eq!(found(late, 1).filter(|_| iterations > 2), wanted);
            }
        }
    }

    #[test]
    fn a_few_kernels_that_differ_change_nothing() {
        let mut names = training(12, 4);
        for at in (0..names.len()).step_by(97) {
            names[at] = 7;
        }
        assert_eq!(found(&names, 1), Some(12 * 37 + 40));
    }

    #[test]
    fn marks_say_that_an_iteration_is_longer_than_what_comes_again() {
        // Eight equal microbatches, of which the marks say that four make an iteration.
        let names: Vec<u64> = (0..8).flat_map(|_| 0..50).collect();
        assert_eq!(found(&names, 1), Some(50));
        assert_eq!(found(&names, 150), Some(150));
    }

    #[test]
    fn what_does_not_come_again_has_no_period() {
        let names: Vec<u64> = (0..1000).collect();
        assert_eq!(found(&names, 1), None);
        assert_eq!(found(&[], 1), None);
        assert_eq!(found(&[1, 2, 3], 1), None);
        // Less than two iterations.
        let names = training(12, 2);
        let cut = &names[..names.len() * 3 / 4];
        assert_eq!(found(cut, 300), None);
    }

    #[test]
    fn one_kernel_again_and_again_takes_no_longer() {
        let names = vec![1; 150_000];
        assert_eq!(found(&names, 1), Some(1));
    }
}
