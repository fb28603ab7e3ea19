//! Clocks that jobs ask for: only those, only where the journal says so first, and free in the
//! end.

use litd_api::Mode;
use litd_core::Operation;
use litd_power::{ClockRange, PowerError};
use litd_proto::{FromHook, SetClock};
use litd_units::Hertz;

use crate::fault::Fault;
use crate::hardware::{HIGHEST_CLOCK, MILLI, SECOND};
use crate::ledger::Bounds;
use crate::let_go::LATE;
use crate::matrix::{Manner, Subject};
use crate::world::{Ev, World};

/// A rank asks for another clock in so many of its iterations.
const OFTEN: f64 = 0.3;

/// Whole MHz.
pub fn mega(clock: Hertz) -> u32 {
    (clock.0 / 1e6).round() as u32
}

fn locked_to(operation: Operation) -> Option<Option<u32>> {
    let range = |range: Option<ClockRange>| range.map(|range| mega(range.highest));
    match operation {
        Operation::Clocks(asked) => Some(range(asked)),
        _ => None,
    }
}

impl World {
    /// Further frames of a rank that follows a plan, in an iteration.
    pub fn clock_frames(&mut self, rank: usize) -> Vec<Vec<u8>> {
        if !self.hooks.ranks[rank].planned || !self.rng.chance(OFTEN) {
            return Vec::new();
        }
        // Two at once: the first may never be done.
        let clocks = [0, 1].map(|_| self.rng.pick(&[0, 300, 900, 1200, HIGHEST_CLOCK]));
        // Most plans have one clock only: what it needs is soon known.
        let job = &self.hooks.jobs[self.hooks.ranks[rank].job];
        let steady = job.length < 900.0;
        let clocks = clocks.map(|clock| if steady && clock > 300 { 900 } else { clock });
        let device = self.hooks.ranks[rank].device;
        self.hw[device].wishes.extend(clocks);
        let frame = |megahertz: u32| {
            let clock = (megahertz > 0).then(|| Hertz(f64::from(megahertz) * 1e6));
            FromHook::SetClock(SetClock { clock }).encode()
        };
        clocks.map(frame).to_vec()
    }

    /// litd is about to have clocks locked or freed.
    pub fn begin_clocks(&mut self, device: usize, operation: Operation, takes: i64, serial: u64) {
        let Some(asked) = locked_to(operation) else {
            return;
        };
        if let Some(clock) = asked {
            self.check_lock(device, clock);
        }
        let (boot, epoch) = (self.boot, self.epoch);
        let lands = (takes as f64 * self.rng.unit()) as i64;
        let event = Ev::LandClocks {
            device,
            serial,
            clock: asked,
            boot,
            epoch,
        };
        self.after(lands, event);
    }

    /// No cap comes down below what the clock that is locked now needs, unless it goes back to what
    /// was found, or there is less for all.
    pub fn check_planned(
        &mut self,
        device: usize,
        (cap, found): (i64, i64),
        bounds: &Bounds,
        tight: bool,
    ) {
        let hw = &self.hw[device];
        let Some(needs) = hw.needs().filter(|_| hw.clocks_epoch == self.epoch) else {
            return;
        };
        // Where what is held is not a whole number of driver units, the cap is cut to one.
        let here = |&rank: &usize| {
            let rank = &self.hooks.ranks[rank];
            rank.welcomed && !rank.left
        };
        let on = |&rank: &usize| self.hooks.ranks[rank].device == device;
        let mut jobs = self.hooks.jobs.iter();
        // Of a job that is not whole nothing is kept.
        let is_there = jobs.any(|job| job.ranks.iter().any(on) && job.ranks.iter().all(here));
        if cap > hw.cap - bounds.unit || tight || !is_there {
            return;
        }
        self.seen.mark(Fault::ClocksLowered);
        let ceiling = bounds.ceiling - bounds.ceiling % bounds.unit;
        // Where what was found is not enough for this clock, what the device holds beyond that was the
        // others': they may have it back.
        let lent = needs > found && cap >= found;
        // Nor can anybody measure the needs of one that is short already: it draws what its cap lets it.
        let was_short = hw.cap < needs.min(ceiling);
        if cap < needs.min(ceiling) && !lent && !was_short {
            let text = format!(
                "device {device}: {} W is less than the {} W that its {:?} MHz need",
                cap as f64 / 1e6,
                needs as f64 / 1e6,
                hw.clocks
            );
            self.broke("14 planned", text);
        }
    }

