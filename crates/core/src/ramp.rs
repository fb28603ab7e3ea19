//! How fast the caps of a node rise, where the administrator bounds that (`caps.max_rise_w_per_s`): the nodes of a
//! job raise caps at the same moment, and their supply has to follow. The plan has the targets; the steps on the way
//! there are decided here. Not delayed are decreases, caps that are restored because litd stops, is off, or releases
//! the device, and caps that an administrator sets.

use std::collections::BTreeMap;

use litd_units::{Nanos, Watts};

use crate::core::Core;
use crate::devices::Unit;
use crate::job::Job;
use crate::rate::Bucket;
use crate::store::Store;

/// The unit of a driver that has told none: all take whole watts.
const WHOLE: Watts = Watts(1.0);

/// For so long a step may wait for room before it is another device's turn.
const SECOND: Nanos = Nanos(1_000_000_000);

/// A device that is to rise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Climb {
    pub device: usize,
    /// What it holds; the most that it may hold, where that is not known.
    pub from: Watts,
    /// The cap that the plan has for it.
    pub target: Watts,
    /// A device below its floor rises to that at least: its driver need not take any cap in between.
    pub floor: Watts,
    /// Its driver's unit.
    pub unit: Watts,
    /// Whether its last write is still to be done, or has failed: then it makes no further step.
    pub is_busy: bool,
}

/// A step of a device.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// What it could hold then.
    from: Watts,
    /// The cap that it is to hold now.
    cap: Watts,
    /// When it was its turn.
    at: Nanos,
}

/// The watts by which caps may rise.
#[derive(Debug, Default)]
pub(crate) struct Ramp {
    /// Watts that have not been used, of one second at most; `None`: rises were never bounded.
    bucket: Option<Bucket>,
    /// When steps were dealt out last.
    dealt: Option<Nanos>,
    /// The last step of each device that is on its way up.
    steps: BTreeMap<usize, Step>,
}

impl Ramp {
    /// The caps that these devices are to hold now, where all caps together may rise by so many watts a second.
    /// Devices make a step once a second, each by its part, and not by a little with each event. A step for which
    /// the budget has had no room within its second is taken back, so that all steps that may be made at any time are
    /// one second's worth; the next turn is another device's.
    pub fn climb(&mut self, per_second: f64, climbs: &[Climb], now: Nanos) -> Vec<(usize, Watts)> {
        let unit = climbs.iter().map(|climb| climb.unit).reduce(Watts::max);
        // A driver takes whole units only.
        let full = per_second.max(unit.unwrap_or_default().0);
        let mut bucket = match &self.bucket {
            Some(known) => known.becomes(per_second, full, now),
            None => Bucket::with_burst(per_second, full, now),
        };
        // While a step waits for room, nothing is saved up besides: both would be made at once.
        let waiting: Watts = climbs.iter().map(|climb| self.unused(climb)).sum();
        let saved = bucket.level(now).min((full - waiting.0).max(0.0));
        bucket.owe(bucket.level(now) - saved, now);
        let has_waited = waiting > Watts::ZERO && self.dealt.is_none_or(|at| now >= at + SECOND);
        let ready: Vec<&Climb> = climbs.iter().filter(|climb| !climb.is_busy).collect();
        let unused: Watts = ready.iter().map(|climb| self.unused(climb)).sum();
        let room = (bucket.level(now) + unused.0).min(full);
        let rest: Watts = ready.iter().map(|climb| climb.target - climb.from).sum();
        // Bits of a second are lost in rounding.
        let is_full = bucket.level(now) >= full * (1.0 - 1e-6);
        let is_time = is_full || has_waited || rest.0 <= room;
        self.steps
            .retain(|device, _| climbs.iter().any(|it| it.device == *device));
        self.bucket = Some(bucket);
        if is_time {
            self.dealt = Some(now);
            self.grant(ready, Watts(room), rest, now);
        }
        let aim = |climb: &Climb| {
            let cap = self.step(climb).unwrap_or(climb.from).max(climb.from);
            (climb.device, cap.min(climb.target))
        };
        climbs.iter().map(aim).collect()
    }

    /// The step that a device is on. One that has fallen since, by a late write, has to begin anew.
    fn step(&self, climb: &Climb) -> Option<Watts> {
        let step = self.steps.get(&climb.device);
        step.filter(|step| step.from <= climb.from)
            .map(|step| step.cap)
    }

    /// The watts of a device's step that it has not used.
    fn unused(&self, climb: &Climb) -> Watts {
        let step = self.step(climb);
        step.map_or(Watts::ZERO, |cap| (cap - climb.from).max(Watts::ZERO))
    }

