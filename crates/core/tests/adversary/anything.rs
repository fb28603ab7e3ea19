//! Random events in any order, and then the rules for a calm node.

use litd_api::{Command, Mode};
use litd_core::Event;
use litd_core::config::OnExit;
use litd_units::Watts;

use crate::calm;
use crate::disk::Faults;
use crate::gpu::{Gpu, RANGE, Writes, found_at};
use crate::node::{MS, Node, SECOND, budget, lease, observing, release};
use crate::rng::Rng;
use crate::seeds::{self, Outcome};

/// Events on a GPU from outside so far.
#[derive(Debug, Clone, Default)]
pub struct Past {
    /// Caps that it was found with, that it was reset to, or that somebody asked for: these may go
    /// back, and litd's own may not.
    pub natural: Vec<f64>,
    /// How often somebody else set its cap, or did what looks like it.
    pub hands: u32,
    pub resets: u32,
    reset_to: Option<Watts>,
    /// When it is well again.
    ails_until: i64,
}

pub struct History {
    pub node: Node,
    pub pasts: Vec<Past>,
    /// A budget is set by command.
    pub by_command: bool,
    rng: Rng,
    disk_fails_until: i64,
}

/// An event on this GPU, or on the whole node.
type Happens = fn(&mut History, usize);

const HAPPENS: [Happens; 17] = [
    History::is_reset,
    History::another_hand,
    |it, gpu| it.writes(gpu, Writes::Fail, 8),
    History::late_write,
    |it, gpu| it.ails(gpu, 6, |ill| ill.fails_reads = true),
    |it, gpu| it.ails(gpu, 9, |ill| ill.hangs = true),
    History::crash,
    History::released,
    History::cap_by_hand,
    History::mode,
    History::budget_by_command,
    History::another_range,
    History::unmanaged,
    History::slow_writes,
    |it, gpu| it.writes(gpu, Writes::Forbidden, 6),
    |it, gpu| it.writes(gpu, Writes::OutOfRange, 6),
    History::disk_fails,
];

/// A GPU may be found with another cap than its default.
pub fn found(rng: &mut Rng, gpus: usize) -> Vec<Gpu> {
    let mut found = found_at(gpus, 700.0);
    for gpu in &mut found {
        if rng.chance(0.4) {
            gpu.cap = Watts(rng.pick(&[600.0, 500.0, 450.5]));
        }
    }
    found
}

