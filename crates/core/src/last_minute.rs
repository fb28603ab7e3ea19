//! What all devices together drew of late, for what a BMC tells of the whole node: its figure is an average over up to a
//! minute, or that late. What it tells is therefore compared with the most that the devices drew in any second of that
//! time: less would take what a job drew a moment ago, or draws in time with the readings, for what the rest of the node
//! draws.
//!
//! Where the devices' power varies, the rest is told as less than it is, by their peak less their mean. The node's budget
//! is kept all the same: caps bound peaks, and what the BMC tells is a mean.

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

/// A device's reading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawing {
    pub power: Watts,
    /// Its energy counter, where it has one.
    pub counter: Option<Counter>,
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

/// What all devices drew, second by second.
#[derive(Debug, Default)]
pub(crate) struct LastMinute {
    seconds: VecDeque<(Nanos, Watts)>,
    /// The energy counters of the devices when they were looked at last.
    counters: BTreeMap<usize, Counter>,
}

impl LastMinute {
    /// Takes in what each device draws now, by its place in the node. Where a GPU does not tell, there is nothing to
    /// take in, and what was known before is of no use any more.
    pub fn add(&mut self, devices: Option<BTreeMap<usize, Drawing>>, now: Nanos) {
        let Some(devices) = devices else {
            return *self = Self::default();
        };
        let last = self.seconds.back().map(|it| it.0);
        if last.is_some_and(|last| now < last + APART) {
            return;
        }
        if last.is_some_and(|last| now >= last + GAP) {
            self.seconds.clear();
        }
        let before = std::mem::take(&mut self.counters);
        let each = devices.iter();
        let sum = each.map(|(device, it)| it.since(before.get(device).copied()));
        self.seconds.push_back((now, sum.sum()));
        let counters = devices.iter();
        self.counters = counters
            .filter_map(|(&device, it)| Some((device, it.counter?)))
            .collect();
        let is_old = |it: &(Nanos, Watts)| now > it.0 + AVERAGED;
        while self.seconds.len() > MOST || self.seconds.front().is_some_and(is_old) {
            self.seconds.pop_front();
        }
    }

    /// The most that the devices drew in a second of [`AVERAGED`]. Nothing while less than that time is known.
    pub fn most(&self, now: Nanos) -> Option<Most> {
        let (first, last) = self.seconds.front().zip(self.seconds.back())?;
        if last.0 < first.0 + AVERAGED - SECOND || now >= last.0 + GAP {
            return None;
        }
        let power = self.seconds.iter().map(|it| it.1).reduce(Watts::max)?;
        let is_near = last.1 >= power * NEAR;
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
    /// What it draws now, or drew at least on an average since its counter was looked at last, if that is more. The
    /// average is over the longest time that may have passed between, because a driver that takes longer for one
    /// answer would make a steady load look like a peak. A counter that tells much more than the moments is believed,
    /// unlike in [`litd_policies::Drawn`]: a user may have his GPU draw little at each of them.
    fn since(&self, before: Option<Counter>) -> Watts {
        let mean = self.counter.zip(before).and_then(|(now, then)| {
            let took = now.asked > then.asked && now.energy >= then.energy;
            let longest = now.answered.max(now.asked) - then.asked + LAG;
            took.then(|| Watts((now.energy - then.energy).0 / longest.as_secs_f64()))
        });
        mean.map_or(self.power, |mean| mean.max(self.power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Nanos {
        Nanos(second * SECOND.0)
    }

    fn told(power: f64) -> Option<BTreeMap<usize, Drawing>> {
        let power = Watts(power);
        let counter = None;
        Some(BTreeMap::from([(0, Drawing { power, counter })]))
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
            drawn.add(told(power), now);
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
        drawn.add(None, now + SECOND);
        assert_eq!(drawn.most(now + SECOND), None);
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
            let power = Watts(power);
            drawn.add(
                Some(BTreeMap::from([(0, Drawing { power, counter })])),
                asked,
            );
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
