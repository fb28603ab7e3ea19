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
