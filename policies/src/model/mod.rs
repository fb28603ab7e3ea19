//! The model law. The paper's law moves caps a little in the direction that leads show, again and
//! again; this one asks the durations of kernels how much slower each GPU's clock is (equation
//! 11), learns how clocks follow power, and computes the caps that level them.
//!
//! - `estimate`: each GPU's clock and slope, with uncertainty;
//! - `level`: the caps wanted.
//!
//! It approaches from the side that costs no throughput: slopes count as steeper than they are
//! believed to be, by as much as they are uncertain, so that no leader is slowed past the
//! straggler; and leaders keep a margin as large as noise makes worthwhile.

mod estimate;
mod level;

use litd_units::{Celsius, Prices, Watts};

use self::estimate::Estimate;
use self::level::{Member, level, lowest, normal};
use crate::config::Model;
use crate::sample::{GpuReading, Mean};

/// The worth of time in power.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Worth {
    /// An iteration may become longer by this part, whatever that saves.
    Slowdown(f64),
    /// The least cost.
    Prices(Prices),
}

/// Slopes are taken for steeper by so many standard deviations.
const CAUTION: f64 = 2.0;
/// By how many standard deviations a window must differ from the present state.
const SIGNIFICANT: f64 = 2.0;
/// The same where nothing is wrong.
const CERTAIN: f64 = 5.0;
/// Windows that differ from what was expected by this mean square are another node's.
const SURPRISING: f64 = 7.0;
/// By how much a GPU's clock may have changed when it surprises.
const DISTURBANCE: f64 = 0.02;
/// By how much a GPU's slowness drifts from window to window.
const DRIFT: f64 = 1e-4;
/// Kernels that follow power less than this don't follow it: the model is wrong.
const SHALLOWEST: f64 = 0.2;
/// Temperatures that move less from one window to the next have settled.
const STEADY: f64 = 1.0;
/// After so many windows they count as settled whatever they do.
const LONGEST_WAIT: u32 = 6;
/// A cap that does not bind stays this far above the draw.
const ABOVE_DRAW: f64 = 1.03;
/// A GPU that starts more kernels last than this is no leader.
const NO_LEADER: f64 = 0.25;
/// Caps that differ by less are one that was read twice.
const SAME_CAP: Watts = Watts(0.5);
/// The largest variation that is believed.
const WIDEST: f64 = 0.05;
/// A clock that is faster than the slowest by more than this shows in the leads.
const WORTH_A_LEAD: f64 = 0.004;
/// A GPU whose lead is less than this part of what its clock should give it is late otherwise.
const TOO_LATE: f64 = 0.4;
/// The middle of several values varies by this more than their mean.
const OF_MEDIAN: f64 = 1.2533;

/// The lesson from a window of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// Temperatures still move.
    Settling,
    /// As expected, or not far from it.
    Expected,
    /// The node is another one than it was.
    Surprised,
    /// No lesson: durations are missing.
    Nothing,
}

/// The caps wanted, and why.
#[derive(Debug, Clone)]
pub(crate) struct Proposal {
    /// A cap per GPU.
    pub caps: Vec<Watts>,
    /// Whether they are worth a change of caps.
    pub worthwhile: bool,
}

/// The present bounds of each GPU's cap.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// The least and the most.
    pub range: Vec<(Watts, Watts)>,
    /// The bound on their sum.
    pub budget: Watts,
    /// How far ahead each GPU is, from 0 for the straggler to 1 for the first.
    pub ahead: Vec<f64>,
    /// Whether each GPU's queue is empty for longer than the others': it waits for its host.
    pub waits: Vec<bool>,
}

impl Bounds {
    /// Whether a GPU with a fast clock is late nevertheless: its host or its data is late, and
    /// with a slower clock it would be later still.
    fn is_late(&self, gpu: usize, slowness: &[f64]) -> bool {
        let slowest = slowness.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let fastest = slowness.iter().copied().fold(f64::INFINITY, f64::min);
        let distance = slowest - slowness[gpu];
        let expected = distance / (slowest - fastest).max(1e-9);
        if self.waits.get(gpu) == Some(&true) {
            return true;
        }
        distance > WORTH_A_LEAD
            && self
                .ahead
                .get(gpu)
                .is_some_and(|&a| a < expected * TOO_LATE)
    }
}

/// The model of a node.
#[derive(Debug, Clone)]
pub(crate) struct ModelLaw {
    estimate: Estimate,
    /// Powers in warm-up, which all powers are compared with.
    home: Vec<Watts>,
    /// Cap and power of each GPU in the window taken last.
    seen: Vec<(Watts, Watts)>,
    /// Standard deviation of one sample's slowness.
    noise: f64,
    /// How many times as large the noise counts that leaders keep a margin for.
    margin: f64,
    /// Samples since caps changed that taught something.
    samples: u32,
    /// The share of kernels that each GPU started last, summed over those samples.
    last_in: Vec<f64>,
    /// How many samples told that.
    told: u32,
    /// Windows since caps changed in which temperatures moved, and the temperatures of the last.
    settling: Option<u32>,
    heat: Vec<Option<Celsius>>,
}