    /// Deals so many watts out anew, to devices that want the `rest`. Whose turn was longest ago comes first.
    fn grant(&mut self, mut ready: Vec<&Climb>, room: Watts, rest: Watts, now: Nanos) {
        ready.sort_by_key(|climb| self.steps.get(&climb.device).map(|step| step.at));
        let each = match rest <= room {
            true => room,
            false => room / ready.len().max(1) as f64,
        };
        let mut left = room;
        for climb in ready {
            let next = next_step(climb, each.max(climb.unit).min(left));
            if let Some(cap) = next {
                left -= cap - climb.from;
                let from = climb.from;
                self.steps.insert(climb.device, Step { from, cap, at: now });
            } else if let Some(step) = self.steps.get_mut(&climb.device) {
                step.cap = step.cap.min(climb.from);
            }
        }
        if let Some(bucket) = &mut self.bucket {
            let level = Watts(bucket.level(now));
            bucket.owe((level - left).0, now);
        }
    }

    /// The devices that are on their way.
    pub fn devices(&self) -> Vec<usize> {
        self.steps.keys().copied().collect()
    }

    /// No device is on its way any more. Returns whether one was.
    pub fn lift(&mut self) -> bool {
        !std::mem::take(&mut self.steps).is_empty()
    }
}

/// The cap to which a device rises where it may rise by so much; `None`: it has to wait.
fn next_step(climb: &Climb, rise: Watts) -> Option<Watts> {
    if rise <= Watts::ZERO {
        return None;
    }
    let most = climb.from + rise;
    let next = match climb.target <= most {
        true => climb.target,
        false => most.cut_to(climb.unit),
    };
    let next = next.max(climb.floor.min(climb.target));
    (next > climb.from).then_some(next)
}

impl<S: Store> Core<S> {
    /// Aims devices that rise at their next steps. Runs after the targets were computed, and before each write.
    pub(crate) fn aim_in_steps(&mut self) {
        let Some(per_second) = self.config.caps.max_rise_w_per_s else {
            self.targets.rise_at_once(self.writer.account_mut());
            return;
        };
        let devices = self.devices.iter();
        let climbs = devices.filter_map(|(device, unit)| self.climb_of(device, unit));
        let climbs: Vec<Climb> = climbs.collect();
        let (account, now) = (self.writer.account_mut(), self.out.now());
        self.targets.rise(per_second, &climbs, account, now);
    }

    /// The rise of a device whose planned cap is above what it holds, unless it rises at once.
    fn climb_of(&self, device: usize, unit: &Unit) -> Option<Climb> {
        let target = self.targets.planned(device)?;
        // A device that can't be judged counts with more than it holds, and would rise from there all the same.
        let held = self.writer.account().held(device);
        let from = held.unwrap_or_else(|| self.writer.account().most_of(device));
        let is_left = self.authority.is_leaving() || self.devices.is_released(device);
        let at_once = is_left
            || self.devices.is_by_hand(device, target)
            || self.goes_back_unrecorded(unit, target);
        (target > from && !at_once).then(|| Climb {
            device,
            from,
            target,
            floor: unit.floor(&self.config.caps),
            unit: unit.device.range.last().map_or(WHOLE, |it| it.resolution),
            is_busy: self.writer.account().is_writing(device)
                || self.writer.account().has_failed(device),
        })
    }

    /// Whether nothing can be put on record, and a device is to return to its cap: that may be written all the same,
    /// and no cap on the way to it.
    fn goes_back_unrecorded(&self, unit: &Unit, target: Watts) -> bool {
        let (journal, log) = (self.writer.journal_trouble(), self.writer.log_trouble());
        let is_back = unit.back().is_some_and(|back| back.is_same_cap(target));
        journal.or(log).is_some() && is_back
    }

    /// Whether a device is on its way up to its planned cap.
    pub(crate) fn is_on_its_way(&self, device: usize) -> bool {
        let aimed = self.writer.account().target(device);
        let is_bounded = self.config.caps.max_rise_w_per_s.is_some();
        is_bounded && aimed.is_some() && aimed < self.targets.planned(device)
    }

    /// Whether caps are on their way up. A device that takes no write is on its way nowhere.
    pub(crate) fn rises_slowly(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.any(|(device, _)| {
            self.is_on_its_way(device) && !self.writer.account().has_failed(device)
        })
    }

