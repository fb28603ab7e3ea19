//! Means over time in bounded memory.

/// A GPU's time has so many bins at most, and more than half of them once it has been wide enough.
pub const BINS: usize = 32;

/// Sums of a quantity in bins of time. All bins are equally wide, a power of two in milliseconds, and as
/// narrow as [`BINS`] of them allow between the first and the last moment; so they do not depend on the
/// order in which values come.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimeBins {
    /// A bin is 2^level ms wide.
    level: u32,
    /// The number of the first bin, in widths since the epoch.
    first: i64,
    sums: Vec<f64>,
    counts: Vec<u32>,
}

impl TimeBins {
    /// Adds a value that belongs to a moment, in milliseconds since the epoch.
    pub fn add(&mut self, time: i64, value: f64) {
        let mut bin = time >> self.level;
        if self.sums.is_empty() {
            self.first = bin;
        }
        let last = |it: &Self| it.first + it.sums.len().saturating_sub(1) as i64;
        // Differences of i64 may be beyond i64.
        while i128::from(bin.max(last(self))) - i128::from(bin.min(self.first)) >= BINS as i128 {
            self.widen();
            bin = time >> self.level;
        }
        while bin < self.first {
            self.sums.insert(0, 0.0);
            self.counts.insert(0, 0);
            self.first -= 1;
        }
        let at = (bin - self.first) as usize;
        if at >= self.sums.len() {
            self.sums.resize(at + 1, 0.0);
            self.counts.resize(at + 1, 0);
        }
        if let (Some(sum), Some(count)) = (self.sums.get_mut(at), self.counts.get_mut(at)) {
            *sum += value;
            *count = count.saturating_add(1);
        }
    }

    /// Makes every bin twice as wide.
    fn widen(&mut self) {
        let wider = self.widened(self.level + 1);
        *self = wider;
    }

    fn widened(&self, level: u32) -> Self {
        let by = level.saturating_sub(self.level);
        let mut wider = Self {
            level,
            first: self.first >> by.min(63),
            ..Self::default()
        };
        for (at, (sum, count)) in (self.first..).zip(self.sums.iter().zip(&self.counts)) {
            let to = ((at >> by.min(63)) - wider.first) as usize;
            if to >= wider.sums.len() {
                wider.sums.resize(to + 1, 0.0);
                wider.counts.resize(to + 1, 0);
            }
            wider.sums[to] += sum;
            wider.counts[to] = wider.counts[to].saturating_add(*count);
        }
        wider
    }

    /// Several GPUs' bins, equally wide, on one axis: for each bin in which any has a value, a row of the
    /// sum and count of each GPU.
    pub(crate) fn aligned(all: &[&Self]) -> Vec<Vec<(f64, u32)>> {
        let filled = || all.iter().filter(|it| !it.sums.is_empty());
        let Some(mut level) = filled().map(|it| it.level).max() else {
            return Vec::new();
        };
        let (wide, first, length) = loop {
            let wide = Vec::from_iter(all.iter().map(|it| it.widened(level)));
            let ends = wide.iter().filter(|it| !it.sums.is_empty());
            let ends = ends.map(|it| (it.first, it.first + it.sums.len() as i64));
            let (first, end) = ends.fold((i64::MAX, i64::MIN), |(first, end), it| {
                (first.min(it.0), end.max(it.1))
            });
            let length = i128::from(end) - i128::from(first);
            if length <= BINS as i128 {
                break (wide, first, length as usize);
            }
            level += 1;
        };
        let row = |at: i64| {
            let of = |it: &Self| {
                let at = usize::try_from(at - it.first).ok()?;
                Some((*it.sums.get(at)?, *it.counts.get(at)?))
            };
            Vec::from_iter(wide.iter().map(|it| of(it).unwrap_or_default()))
        };
        let rows = (0..length as i64).map(|at| row(first + at));
        rows.filter(|row| row.iter().any(|it| it.1 > 0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_do_not_depend_on_the_order() {
        let samples = [(1_000, 1.0), (86_400_000, 2.0), (40_000_000, 3.0), (0, 4.0)];
        let of = |order: [usize; 4]| {
            let mut bins = TimeBins::default();
            for at in order {
                bins.add(samples[at].0, samples[at].1);
            }
            bins
        };
        assert_eq!(of([0, 1, 2, 3]), of([3, 2, 1, 0]));
        assert_eq!(of([0, 1, 2, 3]), of([1, 3, 0, 2]));
        assert!(of([0, 1, 2, 3]).sums.len() <= BINS);
        assert!(of([0, 1, 2, 3]).sums.len() > BINS / 2);
    }

    #[test]
    fn no_moment_is_too_far() {
        let mut bins = TimeBins::default();
        for time in [i64::MIN, i64::MAX, 0, -1] {
            bins.add(time, 1.0);
        }
        assert_eq!(bins.counts.iter().sum::<u32>(), 4);
        let rows = TimeBins::aligned(&[&bins, &TimeBins::default()]);
        assert!(rows.iter().all(|row| row.len() == 2 && row[1].1 == 0));
    }
}
