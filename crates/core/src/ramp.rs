//! How fast the caps of a node rise, where the administrator bounds that (`caps.max_rise_w_per_s`): all nodes of a
//! job raise caps at once, and their supply has to follow. Decreases wait for nothing, nor does what litd gives back
//! when it leaves: at a stop, while off, of a released device; nor a cap that an administrator sets.

use litd_policies::Climb;
use litd_units::{Nanos, Watts};

use crate::rate::Bucket;

/// The watts by which caps may rise.
#[derive(Debug, Default)]
pub(crate) struct Ramp {
    /// Watts that have not been used, of one second at most; `None`: rises are not bounded.
    bucket: Option<Bucket>,
    /// The watts a second, and the most that are saved up, for which the bucket was made.
    made_for: (f64, f64),
}

/// The caps between two that a driver takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    /// The lowest.
    pub floor: Watts,
    /// Its unit.
    pub unit: Watts,
}

/// The watts by which caps may rise in this moment.
#[derive(Debug)]
pub(crate) struct Steps {
    /// What is left of them.
    left: Watts,
    /// The part of each device.
    each: Watts,
    /// What was used of them.
    used: Watts,
}

impl Ramp {
    /// The rise that these devices may make now, where all caps together may rise by so many watts a second.
    /// `unit` is the coarsest unit of their drivers. Devices rise once a second, each by its part, and not by a
    /// little with each event.
    pub fn steps(
        &mut self,
        per_second: f64,
        unit: Watts,
        climbs: impl Iterator<Item = Climb>,
        now: Nanos,
    ) -> Steps {
        // A driver takes whole units only.
        let full = per_second.max(unit.0);
        if self.made_for != (per_second, full) {
            (self.bucket, self.made_for) = (None, (per_second, full));
        }
        let new = || Bucket::with_burst(per_second, full, now);
        let room = self.bucket.get_or_insert_with(new).level(now);
        let (mut count, mut rest) = (0_u32, Watts::ZERO);
        for climb in climbs {
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
        Steps {
            left: room,
            each,
            used: Watts::ZERO,
        }
    }

    /// Rises are not bounded.
    pub fn lift(&mut self) {
        self.bucket = None;
    }

    /// Whether rises are bounded.
    pub fn is_bounded(&self) -> bool {
        self.bucket.is_some()
    }

    /// Devices have risen by what these steps allowed.
    pub fn rose(&mut self, steps: &Steps, now: Nanos) {
        if let Some(bucket) = &mut self.bucket {
            bucket.owe(steps.used.0, now);
        }
    }
}

impl Steps {
    /// The cap to which a device rises now, in whole units of its driver. A device below its floor rises to that at
    /// least: its driver need not take any cap in between.
    pub fn step(&mut self, climb: Climb, grid: Grid) -> Watts {
        if self.left <= Watts::ZERO {
            return climb.from;
        }
        let most = climb.from + self.each.min(self.left);
        let next = match climb.target <= most {
            true => climb.target,
            false => most.cut_to(grid.unit),
        };
        let next = next.max(grid.floor.min(climb.target));
        let rise = (next - climb.from).max(Watts::ZERO);
        self.left -= rise;
        self.used += rise;
        climb.from + rise
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
                floor: Watts(200.0),
                unit: Watts(unit),
            };
            let mut steps = ramp.steps(per_second, grid.unit, rising.iter().copied(), now);
            for it in rising {
                let next = steps.step(it, grid).0;
                writes += usize::from(next > it.from.0);
                devices[it.device].0 = next;
            }
            ramp.rose(&steps, now);
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
    fn a_device_below_its_floor_takes_no_cap_in_between() {
        let mut devices = [(120.0, 300.0)];
        after(0, 10.0, 1.0, &mut devices);
        assert_eq!(devices, [(200.0, 300.0)]);
    }
}
