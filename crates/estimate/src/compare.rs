//! GPUs against their peers.

use crate::bins::TimeBins;

/// Slowness persists if the halves of the time correlate by this much or more: then half of what the GPUs
/// differ by in one half (0.7 squared) is what they differ by in the other.
pub const PERSISTS: f64 = 0.7;

/// A GPU is to be repaired if it is slower than its node's median by more than so many robust standard
/// deviations of all GPUs of the fleet, in both halves of the time ...
pub const REPAIR_SIGMAS: f64 = 3.5;

/// ... and by more than this share.
pub const LEAST_SLOWER: f64 = 0.02;

/// The median absolute deviation of normal numbers, times this, is their standard deviation.
const SIGMA_PER_MAD: f64 = 1.4826;

/// The middle one; of an even count the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which this share lies; between two of them, in proportion.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * sorted.len().checked_sub(1)? as f64;
    let low = *sorted.get(place as usize)?;
    let high = *sorted.get(place as usize + 1).unwrap_or(&low);
    Some(low + (high - low) * place.fract())
}

/// Pearson's correlation; `None` where either does not vary.
pub(crate) fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let count = pairs.len() as f64;
    let (sum_a, sum_b) = pairs
        .iter()
        .fold((0.0, 0.0), |(a, b), it| (a + it.0, b + it.1));
    let (mean_a, mean_b) = (sum_a / count, sum_b / count);
    let sums = pairs.iter().fold((0.0, 0.0, 0.0), |(aa, bb, ab), it| {
        let (a, b) = (it.0 - mean_a, it.1 - mean_b);
        (aa + a * a, bb + b * b, ab + a * b)
    });
    let scale = (sums.0 * sums.1).sqrt();
    (scale > 1e-18 * count).then(|| (sums.2 / scale).clamp(-1.0, 1.0))
}

/// How much slower than its node's median a GPU is, in logarithms, in the first and in the second half of the
/// time; `None` if it was not seen in both.
pub(crate) type Halves = Option<(f64, f64)>;

/// [`Halves`] of each of a node's GPUs. The cut is where half of the samples of all GPUs are before it. A GPU's
/// pace in a half is the median of its stretches of time there, so that one stray reading, which spoils one
/// stretch, does not decide it.
pub(crate) fn halves(bins: &[&TimeBins]) -> Vec<Halves> {
    let of = |rows: &[Vec<(f64, u32)>]| {
        let gpu = |at: usize| {
            let seen = rows.iter().filter_map(|row| row.get(at));
            let seen = seen.filter(|it| it.1 > 0);
            median(&Vec::from_iter(seen.map(|it| it.0 / f64::from(it.1))))
        };
        Vec::from_iter((0..bins.len()).map(gpu))
    };
    let Some((first, second)) = cut(bins) else {
        return vec![None; bins.len()];
    };
    let pairs = of(&first).into_iter().zip(of(&second));
    let pairs = Vec::from_iter(pairs.map(|(first, second)| first.zip(second)));
    let seen = || pairs.iter().flatten();
    let middle = |half: fn(&(f64, f64)) -> f64| median(&Vec::from_iter(seen().map(half)));
    let (Some(first), Some(second)) = (middle(|it| it.0), middle(|it| it.1)) else {
        return pairs;
    };
    let deviation = |it: (f64, f64)| (it.0 - first, it.1 - second);
    pairs.into_iter().map(|it| it.map(deviation)).collect()
}

/// The rows of each half of the time: see [`TimeBins::aligned`].
type Rows = Vec<Vec<(f64, u32)>>;

fn cut(bins: &[&TimeBins]) -> Option<(Rows, Rows)> {
    let rows = TimeBins::aligned(bins);
    let counts = Vec::from_iter(
        rows.iter()
            .map(|row| row.iter().map(|it| u64::from(it.1)).sum::<u64>()),
    );
    let all = counts.iter().sum::<u64>();
    let mut before = 0;
    // The cut between two bins that is nearest to the middle.
    let cuts = counts.iter().enumerate().map(|(at, count)| {
        before += count;
        ((2 * before).abs_diff(all), at + 1)
    });
    let (_, cut) = cuts.take(counts.len().saturating_sub(1)).min()?;
    let (first, second) = rows.split_at_checked(cut)?;
    Some((first.to_vec(), second.to_vec()))
}

/// The mean of each GPU over rows; `None` if one has no value in them.
pub(crate) fn means<'a>(rows: impl Iterator<Item = &'a Vec<(f64, u32)>>) -> Option<Vec<f64>> {
    let mut sums: Vec<(f64, u32)> = Vec::new();
    for row in rows {
        sums.resize(row.len(), (0.0, 0));
        for (sum, it) in sums.iter_mut().zip(row) {
            *sum = (sum.0 + it.0, sum.1.saturating_add(it.1));
        }
    }
    let mean = |it: &(f64, u32)| (it.1 > 0).then(|| it.0 / f64::from(it.1));
    let means = sums.iter().map(mean).collect::<Option<Vec<_>>>();
    means.filter(|it| !it.is_empty())
}

/// How much slower than its node's median (in logarithms) a GPU is that is to be repaired, from the
/// deviations of all GPUs.
pub(crate) fn repair_limit(deviations: &[f64]) -> Option<f64> {
    let sizes = Vec::from_iter(deviations.iter().map(|it| it.abs()));
    let sigma = SIGMA_PER_MAD * median(&sizes)?;
    Some((REPAIR_SIGMAS * sigma).max(LEAST_SLOWER.ln_1p()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_are_pearsons() {
        // By hand: sums of squares 10 and 10, of products 8.
        let pairs = [(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 3.0), (5.0, 5.0)];
        assert!((correlation(&pairs).unwrap() - 0.8).abs() < 1e-12);
        assert_eq!(correlation(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(correlation(&[]), None);
    }

    #[test]
    fn halves_are_of_time() {
        let of = |values: &[f64]| {
            let mut bins = TimeBins::default();
            let times = (0..).map(|hour| hour * 3_600_000);
            times
                .zip(values)
                .for_each(|(time, value)| bins.add(time, *value));
            bins
        };
        let a = of(&[1.0; 24]);
        let b = of(&[vec![1.0; 12], vec![3.0; 12]].concat());
        let halves = halves(&[&a, &b]);
        assert_eq!(halves, [Some((0.0, -1.0)), Some((0.0, 1.0))]);
        assert_eq!(super::halves(&[&of(&[1.0])]), [None]);
        assert_eq!(super::halves(&[]), []);
        // A GPU that was not seen in one half takes nothing from the others.
        let late = of(&[1.0]);
        assert_eq!(super::halves(&[&a, &b, &late])[..2], halves);
        assert_eq!(super::halves(&[&a, &b, &late])[2], None);
    }
}
