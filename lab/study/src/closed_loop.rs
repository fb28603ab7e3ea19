//! The loop in one process: the plant, the controller, and the wire between them.

use litd_policies::{
    Actuator, CapVector, Config, Controller, Decision, Node, Plan, PlanError, Policy,
};
use litd_sim::{Plant, Scenario};
use litd_units::{Millis, Watts};

use crate::StudyError;
use crate::observe::{self, Names, Observed};
use crate::steered::{Ran, Steered};

/// A simulated node and its loop.
#[derive(Debug, Clone)]
pub struct ClosedLoop<S = Plant> {
    /// The node.
    pub plant: S,
    controller: Controller,
    config: Config,
    /// The daemon's own ledger of writes: GPUs, then the CPUs that the plan touches.
    ledger: Actuator,
    nothing: Option<String>,
    names: Names,
    wiring: Wiring,
}

/// What becomes of a cap between the driver that took it and the GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wiring {
    /// The GPU follows it.
    #[default]
    Straight,
    /// Nothing: the driver says that it holds, and it does not.
    Ignored,
    /// It acts the wrong way round: what is taken from the start cap is given.
    Reversed,
    /// It acts on the next GPU.
    Swapped,
}

impl Wiring {
    /// Which GPU really gets which cap.
    fn really(
        self,
        plant: &impl Steered,
        gpu: usize,
        wanted: Watts,
        start: Watts,
    ) -> (usize, Watts) {
        let (lowest, highest) = plant.range();
        match self {
            Self::Straight => (gpu, wanted),
            Self::Ignored => (gpu, start),
            Self::Reversed => {
                let mirrored = start + start - wanted;
                (gpu, mirrored.max(lowest).min(highest))
            }
            Self::Swapped => ((gpu + 1) % plant.gpu_count(), wanted),
        }
    }
}

/// What one sampling period showed and brought.
#[derive(Debug, Clone)]
pub struct Step {
    /// The sample at its end.
    pub observed: Observed,
    /// What the loop made of it.
    pub decision: Decision,
    /// Mean power of all GPUs.
    pub power: Watts,
    /// Mean wall time of an iteration.
    pub iteration_time: Millis,
    /// The iterations.
    pub ran: Vec<Ran>,
}

/// The node as the loop sees it.
///
/// # Errors
/// The scenario makes no sense.
pub fn node(scenario: &Scenario) -> Result<Node, StudyError> {
    Ok(Plant::new(scenario, 0)?.node())
}

impl ClosedLoop {
    /// A node in thermal steady state under the caps that the policy starts from. A policy that
    /// has no headroom there only observes.
    ///
    /// # Errors
    /// The scenario or the knobs make no sense.
    pub fn new(
        policy: Policy,
        scenario: &Scenario,
        seed: u64,
        config: &Config,
    ) -> Result<Self, StudyError> {
        let mut config = config.clone();
        config.mitigation.initial_cap = scenario.caps.initial;
        let plant = Plant::new(scenario, seed)?;
        let node = plant.node();
        // No headroom is an answer: the node is watched as it is, and nothing is written.
        let (plan, nothing) = match Plan::new(policy, &node, &config.mitigation) {
            Ok(plan) => (plan, None),
            Err(no @ (PlanError::NoHeadroom { .. } | PlanError::NoCpuHeadroom { .. })) => (
                Plan::new(Policy::Observe, &node, &config.mitigation)?,
                Some(no.to_string()),
            ),
            Err(error) => return Err(error.into()),
        };
        Self::on(plant, plan, nothing, config)
    }
}

impl<S: Steered> ClosedLoop<S> {
    /// A plant and a loop that follows this plan, in thermal steady state under the caps that it
    /// starts from. `nothing` says why it only observes, where that is known.
    ///
    /// # Errors
    /// A device does not take its cap.
    pub fn on(
        plant: S,
        plan: Plan,
        nothing: Option<String>,
        config: Config,
    ) -> Result<Self, StudyError> {
        let mut closed = Self {
            ledger: ledger(&plant, &plan)?,
            names: Names::of(&plant),
            plant,
            controller: Controller::new(plan.clone(), config.clone()),
            config,
            nothing,
            wiring: Wiring::Straight,
        };
        closed.write(plan.start())?;
        closed.plant.settle();
        Ok(closed)
    }

    /// From now on caps go this way.
    pub fn wire(&mut self, wiring: Wiring) {
        self.wiring = wiring;
    }

