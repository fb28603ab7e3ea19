//! Time and draw of one job at several limits: Zeus, recorded and simulated.

use std::collections::BTreeMap;

use litd_units::Watts;

use crate::Draw;
use crate::data::{Limited, Profile};
use crate::plant::Plant;
use crate::statistics::median;

/// A limit, the time under it and the mean draw.
type Point = (f64, f64, f64);

/// One job at rising limits.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    /// The default limit, W.
    default: f64,
    /// By rising limit.
    points: Vec<Point>,
}

/// The curves in recorded rows. The highest limit of a model is taken for its default.
pub(super) fn recorded(limited: &[Limited], profiles: &[Profile]) -> Vec<Curve> {
    let mut jobs: BTreeMap<(String, String), Vec<Point>> = BTreeMap::new();
    for row in limited {
        let job = [&row.dataset, &row.network, &row.batch_size, &row.optimizer];
        let job = job.map(String::as_str).join("+");
        let points = jobs.entry((row.gpu.to_lowercase(), job)).or_default();
        points.push((row.power_limit, row.time_per_epoch, row.average_power));
    }
    let mut sums: BTreeMap<(String, String, u64), (f64, f64, f64)> = BTreeMap::new();
    for row in profiles {
        let model = row
            .profile
            .split('+')
            .next()
            .unwrap_or_default()
            .to_lowercase();
        let key = (model, row.profile.clone(), row.limit_w.to_bits());
        let sum = sums.entry(key).or_insert((0.0, 0.0, 0.0));
        *sum = (sum.0 + 1.0, sum.1 + row.elapsed_s, sum.2 + row.energy_j);
    }
    for ((model, profile, limit), (count, time, energy)) in sums {
        let points = jobs.entry((model, profile)).or_default();
        points.push((f64::from_bits(limit), time / count, energy / time));
    }
    let mut defaults: BTreeMap<String, f64> = BTreeMap::new();
    for ((model, _), points) in &jobs {
        let highest = points.iter().map(|it| it.0).fold(0.0, f64::max);
        let default = defaults.entry(model.clone()).or_insert(0.0);
        *default = default.max(highest);
    }
    let curves = jobs.into_iter().map(|((model, _), mut points)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Curve {
            default: defaults.get(&model).copied().unwrap_or(f64::NAN),
            points,
        }
    });
    curves.collect()
}

/// The same on a plant in its steady state: all caps equal, from two fifths of the TDP up.
pub(super) fn simulated(draw: &Draw) -> Curve {
    let node = draw.plant(0);
    let range = node.range();
    let steps = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0].map(|it| range.highest.0 * it);
    let points = steps.into_iter().filter(|it| *it >= range.lowest.0);
    let points = points.map(|limit| {
        let steady = node.steady(&vec![Watts(limit); node.gpu_count()]);
        let tools = node.gpus.iter().zip(&steady.power);
        let draw: f64 = tools.map(|(gpu, power)| power.0 * gpu.gain).sum();
        (limit, steady.iteration.0, draw / node.gpu_count() as f64)
    });
    Curve {
        default: range.highest.0,
        points: points.collect(),
    }
}

/// A limit binds a job that draws more than this part of it.
const BINDS: f64 = 0.93;

impl Curve {
    /// Slopes of ln time against ln draw between neighbouring limits of which the lower binds,
    /// with the lower one's part of the default.
    fn slopes(&self) -> Vec<(f64, f64)> {
        let pairs = self.points.windows(2).filter(|it| {
            let [low, high] = [it[0], it[1]];
            low.2 > BINDS * low.0 && high.2 > 1.02 * low.2
        });
        pairs
            .map(|it| {
                let slope = (it[1].1 / it[0].1).ln() / (it[1].2 / it[0].2).ln();
                (it[0].0 / self.default, slope)
            })
            .collect()
    }

    fn slope_between(&self, low: f64, high: f64) -> Option<f64> {
        let slopes = self.slopes().into_iter();
        let inside = slopes.filter(|it| it.0 >= low - 1e-9 && it.0 < high - 1e-9);
        median(inside.map(|it| it.1).collect())
    }

    /// Draw over limit at the limit nearest to a part of the default.
    fn draw_at(&self, part: f64) -> Option<f64> {
        let off = |it: &&Point| (it.0 / self.default - part).abs();
        let nearest = self
            .points
            .iter()
            .min_by(|a, b| off(a).total_cmp(&off(b)))?;
        (off(&nearest) < 0.07).then_some(nearest.2 / nearest.0)
    }

    /// Time at a part of the default against the time at the default.
    fn time_at(&self, part: f64) -> Option<f64> {
        let off = |it: &&Point| (it.0 / self.default - part).abs();
        let nearest = self
            .points
            .iter()
            .min_by(|a, b| off(a).total_cmp(&off(b)))?;
        (off(&nearest) < 0.07).then_some(nearest.1 / self.points.last()?.1)
    }
}

/// A number of one curve.
pub(super) type OfCurve = (&'static str, &'static str, fn(&Curve) -> Option<f64>);

/// What every job shows.
pub(super) const OF_CURVES: [OfCurve; 9] = [
    ("exponent below 0.48 of the default", "", |it| {
        it.slope_between(0.0, 0.48)
    }),
    ("exponent from 0.48 to 0.58", "", |it| {
        it.slope_between(0.48, 0.58)
    }),
    ("exponent from 0.58 to 0.75", "", |it| {
        it.slope_between(0.58, 0.75)
    }),
    ("exponent from 0.75 on", "", |it| {
        it.slope_between(0.75, 1.0)
    }),
    ("largest over smallest exponent of a curve", "", |it| {
        let slopes: Vec<f64> = it
            .slopes()
            .iter()
            .map(|it| -it.1)
            .filter(|it| *it > 0.05)
            .collect();
        let largest = slopes.iter().copied().fold(0.0, f64::max);
        let smallest = slopes.iter().copied().fold(f64::INFINITY, f64::min);
        (slopes.len() > 2).then_some(largest / smallest)
    }),
    ("draw over limit where it binds", "", |it| {
        let ratios = it.points.iter().map(|it| it.2 / it.0);
        median(ratios.filter(|it| *it > BINDS).collect())
    }),
    ("draw over limit at the default", "", |it| it.draw_at(1.0)),
    ("time at 0.5 over time at the default", "", |it| {
        it.time_at(0.5)
    }),
    ("time at 0.8 over time at the default", "", |it| {
        it.time_at(0.8)
    }),
];

/// A number of many curves.
pub(super) type OfAll = (&'static str, &'static str, fn(&[&Curve]) -> Option<f64>);

/// What only many jobs show.
pub(super) const OF_ALL: [OfAll; 2] = [
    ("the default limit binds", "% of jobs", |it| {
        binding(it, 1.0)
    }),
    ("0.5 of it binds", "% of jobs", |it| binding(it, 0.5)),
];

fn binding(curves: &[&Curve], part: f64) -> Option<f64> {
    let draws: Vec<f64> = curves.iter().filter_map(|it| it.draw_at(part)).collect();
    let binds = draws.iter().filter(|it| **it > BINDS).count();
    (!draws.is_empty()).then(|| binds as f64 / draws.len() as f64 * 100.0)
}
