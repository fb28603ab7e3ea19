//! Random nodes, broken ones too: whatever they are, a law must not leave them worse off than it
//! found them.

use litd_policies::{Config, Law, Policy, Sample};
use litd_sim::{Scenario, rng::Rng, workload};
use litd_units::{Celsius, Millis, Watts};

use crate::StudyError;
use crate::closed_loop::{ClosedLoop, Wiring};
use crate::optimum::Probe;

/// The most that an iteration may be longer under the caps held at the end than at the start.
pub const SLOWER: f64 = 0.002;
/// The most that energy times time over the run may be more than without the law.
pub const COSTLIER: f64 = 0.005;

/// What is wrong with a node besides its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Some sensors say nothing, or the wrong thing.
    Sensors,
    /// Caps do something else than they should.
    Wiring(Wiring),
    /// One GPU is at its slowdown temperature.
    Hot,
    /// One GPU's host is late.
    Host,
    /// Clocks are at their highest: caps don't bind.
    Unbound,
}

/// A random node and what to do with it.
#[derive(Debug, Clone)]
pub struct RandomNode {
    /// Its number, from which everything follows.
    pub number: u64,
    /// The node.
    pub scenario: Scenario,
    /// The policy.
    pub policy: Policy,
    /// What is wrong with it.
    pub flaw: Flaw,
}

/// What became of it.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The node.
    pub node: RandomNode,
    /// By which part an iteration is longer under the caps held at the end.
    pub slower: f64,
    /// By which part energy times time over the run was more.
    pub costlier: f64,
    /// What the loop said last.
    pub why: String,
}

impl Verdict {
    /// Whether it is worse off.
    #[must_use]
    pub fn is_breach(&self) -> bool {
        self.slower > SLOWER || self.costlier > COSTLIER
    }
}

const WARM_UP: u32 = 40;
const SAMPLES: u32 = 160;
const PERIOD: u32 = 5;
const PROBE: u32 = 300;

impl RandomNode {
    /// The node of this number.
    ///
    /// # Errors
    /// A shipped scenario is missing.
    pub fn new(number: u64) -> Result<Self, StudyError> {
        let mut scenario = Scenario::builtin("default").map_err(litd_sim::PlantError::from)?;
        let mut rng = Rng::stream(number, &[0x4a12]);
        let between = |rng: &mut Rng, low: f64, high: f64| low + (high - low) * rng.uniform();
        let count = if rng.uniform() < 0.5 { 4 } else { 8 };
        scenario.gpus.truncate(count);
        scenario.workload = workload::fsdp(4);
        scenario.contention = between(&mut rng, 1.0, 1.6);
        scenario.kernel_noise = between(&mut rng, 0.0, 0.02);
        scenario.iteration_noise = between(&mut rng, 0.0, 0.007);
        scenario.caps.initial = Watts(between(&mut rng, 550.0, 740.0).round());
        // What the leakiest of them draws at its lowest clock is less.
        scenario.caps.driver_min = Watts(260.0);
        scenario.caps.floor = Watts(between(&mut rng, 300.0, 500.0).round());
        let (alpha, idle) = (between(&mut rng, 1.3, 2.6), between(&mut rng, 80.0, 170.0));
        let spread = between(&mut rng, 0.0, 0.03);
        let seconds = between(&mut rng, 2.0, 20.0);
        for gpu in &mut scenario.gpus {
            gpu.clock_offset = spread * rng.normal();
            gpu.alpha = alpha * (1.0 + 0.03 * rng.normal());
            gpu.idle = Watts(idle * (1.0 + 0.05 * rng.normal()));
            gpu.time_constant = Millis(seconds * 1e3);
            gpu.max_clock = 1.6;
        }
        let flaw = Self::flaw(&mut rng);
        let at = (rng.next_u64() % count as u64) as usize;
        match flaw {
            Flaw::Hot => {
                let cap = scenario.caps.initial;
                let gpu = &mut scenario.gpus[at];
                let steady = gpu.steady_temperature(cap);
                gpu.slowdown = Celsius(steady.0 - between(&mut rng, 0.0, 5.0));
            }
            Flaw::Host => scenario.gpus[at].host_gap = Millis(between(&mut rng, 0.0, 0.05)),
            Flaw::Unbound => {
                for gpu in &mut scenario.gpus {
                    gpu.max_clock = 1.0 + gpu.clock_offset + between(&mut rng, 0.0, 0.02);
                }
            }
            Flaw::None | Flaw::Sensors | Flaw::Wiring(_) => {}
        }
        let policy = Policy::STEERING[(rng.next_u64() % 3) as usize];
        Ok(Self {
            number,
            scenario,
            policy,
            flaw,
        })
    }

