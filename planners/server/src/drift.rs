//! Whether what ranks measure in training is still what their plan was made from.

use std::collections::{BTreeMap, HashMap};

use crate::protocol::ProfilingResult;

/// A mean that is less than this off is what it was: clocks are quantised, and temperatures change.
const TOLERANCE: f64 = 0.05;
/// And beyond so many standard errors of the mean.
const ERRORS: f64 = 4.0;
/// Fewer iterations say nothing about noise.
const LEAST: usize = 3;
/// So many results of a rank in a row must say the same: the first may be of the plan before.
const RESULTS: u32 = 2;

/// Expected time and energy of an instruction, on average: seconds and joules.
pub type Expected = BTreeMap<String, (f64, f64)>;

/// How much more an instruction takes and uses than expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Off {
    /// Of its time.
    pub time: f64,
    /// Of its energy.
    pub energy: f64,
}

/// Measurements of ranks, by job and rank: how far each instruction is off its plan, and for how many results.
#[derive(Debug, Default)]
pub struct Drifts {
    ranks: HashMap<(String, u32), BTreeMap<String, (Off, u32)>>,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of each iteration.
fn iterations(all: &[Vec<f64>]) -> Vec<f64> {
    all.iter()
        .filter(|it| !it.is_empty())
        .map(|it| mean(it))
        .collect()
}

/// How far an instruction's measurements are off, if that is beyond noise.
fn off(result: &ProfilingResult, name: &str, expected: (f64, f64)) -> Option<Off> {
    let times = iterations(result.time_breakdown.get(name)?);
    if times.len() < LEAST || expected.0 <= 0.0 {
        return None;
    }
    let own = mean(&times);
    let variance =
        times.iter().map(|it| (it - own).powi(2)).sum::<f64>() / (times.len() - 1) as f64;
    let error = (variance / times.len() as f64).sqrt();
    if (own - expected.0).abs() <= TOLERANCE * expected.0 + ERRORS * error {
        return None;
    }
    let energies = result.energy_breakdown.get(name).map(|it| iterations(it));
    let energies = energies.filter(|it| !it.is_empty() && expected.1 > 0.0);
    let time = own / expected.0;
    Some(Off {
        time,
        energy: energies.map_or(time, |it| mean(&it) / expected.1),
    })
}

impl Drifts {
    /// Takes a result in. What all ranks of its stage, `peers` with its own, agree to be off, by instruction:
    /// of those the least. A rank that is slow alone is a straggler, and no drift.
    pub fn note(
        &mut self,
        job: &str,
        result: &ProfilingResult,
        expected: &Expected,
        peers: &[u32],
    ) -> BTreeMap<String, Off> {
        let key = (job.to_owned(), result.rank);
        let before = self.ranks.remove(&key).unwrap_or_default();
        let now = expected.iter().filter_map(|(name, expected)| {
            let off = off(result, name, *expected)?;
            let count = before.get(name).map_or(0, |(_, count)| *count);
            Some((name.clone(), (off, count + 1)))
        });
        let now: BTreeMap<_, _> = now.collect();
        let mut agreed = BTreeMap::new();
        for name in now.keys() {
            let of = |rank: &u32| match *rank == result.rank {
                true => now.get(name).copied(),
                false => self.ranks.get(&(job.to_owned(), *rank))?.get(name).copied(),
            };
            let all: Option<Vec<(Off, u32)>> = peers.iter().map(of).collect();
            let Some(all) = all else { continue };
            let is_lasting = all.iter().all(|(_, count)| *count >= RESULTS);
            let same =
                all.iter().all(|(it, _)| it.time > 1.0) || all.iter().all(|(it, _)| it.time < 1.0);
            let nearest = all.iter().map(|(it, _)| *it);
            let nearest =
                nearest.min_by(|a, b| (a.time - 1.0).abs().total_cmp(&(b.time - 1.0).abs()));
            if let Some(nearest) = nearest.filter(|_| is_lasting && same) {
                agreed.insert(name.clone(), nearest);
            }
        }
        match agreed.is_empty() {
            true => drop(self.ranks.insert(key, now)),
            // The difference has been added to the model; later results are compared with another plan.
            false => self
                .ranks
                .retain(|(other, rank), _| other != job || !peers.contains(rank)),
        }
        agreed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(rank: u32, times: &[f64]) -> ProfilingResult {
        let rows: Vec<Vec<f64>> = times.iter().map(|it| vec![*it, *it]).collect();
        ProfilingResult {
            rank,
            iter_time: Vec::new(),
            iter_energy: Vec::new(),
            time_breakdown: BTreeMap::from([("forward".to_owned(), rows)]),
            energy_breakdown: BTreeMap::new(),
        }
    }

    fn noted(results: &[(u32, &[f64])]) -> Vec<Option<Off>> {
        let expected = Expected::from([("forward".to_owned(), (0.030, 9.0))]);
        let mut drifts = Drifts::default();
        let note = |(rank, times): &(u32, &[f64])| {
            drifts
                .note("job", &result(*rank, times), &expected, &[0, 2])
                .get("forward")
                .copied()
        };
        results.iter().map(note).collect()
    }

    #[test]
    fn what_all_ranks_of_a_stage_see_twice_is_drift() {
        let slow: &[f64] = &[0.0360, 0.0361, 0.0359];
        let slower: &[f64] = &[0.0390, 0.0391, 0.0389];
        let found = noted(&[(0, slow), (2, slower), (0, slow), (2, slower), (0, slow)]);
        let wanted = Off {
            time: 0.036 / 0.030,
            energy: 0.036 / 0.030,
        };
        assert_eq!(found[..3], [None; 3]);
        let drift = found[3].unwrap();
        assert!(
            (drift.time - wanted.time).abs() < 1e-9 && (drift.energy - wanted.energy).abs() < 1e-9
        );
        assert_eq!(found[4], None, "it was taken in");
    }

    #[test]
    fn noise_a_straggler_and_a_single_result_are_none() {
        let same: &[f64] = &[0.0301, 0.0299, 0.0300];
        let slow: &[f64] = &[0.0360, 0.0361, 0.0359];
        let noisy: &[f64] = &[0.020, 0.030, 0.058];
        let fast: &[f64] = &[0.0240, 0.0241, 0.0239];
        for results in [
            &[(0, slow), (2, same), (0, slow), (2, same), (0, slow)][..],
            &[(0, noisy), (2, noisy), (0, noisy), (2, noisy)],
            &[(0, slow), (2, slow), (0, same), (2, same), (0, slow)],
            &[(0, slow), (2, fast), (0, slow), (2, fast)],
            &[
                (0, &slow[..2]),
                (2, &slow[..2]),
                (0, &slow[..2]),
                (2, &slow[..2]),
            ],
        ] {
            assert!(noted(results).iter().all(Option::is_none), "{results:?}");
        }
    }
}
