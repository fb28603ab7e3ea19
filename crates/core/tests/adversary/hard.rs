//! As anything.rs, and harder: slow reads, faulty GPUs count as movable, reload of any key, stops while things
//! fail, node power, changed defaults that stay, releases whose answer is believed.

use litd_api::{Command, DeviceState, Mode};
use litd_core::config::OnExit;
use litd_core::{DeviceId, Event, NodeReading};
use litd_units::Watts;

use crate::anything::share;
use crate::disk::Faults;
use crate::gpu::{Gpu, Writes, found_at};
use crate::node::{EPSILON, MS, Node, SECOND, budget, lease, observing, release};
use crate::rng::Rng;
use crate::seeds::{self, Outcome, ensure};

#[derive(Debug, Clone, Default)]
struct Past {
    natural: Vec<f64>,
    hands: u32,
    resets: u32,
    ails_until: i64,
    overdrawn: bool,
}

struct Hard {
    node: Node,
    pasts: Vec<Past>,
    rng: Rng,
    disk_fails_until: i64,
    bound: bool,
    by_command: bool,
    released: bool,
}

type Happens = fn(&mut Hard, usize);

const HAPPENS: [Happens; 30] = [
    Hard::is_reset,
    Hard::another_hand,
    |it, gpu| it.writes(gpu, Writes::Fail, 8),
    Hard::late_write,
    |it, gpu| it.ails(gpu, 6, |ill| ill.fails_reads = true),
    |it, gpu| it.ails(gpu, 9, |ill| ill.hangs = true),
    Hard::crash,
    Hard::released,
    Hard::cap_by_hand,
    Hard::mode,
    Hard::budget_by_command,
    Hard::reset_to_another_default,
    Hard::unmanaged,
    Hard::slow_writes,
    |it, gpu| it.writes(gpu, Writes::Forbidden, 6),
    |it, gpu| it.writes(gpu, Writes::OutOfRange, 6),
    Hard::disk_fails,
    Hard::slow_reads,
    Hard::reload_keys,
    Hard::stall,
    Hard::node_power,
    Hard::returned,
    Hard::job,
    Hard::stop_and_start,
    |it, gpu| it.ails(gpu, 9, |ill| ill.hides_range = true),
    Hard::long_reset,
    Hard::journal_removed,
    Hard::not_in_force,
    Hard::paused,
    Hard::killed_in_the_end,
];

impl Hard {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let gpus = 2 + rng.below(6);
        let mut config = observing();
        if rng.chance(0.4) {
            config.caps.budget = Some(Watts(share(&mut rng, gpus, 0.35, 0.5)));
        }
        if rng.chance(0.5) {
            config.caps.safe_budget = Some(Watts(gpus as f64 * 350.0));
            if rng.chance(0.5) {
                config.caps.on_exit = OnExit::Hold;
            }
        }
        let grid = rng.pick(&[1.0, 1.0, 0.001, 5.0]);
        let mut all = found_at(gpus, 700.0);
        for gpu in &mut all {
            gpu.range.resolution = Watts(grid);
            if rng.chance(0.4) {
                gpu.cap = Watts(rng.pick(&[600.0, 500.0, 450.0]));
            }
        }
        let past = |gpu: &Gpu| Past {
            natural: vec![gpu.cap.0],
            ..Past::default()
        };
        let pasts = all.iter().map(past).collect();
        Self {
            node: Node::with(all, config),
            pasts,
            rng,
            disk_fails_until: 0,
            bound: false,
            by_command: false,
            released: false,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.node.pass(3.0);
        for _ in 0..4 + self.rng.below(16) {
            if !self.node.runs() {
                self.start();
            }
            let gpu = self.rng.below(self.node.gpus.len());
            let which = self.rng.below(HAPPENS.len());
            HAPPENS[which](self, gpu);
            self.go_on();
        }
        if !self.node.runs() {
            self.start();
        }
        match self.rng.below(4) {
            0 => self.ends_in_trouble(),
            _ => {
                self.calm_down();
                self.check_calm()?;
                self.ends()
            }
        }
    }

    /// litd stops, or dies and is restored, while things fail; then all heals, and litd is started and stopped
    /// again.
    fn ends_in_trouble(&mut self) -> Result<(), String> {
        match self.rng.below(2) {
            0 => {
                self.node.stop();
            }
            _ => self.node.kill(),
        }
        self.node.forget_late();
        if self.rng.chance(0.5) {
            self.node.restore();
        }
        self.heal_all();
        self.node.pass(35.0);
        self.node.note("--- healed: restore");
        self.node.restore();
        self.check_after()
    }

