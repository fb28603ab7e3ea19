//! How fast the caps of a node rise, where the administrator bounds that (`caps.max_rise_w_per_s`): all nodes of a
//! job raise caps at once, and their supply has to follow. Decreases wait for nothing, nor does what litd gives back
//! when it leaves: at a stop, while off, of a released device; nor a cap that an administrator sets.

use litd_policies::{Climb, Steps};
use litd_units::{Nanos, Watts};

use crate::rate::Bucket;

/// Devices that are to rise do so every second; where one came up from below its floor, that is paid for first.
const PAUSE: Nanos = Nanos(10_000_000_000);

/// The watts by which caps may rise.
#[derive(Debug, Default)]
pub(crate) struct Ramp {
    /// Watts that have not been used, of one second at most; `None`: rises are not bounded.
    bucket: Option<Bucket>,
    /// The watts a second, and the most that are saved up, for which the bucket was made.
    made_for: (f64, f64),
    /// When a device rose last.
    rose: Option<Nanos>,
}

/// The caps that a device may be given on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    /// The lowest; `None`: the device rises at once.
    pub floor: Option<Watts>,
    /// Its driver's unit.
    pub unit: Watts,
}

/// The steps that devices may make in this moment.
#[derive(Debug)]
pub(crate) struct Stairs {
    /// For each device, in the node's order.
    grids: Vec<Grid>,
    /// The watts that are left.
    left: Watts,
    /// The part of each device that is to rise.
    each: Watts,
    /// The watts that were used.
    used: Watts,
}

impl Ramp {
    /// The steps that devices may make now, where all caps together may rise by so many watts a second. Devices rise
    /// once a second, each by its part, and not by a little with each event.
    pub fn stairs(
        &mut self,
        per_second: f64,
        grids: Vec<Grid>,
        climbs: impl Iterator<Item = Climb>,
        now: Nanos,
    ) -> Stairs {
        let unit = grids.iter().map(|grid| grid.unit).reduce(Watts::max);
        let unit = unit.unwrap_or_default();
        // A driver takes whole units only.
        let full = per_second.max(unit.0);
        if self.made_for != (per_second, full) {
            (self.bucket, self.made_for) = (None, (per_second, full));
        }
        let new = || Bucket::with_burst(per_second, full, now);
        let room = self.bucket.get_or_insert_with(new).level(now);
        let (mut count, mut rest) = (0_u32, Watts::ZERO);
        for climb in climbs.filter(|climb| is_slow(&grids, climb.device)) {
            count += 1;
            rest += climb.target - climb.from;
        }
        // Bits of a second are lost in rounding.
        let is_time = room >= full * (1.0 - 1e-6) || rest.0 <= room;
        let room = Watts(if is_time { room } else { 0.0 });
        let each = match rest <= room {
            true => room,
            false => (room / f64::from(count.max(1))).max(unit),
        };
        Stairs {
            grids,
            left: room,
            each,
            used: Watts::ZERO,
        }
    }

    /// Devices have made these steps.
    pub fn rose(&mut self, stairs: &Stairs, now: Nanos) {
        if stairs.used > Watts::ZERO {
            self.rose = Some(now);
        }
        if let Some(bucket) = &mut self.bucket {
            bucket.owe(stairs.used.0, now);
        }
    }

    /// Rises are not bounded.
    pub fn lift(&mut self) {
        self.bucket = None;
    }

    /// Whether caps rise in steps now. Devices that wait for something else, such as room in the budget, don't.
    pub fn is_under_way(&self, now: Nanos) -> bool {
        self.bucket.is_some() && self.rose.is_some_and(|rose| now < rose + PAUSE)
    }
}

/// Whether a device rises in steps.
fn is_slow(grids: &[Grid], device: usize) -> bool {
    grids.get(device).is_some_and(|grid| grid.floor.is_some())
}

