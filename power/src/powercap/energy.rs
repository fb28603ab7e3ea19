//! An energy counter that wraps, as energy that only grows and as power.

use std::time::{Duration, Instant};

use litd_units::{Joules, Watts};

/// The hardware counts anew about every millisecond: power over less than a few of these is
/// noise.
const SHORTEST: Duration = Duration::from_millis(10);

/// What has been counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Meter {
    /// Microjoules in the counter when it was read last.
    last: Option<u64>,
    /// Microjoules since this began to count, with those in the counter then.
    total: u64,
    /// The total some time ago: where the next measure of power begins.
    since: Option<(u64, Instant)>,
    power: Option<Watts>,
}

impl Meter {
    /// Counts on to `counter`, in microjoules, which goes up to `highest` and then begins anew.
    /// Between two calls it must not go round twice: at 300 W a package takes 15 minutes.
    pub fn count(&mut self, counter: u64, highest: u64, now: Instant) {
        let last = self.last.replace(counter);
        let used = match last {
            None => counter,
            Some(last) if counter >= last => counter - last,
            Some(last) if last <= highest => (highest - last).saturating_add(counter),
            // It is no such counter: it was reset.
            Some(_) => 0,
        };
        self.total = self.total.saturating_add(used);
        match self.since {
            Some((total, then)) => {
                let span = now.saturating_duration_since(then);
                if span >= SHORTEST {
                    let used = (self.total - total) as f64 / 1e6;
                    self.power = Some(Watts(used / span.as_secs_f64()));
                    self.since = Some((self.total, now));
                }
            }
            None => self.since = Some((self.total, now)),
        }
    }

    /// Energy that only grows.
    pub fn energy(&self) -> Option<Joules> {
        self.last.map(|_| Joules(self.total as f64 / 1e6))
    }

    /// Power between the last two counts that were not too near each other.
    pub fn power(&self) -> Option<Watts> {
        self.power
    }
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
        meter.count(6_000_000, 10_000_000, start + Duration::from_millis(10));
        assert_eq!(meter.power(), Some(Watts(100.0)));
        // Still true a moment later.
        meter.count(6_010_000, 10_000_000, start + Duration::from_millis(11));
        assert_eq!(meter.power(), Some(Watts(100.0)));
        // It wraps: 4 J to its end, and 1 J.
        meter.count(1_000_000, 10_000_000, start + Duration::from_millis(1010));
        assert_eq!(meter.power(), Some(Watts(5.0)));
        assert_eq!(meter.energy(), Some(Joules(11.0)));
    }

    #[test]
    fn a_counter_without_an_end_that_falls_was_reset() {
        let start = Instant::now();
        let mut meter = Meter::default();
        meter.count(5_000_000, 0, start);
        meter.count(1_000_000, 0, start + Duration::from_secs(1));
        assert_eq!(meter.energy(), Some(Joules(5.0)));
        assert_eq!(meter.power(), Some(Watts(0.0)));
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
                    prop_assert!(power.is_finite() && power >= Watts::ZERO);
                }
            }
        }

        #[test]
        fn what_was_used_is_what_is_counted(
            highest in 1_000u64..1 << 40,
            steps in prop::collection::vec(0.0f64..0.9, 1..20),
        ) {
            let (mut meter, now) = (Meter::default(), Instant::now());
            let mut used = 0;
            meter.count(0, highest, now);
            for step in steps {
                used += (step * highest as f64) as u64;
                meter.count(used % highest, highest, now);
            }
            prop_assert_eq!(meter.energy(), Some(Joules(used as f64 / 1e6)));
        }
    }
}
