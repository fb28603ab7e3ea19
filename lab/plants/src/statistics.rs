//! Plain statistics of plain numbers. An answer is `None` where too little is given.

use litd_sim::rng::Rng;
use serde::Serialize;

/// Where the middle of a distribution lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Band {
    /// How many numbers it is of.
    pub count: usize,
    /// The tenth percentile.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// The ninetieth percentile.
    pub p90: f64,
}

impl Band {
    /// The band of these numbers.
    #[must_use]
    pub fn of(mut numbers: Vec<f64>) -> Option<Self> {
        numbers.retain(|it| it.is_finite());
        numbers.sort_by(f64::total_cmp);
        Some(Self {
            count: numbers.len(),
            p10: quantile(&numbers, 0.1)?,
            p50: quantile(&numbers, 0.5)?,
            p90: quantile(&numbers, 0.9)?,
        })
    }

    /// Whether a value lies in it, its edges included.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        self.p10 <= value && value <= self.p90
    }
}

/// A quantile of sorted numbers, linear in between.
#[must_use]
pub fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let place = part * (sorted.len().checked_sub(1)?) as f64;
    let below = sorted.get(place.floor() as usize)?;
    let above = sorted.get(place.ceil() as usize)?;
    Some(below + (above - below) * place.fract())
}

/// The median.
#[must_use]
pub fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    quantile(&numbers, 0.5)
}

/// The mean.
#[must_use]
pub fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// The standard deviation of a population.
#[must_use]
pub fn deviation(numbers: &[f64]) -> Option<f64> {
    let middle = mean(numbers)?;
    let squares: Vec<f64> = numbers.iter().map(|it| (it - middle).powi(2)).collect();
    Some(mean(&squares)?.sqrt())
}

/// Least squares of y on x.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Change of y with x.
    pub slope: f64,
    /// The correlation.
    pub correlation: f64,
}

/// The line through pairs (x, y); `None` where there are fewer than three, or one doesn't vary.
#[must_use]
pub fn line(pairs: &[(f64, f64)]) -> Option<Line> {
    if pairs.len() < 3 {
        return None;
    }
    let count = pairs.len() as f64;
    let middle = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (middle(|it| it.0), middle(|it| it.1));
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for pair in pairs {
        xx += (pair.0 - x) * (pair.0 - x);
        xy += (pair.0 - x) * (pair.1 - y);
        yy += (pair.1 - y) * (pair.1 - y);
    }
    (xx > 0.0 && yy > 0.0).then(|| Line {
        slope: xy / xx,
        correlation: xy / (xx * yy).sqrt(),
    })
}

/// The fourth moment over the squared second: 3 for a normal distribution.
#[must_use]
pub fn kurtosis(numbers: &[f64]) -> Option<f64> {
    let middle = mean(numbers)?;
    let power = |exponent| {
        let powers: Vec<f64> = numbers
            .iter()
            .map(|it| (it - middle).powi(exponent))
            .collect();
        mean(&powers)
    };
    let second = power(2)?;
    (second > 0.0).then_some(power(4)? / (second * second))
}

/// The correlation of a series with itself one step later.
#[must_use]
pub fn lag_one(series: &[f64]) -> Option<f64> {
    let pairs: Vec<_> = series.windows(2).map(|it| (it[0], it[1])).collect();
    line(&pairs).map(|it| it.correlation)
}

/// The correlation of the ranks of pairs.
#[must_use]
pub fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let ranks = |of: fn(&(f64, f64)) -> f64| {
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by(|&a, &b| of(&pairs[a]).total_cmp(&of(&pairs[b])));
        let mut ranks = vec![0.0; pairs.len()];
        for (rank, index) in order.into_iter().enumerate() {
            ranks[index] = rank as f64;
        }
        ranks
    };
    let pairs: Vec<_> = ranks(|it| it.0).into_iter().zip(ranks(|it| it.1)).collect();
    line(&pairs).map(|it| it.correlation)
}

/// The band of a statistic of all groups over resampled groups (bootstrap, 300 times, a fixed
/// seed): how far it would move with other nodes from the same place.
#[must_use]
pub fn resampled<T>(groups: &[T], statistic: impl Fn(&[&T]) -> Option<f64>) -> Option<Band> {
    let mut rng = Rng::stream(17, &[groups.len() as u64]);
    let mut values = Vec::with_capacity(300);
    for _ in 0..300 {
        let pick = |_| &groups[(rng.uniform() * groups.len() as f64) as usize % groups.len()];
        let sample: Vec<&T> = (0..groups.len()).map(pick).collect();
        values.extend(statistic(&sample));
    }
    let count = groups.len();
    Band::of(values).map(|band| Band { count, ..band })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against numpy 2 (percentile, linear) and scipy's kurtosis with fisher=False, by hand.
    #[test]
    fn small_samples_give_known_numbers() {
        let band = Band::of(vec![4.0, 1.0, 3.0, 2.0, f64::NAN]).unwrap();
        assert_eq!(band.count, 4);
        assert!((band.p10 - 1.3).abs() < 1e-12 && (band.p50 - 2.5).abs() < 1e-12);
        assert!((band.p90 - 3.7).abs() < 1e-12);
        let line = line(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-12 && (line.correlation - 1.0).abs() < 1e-12);
        assert!((kurtosis(&[-1.0, 1.0, -1.0, 1.0]).unwrap() - 1.0).abs() < 1e-12);
        assert!((lag_one(&[1.0, -1.0, 1.0, -1.0, 1.0]).unwrap() + 1.0).abs() < 1e-12);
        let ranks = rank_correlation(&[(1.0, 10.0), (2.0, 100.0), (3.0, 1000.0)]).unwrap();
        assert!((ranks - 1.0).abs() < 1e-12);
    }

    #[test]
    fn too_little_is_no_number() {
        assert_eq!(Band::of(Vec::new()), None);
        assert_eq!(mean(&[]), None);
        assert_eq!(line(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(kurtosis(&[1.0, 1.0]), None);
    }
}
