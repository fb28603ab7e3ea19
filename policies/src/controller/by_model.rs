//! The loop under the model law: the same states, windows and guards, with other adjustments.

use litd_diagnosis::Limits;
use litd_units::Watts;

use super::basis::Basis;
use super::steered::{ByLaw, Doing, Steered, moves_any, power_helps};
use crate::decision::{Decision, Why, adjusted};
use crate::diagnosis::{Diagnosis, may_rise};
use crate::model::{Bounds, Lesson, ModelLaw, Proposal};
use crate::sample::{GpuReading, Mean};

/// An iteration that became longer by this part more than it may is no matter of margins: power
/// does not do what it should.
const HARM: f64 = 0.004;

/// A longer iteration counts once it is by so many standard errors, over so many samples: it is
/// judged again and again.
const CERTAIN: f64 = 3.8;
const FEWEST: u32 = 9;

/// With the last of so many retreats, each of which gives leaders a larger margin, the law holds the caps. Where one
/// more would be due, it restores all caps and pauses.
const RETREATS_TO_HOLD: u32 = 3;

/// What the model law remembers.
#[derive(Debug, Clone)]
pub(super) struct ByModel {
    model: ModelLaw,
    /// How often the law has gone back for a larger margin since warm-up.
    retreats: u32,
}

impl ByModel {
    pub fn new(model: ModelLaw) -> Self {
        Self { model, retreats: 0 }
    }

    /// Caps have moved.
    pub fn moved(&mut self) {
        self.model.moved();
    }
}

/// What a window says to the model law.
enum Next {
    /// Nothing to decide by yet.
    Holds,
    /// The node does not do what the model says.
    Drifts,
    /// Kernels don't follow power, by this slope.
    Contradicted(f64),
    /// The model can propose caps.
    Proposes,
}

impl Steered {
    fn model(&self) -> Option<&ByModel> {
        match &self.law {
            ByLaw::Model(law) => Some(law),
            ByLaw::Paper(_) => None,
        }
    }

    fn model_mut(&mut self) -> Option<&mut ByModel> {
        match &mut self.law {
            ByLaw::Model(law) => Some(law),
            ByLaw::Paper(_) => None,
        }
    }

    /// The end of warm-up: adjust if that is worth it.
    pub(super) fn first_by_model(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        diagnosis: Diagnosis,
        gpus: &[GpuReading],
    ) -> Decision {
        if !may_move(basis, &diagnosis) {
            return self.converge(basis, mean, true, Why::Seen(diagnosis));
        }
        match self.worthwhile(basis, mean, gpus) {
            Some(proposal) => self.adjust_by_model(basis, mean, &proposal, gpus),
            None => self.converge(basis, mean, false, Why::Seen(diagnosis)),
        }
    }

    /// A window's end; the guards that all laws share have been asked.
    pub(super) fn window_by_model(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        diagnosis: Diagnosis,
        gpus: &[GpuReading],
    ) -> Decision {
        if let Some(retreat) = self.retreat(basis, mean, gpus) {
            return retreat;
        }
        match self.learns(basis, mean, gpus) {
            Next::Holds => return self.hold(Why::Holding),
            Next::Drifts => return self.drifts(Why::Surprised),
            // Back to the caps of warm-up.
            Next::Contradicted(slope) => {
                return self.back_to_warm_up(basis, gpus, Why::Contradicted { slope });
            }
            Next::Proposes => {}
        }
        let blocked = !may_move(basis, &diagnosis);
        let wanted = self.worthwhile(basis, mean, gpus).filter(|_| !blocked);
        match (self.doing, wanted) {
            (Doing::Adjusting, Some(wanted)) => self.adjust_by_model(basis, mean, &wanted, gpus),
            (Doing::Adjusting, None) if blocked => {
                self.converge(basis, mean, true, Why::Seen(diagnosis))
            }
            (Doing::Adjusting, None) => {
                let why = match mean.leads.spread() / self.baseline.leads.spread() {
                    remainder if remainder < 1.0 => Why::Levelled { remainder },
                    // The node was level before, and all GPUs got the same.
                    _ => Why::Seen(diagnosis),
                };
                self.converge(basis, mean, false, why)
            }
            (Doing::Drift(_), Some(wanted)) => {
                let is_old = basis.since().count() > basis.judged_for();
                if let Some(law) = self.model_mut().filter(|_| is_old) {
                    law.retreats = 0;
                }
                self.start_over(basis, mean);
                self.adjust_by_model(basis, mean, &wanted, gpus)
            }
            (Doing::Converged(_), Some(_)) => self.drifts(Why::Surprised),
            (Doing::Converged(_) | Doing::Drift(_), None) => self.holds_on(Why::Holding),
        }
    }

    /// The model learns from a window.
    fn learns(&mut self, basis: &Basis, mean: &Mean, gpus: &[GpuReading]) -> Next {
        let is_adjusting = matches!(self.doing, Doing::Adjusting);
        let Some(ByModel { model, .. }) = self.model_mut() else {
            return Next::Holds;
        };
        match model.learn(mean, gpus) {
            Lesson::Settling | Lesson::Nothing => return Next::Holds,
            Lesson::Surprised if !is_adjusting => return Next::Drifts,
            Lesson::Surprised | Lesson::Expected => {}
        }
        match model.contradicted() {
            Some(slope) => Next::Contradicted(slope),
            None if model.is_ready(gpus, &basis.config().model) => Next::Proposes,
            None => Next::Holds,
        }
    }

