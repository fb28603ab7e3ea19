//! Faults of the matrix: what goes wrong, and what litd is made to do meanwhile.

use std::collections::BTreeSet;

use litd_core::config::OnExit;
use litd_core::{Home, Operation};
use litd_power::Holder;

use crate::discovery::Odd;
use crate::fault::Fault;
use crate::hardware::{Anothers, Op, SECOND, micro, whole};
use crate::matrix::{Cell, Manner, Phase, Subject, subjects};
use crate::world::{Ev, World};

/// A reload is one for so long, letting go of a device is.
const MOMENT: i64 = 2 * SECOND;

/// A predecessor's caps are being undone for so long.
const RECOVERY: i64 = 3 * SECOND;

/// An answer that takes longer is a slow one.
const SLOW: i64 = SECOND / 2;

impl World {
    /// litd's present activity, for a device or for all.
    pub fn phase(&self, device: Option<usize>) -> Phase {
        let now = self.now;
        let lets_go = |hw: &crate::hardware::Hw| {
            hw.let_go && (hw.hold.open || now < hw.hold.since.0 + MOMENT)
        };
        let drains = match device {
            Some(device) => lets_go(&self.hw[device]),
            None => self.hw.iter().any(lets_go),
        };
        match self.life {
            Phase::Restore => Phase::Restore,
            _ if self.stop_sent.is_some() => Phase::Stop,
            life if self.core.is_none() => life,
            Phase::Recovery if now < self.started + RECOVERY => Phase::Recovery,
            _ if drains => Phase::Drain,
            _ if now < self.reloaded + MOMENT => Phase::Reload,
            _ if self.policy() == litd_policies::Policy::Observe => Phase::Observe,
            _ => Phase::Steer,
        }
    }

    /// A cell of the matrix is met.
    pub fn met(&mut self, subject: Subject, manner: Manner, device: Option<usize>) {
        let phase = self.phase(device);
        self.met.mark(Cell {
            subject,
            manner,
            phase,
        });
    }

    /// A device answers: what is wrong with that.
    pub fn meets(&mut self, device: usize, op: Op) {
        let now = self.now;
        let hw = &self.hw[device];
        let moods = &hw.moods;
        let odd = moods.odd_range.filter(|&(_, until)| now < until);
        let anothers = moods.anothers.filter(|&(_, until)| now < until);
        let mut met = Vec::new();
        let subjects = subjects(op.operation);
        let fails = match op.operation {
            Operation::Read => now < moods.flaky,
            Operation::Set(_) | Operation::Clocks(_) | Operation::HighestClock => {
                now < moods.refuses
            }
            Operation::Identify | Operation::Range => now < moods.no_range,
            Operation::Holders => now < moods.no_holders,
            Operation::Release => false,
        };
        for &subject in subjects {
            if hw.gone {
                met.push((subject, Manner::Gone));
            } else if fails {
                met.push((subject, Manner::Error));
            }
            if now >= op.since + SLOW {
                met.push((subject, Manner::Slow));
            }
        }
        let odd_reading = now < moods.odd;
        let odd_write = now < moods.lies || now < moods.overshoots;
        match (op.operation, odd, anothers) {
            (Operation::Read, ..) if odd_reading => met.push((Subject::Reading, Manner::Nonsense)),
            (Operation::Read, _, Some((Anothers::Cap(_), _))) => {
                met.push((Subject::Reading, Manner::Anothers));
            }
            (Operation::Set(_), ..) if odd_write => met.push((Subject::Set, Manner::Nonsense)),
            (Operation::Identify, _, Some((Anothers::Address(_), _))) => {
                met.push((Subject::Identity, Manner::Anothers));
            }
            (Operation::Identify, _, Some((Anothers::Kind, _))) => {
                met.push((Subject::Identity, Manner::Nonsense));
            }
            (Operation::Identify | Operation::Range, Some((Odd::Anothers(_), _)), _) => {
                met.push((Subject::Range, Manner::Anothers));
            }
            (Operation::Identify | Operation::Range, Some(_), _) => {
                met.push((Subject::Range, Manner::Nonsense));
            }
            (Operation::Identify | Operation::Range, ..)
                if hw.range_told.is_some_and(|it| it != hw.range) =>
            {
                met.push((Subject::Range, Manner::Changed));
            }
            (Operation::Clocks(_), ..) if now < moods.lies => {
                met.push((Subject::Clocks, Manner::Nonsense));
            }
            (Operation::Holders, ..) if now < moods.odd_holders => {
                met.push((Subject::Holders, Manner::Nonsense));
            }
            (Operation::Holders, _, Some((Anothers::Holders(_), _))) => {
                met.push((Subject::Holders, Manner::Anothers));
            }
            _ => {}
        }
        for (subject, manner) in met {
            self.met(subject, manner, Some(device));
        }
    }

