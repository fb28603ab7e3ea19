//! The loop under the model law: the same states, windows and guards, with other adjustments.

use litd_diagnosis::Limits;
use litd_units::Watts;

use super::Controller;
use crate::config::Law;
use crate::decision::{Decision, State, Why, adjusted};
use crate::diagnosis::{Diagnosis, may_rise};
use crate::envelope::CapVector;
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

impl Controller {
    /// After warm-up: begins to model the node. `false`: the paper's law goes on.
    pub(super) fn begin_model(&mut self, mean: &Mean, gpus: &[GpuReading]) -> bool {
        self.retreats = 0;
        self.model = match self.config.law {
            Law::Paper => None,
            Law::Model => ModelLaw::new(mean, gpus),
        };
        self.model.is_some()
    }

    /// The end of warm-up: adjust if that is worth it.
    pub(super) fn first_by_model(
        &mut self,
        mean: &Mean,
        diagnosis: Diagnosis,
        gpus: &[GpuReading],
    ) -> Decision {
        if !self.may_move(&diagnosis) {
            return self.converge(mean, true, Why::Seen(diagnosis));
        }
        let proposal = self.propose(mean, gpus);
        match proposal.filter(|proposal| proposal.worthwhile) {
            Some(proposal) => self.adjust_by_model(mean, &proposal, gpus),
            None => self.converge(mean, false, Why::Seen(diagnosis)),
        }
    }

    /// Whether power could help. A level node is not excluded: leads are noisier than durations.
    fn may_move(&self, diagnosis: &Diagnosis) -> bool {
        matches!(diagnosis, Diagnosis::Level { .. }) || self.power_helps(diagnosis)
    }

    /// A window's end; the guards that all laws share have been asked.
    pub(super) fn window_by_model(
        &mut self,
        mean: &Mean,
        diagnosis: Diagnosis,
        gpus: &[GpuReading],
    ) -> Decision {
        if let Some(retreat) = self.retreat(mean, gpus) {
            return retreat;
        }
        let Some(model) = self.model.as_mut() else {
            return self.hold(Why::Holding);
        };
        match model.learn(mean, gpus) {
            Lesson::Settling | Lesson::Nothing => return self.hold(Why::Holding),
            Lesson::Surprised if self.state != State::Adjusting => {
                self.state = State::Drift;
                return self.hold(Why::Surprised);
            }
            Lesson::Surprised | Lesson::Expected => {}
        }
        if let Some(slope) = model.contradicted() {
            return self.give_up(gpus, slope);
        }
        if !model.is_ready(gpus, &self.config.model) {
            return self.hold(Why::Holding);
        }
        let blocked = !self.may_move(&diagnosis);
        let wanted = self.propose(mean, gpus).filter(|wanted| wanted.worthwhile);
        match (self.state, wanted) {
            (State::Adjusting, Some(wanted)) if !blocked => {
                self.adjust_by_model(mean, &wanted, gpus)
            }
            (State::Adjusting, _) if blocked => self.converge(mean, true, Why::Seen(diagnosis)),
            (State::Adjusting, _) => {
                let why = match self.remainder(mean) {
                    remainder if remainder < 1.0 => Why::Levelled { remainder },
                    // The node was level before, and all GPUs got the same.
                    _ => Why::Seen(diagnosis),
                };
                self.converge(mean, false, why)
            }
            (State::Drift, Some(wanted)) if !blocked => {
                if self.since.count() > self.judged_for() {
                    self.retreats = 0;
                }
                self.start_over(mean);
                self.adjust_by_model(mean, &wanted, gpus)
            }
            (_, Some(_)) if !blocked => {
                self.state = State::Drift;
                self.hold(Why::Surprised)
            }
            _ => {
                self.state = State::Converged;
                self.hold(Why::Holding)
            }
        }
    }

    fn remainder(&self, mean: &Mean) -> f64 {
        let before = self.baseline.as_ref();
        before.map_or(1.0, |baseline| {
            mean.leads.spread() / baseline.leads.spread()
        })
    }

    /// The model's proposal, within the bounds of each GPU after one adjustment.
    fn propose(&self, mean: &Mean, gpus: &[GpuReading]) -> Option<Proposal> {
        let (model, knobs) = (self.model.as_ref()?, &self.config.model);
        let envelope = self.plan.envelope();
        let range = |(at, gpu): (usize, &GpuReading)| {
            let (floor, ceiling) = envelope.range(at)?;
            let may = may_rise(gpu, &self.config.guard);
            let rise = if may { self.rise() } else { Watts::ZERO };
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
            budget: self.gpu_budget(),
            ahead: ahead(mean),
            waits: litd_diagnosis::waiting_for_hosts(&mean.marks, &Limits::OF_TRACES),
        };
        let held = self.state != State::Adjusting && self.state != State::WarmUp;
        Some(model.propose(gpus, &bounds, knobs, held))
    }

