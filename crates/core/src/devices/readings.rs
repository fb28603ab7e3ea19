//! What a device's sensors have told: the last reading that was believed, when that was asked for and answered, and
//! what readings show together.

use litd_power::Reading;
use litd_units::{Nanos, Watts};

use crate::devices::limits::Window;
use crate::devices::thermal::Thermal;
use crate::devices::unbelieved::Unbelieved;

/// The readings of a device.
#[derive(Debug)]
pub(crate) struct Readings {
    /// The last reading; `None`: the device was not read since litd started, or counts as unread again.
    last: Option<Reading>,
    asked: Nanos,
    answered: Nanos,
    /// Limiters since its job's last sample.
    window: Window,
    /// How long it takes to warm up.
    thermal: Thermal,
    /// Readings that are not believed yet.
    pub unbelieved: Unbelieved,
}

impl Default for Readings {
    fn default() -> Self {
        Self {
            last: None,
            asked: Nanos(i64::MIN),
            answered: Nanos(i64::MIN),
            window: Window::default(),
            thermal: Thermal::default(),
            unbelieved: Unbelieved::default(),
        }
    }
}

impl Readings {
    /// The first reading showed this cap, or one that the device can't hold. It counts once a second one agrees.
    pub fn first(cap: Option<Watts>, impossible: Option<Watts>) -> Self {
        Self {
            unbelieved: Unbelieved::first(cap, impossible),
            ..Self::default()
        }
    }

    /// The last reading. Until there is one nobody knows who set the device's cap.
    pub fn last(&self) -> Option<Reading> {
        self.last
    }

    /// The last reading, unless it is older than that: then it says nothing about now.
    pub fn fresh(&self, patience: Nanos, now: Nanos) -> Option<Reading> {
        self.last.filter(|_| now < self.asked + patience)
    }

    /// The cap that the last reading shows.
    pub fn cap(&self) -> Option<Watts> {
        self.last.map(|reading| reading.cap)
    }

    /// When the last reading was asked for.
    pub fn asked(&self) -> Nanos {
        self.asked
    }

    /// When the driver had answered that.
    pub fn answered(&self) -> Nanos {
        self.answered
    }

    /// A reading that was asked for at that time is believed. Returns the one before.
    pub fn comes(&mut self, reading: Reading, asked: Nanos, answered: Nanos) -> Option<Reading> {
        (self.asked, self.answered) = (asked, answered);
        self.last.replace(reading)
    }

    /// A write was confirmed: the device holds this cap. The limit in force before the write says nothing about it.
    pub fn holds(&mut self, cap: Watts) {
        if let Some(reading) = &mut self.last {
            reading.cap = cap;
            reading.enforced = None;
        }
    }

    /// The device counts as never read.
    pub fn forget_last(&mut self) {
        self.last = None;
    }

    /// Counts the last reading's limiter, and its heat.
    pub fn count(&mut self) {
        if let Some(reading) = self.last {
            self.window.add(self.asked, &reading);
            self.thermal
                .add(self.asked, reading.temperature, reading.power);
        }
    }

    /// Limiters are counted anew.
    pub fn begin_window(&mut self) {
        self.window = self.window.next();
    }

    /// Limiters since then.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// How many seconds it takes to warm up, if that is known.
    pub fn settles(&self) -> Option<f64> {
        self.thermal.settles()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn reading(cap: f64) -> Reading {
        Reading {
            cap: Watts(cap),
            enforced: Some(Watts(cap)),
            power_limited: Some(true),
            ..Reading::default()
        }
    }

    #[test]
    fn a_reading_is_fresh_for_a_while_after_it_was_asked_for() {
        let mut readings = Readings::default();
        assert_eq!(readings.fresh(at(2), at(0)), None);
        assert_eq!(readings.comes(reading(700.0), at(5), at(6)), None);
        assert_eq!((readings.asked(), readings.answered()), (at(5), at(6)));
        assert!(readings.fresh(at(2), Nanos(at(7).0 - 1)).is_some());
        assert_eq!(readings.fresh(at(2), at(7)), None);
        assert_eq!(readings.last(), Some(reading(700.0)));
        assert_eq!(
            readings.comes(reading(600.0), at(8), at(8)),
            Some(reading(700.0))
        );
    }

    #[test]
    fn a_confirmed_write_is_as_good_as_a_reading_but_for_the_limit_in_force() {
        let mut readings = Readings::default();
        readings.holds(Watts(500.0));
        assert_eq!(readings.cap(), None);
        readings.comes(reading(700.0), at(5), at(6));
        readings.holds(Watts(500.0));
        assert_eq!(readings.cap(), Some(Watts(500.0)));
        assert_eq!(readings.last().unwrap().enforced, None);
        readings.forget_last();
        assert_eq!(readings.cap(), None);
    }

    #[test]
    fn limiters_are_counted_from_each_sample_on() {
        let mut readings = Readings::default();
        readings.count();
        assert_eq!(readings.window().power_share(), None);
        readings.comes(reading(700.0), at(5), at(6));
        readings.count();
        assert_eq!(readings.window().power_share(), Some(1.0));
        readings.begin_window();
        assert_eq!(readings.window().power_share(), None);
    }
}
