//! The loop in this process: the plant, the controller, and the wire between them.

use std::error::Error;

use litd_policies::{Config, Controller, Cpu, Limits, Node, Plan, PlanError, Policy, Why, actuate};
use litd_sim::{Plant, Scenario};
use litd_units::{Millis, Watts};

use super::observe;
use super::run::{Period, Watched};

/// A node and its loop.
pub struct InProcess {
    plant: Plant,
    controller: Controller,
    config: Config,
    /// What the devices hold, as read back: GPUs, then the CPUs that the plan touches.
    held: Vec<Watts>,
    nothing: Option<String>,
    why: String,
}

/// The node as the loop sees it.
fn node(scenario: &Scenario) -> Node {
    let caps = &scenario.caps;
    let gpu = Limits {
        floor: caps.floor,
        ceiling: caps.tdp,
        resolution: caps.resolution,
    };
    let cpu = |cpu: &litd_sim::CpuSpec| Cpu {
        limits: Limits {
            floor: cpu.floor,
            ceiling: cpu.limit,
            resolution: caps.resolution,
        },
        draw: cpu.draw,
    };
    Node {
        gpus: vec![gpu; scenario.gpus.len()],
        cpus: scenario.cpus.iter().map(cpu).collect(),
    }
}

impl InProcess {
    pub fn new(
        policy: Policy,
        scenario: &Scenario,
        seed: u64,
        config: &Config,
    ) -> Result<Self, Box<dyn Error>> {
        let mut config = config.clone();
        config.mitigation.initial_cap = scenario.caps.initial;
        let node = node(scenario);
        // No headroom is an answer: the node is watched as it is, and nothing is written.
        let (plan, nothing) = match Plan::new(policy, &node, &config.mitigation) {
            Ok(plan) => (plan, None),
            Err(no @ (PlanError::NoHeadroom { .. } | PlanError::NoCpuHeadroom { .. })) => (
                Plan::new(Policy::Observe, &node, &config.mitigation)?,
                Some(no.to_string()),
            ),
            Err(error) => return Err(error.into()),
        };
        let mut plant = Plant::new(scenario, seed)?;
        let mut held = found(&plant, &plan)?;
        write(&mut plant, &mut held, plan.start())?;
        plant.settle();
        Ok(Self {
            plant,
            controller: Controller::new(plan, config.clone()),
            config,
            held,
            nothing,
            why: String::new(),
        })
    }
}

impl Watched for InProcess {
    fn period(&mut self, iterations: u32) -> Result<Period, Box<dyn Error>> {
        let (mut time, mut power) = (Millis::ZERO, Watts::ZERO);
        for _ in 0..iterations {
            time += self.plant.run_iteration().length;
            power += self.plant.gpu_power();
        }
        let sample = observe::sample(&self.plant, self.config.detection.aggregation)?;
        let decision = self.controller.step(&sample.sample);
        if !matches!(decision.why, Why::Collecting { .. }) {
            self.why = decision.why.to_string();
        }
        if let Some(caps) = &decision.apply {
            write(&mut self.plant, &mut self.held, caps)?;
        }
        Ok(Period {
            state: decision.state,
            applied: decision.apply.is_some(),
            why: self.why.clone(),
            leads: sample.lead_sums,
            iteration: self.plant.iterations(),
            gpus: self.plant.gpus().collect(),
            power: power / f64::from(iterations),
            iteration_time: time / f64::from(iterations),
        })
    }

    fn nothing(&self) -> Option<&str> {
        self.nothing.as_deref()
    }

    fn adjustments(&self) -> u32 {
        self.controller.adjustments()
    }

    fn caps(&self) -> Vec<Watts> {
        self.plant.gpus().map(|gpu| gpu.cap).collect()
    }
}

/// The caps that the plan's devices hold.
fn found(plant: &Plant, plan: &Plan) -> Result<Vec<Watts>, Box<dyn Error>> {
    let gpus = plan.tdp().len();
    (0..plan.start().len())
        .map(|device| {
            Ok(match device.checked_sub(gpus) {
                None => plant.gpu_cap(device)?,
                Some(cpu) => plant.cpu_limit(cpu)?,
            })
        })
        .collect()
}

/// Writes caps in the safe order. The simulated devices have no faults, so a failure is one of
/// the demo itself.
fn write(
    plant: &mut Plant,
    held: &mut [Watts],
    caps: &litd_policies::CapVector,
) -> Result<(), Box<dyn Error>> {
    let gpus = plant.gpu_count();
    let failures = actuate(caps, held, |device, wanted| {
        match device.checked_sub(gpus) {
            None => plant.set_gpu_cap(device, wanted),
            Some(cpu) => plant.set_cpu_limit(cpu, wanted),
        }
        .map_err(|error| error.to_string())
    });
    match failures.into_iter().next() {
        Some(failure) => Err(failure.to_string().into()),
        None => Ok(()),
    }
}
