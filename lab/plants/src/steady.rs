//! Where a node settles without noise: clocks, heat and waiting depend on one another, so a fixed
//! point is sought.
//!
//! Given clocks say in one iteration's timeline which power goes with them, and so which caps would
//! hold them; given caps take some ten, because what limiters regulate depends on who waits.

use litd_units::{Celsius, Hertz, Joules, Millis, Watts};
use serde::Serialize;

use crate::gpu::Operation;
use crate::node::Node;
use crate::timeline::{Timeline, Use};
use crate::workload::CLASSES;

/// A node that stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Steady {
    /// Length of an iteration.
    pub iteration: Millis,
    /// Mean true power of each GPU.
    pub power: Vec<Watts>,
    /// Temperature of each.
    pub temperature: Vec<Celsius>,
    /// Clock of each, averaged over the time in its kernels.
    pub clock: Vec<Hertz>,
    /// Part of each GPU's time in kernels that a collective overlaps.
    pub overlap: Vec<f64>,
    /// Whether its cap holds each down.
    pub binds: Vec<bool>,
}

impl Steady {
    /// Power of all GPUs.
    #[must_use]
    pub fn gpu_power(&self) -> Watts {
        self.power.iter().copied().sum()
    }

    /// Energy of all GPUs in an iteration.
    #[must_use]
    pub fn energy(&self) -> Joules {
        Joules(self.gpu_power().0 * self.iteration.0 * 1e-3)
    }
}

/// The same in the words of the inside.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settled {
    pub length: f64,
    pub common: Vec<f64>,
    pub at: Vec<Operation>,
    pub uses: Vec<Use>,
    pub power: Vec<f64>,
    pub regulated: Vec<f64>,
    pub temperature: Vec<f64>,
}

impl Settled {
    /// As the trait gives it.
    pub fn published(&self, node: &Node) -> Steady {
        let clock = |gpu: usize| {
            let (at, used) = (&self.at[gpu], &self.uses[gpu]);
            let sum: f64 = (0..CLASSES).map(|it| used.busy[it] * at.clock[it]).sum();
            Hertz(sum / used.computing().max(1e-9) * node.spec.clock * 1e6)
        };
        let overlap = |it: &Use| it.overlapped / it.computing().max(1e-9);
        Steady {
            iteration: Millis(self.length),
            power: self.power.iter().map(|&it| Watts(it)).collect(),
            temperature: self.temperature.iter().map(|&it| Celsius(it)).collect(),
            clock: (0..self.uses.len()).map(clock).collect(),
            overlap: self.uses.iter().map(overlap).collect(),
            binds: self.common.iter().map(|&it| it < 1.0 - 1e-9).collect(),
        }
    }
}

/// A search that keeps its memory from one evaluation to the next.
pub(crate) struct Solver<'a> {
    pub node: &'a Node,
    timeline: Timeline,
    /// What was found last; the next search begins there.
    pub settled: Settled,
}

impl<'a> Solver<'a> {
    pub fn new(node: &'a Node) -> Self {
        let gpus = node.gpus.len();
        Self {
            node,
            timeline: Timeline::default(),
            settled: Settled {
                common: vec![1.0; gpus],
                at: vec![Operation::default(); gpus],
                power: vec![node.spec.range.highest.0 * 0.8; gpus],
                regulated: vec![0.0; gpus],
                temperature: vec![node.heat.inlet + 40.0; gpus],
                ..Settled::default()
            },
        }
    }

    /// One iteration at the present clocks and temperatures.
    fn iterate(&mut self) {
        let node = self.node;
        let it = &mut self.settled;
        for (gpu, spec) in node.gpus.iter().enumerate() {
            it.at[gpu] = spec.operate(it.common[gpu], it.temperature[gpu]);
        }
        let paces: Vec<_> = node
            .gpus
            .iter()
            .zip(&it.at)
            .map(|(g, a)| g.pace(a))
            .collect();
        let transfer = node.transfer_factor(it.at.iter().copied());
        self.timeline.run(&node.workload, &paces, transfer, None);
        it.length = self.timeline.length;
        it.uses.clone_from(&self.timeline.uses);
    }

