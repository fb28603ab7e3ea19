//! A measurement window: executions again and again, between two looks at an energy counter that has a new
//! value every 100 ms only (the paper's section 5.3 and Figure 12).

use litd_sim::rng::Rng;
use litd_units::{Celsius, Hertz, Joules, Millis, Watts};

use crate::execution::Pace;
use crate::gpu::Gpu;
use crate::heat::Heat;

/// The time between two values of the energy counter: NVML's, section 5.3.
pub const UPDATE: Millis = Millis(100.0);
/// The longest window, cooldown and execution that are simulated, so that nothing keeps the simulation busy
/// for ever. A GPU has long settled by then.
pub const LONGEST: Millis = Millis(600_000.0);
/// The relative deviation of windows' times: launches of one kernel on one GPU (0.12 %, Longhorn's V100).
const TIME_NOISE: f64 = 0.0012;
/// The relative deviation of single executions; training steps' is 1.6 to 2.8 %.
const EXECUTION_NOISE: f64 = 0.02;
/// The relative deviation of power between updates of the counter: assumed.
const POWER_NOISE: f64 = 0.01;

/// How one candidate is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Method {
    /// How long it is executed, at least once.
    pub window: Millis,
    /// How long nothing is done before.
    pub cooldown: Millis,
    /// How many windows, each with its cooldown; at least one.
    pub repeats: u32,
}

impl Default for Method {
    /// Section 5.3: 5 s after 5 s, once.
    fn default() -> Self {
        Self {
            window: Millis(5_000.0),
            cooldown: Millis(5_000.0),
            repeats: 1,
        }
    }
}

/// The result of a window, per execution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// The time.
    pub time: Millis,
    /// The energy, by the counter.
    pub energy: Joules,
    /// The mean clock.
    pub clock: Hertz,
    /// The temperature before.
    pub before: Celsius,
}

/// Noise with the kurtosis of a GPU's (6, where a normal's is 3): one draw in ten is 2.5 times as wide.
/// Deviation 1.
fn heavy(rng: &mut Rng) -> f64 {
    // The mixture's variance is 0.9 + 0.1 x 2.5^2.
    let deviation = (0.9_f64 + 0.1 * 6.25).sqrt();
    let width = if rng.uniform() < 0.1 { 2.5 } else { 1.0 };
    rng.normal() * width / deviation
}

/// With nothing to do, for a cooldown.
#[must_use]
pub fn cool(gpu: &Gpu, mut heat: Heat, cooldown: Millis) -> Heat {
    let mut left = cooldown.min(LONGEST);
    while left > Millis::ZERO {
        let step = left.min(UPDATE);
        let power = gpu.static_power(heat.temperature(gpu));
        heat = heat.after(gpu, power, step);
        left -= step;
    }
    heat
}

/// The energy that was used until moments of a window, which begins with 0 at 0.
struct Meter {
    points: Vec<(Millis, Joules)>,
}

impl Meter {
    fn run(&mut self, power: Watts, time: Millis) {
        let (moment, energy) = self.last();
        let more = Joules(power.0 * time.0 * 1e-3);
        self.points.push((moment + time, energy + more));
    }

    fn last(&self) -> (Millis, Joules) {
        self.points
            .last()
            .copied()
            .unwrap_or((Millis::ZERO, Joules::ZERO))
    }

    /// Until a moment within the window.
    fn until(&self, moment: Millis) -> Joules {
        let mut before = (Millis::ZERO, Joules::ZERO);
        for &after in &self.points {
            if after.0 >= moment {
                let share = (moment - before.0) / (after.0 - before.0);
                return before.1 + (after.1 - before.1) * share;
            }
            before = after;
        }
        before.1
    }
}

/// Measures a window, from `heat` on. `pace` says how executions go at a static power.
pub fn measure(
    gpu: &Gpu,
    heat: &mut Heat,
    window: Millis,
    rng: &mut Rng,
    pace: &mut dyn FnMut(Watts) -> Pace,
) -> Window {
    let window = window.min(LONGEST);
    let before = heat.temperature(gpu);
    let resting = gpu.static_power(before);
    // The time from the counter's last value to the window's begin, in which the GPU was idle.
    let early = UPDATE * rng.uniform();
    let planned = (window / pace(resting).time).max(1.0);
    let slower = 1.0 + TIME_NOISE * heavy(rng) + EXECUTION_NOISE * heavy(rng) / planned.sqrt();
    let slower = slower.max(0.5);

    let mut meter = Meter { points: Vec::new() };
    let (mut executions, mut cycles) = (0.0_f64, 0.0);
    loop {
        let temperature = heat.temperature(gpu);
        let resting = gpu.static_power(temperature);
        let Pace {
            clock,
            time,
            dynamic,
        } = pace(resting);
        let time = time * slower;
        let elapsed = meter.last().0;
        let left = if elapsed < window {
            window - elapsed
        } else {
            // The last execution is brought to its end.
            time * (executions.ceil().max(1.0) - executions)
        };
        // Rounding errors of those sums are ignored.
        if left < time * 1e-9 {
            break;
        }
        let step = left.min(UPDATE);
        let noisy = (1.0 + POWER_NOISE * heavy(rng)).max(0.0);
        let power = (resting + dynamic / slower) * noisy;
        meter.run(power, step);
        *heat = heat.after(gpu, power, step);
        executions += step / time;
        cycles += clock.0 * step.0;
    }
    let (length, _) = meter.last();
    let late = Millis((length + early).0 % UPDATE.0);
    let shown = if late > length {
        Millis::ZERO
    } else {
        length - late
    };
    let counted = Joules(resting.0 * early.0 * 1e-3) + meter.until(shown);
    Window {
        time: length / executions,
        energy: counted / executions,
        clock: Hertz(cycles / length.0),
        before,
    }
}
