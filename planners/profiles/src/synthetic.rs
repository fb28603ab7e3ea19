//! Profiles for benchmarks and experiments, made up from a seed: SIMULATED, not measured.
//!
//! The rule, which resembles the reference data's:
//! - Clocks from 210 to 1410 MHz in steps of 15.
//! - At the full clock a forward takes 30 ms and a backward 60 ms, times the stage's weight: 1 to
//!   1.13, evenly distributed, and for the last stage 1.15 to 1.2.
//! - A quarter of a forward and 28 % of a backward wait for memory and take the same time at any
//!   clock; the rest is inversely proportional to it.
//! - Power is 90 W and a dynamic part, proportional to clock and squared voltage: 256 W for a
//!   forward and 280 W for a backward at the full clock, times the stage's 0.95 to 1.04. The
//!   voltage is constant up to 775 MHz and rises by 0.068 % of that per MHz above.
//! - Every time and every energy has a noise of up to 0.1 % either way.

use litd_units::{Hertz, Joules, Millis};

use crate::kind::Kind;
use crate::profile::{Measurement, Profile};

const CLOCKS: std::ops::RangeInclusive<u32> = 210..=1410;
const STEP: usize = 15;
const FULL: f64 = 1410.0;
const STATIC: f64 = 90.0;
const KNEE: f64 = 775.0;
const RISE: f64 = 0.00068;
const NOISE: f64 = 0.001;

/// An instruction's time in ms, the part of it that waits for memory, and its dynamic power in
/// watts, at the full clock.
const INSTRUCTIONS: [(&str, f64, f64, f64); 2] = [
    ("forward", 30.0, 0.25, 256.0),
    ("backward", 60.0, 0.28, 280.0),
];

/// The profile of a pipeline of so many stages.
#[must_use]
pub fn profile(stages: u32, seed: u64) -> Profile {
    let mut random = Random(seed);
    let weights: Vec<f64> = (1..=stages)
        .map(|stage| match stage == stages {
            true => random.between(1.15, 1.2),
            false => random.between(1.0, 1.13),
        })
        .collect();
    weighted(&weights, &mut random)
}

/// The profile of a pipeline whose stages have these weights.
#[must_use]
pub fn profile_with_weights(weights: &[f64], seed: u64) -> Profile {
    weighted(weights, &mut Random(seed))
}

fn weighted(weights: &[f64], random: &mut Random) -> Profile {
    let mut measurements = Vec::new();
    for (stage, weight) in (0..).zip(weights) {
        let gain = random.between(0.95, 1.04);
        for (name, time, memory, dynamic) in INSTRUCTIONS {
            let kind = Kind {
                stage,
                instruction: name.into(),
            };
            for clock in CLOCKS.step_by(STEP).map(f64::from) {
                let slower = memory + (1.0 - memory) * FULL / clock;
                let scale = clock / FULL * (voltage(clock) / voltage(FULL)).powi(2);
                let power = STATIC + gain * dynamic * scale;
                let milliseconds = time * weight * slower * random.about_one();
                let energy = power * milliseconds * 1e-3 * random.about_one();
                let measurement = Measurement {
                    clock: Hertz(clock * 1e6),
                    time: Millis(milliseconds),
                    energy: Joules(energy),
                };
                measurements.push((kind.clone(), measurement));
            }
        }
    }
    Profile::new(measurements)
}

fn voltage(clock: f64) -> f64 {
    1.0 + RISE * (clock - KNEE).max(0.0)
}

