//! Many nodes together: medians, 95th percentiles, worst, shares, and what they are worth.

use std::collections::BTreeMap;

use litd_policies::Policy;
use litd_sim::rng::Rng;
use serde::Serialize;

use super::nodes::Verdicts;
use super::{Row, trial};

/// What a quantity is like over nodes. Higher is worse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// As many are above as below.
    pub median: f64,
    /// One of twenty is above.
    pub p95: f64,
    /// The worst.
    pub worst: f64,
}

impl Spread {
    /// Of these values, of which none is no number; zero of none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = (part * values.len() as f64).ceil() as usize;
            values.get(place.max(1) - 1).copied().unwrap_or(0.0)
        };
        Self {
            median: at(0.5),
            p95: at(0.95),
            worst: at(1.0),
        }
    }
}

/// A mean over nodes and its interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Lower end of the 95 % interval: bootstrap over nodes, percentile.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

const RESAMPLES: usize = 2_000;

impl Mean {
    /// Of these values.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let count = values.len();
        let mut rng = Rng::stream(0, &[0xb007, count as u64]);
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let pick = |_| values[(rng.next_u64() % count as u64) as usize];
                (0..count).map(pick).sum::<f64>() / count as f64
            })
            .collect();
        means.sort_by(f64::total_cmp);
        Self {
            mean: values.iter().sum::<f64>() / count as f64,
            low: means[RESAMPLES / 40],
            high: means[RESAMPLES - 1 - RESAMPLES / 40],
        }
    }
}

/// One hand under one policy over all nodes. Parts, not per cent; value per node hour.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The policy.
    pub policy: &'static str,
    /// Who steered.
    pub law: &'static str,
    /// Nodes.
    pub nodes: usize,
    /// Of these, on so many the policy had nothing to move and only observed.
    pub observed: usize,
    /// What the optimum offers.
    pub gain: Spread,
    /// What is left of it.
    pub regret: Spread,
    /// Nodes within 0.5 % of the optimum.
    pub near: usize,
    /// Longer iterations at the end.
    pub longer: Spread,
    /// Longer iterations of the slowest window on the way.
    pub slowest: Spread,
    /// GPU energy of an iteration.
    pub energy: Spread,
    /// Energy times time at the end.
    pub energy_time: Spread,
    /// Net value of a node hour, and of the optimum's.
    pub value: Mean,
    /// The median of that.
    pub value_median: f64,
    /// Nodes whose net value's interval lies above zero, and below.
    pub value_above: usize,
    /// See there.
    pub value_below: usize,
    /// Changes of caps.
    pub adjustments: Spread,
    /// Nodes slower by more than 0.2 %.
    pub slower: usize,
    /// Nodes whose energy times time is more by 0.5 %.
    pub costlier: usize,
    /// Nodes of either kind.
    pub worse_off: usize,
    /// What trials would have shown, and on how many nodes.
    pub trials: BTreeMap<&'static str, usize>,
    /// Hours until a trial that compares anything ends.
    pub trial_hours: Spread,
    /// The nodes that end worst, first the worst.
    pub worst: Vec<Worst>,
}

/// A node that ended badly.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worst {
    /// Which.
    pub node: String,
    /// What it is.
    pub what: String,
    /// Longer iterations at the end.
    pub longer: f64,
    /// Energy times time: at the end or over the run, whichever is more.
    pub energy_time: f64,
}

/// So many of the worst are named.
const NAMED: usize = 5;

/// One summary per policy and hand, in the order in which the nodes have them.
#[must_use]
pub fn summaries(nodes: &[Verdicts]) -> Vec<Summary> {
    let Some(first) = nodes.first() else {
        return Vec::new();
    };
    let of = |at: usize| summary(nodes, at);
    (0..first.rows.len()).map(of).collect()
}

fn summary(nodes: &[Verdicts], at: usize) -> Summary {
    let rows: Vec<&Row> = nodes.iter().filter_map(|node| node.rows.get(at)).collect();
    let spread = |of: &dyn Fn(&Row) -> f64| Spread::of(rows.iter().map(|row| of(row)).collect());
    let count = |of: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| of(row)).count();
    let values: Vec<f64> = rows.iter().map(|row| row.value.mean).collect();
    let mut trials = BTreeMap::new();
    for row in &rows {
        *trials.entry(trial::name(row.trial)).or_default() += 1;
    }
    let compared = rows.iter().filter(|row| row.hours > 0.0);
    Summary {
        policy: rows
            .first()
            .map_or(Policy::Observe, |row| row.policy)
            .name(),
        law: rows.first().map_or("", |row| row.hand),
        nodes: rows.len(),
        observed: count(&|row| row.observed),
        gain: spread(&|row| row.gain),
        regret: spread(&|row| row.regret),
        near: count(&|row| row.regret <= NEAR),
        longer: spread(&|row| row.longer.mean),
        slowest: spread(&|row| row.slowest),
        energy: spread(&|row| row.energy),
        energy_time: spread(&|row| row.energy_time),
        value: Mean::of(&values),
        value_median: Spread::of(values.clone()).median,
        value_above: count(&|row| row.value.low > 0.0),
        value_below: count(&|row| row.value.high < 0.0),
        adjustments: spread(&|row| f64::from(row.adjustments)),
        slower: count(&|row| row.slower()),
        costlier: count(&|row| row.costlier()),
        worse_off: count(&|row| row.is_worse_off()),
        trials,
        trial_hours: Spread::of(compared.map(|row| row.hours).collect()),
        worst: worst(nodes, at),
    }
}

/// Regret below this counts as near the optimum.
const NEAR: f64 = 0.005;

fn worst(nodes: &[Verdicts], at: usize) -> Vec<Worst> {
    let mut rows: Vec<(&Verdicts, &Row)> = nodes
        .iter()
        .filter_map(|node| Some((node, node.rows.get(at)?)))
        .filter(|(_, row)| row.is_worse_off())
        .collect();
    rows.sort_by(|a, b| b.1.badness().total_cmp(&a.1.badness()));
    let worst = |(node, row): &(&Verdicts, &Row)| Worst {
        node: node.name.clone(),
        what: format!("{}, caps at {:.0} %", node.what, node.start * 100.0),
        longer: row.longer.mean,
        energy_time: row.energy_time.max(row.energy_time_run),
    };
    rows.iter().take(NAMED).map(worst).collect()
}
