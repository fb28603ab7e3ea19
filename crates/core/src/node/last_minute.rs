//! What all devices together drew in the last minute, to find what the rest of the node draws.
//!
//! A BMC's figure for the node is an average over up to a minute, or up to a minute old. The most that the devices drew
//! in any second of that minute is subtracted from it: with less, power that a job drew a moment ago (or draws in step
//! with the readings) would be taken for the rest's.
//!
//! If the devices' power varies, the rest comes out too small, by the difference between their peak and their mean.
//! The node's budget is kept all the same: no device counts with more than its cap, so that nothing is left to vary
//! once all draw what they may.

use std::collections::{BTreeMap, VecDeque};

use litd_units::{Joules, Nanos, Watts};

/// A BMC's figure is an average over so long at most, or that late.
const AVERAGED: Nanos = Nanos(60_000_000_000);

/// Where nothing was read for so long, nobody knows what was drawn.
const GAP: Nanos = Nanos(10_000_000_000);

/// Devices are read once a second: what comes sooner than so long after the last is the same reading.
const APART: Nanos = Nanos(500_000_000);

/// Devices that draw less than this share of the most of the last minute do not draw about as much.
const NEAR: f64 = 0.9;

/// Devices are read so often.
const SECOND: Nanos = Nanos(1_000_000_000);

/// A counter is at most so old when a driver tells it: 20 to 100 ms on NVIDIA's GPUs.
const LAG: Nanos = Nanos(100_000_000);

/// No more is kept than comes in [`AVERAGED`].
const MOST: usize = 122;

/// What a device draws.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Drawing {
    /// It was read.
    Told {
        power: Watts,
        /// Its energy counter, where it has one.
        counter: Option<Counter>,
        /// The most that it may draw on an average: its firmware keeps the mean within the cap, and not the power of a
        /// moment, which the driver may tell.
        most: Watts,
    },
    /// It does not answer, and may draw so much.
    Silent { most: Watts },
}

/// A device's energy counter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counter {
    pub energy: Joules,
    /// When the driver was asked.
    pub asked: Nanos,
    /// When it had answered: the counter was read some time between.
    pub answered: Nanos,
}

/// What all devices drew in a second.
#[derive(Debug, Clone, Copy)]
struct Second {
    at: Nanos,
    power: Watts,
    /// Whether every device was read.
    is_whole: bool,
}

/// What all devices drew, second by second.
#[derive(Debug, Default)]
pub(crate) struct LastMinute {
    seconds: VecDeque<Second>,
    /// The energy counters of the devices when they were looked at last.
    counters: BTreeMap<usize, Counter>,
}

impl LastMinute {
    /// Takes in what each device draws now, by its place in the node.
    pub fn add(&mut self, devices: &BTreeMap<usize, Drawing>, now: Nanos) {
        let last = self.seconds.back().map(|it| it.at);
        if last.is_some_and(|last| now < last + APART) {
            return;
        }
        if last.is_some_and(|last| now >= last + GAP) {
            self.seconds.clear();
        }
        let before = std::mem::take(&mut self.counters);
        let each = devices.iter();
        let sum = each.map(|(device, it)| it.since(before.get(device).copied()));
        self.seconds.push_back(Second {
            at: now,
            power: sum.sum(),
            is_whole: devices
                .values()
                .all(|it| matches!(it, Drawing::Told { .. })),
        });
        let counters = devices.iter();
        self.counters = counters
            .filter_map(|(&device, it)| Some((device, it.counter()?)))
            .collect();
        let is_old = |it: &Second| now > it.at + AVERAGED;
        while self.seconds.len() > MOST || self.seconds.front().is_some_and(is_old) {
            self.seconds.pop_front();
        }
    }

    /// The most that the devices drew in a second of [`AVERAGED`]. Nothing while less than that time is known.
    pub fn most(&self, now: Nanos) -> Option<Most> {
        let (first, last) = self.seconds.front().zip(self.seconds.back())?;
        if last.at < first.at + AVERAGED - SECOND || now >= last.at + GAP {
            return None;
        }
        let power = self.seconds.iter().map(|it| it.power).reduce(Watts::max)?;
        let is_near = last.is_whole && last.power >= power * NEAR;
        Some(Most { power, is_near })
    }
}

/// The most that the devices drew in a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Most {
    pub power: Watts,
    /// Whether they draw about as much now. A BMC that tells the power of the moment tells less of the rest otherwise.
    pub is_near: bool,
}

impl Drawing {
    fn counter(&self) -> Option<Counter> {
        match self {
            Self::Told { counter, .. } => *counter,
            Self::Silent { .. } => None,
        }
    }

