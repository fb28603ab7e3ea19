//! Perfetto's clocks. Times are wanted on one clock, BOOTTIME; others are shifted to it by what
//! snapshots tell. A clock from 64 to 127 belongs to one sequence, and may count in other units
//! or from packet to packet.

use std::collections::HashMap;

use crate::formats::proto::{Malformed, fields};

/// The clock that times are wanted on, and that packets have where they tell none.
const BOOTTIME: u64 = 6;

#[derive(Debug, Clone, Copy)]
struct Clock {
    /// Nanoseconds per unit.
    unit: i64,
    /// Whether each time counts from the one before.
    incremental: bool,
    /// The last time, in units.
    last: i64,
    /// What to add to its nanoseconds for BOOTTIME.
    shift: i64,
}

/// The clocks that snapshots have declared: by sequence (0 for those of the machine) and number.
#[derive(Default)]
pub(super) struct Clocks(HashMap<(u64, u64), Clock>);

/// Whose clock a number is.
fn key(sequence: u64, clock: u64) -> (u64, u64) {
    match clock {
        64..=127 => (sequence, clock),
        _ => (0, clock),
    }
}

impl Clocks {
    /// Takes a ClockSnapshot: the same moment on several clocks.
    pub(super) fn snapshot(&mut self, sequence: u64, message: &[u8]) -> Result<(), Malformed> {
        let mut all = Vec::new();
        for field in fields(message) {
            let (1, value) = field? else { continue };
            let (mut number, mut stamp, mut incremental, mut unit) = (0, 0_u64, false, 1_i64);
            for field in fields(value.bytes()) {
                match field? {
                    (1, value) => number = value.number(),
                    (2, value) => stamp = value.number(),
                    (3, value) => incremental = value.number() != 0,
                    (4, value) => unit = i64::try_from(value.number()).unwrap_or(1).max(1),
                    _ => {}
                }
            }
            all.push((number, stamp as i64, incremental, unit));
        }
        let nanos = |&(_, stamp, _, unit): &(u64, i64, bool, i64)| stamp.saturating_mul(unit);
        // The moment on BOOTTIME: told, or known from another clock.
        let boot = all.iter().find(|clock| clock.0 == BOOTTIME).map(nanos);
        let known = || {
            all.iter().find_map(|clock| {
                let known = self.0.get(&key(sequence, clock.0))?;
                Some(nanos(clock).saturating_add(known.shift))
            })
        };
        let boot = boot.or_else(known).or_else(|| all.first().map(nanos));
        for clock in &all {
            let &(number, last, incremental, unit) = clock;
            let shift = boot.map_or(0, |boot| boot.saturating_sub(nanos(clock)));
            let clock = Clock {
                unit,
                incremental,
                last,
                shift,
            };
            // The first snapshot of a machine's clock decides: later ones would make it jump.
            match number {
                64..=127 => self.0.insert(key(sequence, number), clock),
                _ => Some(*self.0.entry(key(sequence, number)).or_insert(clock)),
            };
        }
        Ok(())
    }

    /// A packet's time in nanoseconds on BOOTTIME; `None` on a clock that its sequence did not
    /// declare. Each packet's time must be asked for once, in order.
    pub(super) fn time(&mut self, sequence: u64, clock: Option<u64>, stamp: u64) -> Option<i64> {
        let number = clock.unwrap_or(BOOTTIME);
        let stamp = stamp as i64;
        match self.0.get_mut(&key(sequence, number)) {
            Some(clock) => {
                let time = match clock.incremental {
                    true => clock.last.saturating_add(stamp),
                    false => stamp,
                };
                clock.last = time;
                Some(time.saturating_mul(clock.unit).saturating_add(clock.shift))
            }
            None if number < 64 => Some(stamp),
            None => None,
        }
    }
}
