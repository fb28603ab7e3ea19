//! The iterations in what ranks tell of the collectives of one communicator. Nothing marks them: an iteration is what
//! comes again in the sequence of functions and sizes. Each collective has a number that is the same on all ranks, so
//! where an iteration begins on one rank it begins on all, and what was lost in between moves no boundary.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use litd_units::Nanos;

use super::period::{Places, period, prints};
use crate::arrivals::Arrival;

/// So many iterations are told of, the last ones.
const MOST_ITERATIONS: usize = 16;

/// A collective that a rank has called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Called {
    /// The function, such as `AllReduce`.
    pub function: &'static str,
    /// How many of this function the communicator ran before.
    pub sequence: u64,
    /// Its size.
    pub bytes: u64,
    /// When its kernel began and ended, by the rank's clock; `None` where not all of it was seen.
    pub ran: Option<(Nanos, Nanos)>,
}

/// Whole iterations that all ranks tell of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeats {
    /// How long each took, by the rank's own clock, the earliest first. Equally many of each rank.
    pub durations: Vec<Vec<Nanos>>,
    /// When the last one began on the first rank, by that rank's clock.
    pub began: Nanos,
    /// Each rank's collectives of the last one.
    pub last: Vec<Vec<Arrival>>,
    /// Each rank's collectives of which all was seen.
    pub all: Vec<Vec<Arrival>>,
}

/// The reason why no iteration is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRepeats {
    /// Less than two iterations were told of, or the job does not repeat itself.
    #[error(
        "its collectives show no two iterations: they do not come again in the same order, or too few were told of"
    )]
    NoPeriod,
    /// No iteration begins and ends with collectives that all ranks tell of.
    #[error("its ranks tell of no whole iteration in common")]
    NoneInCommon,
}