    /// The model's proposal, within the bounds of each GPU after one adjustment, if it is worth an adjustment.
    fn worthwhile(&self, basis: &Basis, mean: &Mean, gpus: &[GpuReading]) -> Option<Proposal> {
        let (model, knobs) = (&self.model()?.model, &basis.config().model);
        let (envelope, guard) = (basis.plan().envelope(), &basis.config().guard);
        let range = |(at, gpu): (usize, &GpuReading)| {
            let (floor, ceiling) = envelope.range(at)?;
            let may = may_rise(gpu, guard);
            let rise = if may { rise(basis) } else { Watts::ZERO };
            let most = ceiling.min(gpu.cap + rise);
            // A cap that could not be raised again, because heat is unknown, is not lowered.
            let fall = match (gpu.temperature, gpu.slowdown) {
                (None, Some(_)) => Watts::ZERO,
                _ => knobs.max_adjustment,
            };
            Some((floor.max(gpu.cap - fall).min(most), most))
        };
        let range: Option<Vec<_>> = gpus.iter().enumerate().map(range).collect();
        let bounds = Bounds {
            range: range?,
            budget: self.gpu_budget(basis),
            ahead: ahead(mean),
            waits: litd_diagnosis::waiting_for_hosts(&mean.marks, &Limits::OF_TRACES),
        };
        let held = !matches!(self.doing, Doing::Adjusting);
        let proposal = model.propose(gpus, &bounds, knobs, held);
        Some(proposal).filter(|proposal| proposal.worthwhile)
    }

    fn adjust_by_model(
        &mut self,
        basis: &mut Basis,
        mean: &Mean,
        proposal: &Proposal,
        gpus: &[GpuReading],
    ) -> Decision {
        let held: Vec<Watts> = gpus.iter().map(|gpu| gpu.cap).collect();
        let cpus = self.cpu_targets(basis);
        let wanted: Vec<Watts> = proposal.caps.iter().copied().chain(cpus).collect();
        let caps = basis.project(&wanted, gpus, rise(basis));
        // A request is not repeated where a driver holds another cap.
        if !moves_any(&caps, gpus) || caps == *basis.caps() {
            return self.converge(basis, mean, false, Why::NothingMoves);
        }
        if let Some(law) = self.model_mut() {
            law.moved();
        }
        let why = adjusted(mean, &held, &caps);
        self.adjust_to(basis, caps, why)
    }

    /// An iteration that has become longer than it may since caps changed: back by one
    /// adjustment, with a larger margin; or all the way, where power does harm.
    fn retreat(&mut self, basis: &mut Basis, mean: &Mean, gpus: &[GpuReading]) -> Option<Decision> {
        let judged = basis.since().count();
        if self.trail.is_empty() || judged > basis.judged_for() {
            return None;
        }
        let slowdown = self.slowdown(basis, CERTAIN)?;
        let limit = basis.config().guard.gpu_red_slowdown;
        if slowdown <= limit || judged < FEWEST {
            return None;
        }
        let retreats = self.model()?.retreats;
        if slowdown > limit + HARM || retreats >= RETREATS_TO_HOLD {
            let before = self.baseline.iteration_time;
            let after = basis.since().mean()?.iteration_time;
            let home = self.home.clone();
            return Some(self.back_to(basis, &home, gpus, Why::RolledBack { before, after }));
        }
        let caps = basis.go_back(&self.trail.pop()?, gpus);
        let law = self.model_mut()?;
        law.retreats += 1;
        law.model.be_careful();
        law.moved();
        let goes_on = law.retreats < RETREATS_TO_HOLD;
        let why = Why::CostsSpeed { slowdown };
        let decision = match self.doing {
            Doing::Adjusting if goes_on => self.hold(why),
            _ => self.converge(basis, mean, false, why),
        };
        Some(Decision {
            apply: Some(caps),
            ..decision
        })
    }
}

/// Whether power could help. A level node is not excluded: leads are noisier than durations.
fn may_move(basis: &Basis, diagnosis: &Diagnosis) -> bool {
    matches!(diagnosis, Diagnosis::Level { .. }) || power_helps(basis, diagnosis)
}

/// The most that a cap may rise in one adjustment.
fn rise(basis: &Basis) -> Watts {
    let config = basis.config();
    let configured = config.mitigation.max_rise;
    configured.unwrap_or(config.model.max_adjustment)
}

/// How far ahead each GPU is, from 0 for the straggler to 1 for the first.
fn ahead(mean: &Mean) -> Vec<f64> {
    let (last, spread) = (mean.leads.smallest(), mean.leads.spread());
    let leads = mean.leads.values().iter();
    leads
        .map(|&lead| ((lead - last) / spread).min(1.0))
        .collect()
}
