//! Where `caps.max_rise_w_per_s` is set the caps of the node rise no faster by litd's hand, over any few seconds. What
//! it gives back when it leaves, and what an administrator sets, is exempt.

use crate::hardware::{SECOND, micro};
use crate::world::World;

/// Rises are summed over so long.
const OVER: i64 = 5 * SECOND;

/// Caps that rise do so every second; where a device came up from below its floor that is paid for first.
pub(super) const RESTS: i64 = 4 * SECOND;

/// litd's rises of late, with the bound that held then.
#[derive(Debug, Default)]
pub struct Rises {
    bound: Option<i64>,
    /// Failures of the disk until the last rise, and when they were seen to have grown.
    failures: (u32, u32, u32),
    failed: Option<i64>,
    each: Vec<Rise>,
}

/// A write that raises a device.
#[derive(Debug)]
struct Rise {
    at: i64,
    device: usize,
    cap: i64,
    watts: i64,
}

impl World {
    /// The next litd knows nothing of the rises of the last one.
    pub fn forget_rises(&mut self) {
        self.ledger.rises = Rises::default();
    }

    /// Whether a cap is one between the present one and the cap found, where caps rise only so fast.
    pub(super) fn is_on_its_way(&self, device: usize, cap: i64, found: i64) -> bool {
        let is_bounded = self.config.caps.max_rise_w_per_s.is_some();
        let (hw, bounds) = (&self.hw[device], self.bounds(device, Some(found)));
        let is_one = cap % bounds.unit == 0 && cap >= bounds.floor;
        is_bounded && is_one && (hw.known..found).contains(&cap)
    }

    /// Whether caps are on their way up: as long as they rise now and then they have not arrived.
    pub(super) fn is_climbing(&self) -> bool {
        let rises = &self.ledger.rises;
        let last = rises.each.last().filter(|_| rises.bound.is_some());
        last.is_some_and(|rise| self.now < rise.at + RESTS)
    }

    /// litd sets a cap on a device that, as it was told last, holds another.
    pub(super) fn check_ramp(&mut self, device: usize, cap: i64) {
        let bound = self.config.caps.max_rise_w_per_s;
        let bound = bound.map(|watts| micro(litd_units::Watts(watts)));
        if self.ledger.rises.bound != bound {
            self.ledger.rises = Rises {
                bound,
                ..Rises::default()
            };
        }
        let known = self.hw[device].known;
        let Some(bound) = bound.filter(|_| known != i64::MIN) else {
            return;
        };
        // A driver takes no cap below its lowest: the way up from there is one step, and paid for later.
        let held = known.max(self.bounds(device, None).floor);
        // Nothing can be put on record, so only the cap found may be written.
        let failures = self.disk.with(|disk| disk.all_failures());
        let rises = &mut self.ledger.rises;
        if rises.failures != failures {
            (rises.failures, rises.failed) = (failures, Some(self.now));
        }
        let failed_just_now = rises.failed == Some(self.now);
        let status = self.status();
        let is_stuck = failed_just_now
            || status.is_some_and(|it| it.node.summary.contains("except to restore one"));
        let is_exempt =
            self.is_leaving() || self.hw[device].let_go || self.is_by_hand(device, cap) || is_stuck;
        if is_exempt || cap <= held {
            return;
        }
        let now = self.now;
        let rises = &mut self.ledger.rises.each;
        // A write that was not done is written again, and raises the device once.
        let is_over = |it: &Rise| it.at <= now - OVER || (it.device, it.cap) == (device, cap);
        rises.retain(|it| !is_over(it));
        let watts = cap - held;
        rises.push(Rise {
            at: now,
            device,
            cap,
            watts,
        });
        let sum: i64 = rises.iter().map(|rise| rise.watts).sum();
        let units = self.hw.iter().map(|hw| micro(hw.range.resolution));
        // A second's worth may have been saved up, or one unit of the coarsest driver.
        let saved = bound.max(units.max().unwrap_or(0));
        let most = bound * (OVER / SECOND) + saved + self.hw.len() as i64;
        if sum > most {
            let text = format!("caps rose by {sum} µW within 5 s, of {most} µW at most");
            self.broke("23 ramp", text);
        }
    }
}
