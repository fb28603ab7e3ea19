//! Gradient-boosted regression trees with exact splits, for few rows of few features.
//!
//! The objective is the squared error, and gain, leaf and stopping are XGBoost's (Chen and Guestrin, 2016,
//! equations 5 to 7). Every distinct value of a feature in a node is a possible split, so nothing is
//! approximated; features of a search space have some twenty distinct values, and a node is one pass over its rows.

/// The features of a candidate: clock, SMs, launch.
pub const FEATURES: usize = 3;

/// A row of features.
pub type Row = [f64; FEATURES];

/// How trees grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    /// How many trees there are (`num_boost_round`).
    pub rounds: usize,
    /// How many splits there are at most from root to leaf (`max_depth`).
    pub depth: usize,
    /// How much of a leaf's value counts (`eta`).
    pub rate: f64,
    /// The number added to a leaf's weight (`lambda`).
    pub lambda: f64,
    /// The least weight in a leaf (`min_child_weight`).
    pub least_weight: f64,
}

/// Appendix C: depth 6, rate 0.3, 100 rounds; the rest are XGBoost's defaults.
pub const GROWTH: Growth = Growth {
    rounds: 100,
    depth: 6,
    rate: 0.3,
    lambda: 1.0,
    least_weight: 1.0,
};

/// A split must gain this much, as in XGBoost; targets are normalised, so it is small.
const LEAST_GAIN: f64 = 1e-6;

/// Trees whose leaves add up.
#[derive(Debug, Clone, PartialEq)]
pub struct Booster {
    base: f64,
    trees: Vec<Vec<Node>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Node {
    Leaf(f64),
    /// Rows below the threshold go to the next node, others to `right`.
    Split {
        feature: usize,
        threshold: f64,
        right: usize,
    },
}

/// The best split of a node.
#[derive(Debug, Clone, Copy)]
struct Split {
    gain: f64,
    feature: usize,
    /// Rows whose code is below go left.
    code: u16,
    threshold: f64,
}

/// The sums of gradients and of weights.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    gradient: f64,
    weight: f64,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.gradient += other.gradient;
        self.weight += other.weight;
    }

    fn less(self, other: Self) -> Self {
        Self {
            gradient: self.gradient - other.gradient,
            weight: self.weight - other.weight,
        }
    }

    fn score(self, lambda: f64) -> f64 {
        self.gradient * self.gradient / (self.weight + lambda)
    }
}

/// The data from which a tree is grown.
struct Data<'a> {
    growth: &'a Growth,
    /// Distinct values of each feature, ascending.
    values: [Vec<f64>; FEATURES],
    /// Rows as places in `values`.
    codes: Vec<[u16; FEATURES]>,
    targets: &'a [f64],
    weights: &'a [f64],
    predictions: Vec<f64>,
    /// For each distinct value of a feature.
    histogram: Vec<Sums>,
}

impl Booster {
    /// Trees that predict `targets` from `rows`; a row counts with its weight, which is how often a resample drew
    /// it. There are as many targets and weights as rows, and finite; without rows, it predicts 0.
    #[must_use]
    pub fn fit(rows: &[Row], targets: &[f64], weights: &[f64], growth: &Growth) -> Self {
        let mut used: Vec<usize> = (0..rows.len()).filter(|&row| weights[row] > 0.0).collect();
        let total: f64 = used.iter().map(|&row| weights[row]).sum();
        let sum: f64 = used.iter().map(|&row| weights[row] * targets[row]).sum();
        let base = if total > 0.0 { sum / total } else { 0.0 };
        let values = std::array::from_fn(|feature| distinct(rows, &used, feature));
        let codes = rows.iter().map(|row| codes(row, &values)).collect();
        let widest = values.iter().map(Vec::len).max().unwrap_or(0);
        let mut data = Data {
            growth,
            values,
            codes,
            targets,
            weights,
            predictions: vec![base; rows.len()],
            histogram: vec![Sums::default(); widest],
        };
        let trees = (0..growth.rounds).map(|_| {
            let mut nodes = Vec::new();
            data.grow(&mut used, growth.depth, &mut nodes);
            nodes
        });
        let trees = trees.collect();
        Self { base, trees }
    }

