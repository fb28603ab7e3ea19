//! Units of measure. Every quantity that crosses a public boundary of a litd crate carries one
//! of these types; a bare `f64` is a ratio. [`Aggregation`] is here as well: the one term of
//! the paper that both the trace readers and the laws need, and they don't know each other; and
//! [`Prices`], for laws and trials, and [`count`], which says how many of something there are.

use std::fmt::{self, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// "1 rank", "2 ranks".
#[must_use]
pub fn count<N: Display + PartialEq + From<u8>>(number: N, thing: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// Prices of power and time, in any one currency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// A kilowatt-hour.
    pub energy_per_kwh: f64,
    /// An hour of one GPU, its power aside.
    pub gpu_hour: f64,
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $symbol:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl $name {
            /// Whether the number is neither infinite nor NaN.
            #[must_use]
            pub fn is_finite(self) -> bool {
                self.0.is_finite()
            }

            /// The larger of the two; a NaN loses.
            #[must_use]
            pub fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }

            /// The smaller of the two; a NaN loses.
            #[must_use]
            pub fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)?;
                f.write_str(concat!(" ", $symbol))
            }
        }
    };
}

macro_rules! linear {
    ($name:ident) => {
        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0.0);

            /// The magnitude without its sign.
            #[must_use]
            pub fn abs(self) -> Self {
                Self(self.0.abs())
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }

        impl Neg for $name {
            type Output = Self;
            fn neg(self) -> Self {
                Self(-self.0)
            }
        }

        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, factor: f64) -> Self {
                Self(self.0 * factor)
            }
        }

        impl Div<f64> for $name {
            type Output = Self;
            fn div(self, divisor: f64) -> Self {
                Self(self.0 / divisor)
            }
        }

        /// A ratio of two quantities of one kind.
        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }
    };
}

quantity!(
    /// Power, or a limit on it.
    Watts, "W"
);
linear!(Watts);

impl Watts {
    /// The cap as a driver holds it that takes only whole `unit`s and cuts off the rest. A unit of zero or less
    /// cuts off nothing.
    #[must_use]
    pub fn cut_to(self, unit: Self) -> Self {
        if unit > Self::ZERO {
            // The hair keeps whole units whole where the division does not come out even.
            unit * (self / unit + 1e-9).floor()
        } else {
            self
        }
    }
}

quantity!(
    /// Energy.
    Joules, "J"
);
linear!(Joules);
quantity!(
    /// A clock frequency.
    Hertz, "Hz"
);
linear!(Hertz);
quantity!(
    /// A difference of temperatures.
    Kelvins, "K"
);
linear!(Kelvins);
quantity!(
    /// A span or moment of simulated time, in milliseconds with a fraction: the simulator's own
    /// scale. Measured time is [`Nanos`].
    Millis, "ms"
);
linear!(Millis);
quantity!(
    /// A span of planned time, in seconds with a fraction: windows, deadlines, the cost of a switch.
    Seconds, "s"
);
linear!(Seconds);
quantity!(
    /// A mass of CO2 equivalent.
    Grams, "g"
);
linear!(Grams);
quantity!(
    /// Carbon intensity of electricity: CO2 equivalent for each kilowatt-hour.
    Intensity, "g/kWh"
);
linear!(Intensity);
quantity!(
    /// Training tokens.
    Tokens, "tokens"
);
linear!(Tokens);
quantity!(
    /// The throughput of a training job, all its GPUs together.
    TokensPerSecond, "tokens/s"
);
linear!(TokensPerSecond);
quantity!(
    /// A temperature.
    Celsius, "°C"
);

impl Seconds {
    /// So many hours.
    #[must_use]
    pub fn from_hours(hours: f64) -> Self {
        Self(hours * 3600.0)
    }

    /// The same span in hours.
    #[must_use]
    pub fn hours(self) -> f64 {
        self.0 / 3600.0
    }
}

impl Joules {
    /// The same energy in kilowatt-hours.
    #[must_use]
    pub fn kilowatt_hours(self) -> f64 {
        self.0 / 3.6e6
    }
}

