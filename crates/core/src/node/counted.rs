//! How often each power was seen, in steps of some watts: for peaks, of which a few readings may be wrong.

use std::collections::BTreeMap;

use litd_units::Watts;

/// Bucket width of the histogram, in watts.
const STEP: Watts = Watts(5.0);

/// How often a value was seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Counted {
    steps: BTreeMap<i64, u64>,
    pub count: u64,
}

impl Counted {
    pub fn add(&mut self, value: f64) {
        if value.is_finite() {
            // Bounded: readings are below 100 kW.
            let step = (value / STEP.0).ceil().clamp(0.0, 20_000.0) as i64;
            *self.steps.entry(step).or_default() += 1;
            self.count += 1;
        }
    }

    /// The 99.9th percentile; of less than a thousand values, the largest.
    pub fn p999(&self) -> Option<f64> {
        let above = self.count / 1000;
        let mut seen = 0;
        let step = self.steps.iter().rev().find_map(|(&step, &count)| {
            seen += count;
            (seen > above).then_some(step)
        });
        step.map(|step| step as f64 * STEP.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_thousand_is_above() {
        let mut counted = Counted::default();
        assert_eq!(counted.p999(), None);
        for _ in 0..999 {
            counted.add(500.0);
        }
        counted.add(900.0);
        // Of a thousand values the largest may be above.
        assert_eq!(counted.p999(), Some(500.0));
        counted.add(901.0);
        assert_eq!(counted.p999(), Some(900.0));
        let mut few = Counted::default();
        for value in [3.0, 812.0, f64::NAN, f64::INFINITY, -5.0] {
            few.add(value);
        }
        assert_eq!((few.p999(), few.count), (Some(815.0), 3));
    }
}
