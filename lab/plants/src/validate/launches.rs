//! Launches of equal work on the GPUs of a node: Longhorn's sgemm, recorded and simulated.

use std::collections::BTreeMap;

use litd_units::Millis;

use crate::data::{Control, Launch};
use crate::plant::Plant;
use crate::statistics::{deviation, kurtosis, lag_one, line, mean, median, rank_correlation};
use crate::{Draw, Kind, WorkloadKind};

/// One GPU in one launch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    pub time: f64,
    pub clock: f64,
    pub temperature: f64,
    pub power: f64,
}

/// The launches of a node, `[launch][gpu]` in order of time, and the names of its GPUs.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub gpus: Vec<String>,
    pub launches: Vec<Vec<Sample>>,
    /// Time of latency-bound work on each GPU, where there is any.
    pub control: Vec<Option<f64>>,
}

/// The limit of Longhorn's GPUs, W, and their highest clock, MHz (the vendor's; the data has no
/// column for them).
pub(super) const LIMIT: f64 = 300.0;
pub(super) const CLOCK: f64 = 1530.0;

/// The runs in recorded rows. Launches in which a GPU of the node is missing are left out.
pub(super) fn recorded(rows: &[Launch], controls: &[Control]) -> Vec<Run> {
    let mut nodes: BTreeMap<(&str, &str), BTreeMap<i64, Vec<&Launch>>> = BTreeMap::new();
    for row in rows {
        let node = nodes.entry((&row.cabinet, &row.node)).or_default();
        node.entry(row.ts).or_default().push(row);
    }
    let control = |uuid: &str| {
        let own = controls.iter().filter(|it| it.uuid == uuid);
        median(own.map(|it| it.perf_as_published).collect())
    };
    let mut runs = Vec::new();
    for launches in nodes.into_values() {
        let mut names: Vec<&str> = launches
            .values()
            .flatten()
            .map(|it| it.uuid.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        let mut run = Run {
            control: names.iter().map(|it| control(it)).collect(),
            gpus: names.iter().map(|&it| it.to_owned()).collect(),
            launches: Vec::new(),
        };
        for mut rows in launches.into_values() {
            rows.sort_by(|a, b| a.uuid.cmp(&b.uuid));
            if rows.len() == names.len() && rows.len() > 2 {
                run.launches.push(rows.into_iter().map(sample).collect());
            }
        }
        if !run.launches.is_empty() {
            runs.push(run);
        }
    }
    runs
}

fn sample(row: &Launch) -> Sample {
    Sample {
        time: row.time_ms,
        clock: row.sm_mhz,
        temperature: row.temp_c,
        power: row.power_w,
    }
}

/// The same experiment on a plant: so many launches, nine minutes apart.
pub(super) fn simulated(seed: u64, launches: usize) -> Run {
    let mut node = Draw::of(seed, Kind::V100x4, WorkloadKind::Sgemm)
        .with(crate::Dimension::Start, 0.0)
        .plant(0);
    let caps = node.start();
    let mut run = Run {
        gpus: (0..node.gpu_count())
            .map(|it| format!("{seed}-{it}"))
            .collect(),
        launches: Vec::new(),
        control: Vec::new(),
    };
    for _ in 0..launches {
        node.rest(Millis(540e3));
        node.settle(&caps);
        let (begin, wall) = {
            let iteration = node.iterate(&caps);
            (iteration.begin.0, iteration.wall.0)
        };
        let readings = node.readings();
        let kernels = node.workload().kernels.len();
        let timeline = node.timeline();
        let samples = readings.iter().enumerate().map(|(gpu, reading)| {
            let own = gpu * kernels..(gpu + 1) * kernels;
            let times = own
                .map(|it| timeline.end[it] - timeline.start[it])
                .collect();
            // Only while it computes: who is done first waits for nobody's result.
            let end = timeline.uses[gpu].end;
            let energy = node.gpu_energy_at(gpu, begin + end) - node.gpu_energy_at(gpu, begin);
            Sample {
                time: median(times).unwrap_or(wall),
                clock: (reading.clock.0 / 7.5e6).round() * 7.5,
                temperature: reading.temperature.0,
                power: energy / end * 1e3 * node.gpus[gpu].gain,
            }
        });
        run.launches.push(samples.collect());
    }
    let mut control = Draw::of(seed, Kind::V100x4, WorkloadKind::Pagerank).plant(0);
    let caps = control.start();
    control.iterate(&caps);
    let uses = &control.timeline().uses;
    run.control = uses.iter().map(|it| Some(it.end)).collect();
    run
}

impl Run {
    /// A median over launches of what one launch shows.
    fn typical(&self, of: impl Fn(&[Sample]) -> f64) -> Option<f64> {
        median(self.launches.iter().map(|it| of(it)).collect())
    }

    /// A GPU's mean over launches.
    fn mean_of(&self, gpu: usize, of: impl Fn(&Sample) -> f64) -> f64 {
        let own: Vec<f64> = self.launches.iter().map(|it| of(&it[gpu])).collect();
        mean(&own).unwrap_or(f64::NAN)
    }

    /// Every GPU's mean less the mean of the node.
    fn relative(&self, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        let means: Vec<f64> = (0..self.gpus.len())
            .map(|it| self.mean_of(it, &of))
            .collect();
        let middle = mean(&means).unwrap_or(f64::NAN);
        means.into_iter().map(|it| it - middle).collect()
    }

    /// What is left of the logarithm of each GPU's times without its own mean and the launch's.
    fn residuals(&self) -> Vec<Vec<f64>> {
        let means: Vec<f64> = (0..self.gpus.len())
            .map(|it| self.mean_of(it, |it| it.time.ln()))
            .collect();
        let mut residuals = vec![Vec::new(); self.gpus.len()];
        for launch in &self.launches {
            let off: Vec<f64> = launch
                .iter()
                .zip(&means)
                .map(|(it, m)| it.time.ln() - m)
                .collect();
            let shared = mean(&off).unwrap_or(0.0);
            for (gpu, off) in off.into_iter().enumerate() {
                residuals[gpu].push(off - shared);
            }
        }
        residuals
    }
}

fn extreme(launch: &[Sample], of: impl Fn(&Sample) -> f64) -> (f64, f64) {
    let values = launch.iter().map(of);
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |it, value| {
        (it.0.min(value), it.1.max(value))
    })
}

