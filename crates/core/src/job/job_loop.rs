//! The loop of a job: what it asks of the job's devices or, if it asks nothing, why.

use litd_policies::{
    CapVector, Config, Controller, Decision, Plan, PlanError, Policy, Sample, State, Why,
};
use litd_units::Watts;

use crate::learned::Key;

/// Whether a loop runs. Only one that runs asks for caps.
#[derive(Debug, Default)]
enum Phase {
    /// Ranks are missing, or no plan can be made.
    #[default]
    Absent,
    Runs {
        controller: Box<Controller>,
        /// The caps that it asks for; `None` while it only watches.
        ask: Option<CapVector>,
        /// CPU sockets whose limits it moves.
        cpus: Vec<usize>,
    },
}

/// How a loop takes up a new plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// From its beginning, with warm-up.
    Anew,
    /// From the caps that it asks for, if it asks for any.
    GoesOn,
}

/// The loop of a job.
#[derive(Debug, Default)]
pub(crate) struct JobLoop {
    phase: Phase,
    /// Why the job has no plan under the policy that was asked for.
    no_plan: Option<PlanError>,
    /// Why the job is not steered: one of its devices may not be moved.
    suspended: Option<String>,
    /// Whether learned caps were looked for.
    recalled: bool,
    /// The learned caps that were found.
    hinted: Option<(Key, Policy)>,
    /// Whether it has started from that.
    started: bool,
    /// How often caps were changed, over all plans.
    adjustments: u32,
    /// Its last message.
    why: String,
}

impl JobLoop {
    /// Whether it runs.
    pub fn runs(&self) -> bool {
        self.controller().is_some()
    }

    /// Its state machine, while it runs.
    pub fn controller(&self) -> Option<&Controller> {
        match &self.phase {
            Phase::Runs { controller, .. } => Some(controller),
            Phase::Absent => None,
        }
    }

    fn controller_mut(&mut self) -> Option<&mut Controller> {
        match &mut self.phase {
            Phase::Runs { controller, .. } => Some(controller),
            Phase::Absent => None,
        }
    }

    /// The state of its state machine, while it runs.
    pub fn state(&self) -> Option<State> {
        self.controller().map(Controller::state)
    }

    /// The caps that it asks for: those of the job's GPUs, then of the CPU sockets that it moves.
    pub fn ask(&self) -> Option<&CapVector> {
        match &self.phase {
            Phase::Runs { ask, .. } => ask.as_ref(),
            Phase::Absent => None,
        }
    }

    /// CPU sockets whose limits it moves.
    pub fn cpus(&self) -> &[usize] {
        match &self.phase {
            Phase::Runs { cpus, .. } => cpus,
            Phase::Absent => &[],
        }
    }

    /// The most that the caps that it asks for leave to the job's GPUs; nothing while it asks for none.
    pub fn for_gpus(&self) -> Watts {
        self.ask().map_or(Watts::ZERO, |caps| {
            let gpus = caps.len().saturating_sub(self.cpus().len());
            let cpus: Watts = caps.to_watts().into_iter().skip(gpus).sum();
            caps.budget() - cpus
        })
    }

    /// Why the job has no plan under the policy that was asked for.
    pub fn no_plan(&self) -> Option<&PlanError> {
        self.no_plan.as_ref()
    }

    /// Why the job is not steered: one of its devices may not be moved.
    pub fn suspended(&self) -> Option<&str> {
        self.suspended.as_deref()
    }

    /// How often caps were changed, over all plans.
    pub fn adjustments(&self) -> u32 {
        self.adjustments
    }

    /// Why it is in its state, by its last message.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Its last message is this from now on.
    pub fn says(&mut self, why: &str) {
        why.clone_into(&mut self.why);
    }

    /// Whether it may look for learned caps: once for each plan.
    pub fn may_recall(&mut self) -> bool {
        !std::mem::replace(&mut self.recalled, true)
    }

    /// The job is suspended, or no longer if there is no obstacle.
    pub fn suspend(&mut self, obstacle: Option<String>) {
        self.suspended = obstacle;
    }

    /// The job's caps return to those found: it asks for none.
    pub fn asks_for_nothing(&mut self) {
        if let Phase::Runs { ask, .. } = &mut self.phase {
            *ask = None;
        }
    }

    /// It ends: ranks of the job are missing.
    pub fn ends(&mut self) {
        self.phase = Phase::Absent;
    }

    /// Takes up a plan, which moves these CPU sockets besides the job's GPUs. `obstacle`: why it is not a plan of
    /// the policy that was asked for.
    pub fn takes(
        &mut self,
        plan: Plan,
        cpus: Vec<usize>,
        obstacle: Option<PlanError>,
        start: Start,
        knobs: Config,
    ) {
        let policy = plan.policy();
        let asked = self.ask().is_some();
        let caps = match self.controller_mut() {
            Some(controller) if start == Start::GoesOn && asked => controller.replan(plan).apply,
            _ => {
                let caps = plan.start().clone();
                self.phase = Phase::Runs {
                    controller: Box::new(Controller::new(plan, knobs)),
                    ask: None,
                    cpus: Vec::new(),
                };
                Some(caps)
            }
        };
        if let Phase::Runs { ask, cpus: own, .. } = &mut self.phase {
            *ask = caps.filter(|_| policy != Policy::Observe);
            *own = cpus;
        }
        (self.no_plan, self.recalled) = (obstacle, false);
        (self.hinted, self.started) = (None, false);
    }

    /// No plan can be made, not even to watch.
    pub fn has_no_plan(&mut self, obstacle: Option<PlanError>) {
        self.phase = Phase::Absent;
        self.no_plan = obstacle;
    }

    /// Takes a sample. Returns the state before it, the decision, and whether caps change.
    pub fn step(&mut self, sample: &Sample) -> Option<(State, Decision, bool)> {
        let Phase::Runs {
            controller, ask, ..
        } = &mut self.phase
        else {
            return None;
        };
        let (before, adjustments) = (controller.state(), controller.adjustments());
        let decision = controller.step(sample);
        let adjusted = controller.adjustments() > adjustments;
        self.adjustments += u32::from(adjusted);
        self.started |= matches!(decision.why, Why::Recalled { .. });
        if let Some(caps) = &decision.apply {
            *ask = Some(caps.clone());
        }
        Some((before, decision, adjusted))
    }

    /// Warm-up begins again.
    pub fn warms_up_again(&mut self) {
        if let Some(controller) = self.controller_mut() {
            controller.restart();
        }
    }

    /// Caps to start from, learned earlier on `from`; `fraction` of the way to them is gone at once.
    pub fn hint(
        &mut self,
        caps: impl FnOnce(Watts) -> Vec<Watts>,
        fraction: f64,
        from: (Key, Policy),
    ) {
        if let Some(controller) = self.controller_mut() {
            let budget = controller.plan().gpu_budget();
            controller.hint(caps(budget), fraction);
            self.hinted = Some(from);
        }
    }

    /// The learned caps that it has started from, if any; asked for once.
    pub fn started_from(&mut self) -> Option<(Key, Policy)> {
        let started = std::mem::take(&mut self.started);
        self.hinted.take_if(|_| started)
    }

    /// A pause after a rollback ends. Returns whether there was one.
    pub fn resumes(&mut self) -> bool {
        self.controller_mut().is_some_and(Controller::resume)
    }

    /// No cap that it asks for rises above what its device may hold now.
    pub fn cancel_rises(&mut self, most: &[Watts]) {
        if let Phase::Runs {
            controller,
            ask: Some(ask),
            ..
        } = &mut self.phase
        {
            *ask = controller.cancel_rises(most);
        }
    }
}