    fn ends(&mut self) -> Result<(), String> {
        match self.rng.below(3) {
            0 => {
                let stopped = self.node.stop();
                self.node.pass(2.0);
                ensure(stopped, || "the stop does not come to an end".to_owned())?;
            }
            1 => {
                self.node.kill();
                self.node.restore();
            }
            _ => {
                self.node.kill();
                self.start();
                self.node.pass(40.0);
                let stopped = self.node.stop();
                ensure(stopped, || "the stop does not come to an end".to_owned())?;
            }
        }
        self.check_after()
    }

    fn check_after(&mut self) -> Result<(), String> {
        let hold = self.node.config.caps.on_exit == OnExit::Hold;
        let safe = self.node.config.caps.safe_budget;
        if let (true, Some(safe)) = (hold, safe) {
            // A GPU that was released is its users', and litd says that it can't lower it.
            let theirs = |it: &Past| it.hands > 0 || it.resets > 0;
            let hands = self.released || self.pasts.iter().any(theirs);
            let sum = self.node.sum();
            let floors: f64 = self
                .node
                .gpus
                .iter()
                .map(|it| self.node.config.caps.gpu_floor.0.max(it.range.lowest.0))
                .sum();
            return ensure(hands || sum <= safe.0.max(floors) + EPSILON, || {
                format!("leaves {sum} W, {safe} is safe: {:?}", self.node.caps())
            });
        }
        let kept = self.node.disk.journal_keeps();
        for (gpu, past) in self.node.gpus.iter().zip(&self.pasts) {
            let back = past.natural.iter().any(|it| (it - gpu.cap.0).abs() < 1e-6);
            let address = &gpu.identity.address;
            let shrunk = kept.contains(address) && gpu.cap == gpu.range.highest;
            ensure(back || shrunk, || {
                format!(
                    "{address} holds {} at the end, and had {:?} (journal {kept:?})",
                    gpu.cap, past.natural
                )
            })?;
        }
        Ok(())
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

    fn heal_all(&mut self) {
        for gpu in 0..self.pasts.len() {
            self.heal(gpu);
        }
        self.node.disk.fail(Faults::default());
    }

    fn calm_down(&mut self) {
        self.heal_all();
        self.node.event(Event::Unmanaged([].into()));
        self.node.note("--- calm");
        self.node.pass(75.0);
    }

    fn check_calm(&mut self) -> Result<(), String> {
        let status = self.node.status();
        let states: Vec<_> = status
            .devices
            .iter()
            .map(|it| (it.state, it.found, it.cap))
            .collect();
        self.node.note(&format!(
            "budget {}, GPUs {}, {}: {states:?}",
            status.gpus.budget, status.gpus.caps, status.node.summary
        ));
        let off = status.node.mode == Mode::Off;
        let caps = &self.node.config.caps;
        let configured = caps.budget.is_some() || caps.safe_budget.is_some();
        let has_budget = configured || status.node.lease.is_some() || self.by_command;
        if !off && has_budget {
            let states = self.node.gpus.iter().zip(&status.devices).zip(&self.pasts);
            let least: f64 = states
                .map(|((gpu, it), past)| match it.state {
                    DeviceState::Ours => gpu.cap.0.min(it.floor.0 + 5.0),
                    DeviceState::Faulty if !past.overdrawn => gpu.cap.0.min(it.floor.0 + 5.0),
                    _ => gpu.cap.0,
                })
                .sum();
            let sum = self.node.sum();
            let (budget, told) = (status.gpus.budget.0, status.gpus.caps.0);
            ensure(self.released || sum <= budget.max(least) + EPSILON, || {
                format!(
                    "GPUs hold {sum} of {budget} W, and could hold {least} W: {states:?}",
                    states = self.node.caps()
                )
            })?;
            let released = |it: &litd_api::DeviceStatus| {
                matches!(it.state, DeviceState::Released | DeviceState::Closed)
            };
            let says_so = told > budget + EPSILON || status.devices.iter().any(released);
            ensure(sum <= budget + EPSILON || says_so, || {
                format!("GPUs hold {sum} of {budget} W, and status says {told} W")
            })?;
            // No GPU holds less than there is room for, unless it is kept down for a reason.
            let reasons = status
                .devices
                .iter()
                .any(|it| it.state != DeviceState::Ours)
                || self.bound;
            let found: f64 = status
                .devices
                .iter()
                .zip(&self.node.gpus)
                .map(|(it, gpu)| it.found.map_or(0.0, |it| it.0.min(gpu.range.highest.0)))
                .sum();
            let could = budget.min(found);
            ensure(
                reasons
                    || sum >= could - 5.0 * self.pasts.len() as f64 - EPSILON
                    || self.node.config.caps.gpu_ceiling.is_some(),
                || {
                    format!(
                        "GPUs hold {sum} W, and could hold {could} W: {:?}",
                        self.node.caps()
                    )
                },
            )?;
        }
        for (past, it) in self.pasts.iter().zip(&status.devices) {
            let touched = past.hands > 0 || past.resets >= 3;
            ensure(touched || it.state != DeviceState::Foreign, || {
                format!("{} is foreign, and nobody else set its cap", it.name)
            })?;
            let natural = it
                .found
                .is_none_or(|cap| past.natural.iter().any(|it| (it - cap.0).abs() < 1e-6));
            ensure(natural, || {
                format!(
                    "{} counts as found at {:?}, and nobody but litd ever set that: {:?}",
                    it.name, it.found, past.natural
                )
            })?;
        }
        if !off && !has_budget {
            for ((gpu, past), it) in self.node.gpus.iter().zip(&self.pasts).zip(&status.devices) {
                let back = past.natural.iter().any(|it| (it - gpu.cap.0).abs() < 1e-6);
                let by_node = status.node.power.is_some();
                let closed = matches!(it.state, DeviceState::Released | DeviceState::Closed);
                ensure(back || by_node || closed, || {
                    format!(
                        "no budget, and {} ({:?}) holds {}, found {:?}",
                        it.name, it.state, gpu.cap, it.found
                    )
                })?;
            }
        }
        Ok(())
    }

    fn heal(&mut self, gpu: usize) {
        let healed = &mut self.node.gpus[gpu];
        healed.writes = Writes::Taken;
        healed.fails_reads = false;
        healed.hides_range = false;
        healed.write_takes = 0;
        healed.read_takes = 0;
        if healed.hangs {
            self.node.answers_again(gpu);
        }
    }

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
        if self.pasts[gpu].hands > 0 {
            return;
        }
        let after = self.rng.between(1, 21) * SECOND;
        self.writes(gpu, Writes::FailAndLand(after), 4);
    }

