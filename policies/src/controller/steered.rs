//! The loop after warm-up: it compares the node with what it was, adjusts by its law, holds what it has reached, and
//! takes back what did harm.

use std::collections::VecDeque;

use litd_units::{Millis, Watts};

use super::anew::Hint;
use super::basis::Basis;
use super::by_model::ByModel;
use super::by_paper::ByPaper;
use crate::config::Law;
use crate::decision::{Decision, State, Why};
use crate::diagnosis::{Diagnosis, close};
use crate::envelope::CapVector;
use crate::model::ModelLaw;
use crate::plan::Policy;
use crate::sample::{GpuReading, Mean};

/// How many adjustments can be taken back one by one.
const TRAIL: usize = 64;

/// A finished window.
#[derive(Debug, Clone)]
struct Window {
    iteration_time: Millis,
    /// The caps that were held during it.
    caps: CapVector,
    /// Whether caps were changed at its end.
    adjusted: bool,
}

/// The state of the node when it converged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// How far first and last were apart, or would have to be to count.
    pub spread: Millis,
    /// Whether it converged because nothing could be done, rather than because it was level.
    pub blocked: bool,
}

/// What the loop is doing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Doing {
    Adjusting,
    /// It holds its caps.
    Converged(Level),
    /// It holds its caps, and the node was no longer as level in the last window.
    Drift(Level),
}

/// The law by which it adjusts, with what that remembers.
#[derive(Debug, Clone)]
pub(super) enum ByLaw {
    Paper(ByPaper),
    Model(Box<ByModel>),
}

impl ByLaw {
    /// Whether the law weighs speed against energy by prices, where there are any. The paper's
    /// law, also in place of a model that could not be made, does not.
    pub fn reads_prices(&self) -> bool {
        matches!(self, Self::Model(_))
    }
}

/// A loop after warm-up.
#[derive(Debug, Clone)]
pub(super) struct Steered {
    pub(super) doing: Doing,
    /// The reference of comparisons: the warm-up, or the drift that brought the loop back.
    pub(super) baseline: Mean,
    /// The caps that were held then.
    pub(super) home: CapVector,
    /// The caps of warm-up itself, whatever drifts came later.
    origin: CapVector,
    /// The windows that a rollback may have to look back on; the oldest first.
    history: VecDeque<Window>,
    /// The caps before each of the last adjustments; the newest last.
    pub(super) trail: Vec<CapVector>,
    pub(super) law: ByLaw,
    /// Windows in a row in which power did not follow caps.
    pub(super) disobeyed: u32,
    /// Whether cpu-slosh leaves the CPUs their watts, because they bought too little.
    pub(super) is_frugal: bool,
}

impl Steered {
    /// After a warm-up with this mean, under the caps of `home`.
    pub fn new(mean: Mean, home: CapVector, basis: &Basis, gpus: &[GpuReading]) -> Self {
        let model = match basis.config().law {
            Law::Paper => None,
            Law::Model => ModelLaw::new(&mean, gpus),
        };
        let law = match model {
            Some(model) => ByLaw::Model(Box::new(ByModel::new(model))),
            None => ByLaw::Paper(ByPaper::new(&mean)),
        };
        let mut steered = Self {
            doing: Doing::Adjusting,
            origin: home.clone(),
            home,
            history: VecDeque::new(),
            trail: Vec::new(),
            law,
            disobeyed: 0,
            is_frugal: false,
            baseline: mean.clone(),
        };
        steered.record(basis, &mean);
        steered
    }

    pub fn state(&self) -> State {
        match self.doing {
            Doing::Adjusting => State::Adjusting,
            Doing::Converged(_) => State::Converged,
            Doing::Drift(_) => State::Drift,
        }
    }

    pub fn baseline(&self) -> &Mean {
        &self.baseline
    }

    /// Whether no GPU waits for another by more than matters, as far as that was reached.
    pub fn is_level(&self) -> bool {
        matches!(self.doing, Doing::Converged(level) if !level.blocked)
    }

    /// How close first and last must be: what warm-up showed to be noise or to matter little.
    pub fn close(&self, basis: &Basis) -> Millis {
        let guard = &basis.config().guard;
        close(&self.baseline, guard).max(self.baseline.leads.spread() * guard.level_remainder)
    }

