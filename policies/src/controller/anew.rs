//! Starting over: after a rollback, a device reset, or with another plan, and from what was
//! learned earlier.

use litd_units::Watts;

use super::basis::Basis;
use super::{Controller, Phase};
use crate::decision::{Decision, Why};
use crate::diagnosis::may_rise;
use crate::envelope::CapVector;
use crate::plan::{Plan, Policy};
use crate::sample::{GpuReading, Samples};

/// A distribution of caps that was learned earlier.
#[derive(Debug, Clone)]
pub(super) struct Hint {
    pub(super) caps: Vec<Watts>,
    pub(super) fraction: f64,
}

impl Controller {
    /// Ends the pause after a rollback: the node is measured anew, from the caps it holds. Returns whether it paused.
    pub fn resume(&mut self) -> bool {
        let paused = matches!(self.phase, Phase::Rollback { .. });
        if paused {
            self.restart();
        }
        paused
    }

    /// Measures the node anew, in warm-up, by the same plan: its devices were reset, say. The
    /// caps asked for last ([`Controller::caps`]) are what it takes for held.
    pub fn restart(&mut self) {
        let caps = self.basis.asked().cloned();
        self.start_anew(self.plan().clone(), caps);
    }

    /// The caps asked for last will not rise any further than to what is `held`, GPUs in the
    /// order of the plan: they could not, or are not to. Everything goes on from there; the
    /// caps to apply instead. A cap of `held` that is missing or not finite cancels nothing.
    pub fn cancel_rises(&mut self, held: &[Watts]) -> CapVector {
        let asked = self.caps().to_watts();
        let lower = asked.iter().enumerate().map(|(device, &asked)| {
            let held = held.get(device).filter(|held| held.is_finite());
            held.map_or(asked, |&held| asked.min(held))
        });
        let lower: Vec<Watts> = lower.collect();
        let caps = self.plan().envelope().project(&lower, &lower);
        self.lifts(false);
        self.basis.hold_now(&caps);
        caps
    }

    /// Follows another plan, for as many GPUs: another budget, policy or range of caps. The node
    /// is measured anew. The caps to apply at once, unless the plan is to observe, are those
    /// that are held, as far as the plan allows them: none rises but to its floor, so it needs
    /// no sample to be safe. Where the plan allows the GPUs more, all caps rise alike in the
    /// samples that follow, before warm-up, by the largest rise at a time and never on a hot
    /// GPU. A hint that was not used yet is forgotten: it was for the plan before.
    ///
    /// Held is what was asked for last, or less where a sample has shown less since; where
    /// nothing was asked for because the plan was to observe, it is what the last sample showed.
    pub fn replan(&mut self, plan: Plan) -> Decision {
        let held = self.basis.held(&plan);
        let caps = plan.envelope().project(&held, &held);
        let (policy, budget) = (plan.policy(), plan.gpu_budget());
        self.hint = None;
        self.start_anew(plan, Some(caps.clone()));
        self.lifts(policy != Policy::Observe);
        Decision {
            apply: Some(caps).filter(|_| policy != Policy::Observe),
            ..self.hold(Why::Replanned { policy, budget })
        }
    }

    /// A distribution of the GPUs' caps that suited this node earlier. At the end of the next
    /// warm-up, if power can help then, the first adjustment goes this `fraction` of the way
    /// from the caps held to it, instead of where the law would. It is a jump to a known place:
    /// the envelope and the heat bound it, the largest rise of an adjustment does not. A
    /// rollback or a step back takes it back like any adjustment. Caps that are not finite or
    /// not one per GPU, and a fraction that is not above 0 and at most 1, are ignored.
    pub fn hint(&mut self, caps: Vec<Watts>, fraction: f64) {
        let finite = caps.iter().all(|cap| cap.is_finite());
        if finite && caps.len() == self.plan().tdp().len() && fraction > 0.0 && fraction <= 1.0 {
            self.hint = Some(Hint { caps, fraction });
        }
    }

    /// Whether caps have yet to rise into a new plan, in warm-up.
    fn lifts(&mut self, is_lifting: bool) {
        if let Phase::WarmUp(warm_up) = &mut self.phase {
            warm_up.is_lifting = is_lifting;
        }
    }

