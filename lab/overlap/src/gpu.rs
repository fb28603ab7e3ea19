//! The GPU's constants.
//!
//! "Data sheet" is NVIDIA's A100 data sheet and white paper; "paper" is Kareus (arXiv 2601.17654); "artifact"
//! is its public one. "Assumed" numbers are an engineer's guess of the right size. "Fitted" ones were chosen
//! so that Table 1's first row (Megatron-LM, 5.60 s and 26,745 J) comes out. "Chosen" ones are guesses too,
//! but the paper had a say: the comment says what in it they were made to agree with, so that agreement is
//! no evidence.

use litd_units::{Celsius, Hertz, Joules, Millis, Watts};

/// A GPU, with the cooling and the links of its node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    /// Streaming multiprocessors.
    pub sms: u32,
    /// The lowest clock to which it can be locked.
    pub lowest: Hertz,
    /// The highest.
    pub highest: Hertz,
    /// The step from a clock to the next.
    pub step: Hertz,
    /// FLOP per SM and cycle of the matrix units, dense, two for each multiply-add.
    pub matrix: f64,
    /// FLOP per SM and cycle of the vector units.
    pub vector: f64,
    /// The share of `matrix` that a kernel without any other limit reaches.
    pub matrix_efficiency: f64,
    /// The share of `vector`.
    pub vector_efficiency: f64,
    /// Memory bandwidth that kernels reach, in B/s.
    pub bandwidth: f64,
    /// The most that one SM moves to and from memory at the highest clock, in B/s.
    pub bandwidth_per_sm: f64,
    /// The share of a memory access's latency that passes in the SMs' clock domain; the rest does not
    /// depend on the clock.
    pub clocked_latency: f64,
    /// How much of the bandwidth two streams of equal size cost each other: a quarter of this number.
    pub mixing: f64,
    /// How softly a kernel's limits meet: the order of the norm that combines their times. Infinity would
    /// be the roofline's sharp edge.
    pub softness: f64,
    /// From a kernel's launch to its first work, at any clock.
    pub kernel_latency: Millis,
    /// The time to fill and drain a kernel at the highest clock; it takes cycles, so it is longer at lower
    /// ones.
    pub kernel_ramp: Millis,
    /// The rate of the links in one direction, in B/s.
    pub link: f64,
    /// The rate that one SM sends in one direction at the highest clock, in B/s.
    pub link_per_sm: f64,
    /// The share of sending's latency that passes in the SMs' clock domain.
    pub clocked_link_latency: f64,
    /// Bytes of memory read and written for each byte sent (and the one received meanwhile).
    pub bytes_per_sent: f64,
    /// The time that each collective spends on agreeing that all ranks are there.
    pub collective_latency: Millis,
    /// SMs of a communication that has the library's default.
    pub default_sms: u32,
    /// GPUs of a node; no collective of more is simulated.
    pub node: u32,
    /// The limit that the GPU keeps by lowering its clock.
    pub limit: Watts,
    /// How far the clock swings to either side of its mean where the limit binds.
    pub swing: Hertz,
    /// The power in the ready state, at the temperature that this leads to.
    pub ready: Watts,
    /// How much more of it each kelvin brings, relatively.
    pub leakage: f64,
    /// At the highest clock: what is drawn as soon as any kernel runs (clock tree, caches, schedulers).
    pub active: Watts,
    /// At the highest clock: what each SM with a kernel draws, whatever it does.
    pub sm: Watts,
    /// Per FLOP of the matrix units at the highest voltage.
    pub matrix_energy: Joules,
    /// Per FLOP of the vector units at the highest voltage.
    pub vector_energy: Joules,
    /// Per byte on its way between SM and memory controller, at the highest voltage.
    pub fabric_energy: Joules,
    /// Per byte of memory; it has a voltage of its own.
    pub memory_energy: Joules,
    /// Per byte sent, and the one received meanwhile.
    pub link_energy: Joules,
    /// Down to this clock the voltage falls with the clock, and below it no further.
    pub knee: Hertz,
    /// The voltage at the knee, over that at the highest clock.
    pub knee_voltage: f64,
    /// The air that cools it.
    pub air: Celsius,
    /// The chip over its heat sink: K/W, and the time constant.
    pub fast: Pole,
    /// The heat sink over the air.
    pub slow: Pole,
}

