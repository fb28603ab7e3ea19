//! How good searches are, where the answer is known: against trying everything, and with a pass left out.

use std::convert::Infallible;

use litd_units::Watts;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::profile::Measurement;
use crate::search::{Found, Pass, Point, Settings, Staircase, frontier, search};

/// Searches of one partition with several seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// How many candidates there are.
    pub candidates: usize,
    /// How many the search tried, the mean.
    pub tried: f64,
    /// For each seed the hypervolume that it found, as a part of that of everything.
    pub parts: Vec<f64>,
    /// The same with a reference that is a tenth worse than the frontier itself, where little is left to win by
    /// being below bad candidates only.
    pub strict: Vec<f64>,
    /// For each pass of a batch, in the order of [`Pass::OF_A_BATCH`], and each seed: the part without that pass.
    pub without: [Vec<f64>; 4],
    /// Of what is on the frontiers found, the part that each pass found: the beginning, then [`Pass::OF_A_BATCH`].
    pub shares: [f64; 5],
}

/// Searches all of `known`, which has an answer for every candidate, with each of these seeds: as it is, and without
/// each pass, from the same beginning and with the same number of candidates. `None` where nothing is known or
/// there is no seed.
#[must_use]
pub fn judge(
    known: &[(Candidate, Measurement)],
    static_power: Watts,
    settings: &Settings,
    seeds: &[u64],
) -> Option<Judged> {
    let candidates: Vec<Candidate> = known.iter().map(|it| it.0).collect();
    let all: Vec<Point> = known.iter().map(|it| point(&it.1)).collect();
    if all.is_empty() || seeds.is_empty() {
        return None;
    }
    let best: Vec<Point> = frontier(&all).iter().map(|&it| all[it]).collect();
    let references = [worse(&all), worse(&best)];
    let whole = references.map(|it| Staircase::new(&all, it).hypervolume());
    let run = |settings: &Settings, seed| {
        let answer = |candidate: Candidate, _| {
            let place = candidates.iter().position(|it| *it == candidate);
            Ok::<_, Infallible>(known[place.unwrap_or(0)].1)
        };
        match search(&candidates, static_power, settings, seed, answer) {
            Ok(found) => found,
            Err(never) => match never {},
        }
    };
    let part = |found: &Found, at: usize| {
        let points: Vec<Point> = found
            .evaluated
            .iter()
            .map(|it| point(&it.measured))
            .collect();
        Staircase::new(&points, references[at]).hypervolume() / whole[at]
    };
    let found: Vec<Found> = seeds.iter().map(|&seed| run(settings, seed)).collect();
    let without = Pass::OF_A_BATCH.map(|pass| {
        let settings = settings.without(pass);
        let parts = seeds.iter().map(|&seed| part(&run(&settings, seed), 0));
        parts.collect()
    });
    let tried: usize = found.iter().map(|it| it.evaluated.len()).sum();
    Some(Judged {
        candidates: candidates.len(),
        tried: tried as f64 / seeds.len() as f64,
        parts: found.iter().map(|it| part(it, 0)).collect(),
        strict: found.iter().map(|it| part(it, 1)).collect(),
        without,
        shares: shares(&found),
    })
}

fn point(it: &Measurement) -> Point {
    [it.time.0, it.energy.0]
}

/// A tenth worse than the worst in each.
fn worse(points: &[Point]) -> Point {
    [0, 1].map(|at| 1.1 * points.iter().map(|it| it[at]).fold(0.0, f64::max))
}

/// The share of each pass in the candidates on the frontiers.
fn shares(found: &[Found]) -> [f64; 5] {
    let mut counts = [0.0_f64; 5];
    for it in found.iter().flat_map(Found::frontier) {
        let place = Pass::OF_A_BATCH.iter().position(|pass| *pass == it.pass);
        counts[place.map_or(0, |it| it + 1)] += 1.0;
    }
    let all: f64 = counts.iter().sum();
    counts.map(|count| count / all.max(1.0))
}