    fn check_lock(&mut self, device: usize, clock: u32) {
        let address = self.hw[device].identity.address.clone();
        if !self.recovered().may_be_locked(&address) {
            self.broke("12 journal", format!("clocks of device {device}"));
        } else if self.mode() != Mode::Steer || self.stop_sent.is_some() {
            self.broke("12 observe", format!("clocks of device {device}"));
        } else if self.hw[device].spared.is_some() {
            self.broke("15 opted out", format!("clocks of device {device}"));
        } else if f64::from(clock) < self.config.clocks.floor_share * f64::from(HIGHEST_CLOCK) {
            let text = format!("device {device}: {clock} MHz");
            self.broke("12 clock floor", text);
        } else if self.hw[device].users_told {
            self.broke("12 shared", format!("clocks of device {device}"));
        } else if !self.hw[device].wishes.contains(&clock) {
            let text = format!("device {device}: nobody asked for {clock} MHz");
            self.broke("12 whose", text);
        }
    }

    /// A lock, or its end, reaches the device.
    pub fn land_clocks(&mut self, device: usize, serial: u64, clock: Option<u32>, epoch: u32) {
        let now = self.now;
        // Now and then a lock fails out of the blue.
        let fails = clock.is_some() && self.fates.chance(0.01);
        let hw = &mut self.hw[device];
        let refused = hw.gone || now < hw.moods.refuses || fails;
        let taken = hw.clocks_taken;
        let outcome = match refused {
            true => Err(PowerError::Driver {
                device: hw.identity.address.clone(),
                action: "locking clocks",
                cause: "refused".to_owned(),
            }),
            false if hw.is_clockless => Err(PowerError::Unsupported {
                device: hw.identity.address.clone(),
                action: "locking clocks",
                cause: "too old".to_owned(),
            }),
            // The driver reports success and has done nothing; unlocked clocks are unlocked.
            false if clock.is_some() && now < hw.moods.lies => Ok(()),
            false => {
                (hw.clocks, hw.clocks_epoch, hw.clocks_taken) = (clock, epoch, false);
                Ok(())
            }
        };
        if outcome.is_ok() && clock.is_some() {
            self.seen.mark(Fault::Clocks);
        }
        // A late lock of a dead daemon belongs to no phase of the next one.
        if outcome.is_ok() && taken && self.core.is_some() {
            self.met(Subject::Clocks, Manner::Changed, Some(device));
        }
        if let (Err(PowerError::Driver { .. }), Some(clock)) = (&outcome, clock)
            && self.fates.chance(0.5)
        {
            self.hw[device].lock_failed_at = Some(now);
            let later = self.fates.between(1000, 25_000) * MILLI;
            let boot = self.boot;
            let event = Ev::LockAfterAll {
                device,
                clock,
                boot,
                epoch,
            };
            self.after(later, event);
        }
        self.note(|| format!("    device {device} has clocks {clock:?}: {outcome:?}"));
        if epoch == self.epoch {
            self.results.insert(serial, outcome);
        }
    }

    /// A lock that was called failed is done all the same.
    pub fn lock_after_all(&mut self, device: usize, clock: u32) {
        let hw = &mut self.hw[device];
        if hw.absent || hw.gone {
            return;
        }
        // The power of that clock is not the one that litd keeps for it.
        (hw.clocks, hw.clocks_epoch, hw.clocks_taken) = (Some(clock), u32::MAX, false);
        hw.locked_after_all = Some(self.now);
        self.seen.mark(Fault::LockAfterAll);
        self.note(|| format!("    device {device} is locked to {clock} MHz after all"));
    }

    /// No lock outlives its job, or the daemon; what a device or the journal never took back is
    /// excused.
    pub fn check_clocks(&mut self, when: &str) {
        if self.ledger.rotten {
            return;
        }
        let now = self.now;
        let journaled = self.recovered();
        // A lock that failed may be done until then: litd looks after it once it can't be any more, and at a stop.
        // What is done after that the journal knows.
        // So it does of one that was let go of or whose job opts out, and that litd looks after once it is its own again.
        let waits = |hw: &crate::hardware::Hw| {
            let known = journaled.may_be_locked(&hw.identity.address);
            match self.stop_sent {
                None => {
                    let failed = hw.lock_failed_at;
                    let is_left = known && (hw.let_go || hw.spared.is_some());
                    is_left || failed.is_some_and(|at| now <= at + LATE + 2 * SECOND)
                }
                Some(stop) => known && hw.locked_after_all.is_some_and(|at| at >= stop),
            }
        };
        let locked = |hw: &&crate::hardware::Hw| {
            let well = !hw.misbehaves(now) && now >= hw.trouble_until;
            let waits = waits(hw);
            hw.clocks.is_some() && well && !waits && !hw.absent
        };
        let text = self
            .hw
            .iter()
            .find(locked)
            .map(|hw| format!("{} is locked to {:?} MHz", hw.identity.address, hw.clocks));
        if let Some(text) = text {
            self.broke(when, text);
        }
    }

    /// The daemon died: what it began lands soon, or never.
    pub fn land_soon(&mut self, at: i64) -> i64 {
        let soon = self.now + self.rng.between(0, 1500) * MILLI;
        soon.min(at.max(self.now + 700 * MILLI))
    }
}
