//! Foreign hands inside operations: while a device looks, writes, reads back, reads, tells who it is
//! or closes its handles. A write is done as `litd_power`'s worker does it: it looks whether the
//! device still holds what was seen last, writes, and reads back.

use litd_core::Operation;
use litd_power::PowerError;

use crate::fault::Fault;
use crate::hardware::{Op, SECOND, micro, whole};
use crate::matrix::{Manner, Subject};
use crate::world::{Ev, World};

/// When within an operation somebody else sets a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Before a write has looked.
    BeforeLook,
    /// Between its look and its write: what was set is overwritten, and nobody can know.
    BeforeWrite,
    /// Between its write and its reading back.
    BeforeReadBack,
    /// While sensors are read.
    Reading,
    /// While it tells who it is and what its cap may be.
    Identifying,
    /// While it tells who holds it.
    Holders,
    /// While its clocks are set.
    Clocks,
    /// While its handles are closed.
    Closing,
}

impl Moment {
    pub const ALL: [Self; 8] = [
        Self::BeforeLook,
        Self::BeforeWrite,
        Self::BeforeReadBack,
        Self::Reading,
        Self::Identifying,
        Self::Holders,
        Self::Clocks,
        Self::Closing,
    ];

    fn subject(self) -> Subject {
        match self {
            Self::BeforeLook | Self::BeforeWrite | Self::BeforeReadBack => Subject::Set,
            Self::Reading | Self::Closing => Subject::Reading,
            Self::Identifying => Subject::Identity,
            Self::Holders => Subject::Holders,
            Self::Clocks => Subject::Clocks,
        }
    }

    fn is_in(self, operation: Operation) -> bool {
        let moments: &[Self] = match operation {
            Operation::Set(_) => &[Self::BeforeLook, Self::BeforeWrite, Self::BeforeReadBack],
            Operation::Read => &[Self::Reading],
            Operation::Identify | Operation::Range => &[Self::Identifying],
            Operation::Holders => &[Self::Holders],
            Operation::Clocks(_) | Operation::HighestClock => &[Self::Clocks],
            Operation::Release => &[Self::Closing],
        };
        moments.contains(&self)
    }
}

/// A rival that waits for a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trap {
    pub moment: Moment,
    /// No longer than until then.
    pub until: i64,
}

impl World {
    /// A rival waits at a device, or at all of them, for litd to do something there.
    pub fn wait_for_litd(&mut self) {
        let until = self.now + self.fates.between(2, 20) * SECOND;
        let moment = match self.fates.chance(0.5) {
            true => Moment::BeforeReadBack,
            false => self.fates.pick(&Moment::ALL),
        };
        let device = self.fates.below(self.hw.len());
        let all = self.fates.chance(0.4);
        for (at, hw) in self.hw.iter_mut().enumerate() {
            if all || at == device {
                hw.trap = Some(Trap { moment, until });
            }
        }
    }

    /// A device has begun something that somebody may have waited for.
    pub fn spring(&mut self, device: usize, op: Op, takes: i64) {
        let Some(trap) = self.hw[device].trap else {
            return;
        };
        if self.now > trap.until {
            self.hw[device].trap = None;
            return;
        }
        if !trap.moment.is_in(op.operation) {
            return;
        }
        // A single foreign change is enough, wherever else the rival waited.
        for hw in &mut self.hw {
            hw.trap = None;
        }
        let (from, until) = match trap.moment {
            Moment::BeforeLook => (0, op.looks),
            Moment::BeforeWrite => (op.looks, op.lands),
            Moment::BeforeReadBack => (op.lands, takes),
            _ => (0, takes),
        };
        let at = self.fates.between(from, until);
        let (serial, moment) = (op.serial, trap.moment);
        self.after(
            at,
            Ev::Hand {
                device,
                serial,
                moment,
            },
        );
    }

    /// The moment has come.
    pub fn hand_inside(&mut self, device: usize, serial: u64, moment: Moment) {
        let hw = &self.hw[device];
        if hw.gone || hw.op.is_none_or(|op| op.serial != serial) {
            return;
        }
        let range = hw.range;
        let (low, high) = (micro(range.lowest).max(60_000_000), micro(range.highest));
        let unit = micro(range.resolution).max(1);
        let wanted = match hw.op.map(|op| op.operation) {
            Some(Operation::Set(cap)) => micro(cap),
            _ => hw.cap,
        };
        let cap = match self.fates.below(6) {
            // These values could come from a driver, too.
            0 => wanted - unit,
            1 => high,
            _ => self.fates.between(low, high + 1) / unit * unit,
        };
        self.note(|| format!("    a foreign hand, {moment:?}"));
        self.seen.mark(Fault::HandInside);
        self.met(moment.subject(), Manner::Changed, Some(device));
        self.foreign(device, cap.clamp(low, high));
    }

    /// A write looks whether the device holds what was seen last; a reading looks.
    pub fn glance(&mut self, device: usize, serial: u64, epoch: u32) {
        let hw = &mut self.hw[device];
        let Some(op) = hw.op.filter(|op| op.serial == serial) else {
            return;
        };
        if epoch != self.epoch {
            return;
        }
        if op.operation == Operation::Read {
            let clock = self.now + self.skew;
            let read = hw.read(self.now, clock, &mut self.rng);
            let anothers = self.anothers_cap(device);
            let read = read.map(|reading| match anothers {
                Some(cap) => litd_power::Reading {
                    cap: whole(cap),
                    ..reading
                },
                None => reading,
            });
            let cap = self.hw[device].cap;
            self.sensed.insert(serial, (read, cap));
            return;
        }
        let Some(known) = hw.worker_saw.filter(|&known| known != hw.cap) else {
            return;
        };
        let address = hw.identity.address.clone();
        let outcome = match hw.gone {
            true => hw.error("reading the cap", "no answer"),
            false => PowerError::Changed {
                device: address,
                known: whole(known),
                cap: whole(hw.cap),
            },
        };
        hw.worker_saw = Some(hw.cap);
        self.note(|| format!("    device {device} is not written: {outcome}"));
        self.results.insert(serial, Err(outcome));
    }
}
