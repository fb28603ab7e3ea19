//! The loop's state machine: a sample goes in, a decision comes out. The daemon, the simulator
//! and the tests all drive this one.
//!
//! ```text
//! observe                        (measures for ever, writes nothing)
//! warm-up ──> adjusting ──> converged ──> drift ──> adjusting
//!    │            │             │           └─────> converged
//!    │            └─> rollback <┘
//!    └──────────────> converged (nothing to do)
//! ```
//!
//! From everywhere, a new plan or a restart leads back to warm-up.

mod anew;
mod basis;
mod by_model;
mod by_paper;
mod guards;
mod steered;

use self::anew::Hint;
use self::basis::Basis;
use self::steered::Steered;
use crate::config::Config;
use crate::decision::{Decision, State, Why};
use crate::diagnosis::{Diagnosis, close, diagnose};
use crate::envelope::CapVector;
use crate::plan::{Plan, Policy};
use crate::sample::{GpuReading, Mean, Sample, Samples};

/// A phase of the loop, with what only that phase needs.
#[derive(Debug, Clone)]
enum Phase {
    /// The loop only measures. `was_level`: whether the last window showed a level node.
    Observe {
        was_level: bool,
    },
    WarmUp(WarmUp),
    /// Warm-up is over: it adjusts, has converged, or sees a drift.
    Steered(Box<Steered>),
    /// The loop has rolled back, and pauses until it is resumed. `baseline` is the reference from before.
    Rollback {
        baseline: Box<Mean>,
    },
}

/// The node is measured under the caps that the policy begins with.
#[derive(Debug, Clone)]
struct WarmUp {
    /// The caps that are held meanwhile.
    home: CapVector,
    /// Whether the caps have yet to rise into a new plan; the samples of warm-up come after that.
    is_lifting: bool,
}

impl Phase {
    fn of(plan: &Plan) -> Self {
        match plan.policy() {
            Policy::Observe => Self::Observe { was_level: false },
            _ => Self::WarmUp(WarmUp {
                home: plan.start().clone(),
                is_lifting: false,
            }),
        }
    }

    fn state(&self) -> State {
        match self {
            Self::Observe { .. } => State::Observe,
            Self::WarmUp(_) => State::WarmUp,
            Self::Steered(steered) => steered.state(),
            Self::Rollback { .. } => State::Rollback,
        }
    }

    fn baseline(&self) -> Option<&Mean> {
        match self {
            Self::Observe { .. } | Self::WarmUp(_) => None,
            Self::Steered(steered) => Some(steered.baseline()),
            Self::Rollback { baseline } => Some(baseline),
        }
    }
}

/// The loop.
#[derive(Debug, Clone)]
pub struct Controller {
    /// What every phase goes by.
    basis: Basis,
    phase: Phase,
    /// The samples of the warm-up, or of the window, in progress.
    window: Samples,
    /// Where the first adjustment after the next warm-up starts, if that was learned before.
    hint: Option<Hint>,
}

impl Controller {
    /// A loop in warm-up, or in [`State::Observe`] if that is the plan's policy. The plan's
    /// start caps are held by then.
    #[must_use]
    pub fn new(plan: Plan, config: Config) -> Self {
        Self {
            phase: Phase::of(&plan),
            window: Samples::new(plan.tdp().len()),
            hint: None,
            basis: Basis::new(plan, config),
        }
    }

    /// Where the loop is.
    #[must_use]
    pub fn state(&self) -> State {
        self.phase.state()
    }

    /// How often it changed caps; a rollback is not counted.
    #[must_use]
    pub fn adjustments(&self) -> u32 {
        self.basis.adjustments()
    }

    /// The reference of comparisons: the mean over warm-up, or over the window in which a drift was found.
    #[must_use]
    pub fn baseline(&self) -> Option<&Mean> {
        self.phase.baseline()
    }

    /// The plan that it follows.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.basis.plan()
    }

    /// The caps asked for last; before any, those that the plan starts from. GPUs first, then
    /// CPU sockets.
    #[must_use]
    pub fn caps(&self) -> &CapVector {
        self.basis.caps()
    }

    /// Whether the node is level: no GPU waits for another by more than matters, so that none is a straggler.
    #[must_use]
    pub fn is_level(&self) -> bool {
        match &self.phase {
            Phase::Observe { was_level } => *was_level,
            Phase::Steered(steered) => steered.is_level(),
            Phase::WarmUp(_) | Phase::Rollback { .. } => false,
        }
    }

    /// Takes one sample and decides.
    pub fn step(&mut self, sample: &Sample) -> Decision {
        if let Some(error) = self.basis.misread(sample) {
            return self.hold(Why::BadSample(error));
        }
        if let Err(error) = self.window.add(sample) {
            return self.hold(Why::BadSample(error));
        }
        let gpus = self.basis.sampled(sample);
        if let Some(lifted) = self.lift(&gpus) {
            return lifted;
        }
        let have = self.window.count();
        let config = self.basis.config();
        let need = match self.phase {
            Phase::WarmUp(_) => config.calibration.warm_up,
            _ => config.detection.window,
        };
        if have < need {
            return self.hold(Why::Collecting { have, need });
        }
        let next = Samples::new(self.plan().tdp().len());
        let finished = std::mem::replace(&mut self.window, next);
        let Some(mean) = finished.mean() else {
            return self.hold(Why::Collecting { have, need });
        };
        self.ends_window(mean, &gpus)
    }

    /// Enough samples for a decision are there.
    fn ends_window(&mut self, mean: Mean, gpus: &[GpuReading]) -> Decision {
        let guard = &self.basis.config().guard;
        let near = match &self.phase {
            Phase::Steered(steered) => steered.close(&self.basis),
            _ => close(&mean, guard),
        };
        let diagnosis = diagnose(&mean, gpus, guard, near);
        match &mut self.phase {
            Phase::Observe { was_level } => {
                *was_level = matches!(diagnosis, Diagnosis::Level { .. });
                self.hold(Why::Seen(diagnosis))
            }
            Phase::WarmUp(warm_up) => {
                let home = warm_up.home.clone();
                let mut steered = Box::new(Steered::new(mean, home, &self.basis, gpus));
                let hint = self.hint.take();
                let decision = steered.begins(&mut self.basis, hint, diagnosis, gpus);
                self.phase = Phase::Steered(steered);
                decision
            }
            Phase::Steered(steered) => {
                let decision = steered.ends_window(&mut self.basis, &mean, diagnosis, gpus);
                if decision.state == State::Rollback {
                    let baseline = Box::new(steered.baseline().clone());
                    self.phase = Phase::Rollback { baseline };
                }
                decision
            }
            Phase::Rollback { .. } => self.hold(Why::Paused),
        }
    }

    fn hold(&self, why: Why) -> Decision {
        Decision {
            state: self.state(),
            apply: None,
            why,
        }
    }
}