/// What tells collectives of a communicator apart: function, sequence number and size.
type Key = (&'static str, u64, u64);

fn key(called: &Called) -> Key {
    (called.function, called.sequence, called.bytes)
}

/// When each collective began on one rank. What is told twice is left out: one of the two is wrong.
fn starts(rank: &[Called]) -> HashMap<Key, Nanos> {
    let (mut starts, mut seen) = (HashMap::new(), HashSet::new());
    for called in rank {
        let key = key(called);
        match (seen.insert(key), called.ran) {
            (true, Some((start, _))) => drop(starts.insert(key, start)),
            (true, None) => {}
            (false, _) => drop(starts.remove(&key)),
        }
    }
    starts
}

/// The places of each function's collectives on one rank, ascending. An iteration may have as many collectives as a ring
/// has room for, and each of its places is looked at: counting anew from each would take seconds.
type OfFunctions = HashMap<&'static str, Vec<usize>>;

fn of_functions(rank: &[Called]) -> OfFunctions {
    let mut places = OfFunctions::new();
    for (place, called) in rank.iter().enumerate() {
        places.entry(called.function).or_default().push(place);
    }
    places
}

/// Where iterations could begin: with one function, and after so many of it again.
#[derive(Debug, Clone, Copy)]
struct Mark {
    first: Called,
    every: u64,
}

/// An iteration's begin, or its end, on each rank.
type Moment = Vec<Nanos>;

impl Mark {
    /// The mark at this place of a rank's collectives, of which `lag` make an iteration.
    fn at(rank: &[Called], places: &OfFunctions, place: usize, lag: usize) -> Option<Self> {
        let first = *rank.get(place..place + lag)?.first()?;
        let same = places.get(first.function)?;
        let before = |end: usize| same.partition_point(|&at| at < end);
        let every = u64::try_from(before(place + lag) - before(place)).ok()?;
        Some(Self { first, every })
    }

    /// The n-th time that it comes.
    fn moment(&self, times: u64, ranks: &[HashMap<Key, Nanos>]) -> Option<Moment> {
        let sequence = self.every.checked_mul(times)?;
        let sequence = self.first.sequence.checked_add(sequence)?;
        let key = (self.first.function, sequence, self.first.bytes);
        ranks
            .iter()
            .map(|starts| starts.get(&key).copied())
            .collect()
    }

    /// The iterations that begin and end with it, of so many at most.
    fn whole(&self, most: usize, ranks: &[HashMap<Key, Nanos>]) -> Vec<(Moment, Moment)> {
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let moments: Vec<_> = (0..=most).map(|times| self.moment(times, ranks)).collect();
        let whole = moments.windows(2).filter_map(|pair| match pair {
            [Some(from), Some(to)] if from.iter().zip(to).all(|(from, to)| from < to) => {
                Some((from.clone(), to.clone()))
            }
            _ => None,
        });
        whole.collect()
    }
}

/// How long a rank's communicator rested before this place.
fn rest(rank: &[Called], place: usize) -> Nanos {
    let ran = |at: usize| rank.get(at)?.ran;
    let before = place.checked_sub(1).and_then(ran);
    match (before, ran(place)) {
        (Some((_, end)), Some((start, _))) => start - end,
        _ => Nanos::ZERO,
    }
}

/// A number for a collective that is the same where it comes again.
fn name(called: &Called) -> u64 {
    let mut hasher = DefaultHasher::new();
    (called.function, called.bytes).hash(&mut hasher);
    hasher.finish()
}

/// The longest part of what a rank tells in which none is missing, by their numbers.
fn unbroken(rank: &[Called]) -> &[Called] {
    let mut next = HashMap::new();
    let mut parts = rank.chunk_by(|before, called| {
        next.insert(before.function, before.sequence.wrapping_add(1));
        next.get(called.function)
            .is_none_or(|it| *it == called.sequence)
    });
    let first = parts.next().unwrap_or_default();
    parts.fold(first, |longest, part| match part.len() > longest.len() {
        true => part,
        false => longest,
    })
}

/// After so many of these collectives the same come again.
fn period_of(called: &[Called]) -> Option<usize> {
    let names: Vec<u64> = called.iter().map(name).collect();
    period(&names, &Places::of(&prints(&names)), 1)
}

/// The iterations in the collectives of one communicator's ranks, each rank's in the order in which it called them.
///
/// # Errors
/// There is no whole iteration that all of them tell of; see [`NoRepeats`].
pub fn repeats(ranks: &[Vec<Called>]) -> Result<Repeats, NoRepeats> {
    let longest = ranks
        .iter()
        .map(|rank| unbroken(rank))
        .max_by_key(|it| it.len());
    // Where numbers jump although nothing is missing, all of a rank's are as good.
    let all = ranks
        .iter()
        .map(|rank| rank.as_slice())
        .min_by_key(|it| it.len());
    let mut references = [longest, all].into_iter().flatten();
    let found = references.find_map(|it| Some((it, period_of(it)?)));
    let (reference, lag) = found.ok_or(NoRepeats::NoPeriod)?;
    let starts: Vec<_> = ranks.iter().map(|rank| starts(rank)).collect();
    let told = ranks.iter().map(Vec::len).max().unwrap_or(0);
    let most = told / lag + 1;
    let functions = of_functions(reference);
    let whole = |place| Some(Mark::at(reference, &functions, place, lag)?.whole(most, &starts));
    let counts = (0..lag).map(|place| whole(place).map_or(0, |it| it.len()));
    let counts: Vec<usize> = counts.collect();
    // Where the communicator rests longest, which is the same place in each look; looking began and ended somewhere, so
    // it has one iteration less than others there.
    let least = counts.iter().copied().max().unwrap_or(0);
    let least = least.saturating_sub(1).max(1);
    let places = counts.iter().enumerate().filter(|&(_, &it)| it >= least);
    // Before the first of all nothing is known; it comes again.
    let rests = |&place: &usize| rest(reference, place + lag);
    let place = places.map(|it| it.0).max_by_key(rests);
    let mut whole = place.and_then(whole).unwrap_or_default();
    whole.drain(..whole.len().saturating_sub(MOST_ITERATIONS));
    let (from, to) = whole.last().ok_or(NoRepeats::NoneInCommon)?;
    let all: Vec<Vec<Arrival>> = ranks.iter().map(|rank| seen(rank)).collect();
    let last = all
        .iter()
        .zip(from.iter().zip(to))
        .map(|(all, (from, to))| {
            let within = all.iter().filter(|it| (from..to).contains(&&it.start));
            within.copied().collect()
        });
    let durations = (0..ranks.len()).map(|at| {
        let took = |(from, to): &(Moment, Moment)| Some(*to.get(at)? - *from.get(at)?);
        whole.iter().filter_map(took).collect()
    });
    Ok(Repeats {
        durations: durations.collect(),
        began: from.first().copied().unwrap_or_default(),
        last: last.collect(),
        all,
    })
}

fn seen(rank: &[Called]) -> Vec<Arrival> {
    let arrival = |called: &Called| {
        let (start, end) = called.ran?;
        Some(Arrival {
            function: called.function,
            sequence: called.sequence,
            bytes: called.bytes,
            start,
            end,
        })
    };
    rank.iter().filter_map(arrival).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::arrivals;

    /// Layers of an iteration, each gathered and then scattered, and one all-reduce at the end.
    fn iteration(layers: u64) -> Vec<(&'static str, u64)> {
        let gathered = (0..layers).map(|layer| ("AllGather", 1000 + layer));
        let scattered = (0..layers).map(|layer| ("ReduceScatter", 2000 + layer));
        gathered
            .chain(scattered)
            .chain([("AllReduce", 8)])
            .collect()
    }

    /// What a rank tells of iterations of 2 ms for each collective, with its clock and its lateness.
    fn told(of: &[(&'static str, u64)], iterations: usize, ahead: i64, late: i64) -> Vec<Called> {
        let mut counts = HashMap::new();
        let all = of.iter().cycle().take(of.len() * iterations);
        let called = |(at, &(function, bytes)): (i64, &(&'static str, u64))| {
            let sequence = counts.entry(function).or_insert(0);
            let (start, length) = (
                Nanos(2_000_000 * at + ahead + late),
                500_000 + 1000 * (at % 7),
            );
            *sequence += 1;
            Called {
                function,
                sequence: *sequence,
                bytes,
                ran: Some((start, start + Nanos(length - late))),
            }
        };
        (0..).zip(all).map(called).collect()
    }

    #[test]
    fn iterations_are_found_wherever_looking_began_and_on_all_clocks() {
        let one = iteration(6);
        let took = Nanos(2_000_000 * one.len() as i64);
        for begun in [0, 1, 5, 12] {
            let mut ranks = [
                told(&one, 5, 0, 0),
                told(&one, 5, -77_000_000, 0),
                told(&one, 5, 9_000_000_000, 300_000),
            ];
            for (rank, more) in ranks.iter_mut().zip([0, 2, 1]) {
                rank.drain(..begun + more);
            }
            let found = repeats(&ranks).unwrap();
            assert!(found.durations.iter().all(|it| it.len() >= 3), "{begun}");
            assert!(found.durations.iter().flatten().all(|&it| it == took));
            assert!(found.last.iter().all(|it| it.len() == one.len()));
            let leads = arrivals(&found.last).unwrap().leads();
            let leads: Vec<i64> = leads.iter().map(|it| it.max_ns.0).collect();
            assert_eq!(leads, [300_000, 300_000, 0]);
        }
    }

    #[test]
    fn what_is_lost_moves_no_boundary() {
        let one = iteration(8);
        let mut ranks = [told(&one, 6, 0, 0), told(&one, 6, 5_000, 100_000)];
        let took = Nanos(2_000_000 * one.len() as i64);
        // Of one nothing was seen, three are gone, one came twice.
        ranks[0][40].ran = None;
        ranks[1].remove(70);
        ranks[0].drain(58..60);
        let twice = ranks[1][20];
        ranks[1].push(twice);
        let found = repeats(&ranks).unwrap();
        assert!(found.durations[0].len() >= 3, "{:?}", found.durations);
        assert!(found.durations.iter().flatten().all(|&it| it == took));
        let found = arrivals(&found.last).unwrap();
        assert!(found.collectives() >= one.len() - 3);
        assert_eq!(found.last_in()[1], found.collectives());
    }

    #[test]
    fn microbatches_between_two_steps_are_one_iteration() {
        let batch = iteration(4);
        let plain = &batch[..8];
        let one: Vec<_> = [plain, plain, plain, &batch].concat();
        let ranks = [told(&one, 3, 0, 0), told(&one, 3, 5_000, 100_000)];
        let found = repeats(&ranks).unwrap();
        assert_eq!(found.durations[0], [Nanos(2_000_000 * 33); 2]);
    }

    #[test]
    fn what_does_not_come_again_has_no_iterations() {
        let all: Vec<_> = (0..100).map(|at| ("AllReduce", at)).collect();
        let ranks = [told(&all, 1, 0, 0), told(&all, 1, 0, 0)];
        assert_eq!(repeats(&ranks), Err(NoRepeats::NoPeriod));
        assert_eq!(repeats(&[]), Err(NoRepeats::NoPeriod));
        assert_eq!(repeats(&[vec![], vec![]]), Err(NoRepeats::NoPeriod));
        // Ranks whose numbers have nothing in common.
        let mut ranks = [told(&iteration(6), 4, 0, 0), told(&iteration(6), 4, 0, 0)];
        for called in &mut ranks[1] {
            called.sequence += 1000;
        }
        assert_eq!(repeats(&ranks), Err(NoRepeats::NoneInCommon));
    }

    /// Whatever is told, it takes no panic and no long time.
    #[test]
    fn nonsense_is_taken_as_it_comes() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let functions = ["AllReduce", "AllGather", "other"];
        for _ in 0..2000 {
            let (sequences, sizes) = (1 << random(60), 1 + random(3));
            let (ranks, length) = (random(4), random(60));
            let mut called = || Called {
                function: functions[random(3) as usize],
                sequence: u64::MAX - random(sequences),
                bytes: random(sizes),
                ran: (random(8) > 0)
                    .then(|| (Nanos(random(9) as i64), Nanos(i64::MAX - random(9) as i64))),
            };
            let told: Vec<Vec<_>> = (0..ranks)
                .map(|_| (0..length).map(|_| called()).collect())
                .collect();
            if let Ok(found) = repeats(&told) {
                assert!(found.durations.iter().flatten().all(|it| *it > Nanos::ZERO));
                let _ = crate::arrivals::arrivals_by(&found.last, &found.all);
            }
        }
        let one = vec![("AllReduce", 8); 16_000];
        let ranks: Vec<_> = (0..8).map(|rank| told(&one, 1, rank, 0)).collect();
        assert!(repeats(&ranks).is_ok());
        // An iteration of as many as possible, twice.
        let long: Vec<_> = (0..16_384).map(|size| ("AllReduce", size)).collect();
        let ranks: Vec<_> = (0..2).map(|rank| told(&long, 3, rank, 0)).collect();
        assert_eq!(repeats(&ranks).unwrap().last[0].len(), 16_384);
    }
}
