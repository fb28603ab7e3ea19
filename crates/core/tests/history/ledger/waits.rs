//! No undo waits longer than a patience for another device, unless a budget that is in force leaves no room.

use litd_api::{DeviceState, Mode};
use litd_policies::Policy;

use super::Said;
use crate::hardware::{SECOND, micro};
use crate::world::World;

/// litd stops waiting after 1.5 s; the model looks twice a second.
const PATIENCE: i64 = SECOND;

/// A device that is well for so long, with litd off for so long, holds what was found: it was read, written, and tried
/// once more after a failure.
const RESTORED: i64 = 8 * SECOND;

/// Devices above the caps found while others are restored, and litd that is off.
#[derive(Debug, Default)]
pub struct Waits {
    above_since: Option<i64>,
    off_since: Option<i64>,
}

impl World {
    /// Whether caps are restored and no budget that was set bounds them.
    fn is_undoing(&self) -> bool {
        let steers = self.policy() != Policy::Observe && self.stop_sent.is_none();
        let released = self.hw.iter().any(|hw| hw.let_go);
        match self.is_leaving() {
            true => self.left_within().is_none(),
            false => self.budget_set().is_none() && (!steers || released),
        }
    }

    fn came_with(&self, device: usize, said: &Said) -> i64 {
        let hw = &self.hw[device];
        let known = hw.hand.open.map(|(cap, _)| cap).or(said.found);
        known.unwrap_or(micro(hw.range.highest))
    }

    /// The most that all devices may add up to where nobody waits any longer: what was found, or what is held if that
    /// is more; `None` while devices above the caps found are still waited for.
    pub(super) fn unwaited(&self, said: &[Said]) -> Option<i64> {
        let since = self.ledger.waits.above_since?;
        if self.now < since + PATIENCE {
            return None;
        }
        let here = (0..self.hw.len()).filter(|&device| !self.hw[device].absent);
        let each = here.map(|device| {
            self.came_with(device, &said[device])
                .max(self.weight(device))
        });
        Some(each.sum())
    }

    /// A look at whether a device holds more than was found while others are restored.
    pub fn watch_waits(&mut self) {
        let Some(said) = self.all_said() else { return };
        let is_above = |device: usize| {
            let hw = &self.hw[device];
            !hw.absent && self.weight(device) > self.came_with(device, &said[device])
        };
        let is_waiting = self.is_undoing() && (0..self.hw.len()).any(is_above);
        let now = self.now;
        let waits = &mut self.ledger.waits;
        waits.above_since = is_waiting.then_some(waits.above_since.unwrap_or(now));
    }

    /// While litd is off and leaves no safe budget behind, each device that is well is back, whatever others do.
    pub fn check_waits(&mut self) {
        let off = self.mode() == Mode::Off && self.stop_sent.is_none();
        let now = self.now;
        if !off || self.left_within().is_some() || self.disk.with(|disk| disk.is_failing()) {
            self.ledger.waits.off_since = None;
            return;
        }
        let since = *self.ledger.waits.off_since.get_or_insert(now);
        let since = since.max(self.ledger.jumped).max(self.reloaded);
        let Some(said) = self.all_said().filter(|_| now >= since + RESTORED) else {
            return;
        };
        for (device, said) in said.iter().enumerate() {
            let hw = &self.hw[device];
            let well = hw.is_well(now) && now >= hw.trouble_until.max(since) + RESTORED;
            let theirs = hw.foreign || hw.was_taken || hw.let_go || hw.failed_at.is_some();
            let plain = hw.is_judged() && hw.looked_at && !hw.absent && !hw.shrunk && !theirs;
            if !(well && plain && said.state == DeviceState::Closed) {
                continue;
            }
            let found = said.found.filter(|&found| hw.cap < found);
            let ours = self
                .entry(device)
                .is_some_and(|entry| entry.ours.iter().any(|&ours| micro(ours) == hw.cap));
            if let Some(found) = found.filter(|_| ours && !hw.natural.contains(&hw.cap)) {
                let text = format!(
                    "device {device} holds {} µW while litd is off, {found} was found",
                    hw.cap
                );
                return self.broke("5 waits", text);
            }
        }
    }
}
