//! `caps.on_exit = "hold"`: what litd leaves behind while it is off and after a stop or `litd restore`
//! is within the safe budget, no cap is above the one found, and whoever leaves without it later gives
//! back what was found first.

use litd_api::{DeviceState, Mode};
use litd_core::config::OnExit;
use litd_units::Watts;

use super::foreign::REPORTED;
use super::{KNOWN_FAULTY, Said};
use crate::hardware::micro;
use crate::world::World;

/// litd is off, and is to leave the safe budget behind.
#[derive(Debug, Clone, Copy)]
pub struct Off {
    /// Since when.
    begun: i64,
    /// Since when all devices and the disk are well besides.
    well: i64,
}

impl World {
    /// Whether litd is to leave everything as it should stay without litd.
    pub(super) fn is_leaving(&self) -> bool {
        self.stop_sent.is_some() || self.mode() == Mode::Off
    }

    /// The bound on the sum of all GPU caps now that litd leaves, if there is one.
    pub fn left_within(&self) -> Option<Watts> {
        let caps = &self.config.caps;
        let holds = caps.on_exit == OnExit::Hold && self.is_leaving();
        caps.safe_budget.filter(|_| holds)
    }

    /// Whether a device was let go of only because litd is off, and is to stay within the safe budget.
    pub(super) fn is_held_off(&self, device: usize, said: &Said) -> bool {
        let by_mode = !self.hw[device].let_go;
        said.state == DeviceState::Closed && by_mode && self.left_within().is_some()
    }

    /// Whether a GPU's cap is one that litd may move while it leaves.
    fn may_be_left(&self, device: usize, said: &Said) -> bool {
        let hw = &self.hw[device];
        // Of one that was let go of nothing tells that others have set it, but that it holds what they set.
        let theirs = hw.was_taken && hw.natural.contains(&hw.cap);
        let held_off = self.is_held_off(device, said) && !theirs;
        let ours = said.state == DeviceState::Ours || held_off;
        ours && !hw.foreign && hw.is_judged() && said.found.is_some()
    }

    /// The lowest that litd would set a device to, as far as it has been told.
    pub(super) fn floor_known(&self, device: usize, found: Option<i64>) -> i64 {
        let floor = self.bounds(device, found).floor;
        let told = found.and_then(|found| self.bounds_as_told(device, found));
        told.map_or(floor, |told| told.floor.max(floor))
    }

    /// The bound on the sum of all GPUs while litd leaves: no less than the caps that litd can't move, and the
    /// floors of the others. No undo waits for them.
    pub(super) fn room_left(&self, safe: i64, said: &[Said]) -> i64 {
        let each = said.iter().enumerate().filter(|&(device, _)| {
            let hw = &self.hw[device];
            hw.is_gpu() && !hw.absent
        });
        // A cap that can't be put on record is not written, except to undo; litd tries again a while later.
        let failing = self.disk.with(|disk| disk.is_failing());
        let written = !failing && self.now >= self.ledger.unsure_until;
        let counts = |(device, said): (usize, &Said)| {
            let hw = &self.hw[device];
            let sure = written && hw.looked_at && self.now >= hw.trouble_until;
            match self.may_be_left(device, said) && sure {
                true => {
                    let floor = self.floor_known(device, said.found);
                    let unit = micro(hw.range.resolution).max(1);
                    floor.min(said.found.unwrap_or(floor)) + unit
                }
                false => self.weight(device).max(said.found.unwrap_or_default()),
            }
        };
        safe.max(each.map(counts).sum())
    }

    /// Whether a device holds what the safe budget allows it: a cap of litd's that is no more than
    /// was found, and the journal says what that was.
    pub fn is_held(&self, device: usize) -> bool {
        let hw = &self.hw[device];
        let held = |entry: &litd_core::journal::Entry| {
            let found = micro(entry.found);
            let ours = entry.ours.iter().any(|&ours| micro(ours) == hw.cap);
            ours && hw.cap <= found && hw.natural.contains(&found)
        };
        let holds = hw.is_gpu() && self.left_within().is_some();
        holds && self.entry(device).as_ref().is_some_and(held)
    }

    /// All GPU caps that litd leaves behind are within the safe budget, as far as litd may write them:
    /// for what others hold it makes room, down to the floors.
    pub(super) fn check_left(&mut self, rule: &str, said: &[Said]) {
        let Some(safe) = self.left_within().map(micro) else {
            return;
        };
        let gpus = || (0..self.hw.len()).filter(|&it| self.hw[it].is_gpu() && !self.hw[it].absent);
        let sum: i64 = gpus().map(|device| self.weight(device)).sum();
        // litd gives what driver units leave of the sum to whom it likes.
        let unit = |device: usize| micro(self.hw[device].range.resolution).max(1);
        let units: i64 = gpus().map(unit).sum();
        let low = |device: usize| {
            let floor = self.floor_known(device, said[device].found);
            !self.may_be_left(device, &said[device]) || self.hw[device].cap <= floor + units
        };
        if sum <= safe || gpus().all(low) {
            return;
        }
        let caps: Vec<f64> = gpus().map(|it| self.hw[it].cap as f64 / 1e6).collect();
        let text = format!("{caps:?} W are left, {} W are safe", safe as f64 / 1e6);
        self.broke(rule, text);
    }

    /// While litd is off the same holds, a while after it went off or anything went wrong. What is
    /// closed nobody looks at: whatever others have done since just before it went off is theirs.
    pub(super) fn check_off(&mut self) {
        let now = self.now;
        let off = self.mode() == Mode::Off && self.stop_sent.is_none();
        let Some(said) = self
            .all_said()
            .filter(|_| off && self.left_within().is_some())
        else {
            self.ledger.off = None;
            return;
        };
        let off = self.ledger.off.get_or_insert(Off {
            begun: now,
            well: now,
        });
        let sound = !self.disk.with(|disk| disk.is_failing());
        let well = self.hw.iter().all(|hw| hw.absent || hw.is_well(now));
        let (begun, calm) = (off.begun, sound && well);
        if !calm {
            off.well = now;
        }
        let since = off.well.max(self.ledger.jumped).max(self.reloaded);
        let alone = self.ledger.last_hand < begun - REPORTED;
        if alone && self.is_calm() && now >= since + KNOWN_FAULTY {
            self.check_left("20 off", &said);
        }
    }
}
