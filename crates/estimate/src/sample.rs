//! A reading of a GPU.

use std::fmt;

use litd_api::Limiter;
use litd_units::{Celsius, Hertz, Watts};

/// A GPU that draws its cap but for this share of it counts as limited by it, where no column tells what
/// limits it: nodes whose cap binds draw 0.7 to 6 % less than it (longhorn_sgemm and Zeus's jobs at low
/// limits).
pub const NEAR_CAP: f64 = 0.07;

/// A GPU that draws less of its cap than this is not limited by it between two samples either: jobs whose
/// bursts meet a cap draw 40 % of it and more in the mean (ResNet on A40 and V100).
pub const BURSTS: f64 = 0.4;

/// A reading of a GPU. Missing values are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Milliseconds since the epoch.
    pub time: Option<i64>,
    /// The power.
    pub power: Option<Watts>,
    /// The clock.
    pub clock: Option<Hertz>,
    /// The temperature.
    pub temperature: Option<Celsius>,
    /// The cap.
    pub cap: Option<Watts>,
    /// The highest cap that it can be given.
    pub highest_cap: Option<Watts>,
    /// The limiter of its clock, as its driver tells.
    pub limiter: Option<Limiter>,
    /// Time per unit of work, in any one unit: higher is slower.
    pub pace: Option<f64>,
}

impl Sample {
    /// The limiter of the GPU: as its driver tells, or by its power relative to its cap.
    #[must_use]
    pub fn limited_by(&self) -> Limiter {
        match (self.limiter, self.power, self.cap) {
            (Some(limiter), ..) if limiter != Limiter::Unknown => limiter,
            (_, Some(power), Some(cap)) if power >= cap * (1.0 - NEAR_CAP) => Limiter::Power,
            (_, Some(_), Some(_)) => Limiter::None,
            _ => Limiter::Unknown,
        }
    }

    /// Whether that is known from what it draws only.
    #[must_use]
    pub fn is_judged_by_draw(&self) -> bool {
        let told = self.limiter.is_some_and(|it| it != Limiter::Unknown);
        !told && self.power.is_some() && self.cap.is_some()
    }

    /// Whether power may limit it: as its driver tells, or because it draws enough for bursts that meet its
    /// cap between two samples.
    #[must_use]
    pub fn may_be_power_limited(&self) -> bool {
        match (self.is_judged_by_draw(), self.power, self.cap) {
            (true, Some(power), Some(cap)) => power >= cap * BURSTS,
            _ => self.limited_by() == Limiter::Power,
        }
    }

    /// A number that two equal readings have in common.
    pub(crate) fn fingerprint(&self) -> u64 {
        let values = [
            self.power.map(|it| it.0),
            self.clock.map(|it| it.0),
            self.temperature.map(|it| it.0),
            self.pace,
        ];
        // FNV-1a, a word at a time.
        values.iter().fold(0xcbf2_9ce4_8422_2325, |hash, value| {
            let bits = value.map_or(1, f64::to_bits);
            (hash ^ bits).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
        })
    }
}

/// The quantities of a reading, and their possible values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// Power drawn, W.
    Power,
    /// The clock, MHz.
    Clock,
    /// The temperature, °C.
    Temperature,
    /// The cap, W.
    Cap,
    /// Time per unit of work.
    Pace,
}

impl Quantity {
    /// The values that a GPU may have, both ends included. What lies beyond is a dropout (power of 0 W) or has
    /// another unit than it should.
    #[must_use]
    pub fn range(self) -> (f64, f64) {
        match self {
            Self::Power | Self::Cap => (1.0, 10_000.0),
            Self::Clock => (10.0, 10_000.0),
            Self::Temperature => (-40.0, 150.0),
            Self::Pace => (1e-12, 1e12),
        }
    }

    /// The value, if a GPU may have it.
    #[must_use]
    pub fn believed(self, value: f64) -> Option<f64> {
        let (low, high) = self.range();
        (value >= low && value <= high).then_some(value)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Power => "power_w",
            Self::Clock => "clock_mhz",
            Self::Temperature => "temp_c",
            Self::Cap => "cap_w",
            Self::Pace => "pace",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_tells_counts_before_what_is_drawn() {
        let drawn = Sample {
            power: Some(Watts(285.0)),
            cap: Some(Watts(300.0)),
            ..Sample::default()
        };
        assert_eq!(drawn.limited_by(), Limiter::Power);
        assert!(drawn.is_judged_by_draw());
        let told = Sample {
            limiter: Some(Limiter::Heat),
            ..drawn
        };
        assert_eq!(
            (told.limited_by(), told.is_judged_by_draw()),
            (Limiter::Heat, false)
        );
        let below = Sample {
            power: Some(Watts(278.0)),
            ..drawn
        };
        assert_eq!(below.limited_by(), Limiter::None);
        assert_eq!(Sample::default().limited_by(), Limiter::Unknown);
    }

    #[test]
    fn dropouts_and_other_units_are_not_believed() {
        for (quantity, value) in [
            (Quantity::Power, 0.0),
            (Quantity::Power, 297_182.0),
            (Quantity::Power, -3.0),
            (Quantity::Clock, 1.395),
            (Quantity::Clock, 1.395e9),
            (Quantity::Temperature, 64_000.0),
            (Quantity::Pace, 0.0),
            (Quantity::Pace, f64::NAN),
        ] {
            assert_eq!(quantity.believed(value), None, "{quantity} {value}");
        }
    }
}