    /// Whether a device of a job is.
    pub(crate) fn is_climbing(&self, job: &Job) -> bool {
        job.devices()
            .iter()
            .any(|&device| self.is_on_its_way(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices by what they hold, and where they are to go.
    struct Stand {
        ramp: Ramp,
        devices: Vec<(f64, f64)>,
        unit: f64,
        /// Devices that the budget has no room for.
        waits: Vec<usize>,
        now: i64,
        writes: usize,
    }

    impl Stand {
        fn new(devices: &[(f64, f64)]) -> Self {
            Self {
                ramp: Ramp::default(),
                devices: devices.to_vec(),
                unit: 1.0,
                waits: Vec::new(),
                now: 0,
                writes: 0,
            }
        }

        /// Looks every 100 ms.
        fn passes(&mut self, seconds: f64, per_second: f64) {
            for _ in 0..(seconds * 10.0) as i64 {
                self.look(per_second);
                self.now += 100_000_000;
            }
        }

        fn look(&mut self, per_second: f64) {
            let rising = self.devices.iter().enumerate();
            let climbs: Vec<Climb> = rising
                .filter(|(_, (from, target))| from < target)
                .map(|(device, &(from, target))| Climb {
                    device,
                    from: Watts(from),
                    target: Watts(target),
                    floor: Watts(200.0),
                    unit: Watts(self.unit),
                    is_busy: false,
                })
                .collect();
            for (device, step) in self.ramp.climb(per_second, &climbs, Nanos(self.now)) {
                let held = &mut self.devices[device].0;
                if step.0 > *held && !self.waits.contains(&device) {
                    *held = step.0;
                    self.writes += 1;
                }
            }
        }

        fn held(&self) -> Vec<f64> {
            self.devices.iter().map(|device| device.0).collect()
        }
    }

    #[test]
    fn caps_rise_together_by_the_rate_and_once_a_second() {
        let mut stand = Stand::new(&[(500.0, 700.0), (450.0, 700.0), (700.0, 700.0)]);
        // A second's worth is saved up at the start.
        stand.passes(4.5, 40.0);
        assert_eq!(stand.held(), [600.0, 550.0, 700.0]);
        assert_eq!(stand.writes, 10);
        stand.passes(30.0, 40.0);
        assert_eq!(stand.held(), [700.0; 3]);
    }

    #[test]
    fn a_rate_below_the_units_of_all_devices_still_raises_each() {
        let mut stand = Stand::new(&[(500.0, 503.0); 4]);
        stand.passes(3.5, 1.0);
        assert_eq!(stand.held().iter().sum::<f64>(), 2004.0);
        stand.passes(60.0, 1.0);
        assert_eq!(stand.held(), [503.0; 4]);
        let mut coarse = Stand::new(&[(500.0, 520.0)]);
        coarse.unit = 5.0;
        coarse.passes(4.5, 1.0);
        assert_eq!(coarse.held(), [505.0]);
    }

    #[test]
    fn devices_that_have_to_wait_keep_no_other_waiting_for_good() {
        let mut stand = Stand::new(&[(500.0, 900.0); 4]);
        stand.waits = vec![0, 1, 2];
        stand.passes(40.0, 1.0);
        assert_eq!(stand.held(), [500.0, 500.0, 500.0, 510.0]);
    }

    #[test]
    fn what_could_not_be_done_for_long_is_not_done_at_once() {
        let mut stand = Stand::new(&[(500.0, 900.0); 4]);
        stand.waits = vec![0, 1, 2];
        stand.passes(20.0, 80.0);
        stand.waits.clear();
        let before: f64 = stand.held().iter().sum();
        stand.passes(1.5, 80.0);
        let after: f64 = stand.held().iter().sum();
        assert!(after <= before + 2.0 * 80.0, "{before} to {after}");
    }

    #[test]
    fn a_device_below_its_floor_takes_no_cap_in_between_and_pays_for_that_later() {
        let mut stand = Stand::new(&[(120.0, 300.0)]);
        stand.passes(0.1, 10.0);
        assert_eq!(stand.held(), [200.0]);
        stand.passes(7.5, 10.0);
        assert_eq!(stand.held(), [200.0]);
        stand.passes(1.0, 10.0);
        assert_eq!(stand.held(), [210.0]);
    }

    #[test]
    fn another_rate_gives_nothing_at_once() {
        let mut stand = Stand::new(&[(500.0, 900.0)]);
        stand.passes(0.1, 100.0);
        for rate in [99.0, 100.0, 99.0] {
            stand.passes(0.1, rate);
        }
        assert_eq!(stand.held(), [600.0]);
    }
}
