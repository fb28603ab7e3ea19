//! A wrapping energy counter, converted to energy that only grows and to power.

use std::path::Path;
use std::time::{Duration, Instant};

use litd_units::{Joules, Watts};

use crate::sysfs::{Attribute, FileError};

/// The hardware updates the counter about every millisecond: power over less than many of these is noise, and a
/// counter that stands still for so long does not count.
const SHORTEST: Duration = Duration::from_millis(50);

/// More power than any socket draws: a counter that seems to have wrapped so fast was reset.
const ABSURD: f64 = 5000.0;

/// The energy counted so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Meter {
    /// Microjoules in the counter at its last reading, and the time of that.
    last: Option<(u64, Instant)>,
    /// Microjoules since counting began, with those in the counter then.
    total: u64,
    /// The total some time ago: where the next measure of power begins.
    since: Option<(u64, Instant)>,
    power: Option<Watts>,
}

impl Meter {
    /// Counts on to `counter`, in microjoules, which goes up to `highest` and then wraps. Between two calls it
    /// must not wrap twice: at 300 W a package takes 15 minutes.
    pub fn count(&mut self, counter: u64, highest: u64, now: Instant) {
        let used = match self.last.replace((counter, now)) {
            None => counter,
            Some((last, _)) if counter >= last => counter - last,
            Some((last, then)) => match round(last, counter, highest, now - then) {
                Some(used) => used,
                None => {
                    self.restart();
                    0
                }
            },
        };
        self.total = self.total.saturating_add(used);
        let (total, then) = *self.since.get_or_insert((self.total, now));
        let span = now.saturating_duration_since(then);
        if span >= SHORTEST {
            let used = (self.total - total) as f64 / 1e6;
            // A socket that draws 0 W does not exist.
            self.power = (used > 0.0).then(|| Watts(used / span.as_secs_f64()));
            self.since = Some((self.total, now));
        }
    }

    /// Forgets the power: the next measure of it begins with the next count.
    pub fn restart(&mut self) {
        self.since = None;
        self.power = None;
    }

    /// Energy that only grows.
    pub fn energy(&self) -> Option<Joules> {
        self.last.map(|_| Joules(self.total as f64 / 1e6))
    }

    /// Power between the last two readings that were not too close to each other.
    pub fn power(&self) -> Option<Watts> {
        self.power
    }
}

/// A zone's counter of energy.
#[derive(Debug)]
pub(crate) struct Counter {
    energy: Attribute,
    highest: Attribute,
}

impl Counter {
    /// The counter of `zone`.
    pub fn of(zone: &Path) -> Self {
        Self {
            energy: Attribute::new(zone.join("energy_uj")),
            highest: Attribute::new(zone.join("max_energy_range_uj")),
        }
    }

    /// Closes the files until the next count.
    pub fn close(&mut self) {
        for file in [&mut self.energy, &mut self.highest] {
            *file = Attribute::new(file.path().to_owned());
        }
    }

    /// What the counter says, in microjoules.
    pub fn read(&mut self) -> Result<u64, FileError> {
        self.energy.number()
    }

    /// Counts the energy used until now. Returns whether the counter can be read.
    pub fn count(&mut self, meter: &mut Meter) -> bool {
        let Ok(counter) = self.read() else {
            meter.restart();
            return false;
        };
        let highest = self.highest.number().unwrap_or(0);
        meter.count(counter, highest, Instant::now());
        true
    }
}

