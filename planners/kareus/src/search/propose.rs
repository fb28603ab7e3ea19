//! A batch: surrogates, acquisition, selection (lines 3 to 13 of algorithm 1).

use super::rng::Rng;
use super::settings::{Pass, Settings};
use super::staircase::{Point, Staircase};
use super::trees::{Booster, GROWTH, Row};

/// The result of a candidate, in normalised units: the largest time and the largest total energy so far are
/// 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The candidate's features.
    pub row: Row,
    /// How long it takes.
    pub time: f64,
    /// The candidate's dynamic energy.
    pub dynamic: f64,
}

/// The reference point is so much worse than the worst that was measured.
const WORSE: f64 = 1.1;

/// The energies that hypervolumes improve in: static, dynamic and their sum.
struct Energies {
    /// Static energy by time, in normalised units.
    static_power: f64,
}

impl Energies {
    fn of(&self, pass: Pass, time: f64, dynamic: f64) -> f64 {
        match pass {
            Pass::Dynamic => dynamic,
            Pass::Static => time * self.static_power,
            Pass::Initial | Pass::Total | Pass::Uncertainty => dynamic + time * self.static_power,
        }
    }
}

/// The next of the candidates not yet tried, and the pass that chose each: places in `rows`, at most
/// [`Settings::batch`]. `static_power` is in units of energy by time. The same arguments give the same
/// result.
///
/// Where several passes choose a candidate, it counts for the first, and the last pass gets one more (line 13).
/// Where improvements are the same, as they are for all that improves nothing, less energy of that pass is
/// better.
#[must_use]
pub fn propose(
    samples: &[Sample],
    static_power: f64,
    rows: &[Row],
    settings: &Settings,
    seed: u64,
) -> Vec<(usize, Pass)> {
    let features: Vec<Row> = samples.iter().map(|it| it.row).collect();
    let times: Vec<f64> = samples.iter().map(|it| it.time).collect();
    let dynamics: Vec<f64> = samples.iter().map(|it| it.dynamic).collect();
    let energies = Energies { static_power };
    let ones = vec![1.0; samples.len()];
    let fit = |targets: &[f64], weights: &[f64]| Booster::fit(&features, targets, weights, &GROWTH);
    let (time, dynamic) = (fit(&times, &ones), fit(&dynamics, &ones));
    let predictions: Vec<Point> = rows
        .iter()
        .map(|row| [time.predict(row), dynamic.predict(row)])
        .collect();
    let mut chosen: Vec<(usize, Pass)> = Vec::new();
    let mut taken = vec![false; rows.len()];
    let mut choose = |places: Vec<usize>, pass| {
        for place in places {
            if !std::mem::replace(&mut taken[place], true) {
                chosen.push((place, pass));
            }
        }
    };
    for (pass, count) in Pass::OF_A_BATCH.into_iter().zip(settings.places()) {
        if count > 0 {
            choose(exploit(samples, &predictions, &energies, pass, count), pass);
        }
    }
    let left = settings.batch.saturating_sub(chosen.len());
    if left > 0 && settings.shares[3] > 0.0 {
        let doubts = uncertainty(&[times, dynamics], rows, settings, seed, &fit);
        let free = (0..rows.len()).filter(|&place| !taken[place]);
        let order = top(free, left, |place| [-doubts[place], 0.0]);
        chosen.extend(order.into_iter().map(|place| (place, Pass::Uncertainty)));
    }
    chosen
}

/// The candidates with the largest improvement of one pass's hypervolume.
fn exploit(
    samples: &[Sample],
    predictions: &[Point],
    energies: &Energies,
    pass: Pass,
    count: usize,
) -> Vec<usize> {
    let measured: Vec<Point> = samples
        .iter()
        .map(|it| [it.time, energies.of(pass, it.time, it.dynamic)])
        .collect();
    let staircase = Staircase::new(&measured, reference(&measured));
    let scores: Vec<Point> = predictions
        .iter()
        .map(|&[time, dynamic]| {
            let energy = energies.of(pass, time, dynamic);
            [-staircase.improvement([time, energy]), energy]
        })
        .collect();
    top(0..scores.len(), count, |place| scores[place])
}

/// Slightly worse than the worst measurements in both.
pub(crate) fn reference(measured: &[Point]) -> Point {
    let worst = |at: usize| measured.iter().map(|it| it[at]).fold(0.0, f64::max);
    [WORSE * worst(0), WORSE * worst(1)]
}

/// The places with the least scores, in order; of equal ones the first.
fn top(
    places: impl Iterator<Item = usize>,
    count: usize,
    score: impl Fn(usize) -> Point,
) -> Vec<usize> {
    let mut places: Vec<usize> = places.collect();
    places.sort_by(|&a, &b| {
        let ([a0, a1], [b0, b1]) = (score(a), score(b));
        a0.total_cmp(&b0).then(a1.total_cmp(&b1)).then(a.cmp(&b))
    });
    places.truncate(count);
    places
}

/// For each row the sum of the standard deviations of what resampled models predict (line 9).
fn uncertainty(
    targets: &[Vec<f64>; 2],
    rows: &[Row],
    settings: &Settings,
    seed: u64,
    fit: &impl Fn(&[f64], &[f64]) -> Booster,
) -> Vec<f64> {
    let count = targets[0].len();
    let mut sums = vec![[[0.0_f64; 2]; 2]; rows.len()];
    if count == 0 {
        return vec![0.0; rows.len()];
    }
    let drawn = ((settings.fraction * count as f64).round() as usize).max(1);
    for member in 0..settings.ensemble {
        let mut rng = Rng::stream(seed, member as u64);
        let mut weights = vec![0.0; count];
        for _ in 0..drawn {
            weights[rng.below(count)] += 1.0;
        }
        for (objective, targets) in targets.iter().enumerate() {
            let model = fit(targets, &weights);
            for (row, sums) in rows.iter().zip(&mut sums) {
                let value = model.predict(row);
                sums[objective][0] += value;
                sums[objective][1] += value * value;
            }
        }
    }
    let members = settings.ensemble.max(1) as f64;
    let deviation = |[sum, squares]: [f64; 2]| {
        let mean = sum / members;
        (squares / members - mean * mean).max(0.0).sqrt()
    };
    let both = |it: &[[f64; 2]; 2]| deviation(it[0]) + deviation(it[1]);
    sums.iter().map(both).collect()
}