    fn flaw(rng: &mut Rng) -> Flaw {
        match rng.next_u64() % 10 {
            0 => Flaw::Sensors,
            1 => Flaw::Wiring(Wiring::Ignored),
            2 => Flaw::Wiring(Wiring::Reversed),
            3 => Flaw::Wiring(Wiring::Swapped),
            4 => Flaw::Hot,
            5 => Flaw::Host,
            6 => Flaw::Unbound,
            _ => Flaw::None,
        }
    }

    /// Breaks what the sensors say.
    fn distort(&self, sample: &mut Sample) {
        if self.flaw != Flaw::Sensors {
            return;
        }
        let mut rng = Rng::stream(self.number, &[sample.iteration]);
        for (at, gpu) in sample.gpus.iter_mut().enumerate() {
            match (self.number as usize + at) % 5 {
                0 => gpu.power = None,
                1 => gpu.temperature = None,
                2 => gpu.power_share = Some(0.0),
                3 => gpu.clock = None,
                _ => gpu.slowness = gpu.slowness.map(|s| s * (1.0 + 0.01 * rng.normal())),
            }
        }
    }

    /// Lets a law at it.
    ///
    /// # Errors
    /// The node makes no sense.
    pub fn judge(self, law: Law) -> Result<Verdict, StudyError> {
        let mut config = Config {
            law,
            ..Config::default()
        };
        config.calibration.warm_up = WARM_UP;
        let seed = crate::run::seed(self.number);
        let mut closed = ClosedLoop::new(self.policy, &self.scenario, seed, &config)?;
        if let Flaw::Wiring(wiring) = self.flaw {
            closed.wire(wiring);
        }
        let caps = |closed: &ClosedLoop| closed.caps();
        let start = caps(&closed);
        let mut alone = closed.plant.clone();
        let (mut why, mut with, mut without) = (String::new(), (0.0, 0.0), (0.0, 0.0));
        for _ in 0..SAMPLES {
            let step = closed.period_with(PERIOD, |sample| self.distort(sample))?;
            let (time, power) = (step.iteration_time.0, step.power.0);
            with = (with.0 + time, with.1 + time * power);
            for _ in 0..PERIOD {
                let time = alone.run_iteration().length.0 / f64::from(PERIOD);
                without = (without.0 + time, without.1 + time * alone.gpu_power().0);
            }
            if !matches!(step.decision.why, litd_policies::Why::Collecting { .. }) {
                why = step.decision.why.to_string();
            }
        }
        let limits =
            |plant: &litd_sim::Plant| plant.cpus().map(|cpu| cpu.limit).collect::<Vec<_>>();
        let at = |caps: &[Watts], limits: &[Watts]| {
            Probe::new(&self.scenario, 0x5eed, limits, PROBE)?.at(caps)
        };
        let before = at(&start, &limits(&alone))?;
        let after = at(&closed.caps(), &limits(&closed.plant))?;
        Ok(Verdict {
            slower: after.time / before.time - 1.0,
            costlier: with.0 * with.1 / (without.0 * without.1) - 1.0,
            why,
            node: self,
        })
    }
}
