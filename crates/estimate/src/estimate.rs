//! The result from the samples of all nodes.

use std::collections::BTreeMap;

use litd_trial::Estimate as Mean;
use litd_units::Prices;
use serde::Serialize;

use crate::bound::Bound;
use crate::compare::{correlation, quantile, repair_limit};
use crate::fleet::Fleet;
use crate::node::{self, Compared, Intervals, NOT_IN_BOTH_HALVES, NodeEstimate, PerPolicy, Range};

/// The fleet's intervals need so many nodes: of fewer nobody knows how nodes differ.
const LEAST_NODES: usize = 4;

/// The value below which a tenth, half and nine tenths of the nodes lie.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Triple {
    /// A tenth.
    pub p10: f64,
    /// Half.
    pub median: f64,
    /// Nine tenths.
    pub p90: f64,
}

impl Triple {
    fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            p10: quantile(values, 0.1)?,
            median: quantile(values, 0.5)?,
            p90: quantile(values, 0.9)?,
        })
    }
}

/// A GPU that is to be repaired.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slow {
    /// The node.
    pub node: String,
    /// The GPU's name.
    pub gpu: String,
    /// By how much it is slower than its node's median, in per cent.
    pub slower_pct: f64,
}

/// A question that the data can't answer, and on how many nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gap {
    /// The key that is null, or zero, there.
    pub what: &'static str,
    /// Why.
    pub why: String,
    /// Of how many nodes.
    pub nodes: usize,
}

/// The fleet: means over its nodes, or how they are distributed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FleetEstimate {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many GPUs.
    pub gpus: usize,
    /// How many samples counted.
    pub samples: u64,
    /// As of a node, over all samples.
    pub limiter_share: Option<BTreeMap<&'static str, f64>>,
    /// Of the nodes in which GPUs are compared.
    pub spread_pct: Option<Triple>,
    /// The same.
    pub slowest_vs_median_pct: Option<Triple>,
    /// As of a node, over the GPUs of all nodes.
    pub persistence: Option<f64>,
    /// In which share of the nodes that tell the hottest GPU is the slowest.
    pub hottest_is_slowest: Option<f64>,
    /// In which share it would be by chance.
    pub hottest_is_slowest_by_chance: Option<f64>,
    /// Upper bounds: means over the GPUs of the nodes that have one, of gpu-red over their power.
    pub bound: Bound,
    /// The saving of gpu-red at other slopes than the least, of a node, in per cent.
    pub gpu_red_at_slopes: BTreeMap<&'static str, f64>,
    /// The largest reduction of all nodes' power, W.
    pub watts: PerPolicy,
    /// Mean over the nodes, an hour.
    pub values: PerPolicy,
    /// The largest of them.
    pub value_per_node_hour: Option<f64>,
    /// GPUs to repair.
    pub repair: Option<Vec<Slow>>,
    /// A GPU is to be repaired that is slower than its node's median by more than this, in per cent.
    pub repair_limit_pct: Option<f64>,
    /// 95 % intervals of the means, from how nodes differ.
    pub intervals: Intervals,
    /// Questions that the data can't answer.
    pub cannot_tell: Vec<Gap>,
}

/// The result from the samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Each node.
    pub nodes: Vec<NodeEstimate>,
    /// The whole fleet.
    pub fleet: FleetEstimate,
}

impl Estimate {
    /// From samples. With prices, bounds are worth something.
    #[must_use]
    pub fn of(samples: &Fleet, prices: Option<Prices>) -> Self {
        let all = samples.nodes();
        let each = all
            .iter()
            .map(|(name, gpus)| node::estimate(name, gpus, prices));
        let (mut nodes, compared): (Vec<_>, Vec<_>) = each.unzip();
        let gpus = all.iter().flat_map(|it| it.1.iter().map(|it| it.1));
        let mut fleet = FleetEstimate {
            nodes: nodes.len(),
            gpus: nodes.iter().map(|it| it.gpus).sum(),
            samples: nodes.iter().map(|it| it.samples).sum(),
            limiter_share: node::limiter_share(gpus),
            ..FleetEstimate::default()
        };
        fleet.repair(&mut nodes, &compared);
        fleet.distribution(&nodes, &compared);
        fleet.bounds(&nodes, &compared);
        fleet.cannot_tell = gaps(&nodes, &compared);
        Self { nodes, fleet }
    }
}

