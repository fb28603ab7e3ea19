//! One GPU: what it draws at a clock, which clocks its limiters leave it, how fast it then is.
//!
//! Clocks are relative to the kind's highest. Power is what an exact meter on the card would read.

use crate::timeline::{Pace, Use};
use crate::workload::{CLASSES, Class};

/// Leakage is given at this temperature, C.
pub const REFERENCE: f64 = 65.0;
/// So many degrees below its slowdown temperature a GPU begins to lower its clock, by so much of
/// the highest clock per degree. Assumed: vendors don't publish it.
const SLOWDOWN: (f64, f64) = (5.0, 0.015);

/// Everything that is constant of a GPU in its node under one workload.
#[derive(Debug, Clone)]
pub struct Gpu {
    /// Idle power that doesn't follow temperature, W.
    pub fixed: f64,
    /// Leakage at [`REFERENCE`] and the highest voltage, W.
    pub leakage: f64,
    /// Its relative growth, 1/K.
    pub leakage_growth: f64,
    /// Core watts of each class at the highest clock.
    pub core: [f64; CLASSES],
    /// Memory watts of each class.
    pub memory: [f64; CLASSES],
    /// Watts of links while a collective transfers.
    pub fabric: f64,
    /// Watts of a resident collective with nothing beside it.
    pub spin: f64,
    /// Voltage below the knee, relative to that at the highest clock.
    pub lowest_voltage: f64,
    /// The clock below which voltage no longer falls.
    pub knee: f64,
    /// Part of each class's time that follows the clock.
    pub bound: [f64; CLASSES],
    /// Factor on the part that doesn't.
    pub memory_time: f64,
    /// Each class's clock against the limiter's common clock.
    pub ratio: [f64; CLASSES],
    /// The highest clock of each class: the GPU's own, or where current limits it.
    pub highest: [f64; CLASSES],
    /// The lowest clock.
    pub lowest: f64,
    /// Slowdown temperature, C.
    pub slowdown: f64,
    /// Contention by class while a collective transfers, without the clock's part: an excess.
    pub contention: [f64; CLASSES],
    /// How much of it is left while a collective waits.
    pub wait_contention: f64,
    /// Exponent of contention in the clock.
    pub contention_clock: f64,
    /// Gain of the sensor that limiter and tools share.
    pub gain: f64,
    /// Relative shortfall of mean draw, as that sensor sees it; below 0 it passes the cap.
    pub shortfall: f64,
    /// Relative overshoot at the lowest cap, and that cap; none from 1.5 times it.
    pub overshoot: (f64, f64),
    /// Time over which the limiter takes a mean, ms.
    pub window: f64,
    /// How far short windows hold the hungriest class to the cap.
    pub burst_weight: f64,
    /// Resistance to heat with fans at full speed, K/W.
    pub resistance: f64,
}

/// Clocks and what follows from them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Operation {
    /// Clock of each class.
    pub clock: [f64; CLASSES],
    /// Power above idle of each class, W.
    pub dynamic: [f64; CLASSES],
    /// Voltage that leakage sees: the matrix products'.
    pub voltage: f64,
    /// Time per work of each class.
    pub time: [f64; CLASSES],
}

impl Gpu {
    /// Voltage at a clock, relative to that at the highest.
    #[must_use]
    pub fn voltage(&self, clock: f64) -> f64 {
        let above = ((clock - self.knee) / (1.0 - self.knee)).max(0.0);
        self.lowest_voltage + (1.0 - self.lowest_voltage) * above * above.sqrt()
    }

    /// Power with nothing running, W.
    #[must_use]
    pub fn idle(&self, temperature: f64, voltage: f64) -> f64 {
        let growth = (self.leakage_growth * (temperature - REFERENCE)).min(3.0);
        self.fixed + self.leakage * voltage * growth.exp()
    }

