//! The node's power: what its BMC tells, what that leaves to the GPUs, and what may not be done while
//! power is short. The ledger works out by itself what is left.

use litd_api::DeviceState;
use litd_core::{Event, NodeReading};
use litd_policies::Policy;
use litd_units::{Celsius, Watts};

use crate::fault::Fault;
use crate::hardware::{Hw, MILLI, SECOND, micro, whole};
use crate::world::{Ev, World};

/// No cap rises for so long after an alarm was told.
const SHORT: i64 = 60 * SECOND;

/// How fast the GPUs' part of the budget follows.
const FOLLOWS: i64 = 3 * SECOND;

/// Upwards it follows in steps.
const STEP: i64 = 200_000_000;

/// The daemon's knowledge of the node.
#[derive(Debug, Default)]
pub struct Heard {
    /// How often the BMC goes on to tell.
    more: u32,
    /// Until when no cap rises, by the daemon's clock.
    short_until: i64,
    /// The BMC's limit, as it was told last.
    cap: Option<Watts>,
    /// The limit that counts: it moves only as far as two tellings in a row agree.
    limit: Option<Watts>,
    /// The GPUs' part by litd's status.
    bound: Option<Watts>,
    /// The GPUs' part, and since when.
    left: Option<(i64, i64)>,
}

impl Heard {
    /// Until when no cap rises, by the daemon's clock.
    pub fn short_until(&self) -> i64 {
        self.short_until
    }
}

impl World {
    /// The BMC begins to tell something, which may be nonsense.
    pub fn node_power(&mut self, fault: Fault) {
        if self.core.is_none() || self.stop_sent.is_some() {
            return;
        }
        self.seen.mark(fault);
        if fault == Fault::NodePower {
            self.ledger.node.more = self.rng.below(100) as u32;
        }
        self.bmc_tells(fault == Fault::NodeAlarm);
    }

    /// Another reading.
    pub fn bmc_goes_on(&mut self) {
        let node = &mut self.ledger.node;
        if node.more > 0 {
            node.more -= 1;
            self.bmc_tells(false);
        }
    }

    fn bmc_tells(&mut self, alarm: bool) {
        if self.core.is_none() {
            return;
        }
        let caps: Watts = self.hw.iter().map(|hw| hw.range.default).sum();
        let power = match self.rng.below(8) {
            0 => None,
            1 => Some(Watts(self.rng.pick(&[f64::NAN, -1e9, 0.0, 1e30]))),
            _ => Some(caps * (0.2 + 0.9 * self.rng.unit())),
        };
        let before = self.ledger.node.cap;
        let cap = match before {
            None if self.rng.chance(0.1) => Some(caps * (0.9 + 0.4 * self.rng.unit())),
            Some(_) if self.rng.chance(0.05) => None,
            cap => cap,
        };
        let reading = NodeReading {
            source: "redfish".to_owned(),
            // A limit in force is not exceeded.
            power: power.map(|power| cap.map_or(power, |cap| power.min(cap))),
            cap,
            inlet: Some(Celsius(25.0)),
            supplies: Some(6),
            failed: Some(u32::from(alarm)),
            alarm: alarm.then(|| "power supply 2: Critical".to_owned()),
        };
        let clock = self.clock().0;
        let node = &mut self.ledger.node;
        if alarm {
            node.short_until = clock + SHORT;
        }
        let none = Watts(f64::INFINITY);
        let [last, told] = [before, cap].map(|it| it.unwrap_or(none));
        let limit = node.limit.unwrap_or(none).max(last.min(told));
        let limit = limit.min(last.max(told));
        (node.cap, node.limit) = (cap, Some(limit).filter(|&it| it < none));
        self.needs_no_rank();
        self.tell(Event::NodePower(reading));
        if self.ledger.node.more > 0 {
            let soon = self.rng.between(100, 900) * MILLI;
            self.after(soon, Ev::NodeTells);
        }
    }

    /// The GPUs' part in litd's status may have changed.
    pub fn watch_node(&mut self) {
        let bound = self.core.as_ref().and_then(|core| core.left_by_node());
        if bound != self.ledger.node.bound {
            let before = self.limit();
            self.ledger.node.bound = bound;
            self.was_reconfigured(before);
            self.needs_no_rank();
        }
    }

    /// A daemon that starts has had no reading.
    pub fn node_unheard(&mut self) {
        self.ledger.node = Heard::default();
    }

    /// The most that a failed GPU may hold, whatever its reading. A GPU that was not read for long may have been
    /// reset; one that answers again may fall silent again. A GPU that draws more than its cap may hold the one
    /// before. Until litd steers it again it counts so.
    fn failed_with(&self, hw: &Hw, state: DeviceState) -> i64 {
        if state != DeviceState::Faulty || !hw.is_gpu() {
            return 0;
        }
        let patience = (self.config.caps.answer_seconds * 1e9) as i64;
        // A clock that jumps makes what was read before old.
        let silent = self.now >= hw.read_asked + patience || self.ledger.jumped >= hw.read_asked;
        let default = hw.range_told.map_or(0, |it| micro(it.default));
        let silent = if silent { default } else { 0 };
        let draws = (hw.power(self.now) * 1e6) as i64;
        let unfollowed = if draws > hw.cap {
            draws.max(hw.most_held)
        } else {
            0
        };
        hw.failed_with.max(silent).max(unfollowed)
    }

