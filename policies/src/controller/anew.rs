//! Starting over: after a rollback, a device reset, or with another plan, and from what was
//! learned earlier.

use litd_units::Watts;

use super::{Controller, Samples};
use crate::decision::{Decision, State, Why};
use crate::diagnosis::may_rise;
use crate::envelope::CapVector;
use crate::plan::{Plan, Policy};
use crate::sample::GpuReading;

/// A distribution of caps that was learned earlier.
#[derive(Debug, Clone)]
pub(super) struct Hint {
    caps: Vec<Watts>,
    fraction: f64,
}

impl Controller {
    /// Ends the pause after a rollback: the node is measured anew, from the caps it holds. Returns whether it paused.
    pub fn resume(&mut self) -> bool {
        let paused = self.state == State::Rollback;
        if paused {
            self.restart();
        }
        paused
    }

    /// Measures the node anew, in warm-up, by the same plan: its devices were reset, say. The
    /// caps asked for last ([`Controller::caps`]) are what it takes for held.
    pub fn restart(&mut self) {
        let caps = self.caps.take();
        self.start_anew(self.plan.clone(), caps);
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
        let caps = self.plan.envelope().project(&lower, &lower);
        self.lifting = false;
        self.hold_now(&caps);
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
        let held = self.held(&plan);
        let caps = plan.envelope().project(&held, &held);
        let (policy, budget) = (plan.policy(), plan.gpu_budget());
        self.hint = None;
        self.start_anew(plan, Some(caps.clone()));
        self.lifting = policy != Policy::Observe;
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
        if finite && caps.len() == self.plan.tdp().len() && fraction > 0.0 && fraction <= 1.0 {
            self.hint = Some(Hint { caps, fraction });
        }
    }

    /// A new loop that keeps what outlasts a measurement.
    fn start_anew(&mut self, plan: Plan, caps: Option<CapVector>) {
        let same_gpus = plan.tdp().len() == self.plan.tdp().len();
        let fresh = Self::new(plan, self.config.clone());
        let home = caps.as_ref().unwrap_or(&fresh.home).clone();
        *self = Self {
            origin: home.clone(),
            home,
            caps,
            adjustments: self.adjustments,
            hint: self.hint.take().filter(|_| same_gpus),
            limits: match same_gpus {
                true => std::mem::take(&mut self.limits),
                false => fresh.limits,
            },
            ..fresh
        };
    }

    /// The caps of a plan's devices, as far as this loop knows.
    fn held(&self, plan: &Plan) -> Vec<Watts> {
        let asked = self.caps().to_watts();
        let (gpus, cpus) = asked.split_at(self.plan.tdp().len().min(asked.len()));
        let start = plan.start().to_watts();
        let read = self.read.as_deref().unwrap_or(gpus);
        let of = |gpu: usize| match (gpus.get(gpu), read.get(gpu)) {
            // The policy observe asks for no caps.
            (_, Some(&read)) if self.plan.policy() == Policy::Observe => read,
            // The reading may be older than the request; the lower one is no raise.
            (Some(&asked), Some(&read)) => asked.min(read),
            _ => Watts(f64::NAN),
        };
        let sockets = start.get(plan.tdp().len()..).unwrap_or_default();
        let limit = |(cpu, &found): (usize, &Watts)| cpus.get(cpu).copied().unwrap_or(found);
        (0..plan.tdp().len())
            .map(of)
            .chain(sockets.iter().enumerate().map(limit))
            .collect()
    }

    /// After a new plan: raises the caps that are below what it starts from, all alike, as far
    /// as one adjustment may. `None` once there is nothing to raise. A node that is level would
    /// otherwise never use a larger budget.
    pub(super) fn lift(&mut self, gpus: &[GpuReading]) -> Option<Decision> {
        if !std::mem::take(&mut self.lifting) {
            return None;
        }
        let asked = self.caps().to_watts();
        let tdp = self.plan.tdp();
        let sum = |caps: &[Watts]| caps.iter().take(gpus.len()).copied().sum::<Watts>();
        let room = sum(&self.plan.start().to_watts()) - sum(&asked);
        let rises = |gpu: usize| {
            let may = |reading: &GpuReading| may_rise(reading, &self.config.guard);
            gpus.get(gpu).is_some_and(may) && asked.get(gpu) < tdp.get(gpu)
        };
        let rising = (0..gpus.len()).filter(|&gpu| rises(gpu)).count();
        let mut most = (room / rising.max(1) as f64).min(self.config.mitigation.rise());
        if self.plan.policy() == Policy::GpuRed {
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
        let caps = self.raised(&wanted.collect::<Vec<_>>(), &asked, gpus);
        let moves = (0..gpus.len()).any(|gpu| caps.watts(gpu) > asked.get(gpu).copied());
        if !moves {
            return None;
        }
        self.lifting = true;
        (self.home, self.origin) = (caps.clone(), caps.clone());
        self.hold_now(&caps);
        self.window = Samples::new(gpus.len());
        let sum = sum(&caps.to_watts());
        Some(Decision {
            apply: Some(caps),
            ..self.hold(Why::Lifted { sum })
        })
    }

    /// The envelope's answer to a lift. Reckoned from what was asked for, since what is read may
    /// be older; but no GPU that may not rise does so above what is read either.
    fn raised(&self, wanted: &[Watts], asked: &[Watts], gpus: &[GpuReading]) -> CapVector {
        let held_down = |gpu: &GpuReading| !may_rise(gpu, &self.config.guard);
        let held = asked.iter().enumerate().map(|(device, &asked)| {
            match gpus.get(device).filter(|gpu| held_down(gpu)) {
                Some(gpu) => asked.min(gpu.cap),
                None => asked,
            }
        });
        let held: Vec<Watts> = held.collect();
        let rise = |device| match gpus.get(device).is_some_and(held_down) {
            true => Watts::ZERO,
            false => self.config.mitigation.rise(),
        };
        let rises: Vec<Watts> = (0..held.len()).map(rise).collect();
        self.plan.envelope().project_rising(wanted, &held, &rises)
    }

    /// The way to a distribution learned earlier, as the first adjustment; `None` where there is
    /// no such distribution, or the way is shorter than driver units.
    pub(super) fn recall(&mut self, hint: Option<Hint>, gpus: &[GpuReading]) -> Option<Decision> {
        let Hint { caps, fraction } = hint?;
        let towards = |(gpu, &hint): (&GpuReading, &Watts)| gpu.cap + (hint - gpu.cap) * fraction;
        let wanted = gpus.iter().zip(&caps).map(towards);
        let cpus = self.plan.cpu_targets().iter().copied();
        let wanted: Vec<Watts> = wanted.chain(cpus).collect();
        let caps = self.project(&wanted, gpus, Watts(f64::INFINITY));
        let moves = (0..gpus.len()).any(|gpu| caps.watts(gpu) != Some(gpus[gpu].cap));
        moves.then(|| self.adjust_to(caps, Why::Recalled { fraction }))
    }
}