    /// What the GPU does where its power limiter allows this common clock at this temperature.
    #[must_use]
    pub fn operate(&self, common: f64, temperature: f64) -> Operation {
        let hot = (temperature - (self.slowdown - SLOWDOWN.0)).max(0.0);
        let thermal = 1.0 - SLOWDOWN.1 * hot;
        let mut it = Operation::default();
        for class in 0..CLASSES {
            let wanted = (common * self.ratio[class]).min(self.highest[class]);
            let clock = wanted.min(thermal).max(self.lowest);
            let voltage = self.voltage(clock);
            it.clock[class] = clock;
            it.dynamic[class] = self.core[class] * clock * voltage * voltage + self.memory[class];
            it.time[class] =
                self.bound[class] / clock + (1.0 - self.bound[class]) * self.memory_time;
        }
        it.voltage = self.voltage(it.clock[Class::Gemm as usize]);
        it
    }

    /// The pace for [`crate::timeline::Timeline::run`].
    #[must_use]
    pub fn pace(&self, at: &Operation) -> Pace {
        let mut pace = Pace {
            time: at.time,
            factor: 1.0,
            dynamic: at.dynamic,
            ..Pace::default()
        };
        let clock = at.clock[Class::Gemm as usize];
        let by_clock = if self.contention_clock == 0.0 {
            1.0
        } else {
            clock.powf(self.contention_clock)
        };
        for class in 0..CLASSES {
            let excess = self.contention[class] * by_clock;
            pace.transfer_contention[class] = 1.0 + excess;
            pace.wait_contention[class] = 1.0 + excess * self.wait_contention;
        }
        pace
    }

    /// Mean power above idle over an iteration of this length, W.
    #[must_use]
    pub fn mean_dynamic(&self, at: &Operation, used: &Use, length: f64) -> f64 {
        let compute: f64 = (0..CLASSES).map(|it| used.busy[it] * at.dynamic[it]).sum();
        let exposed = (used.waiting + used.transferring - used.overlapped).max(0.0);
        (compute + self.fabric * used.transferring + self.spin * exposed) / length
    }

    /// The power that the limiter holds to its target: somewhere between the mean of all time and
    /// that of the hungriest class, by its window.
    #[must_use]
    pub fn regulated(&self, at: &Operation, used: &Use, length: f64, idle: f64) -> f64 {
        let mean = self.mean_dynamic(at, used, length);
        let computing = used.computing();
        if computing <= 0.0 {
            return idle + mean;
        }
        let (mut compute, mut hungriest) = (0.0, 0.0_f64);
        for class in 0..CLASSES {
            compute += used.busy[class] * at.dynamic[class];
            if used.busy[class] > 0.02 * computing {
                hungriest = hungriest.max(at.dynamic[class]);
            }
        }
        let links = self.fabric * used.transferring / length;
        let busy = compute / computing;
        let short = busy + self.burst_weight * (hungriest - busy) + links;
        // Quiet parts of an iteration are taken to be an eighth of it long.
        let long = self.window / (self.window + length / 8.0);
        idle + long * mean + (1.0 - long) * short.max(mean)
    }

    /// The power that the limiter aims at under a cap.
    #[must_use]
    pub fn target(&self, cap: f64) -> f64 {
        let (overshoot, lowest) = self.overshoot;
        let near = (1.0 - (cap / lowest - 1.0) / 0.5).clamp(0.0, 1.0);
        cap * (1.0 - self.shortfall) * (1.0 + overshoot * near) / self.gain
    }

    /// The cap under which it aims at this power.
    #[must_use]
    pub fn cap_for(&self, power: f64) -> f64 {
        let mut cap = power * self.gain / (1.0 - self.shortfall);
        for _ in 0..30 {
            // The target rises with the cap by 0.7 to 1.1 of it, so this converges.
            cap += (power - self.target(cap)) * self.gain;
        }
        cap
    }

    /// Time per work of the classes with these weights: the GPU's own pace, without contention.
    #[must_use]
    pub fn own_pace(&self, common: f64, temperature: f64, weights: &[f64; CLASSES]) -> f64 {
        let at = self.operate(common, temperature);
        (0..CLASSES).map(|it| weights[it] * at.time[it]).sum()
    }
}
