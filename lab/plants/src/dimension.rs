//! What is assumed: every dimension of the family, its range and where the range comes from.
//!
//! Sources are named by the public origin of their data (`plant/SOURCES.md` of the project's
//! reference folder), by what was read of other public work, or as assumed. An assumed range has
//! no data behind it; it is wide on purpose, and results that hinge on it say so.

use serde::Serialize;

/// How values spread over a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Evenly.
    Linear,
    /// Evenly in the logarithm.
    Log,
}

/// What a range rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Data that `litlab plants validate` reads.
    Data,
    /// Published or read elsewhere; no data here.
    Literature,
    /// Nothing but plausibility.
    Assumed,
}

/// One dimension.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spec {
    /// Name in tables and on the command line.
    pub name: &'static str,
    /// Unit; empty for ratios.
    pub unit: &'static str,
    /// Lowest value.
    pub low: f64,
    /// Highest value.
    pub high: f64,
    /// How values spread in between.
    pub scale: Scale,
    /// What the range rests on.
    pub basis: Basis,
    /// What it is.
    pub meaning: &'static str,
    /// Where the range comes from.
    pub source: &'static str,
}

impl Spec {
    /// The value at a place between 0 and 1.
    #[must_use]
    pub fn at(&self, place: f64) -> f64 {
        match self.scale {
            Scale::Linear => self.low + (self.high - self.low) * place,
            Scale::Log => self.low * (self.high / self.low).powf(place),
        }
    }

    /// The place of a value: 0 at the lowest, 1 at the highest.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }
}

macro_rules! dimensions {
    ($($name:ident $text:literal $unit:literal $low:literal .. $high:literal $scale:ident $basis:ident
        $meaning:literal; $source:literal)*) => {
        /// The dimensions by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        pub enum Dimension {
            $(#[doc = $meaning] $name,)*
        }

        impl Dimension {
            /// All of them, in order of their number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Range, meaning and source.
            #[must_use]
            pub fn spec(self) -> Spec {
                match self {
                    $(Self::$name => Spec {
                        name: $text,
                        unit: $unit,
                        low: $low,
                        high: $high,
                        scale: Scale::$scale,
                        basis: Basis::$basis,
                        meaning: $meaning,
                        source: $source,
                    },)*
                }
            }
        }
    };
}

