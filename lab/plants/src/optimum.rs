//! The best caps there are, policy by policy, by the noise-free steady state.
//!
//! The search is over clocks, because then one timeline says what caps would hold them. It begins
//! where all GPUs have the same own pace and then moves one GPU after the other ahead or back, as
//! long as that helps. Noise is not in it: with noise a policy that leaves no slack loses a little
//! time, so a controller's regret against this optimum has a floor that is not its fault.

use std::fmt;

use litd_units::Watts;
use serde::Serialize;

use crate::node::Node;
use crate::steady::{Settled, Solver, Steady};

/// The paper's three policies (Lit Silicon, Table I).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Less power at the speed of the starting caps; no cap rises.
    GpuRed,
    /// More speed with caps that add up to no more than the starting caps.
    GpuRealloc,
    /// The same, with the watts that CPUs leave of their limit added to the budget.
    CpuSlosh,
}

impl Policy {
    /// All of them, in the paper's order.
    pub const ALL: [Self; 3] = [Self::GpuRed, Self::GpuRealloc, Self::CpuSlosh];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::GpuRed => "gpu-red",
            Self::GpuRealloc => "gpu-realloc",
            Self::CpuSlosh => "cpu-slosh",
        })
    }
}

/// The best caps of a policy and what they bring.
#[derive(Debug, Clone, Serialize)]
pub struct Optimum {
    /// The policy.
    pub policy: Policy,
    /// The caps.
    pub caps: Vec<Watts>,
    /// What caps may add up to.
    pub budget: Watts,
    /// The node under the starting caps.
    pub start: Steady,
    /// The node under these caps.
    pub best: Steady,
}

impl Optimum {
    /// Throughput against the start's.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.start.iteration / self.best.iteration
    }

    /// GPU power against the start's.
    #[must_use]
    pub fn power(&self) -> f64 {
        self.best.gpu_power() / self.start.gpu_power()
    }
}

/// How much slower than the start gpu-red's optimum may be: less than anybody can measure.
pub const SLACK: f64 = 1e-4;

/// The optimum of a policy.
pub(crate) fn find(node: &Node, policy: Policy, start: &[Watts]) -> Optimum {
    let highest = node.spec.range.highest;
    let caps: Vec<f64> = (0..node.gpus.len())
        .map(|gpu| start.get(gpu).copied().unwrap_or(highest).0)
        .collect();
    let mut budget: f64 = caps.iter().sum();
    if policy == Policy::CpuSlosh {
        budget += (node.host.limit - node.host.draw - node.host.margin).max(0.0);
    }
    let mut solver = Solver::new(node);
    let before = solver.under(&caps).clone();
    let mut search = Search::new(solver, policy, &before, &caps, budget);
    let begin = match policy {
        Policy::GpuRed => search.reduce(&before),
        _ => search.level_out(&before),
    };
    let found = [caps, search.polish(begin)];
    // Clocks are what was searched; what counts is what caps make of them.
    let (mut best, mut after) = (found[0].clone(), before.clone());
    for caps in found {
        let settled = search.solver.under(&caps).clone();
        let slow = policy == Policy::GpuRed && settled.length > before.length * (1.0 + SLACK);
        if !slow && search.objective(&settled) < search.objective(&after) {
            (best, after) = (caps, settled);
        }
    }
    Optimum {
        policy,
        caps: best.into_iter().map(Watts).collect(),
        budget: Watts(budget),
        start: before.published(node),
        best: after.published(node),
    }
}

struct Search<'a> {
    solver: Solver<'a>,
    policy: Policy,
    /// Clocks, length and temperatures under the starting caps.
    start: Vec<f64>,
    length: f64,
    temperature: Vec<f64>,
    /// Each GPU's lowest and highest cap, and what its limiter aims at under them.
    caps: Vec<(f64, f64)>,
    targets: Vec<(f64, f64)>,
    budget: f64,
}

/// A candidate that keeps to all bounds.
#[derive(Clone)]
struct Candidate {
    value: f64,
    /// The logarithm of the common pace.
    pace: f64,
}

impl<'a> Search<'a> {
    fn new(
        solver: Solver<'a>,
        policy: Policy,
        before: &Settled,
        start: &[f64],
        budget: f64,
    ) -> Self {
        let range = solver.node.spec.range;
        let caps: Vec<(f64, f64)> = start
            .iter()
            .map(|&cap| match policy {
                Policy::GpuRed => (range.lowest.0, cap),
                _ => (range.lowest.0, range.highest.0),
            })
            .collect();
        let gpus = solver.node.gpus.iter().zip(&caps);
        Self {
            policy,
            start: before.common.clone(),
            length: before.length,
            temperature: before.temperature.clone(),
            targets: gpus
                .map(|(gpu, it)| (gpu.target(it.0), gpu.target(it.1)))
                .collect(),
            caps,
            budget,
            solver,
        }
    }

