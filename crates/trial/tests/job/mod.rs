//! A training job whose truth is known: ticks made up from a seed, on which arms alternate as the
//! daemon has them alternate.

use litd_trial::design::mixed;
use litd_trial::{Arm, Block, Design, Iterations};
use litd_units::{Nanos, Watts};

/// The difficulty of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The job becomes slower or faster by itself, in lines, waves and steps.
    Drifting,
    /// The job's noise is correlated over ten minutes.
    Autocorrelated,
    /// The job writes checkpoints and evaluates.
    Checkpoints,
}

pub const KINDS: [Kind; 3] = [Kind::Drifting, Kind::Autocorrelated, Kind::Checkpoints];

/// An iteration, in seconds.
const LENGTH: f64 = 12.0;

/// Power at the found caps, and its noise, as a share.
const POWER: f64 = 5600.0;

struct Rng(u64);

impl Rng {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((mixed(self.0) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Standard normal (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// The job.
pub struct Job {
    kind: Kind,
    /// By which share throughput is higher with the balanced caps.
    truth: f64,
    /// By which share power is.
    power: f64,
    rng: Rng,
    now: f64,
    iteration: u64,
    memory: f64,
    walk: f64,
    line: f64,
    phase: f64,
}

impl Job {
    pub fn new(kind: Kind, truth: f64, power: f64, seed: u64) -> Self {
        let mut rng = Rng(mixed(seed));
        let (line, phase) = (rng.normal(), rng.unit());
        Self {
            kind,
            truth,
            power,
            memory: rng.normal(),
            rng,
            now: 0.0,
            iteration: 0,
            walk: 0.0,
            line,
            phase,
        }
    }

    /// The time of the present iteration, in seconds, and whether it is profiled.
    fn tick(&mut self, arm: Arm) -> (f64, bool) {
        let effect = match arm {
            Arm::Found => 1.0,
            Arm::Balanced => 1.0 + self.truth,
        };
        let hours = self.now / 3600.0;
        // Ten minutes of memory.
        let keep = (-LENGTH / 600.0_f64).exp();
        self.memory = keep * self.memory + (1.0 - keep * keep).sqrt() * self.rng.normal();
        self.walk += 2e-4 * self.rng.normal();
        let white = self.rng.normal();
        let noise = match self.kind {
            Kind::Drifting => {
                let wave = (std::f64::consts::TAU * (hours / 3.0 + self.phase)).sin();
                0.01 * self.line * hours + 0.005 * wave + self.walk + 0.004 * white
            }
            Kind::Autocorrelated => 0.004 * self.memory + 0.003 * white,
            Kind::Checkpoints => 0.001 * self.memory + 0.004 * white,
        };
        let mut time = LENGTH * noise.exp() / effect;
        self.iteration += 1;
        if self.kind == Kind::Checkpoints {
            if self.iteration.is_multiple_of(50) {
                time *= 3.0 + 2.0 * self.rng.unit();
            }
            if self.iteration.is_multiple_of(170) {
                time *= 12.0;
            }
        }
        let profiled = self.iteration.is_multiple_of(10);
        if profiled {
            time *= 1.2;
        }
        self.now += time;
        (time, profiled)
    }

    /// A block, after the wait for its caps' effect.
    pub fn block(&mut self, arm: Arm, held: Arm, design: &Design) -> Block {
        let settled = self.now + design.settle.as_secs_f64();
        while self.now < settled {
            self.tick(held);
        }
        let end = self.now + design.block.as_secs_f64();
        let mut iterations = Iterations::default();
        while self.now < end || iterations.count() < design.iterations {
            let (time, profiled) = self.tick(held);
            iterations.add(self.iteration, Nanos((time * 1e9) as i64), profiled);
        }
        let share = if held == Arm::Found {
            1.0
        } else {
            1.0 + self.power
        };
        let noise = 1.0 + 0.002 * self.rng.normal() + 0.002 * self.memory;
        Block {
            arm,
            times: iterations.times().unwrap(),
            power: Some(Watts(POWER * share * noise)),
            node_power: None,
        }
    }
}

/// A trial of the usual length.
pub fn design(seed: u64) -> Design {
    Design {
        quads: 12,
        block: Nanos(300_000_000_000),
        settle: Nanos(60_000_000_000),
        iterations: 20,
        seed: mixed(seed ^ 0xdead_beef),
        same: false,
    }
}

/// All blocks of a trial.
pub fn blocks(job: &mut Job, design: &Design) -> Vec<Block> {
    let block = |index| {
        let arm = design.arm(index);
        let held = if design.same { Arm::Found } else { arm };
        job.block(arm, held, design)
    };
    (0..design.blocks()).map(block).collect()
}