/// Whole watts: this share of what the GPUs take at most, and up to so much more.
pub fn share(rng: &mut Rng, gpus: usize, least: f64, more: f64) -> f64 {
    (gpus as f64 * 700.0 * (least + more * rng.unit())).floor()
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let gpus = 3 + rng.below(4);
        let mut config = observing();
        if rng.chance(0.4) {
            config.caps.budget = Some(Watts(share(&mut rng, gpus, 0.35, 0.5)));
        }
        if rng.chance(0.5) {
            config.caps.safe_budget = Some(Watts(gpus as f64 * 350.0));
            config.caps.on_exit = OnExit::Hold;
        }
        let gpus = found(&mut rng, gpus);
        let past = |gpu: &Gpu| Past {
            natural: vec![gpu.cap.0],
            ..Past::default()
        };
        let pasts = gpus.iter().map(past).collect();
        Self {
            node: Node::with(gpus, config),
            pasts,
            by_command: false,
            rng,
            disk_fails_until: 0,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.node.pass(3.0);
        for _ in 0..4 + self.rng.below(14) {
            if !self.node.runs() {
                self.start();
            }
            let gpu = self.rng.below(self.node.gpus.len());
            self.rng.pick(&HAPPENS)(self, gpu);
            self.go_on();
        }
        self.calm_down();
        calm::check(self)
    }

    fn go_on(&mut self) {
        let wait = self.rng.pick(&[50, 200, 700, 1500, 3000, 9000]) * MS;
        let until = self.node.now + wait;
        while self.node.now < until {
            self.node.step();
            let now = self.node.now;
            for gpu in 0..self.pasts.len() {
                if self.pasts[gpu].ails_until <= now {
                    self.heal(gpu);
                }
            }
            if self.disk_fails_until <= now {
                self.node.disk.fail(Faults::default());
            }
        }
    }

    fn calm_down(&mut self) {
        for gpu in 0..self.pasts.len() {
            self.set_range(gpu, RANGE.highest);
            self.heal(gpu);
        }
        self.node.disk.fail(Faults::default());
        self.node.event(Event::Unmanaged([].into()));
        self.node.note("--- calm");
        self.node.pass(75.0);
    }

    fn heal(&mut self, gpu: usize) {
        let healed = &mut self.node.gpus[gpu];
        healed.writes = Writes::Taken;
        healed.fails_reads = false;
        healed.write_takes = 0;
        if healed.hangs {
            self.node.answers_again(gpu);
        }
    }

    /// Until so many seconds from now at most.
    fn until(&mut self, seconds: i64) -> i64 {
        self.node.now + self.rng.between(0, seconds * 1000) * MS
    }

    fn ails(&mut self, gpu: usize, seconds: i64, ail: impl FnOnce(&mut Gpu)) {
        ail(&mut self.node.gpus[gpu]);
        self.pasts[gpu].ails_until = self.until(seconds);
    }

    fn writes(&mut self, gpu: usize, writes: Writes, seconds: i64) {
        self.ails(gpu, seconds, |ill| ill.writes = writes);
    }

    fn late_write(&mut self, gpu: usize) {
        let after = self.rng.between(1, 21) * SECOND;
        self.writes(gpu, Writes::FailAndLand(after), 4);
    }

    fn slow_writes(&mut self, gpu: usize) {
        let takes = self.rng.between(0, 3000) * MS;
        self.ails(gpu, 9, |ill| ill.write_takes = takes);
    }

    fn disk_fails(&mut self, _: usize) {
        let faults = Faults {
            append: self.rng.chance(0.5),
            replace: self.rng.chance(0.5),
            replaced_is_told_failed: self.rng.chance(0.5),
            audit: self.rng.chance(0.5),
            ..Faults::default()
        };
        self.node.note(&format!("the disk fails: {faults:?}"));
        self.node.disk.fail(faults);
        self.disk_fails_until = self.until(6);
    }

    fn is_reset(&mut self, gpu: usize) {
        self.node.is_reset(gpu);
        let past = &mut self.pasts[gpu];
        past.natural.push(self.node.gpus[gpu].cap.0);
        past.resets += 1;
        past.reset_to = Some(self.node.gpus[gpu].cap);
    }

    fn by_others(&mut self, gpu: usize, cap: f64) {
        self.node.by_others(gpu, cap);
        self.pasts[gpu].natural.push(cap);
        self.pasts[gpu].hands += 1;
    }

    fn another_hand(&mut self, gpu: usize) {
        let cap = self.rng.pick(&[700.0, 650.0, 333.0, 222.0, 250.0]);
        if cap <= self.node.gpus[gpu].range.highest.0 {
            self.by_others(gpu, cap);
        }
    }

    fn another_range(&mut self, gpu: usize) {
        let highest = self.rng.pick(&[700.0, 500.0, 600.0]);
        self.set_range(gpu, Watts(highest));
        if self.node.gpus[gpu].cap.0 > highest {
            self.by_others(gpu, highest);
        }
    }

    /// Where a GPU still holds what it was reset to, that is no default any more, and litd, which may
    /// not have read it yet, can't tell the reset from a hand.
    fn set_range(&mut self, gpu: usize, highest: Watts) {
        let (reset, past) = (&mut self.node.gpus[gpu], &mut self.pasts[gpu]);
        let looks_like_a_hand = past.reset_to == Some(reset.cap) && reset.range.default != highest;
        past.hands += u32::from(looks_like_a_hand);
        reset.range.highest = highest;
        reset.range.default = highest;
    }

    /// What was set by command is in force again after a crash, as far as the disk has it.
    fn start(&mut self) {
        self.node.start();
        self.by_command = self.node.disk.keeps_a_budget();
    }

    fn crash(&mut self, _: usize) {
        self.node.kill();
        if self.rng.chance(0.4) {
            self.node.restore();
        }
        self.node.pass(2.0 * self.rng.unit());
        self.start();
    }

    fn released(&mut self, gpu: usize) {
        let all = self.rng.chance(0.2);
        let device = (!all).then(|| format!("gpu{gpu}"));
        let command = match self.rng.chance(0.5) {
            true if !all => release(gpu),
            true => Command::Release { device },
            false => Command::Resume { device },
        };
        // Whether it is refused is litd's affair.
        let _ = self.node.command(command);
    }

    fn cap_by_hand(&mut self, gpu: usize) {
        let cap = self.rng.pick(&[700.0, 300.0, 400.0, 650.0, 222.0]);
        let (device, watts) = (format!("gpu{gpu}"), Watts(cap));
        if self.node.command(Command::SetCap { device, watts }).is_ok() {
            self.pasts[gpu].natural.push(cap);
        }
    }

    fn mode(&mut self, _: usize) {
        let mut config = self.node.config.clone();
        match self.rng.below(4) {
            0 => config.mode = Mode::Off,
            1 => config.mode = Mode::Observe,
            2 => {
                let watts = Watts(share(&mut self.rng, self.pasts.len(), 0.35, 0.6));
                config.caps.budget = self.rng.chance(0.6).then_some(watts);
            }
            _ => {
                self.node.kill_switch(true);
                self.node.pass(6.0 * self.rng.unit());
                self.node.kill_switch(false);
            }
        }
        self.node.reload(config);
    }

    fn budget_by_command(&mut self, _: usize) {
        let watts = share(&mut self.rng, self.pasts.len(), 0.35, 0.6);
        let (command, set) = match self.rng.below(4) {
            0 => (lease(watts, 1.0 + 20.0 * self.rng.unit()), self.by_command),
            1 => (Command::EndLease, self.by_command),
            2 => (Command::SetBudget { watts: None }, false),
            _ => (budget(watts), true),
        };
        if self.node.command(command).is_ok() {
            self.by_command = set;
        }
    }

    fn unmanaged(&mut self, _: usize) {
        let there = self.rng.chance(0.5).then(|| "0000:f1:00.0".to_owned());
        self.node
            .event(Event::Unmanaged(there.into_iter().collect()));
    }
}

fn history(seed: u64) -> Outcome {
    let mut history = History::new(seed);
    let outcome = history.run();
    (std::mem::take(&mut history.node.log), outcome)
}

#[test]
fn anything_in_any_order() {
    seeds::none_is_bad(history);
}