fn middle_time(launch: &[Sample]) -> f64 {
    median(launch.iter().map(|it| it.time).collect()).unwrap_or(f64::NAN)
}

/// A number of one node.
pub(super) type OfNode = (&'static str, &'static str, fn(&Run) -> Option<f64>);

/// What every node shows by itself.
pub(super) const OF_NODES: [OfNode; 9] = [
    ("slowest over median", "%", |run| {
        run.typical(|it| (extreme(it, |it| it.time).1 / middle_time(it) - 1.0) * 100.0)
    }),
    ("slowest over fastest", "%", |run| {
        run.typical(|it| {
            let (fastest, slowest) = extreme(it, |it| it.time);
            (slowest / fastest - 1.0) * 100.0
        })
    }),
    ("range of temperatures", "K", |run| {
        run.typical(|it| {
            let (coolest, hottest) = extreme(it, |it| it.temperature);
            hottest - coolest
        })
    }),
    ("temperature", "C", |run| {
        run.typical(|it| median(it.iter().map(|it| it.temperature).collect()).unwrap_or(f64::NAN))
    }),
    ("clock over the highest", "", |run| {
        run.typical(|it| median(it.iter().map(|it| it.clock / CLOCK).collect()).unwrap_or(f64::NAN))
    }),
    ("draw below the limit", "%", |run| {
        run.typical(|it| {
            let draws = it.iter().map(|it| (1.0 - it.power / LIMIT) * 100.0);
            median(draws.collect()).unwrap_or(f64::NAN)
        })
    }),
    ("spread of that between GPUs (sd)", "%", |run| {
        deviation(&run.relative(|it| it.power / LIMIT * 100.0))
    }),
    ("noise of launches (sd)", "%", |run| {
        let residuals: Vec<f64> = run.residuals().concat();
        (run.launches.len() > 3).then_some(deviation(&residuals)? * 100.0)
    }),
    ("noise: correlation with the launch before", "", |run| {
        let lags = run
            .residuals()
            .iter()
            .filter_map(|it| lag_one(it))
            .collect();
        (run.launches.len() > 7).then(|| median(lags))?
    }),
];

