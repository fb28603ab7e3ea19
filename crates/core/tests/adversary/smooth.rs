//! Nodes without faults and rivals: the budget is never exceeded, except for the seconds in which a lower one
//! comes into force.

use litd_api::{Command, Lease, Mode};
use litd_core::config::OnExit;
use litd_units::Watts;

use crate::anything::{found, share};
use crate::node::{EPSILON, MS, Node, STEP, budget, observing, release};
use crate::rng::Rng;
use crate::seeds::{self, Outcome, ensure};

/// Steps above the budget that are no matter: caps of an undo are under way for so long when litd is
/// switched on again.
const STEPS_ABOVE: u32 = 30;

/// For so long after a change the higher of two budgets is allowed.
const COMES_INTO_FORCE: i64 = 12 * STEP;

struct Smooth {
    node: Node,
    rng: Rng,
    /// Budgets of late, and when they were seen.
    budgets: Vec<(i64, f64)>,
    steps_above: u32,
}

impl Smooth {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let gpus = 3 + rng.below(5);
        let mut config = observing();
        if rng.chance(0.6) {
            config.caps.budget = Some(Watts(share(&mut rng, gpus, 0.35, 0.5)));
        }
        if rng.chance(0.3) {
            config.caps.safe_budget = Some(Watts(gpus as f64 * 420.0));
            config.caps.on_exit = rng.pick(&[OnExit::Restore, OnExit::Hold]);
        }
        let mut gpus = found(&mut rng, gpus);
        for gpu in &mut gpus {
            gpu.power = Watts(rng.pick(&[90.0, 90.0, 480.0]));
        }
        Self {
            node: Node::with(gpus, config),
            rng,
            budgets: Vec::new(),
            steps_above: 0,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.node.pass(1.0);
        for _ in 0..6 + self.rng.below(14) {
            for gpu in &mut self.node.gpus {
                gpu.write_takes = self.rng.pick(&[0, 0, 100, 200, 300]) * MS;
            }
            match self.rng.below(9) {
                0 => self.reload(),
                1 => self.off_and_on(),
                _ => {
                    let command = self.command();
                    // Whether it is refused is litd's affair.
                    let _ = self.node.command(command);
                }
            }
            let wait = self.rng.pick(&[100, 300, 900, 2500, 6000]) * MS;
            let until = self.node.now + wait;
            while self.node.now < until {
                self.node.step();
                self.check()?;
            }
        }
        Ok(())
    }

    fn watts(&mut self) -> f64 {
        share(&mut self.rng, self.node.gpus.len(), 0.35, 0.7)
    }

    fn command(&mut self) -> Command {
        let gpu = self.rng.below(self.node.gpus.len());
        let watts = self.watts();
        match self.rng.below(8) {
            0 => Command::Lease(Lease {
                controller: "fleet".to_owned(),
                seconds: 1.0 + 9.0 * self.rng.unit(),
                mode: self.rng.pick(&[None, Some(Mode::Off), Some(Mode::Observe)]),
                budget: Some(Watts(watts)),
            }),
            1 => Command::EndLease,
            2 => budget(watts),
            3 => Command::SetBudget { watts: None },
            4 => release(gpu),
            5 => Command::Release { device: None },
            6 => Command::Resume { device: None },
            _ => Command::SetCap {
                device: format!("gpu{gpu}"),
                watts: Watts(self.rng.pick(&[700.0, 300.0, 400.0, 650.0, 222.0])),
            },
        }
    }

    fn reload(&mut self) {
        let mut config = self.node.config.clone();
        if self.rng.chance(0.5) {
            let watts = Watts(self.watts());
            config.caps.budget = self.rng.chance(0.7).then_some(watts);
        }
        if self.rng.chance(0.3) {
            let modes = [Mode::Off, Mode::Observe, Mode::Observe];
            config.mode = self.rng.pick(&modes);
        }
        if self.rng.chance(0.3) {
            config.caps.gpu_floor = Watts(self.rng.pick(&[200.0, 250.0, 300.0]));
        }
        if self.rng.chance(0.2) {
            config.caps.gpu_ceiling = self.rng.pick(&[None, Some(Watts(600.0))]);
        }
        self.node.reload(config);
    }

    fn off_and_on(&mut self) {
        self.node.kill_switch(true);
        for _ in 0..self.rng.below(30) {
            self.node.step();
        }
        self.node.kill_switch(false);
        self.budgets.clear();
        self.steps_above = 0;
    }

    fn check(&mut self) -> Result<(), String> {
        let status = self.node.status();
        let now = self.node.now;
        self.budgets.push((now, status.gpus.budget.0));
        self.budgets.retain(|it| now < it.0 + COMES_INTO_FORCE);
        let allowed = self.budgets.iter().map(|it| it.1).fold(0.0, f64::max);
        let sum = self.node.sum();
        let off = status.node.mode == Mode::Off;
        match !off && sum > allowed.max(self.node.least(&status)) + EPSILON {
            true => self.steps_above += 1,
            false => self.steps_above = 0,
        }
        let (steps, caps) = (self.steps_above, self.node.caps());
        ensure(steps <= STEPS_ABOVE, || {
            format!("GPUs hold {sum} of {allowed} W for {steps} steps: {caps:?}")
        })
    }
}

fn history(seed: u64) -> Outcome {
    let mut smooth = Smooth::new(seed);
    let outcome = smooth.run();
    (std::mem::take(&mut smooth.node.log), outcome)
}

#[test]
fn never_long_above_a_budget() {
    seeds::none_is_bad(history);
}
