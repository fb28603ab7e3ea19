//! The paper's law: adjustments until first and last are level, or no longer come nearer.

use litd_units::{Millis, Watts};

use super::basis::Basis;
use super::steered::{ByLaw, Doing, Level, Steered, moves_any, power_helps};
use crate::decision::{Decision, Why, adjusted};
use crate::diagnosis::Diagnosis;
use crate::law::{adj_power_node, inc_power_gpu};
use crate::plan::Policy;
use crate::sample::{GpuReading, Mean};

/// Strides below this are not worth a window.
const SHORTEST_STRIDE: f64 = 0.2;

/// What the paper's law remembers.
#[derive(Debug, Clone)]
pub(super) struct ByPaper {
    /// Algorithm 2's `global_max`.
    global_max: Millis,
    /// The smallest distance between first and last so far, and the windows since.
    best: (Millis, u32),
    /// The share of the maximum adjustment that is used; it halves when a step went too far.
    stride: f64,
}

impl ByPaper {
    /// After a warm-up with this mean.
    pub fn new(mean: &Mean) -> Self {
        Self {
            global_max: mean.leads.largest(),
            best: (mean.leads.spread(), 0),
            stride: 1.0,
        }
    }

    /// After a drift, from how it is now.
    pub fn starts_over(&mut self, mean: &Mean) {
        self.best = (mean.leads.spread(), 0);
        self.stride = 1.0;
    }

    /// Whether first and last have come no nearer for this many windows, this one included.
    fn is_stuck(&mut self, spread: Millis, patience: u32) -> bool {
        if spread < self.best.0 {
            self.best = (spread, 0);
        } else {
            self.best.1 += 1;
        }
        self.best.1 >= patience
    }
}

impl Steered {
    fn paper(&mut self) -> Option<&mut ByPaper> {
        match &mut self.law {
            ByLaw::Paper(law) => Some(law),
            ByLaw::Model(_) => None,
        }
    }

    /// A window's end; the guards that all laws share have been asked.
    pub(super) fn window_by_paper(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        diagnosis: Diagnosis,
        gpus: &[GpuReading],
    ) -> Decision {
        if let Some(back) = self.step_back(basis, mean, gpus) {
            return back;
        }
        match self.doing {
            Doing::Adjusting => self.level_further(basis, mean, diagnosis, gpus),
            Doing::Converged(level) | Doing::Drift(level) => {
                self.watch(basis, mean, diagnosis, gpus, level)
            }
        }
    }

    /// Adjusting: stop, or adjust once more.
    fn level_further(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        diagnosis: Diagnosis,
        gpus: &[GpuReading],
    ) -> Decision {
        let spread = mean.leads.spread();
        let remainder = spread / self.baseline.leads.spread();
        if spread < self.close(basis) {
            return self.converge(basis, mean, false, Why::Levelled { remainder });
        }
        // A pace says little about a nearly level node, so only what sensors say stops the way.
        let sensed = matches!(
            diagnosis,
            Diagnosis::HeatLimited { .. }
                | Diagnosis::NotPowerLimited { .. }
                | Diagnosis::UnknownLimit { .. }
        );
        if sensed && !power_helps(basis, &diagnosis) {
            return self.converge(basis, mean, true, Why::Seen(diagnosis));
        }
        let patience = basis.config().guard.patience;
        if self
            .paper()
            .is_some_and(|law| law.is_stuck(spread, patience))
        {
            return self.converge(basis, mean, false, Why::LevelledOff { remainder });
        }
        self.adjust(basis, mean, gpus)
    }

    /// Takes gpu-red's last adjustment back if it has begun to cost speed, and goes on with half
    /// the stride. The longer caps are held the more samples judge them, for a while: what comes
    /// long after is not the law's doing.
    fn step_back(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        gpus: &[GpuReading],
    ) -> Option<Decision> {
        let judged = basis.since().count();
        if basis.plan().policy() != Policy::GpuRed || judged > basis.judged_for() {
            return None;
        }
        let slowdown = self.slowdown(basis, 2.0)?;
        if slowdown <= basis.config().guard.gpu_red_slowdown {
            return None;
        }
        // At the caps before the last adjustment the GPUs are further apart than now: that is not drift.
        let spread = self.baseline.leads.spread().max(self.close(basis));
        let caps = basis.go_back(&self.trail.pop()?, gpus);
        let why = Why::CostsSpeed { slowdown };
        let law = self.paper()?;
        law.stride /= 2.0;
        let goes_on = law.stride >= SHORTEST_STRIDE;
        let decision = if matches!(self.doing, Doing::Adjusting) && goes_on {
            self.hold(why)
        } else {
            let decision = self.converge(basis, mean, false, why);
            let blocked = false;
            self.doing = Doing::Converged(Level { spread, blocked });
            decision
        };
        Some(Decision {
            apply: Some(caps),
            ..decision
        })
    }

    /// Converged or drifting: go on holding, or start over. It takes two windows in a row.
    fn watch(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        diagnosis: Diagnosis,
        gpus: &[GpuReading],
        level: Level,
    ) -> Decision {
        let growth = mean.leads.spread() / level.spread;
        let grown = level.blocked || growth > basis.config().guard.drift_factor;
        if !(grown && power_helps(basis, &diagnosis)) {
            return self.holds_on(match level.blocked {
                true => Why::Seen(diagnosis),
                false => Why::Holding,
            });
        }
        if matches!(self.doing, Doing::Drift(_)) {
            self.start_over(basis, mean);
            return self.adjust(basis, mean, gpus);
        }
        self.drifts(Why::Drifted { growth })
    }

    /// An adjustment of the law, inside the envelope.
    pub(super) fn adjust(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        gpus: &[GpuReading],
    ) -> Decision {
        let mitigation = &basis.config().mitigation;
        let gpu_caps: Vec<Watts> = gpus.iter().map(|gpu| gpu.cap).collect();
        let Some(law) = self.paper() else {
            return self.hold(Why::Holding);
        };
        let (increase, global_max) = inc_power_gpu(
            &mean.leads,
            mitigation.max_adjustment * law.stride,
            mitigation.scale,
            law.global_max,
        );
        law.global_max = global_max;
        let budget = self.gpu_budget(basis);
        let wanted = adj_power_node(&increase, &gpu_caps, basis.plan().tdp(), budget);
        let wanted: Vec<Watts> = wanted.into_iter().chain(self.cpu_targets(basis)).collect();
        let caps = basis.project(&wanted, gpus, mitigation.rise());
        if !moves_any(&caps, gpus) {
            return self.converge(basis, mean, false, Why::NothingMoves);
        }
        let why = adjusted(mean, &gpu_caps, &caps);
        self.adjust_to(basis, caps, why)
    }
}