impl Steps for Stairs {
    /// In whole units of its driver. A device below its floor rises to that at least: its driver need not take any cap
    /// in between.
    fn next(&self, climb: Climb) -> Watts {
        let grid = self.grids.get(climb.device);
        let Some((floor, unit)) = grid.and_then(|grid| Some((grid.floor?, grid.unit))) else {
            return climb.target;
        };
        if self.left <= Watts::ZERO {
            return climb.from;
        }
        let most = climb.from + self.each.min(self.left);
        let next = match climb.target <= most {
            true => climb.target,
            false => most.cut_to(unit),
        };
        next.max(floor.min(climb.target)).max(climb.from)
    }

    fn took(&mut self, climb: Climb, cap: Watts) {
        if is_slow(&self.grids, climb.device) {
            let rise = cap - climb.from;
            self.left -= rise;
            self.used += rise;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn climb(device: usize, from: f64, target: f64) -> Climb {
        Climb {
            device,
            from: Watts(from),
            target: Watts(target),
        }
    }

    /// The caps after so many seconds, with a look every 100 ms at devices that rise by what they may.
    fn after(seconds: i64, per_second: f64, unit: f64, devices: &mut [(f64, f64)]) -> usize {
        after_with(seconds, per_second, unit, devices, &[])
    }

    /// The same, with devices for which the budget has no room.
    fn after_with(
        seconds: i64,
        per_second: f64,
        unit: f64,
        devices: &mut [(f64, f64)],
        waits: &[usize],
    ) -> usize {
        let (mut ramp, mut writes) = (Ramp::default(), 0);
        for tick in 0..=seconds * 10 {
            let now = Nanos(tick * 100_000_000);
            let rising: Vec<Climb> = devices
                .iter()
                .enumerate()
                .filter(|(_, (from, target))| from < target)
                .map(|(device, &(from, target))| climb(device, from, target))
                .collect();
            let grid = Grid {
                floor: Some(Watts(200.0)),
                unit: Watts(unit),
            };
            let grids = vec![grid; devices.len()];
            let mut stairs = ramp.stairs(per_second, grids, rising.iter().copied(), now);
            for it in rising {
                let next = stairs.next(it);
                if next > it.from && !waits.contains(&it.device) {
                    stairs.took(it, next);
                    devices[it.device].0 = next.0;
                    writes += 1;
                }
            }
            ramp.rose(&stairs, now);
        }
        writes
    }

    #[test]
    fn caps_rise_together_by_the_rate_and_once_a_second() {
        let mut devices = [(500.0, 700.0), (450.0, 700.0), (700.0, 700.0)];
        // One second's worth is saved up at the start.
        let writes = after(4, 40.0, 1.0, &mut devices);
        assert_eq!(devices, [(600.0, 700.0), (550.0, 700.0), (700.0, 700.0)]);
        assert_eq!(writes, 10);
        after(30, 40.0, 1.0, &mut devices);
        assert_eq!(devices, [(700.0, 700.0); 3]);
    }

    #[test]
    fn a_rate_below_the_units_of_all_devices_still_raises_each() {
        let mut devices = [(500.0, 503.0); 4];
        after(3, 1.0, 1.0, &mut devices);
        assert_eq!(
            devices.iter().map(|(held, _)| held - 500.0).sum::<f64>(),
            4.0
        );
        after(60, 1.0, 1.0, &mut devices);
        assert_eq!(devices, [(503.0, 503.0); 4]);
        let mut coarse = [(500.0, 520.0)];
        after(4, 1.0, 5.0, &mut coarse);
        assert_eq!(coarse, [(505.0, 520.0)]);
    }

    #[test]
    fn a_device_that_has_to_wait_takes_nothing_from_the_others() {
        let mut devices = [(500.0, 600.0), (500.0, 503.0)];
        after_with(10, 1.0, 1.0, &mut devices, &[0]);
        assert_eq!(devices, [(500.0, 600.0), (503.0, 503.0)]);
    }

    #[test]
    fn a_device_below_its_floor_takes_no_cap_in_between() {
        let mut devices = [(120.0, 300.0)];
        after(0, 10.0, 1.0, &mut devices);
        assert_eq!(devices, [(200.0, 300.0)]);
    }
}
