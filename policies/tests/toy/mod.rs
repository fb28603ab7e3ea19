//! A toy node for tests of the loop.
// Every test file uses another part of it.
#![allow(dead_code)]

#[path = "../ledger/mod.rs"]
mod ledger;

use litd_diagnosis::Marks;
use litd_policies::{
    Config, Controller, Decision, GpuReading, Law, Limits, Node, Plan, Policy, Sample, State,
};
use litd_units::{Celsius, Hertz, Millis, Watts};

use ledger::{drive, ledger};

pub fn node() -> Node {
    let gpu = Limits {
        floor: Watts(300.0),
        ceiling: Watts(750.0),
        resolution: Watts(1.0),
    };
    Node {
        gpus: vec![gpu; 4],
        cpus: vec![],
    }
}

pub const WARM_UP: u32 = 4;

/// The defaults of this law, after a short warm-up.
pub fn config(law: Law) -> Config {
    let mut config = Config {
        law,
        ..Config::default()
    };
    config.calibration.warm_up = WARM_UP;
    config
}

/// A node that does what physics would, and whatever a test adds to it.
pub struct Toy {
    pub controller: Controller,
    pub held: Vec<Watts>,
    /// Speed of each GPU at 700 W.
    pub speed: [f64; 4],
    /// The iteration takes this many times as long as the slowest GPU makes it.
    pub slowdown: f64,
    pub temperature: [f64; 4],
    pub throttled: [bool; 4],
    pub power_limited: bool,
    /// Leads that have nothing to do with clocks.
    pub host_lead: [f64; 4],
    pub iteration: u64,
    /// The share of kernels that each started last, where a test wants it told.
    pub last_in: Vec<f64>,
    /// Whether clocks are told: 2 GHz at the speed of 1.
    pub clocks: bool,
    /// Marks of kernels besides clocks.
    pub marks: [Marks; 4],
}

impl Toy {
    pub fn under(law: Law, policy: Policy) -> Self {
        Self::with(policy, config(law))
    }

    pub fn with(policy: Policy, config: Config) -> Self {
        let plan = Plan::new(policy, &node(), &config.mitigation).unwrap();
        Self::of(plan, config)
    }

    pub fn of(plan: Plan, config: Config) -> Self {
        Self {
            held: plan.start().to_watts(),
            controller: Controller::new(plan, config),
            speed: [1.03, 1.02, 1.0, 1.04],
            slowdown: 1.0,
            temperature: [80.0; 4],
            throttled: [false; 4],
            power_limited: true,
            last_in: vec![],
            clocks: false,
            marks: [Marks::default(); 4],
            host_lead: [0.0; 4],
            iteration: 0,
        }
    }

    pub fn speeds(&self) -> Vec<f64> {
        let at = |gpu: usize| self.speed[gpu] * (self.held[gpu].0 / 700.0).sqrt();
        (0..4).map(at).collect()
    }

    pub fn sample(&mut self) -> Sample {
        let speeds = self.speeds();
        let slowest = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let mut sorted = speeds.clone();
        sorted.sort_by(f64::total_cmp);
        let median = (sorted[1] + sorted[2]) / 2.0;
        self.iteration += 1;
        let reading = |gpu: usize| GpuReading {
            cap: self.held[gpu],
            temperature: Some(Celsius(self.temperature[gpu])),
            slowdown: Some(Celsius(100.0)),
            throttled: self.throttled[gpu],
            power_share: Some(if self.power_limited { 1.0 } else { 0.0 }),
            pace: Some(median / speeds[gpu]),
            marks: Marks {
                slower_compute: Some(median / speeds[gpu] - 1.0),
                ..self.marks[gpu]
            },
            clock: self.clocks.then(|| Hertz(2e9 * speeds[gpu])),
            ..GpuReading::default()
        };
        let lead = |gpu: usize| (speeds[gpu] / slowest - 1.0) * 1e4 + self.host_lead[gpu];
        Sample {
            iteration: self.iteration,
            leads: (0..4).map(|gpu| Some(Millis(lead(gpu)))).collect(),
            summands: 640,
            iteration_time: Millis(600.0 / slowest * self.slowdown),
            gpus: (0..4).map(reading).collect(),
            last_in: self.last_in.clone(),
        }
    }

    pub fn step(&mut self) -> Decision {
        let sample = self.sample();
        let decision = self.controller.step(&sample);
        self.write(&decision);
        decision
    }

    /// Acts on a decision as the daemon would.
    pub fn write(&mut self, decision: &Decision) {
        if let Some(caps) = &decision.apply {
            let mut lines = ledger(&Vec::from_iter(self.held.iter().map(|&cap| Some(cap))));
            assert!(drive(&mut lines, caps, |_, wanted| Some(wanted)));
            self.held = caps.to_watts();
        }
    }

    pub fn sum(&self) -> Watts {
        self.held.iter().copied().sum()
    }

    /// Runs a window.
    pub fn window(&mut self) -> Decision {
        self.step();
        self.step();
        self.step()
    }

    pub fn warm_up(&mut self) -> Decision {
        for _ in 1..WARM_UP {
            let decision = self.step();
            assert_eq!((decision.state, decision.apply), (State::WarmUp, None));
        }
        self.step()
    }

    pub fn until_converged(&mut self) -> Decision {
        self.warm_up();
        for _ in 0..100 {
            let decision = self.window();
            if decision.state != State::Adjusting {
                return decision;
            }
        }
        panic!("still adjusting after 100 windows");
    }
}
