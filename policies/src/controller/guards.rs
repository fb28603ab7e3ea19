//! Limits on any law: it must not go on where power does not follow caps, or spend power that buys no speed.

use litd_units::Watts;

use super::Controller;
use crate::decision::{Decision, Why};
use crate::plan::Policy;
use crate::sample::{GpuReading, Mean};

/// Caps that have moved by less than this part, in all, prove nothing.
const MOVED: f64 = 0.008;
/// Power that caps explain leaves less than this part of what they moved by, in mean squares.
const UNEXPLAINED: f64 = 0.25;
/// By this part a cap's power may creep for other reasons.
const CREEP: f64 = 0.003;
/// The factor by which an effect has to exceed noise.
const CERTAIN: f64 = 4.0;
/// Power above its cap by more than this part is held by something else, or not yet.
const ABOVE: f64 = 0.03;
/// In so many windows in a row power must not follow.
const WINDOWS: u32 = 2;

/// Energy times time may be more than in warm-up by this part.
const COSTLIER: f64 = 0.002;
/// After so many samples it is judged.
const FEWEST: u32 = 9;

impl Controller {
    /// A GPU that its power limit holds all the time draws what its cap allows, so its power moves
    /// as its cap did. Where it does not, caps act on another GPU, the wrong way round, or on
    /// nothing, and no law can steer by them: back to the caps of warm-up.
    pub(super) fn disobeyed(&mut self, mean: &Mean, gpus: &[GpuReading]) -> Option<Decision> {
        let why = self.unexplained(mean, gpus);
        self.disobeyed = why.as_ref().map_or(0, |_| self.disobeyed + 1);
        let why = why?;
        if self.disobeyed < WINDOWS {
            return Some(self.hold(Why::Holding));
        }
        self.disobeyed = 0;
        Some(self.back_to_warm_up(gpus, why))
    }

    /// The GPU whose power has moved most against its cap, where caps don't explain power.
    fn unexplained(&self, mean: &Mean, gpus: &[GpuReading]) -> Option<Why> {
        let before = self.baseline.as_ref()?;
        let home = self.home.to_watts();
        let (mut squares, mut moved, mut count) = (0.0, 0.0, 0.0);
        let mut worst: Option<(f64, usize, f64, f64)> = None;
        for (gpu, (reading, &home)) in gpus.iter().zip(&home).enumerate() {
            let drawn = |mean: &Mean| mean.drawn.get(gpu).copied().flatten();
            let (Some(then), Some(now)) = (drawn(before), drawn(mean)) else {
                continue;
            };
            // A power above its cap then may have come down to it since.
            if then > home * (1.0 + ABOVE) {
                continue;
            }
            let (cap, power) = ((reading.cap / home).ln(), (now / then).ln());
            if !(cap.is_finite() && power.is_finite()) {
                continue;
            }
            let apart = (power - cap).abs();
            squares += apart * apart;
            moved += cap * cap;
            count += 1.0;
            if worst.is_none_or(|worst| apart > worst.0) {
                worst = Some((apart, gpu, cap, power));
            }
        }
        let samples = f64::from(mean.samples.max(1)).recip() + f64::from(before.samples).recip();
        let chance = CERTAIN * count * before.drawn_noise.powi(2) * samples;
        let chance = chance + count * CREEP * CREEP;
        let enough = moved > MOVED * MOVED && squares > UNEXPLAINED * moved + chance;
        let (_, gpu, cap, power) = worst.filter(|_| enough)?;
        Some(Why::Disobeyed { gpu, cap, power })
    }

    /// The bound on the sum of the GPUs' caps: without the CPUs' watts once those have bought too little.
    pub(super) fn gpu_budget(&self) -> Watts {
        let budget = self.plan.gpu_budget();
        match self.frugal {
            true => budget.min(self.start_sum()),
            false => budget,
        }
    }

    /// The CPUs' limits that go with it.
    pub(super) fn cpu_targets(&self) -> Vec<Watts> {
        match self.frugal {
            true => self
                .plan
                .start()
                .to_watts()
                .split_off(self.plan.tdp().len()),
            false => self.plan.cpu_targets().to_vec(),
        }
    }

    fn start_sum(&self) -> Watts {
        let start = self.plan.start().to_watts();
        start.into_iter().take(self.plan.tdp().len()).sum()
    }

    /// cpu-slosh gives the GPUs more power for more speed. Where energy times time has become
    /// more than in warm-up the speed was not worth it: all have the caps of warm-up back, and the
    /// law goes on with what they add up to. Prices, where there are any, say
    /// better what speed is worth.
    pub(super) fn give_back(&mut self, mean: &Mean, gpus: &[GpuReading]) -> Option<Decision> {
        let judged = self.since.count();
        let asked = self.plan.policy() == Policy::CpuSlosh && self.config.model.prices.is_none();
        if !asked || self.frugal || judged < FEWEST || judged > self.judged_for() {
            return None;
        }
        let (before, now) = (self.baseline.as_ref()?, self.since.mean()?);
        let held: Vec<Watts> = gpus.iter().map(|gpu| gpu.cap).collect();
        let power = |mean: &Mean, caps: &[Watts]| -> Watts {
            let drawn = mean.power.iter().zip(caps);
            drawn.map(|(power, &cap)| power.unwrap_or(cap)).sum()
        };
        let longer = (now.iteration_time / before.iteration_time).ln();
        let more = (power(mean, &held) / power(before, &self.home.to_watts())).ln();
        let costlier = more + 2.0 * longer;
        if !(costlier > COSTLIER) || self.sum_is_home(&held) {
            return None;
        }
        self.frugal = true;
        let home = self.home.clone();
        let caps = self.take_back(&home, gpus);
        if let Some(model) = &mut self.model {
            model.moved();
        }
        let decision = self.adjust_to(caps, Why::CostsEnergy { costlier });
        // With less power iterations are longer than in the windows before: that is no harm. What
        // they are judged by is warm-up.
        self.history.clear();
        self.trail.clear();
        Some(decision)
    }

    fn sum_is_home(&self, held: &[Watts]) -> bool {
        held.iter().copied().sum::<Watts>() <= self.start_sum()
    }
}
