//! The distribution of positive numbers in bounded memory.

/// So many buckets are filled at most.
pub const BUCKETS: usize = 128;

/// How many bits of a number's mantissa the narrowest buckets tell apart: a value is kept to 2^-21 of
/// itself. Whole numbers up to 2,097,152 are kept as they are.
const BITS: u32 = 20;

/// The bits of a double's mantissa that are left out.
const CUT: u32 = 52 - BITS;

/// Counts of positive numbers in buckets whose width is a share of the number.
///
/// Buckets are as narrow as [`BUCKETS`] of them allow: where more would be filled, neighbours are merged
/// in pairs and each is twice as wide. How wide they are therefore depends on which values came and not on
/// their order, so the sketch of a set is one and the same in whichever order its values were added.
///
/// A bucket is a run of doubles with the same leading bits, which are in the order of the numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sketch {
    /// A bucket's number and its count, in order.
    buckets: Vec<(u32, u32)>,
    /// How often pairs were merged.
    merged: u32,
    count: u32,
}

impl Sketch {
    /// Adds a number. What is not positive and finite is left out: the caller has sorted it out before.
    pub fn add(&mut self, value: f64) {
        if !(value.is_finite() && value > f64::MIN_POSITIVE) {
            return;
        }
        // To the nearest, so that numbers with few digits stay as they are; the largest has no larger one.
        let nearest = (value.to_bits() + (1 << (CUT - 1))).min(f64::MAX.to_bits()) >> CUT;
        let bucket = (nearest as u32) >> self.merged;
        self.count = self.count.saturating_add(1);
        match self.buckets.binary_search_by_key(&bucket, |it| it.0) {
            Ok(at) => {
                if let Some(found) = self.buckets.get_mut(at) {
                    found.1 = found.1.saturating_add(1);
                }
            }
            Err(at) => {
                self.buckets.insert(at, (bucket, 1));
                while self.buckets.len() > BUCKETS {
                    self.merge();
                }
            }
        }
    }

    /// Makes every bucket twice as wide.
    fn merge(&mut self) {
        self.merged += 1;
        let mut wider: Vec<(u32, u32)> = Vec::with_capacity(BUCKETS);
        for (bucket, count) in self.buckets.drain(..) {
            match wider.last_mut() {
                Some(last) if last.0 == bucket >> 1 => last.1 = last.1.saturating_add(count),
                _ => wider.push((bucket >> 1, count)),
            }
        }
        self.buckets = wider;
    }

    /// How many numbers were added.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// By which share of itself a quantile may be off at most: the widest bucket. Where many values are in
    /// a bucket it is a small part of that, because they are taken to lie evenly in it.
    #[must_use]
    pub fn error(&self) -> f64 {
        // A bucket is 2^merged runs of doubles, each 2^-20 of its number wide at most.
        2_f64.powi(self.merged as i32) * 2_f64.powi(-(BITS as i32))
    }

    /// The value that so many added ones are below, counted from 0.
    fn at(&self, rank: u32) -> Option<f64> {
        let mut below = 0_u32;
        for &(bucket, count) in &self.buckets {
            if rank < below.saturating_add(count) {
                let first = u64::from(bucket) << self.merged;
                let width = (1_u64 << self.merged) - 1;
                let [low, high] = [first, first + width].map(|it| f64::from_bits(it << CUT));
                let place = (f64::from(rank - below) + 0.5) / f64::from(count);
                return Some(low + (high - low) * place);
            }
            below = below.saturating_add(count);
        }
        None
    }

    /// The value below which this share of the numbers lies; between two of them, in proportion.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.count.checked_sub(1)?;
        let place = share.clamp(0.0, 1.0) * f64::from(last);
        let low = self.at(place as u32)?;
        let high = self.at((place as u32).saturating_add(1).min(last))?;
        Some(low + (high - low) * place.fract())
    }

    /// The middle one; of an even count the mean of the middle two.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = f64>) -> Sketch {
        let mut sketch = Sketch::default();
        values.into_iter().for_each(|it| sketch.add(it));
        sketch
    }

    #[test]
    fn few_values_are_kept_as_they_are() {
        let sketch = of([1530.0, 1395.0, 1417.0, 1462.0]);
        assert_eq!(sketch.median(), Some(f64::midpoint(1417.0, 1462.0)));
        assert_eq!(sketch.quantile(0.0), Some(1395.0));
        assert_eq!(sketch.quantile(1.0), Some(1530.0));
        assert_eq!(of([]).median(), None);
    }

    #[test]
    fn strange_numbers_are_left_out() {
        let sketch = of([0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE / 2.0]);
        assert_eq!((sketch.count(), sketch.median()), (0, None));
        let widest = of([1e-300, 1.0, 1e300, f64::MAX]);
        assert!(widest.quantile(1.0).is_some());
    }

    #[test]
    fn many_values_are_kept_to_the_error_that_is_told() {
        // A square root walks through values of every size between.
        let values = Vec::from_iter((1..=100_000).map(|it| 1200.0 + f64::from(it).sqrt()));
        let sketch = of(values.iter().copied());
        assert!(sketch.buckets.len() <= BUCKETS);
        for share in [0.0, 0.1, 0.5, 0.9, 1.0] {
            let exact = values[(share * 99_999.0) as usize];
            let off = sketch.quantile(share).unwrap() / exact - 1.0;
            assert!(off.abs() <= sketch.error() + 1e-6, "{share}: {off}");
        }
        assert!(sketch.error() < 0.004, "{}", sketch.error());
    }
}
