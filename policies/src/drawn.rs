//! The mean power of a device over a time: what its energy counter tells, where it has one that can be believed. A
//! driver's power is one moment's, or the mean of some milliseconds, and within an iteration that differs from the
//! mean by ten per cent and more.

use litd_units::{Joules, Nanos, Watts};

/// Counters are kept up to date every tenth of a second or so: over less time than this they tell little.
const SHORTEST: Nanos = Nanos(900_000_000);

/// A counter that tells more than so many times the power that was read, or less than that part of it, counts in other
/// units than it should, or not at all. One moment may lie where a GPU waits, so many readings are compared.
const APART: f64 = 2.0;

/// At the end of each time so much is kept of what is compared.
const KEPT: f64 = 0.9;

/// The power that a device has drawn since a moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Drawn {
    last: Option<Counted>,
    since: Sums,
    /// Of the times before this one.
    before: Sums,
}

/// A reading of the energy counter, and when it was asked for.
#[derive(Debug, Clone, Copy)]
struct Counted {
    asked: Nanos,
    energy: Joules,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// The increase of the counter.
    joules: f64,
    /// The time that it took for that.
    seconds: f64,
    /// The sum of all powers that were read, and their number.
    watts: f64,
    readings: f64,
}

impl Drawn {
    /// Adds a reading that was asked for at that time: the present power and the energy counter, as far as the
    /// driver tells them.
    pub fn add(&mut self, asked: Nanos, power: Option<Watts>, energy: Option<Joules>) {
        if let Some(power) = power.filter(|it| it.is_finite() && *it >= Watts::ZERO) {
            self.since.watts += power.0;
            self.since.readings += 1.0;
        }
        let Some(energy) = energy.filter(|energy| energy.0.is_finite()) else {
            return;
        };
        let now = Counted { asked, energy };
        // A counter that went down was reset, or wrapped round: what it went up by meanwhile is not known.
        let goes_on = |last: &Counted| energy >= last.energy && asked > last.asked;
        if let Some(last) = self.last.replace(now).filter(goes_on) {
            self.since.joules += (energy - last.energy).0;
            self.since.seconds += (asked - last.asked).as_secs_f64();
        }
    }

    /// The span that follows: it begins where this one ends, so that no time is left out.
    #[must_use]
    pub fn next(&self) -> Self {
        Self {
            last: self.last,
            since: Sums::default(),
            before: self.before.and(self.since).times(KEPT),
        }
    }

    /// The mean power, if anything was read.
    #[must_use]
    pub fn mean(&self) -> Option<Watts> {
        let is_enough = self.since.seconds >= SHORTEST.as_secs_f64();
        let counted = self.since.counted().filter(|_| is_enough);
        let all = self.before.and(self.since);
        let believed = match (all.counted(), all.moments()) {
            (Some(counted), Some(moments)) => {
                counted <= moments * APART && counted >= moments / APART
            }
            _ => true,
        };
        counted
            .filter(|_| believed)
            .or(self.since.moments())
            .map(Watts)
    }
}

impl Sums {
    fn and(self, other: Self) -> Self {
        Self {
            joules: self.joules + other.joules,
            seconds: self.seconds + other.seconds,
            watts: self.watts + other.watts,
            readings: self.readings + other.readings,
        }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            joules: self.joules * factor,
            seconds: self.seconds * factor,
            watts: self.watts * factor,
            readings: self.readings * factor,
        }
    }

    /// The mean power by the counter, if it counts.
    fn counted(self) -> Option<f64> {
        (self.seconds > 0.0 && self.joules > 0.0).then(|| self.joules / self.seconds)
    }

    /// The mean of the powers that were read.
    fn moments(self) -> Option<f64> {
        (self.readings > 0.0).then(|| self.watts / self.readings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn drawn(readings: &[(f64, Option<f64>)]) -> Drawn {
        let mut drawn = Drawn::default();
        for (second, &(power, energy)) in readings.iter().enumerate() {
            drawn.add(
                Nanos(second as i64 * SECOND),
                Some(Watts(power)),
                energy.map(Joules),
            );
        }
        drawn
    }

    #[test]
    fn a_counter_tells_the_mean_that_moments_miss() {
        let told = drawn(&[
            (500.0, Some(0.0)),
            (520.0, Some(610.0)),
            (510.0, Some(1220.0)),
        ]);
        assert_eq!(told.mean(), Some(Watts(610.0)));
        // The next span leaves out no time, although it has one reading.
        let mut next = told.next();
        assert_eq!(next.mean(), None);
        next.add(Nanos(3 * SECOND), Some(Watts(500.0)), Some(Joules(1800.0)));
        assert_eq!(next.mean(), Some(Watts(580.0)));
    }

    #[test]
    fn without_a_counter_that_can_be_believed_moments_count() {
        let none = drawn(&[(500.0, None), (600.0, None)]);
        assert_eq!(none.mean(), Some(Watts(550.0)));
        // A counter in millijoules instead of joules, one that stands still, and one that was reset in between.
        let wrong = drawn(&[(500.0, Some(0.0)), (600.0, Some(550e3))]);
        assert_eq!(wrong.mean(), Some(Watts(550.0)));
        let still = drawn(&[(500.0, Some(7.0)), (600.0, Some(7.0))]);
        assert_eq!(still.mean(), Some(Watts(550.0)));
        // Where nothing else tells the power, a counter alone does.
        let mut alone = Drawn::default();
        for second in 0..3 {
            alone.add(
                Nanos(second * SECOND),
                None,
                Some(Joules(300.0 * second as f64)),
            );
        }
        assert_eq!(alone.mean(), Some(Watts(300.0)));
        let reset = drawn(&[(500.0, Some(9e6)), (600.0, Some(5.0)), (550.0, Some(565.0))]);
        assert_eq!(reset.mean(), Some(Watts(560.0)));
        assert_eq!(Drawn::default().mean(), None);
    }

    #[test]
    fn one_moment_in_which_a_gpu_waits_puts_no_counter_in_doubt() {
        let mut drawn = drawn(&[(500.0, Some(0.0)), (520.0, Some(510.0))]);
        for second in 2..8 {
            drawn = drawn.next();
            let joules = Joules(510.0 * second as f64);
            let power = if second == 5 { 90.0 } else { 500.0 };
            drawn.add(Nanos(second * SECOND), Some(Watts(power)), Some(joules));
            assert_eq!(drawn.mean(), Some(Watts(510.0)), "after {second} s");
        }
    }
}
