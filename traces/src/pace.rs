//! How long a rank's kernels take beside those of the other ranks: a slow clock shows there.

use litd_units::Nanos;

use crate::limit::Limit;

/// Overlap ratios of one kernel that differ by more across GPUs make its overlap varying (the
/// Lit Silicon paper's set V; the others are its set C).
const VARYING_OVERLAP: f64 = 0.1;
/// Fewer kernels of constant overlap than this say nothing about a clock.
pub(crate) const PACE_KERNELS: usize = 8;

/// So many values are sorted faster than they are searched for the middle one.
const FEW: usize = 16;

/// How long a rank's kernels take relative to the median over the ranks, of those of constant
/// overlap, whose length contention does not change. `None` where those are too few.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// The median.
    pub(crate) middle: Option<f64>,
    /// Of all together: relative to what they take on the median rank. Unlike the median this
    /// follows the clock of all kernels alike, whether bound by the clock or by memory, and noise of
    /// single kernels averages out. A kernel that something held up counts as at most a quarter
    /// longer.
    pub(crate) together: Option<f64>,
    /// The trimmed mean over those that the clock limits, and its standard error. Where names
    /// tell too few of these: over all that are not known to be limited by memory.
    pub(crate) compute: Option<(f64, f64)>,
    /// The same over those that memory limits.
    pub(crate) memory: Option<(f64, f64)>,
}

/// The pace of each of so many ranks on so many matched kernels. `duration(g, k)` is how long rank
/// `g` took for kernel `k`; `constant` and `limit` say of a kernel whether its overlap is constant
/// and what limits it.
pub(crate) fn paces(
    [ranks, kernels]: [usize; 2],
    duration: impl Fn(usize, usize) -> Nanos,
    constant: impl Fn(usize) -> bool,
    limit: impl Fn(usize) -> Option<Limit>,
) -> Vec<Pace> {
    let time = |rank, k| duration(rank, k).0 as f64;
    let mut row = Vec::with_capacity(ranks);
    let mut middles = Vec::with_capacity(kernels);
    for k in (0..kernels).filter(|&k| constant(k)) {
        row.clear();
        row.extend((0..ranks).map(|rank| time(rank, k)));
        let middle = median(&mut row).filter(|&middle| middle > 0.0);
        middles.extend(middle.map(|middle| (k, limit(k), middle)));
    }
    let of = |wanted: Option<Limit>| middles.iter().filter(move |at| at.1 == wanted).count();
    let named = of(Some(Limit::Compute)) >= PACE_KERNELS;
    let computes = |limit: Option<Limit>| match named {
        true => limit == Some(Limit::Compute),
        false => limit != Some(Limit::Memory),
    };
    let whole: f64 = middles.iter().map(|(_, _, middle)| middle).sum();
    let together = |rank: usize| -> f64 {
        let times = middles
            .iter()
            .map(|&(k, _, middle)| time(rank, k).clamp(middle * 0.75, middle * 1.25));
        times.sum()
    };
    let mut values = Vec::with_capacity(middles.len());
    let mut pace = |rank: usize| {
        let relative = |k: usize, middle: f64| time(rank, k) / middle;
        let mut some = |chosen: &dyn Fn(Option<Limit>) -> bool| {
            values.clear();
            let of_kind = middles.iter().filter(|(_, limit, _)| chosen(*limit));
            values.extend(of_kind.map(|&(k, _, middle)| relative(k, middle)));
            (values.len() >= PACE_KERNELS).then_some(())?;
            trimmed(&mut values)
        };
        let (compute, memory) = (some(&computes), some(&|limit| limit == Some(Limit::Memory)));
        values.clear();
        values.extend(middles.iter().map(|&(k, _, middle)| relative(k, middle)));
        let enough = values.len() >= PACE_KERNELS;
        Pace {
            middle: enough.then(|| median(&mut values)).flatten(),
            together: enough.then(|| together(rank) / whole),
            compute,
            memory,
        }
    };
    (0..ranks).map(&mut pace).collect()
}

/// The mean without the least and the greatest tenth, and its standard error. No value may be NaN.
pub(crate) fn trimmed(values: &mut [f64]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let cut = (values.len() + 5) / 10;
    let last = values.len().checked_sub(1 + cut)?;
    values.select_nth_unstable_by(cut, f64::total_cmp);
    let (_, rest) = values.split_at_mut(cut);
    rest.select_nth_unstable_by(last.checked_sub(cut)?, f64::total_cmp);
    let kept = rest.get(..=last - cut)?;
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    let squares: f64 = kept.iter().map(|value| (value - mean).powi(2)).sum();
    // Of a normal distribution the middle four fifths deviate by 0.66 of what all do, and the
    // mean of those is as good as that of 0.94 times all values.
    let deviation = (squares / kept.len() as f64).sqrt() / 0.66;
    Some((mean, deviation / (0.94 * count).sqrt()))
}

/// The least and the greatest overlap ratio of one kernel over the ranks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overlap {
    least: f64,
    most: f64,
}

impl Overlap {
    /// Of no rank yet.
    pub(crate) const NONE: Self = Self {
        least: f64::INFINITY,
        most: f64::NEG_INFINITY,
    };

    /// With the ratio of one more rank. `None`, a kernel that has no ratio, varies for good.
    pub(crate) fn with(self, ratio: Option<f64>) -> Self {
        let (least, most) = ratio.map_or((f64::NEG_INFINITY, f64::INFINITY), |r| (r, r));
        Self {
            least: self.least.min(least),
            most: self.most.max(most),
        }
    }

    /// Whether contention may change the kernel's length on one rank more than on another.
    pub(crate) fn varies(self) -> bool {
        self.most - self.least > VARYING_OVERLAP
    }
}

/// The middle value, or the mean of the two in the middle. No value may be NaN.
fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    let below = middle.checked_sub(usize::from(values.len().is_multiple_of(2)))?;
    if values.len() <= FEW {
        sort_few(values);
        return Some((values[below] + values[middle]) / 2.0);
    }
    let (lower, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = lower.iter().copied().max_by(f64::total_cmp);
    let lower = lower.filter(|_| below < middle).unwrap_or(upper);
    Some((lower + upper) / 2.0)
}

/// Sorts without a branch that depends on the values: those of one kernel come in any order, so
/// that a processor would guess half of the branches wrong.
fn sort_few(values: &mut [f64]) {
    for k in 1..values.len() {
        let (sorted, rest) = values.split_at_mut(k);
        let Some(new) = rest.first_mut() else { return };
        for value in sorted {
            let in_order = *value <= *new;
            (*value, *new) = if in_order {
                (*value, *new)
            } else {
                (*new, *value)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_trimmed_mean_of_known_values() {
        let mut values = [9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1e9];
        let (mean, error) = trimmed(&mut values).unwrap();
        assert_eq!(mean, 5.5);
        // The deviation of 2 to 9 is 2.2913.
        assert!(
            (error - 2.2913 / 0.66 / 9.4_f64.sqrt()).abs() < 1e-4,
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn the_median_is_the_middle_of_the_sorted(mut values in prop::collection::vec(-9.0..9.0, 1..40)) {
            let found = median(&mut values.clone()).unwrap();
            values.sort_by(f64::total_cmp);
            let two = values[(values.len() - 1) / 2] + values[values.len() / 2];
            prop_assert_eq!(found, two / 2.0);
        }
    }
}
