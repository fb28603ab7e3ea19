//! The devices of a node: what GPUs and CPUs do under their caps, and what they tell of it.
//!
//! Within an iteration a GPU's clock is constant. It is the lowest of three: what the cap
//! sustains at the temperature that the iteration begins with, what keeps the GPU at its
//! slowdown temperature, and the highest clock it has, or that it is locked to.

use litd_units::{Celsius, Hertz, Millis, Watts};

use crate::scenario::{CapLimits, CpuSpec, GpuSpec};

/// The limit that sets a GPU's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limiter {
    /// The cap.
    Power,
    /// The slowdown temperature.
    Thermal,
    /// No limit: the GPU runs at its highest clock, or the one that it is locked to.
    None,
}

/// Throttling as the driver reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttle {
    /// The cap holds the clock down.
    pub power: bool,
    /// Heat holds the clock down.
    pub thermal: bool,
    /// The board holds the clock down (power brake); never so in the simulation.
    pub hardware: bool,
}

/// A GPU's values as the driver reports them: means over the last iteration, the temperature at its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuTelemetry {
    /// The cap in force.
    pub cap: Watts,
    /// Power drawn.
    pub power: Watts,
    /// Temperature now.
    pub temperature: Celsius,
    /// The temperature at which the firmware slows the GPU down.
    pub slowdown: Celsius,
    /// Clock.
    pub clock: Hertz,
    /// The limit that sets the clock.
    pub limiter: Limiter,
    /// The same as flags.
    pub throttle: Throttle,
}

/// A CPU's values as the system reports them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuTelemetry {
    /// The limit in force.
    pub limit: Watts,
    /// Power drawn.
    pub draw: Watts,
    /// The lowest limit that it accepts.
    pub floor: Watts,
}

/// The firmware lowers the clock of a GPU that would be above its slowdown temperature after so
/// long: an iteration or two, so that the limit holds before it is reached.
const FORESIGHT: Millis = Millis(1000.0);

/// A CPU and its limit.
#[derive(Debug, Clone)]
pub(crate) struct Cpu {
    pub spec: CpuSpec,
    pub limit: Watts,
}

impl Cpu {
    pub fn new(spec: CpuSpec) -> Self {
        Self {
            spec,
            limit: spec.limit,
        }
    }

    pub fn draw(&self) -> Watts {
        self.spec.draw.min(self.limit)
    }

    /// How late the host is with every kernel for want of power.
    pub fn gap(&self) -> Millis {
        self.spec.launch * (self.spec.draw / self.limit - 1.0).max(0.0)
    }

    pub fn telemetry(&self) -> CpuTelemetry {
        CpuTelemetry {
            limit: self.limit,
            draw: self.draw(),
            floor: self.spec.floor,
        }
    }
}

/// A GPU, its cap and its condition.
#[derive(Debug, Clone)]
pub(crate) struct Gpu {
    pub spec: GpuSpec,
    /// Power above idle at the clock 1.
    gain: Watts,
    /// The most power that keeps it at its slowdown temperature.
    holds_slowdown: Watts,
    pub cap: Watts,
    /// The highest clock that it may have, relative to the reference clock.
    pub locked: Option<f64>,
    temperature: Celsius,
    /// Relative to the reference clock.
    pub clock: f64,
    pub power: Watts,
    limiter: Limiter,
}

impl Gpu {
    pub fn new(spec: GpuSpec, caps: &CapLimits) -> Self {
        let margin = spec.slowdown - spec.inlet;
        Self {
            spec,
            gain: spec.gain(caps.reference),
            // Infinite where the cooling is perfect, which is the right answer.
            holds_slowdown: Watts(margin.0 / spec.thermal_resistance),
            cap: caps.initial,
            locked: None,
            temperature: spec.inlet,
            clock: 0.0,
            power: spec.idle_at(spec.inlet, caps.reference),
            limiter: Limiter::None,
        }
    }

    /// Another GPU in its place, or the same with another cooling: cap, lock and temperature stay.
    pub fn become_like(&mut self, other: Self) {
        *self = Self {
            cap: self.cap,
            locked: self.locked,
            temperature: self.temperature,
            ..other
        };
    }

    /// The highest clock that it may have.
    fn highest(&self) -> f64 {
        let own = self.spec.max_clock;
        self.locked.map_or(own, |locked| locked.min(own))
    }

    /// The clock that this power sustains at this temperature.
    fn clock_at(&self, power: Watts, temperature: Celsius, caps: &CapLimits) -> f64 {
        let above_idle = power - self.spec.idle_at(temperature, caps.reference);
        (above_idle / self.gain).powf(1.0 / self.spec.alpha)
    }

    /// Sets clock, power and limiter for what begins at the present temperature.
    pub fn operate(&mut self, caps: &CapLimits) {
        let now = self.temperature;
        let sustained = self.clock_at(self.cap, now, caps);
        if sustained <= self.highest() {
            // The firmware regulates the mean power to the cap.
            (self.clock, self.power, self.limiter) = (sustained, self.cap, Limiter::Power);
        } else {
            let idle = self.spec.idle_at(now, caps.reference);
            self.clock = self.highest();
            self.power = idle + self.gain * self.clock.powf(self.spec.alpha);
            self.limiter = Limiter::None;
        }
        if self.after(FORESIGHT) > self.spec.slowdown && self.power > self.holds_slowdown {
            self.clock = self.clock_at(self.holds_slowdown, now, caps);
            self.power = self.holds_slowdown;
            self.limiter = Limiter::Thermal;
        }
    }

    /// The temperature after `time` at the present power: exponential, exact for any time.
    fn after(&self, time: Millis) -> Celsius {
        let target = self.spec.steady_temperature(self.power);
        let kept = (-(time / self.spec.time_constant)).exp();
        target - (target - self.temperature) * kept
    }

    /// Lets `time` pass.
    pub fn pass(&mut self, time: Millis) {
        // Where the slowdown temperature is reached within an iteration, the firmware reacts
        // within milliseconds, not at its end.
        let ceiling = self.temperature.max(self.spec.slowdown);
        self.temperature = self.after(time).min(ceiling);
    }

    /// Jumps to where temperature, clock and power stay as they are.
    pub fn settle(&mut self, caps: &CapLimits) {
        // Held at the slowdown temperature already here: what is hotter doesn't exist.
        let spec = &self.spec;
        let steady = spec.steady_temperature(self.cap).min(spec.slowdown);
        let sustained = self.clock_at(self.cap, steady, caps);
        self.temperature = if sustained > self.highest() {
            // At the highest clock, idle power follows temperature and temperature follows
            // power; both are linear.
            let cool = spec.idle_at(spec.inlet, caps.reference);
            let fixed = cool + self.gain * self.highest().powf(spec.alpha);
            let feedback = spec.idle.0 * spec.leakage_per_kelvin * spec.thermal_resistance;
            let free = spec.steady_temperature(fixed / (1.0 - feedback));
            free.min(spec.slowdown)
        } else {
            steady
        };
        self.operate(caps);
    }

    pub fn telemetry(&self, reference: Hertz) -> GpuTelemetry {
        GpuTelemetry {
            cap: self.cap,
            power: self.power,
            temperature: self.temperature,
            slowdown: self.spec.slowdown,
            clock: reference * self.clock,
            limiter: self.limiter,
            throttle: Throttle {
                power: self.limiter == Limiter::Power,
                thermal: self.limiter == Limiter::Thermal,
                hardware: false,
            },
        }
    }
}
