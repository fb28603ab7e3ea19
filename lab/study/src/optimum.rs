//! The best caps that a plant has, found by an optimiser that knows nothing of it: caps go in,
//! mean iteration time and power come out. Every probe sees the same noise, so that differences
//! between caps are differences of the caps.

use litd_sim::{Plant, Scenario};
use litd_units::{Millis, Watts};

use crate::StudyError;

/// What caps lead to, in thermal steady state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Mean wall time of an iteration.
    pub time: Millis,
    /// Mean power of all GPUs.
    pub power: Watts,
}

/// A plant as an optimiser sees it.
#[derive(Debug, Clone)]
pub struct Probe {
    plant: Plant,
    /// Iterations that one outcome is the mean of.
    iterations: u32,
    calls: u32,
}

impl Probe {
    /// Of a node whose noise starts from `seed`, with its CPUs limited to `cpus` where that is
    /// not empty. Caps need not be whole driver units.
    ///
    /// # Errors
    /// The scenario makes no sense.
    pub fn new(
        scenario: &Scenario,
        seed: u64,
        cpus: &[Watts],
        iterations: u32,
    ) -> Result<Self, StudyError> {
        let mut scenario = scenario.clone();
        scenario.caps.resolution = Watts(1e-3);
        let mut plant = Plant::new(&scenario, seed)?;
        for (cpu, &limit) in cpus.iter().enumerate() {
            plant.set_cpu_limit(cpu, limit)?;
        }
        Ok(Self {
            plant,
            iterations,
            calls: 0,
        })
    }

    /// Of a plant as it is now, with the noise that comes next.
    #[must_use]
    pub fn of(plant: &Plant, iterations: u32) -> Self {
        Self {
            plant: plant.clone(),
            iterations,
            calls: 0,
        }
    }

    /// What these caps lead to.
    ///
    /// # Errors
    /// The plant refuses a cap.
    pub fn at(&mut self, caps: &[Watts]) -> Result<Outcome, StudyError> {
        self.calls += 1;
        let mut plant = self.plant.clone();
        for (gpu, &cap) in caps.iter().enumerate() {
            plant.set_gpu_cap(gpu, cap)?;
        }
        plant.settle();
        let (mut time, mut power) = (Millis::ZERO, Watts::ZERO);
        for _ in 0..self.iterations {
            time += plant.run_iteration().length;
            power += plant.gpu_power();
        }
        let n = f64::from(self.iterations);
        Ok(Outcome {
            time: time / n,
            power: power / n,
        })
    }

    /// How often it was asked.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.calls
    }
}

/// The caps among which the best are looked for.
#[derive(Debug, Clone)]
pub struct Space {
    /// The lowest and the highest cap of each GPU.
    pub range: Vec<(Watts, Watts)>,
    /// What all may add up to.
    pub budget: Watts,
}

/// Caps and what they lead to.
#[derive(Debug, Clone)]
pub struct Best {
    /// The caps.
    pub caps: Vec<Watts>,
    /// What they lead to.
    pub outcome: Outcome,
}

/// Distances over which slopes are taken, one after the other: W.
const DISTANCES: [f64; 3] = [10.0, 5.0, 2.5];

/// Descents at one distance.
const DESCENTS: u32 = 12;

/// What is gained less than this ends the descents at a distance.
const NOTHING: f64 = 3e-6;

