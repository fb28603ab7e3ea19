//! How long a rank's kernels take beside those of the other ranks: a slow clock shows there.

use litd_units::Nanos;

/// Overlap ratios of one kernel that differ by more across GPUs make its overlap varying (the
/// Lit Silicon paper's set V; the others are its set C).
const VARYING_OVERLAP: f64 = 0.1;
/// Fewer kernels of constant overlap than this say nothing about a clock.
const PACE_KERNELS: usize = 8;

/// So many values are sorted faster than they are searched for the middle one.
const FEW: usize = 16;

/// How long each rank's kernels take relative to the median over the ranks: the median over the
/// kernels of constant overlap, whose length contention does not change; `None` where those are
/// too few. `durations[g][k]` is how long rank `g` took for matched kernel `k`; kernels whose
/// overlap varies may have any.
pub(crate) fn paces(durations: &[&[Nanos]], overlaps: &[Overlap]) -> Vec<Option<f64>> {
    let middles = middles(durations, overlaps);
    let mut relative = Vec::with_capacity(middles.len());
    let mut pace = |column: &&[Nanos]| {
        relative.clear();
        let kernels = column.iter().zip(&middles);
        relative.extend(kernels.filter_map(|(length, middle)| Some(length.0 as f64 / (*middle)?)));
        (relative.len() >= PACE_KERNELS)
            .then(|| median(&mut relative))
            .flatten()
    };
    durations.iter().map(&mut pace).collect()
}

/// How long each rank's kernels of constant overlap take together, relative to what they take on
/// the median rank; `None` where those are too few. Unlike a pace this follows the clock of all
/// kernels alike, whether bound by the clock or by memory, and noise of single kernels averages
/// out. A kernel that something held up counts as at most a quarter longer.
pub(crate) fn slownesses(durations: &[&[Nanos]], overlaps: &[Overlap]) -> Vec<Option<f64>> {
    let middles = middles(durations, overlaps);
    let whole: f64 = middles.iter().flatten().sum();
    let enough = middles.iter().flatten().count() >= PACE_KERNELS && whole > 0.0;
    let time = |column: &&[Nanos]| -> f64 {
        let kernels = column.iter().zip(&middles);
        let times = kernels.filter_map(|(length, middle)| {
            let middle = (*middle)?;
            Some((length.0 as f64).clamp(middle * 0.75, middle * 1.25))
        });
        times.sum()
    };
    durations
        .iter()
        .map(|column| enough.then(|| time(column) / whole))
        .collect()
}

/// The middle time of each kernel over the ranks; `None` where its overlap varies.
fn middles(durations: &[&[Nanos]], overlaps: &[Overlap]) -> Vec<Option<f64>> {
    let mut row = Vec::with_capacity(durations.len());
    let middle = |(k, overlap): (usize, &Overlap)| {
        if overlap.varies() {
            return None;
        }
        row.clear();
        let column = |column: &&[Nanos]| column.get(k).map(|duration| duration.0 as f64);
        row.extend(durations.iter().filter_map(column));
        median(&mut row)
    };
    overlaps.iter().enumerate().map(middle).collect()
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