    fn slow_writes(&mut self, gpu: usize) {
        let takes = self.rng.between(0, 3000) * MS;
        self.ails(gpu, 9, |ill| ill.write_takes = takes);
    }

    fn slow_reads(&mut self, gpu: usize) {
        let takes = self.rng.between(0, 1500) * MS;
        if self.rng.chance(0.3) {
            for gpu in 0..self.pasts.len() {
                self.ails(gpu, 9, |ill| ill.read_takes = takes);
            }
        }
        self.ails(gpu, 9, |ill| ill.read_takes = takes);
    }

    fn stall(&mut self, _: usize) {
        let until = self.until(12);
        for gpu in 0..self.pasts.len() {
            self.node.gpus[gpu].hangs = true;
            self.pasts[gpu].ails_until = until;
        }
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
        self.disk_fails_until = self.until(20);
    }

    fn was_reset(&mut self, gpu: usize) {
        self.node.is_reset(gpu);
        let past = &mut self.pasts[gpu];
        past.natural.push(self.node.gpus[gpu].cap.0);
        past.resets += 1;
    }

    fn is_reset(&mut self, gpu: usize) {
        self.was_reset(gpu);
    }

    fn long_reset(&mut self, gpu: usize) {
        self.ails(gpu, 8, |ill| {
            ill.fails_reads = true;
            ill.hides_range = true;
        });
        self.node.pass(2.0 * self.rng.unit());
        self.was_reset(gpu);
    }

    fn reset_to_another_default(&mut self, gpu: usize) {
        let highest = self.rng.pick(&[700.0, 500.0, 600.0]);
        self.node.gpus[gpu].range.highest = Watts(highest);
        self.node.gpus[gpu].range.default = Watts(highest);
        self.was_reset(gpu);
    }

    fn another_hand(&mut self, gpu: usize) {
        let cap = self.rng.pick(&[700.0, 650.0, 333.0, 222.0, 250.0]);
        if cap <= self.node.gpus[gpu].range.highest.0 {
            self.node.forget_late_of(gpu);
            if self.node.gpus[gpu].writes != Writes::Taken {
                return;
            }
            self.node.by_others(gpu, cap);
            self.pasts[gpu].natural.push(cap);
            self.pasts[gpu].hands += 1;
        }
    }

    /// What was set by command is in force again after a crash, as far as the disk has it.
    fn start(&mut self) {
        self.node.start();
        self.by_command = self.node.disk.keeps_a_budget();
    }

    fn crash(&mut self, _: usize) {
        self.node.kill();
        if self.rng.chance(0.4) {
            self.node.forget_late();
            self.node.restore();
        }
        self.node.pass(2.0 * self.rng.unit());
        self.start();
    }

    fn stop_and_start(&mut self, _: usize) {
        self.node.forget_late();
        self.node.stop();
        self.node.forget_late();
        if self.rng.chance(0.5) {
            self.node.restore();
        }
        self.start();
    }

    fn released(&mut self, gpu: usize) {
        self.released = true;
        let all = self.rng.chance(0.2);
        let device = (!all).then(|| format!("gpu{gpu}"));
        let command = match self.rng.chance(0.5) {
            true if !all => release(gpu),
            true => Command::Release { device },
            false => Command::Resume { device },
        };
        let _ = self.node.command(command);
    }

