//! Foreign caps: a value read back after a write that is neither the old cap nor the wanted one is foreign, unless
//! it is within one driver unit of the wanted one or at a limit that the device names. It is reported, and not
//! overwritten until an administrator resumes the device.

use litd_api::EventKind;
use litd_core::{Operation, Reply};
use litd_power::PowerError;

use crate::hardware::{Op, SECOND, micro};
use crate::world::World;

/// How soon a foreign cap is reported: two readings, a second apart each.
pub const REPORTED: i64 = 5 * SECOND;

/// An unexpected value right after a write is reported at once.
const AT_ONCE: i64 = SECOND;

impl World {
    /// A write has ended and was read back.
    pub fn read_back(&mut self, device: usize, op: Op, reply: &Reply) {
        let Operation::Set(wanted) = op.operation else {
            return;
        };
        let now = self.now;
        if let Reply::Set(Err(PowerError::Changed { .. })) = reply {
            let hw = &mut self.hw[device];
            // A foreign change to the very cap that was written can't be told from litd's.
            hw.foreign &= hw.cap != micro(wanted);
            hw.foreign_seen |= hw.foreign;
            return;
        }
        let Reply::Set(Ok(held)) = reply else { return };
        let (held, wanted) = (micro(*held), micro(wanted));
        if !self.is_anothers(device, op, held, wanted) {
            return;
        }
        let hw = &mut self.hw[device];
        (hw.foreign, hw.foreign_seen) = (true, true);
        // The wanted cap may be done late, on top of it.
        hw.failed_at = Some(now);
        // A foreign cap is waited for by nobody.
        (hw.owes, hw.report_due) = (0, Some(now + AT_ONCE));
        if !hw.natural.contains(&held) {
            hw.natural.push(held);
        }
    }

    fn is_anothers(&self, device: usize, op: Op, held: i64, wanted: i64) -> bool {
        let hw = &self.hw[device];
        let unit = micro(hw.range.resolution).max(1);
        let limits = [hw.range.lowest, hw.range.highest, hw.range.default].map(micro);
        let told = hw
            .range_told
            .map(|it| [it.lowest, it.highest, it.default].map(micro));
        let limits = || limits.into_iter().chain(told.into_iter().flatten());
        let old = [op.before, op.knew.unwrap_or(op.before)];
        if old.contains(&held) || (held - wanted).abs() <= unit || limits().any(|it| it == held) {
            return false;
        }
        if self.ledger.rotten || !self.disk.with(|disk| disk.failures == (0, 0)) {
            return false;
        }
        // A cap of litd's that lands late is nobody else's.
        let entry = self.entry(device);
        let ours = entry
            .iter()
            .flat_map(|it| it.ours.iter().chain([&it.found]));
        !ours.map(|&it| micro(it)).any(|it| it == held)
    }

    /// litd tells something.
    pub fn heard(&mut self, event: &litd_api::Event) {
        if event.kind != EventKind::Foreign {
            return;
        }
        for hw in &mut self.hw {
            if event.device.as_deref() == Some(hw.identity.address.as_str()) {
                hw.report_due = None;
            }
        }
    }

    /// A foreign cap was reported.
    pub fn check_reported(&mut self) {
        let now = self.now;
        if self.core.is_none() || self.stop_sent.is_some() {
            return;
        }
        for device in 0..self.hw.len() {
            let Some(due) = self.hw[device].report_due else {
                continue;
            };
            // A foreign change just before litd was to set the same cap looks like litd's own.
            let entry = self.entry(device);
            let mut ours = entry.iter().flat_map(|it| &it.ours);
            let same = ours.any(|&it| micro(it) == self.hw[device].cap);
            let hw = &mut self.hw[device];
            // At what litd has let go of and closed, by command or because it is off, nobody looks.
            let closed = hw.let_go || !hw.hold.open;
            if !hw.foreign || same || closed || hw.absent || hw.misbehaves(now) {
                hw.report_due = None;
            } else if now > due {
                let text = format!("device {device} holds {} W", hw.cap as f64 / 1e6);
                return self.broke("6 not reported", text);
            }
        }
    }
}
