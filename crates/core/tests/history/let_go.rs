//! Devices that are let go of, and the rules for them: within 5 s the cap is back and every handle
//! is closed, or litd says why not; nothing opens one again that has nothing to be undone; and it
//! is taken back when that was asked for, when it returned, or after the time configured.

use litd_api::{Command, DeviceState};
use litd_core::{DeviceId, Event, Operation};

use crate::fault::Fault;
use crate::hardware::{MILLI, SECOND, micro};
use crate::world::{Ev, World};

/// An administrator is answered within so long.
const ANSWERED: i64 = 5 * SECOND;

/// A write that failed may be done for so long.
pub const LATE: i64 = 30 * SECOND;

/// The model of a release of one device.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hold {
    /// Whether the daemon has it open.
    pub open: bool,
    /// When the daemon was told to let go: in the world's time and in the daemon's.
    pub since: (i64, i64),
    /// The daemon was told that it has returned, and takes back what does.
    pub returned: bool,
}

impl World {
    /// The daemon was told to let go of a device.
    pub fn was_let_go(&mut self, device: usize) {
        let since = (self.now, self.clock().0);
        let hw = &mut self.hw[device];
        hw.let_go = true;
        (hw.hold.since, hw.hold.returned) = (since, false);
        let since = self.now;
        self.after(ANSWERED, Ev::LetGo { device, since });
    }

    /// A device returns from a reset, or with another driver.
    pub fn device_returns(&mut self) {
        if self.core.is_none() || self.stop_sent.is_some() {
            return;
        }
        let let_go = (0..self.hw.len()).filter(|&it| self.hw[it].let_go);
        let let_go: Vec<usize> = let_go.collect();
        if let_go.is_empty() {
            let device = self.rng.below(self.hw.len());
            let device = Some(self.hw[device].identity.address.clone());
            self.command(Command::Release { device }, false);
            let later = self.rng.between(500, 6000) * MILLI;
            return self.after(later, Ev::Fault(Fault::Returned));
        }
        let device = self.rng.pick(&let_go);
        if self.hw[device].op.is_none() {
            self.reset(device);
        }
        self.seen.mark(Fault::Returned);
        // The configuration of that moment counts.
        if self.config.release.resume_on_return {
            let hw = &mut self.hw[device];
            (hw.hold.returned, hw.let_go_for_good) = (true, false);
        }
        if !self.hw[device].absent {
            let place = self.hw[device].place;
            self.tell(Event::Returned(DeviceId(place)));
        }
    }

    /// Checks devices that were taken back, after every event.
    pub fn watch_let_go(&mut self) {
        if !self.hw.iter().any(|hw| hw.let_go || hw.let_go_for_good) {
            return;
        }
        let Some(status) = self.status() else { return };
        let states = self.here.iter().copied().zip(&status.devices);
        let states: Vec<(usize, DeviceState)> = states.map(|(at, it)| (at, it.state)).collect();
        let release = self.config.release.clone();
        let after = (release.resume_after_seconds * 1e9) as i64;
        for (device, state) in states {
            let hw = &self.hw[device];
            // A daemon that was not told itself may know of it from the one before.
            // One that is off lets go of all.
            let is_off = self.mode() == litd_api::Mode::Off;
            if hw.let_go_for_good && !hw.let_go && state == DeviceState::Released && !is_off {
                self.was_let_go(device);
            }
            let hw = &self.hw[device];
            if !hw.let_go || matches!(state, DeviceState::Released | DeviceState::Closed) {
                continue;
            }
            if self.rule.killed.is_some() {
                continue;
            }
            let waited = after > 0 && self.clock().0 >= hw.hold.since.1 + after;
            if !waited && !hw.hold.returned {
                return self.broke(
                    "9 let go",
                    format!("device {device} is {state:?} by itself"),
                );
            }
            self.was_taken_back(device);
        }
    }

    /// A device begins something.
    pub fn opens(&mut self, device: usize, operation: Operation) {
        if operation == Operation::Release {
            return;
        }
        // A disk that takes no writes can't be told that nothing is owed any more.
        let owed = self.is_in_journal(device) || !self.hw[device].hand.failed.is_empty();
        let owed = owed || self.now < self.ledger.unsure_until;
        let troubled = self
            .core
            .as_ref()
            .is_some_and(|core| core.journal_trouble().is_some());
        let away = !self.hw[device].natural.contains(&self.hw[device].cap);
        let owed = owed || troubled || away;
        let hw = &mut self.hw[device];
        hw.hold.open = true;
        if hw.let_go && !owed {
            self.broke(
                "9 let go",
                format!("device {device} is opened: {operation:?}"),
            );
        }
    }

    /// An administrator has waited for 5 s.
    pub fn check_let_go(&mut self, device: usize, since: i64) {
        let hw = &self.hw[device];
        let Some(core) = &self.core else { return };
        if !hw.let_go || hw.hold.since.0 != since || self.stop_sent.is_some() {
            return;
        }
        let answer = core.letting_go(Some(&hw.identity.address));
        // A device that is released because litd is off is not given up.
        if hw.hold.open && hw.op.is_none() && self.mode() != litd_api::Mode::Off {
            return self.broke("9 let go", format!("device {device} is open: {answer:?}"));
        }
        let well = |device: usize| {
            let hw = &self.hw[device];
            !hw.misbehaves(self.now) && hw.trouble_until < since
        };
        // Without the audit log no other cap is lowered to make room for this one.
        let sound = self.disk.with(|disk| disk.all_failures() == (0, 0, 0));
        let young = since < self.started + 5 * SECOND;
        // An entry lost with a damaged journal can't come back.
        let unknown = self.ledger.rotten || self.seen.has(Fault::ClockJump);
        if !(0..self.hw.len()).all(well) || !sound || young || unknown {
            return;
        }
        // A budget that was set holds whatever goes back.
        let gpus = self.hw.iter().filter(|hw| hw.is_gpu());
        let found: i64 = gpus.filter_map(|hw| hw.natural.iter().max()).sum();
        let less = self.budget_set().is_some_and(|it| micro(it) < found);
        // Nor does what others have set since make room for what did not fit before: nobody looks
        // at what is closed.
        if less || self.rule.changed >= since || self.ledger.last_hand >= since {
            return;
        }
        // The effect of a failed write stays possible.
        let failed = hw.failed_at.max(hw.not_done_at);
        let late = failed.is_some_and(|at| since <= at + LATE);
        // So does what a predecessor has left.
        let late = late || self.epoch > 0 && since < self.started + LATE;
        let late = late || hw.lock_failed_at.is_some_and(|at| since <= at + LATE);
        // Clocks are free as well, but for a lock that was done after they had been freed once more.
        let free = hw.clocks.is_none() || hw.locked_after_all.is_some_and(|at| at >= since);
        let back = free && hw.natural.contains(&hw.cap) && (late || !self.is_in_journal(device));
        if !back {
            self.broke(
                "9 let go",
                format!("device {device} is not back: {answer:?}"),
            );
        }
    }
}