impl Space {
    /// The nearest allowed caps: within the ranges, and all shifted alike to fit the budget.
    fn project(&self, caps: &[f64]) -> Vec<Watts> {
        let shifted = |by: f64| -> Vec<Watts> {
            let clamp = |(&cap, range): (&f64, &(Watts, Watts))| {
                Watts((cap - by).clamp(range.0.0, range.1.0))
            };
            caps.iter().zip(&self.range).map(clamp).collect()
        };
        let over = |by: f64| shifted(by).iter().copied().sum::<Watts>() > self.budget;
        if !over(0.0) {
            return shifted(0.0);
        }
        let (mut low, mut high) = (0.0, 1e5);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if over(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        shifted(high)
    }

    /// The caps with the least cost, looked for downhill from `start`.
    ///
    /// # Errors
    /// The plant refuses a cap.
    pub fn least(
        &self,
        probe: &mut Probe,
        start: &[Watts],
        cost: impl Fn(&Outcome) -> f64,
    ) -> Result<Best, StudyError> {
        self.downhill(probe, start, cost, &DISTANCES)
    }

    fn downhill(
        &self,
        probe: &mut Probe,
        start: &[Watts],
        cost: impl Fn(&Outcome) -> f64,
        distances: &[f64],
    ) -> Result<Best, StudyError> {
        let caps = self.project(&start.iter().map(|cap| cap.0).collect::<Vec<_>>());
        let mut best = Best {
            outcome: probe.at(&caps)?,
            caps,
        };
        for &distance in distances {
            let mut reach = 2.0 * distance;
            for _ in 0..DESCENTS {
                let before = cost(&best.outcome);
                let slope = self.slope(probe, &best.caps, distance, &cost)?;
                reach = self.descend(probe, &mut best, &slope, reach, &cost)?;
                if before - cost(&best.outcome) < NOTHING * before.abs() {
                    break;
                }
            }
        }
        Ok(best)
    }

    /// By how much the cost grows per watt on each GPU.
    fn slope(
        &self,
        probe: &mut Probe,
        caps: &[Watts],
        distance: f64,
        cost: &impl Fn(&Outcome) -> f64,
    ) -> Result<Vec<f64>, StudyError> {
        let mut slope = Vec::with_capacity(caps.len());
        for gpu in 0..caps.len() {
            let (least, most) = self.range[gpu];
            let mut moved = caps.to_vec();
            let mut at = |cap: Watts| {
                moved[gpu] = cap;
                probe.at(&moved).map(|outcome| cost(&outcome))
            };
            let below = (caps[gpu] - Watts(distance)).max(least);
            let above = (caps[gpu] + Watts(distance)).min(most);
            slope.push((at(above)? - at(below)?) / (above - below).0.max(1e-6));
        }
        Ok(slope)
    }

    /// Goes downhill by at most `reach` watts on any GPU, or by less where that is better;
    /// answers with the reach that was best.
    fn descend(
        &self,
        probe: &mut Probe,
        best: &mut Best,
        slope: &[f64],
        reach: f64,
        cost: &impl Fn(&Outcome) -> f64,
    ) -> Result<f64, StudyError> {
        // Where the budget binds, what all slopes have in common moves nothing.
        let held: Watts = best.caps.iter().copied().sum();
        let common = match held >= self.budget - Watts(0.1) {
            true => slope.iter().sum::<f64>() / slope.len() as f64,
            false => 0.0,
        };
        let steepest = slope.iter().map(|s| (s - common).abs()).fold(0.0, f64::max);
        if !(steepest > 0.0) {
            return Ok(reach);
        }
        let (from, mut found) = (best.caps.clone(), reach / 4.0);
        for part in [2.0, 1.0, 0.5, 0.25, 0.12, 0.06] {
            let step = reach * part / steepest;
            let moved = from.iter().zip(slope).map(|(cap, s)| cap.0 - s * step);
            let caps = self.project(&moved.collect::<Vec<_>>());
            let outcome = probe.at(&caps)?;
            if cost(&outcome) < cost(&best.outcome) {
                *best = Best { caps, outcome };
                found = reach * part;
            } else if found != reach / 4.0 {
                break;
            }
        }
        Ok(found.clamp(0.2, 40.0))
    }

    /// The caps with the least power whose iteration takes at most `slowest`.
    ///
    /// # Errors
    /// The plant refuses a cap.
    pub fn least_power(
        &self,
        probe: &mut Probe,
        start: &[Watts],
        slowest: Millis,
    ) -> Result<Best, StudyError> {
        let first = probe.at(start)?;
        // The price of time, in node powers per iteration time: the higher the slower it may be.
        let (mut low, mut high) = (2.0_f64, 60.0_f64);
        let mut best = Best {
            caps: start.to_vec(),
            outcome: first,
        };
        let mut from = start.to_vec();
        for round in 0..6 {
            // What is near the best for one price is near the best for the next.
            let distances = if round == 0 {
                &DISTANCES[..]
            } else {
                &DISTANCES[1..2]
            };
            let price = (low * high).sqrt();
            let cost = |outcome: &Outcome| {
                outcome.power / first.power + price * (outcome.time / first.time)
            };
            let found = self.downhill(probe, &from, cost, distances)?;
            from.clone_from(&found.caps);
            if found.outcome.time <= slowest {
                high = price;
                if found.outcome.power < best.outcome.power || best.outcome.time > slowest {
                    best = found;
                }
            } else {
                low = price;
            }
        }
        Ok(best)
    }
}