dimensions! {
    // Power and clock.
    Idle "idle-place" "" 0.0..1.0 Linear Data
        "place of a GPU's idle power within the range of its kind";
        "MI300X idle 141 to 153 W; V100 pagerank 81 W; A100 82 to 92 W, B300 183 W (read)"
    Leakage "leakage-part" "" 0.3..0.6 Linear Assumed
        "part of idle power that is leakage and so follows temperature and voltage";
        "assumed; textbook CMOS at 60 to 80 C"
    LeakageGrowth "leakage-growth" "1/K" 0.008..0.022 Linear Data
        "relative growth of leakage with temperature";
        "MI300X between cards 1.43 W/C of 148 W; V100 0.087 %/C of pace over time"
    GemmActivity "gemm-activity" "" 0.45..1.15 Linear Literature
        "dynamic power of this workload's matrix products relative to that of a matrix product on the kind of GPU \
         (`kind.rs`)";
        "V100: bert 156 W, resnet 181 W, sgemm 300 W; B300 training step throttled at 1100 W (read)"
    AttentionActivity "attention-activity" "" 0.7..1.0 Linear Assumed
        "dynamic power of attention relative to matrix products"; "assumed"
    VectorActivity "vector-activity" "" 0.25..0.6 Linear Literature
        "dynamic core power of element-wise kernels relative to matrix products";
        "B300 memory streaming 791 of 1100 W (read)"
    HbmDraw "hbm-draw" "" 0.06..0.22 Linear Literature
        "power of memory at full bandwidth, which counts against the GPU's cap, relative to the TDP";
        "B300 memory streaming 791 of 1100 W (read); split into core and memory assumed"
    LowestVoltage "lowest-voltage" "" 0.62..0.78 Linear Data
        "voltage below the knee relative to that at the highest clock";
        "Zeus: exponent of time in power -0.2 to -2.5 along one curve"
    Knee "knee" "" 0.5..0.74 Linear Data
        "clock below which voltage no longer falls, relative to the highest";
        "Zeus: exponent of time in power falls three- to tenfold; B300 -1.06 to -0.34 (read)"
    GemmBound "gemm-clock-bound" "" 0.85..1.0 Linear Data
        "part of a matrix product's time that follows the clock";
        "Longhorn sgemm: exponent of time in the clock -1.00; training kernels assumed lower"
    AttentionBound "attention-clock-bound" "" 0.7..0.95 Linear Assumed
        "part of attention's time that follows the clock"; "assumed"
    VectorBound "vector-clock-bound" "" 0.05..0.4 Linear Assumed
        "part of the time of element-wise kernels and of the optimizer that follows the clock"; "assumed"
    ClassTracking "class-tracking" "" 0.0..1.0 Linear Literature
        "how far clocks follow classes within an iteration: 0 one clock, 1 each class at its own";
        "B300 step: mean 1724, lowest 1545 MHz, 12 % (read)"
    // The limiter.
    Window "limiter-window" "s" 0.01..1.0 Log Literature
        "time over which the limiter takes the mean of power";
        "B300: bursts of 5 ms pass 500 W by 5 %, of 50 ms by 42 % (read)"
    BurstWeight "burst-weight" "" 0.0..0.6 Linear Data
        "what a limiter with a short window regulates: 0 the mean power of busy time, 1 the class that needs most";
        "Zeus: A40 ResNet-18 takes 36.5 s at 250 W, 33.3 s at 300 W, though its mean power is below 130 W"
    Shortfall "limiter-shortfall" "" 0.004..0.05 Log Data
        "by how much mean power stays below a cap that binds";
        "Longhorn sgemm 0.7 to 1.25 %; Zeus 0.94 to 1.00 of the limit; B300 0.4 to 1.5 % (read)"
    Overshoot "limiter-overshoot" "" -0.15..0.05 Linear Data
        "above 0, mean power exceeds the cap by this instead of falling short; below 0 it never does";
        "Zeus: power over limit where it binds 0.94 to 1.02; range from the author's brief"
    ShortfallSpread "shortfall-spread" "" 0.0005..0.005 Log Data
        "standard deviation of limiter-shortfall between GPUs"; "Longhorn sgemm: 0.56 W of 300 W"
    FloorOvershoot "floor-overshoot" "" 0.0..0.09 Linear Data
        "by how much mean power exceeds the lowest cap; falls to 0 at 1.5 times that cap";
        "Zeus: A40 at 100 W 0.98/1.04/1.09"
    Lag "limiter-lag" "s" 0.1..5.0 Log Literature
        "time constant with which clocks follow power's deviation from the cap";
        "notes on hardware; range from the author's brief"
    DeadBand "limiter-dead-band" "" 0.0..0.01 Linear Assumed
        "deviation that the limiter leaves alone"; "assumed"
    LimiterBias "limiter-sensor-bias" "" 0.001..0.01 Log Literature
        "standard deviation between GPUs of the gain of the sensor that the limiter and tools share";
        "GPU_Power_Benchmark: A100 0.94, RTX 3090 0.96, K40m 1.03 of an external meter"
    // Other limiters.
    CurrentLimit "current-limit" "" 0.82..1.5 Linear Assumed
        "clock to which current (TDC) or the voltage regulator holds matrix products, relative to the highest; above 1 \
         never";
        "notes on hardware name PPT, TDC, HBM and VR limiters; levels assumed"
    CurrentSpread "current-limit-spread" "" 0.0..0.03 Linear Assumed
        "standard deviation of current-limit between GPUs: current limits some GPUs of a node, power others"; "assumed"
    HbmSlow "hbm-throttle" "" -0.3..0.1 Linear Assumed
        "by how much one GPU's memory is slower because it is hot; below 0 none is"; "assumed"
    // Silicon.
    Silicon "silicon-spread" "" 0.014..0.065 Log Data
        "standard deviation between GPUs of dynamic power at one clock, which persists";
        "Longhorn sgemm: pace sd 1.81 %, slowest over fastest 1 to 5 %; Lit Silicon clocks 6 % apart"
    LeakageSpread "leakage-spread" "" 0.02..0.15 Log Data
        "standard deviation of the logarithm of leakage between GPUs";
        "MI300X idle 141 to 153 W"
    CurveSpread "curve-spread" "" 0.002..0.03 Log Assumed
        "standard deviation between GPUs of knee and lowest voltage: slopes differ by GPU"; "assumed"
    ClockSpread "highest-clock-spread" "" 0.0..0.002 Linear Data
        "standard deviation between GPUs of the speed of latency-bound work";
        "Longhorn pagerank; rank correlation with sgemm 0.15"
    Outlier "outlier-chance" "" 0.0..0.15 Linear Data
        "chance that one GPU of a node has 4 to 15 % more dynamic power than its silicon says";
        "Longhorn: slowest over fastest beyond the p90 of 4.9 % in some nodes"
    // Heat.
    Inlet "inlet" "C" 18.0..32.0 Linear Literature
        "temperature of the air or water that comes in"; "ASHRAE classes; not in the data"
    Rise "heat-rise" "K" 25.0..45.0 Linear Data
        "rise of a median GPU over the inlet at its TDP, fans at full speed";
        "Longhorn sgemm 56/66/73 C"
    CoolingSpread "cooling-spread" "" 0.05..0.2 Log Data
        "standard deviation between GPUs of the resistance to heat";
        "Longhorn: temperatures in a node 7/11/27 C apart"
    HotSlow "hot-and-slow" "" 0.0..0.98 Linear Data
        "correlation of a GPU's resistance to heat with its dynamic power";
        "Longhorn: temperature explains 35 % of pace, the slowest is the hottest in 48 %"
    Preheat "preheat" "K" 0.0..9.0 Linear Data
        "by how much a GPU upstream at its TDP warms the one behind it";
        "three loaded neighbours add 1.3 C (read); MI300X one card moves others by -1.0 to +0.7 C"
    FanResponse "fan-response" "" 0.0..0.5 Linear Assumed
        "exponent of the resistance to heat in fan speed; 0: liquid, or fans of constant speed"; "assumed"
    SinkTime "sink-time" "s" 10.0..60.0 Log Literature
        "time constant of the heat sink"; "notes on hardware: 10 to 60 s on air (assumed there)"
    FastPole "fast-pole" "" 0.1..0.4 Linear Literature
        "part of the rise that comes within a second";
        "A100: 39 to 51 C within 0.5 s of a 380 W burst (read)"
    // Communication.
    TransferRatio "transfer-ratio" "" 0.08..0.5 Linear Literature
        "time of transfers relative to the compute that can hide them";
        "Lit Silicon, Figure 3: overlap 30 % on the straggler"
    Contention "contention" "" 0.02..0.45 Linear Literature
        "by how much a transfer slows matrix products beside it";
        "Lee et al. (ISPASS 2025), cited by Lit Silicon: 18.9 % on average, up to 40 %"
    VectorContention "vector-contention" "" 0.5..1.6 Linear Assumed
        "by how much a transfer slows memory-bound kernels beside it, relative to matrix products"; "assumed"
    WaitContention "wait-contention" "" 0.3..1.0 Linear Assumed
        "contention while a resident collective only waits, relative to while it transfers";
        "Lit Silicon, phase 3: leaders are slowed while they wait; size assumed"
    ContentionSpread "contention-spread" "" 0.0..0.12 Linear Assumed
        "standard deviation of contention between GPUs"; "assumed"
    ContentionClock "contention-clock" "" -0.3..0.6 Linear Assumed
        "exponent of contention in the clock"; "assumed"
    ContentionSize "contention-size" "" 0.0..0.3 Linear Assumed
        "exponent of contention in the part of time in which transfers run"; "assumed"
    TransferClock "transfer-clock" "" 0.0..0.4 Linear Literature
        "part of a transfer's time that follows the slowest GPU's clock";
        "KV hand-over on A100 8 W over idle (read); else assumed"
    FabricDraw "fabric-draw" "" 0.01..0.08 Linear Literature
        "power of links while transferring, which counts against the GPU's cap, relative to the TDP";
        "KV hand-over on A100 8 W of 400 (read); upper end assumed"
    SpinDraw "spin-draw" "" 0.02..0.25 Linear Literature
        "power of a collective that waits with nothing beside it, relative to the TDP";
        "POLCA: 75 %, 50 %, 20 % of TDP at iteration ends"
    // The job.
    Iteration "iteration" "s" 0.12..8.0 Log Literature
        "compute of an iteration at the highest clock"; "Longhorn resnet 0.12 s, bert 0.24 s; Llama runs of seconds"
    Optimizer "optimizer-part" "" 0.01..0.15 Linear Assumed
        "part of the compute that streams memory for the optimizer"; "assumed"
    Gap "host-gap" "" 0.0..0.08 Linear Data
        "part of an iteration in which no kernel runs"; "Zeus: most jobs draw below 93 % of the limit"
    Start "start-place" "" 0.0..1.0 Linear Literature
        "chooses the caps found: TDP (below 0.4), 93 % of TDP (below 0.65), 80 % (below 0.9) or 70 %";
        "the author's brief; Lit Silicon, Table II: 700 to 500 of 750 W"
    // Noise.
    KernelNoise "kernel-noise" "" 0.001..0.03 Log Literature
        "standard deviation of a kernel's time";
        "StragglerAnalysis: training compute 1.6 to 2.8 % (read)"
    HardwareNoise "hardware-noise" "" 0.0004..0.0014 Log Data
        "standard deviation of a GPU's pace from iteration to iteration, from its clocks";
        "Longhorn sgemm: launch noise 0.05 to 0.12 %"
    JobNoise "job-noise" "" 0.0005..0.028 Log Literature
        "standard deviation of a GPU's pace from iteration to iteration, from data and host"; "StragglerAnalysis: 1.6 to 2.8 % (read); lower end assumed"
    Memory "noise-memory" "" -0.2..0.6 Linear Data
        "correlation of hardware-noise and job-noise with the iteration before";
        "Longhorn sgemm -0.20/0.10/0.43; StragglerAnalysis 0.13, 0.6 (read)"
    SharedNoise "shared-noise" "" 0.0002..0.01 Log Data
        "standard deviation of the noise that slows all GPUs at once";
        "Longhorn: pace residuals of neighbours correlate 0.49"
    Tail "heavy-tail" "" 0.0..1.0 Linear Data
        "one kernel in fifty deviates 1 + 8 times this as far as others, and always to longer; a GPU's pace, in 3 % of \
         iterations, 1 + 4 times this as far";
        "Longhorn sgemm residuals: kurtosis 6"
    Pause "pause-rate" "" 0.0001..0.01 Log Data
        "chance per iteration that one GPU's host pauses for a tenth of it or more";
        "MLPerf Llama: kurtosis 34 in time (pauses)"
    TwoModes "two-modes" "" -0.01..0.015 Linear Assumed
        "a GPU changes at random between two paces: by how much the second is slower; below 0 there is only one";
        "assumed: bimodal clocks seen in no data here"
    Drift "drift" "K/h" 0.1..4.0 Log Assumed
        "random walk of the inlet's temperature"; "assumed; Longhorn over weeks: cabinets' residuals correlate 0.75"
    // CPUs and tools.
    CpuDraw "cpu-draw" "" 0.3..0.75 Linear Literature
        "power of the CPUs relative to their limit"; "Lit Silicon: 13.5 % of cores used"
    CpuMargin "cpu-margin" "" 0.05..0.2 Linear Assumed
        "watts that must stay above the CPUs' power, relative to their limit"; "assumed"
    SensorGain "sensor-gain" "" 0.94..1.03 Linear Data
        "mean gain of the power that tools report";
        "GPU_Power_Benchmark: A100 0.94, RTX 3090 0.96, K40m 1.03"
    Averaged "averaged-reading" "" 0.0..1.0 Linear Data
        "above 0.6 the tool reports a mean of one second instead of the sensor's window";
        "GPU_Power_Benchmark: RTX 3090 `power.draw` 1 s, `power.draw.instant` 25 ms; H100 (arXiv 2312.02741)"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_ranges_and_names_differ() {
        let mut names = Vec::new();
        for &dimension in Dimension::ALL {
            let spec = dimension.spec();
            assert!(spec.low < spec.high, "{}", spec.name);
            assert!(
                spec.scale == Scale::Linear || spec.low > 0.0,
                "{}",
                spec.name
            );
            assert!(!spec.source.is_empty() && !spec.meaning.is_empty());
            assert!((spec.at(0.0) - spec.low).abs() < 1e-12);
            assert!((spec.at(1.0) - spec.high).abs() < 1e-9);
            assert!((spec.place(spec.at(0.3)) - 0.3).abs() < 1e-9);
            names.push(spec.name);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
