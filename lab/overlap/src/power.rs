//! Power of the GPU: static power, which grows with temperature, and dynamic power, which follows activity,
//! the clock and the square of the voltage (the paper's section 2.1 and footnote 6).
//!
//! Memory and links have voltages of their own, so their energy per byte does not depend on the clock. What
//! does depend on it is `clock x voltage^2` for whatever goes on in each cycle, and convex: Appendix A.

use litd_units::{Celsius, Hertz, Watts};

use crate::gpu::Gpu;

/// The activity at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Activity {
    /// SMs that have a kernel; with none the GPU is idle.
    pub sms: f64,
    /// FLOP/s of the matrix units.
    pub matrix: f64,
    /// FLOP/s of the vector units.
    pub vector: f64,
    /// B/s to and from memory.
    pub bytes: f64,
    /// B/s sent to other GPUs.
    pub sent: f64,
}

impl Gpu {
    /// The core's voltage at this clock, over that at the highest: linear down to the knee, then constant.
    #[must_use]
    pub fn voltage(&self, clock: Hertz) -> f64 {
        let above = (clock - self.knee) / (self.highest - self.knee);
        self.knee_voltage + (1.0 - self.knee_voltage) * above.max(0.0)
    }

    /// Dynamic power.
    #[must_use]
    pub fn dynamic_power(&self, clock: Hertz, activity: &Activity) -> Watts {
        if activity.sms <= 0.0 {
            return Watts::ZERO;
        }
        let cycles = (self.active.0 + self.sm.0 * activity.sms) * self.relative(clock);
        let core = cycles
            + self.matrix_energy.0 * activity.matrix
            + self.vector_energy.0 * activity.vector
            + self.fabric_energy.0 * activity.bytes;
        let beside = self.memory_energy.0 * activity.bytes + self.link_energy.0 * activity.sent;
        Watts(core * self.voltage(clock).powi(2) + beside)
    }

    /// The temperature at which it stays with nothing to do.
    #[must_use]
    pub fn ready_temperature(&self) -> Celsius {
        Celsius(self.air.0 + self.ready.0 * (self.fast.resistance + self.slow.resistance))
    }

    /// Static power: [`Gpu::ready`] at [`Gpu::ready_temperature`].
    #[must_use]
    pub fn static_power(&self, temperature: Celsius) -> Watts {
        let warmer = temperature.0 - self.ready_temperature().0;
        self.ready * (self.leakage * warmer).exp()
    }
}
