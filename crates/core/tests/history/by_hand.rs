//! Caps that administrators set by hand, and the rules for them: what is accepted is within range
//! and budget; it is answered as held only if the device said so; what was answered as not set
//! does not stay.

use litd_api::{Command, DeviceState};
use litd_core::Operation;
use litd_units::Watts;

use crate::fault::Fault;
use crate::hardware::{MILLI, SECOND, micro, whole};
use crate::world::{Ev, World};

/// The shell's patience with an override.
const PATIENCE: i64 = 1500 * MILLI;

/// An administrator's override of one device.
#[derive(Debug, Clone, Default)]
pub struct Hand {
    /// The cap that has not been answered yet, and when it was asked for.
    pub open: Option<(i64, i64)>,
    /// Caps that were answered as not set, and may turn up until the device was seen without.
    pub failed: Vec<i64>,
}

impl World {
    pub fn set_by_hand(&mut self) {
        if self.core.is_none() || self.stop_sent.is_some() {
            return;
        }
        // Of all devices the next one that may have an override, if there is one: most have jobs or budgets.
        let first = self.rng.below(self.hw.len());
        let mut all = (first..self.hw.len()).chain(0..first);
        let may = |&it: &usize| {
            let is_told = self.hw[it].range_told == Some(self.hw[it].range);
            is_told && self.wrong_by_hand(it, self.hw[it].range.highest).is_none()
        };
        let device = all.find(may).unwrap_or(first);
        let range = self.hw[device].range;
        let (lowest, highest) = (range.lowest.0 - 10.0, range.highest.0 + 10.0);
        let watts = match self.hw[device].hand.failed.first() {
            // Once more what was not set before.
            Some(&cap) if self.rng.chance(0.5) => whole(cap),
            _ => Watts(lowest + (highest - lowest) * self.rng.unit()),
        };
        let failed = !self.hw[device].hand.failed.is_empty();
        if !failed && self.rng.chance(0.3) {
            let blocks = self.rng.between(1, 5) * SECOND;
            self.hw[device].moods.block = blocks;
        }
        let address = self.hw[device].identity.address.clone();
        let before = self.limit();
        let command = Command::SetCap {
            device: address,
            watts,
        };
        // The conditions of an override, checked before litd answers.
        let wrong = self.wrong_by_hand(device, watts);
        let Some(Ok(done)) = self.ask(&command) else {
            return self.act();
        };
        if let Some(why) = wrong {
            return self.broke("7 by hand", format!("{why}: {}", done.message));
        }
        self.seen.mark(Fault::CapByHand);
        let unit = self.hw[device].range.resolution;
        // Whole units; a hair less than a whole one is that one.
        let cap = micro(unit * (watts / unit + 1e-9).floor());
        self.hw[device].hand.open = Some((cap, self.now));
        self.obeyed(&command, before);
        let asked = self.now;
        self.after(PATIENCE, Ev::HandPatience { device, asked });
        self.act();
    }

    /// Why a cap may not be set by hand, if it may not.
    fn wrong_by_hand(&self, device: usize, watts: Watts) -> Option<&'static str> {
        let status = self.status()?;
        let hw = &self.hw[device];
        if hw.absent {
            return Some("accepted for a device that is not there");
        }
        let said = status.devices.get(hw.place)?;
        if hw.range_told != Some(hw.range) {
            return None;
        }
        let caps = &self.config.caps;
        let (floor, ceiling) = match hw.is_gpu() {
            true => (caps.gpu_floor, caps.gpu_ceiling),
            false => (caps.cpu_floor, None),
        };
        let highest = ceiling.map_or(hw.range.highest, |it| it.min(hw.range.highest));
        let lowest = hw.range.lowest.max(floor).min(highest);
        let cap = micro(watts);
        if cap < micro(lowest) || cap > micro(highest) {
            return Some("accepted out of range");
        }
        if said.state != DeviceState::Ours || said.found.is_none() {
            return Some("accepted for a device that is not litd's");
        }
        let budget = micro(self.budget_set()?);
        // The request is cut to driver units before it is compared with the held cap.
        let unit = micro(hw.range.resolution).max(1);
        if !hw.is_gpu() || (cap - unit < hw.cap && hw.known == hw.cap) {
            return None;
        }
        let others = self.hw.iter().enumerate();
        let others = others.filter(|&(other, hw)| other != device && hw.is_gpu());
        let sum: i64 = others.map(|(_, hw)| hw.cap).sum();
        let quiet = self.hw.iter().all(|hw| hw.is_well(self.now));
        (quiet && sum + cap - unit > budget).then_some("accepted above the budget")
    }

    /// The outcomes of overrides; checked before anything else happens.
    pub fn watch_hands(&mut self) {
        for device in 0..self.hw.len() {
            let Some((cap, _)) = self.hw[device].hand.open else {
                continue;
            };
            let Some(core) = &self.core else { return };
            let address = &self.hw[device].identity.address;
            let Some(outcome) = core.outcome_by_hand(address) else {
                continue;
            };
            self.note(|| format!("device {device} by hand: {outcome:?}"));
            self.hw[device].hand.open = None;
            match outcome {
                Ok(held) if micro(held) == cap && self.hw[device].known == cap => {
                    self.hw[device].natural.push(cap);
                    self.hw[device].hand.failed.clear();
                }
                Ok(held) => {
                    let known = self.hw[device].known;
                    let text = format!("device {device}: {cap} µW, {held} said, {known} µW read");
                    self.broke("7 by hand", text);
                }
                Err(_) => {
                    self.hw[device].hand.failed.push(cap);
                    self.trouble(device, 0);
                }
            }
        }
    }

    /// The client has stopped waiting.
    pub fn hand_patience(&mut self, device: usize, asked: i64) {
        let waits = self.hw[device].hand.open.is_some_and(|(_, at)| at == asked);
        if !waits {
            return;
        }
        let (clock, address) = (self.clock(), self.hw[device].identity.address.clone());
        self.said.take();
        let Some(core) = &mut self.core else { return };
        core.give_up_by_hand(clock, &address);
        self.act();
        if self.hw[device].hand.open.is_some() {
            self.broke("7 by hand", format!("device {device} was not given up"));
        }
    }

    /// Whether this write is what was asked for by hand.
    pub fn is_by_hand(&self, device: usize, cap: i64) -> bool {
        let open = self.hw[device].hand.open;
        open.is_some_and(|(asked, _)| asked == cap)
    }

    /// A write that was given up has landed after all.
    pub fn hand_landed(&mut self, device: usize, cap: i64) {
        let hw = &self.hw[device];
        if hw.hand.failed.contains(&cap) && cap > hw.cap {
            let more = cap - hw.cap;
            self.ledger.excuse(device, more, self.now);
        }
    }

    /// A device was read: what it no longer holds can't turn up any more.
    pub fn hand_read(&mut self, device: usize) {
        let hw = &mut self.hw[device];
        let cap = hw.cap;
        hw.hand.failed.retain(|&failed| failed == cap);
    }

    /// The daemon is gone: what it was asked for by hand, or had not undone, stays.
    pub fn hands_are_gone(&mut self) {
        for hw in &mut self.hw {
            let open = hw.hand.open.take().map(|(cap, _)| cap);
            let under_way = hw.op.and_then(|op| match op.operation {
                Operation::Set(cap) => Some(micro(cap)),
                _ => None,
            });
            for cap in open.into_iter().chain(hw.hand.failed.drain(..)) {
                if hw.cap == cap || under_way == Some(cap) {
                    hw.natural.push(cap);
                }
            }
        }
    }
}