    /// What it draws now, or drew at least on an average since its counter was looked at last, if that is more. The
    /// average is over the longest time that may have passed between, because a driver that takes longer for one
    /// answer would make a steady load look like a peak. A counter that tells much more than the moments is believed,
    /// unlike in [`litd_policies::Drawn`]: a user may have his GPU draw little at each of them.
    fn since(&self, before: Option<Counter>) -> Watts {
        let (power, counter, most) = match *self {
            Self::Silent { most } => return most,
            Self::Told {
                power,
                counter,
                most,
            } => (power, counter, most),
        };
        let mean = counter.zip(before).and_then(|(now, then)| {
            let took = now.asked > then.asked && now.energy >= then.energy;
            let longest = now.answered.max(now.asked) - then.asked + LAG;
            took.then(|| Watts((now.energy - then.energy).0 / longest.as_secs_f64()))
        });
        mean.map_or(power, |mean| mean.max(power)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Nanos {
        Nanos(second * SECOND.0)
    }

    fn told(power: f64) -> BTreeMap<usize, Drawing> {
        let told = Drawing::Told {
            power: Watts(power),
            counter: None,
            most: Watts(700.0),
        };
        BTreeMap::from([(0, told)])
    }

    fn near(power: f64) -> Option<Most> {
        Some(Most {
            power: Watts(power),
            is_near: true,
        })
    }

    /// A second of these watts each, from 0 on.
    fn of(powers: impl IntoIterator<Item = f64>) -> (LastMinute, Nanos) {
        let mut drawn = LastMinute::default();
        let mut now = Nanos(0);
        for (at, power) in (0..).zip(powers) {
            now = second(at);
            drawn.add(&told(power), now);
        }
        (drawn, now)
    }

    #[test]
    fn a_minute_has_to_be_known() {
        let (drawn, now) = of([500.0; 59]);
        assert_eq!(drawn.most(now), None);
        let (mut drawn, now) = of([500.0; 60]);
        assert_eq!(drawn.most(now), near(500.0));
        assert_eq!(drawn.most(now + GAP), None);
        drawn.add(&told(500.0), now + GAP);
        assert_eq!(drawn.most(now + GAP), None);
    }

    /// A device that does not answer may draw all that it may hold, and what is told then is no reserve.
    #[test]
    fn a_silent_device_counts_with_the_most() {
        let (mut drawn, now) = of([500.0; 60]);
        let most = Watts(690.0);
        drawn.add(
            &BTreeMap::from([(0, Drawing::Silent { most })]),
            now + SECOND,
        );
        let power = most;
        let is_near = false;
        assert_eq!(drawn.most(now + SECOND), Some(Most { power, is_near }));
    }

    /// The power of a moment may be above the cap, and the mean is not.
    #[test]
    fn a_device_draws_no_more_than_its_cap_on_an_average() {
        let (drawn, now) = of((0..60).map(|second| if second % 7 == 0 { 820.0 } else { 650.0 }));
        assert_eq!(drawn.most(now).unwrap().power, Watts(700.0));
    }

    #[test]
    fn what_was_drawn_up_to_a_minute_ago_counts() {
        let fell = |at, to| (0..100).map(move |second| if second < at { 700.0 } else { to });
        let (drawn, now) = of(fell(41, 650.0));
        assert_eq!(drawn.most(now), near(700.0));
        let (drawn, now) = of(fell(38, 650.0));
        assert_eq!(drawn.most(now), near(650.0));
        let (drawn, now) = of(fell(41, 600.0));
        let far = Most {
            power: Watts(700.0),
            is_near: false,
        };
        assert_eq!(drawn.most(now), Some(far));
    }

    /// What a load that is low whenever it is looked at draws at least, by its counter: 400 W less what the counter's
    /// lag may account for. Answers take this long, once in so many seconds.
    fn hidden(power: f64, takes: Nanos, each: i64) -> Watts {
        let mut drawn = LastMinute::default();
        for at in 0..80 {
            let asked = second(at);
            let answered = match at % each {
                0 => asked + takes,
                _ => asked,
            };
            let energy = Joules(answered.as_secs_f64() * 400.0);
            let counter = Some(Counter {
                energy,
                asked,
                answered,
            });
            let told = Drawing::Told {
                power: Watts(power),
                counter,
                most: Watts(700.0),
            };
            drawn.add(&BTreeMap::from([(0, told)]), asked);
        }
        drawn.most(second(79)).unwrap().power
    }

    #[test]
    fn energy_counts_where_it_is_counted() {
        assert!((hidden(100.0, Nanos(0), 1) - Watts(400.0 / 1.1)).abs() < Watts(0.001));
        // A steady load is no peak because an answer takes long now and then.
        for takes in [50, 100, 200, 400, 900] {
            assert_eq!(hidden(400.0, Nanos(takes * 1_000_000), 20), Watts(400.0));
        }
    }
}
