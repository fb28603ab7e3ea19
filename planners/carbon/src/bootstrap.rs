//! Paired bootstrap intervals over episodes (section 5.1).

use serde::{Deserialize, Serialize};

/// A mean and its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// The lower end, 2.5 %.
    pub low: f64,
    /// The upper end, 97.5 %.
    pub high: f64,
}

const RESAMPLES: usize = 2000;

/// The mean of paired differences and the 95 % percentile interval of resampled means. The same values give
/// the same interval: resampling draws from a fixed sequence. `None` without values, or with one that is no
/// number.
#[must_use]
pub fn paired(differences: &[f64]) -> Option<Interval> {
    let count = differences.len();
    if count == 0 || differences.iter().any(|it| !it.is_finite()) {
        return None;
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let draw = |_| differences[(next(&mut state) % count as u64) as usize];
            (0..count).map(draw).sum::<f64>() / count as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((RESAMPLES - 1) as f64 * share).round() as usize];
    Some(Interval {
        mean: differences.iter().sum::<f64>() / count as f64,
        low: at(0.025),
        high: at(0.975),
    })
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut it = *state;
    it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    it ^ (it >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_as_wide_as_its_standard_error_says() {
        // Means of 400 values of a uniform distribution: deviation 1 / sqrt(12 * 400).
        let values: Vec<f64> = (0..400).map(|it| f64::from(it) / 400.0).collect();
        let interval = paired(&values).unwrap();
        let half = 1.96 / (12.0_f64 * 400.0).sqrt();
        assert!((interval.mean - 0.49875).abs() < 1e-12);
        assert!(
            (interval.high - interval.mean - half).abs() < 0.1 * half,
            "{interval:?}"
        );
        assert!(
            (interval.mean - interval.low - half).abs() < 0.1 * half,
            "{interval:?}"
        );
        assert_eq!(
            paired(&[3.0, 3.0]).map(|it| (it.low, it.high)),
            Some((3.0, 3.0))
        );
        assert_eq!(paired(&[]), None);
        assert_eq!(paired(&[f64::NAN]), None);
    }
}
