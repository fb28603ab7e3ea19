//! The GPU's temperature: two poles over the air. The fast one is the chip, warm within a second; the slow
//! one is the heat sink, which is what a cooldown waits for.

use litd_units::{Celsius, Kelvins, Millis, Watts};

use crate::gpu::{Gpu, Pole};

/// How far each pole is above what it stands on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heat {
    fast: Kelvins,
    slow: Kelvins,
}

impl Pole {
    fn settled(&self, power: Watts) -> Kelvins {
        Kelvins(power.0 * self.resistance)
    }

    /// `now` after a time with constant power: exact for any length.
    fn after(&self, now: Kelvins, power: Watts, time: Millis) -> Kelvins {
        let goal = self.settled(power);
        let left = (-(time / self.constant)).exp();
        goal + (now - goal) * left
    }
}

impl Heat {
    /// A GPU that has been ready and without work for long.
    #[must_use]
    pub fn rested(gpu: &Gpu) -> Self {
        Self {
            fast: gpu.fast.settled(gpu.ready),
            slow: gpu.slow.settled(gpu.ready),
        }
    }

    /// The chip's temperature.
    #[must_use]
    pub fn temperature(&self, gpu: &Gpu) -> Celsius {
        Celsius(gpu.air.0 + self.fast.0 + self.slow.0)
    }

    /// After so much time with this power.
    #[must_use]
    pub fn after(self, gpu: &Gpu, power: Watts, time: Millis) -> Self {
        Self {
            fast: gpu.fast.after(self.fast, power, time),
            slow: gpu.slow.after(self.slow, power, time),
        }
    }
}
