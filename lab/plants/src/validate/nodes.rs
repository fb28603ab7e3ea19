//! Whole nodes over time (MLPerf), idle cards (MI300X) and jobs whose GPUs wait (Longhorn):
//! recorded and simulated.

use std::collections::BTreeMap;

use crate::data::{Card, NodePower};
use crate::plant::Plant;
use crate::statistics::{Line, deviation, lag_one, line, mean, median};
use crate::{Dimension, Draw, Kind, WorkloadKind};

/// The power of a node in a run, the first and the last tenth cut off.
#[derive(Debug, Clone)]
pub(super) struct Series {
    /// What names the run.
    pub run: String,
    /// Watts, about every 2 s.
    pub watts: Vec<f64>,
}

/// The shortest series that is used: 200 s.
const SHORTEST: usize = 100;

/// The series in recorded rows; readings of 0 W are dropouts and left out.
pub(super) fn recorded(rows: &[NodePower]) -> Vec<Series> {
    let mut nodes: BTreeMap<(String, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows.iter().filter(|it| it.watts > 0.0) {
        let run = [&row.supply, &row.nodes, &row.benchmark, &row.run].map(String::as_str);
        let points = nodes.entry((run.join("/"), &row.node)).or_default();
        points.push((row.time_ms, row.watts));
    }
    let series = nodes.into_iter().map(|((run, _), mut points)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let cut = points.len() / 10;
        let middle = &points[cut..points.len() - cut];
        Series {
            run,
            watts: middle.iter().map(|it| it.1).collect(),
        }
    });
    series.filter(|it| it.watts.len() >= SHORTEST).collect()
}

/// The same on the plants of a draw: four sibling nodes, means of a second every 2 s.
pub(super) fn simulated(seed: u64) -> Vec<Series> {
    let training = WorkloadKind::TRAINING;
    let workload = training[seed as usize % training.len()];
    let draw = Draw::of(seed, Kind::H100x8, workload).with(Dimension::Start, 0.0);
    let node = |sibling| {
        let mut node = draw.clone().sibling(sibling).plant(0);
        let caps = node.start();
        let mut series = Series {
            run: seed.to_string(),
            watts: Vec::new(),
        };
        let mut next = 6_000.0;
        while series.watts.len() < 2 * SHORTEST {
            let iteration = node.iterate(&caps);
            let end = iteration.begin.0 + iteration.wall.0;
            while next <= end {
                let energy = |at| -> f64 {
                    (0..node.gpu_count())
                        .map(|gpu| node.gpu_energy_at(gpu, at))
                        .sum()
                };
                let energy = energy(next) - energy(next - 1_000.0);
                series.watts.push(energy + node.overhead());
                next += 2_000.0;
            }
        }
        series
    };
    (0..4).map(node).collect()
}

/// A number of one node.
pub(super) type OfSeries = (&'static str, &'static str, fn(&Series) -> Option<f64>);

/// What every node shows.
pub(super) const OF_SERIES: [OfSeries; 3] = [
    ("power of a node", "kW", |it| Some(mean(&it.watts)? / 1e3)),
    ("variation in time (sd over mean)", "%", |it| {
        Some(deviation(&it.watts)? / mean(&it.watts)? * 100.0)
    }),
    ("correlation with 2 s before", "", |it| lag_one(&it.watts)),
];

/// Variation of the mean power between the nodes of a run, %, run by run.
pub(super) fn between(series: &[Series]) -> Vec<f64> {
    let mut runs: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for it in series {
        runs.entry(&it.run).or_default().extend(mean(&it.watts));
    }
    let large = runs.into_values().filter(|it| it.len() > 3);
    large
        .filter_map(|means| Some(deviation(&means)? / mean(&means)? * 100.0))
        .collect()
}

/// Idle cards: each card's power and temperature, medians over what was recorded idle.
pub(super) fn idle_cards(rows: &[Card]) -> Vec<(f64, f64)> {
    let mut cards: BTreeMap<&str, Vec<&Card>> = BTreeMap::new();
    // A card with nothing to do that draws 250 W has just stopped.
    for row in rows
        .iter()
        .filter(|it| it.gpu_use_percent < 1.0 && it.power_watts < 250.0)
    {
        cards.entry(&row.device).or_default().push(row);
    }
    let middle = |of: &[&Card]| {
        let power = median(of.iter().map(|it| it.power_watts).collect())?;
        Some((
            median(of.iter().map(|it| it.temp_edge_celsius).collect())?,
            power,
        ))
    };
    cards.values().filter_map(|it| middle(it)).collect()
}

/// The same on a plant.
pub(super) fn idle_plant(seed: u64) -> Vec<(f64, f64)> {
    let node = Draw::of(seed, Kind::Mi300xx8, WorkloadKind::LlamaFsdp8b).plant(0);
    let rest = node.at_rest().into_iter();
    rest.map(|(power, temperature)| (temperature.0, power.0))
        .collect()
}

/// The line of power on temperature between cards.
pub(super) fn idle_line(cards: &[(f64, f64)]) -> Option<Line> {
    line(cards)
}

/// A job of four V100 on a plant: mean draw over the limit, clock over the highest.
pub(super) fn waiting(seed: u64, workload: WorkloadKind) -> Vec<(f64, f64)> {
    let node = Draw::of(seed, Kind::V100x4, workload)
        .with(Dimension::Start, 0.0)
        .plant(0);
    let steady = node.steady(&node.start());
    let gpus = node.gpus.iter().zip(steady.power.iter().zip(&steady.clock));
    gpus.map(|(gpu, (power, clock))| {
        let draw = power.0 * gpu.gain / node.range().highest.0;
        (draw, (clock.0 / 7.5e6).round() * 7.5 / node.spec.clock)
    })
    .collect()
}
