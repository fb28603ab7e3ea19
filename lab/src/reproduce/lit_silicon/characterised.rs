//! Section III of the paper: Figures 3, 4, 5 and 7; and section IV's predictions.

use litd_plants::statistics::{mean, median};
use litd_sim::Scenario;
use litd_study::iterations::{Execution, Iterations, Layer, Reading, SHOWN, warming};
use litd_study::paper::{Row, rows, straggler};
use litd_study::run;
use litd_traces::study::pearson;

use super::{Fallible, Item};

/// Seeds of Table III's predictions, as docs/calibration.md has them.
const SEEDS: [u64; 4] = [1, 2, 3, 4];

/// The kernels of Figure 3b: the paper's name, ours, and what the paper says of their overlap.
pub(super) const KERNELS: [(&str, &str, &str); 3] = [
    (
        "b_attn_fa",
        "b.attention",
        "the least overlap on all GPUs, such as 0 %",
    ),
    (
        "f_attn_op",
        "f.out_proj",
        "overlap that differs between GPUs, from 0 to 100 %",
    ),
    (
        "b_mlp_dp",
        "b.down_proj",
        "the most overlap on all GPUs, almost 100 %",
    ),
];

/// Figure 5 shows four GPUs: from hot to cool, and from slow to fast.
const HOT_FIRST: [usize; 4] = [0, 4, 7, 3];
const SLOW_FIRST: [usize; 4] = [4, 0, 7, 3];

/// A node of the paper.
pub(super) struct Node {
    pub name: &'static str,
    pub straggler: usize,
    pub iterations: Iterations,
}

/// What the items and pictures of section III need.
pub(super) struct Characterised {
    /// Node 1, then node 0.
    pub nodes: [Node; 2],
    /// Node 1 from a cold start.
    pub warming: Vec<Vec<Reading>>,
    fitted: Vec<Row>,
}