/// A thermal resistance with its capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pole {
    /// K/W.
    pub resistance: f64,
    /// Until 63 % of the way is done.
    pub constant: Millis,
}

/// A100-SXM4-40GB in a node of eight with NVSwitch, as in the paper's testbed (section 6.1).
pub const A100: Gpu = Gpu {
    sms: 108,                   // data sheet
    lowest: Hertz(210e6),       // paper, Appendix B
    highest: Hertz(1_410e6),    // paper, Appendix B
    step: Hertz(15e6),          // paper, Appendix B
    matrix: 2_048.0,            // data sheet: 312 TFLOP/s in bf16 / 108 SMs / 1.41 GHz
    vector: 128.0,              // data sheet: 19.5 TFLOP/s in fp32
    matrix_efficiency: 0.50,    // fitted
    vector_efficiency: 0.70,    // assumed
    bandwidth: 1.555e12 * 0.85, // data sheet: 1,555 GB/s; reached: assumed
    // Assumed: 64 SMs or so reach the bandwidth.
    bandwidth_per_sm: 28e9,
    clocked_latency: 0.5,          // assumed
    mixing: 0.4,                   // assumed: a tenth of the bandwidth at worst
    softness: 4.0,                 // assumed
    kernel_latency: Millis(0.003), // assumed: usual for kernels launched ahead
    // Chosen: 8 us at first, raised once nanobatching gained too much in Table 1's third row. A large
    // product's block takes 40 us or so, and half of them wait for the last.
    kernel_ramp: Millis(0.020),
    link: 300e9 * 0.8, // data sheet: 600 GB/s both ways; reached: assumed, large collectives' usual
    // Chosen so that about 4 SMs hide Figure 3's communication and 2 don't: 1,024 threads (artifact) with
    // 2.5 loads of 16 B each in flight for 1.5 us.
    link_per_sm: 27e9,
    clocked_link_latency: 0.3, // assumed: section 3.2.3, "largely unchanged" by the clock
    bytes_per_sent: 2.0,       // what is sent is read, and what comes is written
    collective_latency: Millis(0.02), // assumed
    default_sms: 24,           // assumed: a channel for each of 24 blocks
    node: 8,                   // paper, section 6.1
    limit: Watts(400.0),       // data sheet
    swing: Hertz(60e6), // assumed; section 6.2.1 has 1,410 MHz throttled to a mean near 1,350
    ready: Watts(60.0), // paper, Table 1: 5,372 J / 16 GPUs / 5.60 s
    // Chosen: 0.8 %/K at first, raised so that a missing cooldown shows (Figure 12b). An idle MI300X has
    // 0.3 %/K within a card and 1.0 %/K between cards.
    leakage: 0.010,
    active: Watts(50.0),             // assumed
    sm: Watts(0.45),                 // assumed
    matrix_energy: Joules(1.47e-12), // fitted
    vector_energy: Joules(2e-12),    // assumed
    fabric_energy: Joules(35e-12),   // assumed
    memory_energy: Joules(56e-12),   // assumed: 7 pJ/bit of HBM2 with its controller
    link_energy: Joules(80e-12),     // assumed: 10 pJ/bit there and back
    knee: Hertz(900e6),              // paper, Appendix B: below 900 MHz energy no longer falls
    knee_voltage: 0.72,              // assumed
    air: Celsius(22.0),              // assumed
    // Assumed, from an A100 that went from 39 to 51 °C within 0.5 s of 380 W.
    fast: Pole {
        resistance: 0.045,
        constant: Millis(150.0),
    },
    // Assumed, so that 5 s bring it below 32 °C (paper, section 5.3).
    slow: Pole {
        resistance: 0.040,
        constant: Millis(8_000.0),
    },
};

impl Gpu {
    /// Whether it can be locked to this clock.
    #[must_use]
    pub fn has(&self, clock: Hertz) -> bool {
        let steps = (clock.0 - self.lowest.0) / self.step.0;
        // A clock that went through megahertz and back is the same clock.
        clock >= self.lowest && clock <= self.highest && (steps - steps.round()).abs() < 1e-6
    }

    /// A clock over the highest.
    #[must_use]
    pub(crate) fn relative(&self, clock: Hertz) -> f64 {
        clock / self.highest
    }
}