    /// The most that a cap may rise in one adjustment.
    fn rise(&self) -> Watts {
        let configured = self.config.mitigation.max_rise;
        configured.unwrap_or(self.config.model.max_adjustment)
    }

    fn adjust_by_model(
        &mut self,
        mean: &Mean,
        proposal: &Proposal,
        gpus: &[GpuReading],
    ) -> Decision {
        let held: Vec<Watts> = gpus.iter().map(|gpu| gpu.cap).collect();
        let cpus = self.cpu_targets();
        let wanted: Vec<Watts> = proposal.caps.iter().copied().chain(cpus).collect();
        let caps = self.project(&wanted, gpus, self.rise());
        let moves = (0..held.len()).any(|gpu| caps.watts(gpu) != Some(held[gpu]));
        // A request is not repeated where a driver holds another cap.
        if !moves || caps == *self.caps() {
            return self.converge(mean, false, Why::NothingMoves);
        }
        if let Some(model) = &mut self.model {
            model.moved();
        }
        let why = adjusted(mean, &held, &caps);
        self.adjust_to(caps, why)
    }

    /// An iteration that has become longer than it may since caps changed: back by one
    /// adjustment, with a larger margin; or all the way, where power does harm.
    fn retreat(&mut self, mean: &Mean, gpus: &[GpuReading]) -> Option<Decision> {
        let judged = self.since.count();
        if self.trail.is_empty() || judged > self.judged_for() {
            return None;
        }
        let slowdown = self.slowdown(judged, CERTAIN)?;
        let limit = self.config.guard.gpu_red_slowdown;
        if slowdown <= limit || judged < FEWEST {
            return None;
        }
        if slowdown > limit + HARM || self.retreats >= RETREATS_TO_HOLD {
            let before = self.baseline.as_ref()?.iteration_time;
            let after = self.since.mean()?.iteration_time;
            let home = self.home.clone();
            return Some(self.back_to(&home, gpus, Why::RolledBack { before, after }));
        }
        let last = self.trail.pop()?;
        let caps = self.take_back(&last, gpus);
        self.hold_now(&caps);
        self.retreats += 1;
        let model = self.model.as_mut()?;
        model.be_careful();
        model.moved();
        let why = Why::CostsSpeed { slowdown };
        let decision = match self.state {
            State::Adjusting if self.retreats < RETREATS_TO_HOLD => self.hold(why),
            _ => self.converge(mean, false, why),
        };
        Some(Decision {
            apply: Some(caps),
            ..decision
        })
    }

    /// By which part an iteration has become longer than in warm-up, less what may be chance: so
    /// many standard errors of the difference of two means (of medians, a quarter more).
    pub(super) fn slowdown(&self, judged: u32, errors: f64) -> Option<f64> {
        let (before, now) = (self.baseline.as_ref()?, self.since.mean()?);
        let samples =
            1.0 / f64::from(judged) + 1.0 / f64::from(self.config.calibration.warm_up.max(1));
        let chance = errors * (before.time_noise / before.iteration_time) * samples.sqrt();
        Some(now.iteration_time / before.iteration_time - 1.0 - chance)
    }

    /// Kernels don't follow power.
    fn give_up(&mut self, gpus: &[GpuReading], slope: f64) -> Decision {
        self.back_to_warm_up(gpus, Why::Contradicted { slope })
    }

    /// Caps do not what they should, so those after a drift are no better founded than any: back to
    /// the caps of warm-up, and paused.
    pub(super) fn back_to_warm_up(&mut self, gpus: &[GpuReading], why: Why) -> Decision {
        let origin = self.origin.clone();
        self.back_to(&origin, gpus, why)
    }

    /// Back to these caps at once, however far, and paused; but no hot GPU's cap rises, not even
    /// back.
    pub(super) fn back_to(&mut self, caps: &CapVector, gpus: &[GpuReading], why: Why) -> Decision {
        let caps = self.take_back(caps, gpus);
        self.state = State::Rollback;
        self.hold_now(&caps);
        self.history.clear();
        self.trail.clear();
        Decision {
            state: self.state,
            apply: Some(caps),
            why,
        }
    }
}

/// How far ahead each GPU is, from 0 for the straggler to 1 for the first.
fn ahead(mean: &Mean) -> Vec<f64> {
    let (last, spread) = (mean.leads.smallest(), mean.leads.spread());
    let leads = mean.leads.values().iter();
    leads
        .map(|&lead| ((lead - last) / spread).min(1.0))
        .collect()
}
