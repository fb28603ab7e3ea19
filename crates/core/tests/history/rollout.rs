//! Kill switches and leases, and their rules. The model works out mode and budget by itself.

use litd_api::{Command, Lease, Mode};
use litd_core::Event;
use litd_units::Watts;

use crate::fault::Fault;
use crate::hardware::{SECOND, micro};
use crate::world::{Ev, World};

/// A kill switch is honoured within so long.
const KILLED: i64 = 5 * SECOND;

/// Rules besides the configuration.
#[derive(Debug, Default)]
pub struct Rule {
    /// Since when a kill switch is there.
    pub killed: Option<i64>,
    /// A lease: mode, budget, and when it ends by the daemon's clock.
    pub lease: Option<(Option<Mode>, Option<Watts>, i64)>,
    /// When a lease last began, changed or ended.
    pub changed: i64,
}

impl World {
    /// The daemon's expected mode.
    pub fn mode(&self) -> Mode {
        let lease = self.rule.lease.as_ref();
        if self.rule.killed.is_some() || self.config.mode == Mode::Off {
            return Mode::Off;
        }
        match lease.and_then(|it| it.0).unwrap_or(self.config.mode) {
            // No node is named, and 0 of 100 are on.
            Mode::Canary => Mode::Observe,
            mode => mode,
        }
    }

    /// The budget of a lease, or the safe one where none names one.
    pub fn lent_budget(&self) -> Option<Watts> {
        let lease = self.rule.lease.as_ref();
        let lent = lease.and_then(|(_, budget, _)| *budget);
        lent.or(self.config.caps.safe_budget)
    }

    pub fn kill_switch(&mut self) {
        if self.core.is_none() {
            return;
        }
        let before = self.limit();
        let since = self.now;
        let on = self.rule.killed.is_none();
        self.rule.killed = on.then_some(since);
        self.was_reconfigured(before);
        self.seen.mark(Fault::KillSwitch);
        self.mode_changed();
        self.tell(Event::KillSwitch(on.then(|| "maintenance".to_owned())));
        if on {
            self.after(KILLED, Ev::Killed { since });
            let later = self.rng.between(1, 12) * SECOND;
            self.after(later, Ev::Fault(Fault::KillSwitch));
        }
    }

    /// A device that is litd's again may take a moment to come down.
    pub fn mode_changed(&mut self) {
        let ours = (0..self.hw.len()).filter(|&it| !self.hw[it].let_go);
        for device in ours.collect::<Vec<_>>() {
            if self.mode() != Mode::Off {
                self.was_taken_back(device);
            }
        }
    }

    /// All caps are back, and nothing is open.
    pub fn check_killed(&mut self, since: i64) {
        if self.rule.killed != Some(since) || self.stop_sent.is_some() {
            return;
        }
        let Some(status) = self.status() else { return };
        if status.node.mode != Mode::Off || !status.node.summary.contains("maintenance") {
            let text = format!("{:?}: {}", status.node.mode, status.node.summary);
            return self.broke("13 kill switch", text);
        }
        let sound = self.disk.with(|disk| disk.was_sound());
        let well = self
            .hw
            .iter()
            .all(|hw| hw.trouble_until < since && !hw.misbehaves(self.now));
        // A foreign change during a restore may look like a driver's rounding.
        let alone = self.ledger.last_hand < since;
        let young = since < self.started + 5 * SECOND || !alone;
        if !sound || !well || young || self.seen.has(Fault::ClockJump) || self.ledger.rotten {
            return;
        }
        let left = (0..self.hw.len()).find(|&device| {
            let hw = &self.hw[device];
            let back = hw.natural.contains(&hw.cap) || self.is_held(device);
            !back || (hw.hold.open && hw.op.is_none())
        });
        if let Some(device) = left {
            let hw = &self.hw[device];
            let text = format!("device {device}: {} µW, open: {}", hw.cap, hw.hold.open);
            self.broke("13 kill switch", text);
        }
    }

    pub fn lease(&mut self) {
        let Some(status) = self.status() else { return };
        if self.stop_sent.is_some() {
            return;
        }
        let gpus = status
            .devices
            .iter()
            .filter(|it| it.name.starts_with("gpu"));
        let (mut floors, mut ceilings) = (Watts::ZERO, Watts::ZERO);
        for gpu in gpus {
            floors += gpu.floor;
            ceilings += gpu.ceiling;
        }
        let share = self.rng.unit();
        let budget = floors + (ceilings * 1.1 - floors).max(Watts::ZERO) * share;
        let modes = [
            Mode::Off,
            Mode::Observe,
            Mode::Canary,
            Mode::Steer,
            Mode::Steer,
        ];
        let lease = Lease {
            controller: "fleet".to_owned(),
            seconds: self.rng.between(1000, 20_000) as f64 / 1e3,
            mode: self.rng.chance(0.5).then(|| self.rng.pick(&modes)),
            budget: self.rng.chance(0.7).then_some(budget),
        };
        let command = match self.rng.chance(0.15) {
            true => Command::EndLease,
            false => Command::Lease(lease),
        };
        let before = self.limit();
        match self.ask(&command) {
            Some(Ok(_)) => {}
            Some(Err(problem)) if problem.error.contains("; the present lease of ") => {
                self.lease_goes_on();
                return self.act();
            }
            _ => return self.act(),
        }
        self.seen.mark(Fault::Lease);
        self.rule.lease = match &command {
            Command::Lease(lease) => {
                let until = self.clock().0 + (lease.seconds * 1e9) as i64;
                let late = (lease.seconds * 1e9) as i64 + 3 * SECOND;
                self.after(late, Ev::LeaseEnds);
                Some((lease.mode, lease.budget, until))
            }
            _ => None,
        };
        self.rules_anew(before);
        self.act();
    }

    /// The request can't be kept: the present lease lasts as long as this one would have.
    fn lease_goes_on(&mut self) {
        let now = self.clock().0;
        let status = self.status().and_then(|it| it.node.lease.clone());
        let left = status.map_or(0, |it| (it.remaining_seconds * 1e9) as i64);
        if let Some(lease) = &mut self.rule.lease {
            lease.2 = lease.2.max(now + left);
            self.after(left + 3 * SECOND, Ev::LeaseEnds);
        }
    }

    fn rules_anew(&mut self, before: i64) {
        self.rule.changed = self.now;
        self.ledger.reason = true;
        self.was_reconfigured(before);
        self.mode_changed();
    }

    /// A lease whose time is over rules no longer; the daemon may have a round to notice.
    pub fn lease_ends(&mut self) {
        let now = self.clock().0;
        let over = |it: &(Option<Mode>, Option<Watts>, i64)| now >= it.2;
        if !self.rule.lease.as_ref().is_some_and(over) {
            return;
        }
        let before = self.limit();
        let Some(status) = self.status() else {
            self.rule.lease = None;
            return;
        };
        if let Some(lease) = &status.node.lease {
            // litd notices within a round.
            let until = self.rule.lease.as_ref().map_or(now, |it| it.2);
            if now > until + 2 * SECOND {
                return self.broke("14 lease", format!("{lease:?} should be over"));
            }
            return;
        }
        self.rule.lease = None;
        self.rules_anew(before);
    }

    /// The least of the budgets that were set.
    pub fn least_budget(&self, own: Option<Watts>) -> Option<Watts> {
        let lent = self.lent_budget();
        let least = own.into_iter().chain(lent).map(micro).min();
        least.map(crate::hardware::whole)
    }
}
