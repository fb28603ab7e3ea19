//! Algorithm 1: multi-pass multi-objective Bayesian optimisation of one partition (section 4.3).

mod propose;
mod rng;
mod settings;
mod staircase;
mod trees;

use litd_units::Watts;
use serde::Serialize;

pub use propose::{Sample, propose};
pub use settings::{Pass, Settings};
pub use staircase::{Point, Staircase, frontier};
pub use trees::{Booster, FEATURES, GROWTH, Growth, Row};

use crate::candidate::Candidate;
use crate::profile::Measurement;
use rng::Rng;

/// A candidate that was evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Evaluated {
    /// The candidate.
    pub candidate: Candidate,
    /// The result.
    pub measured: Measurement,
    /// Why it was evaluated.
    pub pass: Pass,
    /// In which batch; 0 is the beginning.
    pub batch: usize,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// All batches that there may be were evaluated.
    Batches,
    /// The hypervolume hardly improved any more.
    Converged,
    /// No candidate is left.
    Exhausted,
}

/// The results of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// The candidates evaluated, in order.
    pub evaluated: Vec<Evaluated>,
    /// By how much each batch improved the hypervolume, as a part of what it was before.
    pub improvements: Vec<f64>,
    /// Why it ended.
    pub stop: Stop,
}

impl Found {
    /// The candidates that no other beats in both time and total energy, by rising time.
    #[must_use]
    pub fn frontier(&self) -> Vec<Evaluated> {
        let points: Vec<Point> = self.evaluated.iter().map(total).collect();
        let places = frontier(&points);
        places.iter().map(|&it| self.evaluated[it]).collect()
    }
}

/// Time and total energy.
fn total(it: &Evaluated) -> Point {
    [it.measured.time.0, it.measured.energy.0]
}

/// Searches the candidates of one partition. `evaluate` measures one and may take its time; what it has answered
/// is in its own hands, so that nothing is lost where it fails.
///
/// The same candidates, answers, settings and seed give the same search.
///
/// # Errors
/// The first that `evaluate` returns.
pub fn search<E>(
    candidates: &[Candidate],
    static_power: Watts,
    settings: &Settings,
    seed: u64,
    mut evaluate: impl FnMut(Candidate, Pass) -> Result<Measurement, E>,
) -> Result<Found, E> {
    let all = |asked: &[Asked]| asked.iter().map(|&(it, pass)| evaluate(it, pass)).collect();
    search_batches(candidates, static_power, settings, seed, all)
}

/// A candidate that is to be evaluated, and why.
pub type Asked = (Candidate, Pass);

/// The next candidates of a search whose results so far are `known`, for a caller that measures elsewhere;
/// the search's results if it is over. Candidates with a result are not asked for again.
///
/// # Errors
/// The candidates without an answer of the batch at which the search stands: the caller's work, and no failure.
pub fn next(
    candidates: &[Candidate],
    static_power: Watts,
    settings: &Settings,
    seed: u64,
    known: &[(Candidate, Measurement)],
) -> Result<Found, Vec<Asked>> {
    let answer = |it: &Candidate| known.iter().find(|(other, _)| other == it).map(|it| it.1);
    search_batches(candidates, static_power, settings, seed, |asked| {
        let answers: Vec<Measurement> = asked.iter().filter_map(|it| answer(&it.0)).collect();
        if answers.len() == asked.len() {
            return Ok(answers);
        }
        let open = asked.iter().filter(|it| answer(&it.0).is_none());
        Err(open.copied().collect())
    })
}

/// [`search`] where a whole batch is evaluated at once, with an answer for each.
fn search_batches<E>(
    candidates: &[Candidate],
    static_power: Watts,
    settings: &Settings,
    seed: u64,
    mut evaluate: impl FnMut(&[Asked]) -> Result<Vec<Measurement>, E>,
) -> Result<Found, E> {
    let rows: Vec<Row> = candidates.iter().map(features).collect();
    let mut left: Vec<usize> = (0..candidates.len()).collect();
    let mut found = Found {
        evaluated: Vec::new(),
        improvements: Vec::new(),
        stop: Stop::Batches,
    };
    let first = Rng::stream(seed, u64::MAX).choose(settings.initial, candidates.len());
    let mut next: Vec<(usize, Pass)> = first.iter().map(|&it| (it, Pass::Initial)).collect();
    let mut samples = Vec::new();
    for batch in 0..=settings.batches {
        let before = found.evaluated.len();
        let asked: Vec<Asked> = next
            .iter()
            .map(|&(it, pass)| (candidates[it], pass))
            .collect();
        let answers = evaluate(&asked)?;
        samples.extend(next.iter().map(|it| it.0));
        let answered = asked.into_iter().zip(answers);
        found
            .evaluated
            .extend(answered.map(|((candidate, pass), measured)| Evaluated {
                candidate,
                measured,
                pass,
                batch,
            }));
        left.retain(|place| !next.iter().any(|(taken, _)| taken == place));
        if batch > 0 {
            found
                .improvements
                .push(improvement(&found.evaluated, before));
        }
        if left.is_empty() {
            found.stop = Stop::Exhausted;
            break;
        }
        if converged(&found.improvements, settings) {
            found.stop = Stop::Converged;
            break;
        }
        if batch < settings.batches {
            let seed = seed.wrapping_add(batch as u64 + 1);
            next = batch_of(&found, &samples, &rows, &left, static_power, settings, seed);
        }
    }
    Ok(found)
}

/// The next batch, as places among all candidates.
fn batch_of(
    found: &Found,
    samples: &[usize],
    rows: &[Row],
    left: &[usize],
    static_power: Watts,
    settings: &Settings,
    seed: u64,
) -> Vec<(usize, Pass)> {
    let most = |of: fn(&Measurement) -> f64| {
        let values = found.evaluated.iter().map(|it| of(&it.measured));
        values.fold(f64::MIN_POSITIVE, f64::max)
    };
    let (longest, highest) = (most(|it| it.time.0), most(|it| it.energy.0));
    let samples: Vec<Sample> = found
        .evaluated
        .iter()
        .zip(samples)
        .map(|(it, &place)| Sample {
            row: rows[place],
            time: it.measured.time.0 / longest,
            dynamic: it.measured.dynamic(static_power).0 / highest,
        })
        .collect();
    let open: Vec<Row> = left.iter().map(|&place| rows[place]).collect();
    let power = static_power.0 * 1e-3 * longest / highest;
    let chosen = propose(&samples, power, &open, settings, seed);
    let chosen = chosen.iter().map(|&(open, pass)| (left[open], pass));
    chosen.collect()
}

/// By how much what was evaluated from a place on improved the hypervolume of time and total energy.
fn improvement(evaluated: &[Evaluated], from: usize) -> f64 {
    let points: Vec<Point> = evaluated.iter().map(total).collect();
    let reference = propose::reference(&points);
    let before = Staircase::new(&points[..from], reference).hypervolume();
    let after = Staircase::new(&points, reference).hypervolume();
    (after - before) / before
}

fn converged(improvements: &[f64], settings: &Settings) -> bool {
    let window = settings.window.max(1);
    let Some(start) = improvements.len().checked_sub(window) else {
        return false;
    };
    let mean = improvements[start..].iter().sum::<f64>() / window as f64;
    mean < settings.epsilon
}

/// As numbers for trees: launches are in order, so a launch's place says more than a category would.
fn features(candidate: &Candidate) -> Row {
    let Candidate { clock, sms, launch } = *candidate;
    [clock.0 / 1e6, f64::from(sms), launch as f64]
}
