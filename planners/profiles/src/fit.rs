//! The continuous function through measured points (section 4.1, appendix D).

use serde::Serialize;

/// `a * exp(b * t) + c`, falling and flattening: a > 0 and b < 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// In joules.
    pub a: f64,
    /// Per unit of time.
    pub b: f64,
    /// In joules.
    pub c: f64,
    /// How well it fits.
    pub quality: Quality,
}

/// How well a function fits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quality {
    /// The fraction of the costs' variance that it explains, R squared.
    pub explained: f64,
    /// The largest error at a point, relative to the cost there.
    pub largest_error: f64,
}

/// With fewer points three numbers would fit anything.
const LEAST_POINTS: usize = 4;
/// Exponents, in units of one over the range of times, among which the best is sought.
const FLATTEST: f64 = 1e-3;
const STEEPEST: f64 = 1e3;
const TRIES: i32 = 120;

impl Fit {
    /// The least-squares fit to points (t, cost); nothing where no falling and flattening
    /// function fits best, or where there are too few points.
    ///
    /// For a given exponent the other two numbers are linear regression, so one number is sought:
    /// first on a grid of ratios, then by golden section.
    #[must_use]
    pub fn exponential(points: &[(f64, f64)]) -> Option<Self> {
        let (start, end) = (fold(points, f64::min), fold(points, f64::max));
        if points.len() < LEAST_POINTS || !(end > start) {
            return None;
        }
        let exponent = |place: f64| -FLATTEST * (STEEPEST / FLATTEST).powf(place) / (end - start);
        let error = |place: f64| regress(points, start, exponent(place)).2;
        let grid = |step: i32| f64::from(step) / f64::from(TRIES);
        let best = (0..=TRIES).min_by(|&a, &b| error(grid(a)).total_cmp(&error(grid(b))))?;
        let (mut low, mut high) = (grid(best - 1).max(0.0), grid(best + 1).min(1.0));
        let golden = (5_f64.sqrt() - 1.0) / 2.0;
        for _ in 0..80 {
            let width = golden * (high - low);
            if error(high - width) < error(low + width) {
                high = low + width;
            } else {
                low = high - width;
            }
        }
        let b = exponent(f64::midpoint(low, high));
        let (scale, c, squares) = regress(points, start, b);
        // Above, times count from the first, so that no power overflows.
        let a = scale * (-b * start).exp();
        (scale > 0.0 && a.is_finite() && c.is_finite()).then(|| Self {
            a,
            b,
            c,
            quality: quality(points, squares, |time| {
                scale * (b * (time - start)).exp() + c
            }),
        })
    }
}

fn fold(points: &[(f64, f64)], choose: fn(f64, f64) -> f64) -> f64 {
    points.iter().map(|point| point.0).fold(f64::NAN, choose)
}

/// The best `scale * exp(b (t - start)) + c`, and the sum of the squares of its errors.
fn regress(points: &[(f64, f64)], start: f64, b: f64) -> (f64, f64, f64) {
    let count = points.len() as f64;
    let pairs = || {
        points
            .iter()
            .map(|&(time, cost)| ((b * (time - start)).exp(), cost))
    };
    let mean_x = pairs().map(|pair| pair.0).sum::<f64>() / count;
    let mean_y = pairs().map(|pair| pair.1).sum::<f64>() / count;
    let xx: f64 = pairs().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let xy: f64 = pairs().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let scale = xy / xx;
    let c = mean_y - scale * mean_x;
    let squares = pairs().map(|(x, y)| (y - scale * x - c).powi(2)).sum();
    (scale, c, squares)
}

fn quality(points: &[(f64, f64)], squares: f64, cost: impl Fn(f64) -> f64) -> Quality {
    let mean = points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64;
    let variance: f64 = points.iter().map(|point| (point.1 - mean).powi(2)).sum();
    let error = |&(time, wanted): &(f64, f64)| ((cost(time) - wanted) / wanted).abs();
    Quality {
        explained: 1.0 - squares / variance,
        largest_error: points.iter().map(error).fold(0.0, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponential_is_found_again() {
        let cost = |time: f64| 120.0 * (-0.08 * time).exp() + 4.0;
        let points: Vec<_> = (30..60)
            .map(|time| (f64::from(time), cost(f64::from(time))))
            .collect();
        let fit = Fit::exponential(&points).unwrap();
        assert!((fit.a - 120.0).abs() < 1e-4, "{fit:?}");
        assert!((fit.b + 0.08).abs() < 1e-7, "{fit:?}");
        assert!((fit.c - 4.0).abs() < 1e-6, "{fit:?}");
        assert!(fit.quality.largest_error < 1e-8 && fit.quality.explained > 0.999_999);
    }

    #[test]
    fn a_kink_is_seen_to_fit_badly() {
        let cost = |time: i32| {
            if time < 40 {
                50.0 - f64::from(time)
            } else {
                10.0 - f64::from(time) * 0.01
            }
        };
        let points: Vec<_> = (30..90).map(|time| (f64::from(time), cost(time))).collect();
        assert!(Fit::exponential(&points).unwrap().quality.largest_error > 0.03);
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        assert_eq!(Fit::exponential(&[]), None);
        assert_eq!(Fit::exponential(&[(1.0, 2.0); 9]), None);
        let rising: Vec<_> = (1..9)
            .map(|time| (f64::from(time), f64::from(time)))
            .collect();
        assert_eq!(Fit::exponential(&rising), None);
    }
}
