//! When jobs or the daemon end, everything is what was found.

use litd_api::DeviceState;
use litd_core::Core;
use litd_policies::Policy;

use super::{Said, said};
use crate::disk::Disk;
use crate::fault::Fault;
use crate::hardware::{Hw, SECOND, micro};
use crate::let_go::LATE;
use crate::world::World;

/// The daemon is never larger than this, written out: a thousand events are most of it.
const LARGEST: usize = 2_000_000;

/// A device that has not answered for so long may never.
const HANGS: i64 = 5 * SECOND;

impl World {
    /// After a quiet time without jobs all caps are those found.
    pub fn check_quiet(&mut self) {
        let Some(status) = self.status() else { return };
        let Some(all) = self.all_said() else { return };
        let ours = |it: &Said| it.state == DeviceState::Ours && it.found.is_some();
        let young = self.now < self.started + 10 * SECOND;
        if !self.jobs_end || young || self.is_climbing() || !all.iter().all(ours) {
            return;
        }
        if let Some(job) = status.jobs.first() {
            return self.broke("5 job end", format!("{} is still there: {job:?}", job.name));
        }
        self.check_clocks("12 job end");
        let set = self.budget_set();
        let gpus = self.hw.iter().zip(&all).filter(|(hw, _)| hw.is_gpu());
        let found: i64 = gpus.filter_map(|(_, said)| said.found).sum();
        if set.is_some_and(|budget| micro(budget) < found) {
            return;
        }
        // Within a budget that was set the others make room for a write that failed and may still be done.
        let may_land = |hw: &Hw| hw.failed_at.is_some_and(|at| self.now <= at + LATE);
        // So they do for the last one of a daemon that has died.
        let died = self.ledger.died.is_some_and(|at| self.now <= at + LATE);
        if set.is_some() && (died || self.hw.iter().any(may_land)) {
            return;
        }
        // The others make room for what a device may hold that does not answer.
        if self
            .hw
            .iter()
            .any(|hw| hw.op.is_some_and(|op| self.now > op.since + HANGS))
        {
            return;
        }
        // A late cap has to be read before it can be undone.
        let unread = |device: usize| self.hw[device].trouble_until > self.now;
        let away = self
            .hw
            .iter()
            .zip(&all)
            .enumerate()
            .filter(|&(device, _)| !self.is_let_be(device) && !unread(device))
            .find(|(_, (hw, said))| said.found != Some(hw.cap) && !hw.shrunk)
            .map(|(device, _)| device);
        if let Some(device) = away {
            let (cap, found) = (self.hw[device].cap, all[device].found);
            self.broke(
                "5 job end",
                format!("device {device} holds {cap}, found {found:?} µW"),
            );
        }
    }

    /// Whether a litd that only watches leaves a device with a cap which it has not set: a device that
    /// was reset before litd had written to it, for example.
    fn is_let_be(&self, device: usize) -> bool {
        let watches = self.policy() == Policy::Observe;
        let theirs = self.hw[device].natural.contains(&self.hw[device].cap);
        watches && theirs && !self.is_in_journal(device)
    }

    /// Peers can leave no more memory behind than a node's worth: the daemon's debug output is a measure of it.
    pub(super) fn check_size(&mut self, core: &Core<Disk>) {
        let floods = [Fault::Flood, Fault::NoHello, Fault::Garbage];
        if floods.iter().any(|&fault| self.seen.has(fault)) {
            let mut size = format!("{core:?}").len();
            if size > LARGEST {
                // The disk's contents are bounded by the journal's own rule.
                size = size.saturating_sub(format!("{:?}", self.disk).len());
            }
            if size > LARGEST {
                self.broke("10 bounds", format!("{size} bytes when written out"));
            }
        }
    }

    /// The daemon says that it has given everything back.
    pub fn check_stopped(&mut self, core: &Core<Disk>) {
        self.check_size(core);
        let since = self.stop_sent.unwrap_or(self.now);
        let took = self.now - since;
        if took > 17 * SECOND {
            self.broke("5 stop", format!("took {} s", took / SECOND));
        }
        let gave_up = took > 14 * SECOND || self.seen.has(Fault::ClockJump);
        if self.ledger.rotten {
            return;
        }
        let said = said(&core.status(), &self.here, self.hw.len());
        if !gave_up {
            self.check_clocks("12 stop");
        }
        // No device's trouble delays the undo of another.
        let jumped = self.ledger.jumped >= since;
        for (device, said) in said.iter().enumerate() {
            let hw = &self.hw[device];
            let unwell = hw.trouble_until > since;
            // As near as a driver that says so lets it go; its entry stays for the next start.
            let natural = |&found: &i64| self.is_all_that_it_takes(device, hw.cap, found);
            let nearest = hw.natural.iter().any(natural);
            // A write that failed may be done on top of what somebody else has set. Nobody stays for that: its entry
            // does.
            let may_land = hw.failed_at.is_some_and(|at| self.now <= at + LATE);
            let late = may_land && said.state == DeviceState::Foreign && self.is_in_journal(device);
            let excused = gave_up && (unwell || jumped) || hw.absent || hw.shrunk || nearest;
            let excused = excused || late;
            let back = hw.natural.contains(&hw.cap) || self.is_held(device);
            let found = said.found.is_none_or(|found| hw.natural.contains(&found));
            if excused && !back && !self.is_in_journal(device) {
                let text = format!("device {device} holds {} µW and is forgotten", hw.cap);
                return self.broke("5 entry", text);
            }
            if !(excused || back && found) {
                let text = format!(
                    "device {device} holds {} µW at the end, {:?} was found",
                    hw.cap, hw.natural
                );
                return self.broke("5 stop", text);
            }
        }
        if !gave_up && !jumped && self.is_calm() {
            self.check_left("20 left", &said);
        }
    }
}