    /// A new loop that keeps what outlasts a measurement.
    fn start_anew(&mut self, plan: Plan, caps: Option<CapVector>) {
        let gpus = plan.tdp().len();
        if gpus != self.plan().tdp().len() {
            self.hint = None;
        }
        self.phase = Phase::of(&plan);
        self.window = Samples::new(gpus);
        if let (Phase::WarmUp(warm_up), Some(caps)) = (&mut self.phase, &caps) {
            warm_up.home = caps.clone();
        }
        self.basis.start_anew(plan, caps);
    }

    /// After a new plan: raises the caps that are below what it starts from, all alike, as far
    /// as one adjustment may. `None` once there is nothing to raise. A node that is level would
    /// otherwise never use a larger budget.
    pub(super) fn lift(&mut self, gpus: &[GpuReading]) -> Option<Decision> {
        let Phase::WarmUp(warm_up) = &mut self.phase else {
            return None;
        };
        if !std::mem::take(&mut warm_up.is_lifting) {
            return None;
        }
        let caps = lifted(&self.basis, gpus)?;
        (warm_up.home, warm_up.is_lifting) = (caps.clone(), true);
        self.basis.hold_now(&caps);
        self.window = Samples::new(gpus.len());
        let sum = sum(&caps.to_watts(), gpus.len());
        Some(Decision {
            apply: Some(caps),
            ..self.hold(Why::Lifted { sum })
        })
    }
}

fn sum(caps: &[Watts], gpus: usize) -> Watts {
    caps.iter().take(gpus).copied().sum()
}

/// The next caps on the way up to those that a new plan starts from; `None` if no GPU's cap rises.
fn lifted(basis: &Basis, gpus: &[GpuReading]) -> Option<CapVector> {
    let asked = basis.caps().to_watts();
    let (tdp, config) = (basis.plan().tdp(), basis.config());
    let start = basis.plan().start().to_watts();
    let room = sum(&start, gpus.len()) - sum(&asked, gpus.len());
    let rises = |gpu: usize| {
        let may = |reading: &GpuReading| may_rise(reading, &config.guard);
        gpus.get(gpu).is_some_and(may) && asked.get(gpu) < tdp.get(gpu)
    };
    let rising = (0..gpus.len()).filter(|&gpu| rises(gpu)).count();
    let mut most = (room / rising.max(1) as f64).min(config.mitigation.rise());
    if basis.plan().policy() == Policy::GpuRed {
        // The first cap at TDP is where leaders no longer need more.
        let left = asked.iter().zip(tdp).map(|(&cap, &tdp)| tdp - cap);
        most = left.fold(most, Watts::min);
    }
    let wanted = asked
        .iter()
        .enumerate()
        .map(|(device, &cap)| match rises(device) {
            true => cap + most,
            false => cap,
        });
    let caps = raised(basis, &wanted.collect::<Vec<_>>(), &asked, gpus);
    let moves = (0..gpus.len()).any(|gpu| caps.watts(gpu) > asked.get(gpu).copied());
    moves.then_some(caps)
}

/// The envelope's answer to a lift. Reckoned from what was asked for, since what is read may
/// be older; but no GPU that may not rise does so above what is read either.
fn raised(basis: &Basis, wanted: &[Watts], asked: &[Watts], gpus: &[GpuReading]) -> CapVector {
    let config = basis.config();
    let held_down = |gpu: &GpuReading| !may_rise(gpu, &config.guard);
    let held = asked.iter().enumerate().map(|(device, &asked)| {
        match gpus.get(device).filter(|gpu| held_down(gpu)) {
            Some(gpu) => asked.min(gpu.cap),
            None => asked,
        }
    });
    let held: Vec<Watts> = held.collect();
    let rise = |device| match gpus.get(device).is_some_and(held_down) {
        true => Watts::ZERO,
        false => config.mitigation.rise(),
    };
    let rises: Vec<Watts> = (0..held.len()).map(rise).collect();
    let envelope = basis.plan().envelope();
    envelope.project_rising(wanted, &held, &rises)
}
