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
}

/// Recent training rates of each configuration. Measured rates replace the profile's.
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
            });
            self.0.len() - 1
        });
        &mut self.0[at]
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

    /// Estimated rates of a profile's configurations: measured, or else the profile's in proportion
    /// to those measured.
    pub fn beliefs(&self, points: &[Point], enough: Seconds) -> Vec<Belief> {
        let ratio = self.ratio(points, enough);
        let belief = |point: &Point| {
            let with = |rate| Point { rate, ..*point };
            let has_loaded = self.has_loaded(point.configuration);
            if let Some(rate) = self.of(point.configuration, enough) {
                return Belief {
                    sure: rate * (1.0 - NOISE),
                    has_loaded,
                    ..Belief::told(with(rate))
                };
            }
            let likely = point.rate * ratio;
            let hoped = point.rate * HOPED;
            Belief {
                point: with(likely),
                sure: point.rate * (SURE * ratio.min(1.0)),
                hoped: if hoped > likely { hoped } else { likely },
                has_loaded,
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
            is_number(it.tokens.0) && is_number(it.time.0) && is_switch(switch)
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
        let told = rates.beliefs(&points, ENOUGH);
        assert_eq!(told[0].point.rate, TokensPerSecond(100.0));
        assert_eq!(told[0].sure, TokensPerSecond(70.0));
        // The first minutes are not believed.
        rates.push(
            points[0].configuration,
            Tokens(1000.0),
            Seconds(300.0),
            ENOUGH,
        );
        assert_eq!(rates.beliefs(&points, ENOUGH), told);
        rates.push(
            points[0].configuration,
            Tokens(47_000.0),
            Seconds(300.0),
            ENOUGH,
        );
        let known = rates.beliefs(&points, ENOUGH);
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
}