    /// Looks at the GPUs that have failed.
    pub fn watch_failed(&mut self) {
        let Some(status) = self.status() else { return };
        for (&device, said) in self.here.clone().iter().zip(&status.devices) {
            self.hw[device].failed_with = self.failed_with(&self.hw[device], said.state);
        }
    }

    /// The bound on GPUs' caps, with the node's.
    pub fn bounded(&self, set: Option<Watts>) -> Option<Watts> {
        let status = self.status();
        let (Some(bound), Some(status)) = (self.ledger.node.bound, status) else {
            return set;
        };
        let gpus = self.known().filter(|hw| hw.is_gpu());
        let highest = gpus
            .map(|hw| hw.range.highest)
            .reduce(Watts::max)
            .unwrap_or_default();
        let found = |(hw, device): (&Hw, &litd_api::DeviceStatus)| {
            let by_hand = hw.hand.open.map(|(cap, _)| whole(cap));
            let found = by_hand.or(device.found).unwrap_or(hw.range.highest);
            // A released GPU gets its default by a reset.
            let after = match device.state {
                DeviceState::Released | DeviceState::Closed => {
                    hw.range_told.map_or(found, |it| found.max(it.default))
                }
                // Nor does anybody know what one holds whose driver tells no range.
                _ if hw.range_told.is_none() || hw.range_unknown_since.is_some() => {
                    found.max(highest)
                }
                // A foreign cap stays.
                DeviceState::Foreign => found.max(whole(hw.cap.max(hw.known))),
                state => found.max(whole(self.failed_with(hw, state))),
            };
            hw.is_gpu().then_some(after)
        };
        let gpus = self.known().zip(&status.devices);
        let usual = set.unwrap_or_else(|| gpus.filter_map(found).sum());
        Some(bound).filter(|&bound| bound < usual).or(set)
    }

    /// While the node is short of power nothing rises but what goes back to what was found.
    pub fn check_short(&mut self, device: usize, cap: i64, found: i64) {
        let clock = self.clock().0;
        let short = clock < self.ledger.node.short_until || clock < self.ledger.braked_until;
        let hw = &self.hw[device];
        let rises = cap > hw.most().max(hw.known) && cap != found;
        if short && rises && self.policy() != Policy::Observe && self.stop_sent.is_none() {
            let text = format!("device {device} is to rise to {cap} µW");
            self.broke("16 short", text);
        }
    }

    /// The GPUs' part in litd's status is the node's budget less the rest.
    pub fn check_node(&mut self) {
        let Some(status) = self.status() else { return };
        let budgets = [self.config.node.budget, self.ledger.node.limit];
        let budget = budgets.into_iter().flatten().map(micro).min();
        let measured = status.node.power.as_ref().and_then(|it| it.reserve);
        let reserves = [self.config.node.reserve, measured];
        let reserve = reserves.into_iter().flatten().map(micro).max();
        // As long as nobody knows what else draws, GPUs get no more than if nothing did.
        let reserve = reserve.unwrap_or(0);
        let left = budget.map(|budget| {
            let each = self.here.iter().zip(&status.devices);
            let (mut cpus, mut floors) = (0, 0);
            for (&device, said) in each {
                let hw = &self.hw[device];
                let by_hand = hw.hand.open.map(|(cap, _)| cap);
                let found = by_hand.or(said.found.map(micro));
                match hw.is_gpu() {
                    true => floors += self.bounds(device, found).floor,
                    false => cpus += found.unwrap_or(micro(hw.range.highest)),
                }
            }
            (budget - reserve - cpus).max(floors)
        });
        // The limit found of a socket that hangs is unknown: it may count with its last one.
        let unread = |(hw, said): (&Hw, &litd_api::DeviceStatus)| {
            !hw.is_gpu() && hw.hand.open.is_none() && said.found.is_none()
        };
        let now = self.now;
        let unranged = |hw: &Hw| hw.range_told != Some(hw.range) || !hw.is_well(now);
        if self.known().any(unranged) || self.known().zip(&status.devices).any(unread) {
            self.ledger.node.left = None;
            return;
        }
        let node = &mut self.ledger.node;
        let since = match node.left {
            Some((last, since)) if Some(last) == left => since,
            _ => now,
        };
        node.left = left.map(|left| (left, since));
        if now < since + FOLLOWS || self.stop_sent.is_some() {
            return;
        }
        let said = node.bound.map(micro);
        let right = match (left, said) {
            // Some rounding of sums.
            (Some(left), Some(said)) => (left - STEP..=left + 1000).contains(&said),
            (left, said) => left == said,
        };
        if !right {
            self.broke("16 node", format!("{left:?} µW are left, not {said:?}"));
        }
    }
}