/// The energy used while a counter went from `last` on to `counter`; `None` if it was reset.
fn round(last: u64, counter: u64, highest: u64, span: Duration) -> Option<u64> {
    let used = highest.checked_sub(last)?.checked_add(counter)?;
    let watts = used as f64 / 1e6 / span.max(SHORTEST).as_secs_f64();
    (watts < ABSURD).then_some(used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn power_is_energy_over_time() {
        let start = Instant::now();
        let mut meter = Meter::default();
        meter.count(5_000_000, 10_000_000, start);
        assert_eq!((meter.energy(), meter.power()), (Some(Joules(5.0)), None));
        // Too soon to tell.
        meter.count(5_100_000, 10_000_000, start + Duration::from_millis(1));
        assert_eq!(meter.power(), None);
        meter.count(10_000_000, 10_000_000, start + Duration::from_millis(50));
        assert_eq!(meter.power(), Some(Watts(100.0)));
        // Still true a moment later.
        meter.count(10_000_000, 10_000_000, start + Duration::from_millis(51));
        assert_eq!(meter.power(), Some(Watts(100.0)));
        // The counter wraps.
        meter.count(5_000_000, 10_000_000, start + Duration::from_millis(1050));
        assert_eq!(meter.power(), Some(Watts(5.0)));
        assert_eq!(meter.energy(), Some(Joules(15.0)));
    }

    #[test]
    fn a_counter_that_was_reset_tells_no_power_until_it_is_measured_anew() {
        // A counter without an end, and one that would have used 262 kJ in a second.
        for highest in [0, 262_143_328_850] {
            let start = Instant::now();
            let mut meter = Meter::default();
            let mut count = |counter, seconds| {
                meter.count(counter, highest, start + Duration::from_secs(seconds));
                (meter.energy().unwrap().0, meter.power())
            };
            count(5_000_000, 0);
            assert_eq!(count(305_000_000, 1), (305.0, Some(Watts(300.0))));
            assert_eq!(count(1_000_000, 2), (305.0, None));
            assert_eq!(count(201_000_000, 3), (505.0, Some(Watts(200.0))));
        }
    }

    #[test]
    fn a_counter_that_stands_still_tells_no_power() {
        let start = Instant::now();
        let mut meter = Meter::default();
        let mut count = |counter, milliseconds| {
            meter.count(counter, 0, start + Duration::from_millis(milliseconds));
            meter.power()
        };
        count(5_000_000, 0);
        assert_eq!(count(15_000_000, 100), Some(Watts(100.0)));
        assert_eq!(count(15_000_000, 200), None);
        assert_eq!(count(25_000_000, 300), Some(Watts(100.0)));
    }

    #[test]
    fn a_measure_that_begins_anew_has_nothing_of_what_was_before() {
        let start = Instant::now();
        let mut meter = Meter::default();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        meter.count(0, 0, at(0));
        meter.count(300_000_000, 0, at(1000));
        meter.restart();
        assert_eq!(meter.power(), None);
        meter.count(450_000_000, 0, at(1500));
        meter.count(451_000_000, 0, at(1549));
        assert_eq!(meter.power(), None);
        meter.count(460_000_000, 0, at(1600));
        assert_eq!(meter.power(), Some(Watts(100.0)));
        assert_eq!(meter.energy(), Some(Joules(460.0)));
    }

    proptest! {
        #[test]
        fn energy_never_falls(
            highest in 0u64..=1 << 40,
            counts in prop::collection::vec((any::<u64>(), 0u64..100_000), 1..20),
        ) {
            let mut meter = Meter::default();
            let mut now = Instant::now();
            let mut before = 0.0;
            for (counter, wait) in counts {
                now += Duration::from_micros(wait);
                meter.count(counter, highest, now);
                let energy = meter.energy().unwrap().0;
                prop_assert!(energy >= before);
                before = energy;
                if let Some(power) = meter.power() {
                    prop_assert!(power.is_finite() && power > Watts::ZERO);
                }
            }
        }

        #[test]
        fn what_was_used_is_what_is_counted(
            highest in 1_000u64..1 << 40,
            steps in prop::collection::vec(0.0f64..0.9, 1..20),
        ) {
            let (mut meter, mut now) = (Meter::default(), Instant::now());
            let mut used = 0;
            meter.count(0, highest, now);
            for step in steps {
                let more = (step * highest as f64) as u64;
                used += more;
                // At 1 kW.
                now += Duration::from_nanos(more);
                meter.count(used % highest, highest, now);
            }
            prop_assert_eq!(meter.energy(), Some(Joules(used as f64 / 1e6)));
        }
    }
}