impl Mul<Seconds> for Watts {
    type Output = Joules;
    fn mul(self, time: Seconds) -> Joules {
        Joules(self.0 * time.0)
    }
}

impl Mul<Intensity> for Joules {
    type Output = Grams;
    fn mul(self, intensity: Intensity) -> Grams {
        Grams(self.kilowatt_hours() * intensity.0)
    }
}

impl Mul<Seconds> for TokensPerSecond {
    type Output = Tokens;
    fn mul(self, time: Seconds) -> Tokens {
        Tokens(self.0 * time.0)
    }
}

impl Div<TokensPerSecond> for Tokens {
    type Output = Seconds;
    fn div(self, rate: TokensPerSecond) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}

impl Sub for Celsius {
    type Output = Kelvins;
    fn sub(self, other: Self) -> Kelvins {
        Kelvins(self.0 - other.0)
    }
}

impl Add<Kelvins> for Celsius {
    type Output = Self;
    fn add(self, rise: Kelvins) -> Self {
        Self(self.0 + rise.0)
    }
}

impl Sub<Kelvins> for Celsius {
    type Output = Self;
    fn sub(self, fall: Kelvins) -> Self {
        Self(self.0 - fall.0)
    }
}

impl Watts {
    /// Whether two caps are one and the same. Drivers hold whole microwatts: caps nearer than
    /// half of one are equal, and floats are that exact. A NaN is like nothing.
    #[must_use]
    pub fn is_same_cap(self, other: Self) -> bool {
        (self - other).abs() <= Self(0.4e-6)
    }
}

impl Millis {
    /// The nearest whole nanosecond, saturating.
    #[must_use]
    pub fn to_nanos(self) -> Nanos {
        Nanos((self.0 * 1e6).round() as i64)
    }
}

/// A moment or a span of measured time in whole nanoseconds. Epoch times fit until the year 2262.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub i64);

impl Nanos {
    /// No time, or the epoch.
    pub const ZERO: Self = Self(0);

    /// The same span in milliseconds.
    #[must_use]
    pub fn to_millis(self) -> Millis {
        Millis(self.0 as f64 / 1e6)
    }

    /// The same span in seconds, as Prometheus and people read it.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

// Times come from files: arithmetic saturates instead of overflowing.
impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// How the per-kernel leads of a GPU become its one lead value (Table II).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// The area under the lead curve (the paper's default).
    #[default]
    Sum,
    /// The largest lead.
    Max,
    /// The lead at the last kernel.
    Last,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_can_not_hold_is_cut_off() {
        assert_eq!(Watts(650.9).cut_to(Watts(1.0)), Watts(650.0));
        assert_eq!(Watts(650.0).cut_to(Watts(0.125)), Watts(650.0));
        // 0.3 / 0.1 is a hair less than 3.
        assert!((Watts(0.3).cut_to(Watts(0.1)) - Watts(0.3)).abs() < Watts(1e-9));
        assert_eq!(Watts(650.9).cut_to(Watts::ZERO), Watts(650.9));
    }

    #[test]
    fn temperatures_differ_by_kelvins() {
        assert_eq!(Celsius(95.0) - Celsius(90.0), Kelvins(5.0));
        assert_eq!(Celsius(95.0) - Kelvins(5.0), Celsius(90.0));
    }

    #[test]
    fn display_keeps_the_precision_asked_for() {
        assert_eq!(format!("{:.1}", Watts(700.04)), "700.0 W");
        assert_eq!(format!("{:>6.1}|", Watts(7.0)), "   7.0 W|");
    }

    #[test]
    fn times_saturate() {
        assert_eq!(Nanos(i64::MAX) + Nanos(1), Nanos(i64::MAX));
        assert_eq!(Nanos(i64::MIN) - Nanos(1), Nanos(i64::MIN));
        assert_eq!(Millis(f64::INFINITY).to_nanos(), Nanos(i64::MAX));
    }
}
