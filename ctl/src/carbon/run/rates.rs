//! How fast the job's configurations train in truth, as far as it was measured.

use litd_carbon::{Configuration, Point};
use litd_units::{Seconds, Tokens, TokensPerSecond};
use serde::{Deserialize, Serialize};

use super::super::standing::Belief;
use super::cost::{is_switch, rate};

/// A measured rate is right to this share, checkpoints and all.
const NOISE: f64 = 0.02;
/// A configuration that has not run is counted on for this share of what its profile says, and of what those that have
/// run make likely; at best it is so much faster than its profile says.
const SURE: f64 = 0.7;
const HOPED: f64 = 1.2;
/// A job whose rate over minutes is ever below this share of what it is at other times has phases.
const SWING: f64 = 0.94;
/// A job of which nothing else is said may come to train at this share of the fastest that it has trained at.
pub const STEADY: f64 = 0.9;
/// A configuration may be compared again with what runs once others have trained for so long, and then for twice that:
/// a phase may have begun between the two measurements.
const AGAIN: Seconds = Seconds(3600.0);
/// Slow minutes are forgotten in so long: a disk that stalled once is no phase.
const FORGOTTEN: Seconds = Seconds(86_400.0);
/// Rates that are nearer than that are not compared again.
const NEAR: f64 = 1.03;
/// So many times what is enough to believe a rate is remembered: a job that becomes slower is believed to be.
const REMEMBERED: f64 = 12.0;

/// The tokens that one configuration trained, and the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Trained {
    configuration: Configuration,
    tokens: Tokens,
    time: Seconds,
    /// The time of the last switch to it, once measured.
    #[serde(default)]
    switch: Option<Seconds>,
    /// Its rates over minutes, once there was one.
    #[serde(default)]
    paces: Option<Paces>,
}

/// A rate over as long as is enough to believe it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    pub configuration: Configuration,
    pub rate: TokensPerSecond,
    pub time: Seconds,
    /// Whether another configuration ran before, and this is the first rate since.
    pub is_first: bool,
}

/// The paces of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Paces {
    slowest: TokensPerSecond,
    fastest: TokensPerSecond,
    /// What it trains at now: that of one that does not run follows what runs.
    now: TokensPerSecond,
    /// Whether one was ever a good deal slower than another.
    has_swung: bool,
    /// How often it was compared with others, and how long others have trained since.
    compared: u32,
    since: Seconds,
}

impl Paces {
    fn new(rate: TokensPerSecond) -> Self {
        Self {
            slowest: rate,
            fastest: rate,
            now: rate,
            has_swung: false,
            compared: 1,
            since: Seconds::ZERO,
        }
    }

    /// Takes a pace; how much faster the job is than it was believed to be.
    fn take(&mut self, pace: Pace) -> f64 {
        let changed = pace.rate / self.now;
        self.slowest = self.slowest.min(pace.rate);
        self.fastest = self.fastest.max(pace.rate);
        self.now = pace.rate;
        self.has_swung |= self.slowest / self.fastest < SWING;
        self.compared = self.compared.saturating_add(u32::from(pace.is_first));
        self.since = Seconds::ZERO;
        changed
    }

    /// So much time has passed: slow minutes count less.
    fn forget(&mut self, time: Seconds) {
        if self.slowest < self.now {
            let share = (time / FORGOTTEN).min(1.0);
            self.slowest += (self.now - self.slowest) * share;
        }
    }

    /// Whether it may be compared again: each time after twice as long, so that all that costs little.
    fn may_be_compared(&self) -> bool {
        let times = self.compared.saturating_sub(1).min(20);
        self.since >= AGAIN * f64::from(1_u32 << times)
    }

    fn are_possible(&self) -> bool {
        let rates = [self.slowest, self.fastest, self.now];
        rates.iter().all(|it| it.is_finite() && it.0 > 0.0) && self.since.0 >= 0.0
    }
}

/// How a job is now, against how it may be.
#[derive(Debug, Clone, Copy)]
struct Phases {
    /// The fastest that it was and the slowest that it may become, as shares of what it is now.
    fastest: f64,
    slowest: f64,
    /// What it was in the last two hours.
    lately: f64,
    /// How fast its configurations are now, as a share of the profile: on the mean, and what runs.
    ratio: f64,
    running: Configuration,
    of_profile: f64,
}