    /// The first decision, at the end of warm-up.
    pub fn begins(
        &mut self,
        basis: &mut Basis,
        hint: Option<Hint>,
        diagnosis: Diagnosis,
        gpus: &[GpuReading],
    ) -> Decision {
        let mean = self.baseline.clone();
        let helps = power_helps(basis, &diagnosis);
        if helps && let Some(recalled) = self.recall(basis, hint, gpus) {
            return recalled;
        }
        match self.law {
            ByLaw::Model(_) => self.first_by_model(basis, &mean, diagnosis, gpus),
            ByLaw::Paper(_) if helps => self.adjust(basis, &mean, gpus),
            ByLaw::Paper(_) => {
                let blocked = !matches!(diagnosis, Diagnosis::Level { .. });
                self.converge(basis, &mean, blocked, Why::Seen(diagnosis))
            }
        }
    }

    /// The way to a distribution learned earlier, as the first adjustment; `None` where there is
    /// no such distribution, or the way is shorter than driver units.
    fn recall(
        &mut self,
        basis: &mut Basis,
        hint: Option<Hint>,
        gpus: &[GpuReading],
    ) -> Option<Decision> {
        let Hint { caps, fraction } = hint?;
        let towards = |(gpu, &hint): (&GpuReading, &Watts)| gpu.cap + (hint - gpu.cap) * fraction;
        let wanted = gpus.iter().zip(&caps).map(towards);
        let cpus = basis.plan().cpu_targets().iter().copied();
        let wanted: Vec<Watts> = wanted.chain(cpus).collect();
        let caps = basis.project(&wanted, gpus, Watts(f64::INFINITY));
        moves_any(&caps, gpus).then(|| self.adjust_to(basis, caps, Why::Recalled { fraction }))
    }

    /// A window has ended.
    pub fn ends_window(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        diagnosis: Diagnosis,
        gpus: &[GpuReading],
    ) -> Decision {
        self.record(basis, mean);
        if let Some(back) = self.disobeyed(basis, mean, gpus) {
            return back;
        }
        if let Some(rollback) = self.judge_last_adjustments(basis, gpus) {
            return rollback;
        }
        if let Some(back) = self.give_back(basis, mean, gpus) {
            return back;
        }
        match self.law {
            ByLaw::Model(_) => self.window_by_model(basis, mean, diagnosis, gpus),
            ByLaw::Paper(_) => self.window_by_paper(basis, mean, diagnosis, gpus),
        }
    }

    pub(super) fn hold(&self, why: Why) -> Decision {
        Decision {
            state: self.state(),
            apply: None,
            why,
        }
    }

    pub(super) fn converge(
        &mut self,
        basis: &Basis,
        mean: &Mean,
        blocked: bool,
        why: Why,
    ) -> Decision {
        self.doing = Doing::Converged(Level {
            spread: mean.leads.spread().max(self.close(basis)),
            blocked,
        });
        self.hold(why)
    }

    /// It holds its caps, and sees a drift.
    pub(super) fn drifts(&mut self, why: Why) -> Decision {
        if let Doing::Converged(level) | Doing::Drift(level) = self.doing {
            self.doing = Doing::Drift(level);
        }
        self.hold(why)
    }

    /// It holds its caps, and sees no drift, or none any more.
    pub(super) fn holds_on(&mut self, why: Why) -> Decision {
        if let Doing::Converged(level) | Doing::Drift(level) = self.doing {
            self.doing = Doing::Converged(level);
        }
        self.hold(why)
    }

    /// After a drift the node is another one: it is compared with itself as it is now, at the
    /// caps it has now. What warm-up learned of its noise stays.
    pub(super) fn start_over(&mut self, basis: &Basis, mean: &Mean) {
        let mut baseline = mean.clone();
        baseline.noise = self.baseline.noise;
        baseline.time_noise = self.baseline.time_noise;
        self.baseline = baseline;
        self.home = basis.caps().clone();
        if let ByLaw::Paper(law) = &mut self.law {
            law.starts_over(mean);
        }
        self.forget_windows();
        self.record(basis, mean);
    }

    /// Neither windows nor adjustments so far can be taken back any more.
    pub(super) fn forget_windows(&mut self) {
        self.history.clear();
        self.trail.clear();
    }