    /// Runs one sampling period and lets the loop decide.
    ///
    /// # Errors
    /// An iteration can't be analysed, or a cap not be written: faults of the study itself.
    pub fn period(&mut self, iterations: u32) -> Result<Step, StudyError> {
        self.period_with(iterations, |_| {})
    }

    /// The same with a sample that is changed on its way to the loop, as broken sensors do.
    ///
    /// # Errors
    /// As [`Self::period`].
    pub fn period_with(
        &mut self,
        iterations: u32,
        change: impl FnOnce(&mut litd_policies::Sample),
    ) -> Result<Step, StudyError> {
        let ran: Vec<Ran> = (0..iterations).map(|_| self.plant.iterate()).collect();
        let time: Millis = ran.iter().map(|it| it.time).sum();
        let power: Watts = ran.iter().map(|it| it.gpus).sum();
        let aggregation = self.config.detection.aggregation;
        let mut observed = observe::sample(&mut self.plant, &self.names, aggregation)?;
        let decision = self.decide(&mut observed, change);
        if let Some(caps) = &decision.apply {
            self.write(caps)?;
        }
        Ok(Step {
            observed,
            decision,
            power: power / f64::from(iterations),
            iteration_time: time / f64::from(iterations),
            ran,
        })
    }

    /// What the loop makes of a sample, before anything is written.
    pub fn decide(
        &mut self,
        observed: &mut Observed,
        change: impl FnOnce(&mut litd_policies::Sample),
    ) -> Decision {
        // What the driver says, whatever the GPU does.
        for (device, gpu) in observed.sample.gpus.iter_mut().enumerate() {
            gpu.cap = self.ledger.most_of(device);
        }
        change(&mut observed.sample);
        self.controller.step(&observed.sample)
    }

    /// Lets the node run without a sample: for so long, and so many iterations.
    pub fn rest(&mut self, time: Millis, iterations: u32) -> Vec<Ran> {
        let (mut ran, mut passed) = (Vec::new(), Millis::ZERO);
        while passed < time || ran.len() < iterations as usize {
            let it = self.plant.iterate();
            passed += it.time;
            ran.push(it);
        }
        ran
    }

    /// Why there is nothing to do, where that is known from the start.
    #[must_use]
    pub fn nothing(&self) -> Option<&str> {
        self.nothing.as_deref()
    }

    /// The loop.
    #[must_use]
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The loop, to give it another plan.
    pub fn controller_mut(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// The cap of each GPU.
    #[must_use]
    pub fn caps(&self) -> Vec<Watts> {
        self.plant.gpu_caps()
    }

    /// Writes caps as the daemon does, in the order that its ledger gives. The simulated devices have no faults
    /// here, so a failure is one of the study itself.
    ///
    /// # Errors
    /// The plant refuses a cap, or a device does not come to hold its own.
    pub fn write(&mut self, caps: &CapVector) -> Result<(), StudyError> {
        let devices = Vec::from_iter(0..caps.len());
        self.ledger.set_budget(caps.budget());
        self.ledger.steer(&devices, caps);
        loop {
            let due = self.ledger.due(|_| true);
            if due.is_empty() {
                break;
            }
            for (device, wanted) in due {
                self.set(device, wanted)?;
                self.ledger.written(device, Some(wanted));
            }
        }
        match devices.into_iter().find(|&it| !self.ledger.is_settled(it)) {
            Some(device) => Err(StudyError::Write(format!(
                "device {device} is to hold {} and may hold {}",
                caps.watts(device).unwrap_or(Watts::ZERO),
                self.ledger.most_of(device)
            ))),
            None => Ok(()),
        }
    }

    /// Sets one device's cap, along whatever lies between the driver and the device.
    fn set(&mut self, device: usize, wanted: Watts) -> Result<(), StudyError> {
        let plant = &mut self.plant;
        if device >= plant.gpu_count() {
            return plant.set(device, wanted);
        }
        let start = self.controller.plan().start().watts(device);
        let start = start.unwrap_or(wanted);
        let (gpu, cap) = self.wiring.really(plant, device, wanted, start);
        plant.set(gpu, cap)
    }
}

/// The ledger of the plan's devices, with the caps that they hold.
fn ledger(plant: &impl Steered, plan: &Plan) -> Result<Actuator, StudyError> {
    let held = (0..plan.start().len()).map(|device| plant.cap(device));
    let held = held.collect::<Result<Vec<_>, _>>()?;
    let lines = Vec::from_iter(held.into_iter().map(|cap| (Some(cap), cap)));
    Ok(Actuator::new(&lines, Watts::ZERO))
}