/// What a profile says of a configuration.
fn told(points: &[Point], configuration: Configuration) -> Option<TokensPerSecond> {
    let mut points = points.iter();
    let point = points.find(|it| it.configuration == configuration);
    point.map(|it| it.rate)
}

/// Recent training rates of each configuration. Measured rates replace the profile's.
///
/// A job may have phases: longer sequences, a slow data loader, throttling. They slow all its configurations down
/// alike, so what runs tells of those that do not, and only rates of neighbouring minutes are compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates(Vec<Trained>);

impl Rates {
    /// Takes a measurement; so much time is enough to believe one.
    pub fn push(
        &mut self,
        configuration: Configuration,
        tokens: Tokens,
        time: Seconds,
        enough: Seconds,
    ) {
        let own = self.own(configuration);
        own.tokens += tokens;
        own.time += time;
        let share = enough * REMEMBERED / own.time;
        if share < 1.0 {
            own.tokens = own.tokens * share;
            own.time = own.time * share;
        }
    }

    /// The record of a configuration.
    fn own(&mut self, configuration: Configuration) -> &mut Trained {
        let mut all = self.0.iter();
        let known = all.position(|it| it.configuration == configuration);
        let at = known.unwrap_or_else(|| {
            self.0.push(Trained {
                configuration,
                tokens: Tokens::ZERO,
                time: Seconds::ZERO,
                switch: None,
                paces: None,
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Takes a rate over minutes. Whatever the job becomes slower or faster by, all its configurations do.
    ///
    /// After a switch the rates of two configurations can be compared only if no phase has begun in between, and nothing
    /// tells whether one has: of the two readings the one is believed that is nearer to the profile.
    pub fn paced(&mut self, points: &[Point], pace: Pace) {
        if !(pace.rate.is_finite() && pace.rate > TokensPerSecond::ZERO) {
            return;
        }
        let paces = &mut self.own(pace.configuration).paces;
        let changed = match paces {
            Some(paces) => paces.take(pace),
            None => {
                *paces = Some(Paces::new(pace.rate));
                1.0
            }
        };
        let told = |it| told(points, it).map_or(f64::NAN, |it| it.0);
        for other in &mut self.0 {
            let proportion = told(other.configuration) / told(pace.configuration);
            let Some(paces) = &mut other.paces else {
                continue;
            };
            if other.configuration == pace.configuration {
                paces.forget(pace.time);
                continue;
            }
            paces.since += pace.time;
            let off = |it: TokensPerSecond| (it / pace.rate / proportion).ln().abs();
            let slowed = paces.now * changed;
            if !(pace.is_first && off(paces.now) < off(slowed)) {
                paces.now = slowed;
            }
            paces.forget(pace.time);
        }
        // What runs is the last.
        self.0
            .sort_by_key(|it| it.configuration == pace.configuration);
    }

    /// Takes what a switch to a configuration took.
    pub fn switched(&mut self, configuration: Configuration, cost: Seconds) {
        self.own(configuration).switch = Some(cost);
    }

    /// The largest of what the last switches to each configuration took: they load in different times.
    pub fn worst_switch(&self) -> Option<Seconds> {
        let all = self.0.iter().filter_map(|it| it.switch);
        all.max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Whether a switch to a configuration was measured.
    fn has_loaded(&self, configuration: Configuration) -> bool {
        let mut all = self.0.iter();
        all.any(|it| it.configuration == configuration && it.switch.is_some())
    }

    /// The rate of a configuration, once it was measured for long enough.
    pub fn of(&self, configuration: Configuration, enough: Seconds) -> Option<TokensPerSecond> {
        let mut own = self.0.iter();
        let own = own.find(|it| it.configuration == configuration && it.time >= enough)?;
        Some(rate(own.tokens, own.time))
    }

    /// Whether the job has phases, as far as it was seen or is said.
    fn has_phases(&self, slowest: f64) -> bool {
        let mut all = self.0.iter().filter_map(|it| it.paces);
        slowest < STEADY || all.any(|it| it.has_swung)
    }

    /// How much faster the configurations that have run are than their profile says, by the time that each has run.
    fn ratio(&self, points: &[Point], enough: Seconds) -> f64 {
        let (mut trained, mut told) = (Tokens::ZERO, Tokens::ZERO);
        for own in self.0.iter().filter(|it| it.time >= enough) {
            let mut points = points.iter();
            if let Some(point) = points.find(|it| it.configuration == own.configuration) {
                trained += own.tokens;
                told += point.rate * own.time;
            }
        }
        match told > Tokens::ZERO {
            true => trained / told,
            false => 1.0,
        }
    }

    /// Estimated rates of a profile's configurations: measured, or else the profile's in
    /// proportion to those that were. The job is taken to train at `slowest` of the fastest that it has trained at, or
    /// more.
    pub fn beliefs(&self, points: &[Point], enough: Seconds, slowest: f64) -> Vec<Belief> {
        if self.has_phases(slowest)
            && let Some(phases) = self.phases(points, slowest)
        {
            return self.beliefs_in(phases, points);
        }
        let ratio = self.ratio(points, enough);
        let belief = |point: &Point| {
            let with = |rate| Point { rate, ..*point };
            let has_loaded = self.has_loaded(point.configuration);
            if let Some(rate) = self.of(point.configuration, enough) {
                return Belief {
                    sure: rate * (slowest * (1.0 - NOISE)),
                    has_loaded,
                    ..Belief::told(with(rate))
                };
            }
            let likely = point.rate * ratio;
            let hoped = point.rate * HOPED;
            Belief {
                point: with(likely),
                sure: point.rate * (SURE * ratio.min(1.0) * slowest),
                hoped: if hoped > likely { hoped } else { likely },
                has_loaded,
            }
        };
        points.iter().map(belief).collect()
    }

    /// How the phases of a job are now; none before there is a rate over minutes.
    fn phases(&self, points: &[Point], slowest: f64) -> Option<Phases> {
        let known = || self.0.iter().filter_map(|it| Some((it, it.paces?)));
        let (last, running) = known().next_back()?;
        let lately = rate(last.tokens, last.time) / running.now;
        let fastest = known().map(|(_, it)| it.fastest / it.now);
        let fastest = fastest.fold(1.0, f64::max);
        let seen = known().map(|(_, it)| it.slowest / it.now);
        let ratios =
            known().filter_map(|(own, it)| Some(it.now / told(points, own.configuration)?));
        let ratios: Vec<f64> = ratios.collect();
        let ratio = ratios.iter().sum::<f64>() / ratios.len() as f64;
        Some(Phases {
            fastest,
            slowest: seen.fold(slowest * fastest, f64::min).min(1.0),
            lately: if lately.is_finite() && lately > 0.0 {
                lately
            } else {
                1.0
            },
            ratio: if ratio.is_finite() { ratio } else { 1.0 },
            running: last.configuration,
            of_profile: running.now / told(points, last.configuration)?,
        })
    }

    /// What is believed of a job that has phases. What is likely is as in the last two hours, and what is sure as in the
    /// slowest minutes.
    fn beliefs_in(&self, phases: Phases, points: &[Point]) -> Vec<Belief> {
        let belief = |point: &Point| {
            let mut all = self.0.iter();
            let own = all.find(|it| it.configuration == point.configuration);
            let (likely, hoped, sure) = match own.and_then(|it| it.paces) {
                Some(paces) => {
                    let again = point.rate * phases.of_profile;
                    let is_hoped = point.configuration != phases.running
                        && paces.may_be_compared()
                        && again > paces.now * NEAR;
                    let hoped = if is_hoped { again } else { paces.now };
                    // It may have been compared in a better phase than what runs: the profile is as sure, and not more.
                    let sure = match point.configuration == phases.running {
                        true => paces.now,
                        false => paces.now.min(again),
                    };
                    (paces.now, hoped, sure * (1.0 - NOISE))
                }
                None => {
                    let likely = point.rate * phases.ratio;
                    let hoped = point.rate * (HOPED / phases.fastest);
                    (
                        likely,
                        hoped.max(likely),
                        point.rate * (SURE * phases.ratio.min(1.0)),
                    )
                }
            };
            Belief {
                point: Point {
                    rate: likely * phases.lately,
                    ..*point
                },
                sure: sure * phases.slowest,
                hoped: hoped * phases.lately,
                has_loaded: own.is_some_and(|it| it.switch.is_some()),
            }
        };
        points.iter().map(belief).collect()
    }

    /// Whether each can be what a job trained.
    pub fn are_possible(&self) -> bool {
        let is_number = |it: f64| it.is_finite() && it >= 0.0;
        let mut all = self.0.iter();
        all.all(|it| {
            let switch = it.switch.unwrap_or(Seconds::ZERO);
            let paces = it.paces.is_none_or(|it| it.are_possible());
            is_number(it.tokens.0) && is_number(it.time.0) && is_switch(switch) && paces
        })
    }
}

#[cfg(test)]
mod tests {
    use litd_units::Watts;

    use super::*;

    const ENOUGH: Seconds = Seconds(600.0);

    fn point(pp: u32, rate: f64) -> Point {
        Point {
            configuration: Configuration { tp: 1, pp, dp: 1 },
            power: Watts(1000.0),
            rate: TokensPerSecond(rate),
        }
    }

    #[test]
    fn what_was_measured_replaces_the_profile_and_scales_what_was_not() {
        let points = [point(1, 100.0), point(2, 50.0)];
        let mut rates = Rates::default();
        let told = rates.beliefs(&points, ENOUGH, 1.0);
        assert_eq!(told[0].point.rate, TokensPerSecond(100.0));
        assert_eq!(told[0].sure, TokensPerSecond(70.0));
        // The first minutes are not believed.
        rates.push(
            points[0].configuration,
            Tokens(1000.0),
            Seconds(300.0),
            ENOUGH,
        );
        assert_eq!(rates.beliefs(&points, ENOUGH, 1.0), told);
        rates.push(
            points[0].configuration,
            Tokens(47_000.0),
            Seconds(300.0),
            ENOUGH,
        );
        let known = rates.beliefs(&points, ENOUGH, 1.0);
        assert_eq!(known[0].point.rate, TokensPerSecond(80.0));
        assert_eq!(known[0].hoped, known[0].point.rate);
        assert_eq!(known[1].point.rate, TokensPerSecond(40.0));
        assert!((known[1].sure.0 - 28.0).abs() < 1e-9, "{:?}", known[1]);
        assert_eq!(known[1].hoped, TokensPerSecond(60.0));
        // A rate that falls is believed: after hours the first minutes are forgotten.
        for _ in 0..20 {
            rates.push(
                points[0].configuration,
                Tokens(90_000.0),
                Seconds(1800.0),
                ENOUGH,
            );
        }
        let rate = rates.of(points[0].configuration, ENOUGH).unwrap();
        assert!((50.0..50.5).contains(&rate.0), "{rate:?}");
    }

    fn pace(point: &Point, rate: f64, is_first: bool) -> Pace {
        Pace {
            configuration: point.configuration,
            rate: TokensPerSecond(rate),
            time: ENOUGH,
            is_first,
        }
    }

    fn measure(rates: &mut Rates, points: &[Point], pace: Pace) {
        rates.push(pace.configuration, pace.rate * pace.time, pace.time, ENOUGH);
        rates.paced(points, pace);
    }

    /// What slows down what runs slows down all of them; and what was compared with another phase once is mended by the
    /// next comparison.
    #[test]
    fn a_phase_is_told_from_a_slow_configuration() {
        let points = [point(1, 100.0), point(2, 80.0)];
        let mut rates = Rates::default();
        measure(&mut rates, &points, pace(&points[0], 100.0, false));
        // A phase began with the switch: the second looks much slower than it is.
        measure(&mut rates, &points, pace(&points[1], 48.0, true));
        measure(&mut rates, &points, pace(&points[1], 48.0, false));
        let now = |rates: &Rates| {
            let of = |it: &Trained| (it.configuration.pp, it.paces.unwrap().now.0);
            let mut all: Vec<_> = rates.0.iter().map(of).collect();
            all.sort_by_key(|it| it.0);
            [all[0].1, all[1].1]
        };
        assert_eq!(now(&rates), [100.0, 48.0]);
        // Back in the first one: the phase goes on, so it is not the second one that was slow.
        measure(&mut rates, &points, pace(&points[0], 60.0, true));
        assert_eq!(now(&rates), [60.0, 48.0]);
        // The phase ends while it runs: both are faster.
        measure(&mut rates, &points, pace(&points[0], 100.0, false));
        assert_eq!(now(&rates), [100.0, 80.0]);
        let sure = |rates: &Rates| {
            let all = rates.beliefs(&points, ENOUGH, 1.0);
            all.iter().map(|it| it.sure.0).collect::<Vec<_>>()
        };
        // The slowest minutes are sure, and are forgotten in days.
        let now = sure(&rates);
        assert!(
            (58.0..60.0).contains(&now[0]) && (46.0..48.0).contains(&now[1]),
            "{now:?}"
        );
        for _ in 0..500 {
            measure(&mut rates, &points, pace(&points[0], 100.0, false));
        }
        let later = sure(&rates);
        assert!(later[0] > 95.0 && later[1] > 70.0, "{later:?}");
    }
}