    /// Powers and temperatures that go with the present iteration. Returns by how much the
    /// temperature at which clocks were chosen was off, K.
    fn warm(&mut self) -> f64 {
        let node = self.node;
        let it = &mut self.settled;
        let before = it.temperature.clone();
        for _ in 0..40 {
            let hottest = it.temperature.iter().copied().fold(0.0, f64::max);
            let fan = node.heat.fan(hottest, node.spec.slowdown);
            let factor = node.heat.resistance(fan);
            for (gpu, spec) in node.gpus.iter().enumerate() {
                let (at, used) = (&it.at[gpu], &it.uses[gpu]);
                let idle = spec.idle(it.temperature[gpu], at.voltage);
                it.power[gpu] = idle + spec.mean_dynamic(at, used, it.length);
            }
            let mut moved = 0.0_f64;
            for gpu in 0..node.gpus.len() {
                let wanted = node.heat.temperature(&node.gpus, &it.power, gpu, factor);
                let step = 0.7 * (wanted - it.temperature[gpu]);
                it.temperature[gpu] += step;
                moved = moved.max(step.abs());
            }
            if moved < 1e-7 {
                break;
            }
        }
        for (gpu, spec) in node.gpus.iter().enumerate() {
            let (at, used) = (&it.at[gpu], &it.uses[gpu]);
            let idle = spec.idle(it.temperature[gpu], at.voltage);
            it.regulated[gpu] = spec.regulated(at, used, it.length, idle);
        }
        // Only where heat lowers clocks does the temperature matter to what was just run.
        let matters = |gpu: usize, temperature: f64| {
            let at = node.gpus[gpu].operate(it.common[gpu], temperature);
            at.clock != it.at[gpu].clock
        };
        let mut off = 0.0_f64;
        for (gpu, &before) in before.iter().enumerate() {
            if matters(gpu, it.temperature[gpu]) {
                let step = it.temperature[gpu] - before;
                off = off.max(step.abs());
                it.temperature[gpu] = before + 0.3 * step;
            }
        }
        off
    }

    /// Where the node settles if every limiter allows the wanted common clock, but for what power
    /// forbids: GPU by GPU the regulated power stays within `range`, W, where a clock can do that.
    pub fn held(&mut self, wanted: &[f64], range: &[(f64, f64)]) -> &Settled {
        let node = self.node;
        let gpus = node.gpus.len();
        let mut exponent = vec![2.2; gpus];
        let mut last: Vec<Option<(f64, f64)>> = vec![None; gpus];
        for (common, &wanted) in self.settled.common.iter_mut().zip(wanted) {
            // Whom power held just below what is wanted it will probably hold again.
            if *common > wanted || *common < 0.9 * wanted {
                *common = wanted;
            }
        }
        for _ in 0..ROUNDS {
            self.iterate();
            let off = self.warm();
            let it = &mut self.settled;
            let mut moved = 0.0_f64;
            for (gpu, spec) in node.gpus.iter().enumerate() {
                let now = (it.common[gpu].ln(), it.regulated[gpu].ln());
                if let Some(last) = last[gpu] {
                    let (clock, power) = (now.0 - last.0, now.1 - last.1);
                    if clock.abs() > 1e-7 {
                        // What power did for the last change of clock, within what is sensible.
                        exponent[gpu] = (power / clock).clamp(0.7, 4.0);
                    }
                }
                last[gpu] = Some(now);
                let towards = |power: f64| {
                    let step = 0.8 * (power.ln() - now.1) / exponent[gpu];
                    it.common[gpu] * step.clamp(-0.3, 0.3).exp()
                };
                let (lowest, highest) = (towards(range[gpu].0), towards(range[gpu].1));
                let next = wanted[gpu].clamp(lowest.min(highest), highest);
                let next = next.clamp(spec.lowest, 1.0);
                moved = moved.max((next.ln() - now.0).abs());
                it.common[gpu] = next;
            }
            if moved < 1e-8 && off < 1e-6 {
                break;
            }
        }
        &self.settled
    }

    /// Where it settles under these caps.
    pub fn under(&mut self, caps: &[f64]) -> &Settled {
        let gpus = self.node.gpus.iter().zip(caps);
        let range: Vec<_> = gpus.map(|(gpu, &cap)| (1e-3, gpu.target(cap))).collect();
        self.held(&vec![1.0; caps.len()], &range)
    }
}

/// So many rounds at most: most nodes need some ten, those that heat slows some fifty.
const ROUNDS: usize = 200;

/// Where a node settles under these caps; a GPU without one has the highest.
pub(crate) fn under(node: &Node, caps: &[Watts]) -> Settled {
    let cap = |gpu: usize| caps.get(gpu).copied().unwrap_or(node.spec.range.highest);
    let caps: Vec<f64> = (0..node.gpus.len())
        .map(|gpu| {
            cap(gpu)
                .max(node.spec.range.lowest)
                .min(node.spec.range.highest)
                .0
        })
        .collect();
    let mut solver = Solver::new(node);
    solver.under(&caps);
    solver.settled
}