impl FleetEstimate {
    fn distribution(&mut self, nodes: &[NodeEstimate], compared: &[Compared]) {
        let known = |value: fn(&NodeEstimate) -> Option<f64>| {
            Vec::from_iter(nodes.iter().filter_map(value))
        };
        self.spread_pct = Triple::of(&known(|it| it.spread_pct));
        self.slowest_vs_median_pct = Triple::of(&known(|it| it.slowest_vs_median_pct));
        let halves = compared.iter().flat_map(|it| &it.halves);
        let pairs = Vec::from_iter(halves.copied().flatten());
        let persistence = correlation(&pairs).filter(|_| pairs.len() >= 3);
        self.persistence = persistence.map(|it| (it * 1e8).round() / 1e8);
        let hottest = nodes
            .iter()
            .filter_map(|it| Some((it.hottest_is_slowest?, it.gpus)));
        let hottest = Vec::from_iter(hottest);
        if !hottest.is_empty() {
            let count = hottest.len() as f64;
            self.hottest_is_slowest = Some(hottest.iter().filter(|it| it.0).count() as f64 / count);
            let chance = hottest.iter().map(|it| 1.0 / it.1 as f64).sum::<f64>() / count;
            self.hottest_is_slowest_by_chance = Some(chance);
        }
    }

    fn bounds(&mut self, nodes: &[NodeEstimate], compared: &[Compared]) {
        let by_gpus = |value: fn(&NodeEstimate) -> Option<f64>| {
            mean(
                nodes
                    .iter()
                    .filter_map(|it| Some((value(it)?, it.gpus as f64))),
            )
        };
        // Over power, where that is known of any node.
        let is_drawn = nodes.iter().any(|it| it.watts.gpu_red.is_some());
        let by_power = |value: &dyn Fn(&NodeEstimate) -> Option<f64>| {
            let all = nodes.iter().zip(compared);
            let weighed = all.filter_map(|(node, compared)| {
                let weight = match is_drawn {
                    true => compared.power?,
                    false => node.gpus as f64,
                };
                Some((value(node)?, weight))
            });
            mean(weighed)
        };
        let red = by_power(&|it| it.bound.gpu_red_power_pct);
        for slope in nodes.iter().flat_map(|it| it.gpu_red_at_slopes.keys()) {
            if !self.gpu_red_at_slopes.contains_key(slope) {
                let saved = by_power(&|it| it.gpu_red_at_slopes.get(slope).copied());
                self.gpu_red_at_slopes.extend(saved.map(|it| (*slope, it)));
            }
        }
        self.bound = Bound {
            gpu_red_power_pct: red,
            gpu_realloc_throughput_pct: by_gpus(|it| it.bound.gpu_realloc_throughput_pct),
            cpu_slosh_throughput_pct: by_gpus(|it| it.bound.cpu_slosh_throughput_pct),
        };
        let total = |value: fn(&NodeEstimate) -> Option<f64>| {
            let known = nodes.iter().filter_map(value);
            known.fold(None, |sum, it| Some(sum.unwrap_or(0.0) + it))
        };
        self.watts = PerPolicy {
            gpu_red: total(|it| it.watts.gpu_red),
            gpu_realloc: total(|it| it.watts.gpu_realloc),
            cpu_slosh: total(|it| it.watts.cpu_slosh),
        };
        let each = |value: fn(&NodeEstimate) -> Option<f64>| {
            mean(nodes.iter().filter_map(|it| Some((value(it)?, 1.0))))
        };
        self.values = PerPolicy {
            gpu_red: each(|it| it.values.gpu_red),
            gpu_realloc: each(|it| it.values.gpu_realloc),
            cpu_slosh: each(|it| it.values.cpu_slosh),
        };
        self.value_per_node_hour = self.values.largest();
        self.intervals(nodes);
    }

