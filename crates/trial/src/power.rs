//! Power analysis: how many quads a precision needs, and after how many a harm is stopped.

use crate::student::quantile;
use crate::{HARM, LOOK};

/// More are not planned: at 24 minutes each this is half a year.
const MOST: u32 = 10_000;

/// 95 of 100 trials stop within what is predicted: the standard normal's quantile.
const SURE: f64 = 1.645;

/// The standard normal's quantile that a deviation lies above with probability 0.9.
const BOUND: f64 = -1.2816;

/// The upper 90 % bound of a deviation that was estimated from so many differences: what plans
/// are made with, because they should hold.
#[must_use]
pub fn upper_bound(deviation: f64, count: u32) -> f64 {
    let freedom = f64::from(count.saturating_sub(1).max(1));
    // Wilson and Hilferty's approximation of the chi-squared distribution's quantile.
    let part = 2.0 / (9.0 * freedom);
    let quantile = freedom * (1.0 - part + BOUND * part.sqrt()).max(0.1).powi(3);
    deviation * (freedom / quantile).sqrt()
}

/// Quads whose interval, at this confidence, is no wider than the mean plus and minus
/// `precision`, where the differences of quads have this deviation. `None`: more than can be
/// planned.
#[must_use]
pub fn quads_for(deviation: f64, precision: f64, confidence: f64) -> Option<u32> {
    let enough = |quads: u32| {
        let half = quantile(confidence, quads - 1) * deviation / f64::from(quads).sqrt();
        half <= precision
    };
    least(enough)
}

/// Quads within which a loss of throughput of `loss` (a share, above [`HARM`]) is stopped in 95
/// of 100 trials, where every look is at [`LOOK`].
#[must_use]
pub fn quads_to_stop(deviation: f64, loss: f64) -> Option<u32> {
    let margin = loss - HARM;
    let enough = |quads: u32| {
        let error = deviation / f64::from(quads).sqrt();
        (quantile(LOOK, quads - 1) + SURE) * error <= margin
    };
    least(enough)
}

/// The least number for which it is enough; it is for all greater ones then.
fn least(enough: impl Fn(u32) -> bool) -> Option<u32> {
    let mut high = 2;
    while !enough(high) {
        high *= 2;
        if high > MOST {
            return None;
        }
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match middle >= 2 && enough(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_precision_needs_more_quads() {
        // 1.96 * 0.002 / sqrt(n) <= 0.0005 gives 62; Student's quantile adds two.
        assert_eq!(quads_for(0.002, 0.0005, 0.95), Some(64));
        assert_eq!(quads_for(0.0, 0.0005, 0.95), Some(2));
        assert_eq!(quads_for(1.0, 1e-9, 0.95), None);
        assert_eq!(quads_for(f64::NAN, 0.0005, 0.95), None);
        let quads: Vec<u32> = [0.01, 0.003, 0.001, 0.0003]
            .map(|precision| quads_for(0.002, precision, 0.95).unwrap())
            .to_vec();
        assert!(quads.is_sorted(), "{quads:?}");
    }

    #[test]
    fn a_harm_within_what_is_no_harm_is_never_stopped() {
        assert_eq!(quads_to_stop(0.001, HARM), None);
        assert!(quads_to_stop(0.001, 0.005) < quads_to_stop(0.001, 0.002));
    }

    #[test]
    fn bounds_come_closer_with_more_differences() {
        let bounds = [3, 6, 12, 100].map(|count| upper_bound(1.0, count));
        assert!(bounds.is_sorted_by(|one, next| one > next), "{bounds:?}");
        // From a table: 11 / chi-squared(0.1, 11) = 11 / 5.578.
        assert!(
            (bounds[2] - (11.0_f64 / 5.578).sqrt()).abs() < 5e-3,
            "{bounds:?}"
        );
    }
}
