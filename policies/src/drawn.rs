//! The mean power of a device over a time: what its energy counter tells, where it has one that can be believed. A
//! driver's power is one moment's, or the mean of some milliseconds, and within an iteration that differs from the
//! mean by ten per cent and more.

use litd_units::{Joules, Nanos, Watts};

/// Counters are kept up to date every tenth of a second or so: over less time than this they tell little.
const SHORTEST: Nanos = Nanos(900_000_000);

/// A counter that tells more than so many times the power that was read, or less than that part of it, counts in other
/// units than it should, or not at all.
const APART: f64 = 2.0;

/// What was read of a device since a moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Drawn {
    first: Option<Counted>,
    last: Option<Counted>,
    /// The sum of all powers that were read, and their number.
    moments: (f64, u32),
}

/// What its energy counter told, and when it was asked.
#[derive(Debug, Clone, Copy)]
struct Counted {
    asked: Nanos,
    energy: Joules,
}

impl Drawn {
    /// One more reading, which was asked for at that time: the power of the moment and the energy counter, as far as
    /// the driver tells them.
    pub fn add(&mut self, asked: Nanos, power: Option<Watts>, energy: Option<Joules>) {
        if let Some(power) = power.filter(|it| it.is_finite() && *it >= Watts::ZERO) {
            self.moments.0 += power.0;
            self.moments.1 = self.moments.1.saturating_add(1);
        }
        let Some(energy) = energy.filter(|energy| energy.0.is_finite()) else {
            return;
        };
        let now = Counted { asked, energy };
        let goes_on = |last: Counted| energy >= last.energy && asked > last.asked;
        if !self.last.is_none_or(goes_on) {
            // It was reset, or wrapped round.
            self.first = None;
        }
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// What comes after this: it begins where this ends, so that no time is left out between two.
    #[must_use]
    pub fn next(&self) -> Self {
        Self {
            first: self.last,
            last: self.last,
            moments: (0.0, 0),
        }
    }

    /// The mean power, if anything was read.
    #[must_use]
    pub fn mean(&self) -> Option<Watts> {
        let (sum, count) = self.moments;
        let moments = (count > 0).then(|| sum / f64::from(count));
        let counted = self.counted();
        let mean = match (counted, moments) {
            (Some(counted), Some(moments)) => {
                let is_like = counted <= moments * APART && counted >= moments / APART;
                if is_like { counted } else { moments }
            }
            (counted, moments) => counted.or(moments)?,
        };
        Some(Watts(mean))
    }

    fn counted(&self) -> Option<f64> {
        let (first, last) = (self.first?, self.last?);
        let time = last.asked - first.asked;
        let joules = (last.energy - first.energy).0;
        (time >= SHORTEST && joules > 0.0).then(|| joules / time.as_secs_f64())
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
        // What follows leaves out no time, although it has one reading.
        let mut next = told.next();
        assert_eq!(next.mean(), None);
        next.add(Nanos(3 * SECOND), Some(Watts(500.0)), Some(Joules(1800.0)));
        assert_eq!(next.mean(), Some(Watts(580.0)));
    }

    #[test]
    fn without_a_counter_that_can_be_believed_moments_count() {
        let none = drawn(&[(500.0, None), (600.0, None)]);
        assert_eq!(none.mean(), Some(Watts(550.0)));
        // It counts millijoules as joules, stands still, or was reset in between.
        let wrong = drawn(&[(500.0, Some(0.0)), (600.0, Some(550e3))]);
        assert_eq!(wrong.mean(), Some(Watts(550.0)));
        let still = drawn(&[(500.0, Some(7.0)), (600.0, Some(7.0))]);
        assert_eq!(still.mean(), Some(Watts(550.0)));
        let reset = drawn(&[(500.0, Some(9e6)), (600.0, Some(5.0)), (550.0, Some(565.0))]);
        assert_eq!(reset.mean(), Some(Watts(560.0)));
        assert_eq!(Drawn::default().mean(), None);
    }
}