/// The power that sets a GPU's clock: its cap, or what it draws where that is less.
fn power(gpu: &GpuReading) -> Watts {
    match (gpu.is_power_limited(), gpu.power) {
        (Some(false), Some(power)) if power > Watts::ZERO => power.min(gpu.cap),
        _ => gpu.cap,
    }
}

fn seen(gpus: &[GpuReading]) -> Vec<(Watts, Watts)> {
    gpus.iter().map(|gpu| (gpu.cap, power(gpu))).collect()
}

fn bound_by_cap(gpu: &GpuReading) -> bool {
    power(gpu) >= gpu.cap
}

impl ModelLaw {
    /// From warm-up; `None` where durations are missing.
    pub(crate) fn new(mean: &Mean, gpus: &[GpuReading]) -> Option<Self> {
        let noise = mean.slowness_noise?;
        let usable = gpus.iter().all(|gpu| power(gpu) > Watts::ZERO);
        let known = mean.slowness.iter().all(Option::is_some);
        if !(usable && known && noise.is_finite()) {
            return None;
        }
        let mut law = Self {
            estimate: Estimate::new(gpus.len()),
            home: gpus.iter().map(power).collect(),
            seen: seen(gpus),
            noise: noise.max(1e-5),
            margin: 1.0,
            samples: 0,
            last_in: vec![0.0; gpus.len()],
            told: 0,
            settling: None,
            heat: Vec::new(),
        };
        law.take(mean, gpus);
        Some(law)
    }

    /// Powers against those of home, in logarithms.
    fn relative(&self, gpus: &[GpuReading]) -> Vec<f64> {
        let of = |(gpu, home): (&GpuReading, &Watts)| (power(gpu) / *home).ln();
        gpus.iter().zip(&self.home).map(of).collect()
    }

    /// A GPU that draws more or less under the same cap became warmer, got other work or another
    /// clock: that is no power it was given, and teaches nothing of how kernels follow power.
    fn follow_draw(&mut self, gpus: &[GpuReading]) {
        let now = seen(gpus);
        for ((home, before), now) in self.home.iter_mut().zip(&self.seen).zip(&now) {
            let same = (now.0 - before.0).abs() < SAME_CAP;
            if same && before.1 > Watts::ZERO {
                *home = *home * (now.1 / before.1);
            }
        }
        self.seen = now;
    }

    fn take(&mut self, mean: &Mean, gpus: &[GpuReading]) -> f64 {
        let log = |slowness: &Option<f64>| slowness.map(f64::ln);
        let slowness: Vec<Option<f64>> = mean.slowness.iter().map(log).collect();
        let samples = f64::from(mean.samples.max(1));
        let deviation = self.noise * OF_MEDIAN / samples.sqrt();
        self.samples += mean.samples;
        let last_in: Option<Vec<f64>> = mean.last_in_kernels.iter().copied().collect();
        if let Some(shares) = last_in {
            for (sum, share) in self.last_in.iter_mut().zip(shares) {
                *sum += share * f64::from(mean.samples);
            }
            self.told += mean.samples;
        }
        self.estimate
            .observe(&slowness, &self.relative(gpus), deviation)
    }

    /// Takes a window of samples.
    pub(crate) fn learn(&mut self, mean: &Mean, gpus: &[GpuReading]) -> Lesson {
        if !mean.slowness.iter().all(Option::is_some) {
            return Lesson::Nothing;
        }
        let heat: Vec<_> = gpus.iter().map(|gpu| gpu.temperature).collect();
        let before = std::mem::replace(&mut self.heat, heat);
        if let Some(windows) = self.settling {
            let still = |(now, then): (&Option<Celsius>, &Option<Celsius>)| match (now, then) {
                (Some(now), Some(then)) => (*now - *then).abs().0 < STEADY,
                _ => true,
            };
            let steady = windows > 0 && self.heat.iter().zip(&before).all(still);
            self.settling = Some(windows + 1).filter(|_| !steady && windows < LONGEST_WAIT);
            if self.settling.is_some() {
                return Lesson::Settling;
            }
        }
        self.follow_draw(gpus);
        self.estimate.drift(DRIFT);
        let known = self.clone();
        if self.take(mean, gpus) < SURPRISING {
            return Lesson::Expected;
        }
        *self = known;
        self.estimate.drift(DISTURBANCE);
        self.forget_window();
        self.take(mean, gpus);
        Lesson::Surprised
    }

    /// Caps have changed: what follows is of another state, and temperatures move.
    pub(crate) fn moved(&mut self) {
        self.forget_window();
        self.settling = Some(0);
    }

    fn forget_window(&mut self) {
        self.samples = 0;
        self.told = 0;
        self.last_in.fill(0.0);
    }