    /// Counts an adjustment and remembers what it takes to judge it and to take it back.
    pub(super) fn adjust_to(&mut self, basis: &mut Basis, caps: CapVector, why: Why) -> Decision {
        self.doing = Doing::Adjusting;
        if let Some(window) = self.history.back_mut() {
            window.adjusted = true;
        }
        if self.trail.len() == TRAIL {
            self.trail.remove(0);
        }
        self.trail.push(basis.caps().clone());
        basis.adjust_to(&caps);
        Decision {
            state: self.state(),
            apply: Some(caps),
            why,
        }
    }

    fn record(&mut self, basis: &Basis, mean: &Mean) {
        self.history.push_back(Window {
            iteration_time: mean.iteration_time,
            caps: basis.caps().clone(),
            adjusted: false,
        });
        let keep = basis.config().guard.rollback_windows as usize + 1;
        while self.history.len() > keep {
            self.history.pop_front();
        }
    }

    /// Rolls back when the iteration has become slower over the windows since an adjustment,
    /// against the window before it, or against the baseline (many small losses add up).
    fn judge_last_adjustments(
        &mut self,
        basis: &mut Basis,
        gpus: &[GpuReading],
    ) -> Option<Decision> {
        let guard = &basis.config().guard;
        let windows = guard.rollback_windows as usize;
        let mut before_last = self.history.iter().rev().skip(1);
        if self.history.len() <= windows || !before_last.any(|window| window.adjusted) {
            return None;
        }
        let oldest = self.history.front()?;
        let later = self.history.iter().skip(1);
        let after = later.map(|window| window.iteration_time).sum::<Millis>() / windows as f64;
        let worse = |before: Millis| after > before * (1.0 + guard.rollback_slowdown);
        let (before, caps) = if oldest.adjusted && worse(oldest.iteration_time) {
            (oldest.iteration_time, oldest.caps.clone())
        } else {
            let before = Some(self.baseline.iteration_time).filter(|&before| worse(before))?;
            (before, self.home.clone())
        };
        let why = Why::RolledBack { before, after };
        Some(self.back_to(basis, &caps, gpus, why))
    }

    /// Caps do not what they should, so those after a drift are no better founded than any: back to
    /// the caps of warm-up, and paused.
    pub(super) fn back_to_warm_up(
        &mut self,
        basis: &mut Basis,
        gpus: &[GpuReading],
        why: Why,
    ) -> Decision {
        let origin = self.origin.clone();
        self.back_to(basis, &origin, gpus, why)
    }

    /// Back to these caps at once, however far, and paused; but no hot GPU's cap rises, not even
    /// back. This is the last decision of the loop until it measures anew.
    pub(super) fn back_to(
        &mut self,
        basis: &mut Basis,
        caps: &CapVector,
        gpus: &[GpuReading],
        why: Why,
    ) -> Decision {
        let caps = basis.go_back(caps, gpus);
        Decision {
            state: State::Rollback,
            apply: Some(caps),
            why,
        }
    }

    /// By which part an iteration has become longer than in warm-up, less what may be chance: so
    /// many standard errors of the difference of two means (of medians, a quarter more).
    pub(super) fn slowdown(&self, basis: &Basis, errors: f64) -> Option<f64> {
        let (before, now) = (&self.baseline, basis.since().mean()?);
        let judged = f64::from(basis.since().count());
        let warm_up = f64::from(basis.config().calibration.warm_up.max(1));
        let samples = 1.0 / judged + 1.0 / warm_up;
        let chance = errors * (before.time_noise / before.iteration_time) * samples.sqrt();
        Some(now.iteration_time / before.iteration_time - 1.0 - chance)
    }
}

/// Whether these caps are others than any GPU holds: the way to them may be shorter than driver units.
pub(super) fn moves_any(caps: &CapVector, gpus: &[GpuReading]) -> bool {
    let mut all = gpus.iter().enumerate();
    all.any(|(at, gpu)| caps.watts(at) != Some(gpu.cap))
}

/// gpu-red moves no watts to the straggler: that its own cap does not bind it, or may not
/// rise, is no reason to let the others burn more than they need. A straggler that throttles
/// is one: its speed follows its cooling, and the others would have to follow that.
pub(super) fn power_helps(basis: &Basis, diagnosis: &Diagnosis) -> bool {
    let enough_to_wait = matches!(
        diagnosis,
        Diagnosis::NotPowerLimited { .. }
            | Diagnosis::UnknownLimit { .. }
            | Diagnosis::HeatLimited {
                throttled: false,
                ..
            }
    );
    diagnosis.power_helps() || (basis.plan().policy() == Policy::GpuRed && enough_to_wait)
}