    fn intervals(&mut self, nodes: &[NodeEstimate]) {
        let around = |middle: Option<f64>, value: &dyn Fn(&NodeEstimate) -> Option<f64>| {
            let values = Vec::from_iter(nodes.iter().filter_map(value));
            if values.len() < LEAST_NODES {
                return None;
            }
            let half = Mean::of(&values, 0.95)?.half_width();
            Some(Range::around(middle?, half))
        };
        let values = self.values;
        let largest = self.value_per_node_hour;
        self.intervals = Intervals {
            spread_pct: None,
            slowest_vs_median_pct: None,
            gpu_red_power_pct: around(self.bound.gpu_red_power_pct, &|it| {
                it.bound.gpu_red_power_pct
            })
            .map(Range::of_a_whole),
            gpu_realloc_throughput_pct: around(self.bound.gpu_realloc_throughput_pct, &|it| {
                it.bound.gpu_realloc_throughput_pct
            }),
            cpu_slosh_throughput_pct: around(self.bound.cpu_slosh_throughput_pct, &|it| {
                it.bound.cpu_slosh_throughput_pct
            }),
            value_per_node_hour: around(largest, &|it| match () {
                () if values.cpu_slosh >= largest => it.values.cpu_slosh,
                () if values.gpu_realloc >= largest => it.values.gpu_realloc,
                () => it.values.gpu_red,
            }),
        };
    }

    /// Names the GPUs that are slower than their peers beyond what GPUs of this fleet differ, all the time.
    fn repair(&mut self, nodes: &mut [NodeEstimate], compared: &[Compared]) {
        let slower = compared
            .iter()
            .flat_map(|it| it.slower.iter().map(|it| it.1));
        let Some(limit) = repair_limit(&Vec::from_iter(slower)) else {
            return;
        };
        self.repair_limit_pct = Some(limit.exp_m1() * 100.0);
        let mut found = Vec::new();
        let mut known = false;
        for (node, compared) in nodes.iter_mut().zip(compared) {
            let seen = compared.halves.iter().flatten().count();
            let all = compared.slower.len();
            let why = match seen {
                _ if all == 0 => continue,
                0 => Some(NOT_IN_BOTH_HALVES.to_owned()),
                1 | 2 => Some("two GPUs alone do not show which of them is slow".to_owned()),
                _ if seen < all => Some(format!(
                    "{seen} of {all} GPUs were seen in both halves of the time: the others are not judged"
                )),
                _ => None,
            };
            if let Some(why) = why {
                node.why.insert("repair", why);
            }
            if seen < 3 {
                continue;
            }
            known = true;
            let all = compared.slower.iter().zip(&compared.halves);
            let slow = all.filter(|((_, slower), halves)| {
                let both = |it: (f64, f64)| it.0 > limit && it.1 > limit;
                *slower > limit && halves.is_some_and(both)
            });
            let slow = Vec::from_iter(slow.map(|it| Slow {
                node: node.node.clone(),
                gpu: it.0.0.clone(),
                slower_pct: it.0.1.exp_m1() * 100.0,
            }));
            node.repair = Some(slow.iter().map(|it| it.gpu.clone()).collect());
            found.extend(slow);
        }
        found.sort_by(|a, b| b.slower_pct.total_cmp(&a.slower_pct));
        self.repair = known.then_some(found);
    }
}

/// The mean of values with weights.
fn mean(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (sum, weight) = values.fold((0.0, 0.0), |(sum, all), (value, weight)| {
        (sum + value * weight, all + weight)
    });
    (weight > 0.0).then(|| sum / weight)
}

/// Questions that the data can't answer, the most frequent first.
fn gaps(nodes: &[NodeEstimate], compared: &[Compared]) -> Vec<Gap> {
    let mut counted: BTreeMap<(&'static str, &str), usize> = BTreeMap::new();
    for node in nodes {
        for (what, why) in &node.why {
            *counted.entry((what, why)).or_default() += 1;
        }
    }
    let by_draw = compared.iter().filter(|it| it.by_draw).count();
    if by_draw > 0 {
        let why = "no column has the limiter: a GPU that draws 93 % of its cap or more counts as limited by power; \
                   bursts that meet a cap between two samples are not seen";
        counted.insert(("limiter_share", why), by_draw);
    }
    let bounds = |it: &&NodeEstimate| it.bound != Bound::default();
    let bounded = nodes.iter().filter(bounds).count();
    if (1..LEAST_NODES).contains(&bounded) {
        let why = "the fleet's intervals need 4 nodes that have a bound";
        counted.insert(("intervals", why), bounded);
    }
    let gaps = counted.into_iter().map(|((what, why), nodes)| Gap {
        what,
        why: why.to_owned(),
        nodes,
    });
    let mut gaps = Vec::from_iter(gaps);
    gaps.sort_by_key(|it| std::cmp::Reverse(it.nodes));
    gaps
}