    fn returned(&mut self, gpu: usize) {
        self.node.event(Event::Returned(DeviceId(gpu)));
    }

    fn job(&mut self, gpu: usize) {
        let job = "pod-x".to_owned();
        let command = match self.rng.chance(0.5) {
            true => Command::BeginJob {
                job,
                gpus: vec![gpu.to_string()],
                opt_out: true,
            },
            false => Command::EndJob {
                job,
                gpus: Vec::new(),
            },
        };
        let _ = self.node.command(command);
    }

    fn cap_by_hand(&mut self, gpu: usize) {
        let cap = self.rng.pick(&[700.0, 300.0, 400.0, 650.0, 220.0]);
        let (device, watts) = (format!("gpu{gpu}"), Watts(cap));
        if self
            .node
            .command(Command::SetCap {
                device: device.clone(),
                watts,
            })
            .is_ok()
        {
            self.pasts[gpu].natural.push(cap);
            if self.rng.chance(0.5) {
                self.node.pass(1.5);
                self.node.give_up_by_hand(&device);
            }
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

    fn reload_keys(&mut self, _: usize) {
        let mut config = self.node.config.clone();
        let gpus = self.pasts.len();
        match self.rng.below(7) {
            0 => config.caps.gpu_floor = Watts(self.rng.pick(&[200.0, 250.0, 300.0, 150.0, 210.5])),
            1 => {
                config.caps.gpu_ceiling =
                    self.rng
                        .pick(&[None, None, Some(Watts(600.0)), Some(Watts(512.3))])
            }
            2 => {
                config.caps.safe_budget = self.rng.pick(&[
                    None,
                    Some(Watts(gpus as f64 * 400.0)),
                    Some(Watts(gpus as f64 * 300.0)),
                ])
            }
            3 => {
                if config.caps.safe_budget.is_some() {
                    config.caps.on_exit = self.rng.pick(&[OnExit::Restore, OnExit::Hold]);
                }
            }
            4 => config.caps.answer_seconds = self.rng.pick(&[1.0, 5.0, 30.0]),
            5 => config.release.resume_after_seconds = self.rng.pick(&[0.0, 3.0, 20.0]),
            _ => config.caps.follow_seconds = self.rng.pick(&[1.0, 10.0]),
        }
        if config.caps.safe_budget.is_none() {
            config.caps.on_exit = OnExit::Restore;
        }
        self.node.reload(config);
    }

    fn node_power(&mut self, _: usize) {
        let gpus = self.pasts.len() as f64;
        let limit = self.rng.pick(&[
            None,
            Some(Watts(gpus * 400.0 + 500.0)),
            Some(Watts(gpus * 300.0 + 500.0)),
        ]);
        self.bound = true;
        let mut config = self.node.config.clone();
        config.node.reserve = Some(Watts(500.0));
        self.node.reload(config);
        for _ in 0..1 + self.rng.below(3) {
            let reading = NodeReading {
                source: "redfish".to_owned(),
                power: Some(Watts(gpus * 90.0 + 400.0)),
                cap: limit,
                ..NodeReading::default()
            };
            self.node.event(Event::NodePower(reading));
            self.node.pass(0.5);
        }
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

    fn journal_removed(&mut self, _: usize) {
        if self.disk_fails_until > self.node.now {
            return;
        }
        self.node.note("the journal is removed");
        self.node.disk.remove();
        self.node.pass(1.2);
    }

    fn not_in_force(&mut self, gpu: usize) {
        self.node.gpus[gpu].power = Watts(690.0);
        self.node.pass(12.0 * self.rng.unit());
        self.node.gpus[gpu].power = Watts(90.0);
        self.pasts[gpu].overdrawn = true;
    }

    fn paused(&mut self, _: usize) {
        let seconds = self.rng.pick(&[1.0, 5.0, 40.0]);
        self.node.paused(seconds);
    }

    fn killed_in_the_end(&mut self, _: usize) {
        self.node.forget_late();
        let restores = self.rng.chance(0.5);
        let seconds = self.rng.pick(&[0.1, 0.5, 2.0, 6.0]);
        self.node.killed_in_the_end(restores, seconds);
        self.node.forget_late();
        self.start();
    }

    fn unmanaged(&mut self, _: usize) {
        let there = self.rng.chance(0.5).then(|| "0000:f1:00.0".to_owned());
        self.node
            .event(Event::Unmanaged(there.into_iter().collect()));
    }
}

fn history(seed: u64) -> Outcome {
    let mut history = Hard::new(seed);
    let outcome = history.run();
    (std::mem::take(&mut history.node.log), outcome)
}

#[test]
fn hard_in_any_order() {
    seeds::none_is_bad(history);
}
