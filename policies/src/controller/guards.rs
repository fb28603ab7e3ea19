//! Limits on any law: it must not go on where power does not follow caps, or spend power that buys no speed.

use litd_units::Watts;

use super::basis::Basis;
use super::steered::{ByLaw, Steered};
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

impl Steered {
    /// A GPU that its power limit holds all the time draws what its cap allows, so its power moves
    /// as its cap did. Where it does not, caps act on another GPU, the wrong way round, or on
    /// nothing, and no law can steer by them: back to the caps of warm-up.
    pub(super) fn disobeyed(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        gpus: &[GpuReading],
    ) -> Option<Decision> {
        let why = self.unexplained(mean, gpus);
        self.disobeyed = why.as_ref().map_or(0, |_| self.disobeyed + 1);
        let why = why?;
        if self.disobeyed < WINDOWS {
            return Some(self.hold(Why::Holding));
        }
        Some(self.back_to_warm_up(basis, gpus, why))
    }

    /// The GPU whose power has moved most against its cap, where caps don't explain power.
    fn unexplained(&self, mean: &Mean, gpus: &[GpuReading]) -> Option<Why> {
        let before = &self.baseline;
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
    pub(super) fn gpu_budget(&self, basis: &Basis) -> Watts {
        let budget = basis.plan().gpu_budget();
        match self.is_frugal {
            true => budget.min(start_sum(basis)),
            false => budget,
        }
    }

    /// The CPUs' limits that go with it.
    pub(super) fn cpu_targets(&self, basis: &Basis) -> Vec<Watts> {
        let plan = basis.plan();
        match self.is_frugal {
            true => plan.start().to_watts().split_off(plan.tdp().len()),
            false => plan.cpu_targets().to_vec(),
        }
    }

    /// cpu-slosh gives the GPUs more power for more speed. Where energy times time has become
    /// more than in warm-up the speed was not worth it: all have the caps of warm-up back, and the
    /// law goes on with what they add up to. Prices say better what speed is worth, but
    /// only to a law that reads them.
    pub(super) fn give_back(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        gpus: &[GpuReading],
    ) -> Option<Decision> {
        let judged = basis.since().count();
        let is_priced = self.law.reads_prices() && basis.config().model.prices.is_some();
        let asked = basis.plan().policy() == Policy::CpuSlosh && !is_priced;
        if !asked || self.is_frugal || judged < FEWEST || judged > basis.judged_for() {
            return None;
        }
        let (before, now) = (&self.baseline, basis.since().mean()?);
        let held: Vec<Watts> = gpus.iter().map(|gpu| gpu.cap).collect();
        let power = |mean: &Mean, caps: &[Watts]| -> Watts {
            let drawn = mean.power.iter().zip(caps);
            drawn.map(|(power, &cap)| power.unwrap_or(cap)).sum()
        };
        let longer = (now.iteration_time / before.iteration_time).ln();
        let more = (power(mean, &held) / power(before, &self.home.to_watts())).ln();
        let costlier = more + 2.0 * longer;
        let is_home = held.iter().copied().sum::<Watts>() <= start_sum(basis);
        if !(costlier > COSTLIER) || is_home {
            return None;
        }
        self.is_frugal = true;
        let caps = basis.take_back(&self.home, gpus);
        if let ByLaw::Model(model) = &mut self.law {
            model.moved();
        }
        let decision = self.adjust_to(basis, caps, Why::CostsEnergy { costlier });
        // With less power iterations are longer than in the windows before: that is no harm. What
        // they are judged by is warm-up.
        self.forget_windows();
        Some(decision)
    }
}

fn start_sum(basis: &Basis) -> Watts {
    let start = basis.plan().start().to_watts();
    start.into_iter().take(basis.plan().tdp().len()).sum()
}