impl Characterised {
    pub(super) fn new() -> Fallible<Self> {
        let node = |name: &'static str| -> Fallible<Node> {
            let scenario = Scenario::builtin(name)?;
            Ok(Node {
                name,
                straggler: straggler(&scenario),
                iterations: Iterations::new(&scenario, run::seed(0))?,
            })
        };
        let scenario = Scenario::builtin("mi300x-node1")?;
        Ok(Self {
            nodes: [node("mi300x-node1")?, node("mi300x-node0")?],
            warming: warming(&scenario, run::seed(0))?,
            fitted: rows(&scenario, &SEEDS)?,
        })
    }

    pub(super) fn items(&self) -> Vec<Item> {
        let mut items = self.fitted_to();
        items.extend(self.by_layer());
        items.extend(self.by_kernel());
        items.extend(self.correlations());
        items.extend(self.orders());
        items.extend(self.leads());
        items
    }

    /// What the node was fitted to: Table III's predictions, Figure 3a's overlaps and Figure 5's spreads.
    fn fitted_to(&self) -> Vec<Item> {
        let item = |row: &Row| {
            let (item, unit, of) = match (row.source, row.what) {
                ("Figure 3a", _) => ("figure-3a", "", "one iteration, one seed"),
                ("Figure 5", _) => ("figure-5", "times", "the steady state, without noise"),
                (_, what) if what.ends_with("predicted") => {
                    ("table-3", "times", "mean of four seeds")
                }
                _ => return None,
            };
            let note =
                format!("the simulated node was fitted to it, so agreement is no prediction; {of}");
            Some(Item::compared(
                item,
                row.what,
                unit,
                row.paper,
                row.simulated,
                note,
            ))
        };
        let mut items: Vec<Item> = self.fitted.iter().filter_map(item).collect();
        items.push(Item::absent(
            "table-3",
            "gpu-red, throughput, predicted",
            "times",
            Some(1.00),
            "equation 6 gives 1 for gpu-red by definition, whatever the node",
        ));
        items
    }

    fn by_layer(&self) -> Vec<Item> {
        let [node, _] = &self.nodes;
        let all: Vec<Vec<Layer>> = (0..node.iterations.gpus())
            .map(|gpu| node.iterations.layers(gpu))
            .collect();
        let own = all.get(node.straggler).map_or(&[][..], Vec::as_slice);
        let leaders = || all_but(&all, node.straggler);
        let overlap = |of: &[Layer]| middle(of.iter().map(|it| it.overlap));
        let first = || all.iter().filter_map(|it| it.first()).map(|it| it.overlap);
        let most = leaders()
            .map(|it| highest_eighth(it.iter().map(|it| it.overlap)))
            .fold(0.0, f64::max);
        let together = leaders().filter_map(|it| {
            let overlap: Vec<f64> = it.iter().map(|it| it.overlap).collect();
            let time: Vec<f64> = it.iter().map(|it| it.communication.0).collect();
            pearson(&overlap, &time)
        });
        let share = |at: usize| {
            let least = all
                .iter()
                .filter_map(|it| it.get(at))
                .map(|it| it.communication.0)
                .fold(f64::MAX, f64::min);
            leaders()
                .filter_map(|it| it.get(at))
                .map(|it| it.communication.0 / least)
                .fold(0.0, f64::max)
        };
        let layers = own.len();
        vec![
            Item::compared(
                "figure-3a",
                "greatest overlap of a leader / the straggler's",
                "times",
                1.8,
                most / overlap(own),
                "three iterations; the leader's highest eighth of layers / the straggler's median",
            ),
            Item::ours(
                "figure-3a",
                "overlap ratio of an iteration's first layer, lowest GPU",
                "",
                first().fold(f64::MAX, f64::min),
                "the paper: all start between 30 and 40 %",
            ),
            Item::ours(
                "figure-3a",
                "overlap ratio of an iteration's first layer, highest GPU",
                "",
                first().fold(0.0, f64::max),
                "the paper: all start between 30 and 40 %",
            ),
            Item::ours(
                "figure-3a",
                "time of a layer's collectives, leader with most / GPU with least, median layer",
                "times",
                middle((0..layers).map(share)),
                "the paper draws it; a leader's collectives start earlier and all end at once",
            ),
            Item::ours(
                "figure-3a",
                "correlation of overlap and time of collectives over a leader's layers, median leader",
                "",
                middle(together),
                "the paper: the observations on overlap apply to communication too",
            ),
        ]
    }

    fn by_kernel(&self) -> Vec<Item> {
        let [node, _] = &self.nodes;
        let mut items = Vec::new();
        for (theirs, name, said) in KERNELS {
            let all: Vec<Vec<Execution>> = (0..node.iterations.gpus())
                .map(|gpu| node.iterations.executions(name, gpu))
                .collect();
            let overlap = |of: &[Execution]| middle(of.iter().map(|it| it.overlap));
            let duration = |of: &[Execution]| middle(of.iter().map(|it| it.duration.0));
            let own = all.get(node.straggler).map_or(&[][..], Vec::as_slice);
            let leaders = || all_but(&all, node.straggler);
            let lowest = all.iter().map(|it| overlap(it)).fold(f64::MAX, f64::min);
            let highest = all.iter().map(|it| overlap(it)).fold(0.0, f64::max);
            let note = format!(
                "the paper: {said}; ours is the median over layers, lowest GPU {lowest:.2}, highest {highest:.2}"
            );
            items.push(Item::ours(
                "figure-3b",
                format!("{theirs}: overlap, highest less lowest GPU"),
                "",
                highest - lowest,
                note,
            ));
            let what = format!("{theirs}: duration on the straggler / on the median leader");
            let ours = duration(own) / middle(leaders().map(|it| duration(it)));
            items.push(match name {
                "f.out_proj" => Item::compared(
                    "figure-3b",
                    what,
                    "times",
                    1.0 / 1.5,
                    ours,
                    "the paper: the straggler is 1.5 times as fast",
                ),
                _ => Item::ours(
                    "figure-3b",
                    what,
                    "times",
                    ours,
                    "the paper: the straggler is 5 to 10 % slower",
                ),
            });
        }
        items
    }

    /// Figure 4: matrix products, attention and norms on every GPU.
    fn correlations(&self) -> Vec<Item> {
        let [node, _] = &self.nodes;
        let dominant = |name: &str| {
            ["proj", "attention", "norm"]
                .iter()
                .any(|it| name.contains(it))
        };
        let all = node.iterations.correlations(dominant);
        let kernels = all.len() / node.iterations.gpus().max(1);
        let of = |values: Vec<Option<f64>>, what: &str, none: &str| {
            let known: Vec<f64> = values.iter().copied().flatten().collect();
            let high = known.iter().filter(|it| **it >= 0.8).count();
            let note = format!(
                "the paper: high for most kernels and GPUs, without numbers in the text; ours: {high} of {} cells \
                 ({kernels} kernels on each GPU) are at least 0.8, {} have no value, because {none}",
                all.len(),
                all.len() - known.len()
            );
            let what = format!("{what} of overlap and duration, median cell");
            Item::ours("figure-4", what, "", middle(known.into_iter()), note)
        };
        vec![
            of(
                all.iter().map(|it| it.pearson).collect(),
                "Pearson's correlation",
                "overlap does not vary",
            ),
            of(
                all.iter().map(|it| it.cosine).collect(),
                "cosine similarity",
                "there is no overlap",
            ),
        ]
    }

    /// Figure 5: who is hot and who is slow, once the node has warmed up.
    fn orders(&self) -> Vec<Item> {
        let last = &self.warming[self.warming.len().saturating_sub(SHOWN)..];
        let settled = |of: fn(&Reading) -> f64, gpu: usize| {
            middle(last.iter().filter_map(|it| it.get(gpu)).map(of))
        };
        let item = |what: &str, theirs: [usize; 4], of: fn(&Reading) -> f64, rises: bool| {
            let mut ours = theirs;
            ours.sort_by(|&a, &b| {
                let order = settled(of, a).total_cmp(&settled(of, b));
                if rises { order } else { order.reverse() }
            });
            let same = ours.iter().zip(theirs).filter(|(a, b)| **a == *b).count();
            let note = format!(
                "the paper: {theirs:?}; ours {ours:?}, medians of three iterations at the end of {} from a cold start. \
                 The simulator has one temperature and one clock in an iteration",
                self.warming.len()
            );
            let what = format!("{what}: how many of four GPUs have the same place as in the paper");
            Item::compared("figure-5", what, "", 4.0, same as f64, note)
        };
        vec![
            item("from hot to cool", HOT_FIRST, |it| it.temperature, false),
            item("from slow to fast", SLOW_FIRST, |it| it.clock, true),
        ]
    }

    /// Figure 7: who is last, and what repeats.
    fn leads(&self) -> Vec<Item> {
        let mut items = Vec::new();
        for node in &self.nodes {
            let leads = node.iterations.leads();
            let kernels = leads.first().map_or(0, Vec::len) / SHOWN;
            // The beginning of an iteration, where everybody starts at once, does not count.
            let counts = |at: usize| at % kernels.max(1) >= kernels / 10;
            let last = |gpu: usize| {
                let zero = leads[gpu].iter().enumerate();
                zero.filter(|(at, lead)| counts(*at) && lead.0 <= 0.0)
                    .count() as f64
            };
            let each: Vec<f64> = (0..leads.len()).map(last).collect();
            let sum: f64 = each.iter().sum();
            let shares: Vec<String> = each
                .iter()
                .map(|it| format!("{:.0}", it / sum * 100.0))
                .collect();
            let note = format!("ours, shares of GPU 0 to 7: {} %", shares.join(" "));
            let said = match node.name {
                "mi300x-node1" => "the paper: GPU 4 almost constantly",
                _ => "the paper: GPU 3 most of the time",
            };
            items.push(Item::ours(
                "figure-7",
                format!(
                    "{}: share of kernels that GPU {} starts last, without an iteration's first tenth",
                    node.name, node.straggler
                ),
                "",
                each[node.straggler] / sum,
                format!("{said}; {note}"),
            ));
            let others = each.iter().filter(|it| **it > 0.0).count() as f64 - 1.0;
            let (theirs, said) = match node.name {
                "mi300x-node1" => (0.0, "the paper: no other"),
                _ => (3.0, "the paper: such as GPUs 1, 2 and 6"),
            };
            items.push(Item::compared(
                "figure-7",
                format!("{}: other GPUs that are ever last", node.name),
                "",
                theirs,
                others,
                said,
            ));
            let repeats = leads.iter().filter_map(|it| {
                let (first, second) = it.split_at(kernels.min(it.len()));
                pearson(
                    &first.iter().map(|it| it.0).collect::<Vec<f64>>(),
                    &second.iter().map(|it| it.0).collect::<Vec<f64>>(),
                )
            });
            items.push(Item::ours(
                "figure-7",
                format!(
                    "{}: correlation of an iteration's leads with the next one's, median GPU",
                    node.name
                ),
                "",
                middle(repeats),
                "the paper: almost identical across iterations",
            ));
        }
        items
    }
}

/// The median; 0 of nothing.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    median(values.collect()).unwrap_or(0.0)
}

/// The mean of the highest eighth: a plateau.
fn highest_eighth(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(|a, b| b.total_cmp(a));
    let few = (values.len() / 8).max(1);
    values.truncate(few);
    mean(&values).unwrap_or(0.0)
}

/// What all GPUs but this one have.
fn all_but<T>(all: &[T], gpu: usize) -> impl Iterator<Item = &T> {
    let others = all.iter().enumerate().filter(move |(at, _)| *at != gpu);
    others.map(|(_, it)| it)
}
