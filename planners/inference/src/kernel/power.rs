//! Power, and what a limit on it does: a law in the utilisation of both peaks, per kernel family, clipped
//! at the limit. Where a lower limit than the data sheet's clips, the clock falls and what it sets takes longer.

use litd_units::{Millis, Watts};

use super::constants::PowerConstants;
use super::{Estimate, Setting, Work};
use crate::gpu::Gpu;

/// Power above idle grows with this power of the clock: voltage falls with it, down to a floor.
const CLOCK_EXPONENT: f64 = 2.2;
/// The lowest share of the boost clock to which a limit can push.
const LOWEST_CLOCK: f64 = 0.15;

/// The power of a kernel at the boost clock without a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Share of the matrix peak in use.
    pub compute: f64,
    /// Share of the memory (or link) bandwidth in use.
    pub memory: f64,
}

impl Demand {
    /// Of a kernel that takes `latency` ms.
    #[must_use]
    pub fn of(work: &Work, latency: f64) -> Self {
        let share = |amount: f64, peak: f64| (amount / (peak * latency * 1e-3)).clamp(0.0, 1.0);
        Self {
            compute: share(work.flops, work.peaks[0]),
            memory: share(work.bytes, work.peaks[1]),
        }
    }

    /// The power, W, unclipped.
    #[must_use]
    pub fn power(self, gpu: &Gpu, constants: &PowerConstants) -> Watts {
        let span = gpu.power_limit - gpu.idle;
        // Exponents of at most 1 keep energy from falling when a kernel grows.
        let raised = |share: f64, exponent: f64| match share > 0.0 && exponent < 1.0 {
            true => share.powf(exponent),
            false => share,
        };
        let share = constants.base
            + constants.compute * raised(self.compute, constants.compute_exponent)
            + constants.memory * raised(self.memory, constants.memory_exponent);
        gpu.idle + span * share
    }
}

/// Latency and power under a setting.
pub(super) fn estimate(
    gpu: &Gpu,
    constants: &PowerConstants,
    work: &Work,
    setting: &Setting,
) -> Estimate {
    let demand = Demand::of(work, work.latency).power(gpu, constants);
    at(gpu, demand, work, setting)
}

/// The same, where the demand at the data sheet's limit is known otherwise.
pub(super) fn at(gpu: &Gpu, demand: Watts, work: &Work, setting: &Setting) -> Estimate {
    // Latencies hold at the data sheet's limit, at which the largest kernels are slowed already.
    let rated = demand.max(gpu.idle).min(gpu.power_limit);
    let limit = setting.power_limit.unwrap_or(gpu.power_limit);
    let limit = limit.max(gpu.idle * 1.05);
    let asked = setting.clock.unwrap_or(1.0).clamp(LOWEST_CLOCK, 1.0);
    if rated <= limit && asked >= 1.0 {
        return Estimate {
            latency: Millis(work.latency),
            power: rated,
        };
    }
    let above = |power: Watts| (power - gpu.idle).max(Watts(1e-3));
    // The clock that the limit allows, and the one that was asked for.
    let allowed = match rated > limit {
        true => (above(limit) / above(rated)).powf(1.0 / CLOCK_EXPONENT),
        false => 1.0,
    };
    let clock = asked.min(allowed.max(LOWEST_CLOCK));
    let slower = work.clocked * (1.0 / clock - 1.0);
    let power = gpu.idle + above(rated) * clock.powf(CLOCK_EXPONENT);
    Estimate {
        latency: Millis(work.latency + slower),
        power: power.min(limit),
    }
}
