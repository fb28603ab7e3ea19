//! Where litd only watches: without a budget everything is given back, with one no more is held than
//! that.

use litd_api::{DeviceState, Mode};
use litd_policies::Policy;

use crate::hardware::SECOND;
use crate::world::World;

/// Without a budget all is back within so long.
const BACK: i64 = 8 * SECOND;

impl World {
    /// The budget that litd has accepted for all GPUs, whatever the node leaves of it.
    pub fn accepted(&self) -> Option<litd_units::Watts> {
        self.least_budget(self.ledger.budget.or(self.config.caps.budget))
    }

    /// Whether litd only watches, and has a budget to enforce all the same.
    pub fn enforces(&self) -> bool {
        let watches = self.policy() == Policy::Observe && self.mode() != Mode::Off;
        watches && self.stop_sent.is_none() && self.accepted().is_some()
    }

    /// Whether a write is one that a litd which only watches may make: back to what was found, or to
    /// no more than that where a budget is set, or was a moment ago, also the one that litd is to leave
    /// behind. Of a cap that was asked for by hand a budget may leave less.
    pub fn may_watch(&self, cap: i64, found: Option<i64>, asked: Option<i64>) -> bool {
        let off = self.stop_sent.is_some() || self.mode() == Mode::Off;
        let off = off && self.left_within().is_none();
        // The node's budget, or its BMC's, is one, too.
        let node = self.core.as_ref().and_then(litd_core::Core::left_by_node);
        let bounded = self.budget_set().is_some() || node.is_some();
        !off && bounded && found.max(asked).is_some_and(|most| cap <= most)
    }

    /// All caps are back where litd only watches and has no budget to enforce.
    pub fn check_watching(&mut self) {
        let now = self.now;
        let (Some(said), Some(status)) = (self.all_said(), self.status()) else {
            self.ledger.watching = None;
            return;
        };
        let sound = !self.disk.with(|disk| disk.is_failing()) && !self.ledger.rotten;
        let busy = |hw: &crate::hardware::Hw| {
            !hw.is_well(now) || hw.let_go || hw.hand.open.is_some() || !hw.hand.failed.is_empty()
        };
        let watches = self.policy() == Policy::Observe
            && self.mode() != Mode::Off
            && self.stop_sent.is_none()
            && self.budget_set().is_none()
            && status.node.lease.is_none()
            && sound
            && !self.hw.iter().any(busy)
            && self.excess() == 0
            && !self.is_climbing()
            && self.ledger.jumped < now - BACK;
        if !watches {
            self.ledger.watching = None;
            return;
        }
        let since = *self.ledger.watching.get_or_insert(now);
        if now < since + BACK {
            return;
        }
        let away = said.iter().enumerate().find(|(device, said)| {
            let hw = &self.hw[*device];
            let ours = said.state == DeviceState::Ours && said.found.is_some();
            ours && !hw.natural.contains(&hw.cap)
        });
        if let Some((device, _)) = away {
            let text = format!(
                "device {device} holds {} W, {:?} was found",
                self.hw[device].cap as f64 / 1e6,
                said[device].found
            );
            self.broke("3 given back", text);
        }
    }
}
