//! Readings of a device's cap that are not believed yet.

use litd_units::{Nanos, Watts};

/// A cap that was read and is not believed yet.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    cap: Watts,
    /// Since when no reading of the device is believed; `None`: none was believed before.
    since: Option<Nanos>,
    /// Whether readings have contradicted each other since then: what the device holds is unknown.
    is_contradicted: bool,
}

/// The verdict on a reading that is unlike all that is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Heard {
    /// The reading is the first of its kind: the device has to be read again.
    Once,
    /// The reading before said the same: both are believed.
    Twice,
    /// The reading before showed another cap that was not believed either.
    Otherwise,
    /// Readings have contradicted each other before, and go on to: the last one showed this cap.
    OtherwiseAgain(Watts),
}

/// Readings of a device that are not believed.
#[derive(Debug, Default)]
pub(crate) struct Unbelieved {
    /// A cap that was read once and is unlike what is known: nothing is written until it has been read again.
    suspect: Option<Suspect>,
    /// The last cap that was read, if it is outside the driver's range: one of the two is wrong.
    impossible: Option<Watts>,
}

impl Unbelieved {
    /// The readings before litd knew anything of the device.
    pub fn first(suspect: Option<Watts>, impossible: Option<Watts>) -> Self {
        let suspect = suspect.map(|cap| Suspect {
            cap,
            since: None,
            is_contradicted: false,
        });
        Self {
            suspect,
            impossible,
        }
    }

    /// A reading came that must be repeated before it is believed.
    pub fn hears(&mut self, cap: Watts, now: Nanos) -> Heard {
        let before = self.suspect;
        let heard = match before {
            Some(before) if before.cap.is_same_cap(cap) => Heard::Twice,
            Some(before) if before.since.is_some() => match before.is_contradicted {
                true => Heard::OtherwiseAgain(before.cap),
                false => Heard::Otherwise,
            },
            _ => Heard::Once,
        };
        self.suspect = Some(Suspect {
            cap,
            since: before.and_then(|it| it.since).or(Some(now)),
            is_contradicted: heard == Heard::Otherwise
                || before.is_some_and(|it| it.is_contradicted),
        });
        heard
    }

    /// A reading came; `impossible`, if its cap is outside the driver's range.
    pub fn hears_beyond(&mut self, impossible: Option<Watts>) {
        self.impossible = impossible;
    }

    /// The last reading is believed.
    pub fn settle(&mut self) {
        *self = Self::default();
    }

    /// Whether the last reading is unlike all that is known.
    pub fn is_suspect(&self) -> bool {
        self.suspect.is_some()
    }

    /// Since when no reading is believed, where one was before.
    pub fn since(&self) -> Option<Nanos> {
        self.suspect?.since
    }

    /// Whether the readings contradict each other: the device may hold whatever it can hold.
    pub fn contradicts_itself(&self) -> bool {
        self.suspect.is_some_and(|it| it.is_contradicted)
    }

    /// The last cap that was read, if it is outside the driver's range.
    pub fn impossible(&self) -> Option<Watts> {
        self.impossible
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hears(it: &mut Unbelieved, cap: f64, at: i64) -> Heard {
        it.hears(Watts(cap), Nanos(at))
    }

    #[test]
    fn what_is_read_twice_is_believed() {
        let mut it = Unbelieved::default();
        assert_eq!(hears(&mut it, 500.0, 1), Heard::Once);
        assert_eq!((it.is_suspect(), it.since()), (true, Some(Nanos(1))));
        assert_eq!(hears(&mut it, 500.0, 2), Heard::Twice);
        it.settle();
        assert_eq!((it.is_suspect(), it.since()), (false, None));
    }

    #[test]
    fn readings_that_contradict_each_other_are_told_of_once_with_the_cap_and_then_as_going_on() {
        let mut it = Unbelieved::default();
        hears(&mut it, 500.0, 1);
        assert!(!it.contradicts_itself());
        assert_eq!(hears(&mut it, 400.0, 2), Heard::Otherwise);
        assert!(it.contradicts_itself());
        assert_eq!(
            hears(&mut it, 300.0, 3),
            Heard::OtherwiseAgain(Watts(400.0))
        );
        // No reading is believed since the first of them.
        assert_eq!(it.since(), Some(Nanos(1)));
        assert_eq!(hears(&mut it, 300.0, 4), Heard::Twice);
    }

    #[test]
    fn the_first_reading_of_all_contradicts_nothing() {
        let mut it = Unbelieved::first(Some(Watts(700.0)), None);
        assert_eq!((it.is_suspect(), it.since()), (true, None));
        assert_eq!(hears(&mut it, 500.0, 1), Heard::Once);
        let mut it = Unbelieved::first(Some(Watts(700.0)), None);
        assert_eq!(hears(&mut it, 700.0, 1), Heard::Twice);
    }

    #[test]
    fn a_cap_beyond_the_range_is_known_until_a_reading_is_believed() {
        let mut it = Unbelieved::first(None, Some(Watts(9000.0)));
        assert_eq!(
            (it.impossible(), it.is_suspect()),
            (Some(Watts(9000.0)), false)
        );
        it.hears_beyond(Some(Watts(8000.0)));
        assert_eq!(it.impossible(), Some(Watts(8000.0)));
        it.settle();
        assert_eq!(it.impossible(), None);
    }
}
