//! Differences with their intervals.

use serde::{Deserialize, Serialize};

use crate::student::quantile;

/// A mean difference, B minus A, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The interval's confidence.
    pub confidence: f64,
    /// Standard deviation of one difference.
    pub deviation: f64,
    /// Differences.
    pub count: u32,
}

impl Estimate {
    /// The estimate from independent differences; `None` if there are fewer than two, or any is
    /// no number.
    #[must_use]
    pub fn of(differences: &[f64], confidence: f64) -> Option<Self> {
        let count = u32::try_from(differences.len()).ok()?;
        if count < 2 || differences.iter().any(|it| !it.is_finite()) {
            return None;
        }
        let mean = differences.iter().sum::<f64>() / f64::from(count);
        let squares = differences.iter().map(|it| (it - mean).powi(2));
        let deviation = (squares.sum::<f64>() / f64::from(count - 1)).sqrt();
        let half = quantile(confidence, count - 1) * deviation / f64::from(count).sqrt();
        Some(Self {
            mean,
            low: mean - half,
            high: mean + half,
            confidence,
            deviation,
            count,
        })
    }

    /// The same in shares, of differences that are natural logarithms.
    #[must_use]
    pub fn exponential(self) -> Self {
        Self {
            mean: self.mean.exp_m1(),
            low: self.low.exp_m1(),
            high: self.high.exp_m1(),
            ..self
        }
    }

    /// Half of the interval's width.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether zero is within the interval.
    #[must_use]
    pub fn holds_zero(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_worked_out_by_hand() {
        // Mean 2, deviation 1, so 2 +- 4.303 / sqrt(3).
        let it = Estimate::of(&[1.0, 2.0, 3.0], 0.95).unwrap();
        assert!((it.low - (2.0 - 2.4843)).abs() < 1e-3, "{it:?}");
        assert!((it.half_width() - 2.4843).abs() < 1e-3);
        assert!(it.holds_zero());
        assert_eq!(Estimate::of(&[1.0], 0.95), None);
        assert_eq!(Estimate::of(&[1.0, f64::NAN], 0.95), None);
    }
}