/// A number of many nodes.
pub(super) type OfAll = (&'static str, &'static str, fn(&[&Run]) -> Option<f64>);

/// What only many nodes together show.
pub(super) const OF_ALL: [OfAll; 10] = [
    ("slowest is the hottest", "% of launches", |runs| {
        share(runs, |it| {
            let slowest = extreme(it, |it| it.time).1;
            let hottest = extreme(it, |it| it.temperature).1;
            it.iter()
                .any(|it| it.time == slowest && it.temperature == hottest)
        })
    }),
    ("slowest has the lowest clock", "% of launches", |runs| {
        share(runs, |it| {
            let slowest = extreme(it, |it| it.time).1;
            let lowest = extreme(it, |it| it.clock).0;
            it.iter().any(|it| it.time == slowest && it.clock == lowest)
        })
    }),
    ("pace between GPUs of a node (sd)", "%", |runs| {
        let paces: Vec<f64> = runs
            .iter()
            .flat_map(|it| it.relative(|it| it.time.ln()))
            .collect();
        Some(deviation(&paces)? * 100.0)
    }),
    (
        "pace that temperature explains within a node",
        "%",
        |runs| Some(between(runs, |it| it.temperature)?.correlation.powi(2) * 100.0),
    ),
    ("pace per degree within a node", "%/C", |runs| {
        Some(between(runs, |it| it.temperature)?.slope * 100.0)
    }),
    ("exponent of pace in the clock", "", |runs| {
        Some(between(runs, |it| it.clock.ln())?.slope)
    }),
    ("correlation of draw with pace", "", |runs| {
        Some(between(runs, |it| it.power)?.correlation)
    }),
    ("correlation of pace between halves", "", |runs| {
        let half = |run: &Run, first: bool| {
            let middle = run.launches.len() / 2;
            let (a, b) = run.launches.split_at(middle);
            let half = if first { a } else { b };
            let run = Run {
                launches: half.to_vec(),
                ..run.clone()
            };
            run.relative(|it| it.time.ln())
        };
        let long = runs.iter().filter(|it| it.launches.len() > 3);
        let pairs = long.flat_map(|it| half(it, true).into_iter().zip(half(it, false)));
        Some(line(&pairs.collect::<Vec<_>>())?.correlation)
    }),
    ("kurtosis of the noise", "", |runs| {
        // Over each node's own deviation, so that it shows tails and not that nodes differ.
        let own = |run: &&Run| {
            let residuals = run.residuals().concat();
            let scale = deviation(&residuals).filter(|it| *it > 0.0).unwrap_or(1.0);
            residuals.into_iter().map(move |it| it / scale)
        };
        let long = runs.iter().filter(|it| it.launches.len() > 3);
        kurtosis(&long.flat_map(own).collect::<Vec<_>>())
    }),
    ("rank correlation with latency-bound work", "", |runs| {
        let mut pairs = Vec::new();
        for run in runs {
            let paces = run.relative(|it| it.time.ln());
            let both = paces.into_iter().zip(&run.control);
            pairs.extend(both.filter_map(|(pace, control)| Some((pace, (*control)?))));
        }
        (pairs.len() > 7).then(|| rank_correlation(&pairs))?
    }),
];

fn share(runs: &[&Run], of: impl Fn(&[Sample]) -> bool) -> Option<f64> {
    let launches: Vec<&Vec<Sample>> = runs.iter().flat_map(|it| &it.launches).collect();
    let hits = launches.iter().filter(|it| of(it)).count();
    (!launches.is_empty()).then(|| hits as f64 / launches.len() as f64 * 100.0)
}

/// The line of pace on something, over GPUs, each less its node's mean.
fn between(runs: &[&Run], of: impl Fn(&Sample) -> f64) -> Option<crate::statistics::Line> {
    let mut pairs = Vec::new();
    for run in runs {
        pairs.extend(
            run.relative(&of)
                .into_iter()
                .zip(run.relative(|it| it.time.ln())),
        );
    }
    line(&pairs)
}
