//! The reserve: the power of all parts of the node other than GPUs and CPUs, as the BMC's readings tell.

use std::collections::BTreeMap;

use litd_units::{Nanos, Watts};

use crate::node::counted::Counted;
use crate::node::last_minute::{Drawing, LastMinute};

/// How many readings the reserve takes: five minutes' worth, one every five seconds.
const READINGS: u64 = 60;

/// What readings show of a power.
#[derive(Debug, Default)]
struct Rest {
    seen: Counted,
    last: Option<Watts>,
}

impl Rest {
    /// Takes in what one reading tells. The lesser of two successive values counts: a single wrong one takes nothing
    /// from the GPUs.
    fn hear(&mut self, rest: Watts) {
        if let Some(last) = self.last.replace(rest) {
            self.seen.add(rest.min(last).0);
        }
    }

    fn known(&self) -> Option<Watts> {
        let known = self.seen.count >= READINGS;
        self.shown().filter(|_| known)
    }

    /// What the readings so far show, however few they are.
    fn shown(&self) -> Option<Watts> {
        self.seen.p999().map(Watts)
    }
}

/// What the parts other than GPUs and CPUs draw.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    /// While GPUs and CPUs draw about as much as in the minute before.
    rest: Rest,
    /// At least, by all readings.
    least: Rest,
    /// The same while less than a minute of the devices' power is known, where they draw all that they may.
    first: Rest,
    /// The most that all devices may have drawn since shortly before litd was started.
    may_draw: Watts,
    /// What GPUs and CPU sockets drew of late.
    drawn: LastMinute,
    /// At least, as an earlier litd of this boot saw it.
    recalled: Option<Watts>,
}

impl Reserve {
    /// What each device draws now.
    pub fn draws(&mut self, devices: &BTreeMap<usize, Drawing>, now: Nanos) {
        self.drawn.add(devices, now);
    }

    /// The node draws this power, and all devices may draw so much of it.
    ///
    /// # Errors
    /// A node draws no less than its GPUs and CPUs alone, which draw so much: the reading is wrong, and tells of
    /// nothing. While they draw less than a moment ago it may be right.
    pub fn hears(&mut self, power: Watts, may_draw: Watts, now: Nanos) -> Result<(), Watts> {
        match self.drawn.most(now) {
            Some(most) if most.is_near && power < most.power => return Err(most.power),
            Some(most) => {
                let rest = (power - most.power).max(Watts::ZERO);
                self.least.hear(rest);
                if most.is_near {
                    self.rest.hear(rest);
                }
            }
            None => {
                self.may_draw = self.may_draw.max(may_draw);
                self.first.hear((power - self.may_draw).max(Watts::ZERO));
            }
        }
        Ok(())
    }

    /// An earlier litd of this boot saw that it is at least so much.
    pub fn recall(&mut self, least: Option<Watts>) {
        self.recalled = least;
    }

    /// The reserve, once enough readings have shown it.
    pub fn measured(&self) -> Option<Watts> {
        self.rest.known()
    }

    /// The least that it can be, as far as anything shows that.
    pub fn least(&self) -> Option<Watts> {
        let shown = self.least.shown().or_else(|| self.first.shown());
        let each = [shown, self.recalled];
        each.into_iter().flatten().reduce(Watts::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// Two GPUs that draw so much each, for so many seconds up to `until`.
    fn draws(reserve: &mut Reserve, each: f64, seconds: i64, until: i64) {
        for second in until - seconds..until {
            let told = Drawing::Told {
                power: Watts(each),
                counter: None,
                most: Watts(each),
            };
            let devices = BTreeMap::from([(0, told), (1, told)]);
            reserve.draws(&devices, Nanos(second * SECOND));
        }
    }

    #[test]
    fn what_the_node_draws_beside_its_steady_devices_is_measured_after_five_minutes() {
        let mut reserve = Reserve::default();
        draws(&mut reserve, 500.0, 61, 0);
        for reading in 0..61 {
            assert_eq!(reserve.measured(), None, "{reading} readings");
            let now = reading * 5;
            draws(&mut reserve, 500.0, 5, now + 5);
            let told = reserve.hears(Watts(1800.0), Watts(1400.0), Nanos((now + 5) * SECOND));
            assert_eq!(told, Ok(()));
        }
        assert_eq!(reserve.measured(), Some(Watts(800.0)));
    }

    #[test]
    fn readings_below_what_the_devices_draw_measure_nothing() {
        let mut reserve = Reserve::default();
        draws(&mut reserve, 500.0, 61, 0);
        for reading in 0..120 {
            let now = reading * 5;
            draws(&mut reserve, 500.0, 5, now + 5);
            let told = reserve.hears(Watts(900.0), Watts(1400.0), Nanos((now + 5) * SECOND));
            assert_eq!(told, Err(Watts(1000.0)));
        }
        assert_eq!((reserve.measured(), reserve.least()), (None, None));
    }

    #[test]
    fn devices_that_draw_less_than_a_moment_ago_show_only_the_least_that_it_can_be() {
        let mut reserve = Reserve::default();
        draws(&mut reserve, 500.0, 61, 0);
        for reading in 0..70 {
            // 100 W each, and 500 W once in a while: a BMC's mean may be of either.
            let now = reading * 5;
            let each = if reading % 6 == 0 { 500.0 } else { 100.0 };
            draws(&mut reserve, each, 5, now + 4);
            draws(&mut reserve, 100.0, 1, now + 5);
            let told = reserve.hears(Watts(1400.0), Watts(1400.0), Nanos((now + 5) * SECOND));
            assert_eq!(told, Ok(()));
        }
        assert_eq!(reserve.measured(), None);
        assert_eq!(reserve.least(), Some(Watts(400.0)));
    }

    #[test]
    fn before_a_minute_is_known_devices_count_with_the_most_that_they_may_draw() {
        let mut reserve = Reserve::default();
        assert_eq!(
            reserve.hears(Watts(1800.0), Watts(1400.0), Nanos(0)),
            Ok(())
        );
        assert_eq!(reserve.least(), None);
        // What they may draw by now is less: the figures may still be of before.
        for second in 1..4 {
            assert_eq!(
                reserve.hears(Watts(1800.0), Watts(1000.0), Nanos(second * SECOND)),
                Ok(())
            );
            assert_eq!(reserve.least(), Some(Watts(400.0)));
        }
    }

    #[test]
    fn an_earlier_litds_least_goes_on_to_count_unless_more_is_seen() {
        let mut reserve = Reserve::default();
        reserve.recall(Some(Watts(600.0)));
        for _ in 0..2 {
            assert_eq!(
                reserve.hears(Watts(1800.0), Watts(1400.0), Nanos(0)),
                Ok(())
            );
        }
        assert_eq!(reserve.least(), Some(Watts(600.0)));
        for _ in 0..2 {
            assert_eq!(
                reserve.hears(Watts(2300.0), Watts(1400.0), Nanos(0)),
                Ok(())
            );
        }
        assert_eq!(reserve.least(), Some(Watts(900.0)));
        reserve.recall(None);
        assert_eq!(reserve.least(), Some(Watts(900.0)));
    }
}