    /// The prediction for a row.
    #[must_use]
    pub fn predict(&self, row: &Row) -> f64 {
        let leaves = self.trees.iter().map(|tree| leaf(tree, row));
        self.base + leaves.sum::<f64>()
    }
}

fn leaf(tree: &[Node], row: &Row) -> f64 {
    let mut at = 0;
    loop {
        match tree.get(at) {
            Some(&Node::Split {
                feature,
                threshold,
                right,
            }) => {
                at = if row[feature] < threshold {
                    at + 1
                } else {
                    right
                }
            }
            Some(&Node::Leaf(value)) => return value,
            None => return 0.0,
        }
    }
}

fn distinct(rows: &[Row], used: &[usize], feature: usize) -> Vec<f64> {
    let mut values: Vec<f64> = used.iter().map(|&row| rows[row][feature]).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn codes(row: &Row, values: &[Vec<f64>; FEATURES]) -> [u16; FEATURES] {
    std::array::from_fn(|feature| {
        let below = values[feature].partition_point(|value| *value < row[feature]);
        below.min(usize::from(u16::MAX)) as u16
    })
}

impl Data<'_> {
    /// Appends the tree of these rows to `nodes`.
    fn grow(&mut self, rows: &mut [usize], depth: usize, nodes: &mut Vec<Node>) {
        let mut sums = Sums::default();
        for &row in &*rows {
            sums.add(self.sums(row));
        }
        let split = (depth > 0).then(|| self.best(rows, sums)).flatten();
        let Some(split) = split else {
            let value = -sums.gradient / (sums.weight + self.growth.lambda) * self.growth.rate;
            for &row in &*rows {
                self.predictions[row] += value;
            }
            nodes.push(Node::Leaf(value));
            return;
        };
        let goes_left = |row: usize| self.codes[row][split.feature] < split.code;
        let middle = divide(rows, goes_left);
        let (left, right) = rows.split_at_mut(middle);
        let at = nodes.len();
        nodes.push(Node::Leaf(0.0));
        self.grow(left, depth - 1, nodes);
        nodes[at] = Node::Split {
            feature: split.feature,
            threshold: split.threshold,
            right: nodes.len(),
        };
        self.grow(right, depth - 1, nodes);
    }

    fn sums(&self, row: usize) -> Sums {
        let weight = self.weights[row];
        Sums {
            gradient: weight * (self.predictions[row] - self.targets[row]),
            weight,
        }
    }

    /// The split with the largest gain; of equal ones the first feature and the lowest threshold.
    fn best(&mut self, rows: &[usize], all: Sums) -> Option<Split> {
        let Growth {
            lambda,
            least_weight,
            ..
        } = *self.growth;
        let mut best: Option<Split> = None;
        for feature in 0..FEATURES {
            let count = self.values[feature].len();
            self.histogram[..count].fill(Sums::default());
            for &row in rows {
                let sums = self.sums(row);
                self.histogram[usize::from(self.codes[row][feature])].add(sums);
            }
            let (mut left, mut last) = (Sums::default(), None);
            for code in 0..count {
                let here = self.histogram[code];
                if here.weight == 0.0 {
                    continue;
                }
                let right = all.less(left);
                if let Some(last) = last
                    && left.weight >= least_weight
                    && right.weight >= least_weight
                {
                    let gain = left.score(lambda) + right.score(lambda) - all.score(lambda);
                    if gain > best.map_or(LEAST_GAIN, |it: Split| it.gain) {
                        let values = &self.values[feature];
                        best = Some(Split {
                            gain,
                            feature,
                            code: code as u16,
                            threshold: f64::midpoint(values[last], values[code]),
                        });
                    }
                }
                left.add(here);
                last = Some(code);
            }
        }
        best
    }
}

/// Sorts rows that go left before the others, each side in its order; returns their number.
fn divide(rows: &mut [usize], goes_left: impl Fn(usize) -> bool) -> usize {
    let right: Vec<usize> = rows
        .iter()
        .copied()
        .filter(|&row| !goes_left(row))
        .collect();
    let mut middle = 0;
    for at in 0..rows.len() {
        if goes_left(rows[at]) {
            rows[middle] = rows[at];
            middle += 1;
        }
    }
    rows[middle..].copy_from_slice(&right);
    middle
}