/// A GPU whose power and time by clock were fitted to what is public, for emulations. An operation of a
/// millisecond at the full clock takes `memory + (1 - memory) * full / clock` ms, and the GPU draws
/// `fixed + dynamic * clock / full * voltage^2`, where the voltage falls from 1 at the full clock in a line to
/// `least_voltage` at `knee` and stays there. The numbers describe curves, not parts of a chip.
///
/// [`A100_SXM`](Self::A100_SXM) follows the ten frontiers that Kareus's artifact planned for Perseus, whose
/// times, energies and mean clocks determine all five numbers. Of the other two GPUs only the Perseus paper's
/// two averages are public, how much all clocks of least energy save (section 2.4) and by how much longer that
/// takes (section 6.2.3), so that only `memory` and `dynamic` were fitted and the voltage's shape was taken over.
/// `litlab reproduce perseus` prints what is left over of each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    /// The GPU's name.
    pub name: &'static str,
    /// The highest clock, MHz.
    pub full: u32,
    /// The part of an operation's time that no clock changes.
    pub memory: f64,
    /// The power that does not depend on the clock, W.
    pub fixed: f64,
    /// The additional power at the full clock, W.
    pub dynamic: f64,
    /// Where the voltage stops to fall, MHz.
    pub knee: f64,
    /// The voltage there, relative to that at the full clock.
    pub least_voltage: f64,
    /// The power while it waits for another GPU, W: lowtime's numbers for A100 and A40.
    pub blocking: f64,
}

impl Gpu {
    /// NVIDIA A100 SXM: Kareus's testbed, and the Perseus paper's emulation.
    pub const A100_SXM: Self = Self {
        name: "A100 SXM",
        full: 1410,
        memory: 0.397,
        fixed: 182.5,
        dynamic: 119.2,
        knee: 933.0,
        least_voltage: 0.3,
        blocking: 85.0,
    };
    /// NVIDIA A100 PCIe: the Perseus paper's testbed of four stages.
    pub const A100_PCIE: Self = Self {
        name: "A100 PCIe",
        full: 1410,
        memory: 0.78,
        fixed: 175.2,
        dynamic: 64.8,
        knee: 930.0,
        least_voltage: 0.3,
        blocking: 85.0,
    };
    /// NVIDIA A40: its testbed of eight stages.
    pub const A40: Self = Self {
        name: "A40",
        full: 1740,
        memory: 0.70,
        fixed: 162.0,
        dynamic: 108.0,
        knee: 1148.0,
        least_voltage: 0.3,
        blocking: 70.0,
    };

    /// How much longer an operation takes at a clock than at the full one, and what the GPU draws then, W.
    #[must_use]
    pub fn at(&self, megahertz: f64) -> (f64, f64) {
        let full = f64::from(self.full);
        let slower = self.memory + (1.0 - self.memory) * full / megahertz;
        let way = ((megahertz - self.knee) / (full - self.knee)).clamp(0.0, 1.0);
        let voltage = self.least_voltage + way * (1.0 - self.least_voltage);
        let power = self.fixed + self.dynamic * megahertz / full * voltage.powi(2);
        (slower, power)
    }

    /// The profile of a pipeline whose stages have these weights: forwards and backwards that take so many
    /// milliseconds at the full clock for a weight of 1. As Perseus's profiler does (section 5), it goes down
    /// from the full clock in steps of 15 MHz until slower clocks cost more energy.
    #[must_use]
    pub fn profile(&self, weights: &[f64], [forward, backward]: [f64; 2]) -> Profile {
        let mut rows = Vec::new();
        for (stage, weight) in (0..).zip(weights) {
            for (instruction, time) in [("forward", forward), ("backward", backward)] {
                let mut before = f64::INFINITY;
                for clock in (*CLOCKS.start()..=self.full).rev().step_by(STEP) {
                    let (slower, power) = self.at(f64::from(clock));
                    if slower * power > before {
                        break;
                    }
                    before = slower * power;
                    let time = Millis(time * weight * slower);
                    let kind = Kind {
                        stage,
                        instruction: instruction.into(),
                    };
                    let measurement = Measurement {
                        clock: Hertz(f64::from(clock) * 1e6),
                        time,
                        energy: Joules(power * time.0 * 1e-3),
                    };
                    rows.push((kind, measurement));
                }
            }
        }
        Profile::new(rows)
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let fraction = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        low + fraction * (high - low)
    }

    fn about_one(&mut self) -> f64 {
        self.between(1.0 - NOISE, 1.0 + NOISE)
    }
}