    /// What is to be as small as can be.
    fn objective(&self, settled: &Settled) -> f64 {
        match self.policy {
            Policy::GpuRed => settled.power.iter().sum(),
            // Between equals in time, the one that draws less: a hair of weight.
            _ => settled.length * (1.0 + 1e-12 * settled.power.iter().sum::<f64>()),
        }
    }

    /// A GPU's own pace at a common clock.
    fn own(&self, gpu: usize, clock: f64) -> f64 {
        let node = self.solver.node;
        node.gpus[gpu].own_pace(clock, self.temperature[gpu], &node.weights)
    }

    /// The common clock at which a GPU has this pace.
    fn clock(&self, gpu: usize, pace: f64) -> f64 {
        let (mut low, mut high) = (self.solver.node.gpus[gpu].lowest, 1.0);
        if self.own(gpu, high) >= pace {
            return high;
        }
        for _ in 0..26 {
            let middle = 0.5 * (low + high);
            if self.own(gpu, middle) > pace {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// The caps that hold the node where it has settled.
    fn holding(&self) -> Vec<f64> {
        let settled = &self.solver.settled;
        let gpus = self.solver.node.gpus.iter().zip(&settled.regulated);
        gpus.zip(&self.caps)
            .map(|((spec, &power), &(lowest, highest))| spec.cap_for(power).clamp(lowest, highest))
            .collect()
    }

    /// The node with every GPU at a common pace but for its offset, as far as caps' ranges let it;
    /// and by how much its caps pass the budget, as a logarithm.
    fn at(&mut self, pace: f64, offsets: &[f64]) -> (Candidate, f64) {
        let clocks: Vec<f64> = (0..offsets.len())
            .map(|gpu| self.clock(gpu, (pace + offsets[gpu]).exp()))
            .collect();
        self.solver.held(&clocks, &self.targets);
        let caps = self.holding();
        let over = (caps.iter().sum::<f64>() / self.budget).ln();
        let value = self.objective(&self.solver.settled);
        (Candidate { value, pace }, over)
    }

    /// The fastest common pace that the budget pays for with these offsets: near `near`, if that
    /// is given.
    fn level(&mut self, offsets: &[f64], near: Option<f64>) -> Candidate {
        let (mut fast, mut slow) = match near {
            Some(pace) => (pace - 0.004, pace + 0.004),
            None => {
                let gpus = 0..offsets.len();
                let paces = gpus.map(|it| self.own(it, 1.0).ln());
                let fastest = paces.fold(f64::INFINITY, f64::min);
                (fastest - 0.05, fastest + 0.5)
            }
        };
        // Widened until the budget lies between. Where it pays for everything, the fastest is it.
        let (mut below, mut above) = (self.at(slow, offsets), self.at(fast, offsets));
        for _ in 0..12 {
            if below.1 > 0.0 {
                slow += 2.0 * (slow - fast);
                below = self.at(slow, offsets);
            } else if above.1 < 0.0 && near.is_some() {
                fast -= 2.0 * (slow - fast);
                above = self.at(fast, offsets);
            } else {
                break;
            }
        }
        if above.1 <= 0.0 {
            return if above.0.value < below.0.value {
                above.0
            } else {
                below.0
            };
        }
        // Regula falsi of Illinois' kind: brackets the pace at which caps fill the budget.
        let (mut low, mut high) = (below.1, above.1);
        for _ in 0..14 {
            let pace = (slow * high - fast * low) / (high - low);
            let it = self.at(pace, offsets);
            let over = it.1;
            if over > 0.0 {
                (fast, high, low) = (pace, over, low * 0.5);
            } else {
                (slow, low, high) = (pace, over, high * 0.5);
                below = it;
            }
            if over.abs() < 1e-7 && over <= 0.0 {
                break;
            }
        }
        below.0
    }

    /// Clocks within the budget at which the GPUs are about equally fast, or the starting ones
    /// where those are better.
    fn level_out(&mut self, before: &Settled) -> Vec<f64> {
        let mut offsets = vec![0.0; self.caps.len()];
        let mut best = self.level(&offsets, None);
        for step in [0.01, 0.003] {
            for gpu in 0..offsets.len() {
                for signed in [step, -step] {
                    offsets[gpu] += signed;
                    let it = self.level(&offsets, Some(best.pace));
                    if it.value < best.value * (1.0 - 1e-8) {
                        best = it;
                        break;
                    }
                    offsets[gpu] -= signed;
                }
            }
        }
        if best.value >= self.objective(before) {
            return before.common.clone();
        }
        self.at(best.pace, &offsets);
        self.solver.settled.common.clone()
    }

    /// The objective with what passes a bound added to it, steeply enough that passing never pays.
    fn penalised(&mut self, clocks: &[f64]) -> f64 {
        self.solver.held(clocks, &self.targets);
        let settled = &self.solver.settled;
        match self.policy {
            Policy::GpuRed => {
                let slower = (settled.length / self.length).ln() - 0.99 * SLACK;
                self.objective(settled).ln() + 300.0 * slower.max(0.0)
            }
            _ => {
                let over = (self.holding().iter().sum::<f64>() / self.budget).ln();
                self.objective(&self.solver.settled).ln() + 6.0 * over.max(0.0)
            }
        }
    }

    /// The clocks on the way to the starting ones that are just quick enough.
    fn quick_enough(&mut self, clocks: Vec<f64>) -> Vec<f64> {
        let start = self.start.clone();
        let mut between = |part: f64| -> (Vec<f64>, bool) {
            let pairs = clocks.iter().zip(&start);
            let clocks: Vec<f64> = pairs.map(|(a, b)| a + (b - a) * part).collect();
            let length = self.solver.held(&clocks, &self.targets).length;
            (clocks, length <= self.length * (1.0 + 0.999 * SLACK))
        };
        let (mut low, mut high) = (0.0, 1.0);
        if between(low).1 {
            return clocks;
        }
        for _ in 0..14 {
            let middle = 0.5 * (low + high);
            if between(middle).1 {
                high = middle;
            } else {
                low = middle;
            }
        }
        between(high).0
    }

    /// Moves one GPU's clock against the others', or all together, in ever smaller steps, as long
    /// as that helps; and the caps for it.
    fn polish(&mut self, mut clocks: Vec<f64>) -> Vec<f64> {
        let gpus = clocks.len();
        let mut best = self.penalised(&clocks);
        for step in [0.02, 0.006, 0.002, 0.0006, 0.0002, 0.00006] {
            for _ in 0..6 {
                let before = best;
                for (gpu, others) in (0..=gpus).flat_map(|gpu| [(gpu, 0.0), (gpu, -1.0)]) {
                    for signed in [step, -step] {
                        // Beyond the last GPU stands the move of all together.
                        let share = others / (gpus - 1) as f64;
                        let moved = |it: usize| if it == gpu { 1.0 } else { share };
                        let all = |it| if gpu == gpus { 1.0 } else { moved(it) };
                        let tried: Vec<f64> = (0..gpus)
                            .map(|it| (clocks[it] * (1.0 + signed * all(it))).min(1.0))
                            .collect();
                        let value = self.penalised(&tried);
                        if value < best - 1e-9 {
                            (clocks, best) = (tried, value);
                            break;
                        }
                    }
                }
                if before - best < 0.02 * step * step.max(1e-3) {
                    break;
                }
            }
        }
        if self.policy == Policy::GpuRed {
            clocks = self.quick_enough(clocks);
        }
        self.penalised(&clocks);
        let caps = self.holding();
        // What the search's own error leaves above the budget goes from all alike.
        let sum: f64 = caps.iter().sum();
        let fit = match self.policy {
            Policy::GpuRed => 1.0,
            _ => (self.budget / sum).min(1.0),
        };
        caps.into_iter()
            .zip(&self.caps)
            .map(|(cap, bounds)| (cap * fit).clamp(bounds.0, bounds.1))
            .collect()
    }

    /// The lowest caps at which the node is as fast as at the start: every GPU in turn is slowed
    /// as far as nobody waits for it, until nothing moves.
    fn reduce(&mut self, before: &Settled) -> Vec<f64> {
        let mut clocks = before.common.clone();
        let limit = self.length * (1.0 + 0.5 * SLACK);
        // All down together first, by as much as each GPU's own pace allows: a good beginning.
        let own: Vec<f64> = (0..clocks.len())
            .map(|it| self.own(it, clocks[it]))
            .collect();
        let slowest = own.iter().copied().fold(0.0, f64::max);
        for part in [1.0, 0.9, 0.75, 0.5, 0.25] {
            let level: Vec<f64> = (0..clocks.len())
                .map(|it| self.clock(it, own[it] * (slowest / own[it]).powf(part)))
                .zip(&clocks)
                .map(|(clock, &start)| clock.min(start))
                .collect();
            if self.solver.held(&level, &self.targets).length <= limit {
                clocks = level;
                break;
            }
        }
        for width in [0.1, 0.03] {
            for gpu in 0..clocks.len() {
                let (mut low, mut high) = (clocks[gpu] * (1.0 - width), clocks[gpu]);
                for _ in 0..12 {
                    let middle = 0.5 * (low + high);
                    clocks[gpu] = middle;
                    if self.solver.held(&clocks, &self.targets).length <= limit {
                        high = middle;
                    } else {
                        low = middle;
                    }
                }
                clocks[gpu] = high;
            }
        }
        clocks
    }
}