    /// By how much one GPU's arrival varies, as a part of the iteration. Durations show what varies
    /// from iteration to iteration. What varies from kernel to kernel, and how much of it slack
    /// absorbs, shows where a leader is last now and then: as often as a normal variable exceeds
    /// its distance from the straggler.
    fn variation(&self, slowness: &[f64]) -> f64 {
        let told = f64::from(self.told);
        let slowest = slowness.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let leaders: Vec<(f64, f64)> = slowness
            .iter()
            .zip(&self.last_in)
            .map(|(slowness, last_in)| (slowest - slowness, last_in / told.max(1.0)))
            .filter(|&(distance, share)| distance > 0.0 && share < NO_LEADER)
            .collect();
        let shares: f64 = leaders.iter().map(|leader| leader.1).sum();
        // As little as it may be by chance: an iteration of bad luck must not cost the margin.
        let shares = shares - (shares / told.max(1.0)).sqrt();
        if shares <= 0.0 {
            return self.noise;
        }
        let exceeding = |deviation: f64| -> f64 {
            let each = leaders.iter().map(|leader| normal(-leader.0 / deviation));
            each.sum()
        };
        let deviation = lowest(1e-6, WIDEST, |deviation| exceeding(deviation) >= shares);
        // Of the difference of two GPUs.
        (deviation / std::f64::consts::SQRT_2).max(self.noise)
    }

    /// The iteration became longer than it should: noise is worse than durations show.
    pub(crate) fn be_careful(&mut self) {
        self.margin *= 1.5;
    }

    /// Whether enough was seen since caps changed to judge where they led.
    pub(crate) fn is_ready(&self, gpus: &[GpuReading], knobs: &Model) -> bool {
        let x = self.relative(gpus);
        let worst = (0..x.len()).map(|gpu| self.estimate.deviation(gpu, &x));
        worst.fold(0.0, f64::max) < knobs.dead_band || self.samples >= knobs.max_samples
    }

    /// How kernels follow power on the average GPU, where that is so little that caps can't
    /// steer them.
    pub(crate) fn contradicted(&self) -> Option<f64> {
        let slopes = (0..self.home.len()).map(|gpu| self.estimate.slope(gpu));
        let (mut sum, mut steepest) = (0.0, f64::NEG_INFINITY);
        for (slope, deviation) in slopes {
            sum += slope;
            steepest = steepest.max(slope + CAUTION * deviation);
        }
        (steepest < SHALLOWEST).then(|| sum / self.home.len() as f64)
    }

    /// The caps that are best by what is known. Those of a node that is `held` change for more
    /// only: it is asked again in every window, and chance has many chances.
    pub(crate) fn propose(
        &self,
        gpus: &[GpuReading],
        bounds: &Bounds,
        knobs: &Model,
        held: bool,
    ) -> Proposal {
        let x = self.relative(gpus);
        let uncertain: Vec<f64> = (0..x.len())
            .map(|gpu| self.estimate.deviation(gpu, &x))
            .collect();
        let slowness: Vec<f64> = (0..x.len())
            .map(|gpu| self.estimate.slowness(gpu, x[gpu]))
            .collect();
        let variation = self.variation(&slowness) * self.margin;
        let member = |(at, gpu): (usize, &GpuReading)| {
            let (slope, deviation) = self.estimate.slope(at);
            let (now, range) = (power(gpu), bounds.range[at]);
            // More than it uses is no help to a GPU that no cap binds.
            let most = if bound_by_cap(gpu) { range.1 } else { now };
            let least = match bounds.is_late(at, &slowness) {
                true => now,
                false => range.0,
            };
            Member {
                slowness: slowness[at],
                slope: (slope + CAUTION * deviation).max(SHALLOWEST),
                // f64::hypot would ask for a C library newer than some systems that the packages are for have.
                noise: (variation.powi(2) + uncertain[at].powi(2)).sqrt(),
                power: now,
                range: (least.min(most), most),
            }
        };
        let members: Vec<Member> = gpus.iter().enumerate().map(member).collect();
        let cap = |at: usize, power: Watts| match bound_by_cap(&gpus[at]) {
            true => power,
            // A power read too low, or in a pause, must not take a GPU more than a step.
            false => (power * ABOVE_DRAW)
                .max(bounds.range[at].0)
                .min(gpus[at].cap),
        };
        // Caps that don't bind count in the budget too.
        let idle: Watts = (0..members.len())
            .map(|at| cap(at, members[at].power) - members[at].power)
            .sum();
        let target = level(&members, bounds.budget - idle, knobs.worth());
        let change = |at: usize| members[at].slope * (target.powers[at] / members[at].power).ln();
        let errors = if held { CERTAIN } else { SIGNIFICANT };
        let clear = |at: usize| change(at).abs() > knobs.dead_band + errors * uncertain[at];
        let now: Watts = members.iter().map(|m| m.power).sum();
        let saved = 1.0 - target.powers.iter().copied().sum::<Watts>() / now;
        let least = if held { 2.0 } else { 1.0 };
        let worth = -target.longer > least * knobs.min_speed || saved > least * knobs.min_power;
        Proposal {
            caps: (0..gpus.len())
                .map(|at| cap(at, target.powers[at]))
                .collect(),
            worthwhile: worth && (0..gpus.len()).any(clear),
        }
    }
}