    /// The holders that a device tells.
    pub fn told_holders(&mut self, device: usize, holders: Vec<Holder>) -> Vec<Holder> {
        let now = self.now;
        let moods = &self.hw[device].moods;
        let told = match moods.anothers.filter(|&(_, until)| now < until) {
            _ if now < moods.odd_holders => {
                let odd = [(0, u32::MAX), (u32::MAX, 0), (u32::MAX, 0), (0, 0)];
                odd.map(|(pid, uid)| Holder::new(pid, uid)).to_vec()
            }
            Some((Anothers::Holders(other), _)) => self.hw[other].alive(now),
            _ => holders,
        };
        let pod = |it: &Holder| Home::of(&it.cgroup).filter(Home::is_pod);
        let users: BTreeSet<_> = told.iter().map(|it| (it.uid, pod(it))).collect();
        self.hw[device].users_told = users.len() > 1;
        told
    }

    /// The cap of another device that it tells, once.
    pub fn anothers_cap(&mut self, device: usize) -> Option<i64> {
        let moods = &mut self.hw[device].moods;
        match moods.anothers {
            Some((Anothers::Cap(cap), until)) if self.now < until => {
                moods.anothers = None;
                self.met(Subject::Reading, Manner::Anothers, Some(device));
                Some(cap)
            }
            _ => None,
        }
    }

    /// A fault of the matrix.
    pub fn provoke(&mut self, fault: Fault) {
        let device = self.fates.below(self.hw.len());
        let lasts = self.fates.pick(&[SECOND, 3 * SECOND, 12 * SECOND]);
        let until = self.now + lasts;
        match fault {
            Fault::Aimed => return self.aim(),
            Fault::HandInside => return self.wait_for_litd(),
            Fault::ReloadAny => return self.reload_any(),
            Fault::OddRange => {
                let another = self.another(device);
                let range = another.map_or(self.hw[device].range, |it| self.hw[it].range);
                let odd = Odd::draw(&mut self.fates, range);
                self.hw[device].moods.odd_range = Some((odd, until));
                self.reset_by(device);
            }
            Fault::Shrunk => self.shrink(device),
            Fault::Replaced => self.replace_part(device),
            Fault::AnothersTold => {
                let Some(other) = self.another(device) else {
                    return;
                };
                let what = self.fates.below(2);
                let told = match what {
                    0 => Anothers::Address(other),
                    _ => Anothers::Cap(self.hw[other].cap),
                };
                self.hw[device].moods.anothers = Some((told, until));
                if what == 0 {
                    self.reset_by(device);
                }
            }
            _ => return,
        }
        self.seen.mark(fault);
        self.trouble(device, lasts);
    }

    /// A device is reset, by a fault that is drawn from the fates.
    pub fn reset_by(&mut self, device: usize) {
        let cap = micro(self.hw[device].range.default);
        self.foreign(device, cap);
    }

    /// The highest cap that a driver takes is lower than what was found.
    pub fn shrink(&mut self, device: usize) {
        let hw = &mut self.hw[device];
        let found = hw.natural.last().copied().unwrap_or(hw.cap);
        let highest = (found * 4 / 5).max(micro(hw.range.lowest) + 1_000_000);
        let highest = highest / 1_000_000 * 1_000_000;
        hw.range.highest = whole(highest);
        hw.range.default = hw.range.default.min(hw.range.highest);
        hw.shrunk = true;
        let cap = micro(hw.range.default);
        self.foreign(device, cap);
    }

    /// Another part is in its place.
    pub fn replace_part(&mut self, device: usize) {
        let epoch = self.serial;
        let hw = &mut self.hw[device];
        let serial = &mut hw.identity.serial;
        *serial = serial.take().map(|old| format!("{old}-{epoch}"));
        let cap = micro(hw.range.default);
        self.met(Subject::Identity, Manner::Changed, Some(device));
        self.foreign(device, cap);
    }

    /// The daemon that ends is followed by another, or by `litd restore` first.
    pub fn succeed(&mut self, pause: i64) {
        let restores = !self.is_clean && self.fates.chance(0.3);
        match restores {
            true => self.after(pause, Ev::Restore),
            false => self.after(pause, Ev::Start),
        }
    }

    /// The last daemon has stopped: what was not back by then is once all devices are themselves
    /// again and `litd restore` has run.
    pub fn end(&mut self) {
        self.disk.with(crate::disk::Platter::heal);
        for hw in &mut self.hw {
            (hw.gone, hw.moods, hw.op) = (false, Default::default(), None);
        }
        let known = self.recovered();
        let left = !known.entries.is_empty() || !known.clocks.is_empty();
        // Caps that litd held until now are restored in the end: the caps found are still known.
        let held = self.ends == 1 && self.config.caps.on_exit == OnExit::Hold;
        if held {
            self.config.caps.on_exit = OnExit::Restore;
        }
        if left && (self.ends == 0 || held) {
            self.ends += 1;
            return self.after(2 * SECOND, Ev::Restore);
        }
        self.done = true;
        for hw in &mut self.hw {
            (hw.absent, hw.trouble_until) = (false, i64::MIN);
        }
        self.check_clocks("12 end");
        let away = self.hw.iter().find(|hw| {
            let excused = hw.shrunk || self.ledger.rotten;
            !excused && !hw.natural.contains(&hw.cap)
        });
        if let Some(hw) = away {
            let text = format!(
                "{} holds {} µW in the end, {:?} was found",
                hw.identity.address, hw.cap, hw.natural
            );
            self.broke("5 end", text);
        }
    }
}
